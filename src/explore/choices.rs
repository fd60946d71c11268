//! The choices of a schedule in the form that a later exploration follows.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Maximum number of a step in the string form, so that a short string cannot request a long list.
const MAX_STEP: usize = 1_000_000;

/// The choices of one schedule, for [`Explorer::replay`](super::Explorer::replay).
///
/// The string form lists the steps at which not the first option was chosen, as `STEP:OPTION`, both from 1: `4:2,9:3`. It is `1:1` if
/// every step chose its first option. A step is an end that the search chose, also if it had one option only.
///
/// ```
/// use pirn::explore::Choices;
/// let choices: Choices = "4:2,9:3".parse()?;
/// assert_eq!(choices.to_string(), "4:2,9:3");
/// assert!("9:3,4:2".parse::<Choices>().is_err());
/// # Ok::<(), pirn::explore::InvalidChoices>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices(Vec<(usize, usize)>);

/// A string is not the string form of [`Choices`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{part}` is not a choice: expected STEP:OPTION with numbers from 1, steps in ascending order, separated by commas"
)]
pub struct InvalidChoices {
    /// The part that is wrong.
    pub part: String,
}

impl Choices {
    /// Creates the choices from the index of the chosen option of every step.
    pub(super) fn of(chosen: impl Iterator<Item = usize>) -> Self {
        Self(chosen.enumerate().filter(|(_, option)| *option > 0).collect())
    }

    /// Returns the index of the chosen option of every step, up to the last that is not the first option.
    pub(super) fn to_list(&self) -> Vec<usize> {
        let mut list = vec![0; self.0.last().map_or(0, |(step, _)| step + 1)];
        for (step, option) in &self.0 {
            list[*step] = *option;
        }
        list
    }
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("1:1");
        }
        for (place, (step, option)) in self.0.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma}{}:{}", step + 1, option + 1)?;
        }
        Ok(())
    }
}

impl FromStr for Choices {
    type Err = InvalidChoices;

    fn from_str(text: &str) -> Result<Self, InvalidChoices> {
        let mut choices = Vec::new();
        let mut last = 0;
        for part in text.split(',') {
            let invalid = || InvalidChoices { part: part.to_owned() };
            let (step, option) = part.split_once(':').ok_or_else(invalid)?;
            let number = |text: &str| {
                text.parse::<usize>()
                    .ok()
                    .filter(|number| (1..=MAX_STEP).contains(number))
            };
            let (step, option) = number(step).zip(number(option)).ok_or_else(invalid)?;
            // In order, so that no step is given twice.
            if step <= last {
                return Err(invalid());
            }
            last = step;
            choices.push((step - 1, option - 1));
        }
        Ok(Self(choices.into_iter().filter(|(_, option)| *option > 0).collect()))
    }
}

impl Serialize for Choices {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
