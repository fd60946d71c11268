//! Deserialises one object and reports every mismatch: each mismatched part is removed, and the rest is read again.

use serde::Deserialize;
use serde::de::{self, DeserializeOwned};

use super::advice;
use super::nearest::nearest;
use crate::definition::aliases::canonical;
use crate::definition::fault::{Fault, FaultCode, MAX_FAULTS};
use crate::definition::json::{Member, Mismatch, MismatchKind, Span, Step, Tree};
use crate::definition::origin::Source;

/// Keys from a workflow to the config of a node.
pub(super) const NODE_CONFIG: &[&str] = &["nodes", "config"];
/// Maximum number of valid fields listed in the advice for an unknown one.
const MAX_LISTED: usize = 12;
/// Maximum number of mismatches reported for one object.
const MAX_PROBLEMS: usize = 32;

/// A mismatch, and its pointer from the object that was read.
pub(crate) struct Problem {
    steps: Vec<Step>,
    /// Start of the object that contains the field, or lacks it.
    object: u32,
    span: Span,
    shown: Span,
    mismatch: Mismatch,
}

impl Problem {
    /// Prepends `key` to the pointer.
    pub(crate) fn under(mut self, key: &str) -> Self {
        self.steps.insert(0, Step::Key(key.to_owned()));
        self
    }

    /// Returns the start of the object in which a field is missing, and the field.
    pub(crate) fn missing(&self) -> Option<(u32, &'static str)> {
        match self.mismatch.kind {
            MismatchKind::Missing(field) => Some((self.object, field)),
            MismatchKind::Invalid
            | MismatchKind::UnknownField(..)
            | MismatchKind::DuplicateField(_)
            | MismatchKind::UnknownWord(..) => None,
        }
    }

    /// Returns the start of the object with a misspelt field, and the field that was probably meant.
    pub(crate) fn meant(&self) -> Option<(u32, &'static str)> {
        match &self.mismatch.kind {
            MismatchKind::UnknownField(word, known) => similar(word, known).map(|near| (self.object, canonical(near))),
            MismatchKind::Invalid
            | MismatchKind::Missing(_)
            | MismatchKind::DuplicateField(_)
            | MismatchKind::UnknownWord(..) => None,
        }
    }

    /// Converts the problem to a fault. `parents` are the keys from the definition's root to the object that was read.
    pub(crate) fn fault(&self, source: &Source, parents: &[&str]) -> Fault {
        let code = self.code(parents);
        let message = match &self.mismatch.kind {
            MismatchKind::Invalid | MismatchKind::UnknownWord(..) => {
                format!("{}{}", self.subject(), self.mismatch.message)
            }
            MismatchKind::Missing(_) | MismatchKind::UnknownField(..) | MismatchKind::DuplicateField(_) => {
                self.mismatch.message.clone()
            }
        };
        let fault = source.fault(code, self.span, self.shown, message);
        let help = match &self.mismatch.kind {
            MismatchKind::UnknownField(word, known) => {
                let is_of_config = parents == NODE_CONFIG && self.steps.len() == 1;
                let advice = is_of_config.then(|| advice::of_config_field(word, known)).flatten();
                Some(advice.unwrap_or_else(|| field_help(word, known)))
            }
            MismatchKind::UnknownWord(word, known) => {
                let meant = advice::of_word(word, known).or_else(|| nearest(word, known.iter().copied()));
                meant.map(meant_help)
            }
            MismatchKind::Invalid => advice::of_value(&self.mismatch.message).or_else(|| {
                let advice = advice::of_form(self.key()?, &self.mismatch.message)?;
                Some(advice.to_owned())
            }),
            MismatchKind::Missing(_) | MismatchKind::DuplicateField(_) => None,
        };
        match help {
            Some(help) => fault.with_help(help),
            None => fault,
        }
    }

    fn subject(&self) -> String {
        self.key().map(|key| format!("`{key}`: ")).unwrap_or_default()
    }

    /// Returns the last key of the pointer.
    fn key(&self) -> Option<&str> {
        self.steps.iter().rev().find_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Index(_) => None,
        })
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
        match self.mismatch.kind {
            MismatchKind::UnknownField(..) => return FaultCode::UnknownField,
            MismatchKind::DuplicateField(_) => return FaultCode::DuplicateField,
            MismatchKind::Invalid | MismatchKind::Missing(_) | MismatchKind::UnknownWord(..) => {}
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
            (_, _) => FaultCode::InvalidValue,
        }
    }
}

/// Result of [`read`].
pub(crate) struct ReadResult<T> {
    pub(crate) value: Option<T>,
    pub(crate) problems: Vec<Problem>,
    /// Starts of the objects and lists that lost a part.
    pub(crate) incomplete: Vec<u32>,
}

/// Returns the mismatches between `tree` and a `T`.
pub(crate) fn problems<T: DeserializeOwned>(tree: &Tree) -> Vec<Problem> {
    let mut copy = tree.clone();
    read::<T>(&mut copy).problems
}

/// Reads a `T`. Mismatched parts are removed from `tree`; the result is `None` if a required part is then missing.
pub(crate) fn read<T: DeserializeOwned>(tree: &mut Tree) -> ReadResult<T> {
    let mut incomplete = Vec::new();
    let (value, problems) = read_parts(tree, &mut incomplete);
    ReadResult {
        value,
        problems,
        incomplete,
    }
}

