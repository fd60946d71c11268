//! Parses the parameters of strategies, under all their aliases.

use std::fmt;

use pirn_definition::definition::CompressionParameter;
pub use pirn_definition::definition::ParameterKind;
use serde_json::{Map, Value};

use super::CompressionError;
use super::checklist::{Budget, Limits, Section};

/// A parameter of the wrong type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidParameter {
    /// Name of the parameter.
    pub name: String,
    /// Required type.
    pub kind: ParameterKind,
}

impl fmt::Display for InvalidParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` must be {}", self.name, self.kind)
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
    Ok(whole(parameters, CompressionParameter::COUNT)?.map_or(10, bounded))
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
    let exclude = given(parameters, CompressionParameter::EXCLUDE)?.and_then(Value::as_array);
    let exclude = exclude.into_iter().flatten().filter_map(Value::as_str);
    Ok(Clear {
        keep: whole(parameters, CompressionParameter::KEEP)?.map_or(3, bounded),
        min_tokens: whole(parameters, CompressionParameter::MIN_TOKENS)?.unwrap_or(0),
        exclude: exclude.map(str::to_owned).collect(),
    })
}

/// Validates `payback`, which every strategy has.
pub(super) fn check_payback(parameters: &Map<String, Value>) -> Result<(), CompressionError> {
    // `CompressionContext::pays` reads the value.
    whole(parameters, CompressionParameter::PAYBACK).map(|_| ())
}

/// Parses `keepRecent` of `summarize`, default 4.
pub(super) fn keep_recent(parameters: &Map<String, Value>) -> Result<usize, CompressionError> {
    Ok(whole(parameters, CompressionParameter::KEEP_RECENT)?.map_or(4, bounded))
}

/// Parses `keepFacts` of `summarize`: the minimum share of facts to retain.
pub(super) fn keep_facts(parameters: &Map<String, Value>) -> Result<Option<f64>, CompressionError> {
    Ok(given(parameters, CompressionParameter::KEEP_FACTS)?.and_then(Value::as_f64))
}

/// Parses `budget` (default 0.2) and `floors` of `checklist`.
pub(super) fn checklist(parameters: &Map<String, Value>) -> Result<Limits, CompressionError> {
    let mut limits = Limits::DEFAULT;
    if let Some(budget) = given(parameters, CompressionParameter::BUDGET)? {
        let tokens = budget.as_u64().filter(|tokens| *tokens > 1).map(Budget::Tokens);
        let share = budget.as_f64().map(Budget::Share);
        limits.budget = tokens.or(share).unwrap_or(limits.budget);
    }
    if let Some(Value::Object(floors)) = given(parameters, CompressionParameter::FLOORS)? {
        for (name, share) in floors {
            if let (Some(section), Some(share)) = (Section::named(name), share.as_f64()) {
                limits.floors[section as usize] = share;
            }
        }
        // The sum of all sections, of which `ParameterKind::fits` has seen the given ones. It may exceed 1 by an error of rounding only.
        if limits.floors.iter().sum::<f64>() > 1.0 + 1e-9 {
            return Err(invalid("floors", ParameterKind::Floors));
        }
    }
    Ok(limits)
}

/// Parses the limits of `sliding_window`. `keepHead` counts messages after the system ones; `true` means 1.
pub(super) fn window(parameters: &Map<String, Value>) -> Result<Window, CompressionError> {
    let keep_head = match given(parameters, CompressionParameter::KEEP_HEAD)? {
        Some(Value::Bool(keep)) => usize::from(*keep),
        count => count.and_then(Value::as_u64).map_or(0, bounded),
    };
    Ok(Window {
        max_tokens: whole(parameters, CompressionParameter::MAX_TOKENS)?,
        count: whole(parameters, CompressionParameter::WINDOW_COUNT)?.map(bounded),
        keep_head,
    })
}

fn whole(parameters: &Map<String, Value>, parameter: CompressionParameter) -> Result<Option<u64>, CompressionError> {
    Ok(given(parameters, parameter)?.and_then(Value::as_u64))
}

/// Returns the value of a parameter; `None` if it is absent or null.
fn given(parameters: &Map<String, Value>, parameter: CompressionParameter) -> Result<Option<&Value>, CompressionError> {
    // The first alias that is given wins. Its name is returned too, so that an error shows the name in the file.
    let mut names = parameter.names.iter();
    match names.find_map(|name| Some((*name, parameters.get(*name)?))) {
        // A null is a given value: it hides the aliases after it.
        None | Some((_, Value::Null)) => Ok(None),
        // A negative number, a fraction, or a single name for a list is an error instead of being converted.
        Some((name, value)) if !parameter.kind.fits(value) => Err(invalid(name, parameter.kind)),
        Some((_, value)) => Ok(Some(value)),
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
