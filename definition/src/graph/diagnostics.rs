//! Faults and warnings of one definition, collected while it is checked.

use crate::definition::json::Step;
use crate::definition::{ConversationHistoryOptions, Fault, FaultCode, MAX_FAULTS, Origin, nearest};
use crate::script::{FIXED_NAMES, is_name};

/// Faults and warnings found in a definition.
pub(super) struct Diagnostics<'a> {
    pub(super) origin: &'a Origin,
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<Fault>,
}

/// The pointer to a part of a definition: `pointer!["nodes", 3, "config"]`.
macro_rules! pointer {
    ($($step:expr),* $(,)?) => { Vec::from([$($crate::graph::diagnostics::step($step)),*]) };
}
pub(crate) use pointer;

/// Converts a key or an index to a step.
pub(crate) fn step(step: impl Into<StepWord>) -> Step {
    step.into().0
}

/// The argument of [`at!`].
pub(crate) struct StepWord(Step);

impl From<&str> for StepWord {
    fn from(key: &str) -> Self {
        Self(Step::Key(key.to_owned()))
    }
}

impl From<usize> for StepWord {
    fn from(index: usize) -> Self {
        Self(Step::Index(index))
    }
}

/// Returns `pointer` with one more step.
pub(crate) fn child(pointer: &[Step], next: impl Into<StepWord>) -> Vec<Step> {
    let mut longer = pointer.to_vec();
    longer.push(step(next));
    longer
}

/// Maximum duration, in seconds: ten years.
const LONGEST_SECONDS: f64 = 10.0 * 365.25 * 86_400.0;
const LONGEST_MS: u64 = 315_576_000_000;

/// Maximum number of names that help lists.
pub(super) const MAX_LISTED: usize = 12;

impl<'a> Diagnostics<'a> {
    pub(super) fn new(origin: &'a Origin) -> Self {
        Self {
            origin,
            faults: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Adds findings about this definition.
    pub(super) fn extend(&mut self, other: Self) {
        self.faults.extend(other.faults);
        self.warnings.extend(other.warnings);
    }

    /// True if the maximum number of faults is reached.
    pub(super) fn is_full(&self) -> bool {
        self.faults.len() > MAX_FAULTS
    }

    pub(super) fn fault(&mut self, code: FaultCode, pointer: &[Step], message: impl Into<String>) {
        if !self.is_full() && !self.is_echo(code, pointer) {
            self.faults.push(self.origin.fault(code, pointer, message));
        }
    }

    pub(super) fn fault_with_help(&mut self, code: FaultCode, pointer: &[Step], message: String, help: &str) {
        if !self.is_full() && !self.is_echo(code, pointer) {
            self.faults
                .push(self.origin.fault(code, pointer, message).with_help(help));
        }
    }

    /// Returns true if the fault is that a part is absent which the loader has removed, with a fault of its own.
    fn is_echo(&self, code: FaultCode, pointer: &[Step]) -> bool {
        let is_of_fields = matches!(
            code,
            FaultCode::MissingField
                | FaultCode::InvalidValue
                | FaultCode::InvalidForkPathIds
                | FaultCode::InvalidThreshold
                | FaultCode::InvalidHistoryOptions
                | FaultCode::InvalidCallback
        );
        is_of_fields && self.origin.is_incomplete(pointer)
    }

    /// Adds a fault about an unknown name; the help suggests the most similar known one.
    pub(super) fn unknown<'n>(
        &mut self,
        code: FaultCode,
        pointer: &[Step],
        message: String,
        name: &str,
        known: impl Iterator<Item = &'n str>,
    ) {
        if self.is_full() {
            return;
        }
        match nearest(name, known) {
            Some(near) => self.fault_with_help(code, pointer, message, &format!("did you mean `{near}`?")),
            None => self.fault(code, pointer, message),
        }
    }

    /// Adds a fault about an unknown node; the help suggests the most similar one, or lists the first ones.
    pub(super) fn unknown_node<'n>(
        &mut self,
        code: FaultCode,
        pointer: &[Step],
        id: &str,
        known: impl Iterator<Item = &'n str> + Clone,
    ) {
        if self.is_full() {
            return;
        }
        let help = if let Some(near) = nearest(id, known.clone()) {
            format!("did you mean `{near}`?")
        } else {
            let first: Vec<String> = known.take(MAX_LISTED).map(|id| format!("`{id}`")).collect();
            format!("the nodes are {}", first.join(", "))
        };
        self.fault_with_help(code, pointer, format!("unknown node `{id}`"), &help);
    }