fn read_parts<T: DeserializeOwned>(tree: &mut Tree, incomplete: &mut Vec<u32>) -> (Option<T>, Vec<Problem>) {
    let mut found = Vec::new();
    let mut removed: Vec<Vec<Step>> = Vec::new();
    let mut left = MAX_PROBLEMS;
    while left > 0 {
        let (mut steps, mismatch) = match attempt::<T>(tree) {
            Ok(value) => return (Some(value), found),
            Err(failed) => failed,
        };
        if let MismatchKind::UnknownField(_, known) = mismatch.kind {
            // the path of an unknown field ends with it
            steps.pop();
            let object = tree.deepest(&steps).span.start;
            let unknown = tree.take_unknown(&steps, known);
            if unknown.is_empty() {
                return (None, found);
            }
            // All are removed, but at most as many are reported as a file may have faults.
            found.extend(unknown.into_iter().take(MAX_FAULTS + 1).map(|member| Problem {
                mismatch: de::Error::unknown_field(&member.key, known),
                steps: [&steps[..], &[Step::Key(member.key)]].concat(),
                object,
                span: member.key_span,
                shown: member.key_span,
            }));
            continue;
        }
        left -= 1;
        let place = tree.deepest(&steps);
        let object = place.span.start;
        let (span, shown) = match second_name(place, &mismatch.kind) {
            Some(member) => {
                steps.push(Step::Key(member.key.clone()));
                (member.key_span, member.key_span)
            }
            None => (place.span, place.get("id").unwrap_or(place).span),
        };
        let parent = steps.split_last().map_or(&steps[..], |(_, parent)| parent);
        incomplete.push(tree.deepest(parent).span.start);
        let taken = tree.remove(&steps);
        if !is_echo(&removed, &steps, &mismatch) {
            found.push(Problem {
                steps: steps.clone(),
                object,
                span,
                shown,
                mismatch,
            });
        }
        if !taken {
            return (None, found);
        }
        // the following items move up, so recorded positions below this one are invalid
        removed.retain(|other| !other.starts_with(&steps));
        if matches!(steps.last(), Some(Step::Key(_))) {
            removed.push(steps);
        }
    }
    (None, found)
}

/// Returns the second member of an object that sets a field which is set already, under another name.
fn second_name<'a>(object: &'a Tree, kind: &MismatchKind) -> Option<&'a Member> {
    let MismatchKind::DuplicateField(field) = kind else {
        return None;
    };
    let mut named = object
        .members()
        .iter()
        .filter(|member| canonical(&member.key) == *field);
    named.nth(1)
}

/// Returns the field of the list `known` that an unknown field stands for: by its name in other systems, or else the most similar one.
fn similar(word: &str, known: &[&'static str]) -> Option<&'static str> {
    advice::synonym(word, known).or_else(|| nearest(word, known.iter().copied()))
}

fn meant_help(near: &str) -> String {
    format!("did you mean `{near}`?")
}

fn field_help(word: &str, known: &[&'static str]) -> String {
    advice::of_field(word, known)
        .or_else(|| similar(word, known).map(meant_help))
        .unwrap_or_else(|| {
            let elsewhere = advice::of_node_field(known).unwrap_or_default();
            format!("{elsewhere}{}", known_fields(known))
        })
}

fn known_fields(known: &[&str]) -> String {
    if known.is_empty() {
        return "it takes no fields".to_owned();
    }
    let listed: Vec<&str> = known.iter().copied().take(MAX_LISTED).collect();
    format!("known fields: {}", listed.join(", "))
}

/// True if the missing field was removed by this function, which has reported its mismatch already.
fn is_echo(removed: &[Vec<Step>], steps: &[Step], mismatch: &Mismatch) -> bool {
    let MismatchKind::Missing(field) = mismatch.kind else {
        return false;
    };
    let is_it = |other: &Vec<Step>| matches!(other.split_last(), Some((Step::Key(key), parent)) if canonical(key) == field && parent == steps);
    removed.iter().any(is_it)
}

/// Deserialises without tracking the path, which allocates for each key, and repeats with tracking only after a mismatch.
fn attempt<T: DeserializeOwned>(tree: &Tree) -> Result<T, (Vec<Step>, Mismatch)> {
    if let Ok(value) = T::deserialize(tree) {
        return Ok(value);
    }
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(tree, &mut track);
    match T::deserialize(deserializer) {
        Ok(value) => Ok(value),
        Err(mismatch) => Err((steps_of(track), mismatch)),
    }
}

/// Returns the pointer to a mismatch.
pub(crate) fn steps_of(track: serde_path_to_error::Track) -> Vec<Step> {
    let path = track.path();
    let steps = path.iter().filter_map(|segment| match segment {
        serde_path_to_error::Segment::Seq { index } => Some(Step::Index(*index)),
        serde_path_to_error::Segment::Map { key } => Some(Step::Key(key.clone())),
        serde_path_to_error::Segment::Enum { .. } | serde_path_to_error::Segment::Unknown => None,
    });
    steps.collect()
}

/// A type without fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoFields {}
