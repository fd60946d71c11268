//! One object into one type, every mismatch reported: what does not fit is taken out and the rest is read again.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::nearest::nearest;
use crate::definition::fault::{Fault, FaultCode};
use crate::definition::json::{Mismatch, MismatchKind, Span, Step, Tree};
use crate::definition::origin::Source;

/// Mismatches reported for one object; more add nothing.
const MOST: usize = 32;

/// A mismatch, and its pointer from the object that was read.
pub(crate) struct Problem {
    pub(crate) steps: Vec<Step>,
    span: Span,
    shown: Span,
    mismatch: Mismatch,
}

impl Problem {
    /// The same problem, seen from the object that holds this one as `key`.
    pub(crate) fn under(mut self, key: &str) -> Self {
        self.steps.insert(0, Step::Key(key.to_owned()));
        self
    }

    /// Where the object starts in which a field is missing, and the field.
    pub(crate) fn missing(&self) -> Option<(u32, &'static str)> {
        match self.mismatch.kind {
            MismatchKind::Missing(field) => Some((self.span.start, field)),
            MismatchKind::Invalid | MismatchKind::UnknownField(..) | MismatchKind::UnknownWord(..) => None,
        }
    }

    /// As a fault. `parents` are the keys from the definition's root to the object that was read.
    pub(crate) fn fault(&self, source: &Source, parents: &[&str]) -> Fault {
        let code = self.code(parents);
        let message = match (&self.mismatch.kind, self.steps.last()) {
            (MismatchKind::Invalid, _) if self.mismatch.message.contains("did not match any variant") => {
                format!("{}expected one of the forms it takes", self.subject())
            }
            (MismatchKind::Invalid | MismatchKind::UnknownWord(..), _) => {
                format!("{}{}", self.subject(), self.mismatch.message)
            }
            (MismatchKind::Missing(_) | MismatchKind::UnknownField(..), _) => self.mismatch.message.clone(),
        };
        let fault = source.fault(code, self.span, self.shown, message);
        match &self.mismatch.kind {
            MismatchKind::UnknownWord(word, known) | MismatchKind::UnknownField(word, known) => {
                match nearest(word, known.iter().copied()) {
                    Some(near) => fault.with_help(format!("did you mean `{near}`?")),
                    None => fault,
                }
            }
            MismatchKind::Invalid | MismatchKind::Missing(_) => fault,
        }
    }

    fn subject(&self) -> String {
        let key = self.steps.iter().rev().find_map(|step| match step {
            Step::Key(key) => Some(key),
            Step::Index(_) => None,
        });
        key.map(|key| format!("`{key}`: ")).unwrap_or_default()
    }

    fn code(&self, parents: &[&str]) -> FaultCode {
        let mut keys: Vec<&str> = parents.to_vec();
        keys.extend(self.steps.iter().filter_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Index(_) => None,
        }));
        if let MismatchKind::Missing(field) = self.mismatch.kind {
            keys.push(field);
        }
        let last = keys.last().copied().unwrap_or_default();
        let under = |key: &str| keys.contains(&key);
        if let MismatchKind::UnknownField(..) = self.mismatch.kind {
            return FaultCode::UnknownField;
        }
        if under("variableCallback") || (under("conversationHistoryCallback") && last == "mode") {
            return FaultCode::InvalidCallback;
        }
        if under("includeConversationHistory") || under("conversationHistoryCallback") || under("target") {
            return FaultCode::InvalidHistoryOptions;
        }
        match (last, &self.mismatch.kind) {
            ("joinStrategy", _) => FaultCode::InvalidJoinStrategy,
            ("threshold", _) => FaultCode::InvalidThreshold,
            ("forkPathIds" | "childNodeIds", _) => FaultCode::InvalidForkPathIds,
            ("timeout" | "timeoutMs" | "seconds" | "initialDelayMs" | "maxDelayMs", _) => FaultCode::InvalidTimeout,
            (_, MismatchKind::Missing(_)) => FaultCode::MissingField,
            (_, MismatchKind::Invalid | MismatchKind::UnknownWord(..) | MismatchKind::UnknownField(..)) => {
                FaultCode::InvalidValue
            }
        }
    }
}

/// What keeps `tree` from being a `T`; empty where nothing does.
pub(crate) fn problems<T: DeserializeOwned>(tree: &Tree) -> Vec<Problem> {
    let mut copy = tree.clone();
    read::<T>(&mut copy).1
}

/// Reads a `T`. What does not fit is taken out of `tree`; nothing is read where something necessary is left missing.
pub(crate) fn read<T: DeserializeOwned>(tree: &mut Tree) -> (Option<T>, Vec<Problem>) {
    let mut found = Vec::new();
    let mut removed: Vec<Vec<Step>> = Vec::new();
    while found.len() < MOST {
        match attempt::<T>(tree) {
            Ok(value) => return (Some(value), found),
            Err((steps, mismatch)) => {
                let place = tree.deepest(&steps);
                let (span, shown) = (place.span, place.get("id").unwrap_or(place).span);
                let taken = tree.remove(&steps);
                if !is_echo(&removed, &steps, &mismatch) {
                    found.push(Problem {
                        steps: steps.clone(),
                        span,
                        shown,
                        mismatch,
                    });
                }
                if !taken {
                    return (None, found);
                }
                // the items behind it move up: what was known of its place is no longer of that place
                removed.retain(|other| !other.starts_with(&steps));
                if matches!(steps.last(), Some(Step::Key(_))) {
                    removed.push(steps);
                }
            }
        }
    }
    (None, found)
}

/// Whether what is missing was taken out a moment ago, and reported as what it was.
fn is_echo(removed: &[Vec<Step>], steps: &[Step], mismatch: &Mismatch) -> bool {
    match mismatch.kind {
        MismatchKind::Missing(field) => removed.iter().any(
            |other| matches!(other.split_last(), Some((Step::Key(key), parent)) if key == field && parent == steps),
        ),
        MismatchKind::Invalid | MismatchKind::UnknownField(..) | MismatchKind::UnknownWord(..) => false,
    }
}

/// Tracking the path costs a text for each key that is passed, so it is only done where something does not fit.
fn attempt<T: DeserializeOwned>(tree: &Tree) -> Result<T, (Vec<Step>, Mismatch)> {
    if let Ok(value) = T::deserialize(tree) {
        return Ok(value);
    }
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(tree, &mut track);
    match T::deserialize(deserializer) {
        Ok(value) => Ok(value),
        Err(mismatch) => {
            let steps = track
                .path()
                .iter()
                .filter_map(|segment| match segment {
                    serde_path_to_error::Segment::Seq { index } => Some(Step::Index(*index)),
                    serde_path_to_error::Segment::Map { key } => Some(Step::Key(key.clone())),
                    serde_path_to_error::Segment::Enum { .. } | serde_path_to_error::Segment::Unknown => None,
                })
                .collect();
            Err((steps, mismatch))
        }
    }
}

/// A type without fields.
#[derive(Deserialize)]
pub(crate) struct Nothing {}
