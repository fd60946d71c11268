//! Parameters of the built-in compression strategies: names, aliases and types.
//!
//! Not here: their values and defaults (`pirn_conversation::conversation::compression`).

use std::fmt;

use serde_json::Value;

/// A parameter of a compression strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionParameter {
    /// The name and its aliases. If several are given, the first in this order is used.
    pub names: &'static [&'static str],
    /// Type of the value.
    pub kind: ParameterKind,
}

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A non-negative integer.
    Whole,
    /// A non-negative integer, or a boolean.
    WholeOrBoolean,
    /// A string.
    Text,
    /// A list of names.
    Names,
    /// A number from 0 to 1.
    Share,
    /// A number of tokens above 1, or a share above 0 and up to 1.
    Budget,
    /// An object of sections with shares, whose sum is at most 1.
    Floors,
}

impl CompressionParameter {
    /// Number of retained messages.
    pub const COUNT: Self = Self::of(
        &["count", "keepCount", "recentCount", "keepRecent", "lastN", "n"],
        ParameterKind::Whole,
    );
    /// Number of messages in a sliding window.
    pub const WINDOW_COUNT: Self = Self::of(&["count", "windowSize", "size"], ParameterKind::Whole);
    /// Maximum tokens of a sliding window.
    pub const MAX_TOKENS: Self = Self::of(&["maxTokens", "tokenBudget"], ParameterKind::Whole);
    /// Number of messages that a sliding window retains after the system messages; `true` means 1.
    pub const KEEP_HEAD: Self = Self::of(&["keepHead"], ParameterKind::WholeOrBoolean);
    /// Number of recent messages that a summary does not change.
    pub const KEEP_RECENT: Self = Self::of(&["keepRecent", "count"], ParameterKind::Whole);
    /// Profile of the model that writes a summary.
    pub const PROFILE_ID: Self = Self::of(&["profileId"], ParameterKind::Text);
    /// Minimum share of facts to retain.
    pub const KEEP_FACTS: Self = Self::of(&["keepFacts"], ParameterKind::Share);
    /// Limit of a checklist.
    pub const BUDGET: Self = Self::of(&["budget"], ParameterKind::Budget);
    /// Shares of the sections of a checklist.
    pub const FLOORS: Self = Self::of(&["floors"], ParameterKind::Floors);
    /// Number of tool results that stay unchanged.
    pub const KEEP: Self = Self::of(&["keep"], ParameterKind::Whole);
    /// Minimum saving, in tokens.
    pub const MIN_TOKENS: Self = Self::of(&["minTokens"], ParameterKind::Whole);
    /// Names of tools; their results stay unchanged.
    pub const EXCLUDE: Self = Self::of(&["exclude"], ParameterKind::Names);
    /// Number of requests that must save more tokens than must be processed again.
    pub const PAYBACK: Self = Self::of(&["payback"], ParameterKind::Whole);

    /// Sections of a checklist, in the order of its text.
    pub const SECTIONS: [&'static str; 9] = [
        "rules",
        "constraints",
        "corrections",
        "goals",
        "preferences",
        "decisions",
        "questions",
        "artifacts",
        "facts",
    ];

    const fn of(names: &'static [&'static str], kind: ParameterKind) -> Self {
        Self { names, kind }
    }

    /// Returns the parameters of a built-in strategy; `None` for any other name.
    pub fn of_strategy(strategy: &str) -> Option<&'static [Self]> {
        const KEEP_LAST: &[CompressionParameter] = &[CompressionParameter::COUNT, CompressionParameter::PAYBACK];
        const WINDOW: &[CompressionParameter] = &[
            CompressionParameter::MAX_TOKENS,
            CompressionParameter::WINDOW_COUNT,
            CompressionParameter::KEEP_HEAD,
            CompressionParameter::PAYBACK,
        ];
        const SUMMARY: &[CompressionParameter] = &[
            CompressionParameter::KEEP_RECENT,
            CompressionParameter::BUDGET,
            CompressionParameter::FLOORS,
            CompressionParameter::KEEP_FACTS,
            CompressionParameter::PAYBACK,
            CompressionParameter::PROFILE_ID,
        ];
        const CLEAR: &[CompressionParameter] = &[
            CompressionParameter::KEEP,
            CompressionParameter::MIN_TOKENS,
            CompressionParameter::EXCLUDE,
            CompressionParameter::PAYBACK,
        ];
        Some(match strategy {
            "keep_recent" | "keep_system_recent" => KEEP_LAST,
            "sliding_window" => WINDOW,
            "summarize" => SUMMARY,
            // Without the profile: no model is called.
            "checklist" => SUMMARY.split_last()?.1,
            "clear_tool_results" => CLEAR,
            _ => return None,
        })
    }
}

impl ParameterKind {
    /// Returns true if a parameter of this type can have the value. `null` is like an absent parameter.
    pub fn fits(self, value: &Value) -> bool {
        if value.is_null() {
            return true;
        }
        let share = |value: &Value| value.as_f64().filter(|share| (0.0..=1.0).contains(share));
        match self {
            Self::Whole => value.is_u64(),
            Self::WholeOrBoolean => value.is_u64() || value.is_boolean(),
            Self::Text => value.is_string(),
            Self::Names => value.as_array().is_some_and(|names| names.iter().all(Value::is_string)),
            Self::Share => share(value).is_some(),
            Self::Budget => {
                value.as_u64().is_some_and(|tokens| tokens > 1) || share(value).is_some_and(|share| share > 0.0)
            }
            Self::Floors => {
                let of_section = |(name, value): (&String, &Value)| {
                    let is_section = CompressionParameter::SECTIONS.contains(&name.as_str());
                    share(value).filter(|_| is_section)
                };
                let shares = value
                    .as_object()
                    .and_then(|floors| floors.iter().map(of_section).collect::<Option<Vec<f64>>>());
                // The sum may exceed 1 by an error of rounding only.
                shares.is_some_and(|shares| shares.iter().sum::<f64>() <= 1.0 + 1e-9)
            }
        }
    }
}

impl fmt::Display for ParameterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "a whole number, zero or more",
            Self::WholeOrBoolean => "a whole number, zero or more, or a boolean",
            Self::Text => "a string",
            Self::Names => "a list of names",
            Self::Share => "a number from 0 to 1",
            Self::Budget => "a whole number of tokens, or a share above 0 and up to 1",
            Self::Floors => "an object of sections (such as `facts`) with shares from 0 to 1, in sum at most 1",
        })
    }
}
