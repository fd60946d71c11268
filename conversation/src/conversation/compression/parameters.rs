//! Parses the parameters of strategies, under all their aliases.

use std::fmt;

use serde_json::{Map, Value};

use super::CompressionError;
use super::checklist::{Budget, Limits, Section};

const COUNT: &[&str] = &["count", "keepCount", "recentCount", "keepRecent", "lastN", "n"];
const MAX_TOKENS: &[&str] = &["maxTokens", "tokenBudget"];
const WINDOW_COUNT: &[&str] = &["count", "windowSize", "size"];

/// A parameter of the wrong type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidParameter {
    /// Name of the parameter.
    pub name: String,
    /// Required type.
    pub kind: ParameterKind,
}

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A non-negative integer.
    Whole,
    /// A list of names.
    Names,
    /// A number from 0 to 1.
    Share,
    /// A number of tokens above 1, or a share above 0 and up to 1.
    Budget,
    /// An object of sections with shares, whose sum is at most 1.
    Floors,
}

impl fmt::Display for InvalidParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ParameterKind::Whole => "a whole number, zero or more",
            ParameterKind::Names => "a list of names",
            ParameterKind::Share => "a number from 0 to 1",
            ParameterKind::Budget => "a whole number of tokens, or a share above 0 and up to 1",
            ParameterKind::Floors => {
                "an object of sections (such as `facts`) with shares from 0 to 1, in sum at most 1"
            }
        };
        write!(f, "`{}` must be {kind}", self.name)
    }
}

/// Limits of `sliding_window`. Without `count` and `maxTokens` everything is retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) max_tokens: Option<u64>,
    pub(super) count: Option<usize>,
    pub(super) keep_head: usize,
}

/// Parses `count`, default 10.
pub(super) fn count(parameters: &Map<String, Value>) -> Result<usize, CompressionError> {
    Ok(whole(parameters, COUNT)?.map_or(10, bounded))
}

/// Parameters of `clear_tool_results`: number of retained results, minimum savings in tokens, excluded tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clear {
    pub(super) keep: usize,
    pub(super) min_tokens: u64,
    pub(super) exclude: Vec<String>,
}

/// Parses `keep` (default 3), `minTokens` (default 0) and `exclude` (names).
pub(super) fn clear(parameters: &Map<String, Value>) -> Result<Clear, CompressionError> {
    let wrong = || invalid("exclude", ParameterKind::Names);
    let exclude = match parameters.get("exclude") {
        // Null is like an absent field, as for all parameters.
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(names)) => (names.iter())
            .map(|name| name.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect::<Result<_, _>>()?,
        // A single name is no list: accepting it would hide a mistake in the definition.
        Some(_) => return Err(wrong()),
    };
    Ok(Clear {
        keep: whole(parameters, &["keep"])?.map_or(3, bounded),
        min_tokens: whole(parameters, &["minTokens"])?.unwrap_or(0),
        exclude,
    })
}

/// Validates `payback`, which every strategy has.
pub(super) fn check_payback(parameters: &Map<String, Value>) -> Result<(), CompressionError> {
    // `CompressionContext::pays` reads the value.
    whole(parameters, &["payback"]).map(|_| ())
}

/// Parses `keepRecent` of `summarize`, default 4.
pub(super) fn keep_recent(parameters: &Map<String, Value>) -> Result<usize, CompressionError> {
    Ok(whole(parameters, &["keepRecent", "count"])?.map_or(4, bounded))
}

/// Parses `keepFacts` of `summarize`: the minimum share of facts to retain.
pub(super) fn keep_facts(parameters: &Map<String, Value>) -> Result<Option<f64>, CompressionError> {
    match parameters.get("keepFacts") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64() {
            // The range also rejects NaN.
            Some(share) if (0.0..=1.0).contains(&share) => Ok(Some(share)),
            Some(_) | None => Err(invalid("keepFacts", ParameterKind::Share)),
        },
    }
}

/// Parses `budget` (default 0.2) and `floors` of `checklist`.
pub(super) fn checklist(parameters: &Map<String, Value>) -> Result<Limits, CompressionError> {
    let mut limits = Limits::DEFAULT;
    match parameters.get("budget") {
        None | Some(Value::Null) => {}
        Some(value) => {
            let tokens = value.as_u64().filter(|tokens| *tokens > 1).map(Budget::Tokens);
            let share = value
                .as_f64()
                .filter(|share| *share > 0.0 && *share <= 1.0)
                .map(Budget::Share);
            limits.budget = tokens
                .or(share)
                .ok_or_else(|| invalid("budget", ParameterKind::Budget))?;
        }
    }
    match parameters.get("floors") {
        None | Some(Value::Null) => {}
        Some(floors) => {
            let wrong = || invalid("floors", ParameterKind::Floors);
            for (name, share) in floors.as_object().ok_or_else(wrong)? {
                let section = Section::named(name).ok_or_else(wrong)?;
                let share = share.as_f64().filter(|share| (0.0..=1.0).contains(share));
                limits.floors[section as usize] = share.ok_or_else(wrong)?;
            }
            // The sum may exceed 1 by an error of rounding only.
            if limits.floors.iter().sum::<f64>() > 1.0 + 1e-9 {
                return Err(wrong());
            }
        }
    }
    Ok(limits)
}

/// Parses the limits of `sliding_window`. `keepHead` counts messages after the system ones; `true` means 1.
pub(super) fn window(parameters: &Map<String, Value>) -> Result<Window, CompressionError> {
    let keep_head = match parameters.get("keepHead") {
        Some(Value::Bool(keep)) => usize::from(*keep),
        _ => whole(parameters, &["keepHead"])?.map_or(0, bounded),
    };
    Ok(Window {
        max_tokens: whole(parameters, MAX_TOKENS)?,
        count: whole(parameters, WINDOW_COUNT)?.map(bounded),
        keep_head,
    })
}

fn whole(parameters: &Map<String, Value>, names: &[&str]) -> Result<Option<u64>, CompressionError> {
    // The first alias that is given wins. Its name is returned too, so that an error shows the name in the file.
    let given = names.iter().find_map(|name| Some((*name, parameters.get(*name)?)));
    match given {
        // A null is a given value: it hides the aliases after it.
        None | Some((_, Value::Null)) => Ok(None),
        Some((name, value)) => {
            // A negative number or a fraction is an error instead of being rounded.
            let number = value.as_u64().map(Some);
            number.ok_or_else(|| invalid(name, ParameterKind::Whole))
        }
    }
}

fn invalid(name: &str, kind: ParameterKind) -> CompressionError {
    CompressionError::Parameter(InvalidParameter {
        name: name.to_owned(),
        kind,
    })
}

fn bounded(number: u64) -> usize {
    // A count above every length selects all messages, also where `usize` has 32 bits.
    usize::try_from(number).unwrap_or(usize::MAX)
}