    pub(super) fn warn(&mut self, code: FaultCode, pointer: &[Step], message: impl Into<String>) {
        if self.warnings.len() <= MAX_FAULTS {
            self.warnings.push(self.origin.fault(code, pointer, message));
        }
    }

    /// Adds a finding as a warning.
    pub(super) fn warn_of(&mut self, fault: Fault) {
        if self.warnings.len() <= MAX_FAULTS {
            self.warnings.push(fault);
        }
    }

    pub(super) fn warn_with_help(&mut self, code: FaultCode, pointer: &[Step], message: String, help: &str) {
        if self.warnings.len() <= MAX_FAULTS {
            self.warnings
                .push(self.origin.fault(code, pointer, message).with_help(help));
        }
    }

    /// Checks the name of a variable. A valid name that expressions read as something else is only a warning.
    pub(super) fn variable_name(&mut self, name: &str, pointer: &[Step]) {
        let code = FaultCode::InvalidValue;
        if name.is_empty() {
            self.fault(code, pointer, "a variable needs a name that is not empty");
        } else if !is_name(name) {
            let message = format!("`{name}` cannot be the name of a variable");
            let help = "a name has letters, digits, `_` and `$`, starts with no digit, and is neither a word of JavaScript nor `__proto__`";
            self.fault_with_help(code, pointer, message, help);
        } else if name.contains('-') {
            let message = format!("`{name}` is read as a subtraction in expressions: a hyphen is an operator");
            let help = format!("write `variables['{name}']` there, or name the variable without a hyphen");
            self.warn_with_help(code, pointer, message, &help);
        } else if name != "loop" && FIXED_NAMES.contains(&name) {
            let (message, help) = if matches!(name, "variables" | "nodes") {
                let message = format!("`{name}` is never the variable of this name, but the object of all {name}");
                (message, format!("rename it, or write `variables['{name}']` to read it"))
            } else {
                let message = format!("the variable `{name}` hides the predefined name `{name}`");
                (message, "rename the variable".to_owned())
            };
            self.warn_with_help(code, pointer, message, &help);
        }
    }

    /// Converts seconds to milliseconds; `None` for 0 and for invalid durations, which are reported.
    pub(super) fn seconds(&mut self, seconds: Option<f64>, pointer: impl FnOnce() -> Vec<Step>) -> Option<u64> {
        let seconds = seconds?;
        if !(0.0..=LONGEST_SECONDS).contains(&seconds) {
            let message = format!("invalid time {seconds}: expected seconds from 0 to ten years");
            self.fault(FaultCode::InvalidTimeout, &pointer(), message);
            return None;
        }
        (seconds > 0.0).then(|| ((seconds * 1000.0).round() as u64).max(1))
    }

    /// Checks milliseconds; `None` for 0 and for invalid durations, which are reported.
    pub(super) fn milliseconds(&mut self, ms: Option<u64>, pointer: impl FnOnce() -> Vec<Step>) -> Option<u64> {
        let ms = ms?;
        if ms > LONGEST_MS {
            self.fault(
                FaultCode::InvalidTimeout,
                &pointer(),
                format!("{ms} milliseconds are more than ten years"),
            );
            return None;
        }
        (ms > 0).then_some(ms)
    }

    /// Checks that a selection of messages is not empty and has valid bounds.
    pub(super) fn history(&mut self, options: &ConversationHistoryOptions, pointer: &[Step]) {
        match options.check() {
            Ok(None) => {}
            Ok(Some(warning)) => {
                let message = format!("several selections: `{}` is used, the others are ignored", warning.used);
                self.warn(FaultCode::AmbiguousHistoryOptions, pointer, message);
            }
            Err(fault) => {
                let mut deeper = pointer.to_vec();
                deeper.extend(fault.pointer.split('/').filter(|key| !key.is_empty()).map(step));
                self.fault(FaultCode::InvalidHistoryOptions, &deeper, fault.message);
            }
        }
    }
}
