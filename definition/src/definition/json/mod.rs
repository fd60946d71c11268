//! JSON trees with source positions.
//!
//! 1. Every value retains the byte range it was read from, even after the loader has renamed or moved it.
//! 2. Nesting is bounded by [`MAX_DEPTH`], so recursion over a tree is safe.
//!
//! Not here: aliases and legacy forms of workflow files ([`super::load`]).

mod deserialize;
mod locate;
mod parse;
mod strict;

pub(crate) use deserialize::{Mismatch, MismatchKind};
pub(crate) use locate::{Lines, pointer_at, written_offset};
pub(crate) use parse::{DuplicateKey, Parsed, parse};
pub use strict::{JsonError, JsonErrorKind, json_from_slice, json_from_str, json_from_value};

use super::aliases::aliases_of;

/// Maximum nesting depth of a text.
pub(crate) const MAX_DEPTH: usize = 128;
/// Maximum nesting depth of a workflow, trigger or profile. Durable runs store their definitions two levels deeper, in a bundle, and
/// that text must be readable by this parser and by serde_json, whose limit is 127.
pub(crate) const MAX_DEFINITION_DEPTH: usize = 120;
/// Maximum size of a text in bytes.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// Returns the message about a definition with more than [`MAX_DEFINITION_DEPTH`] levels.
pub(crate) fn too_deep_definition() -> String {
    format!("nested more than {MAX_DEFINITION_DEPTH} levels deep inside of one definition")
}

/// Byte range of the text: `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// A value and its byte range.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) span: Span,
    pub(crate) value: Json,
}

/// A JSON value.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Tree>),
    Object(Vec<Member>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) value: Tree,
}

/// A step from a value to one of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl Tree {
    pub(crate) fn text(span: Span, text: impl Into<String>) -> Self {
        Self {
            span,
            value: Json::Text(text.into()),
        }
    }

    pub(crate) fn empty_object(span: Span) -> Self {
        Self {
            span,
            value: Json::Object(Vec::new()),
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Json::Text(text) => Some(text),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::List(_) | Json::Object(_) => None,
        }
    }

    /// Returns the first string at or below here for which `place` returns a result, and the result.
    pub(crate) fn find_in_text<T>(&self, place: &dyn Fn(&str) -> Option<T>) -> Option<(&Tree, T)> {
        match &self.value {
            Json::Text(text) => place(text).map(|found| (self, found)),
            Json::List(items) => items.iter().find_map(|item| item.find_in_text(place)),
            Json::Object(members) => members.iter().find_map(|member| member.value.find_in_text(place)),
            Json::Null | Json::Bool(_) | Json::Number(_) => None,
        }
    }

    pub(crate) fn as_list(&self) -> Option<&[Tree]> {
        match &self.value {
            Json::List(items) => Some(items),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::Object(_) => None,
        }
    }

    pub(crate) fn members(&self) -> &[Member] {
        match &self.value {
            Json::Object(members) => members,
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::List(_) => &[],
        }
    }

    pub(crate) fn members_mut(&mut self) -> Option<&mut Vec<Member>> {
        match &mut self.value {
            Json::Object(members) => Some(members),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::List(_) => None,
        }
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self.value, Json::Object(_))
    }

    pub(crate) fn member(&self, key: &str) -> Option<&Member> {
        self.members().iter().find(|member| member.key == key)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Tree> {
        self.member(key).map(|member| &member.value)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Tree> {
        let members = self.members_mut()?;
        members
            .iter_mut()
            .find(|member| member.key == key)
            .map(|member| &mut member.value)
    }

    pub(crate) fn take(&mut self, key: &str) -> Option<Member> {
        let members = self.members_mut()?;
        let place = members.iter().position(|member| member.key == key)?;
        Some(members.remove(place))
    }

    /// Returns the first list or object that has more than `levels` lists and objects around it, in the order of the text.
    pub(crate) fn deeper_than(&self, levels: usize) -> Option<&Tree> {
        match &self.value {
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) => None,
            Json::List(_) | Json::Object(_) if levels == 0 => Some(self),
            Json::List(items) => items.iter().find_map(|item| item.deeper_than(levels - 1)),
            Json::Object(members) => members.iter().find_map(|member| member.value.deeper_than(levels - 1)),
        }
    }

    /// Inserts a member at the front, and removes an existing member with that key.
    pub(crate) fn put(&mut self, key: &str, value: Tree) {
        let Some(members) = self.members_mut() else { return };
        members.retain(|member| member.key != key);
        members.insert(
            0,
            Member {
                key: key.to_owned(),
                key_span: value.span,
                value,
            },
        );
    }

    /// Returns the part at `steps`, or its deepest ancestor that exists.
    pub(crate) fn deepest(&self, steps: &[Step]) -> &Tree {
        let mut here = self;
        for step in steps {
            let next = match step {
                Step::Key(key) => here
                    .get(key)
                    .or_else(|| aliases_of(key).find_map(|alias| here.get(alias))),
                Step::Index(index) => here.as_list().and_then(|items| items.get(*index)),
            };
            match next {
                Some(next) => here = next,
                None => break,
            }
        }
        here
    }

    /// Returns the part at `steps`.
    fn part_mut(&mut self, steps: &[Step]) -> Option<&mut Tree> {
        let mut here = self;
        for step in steps {
            here = match (step, &mut here.value) {
                (Step::Key(key), Json::Object(members)) => {
                    &mut members.iter_mut().find(|member| member.key == *key)?.value
                }
                (Step::Index(index), Json::List(items)) => items.get_mut(*index)?,
                (Step::Key(_) | Step::Index(_), _) => return None,
            };
        }
        Some(here)
    }

    /// Removes the members with keys other than `known` from the object at `steps`, and returns them.
    pub(crate) fn take_unknown(&mut self, steps: &[Step], known: &[&str]) -> Vec<Member> {
        let members = self.part_mut(steps).and_then(Tree::members_mut);
        let is_unknown = |member: &mut Member| !known.contains(&member.key.as_str());
        members.map_or_else(Vec::new, |members| members.extract_if(.., is_unknown).collect())
    }

    /// Removes the part at `steps`. Returns whether it existed.
    pub(crate) fn remove(&mut self, steps: &[Step]) -> bool {
        let Some((last, parent)) = steps.split_last() else {
            return false;
        };
        let Some(here) = self.part_mut(parent) else {
            return false;
        };
        match (last, &mut here.value) {
            (Step::Key(key), Json::Object(members)) => {
                let before = members.len();
                members.retain(|member| member.key != *key);
                members.len() < before
            }
            (Step::Index(index), Json::List(items)) if *index < items.len() => {
                items.remove(*index);
                true
            }
            (Step::Key(_) | Step::Index(_), _) => false,
        }
    }

    /// Returns the kind of the value, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Json::Null => "null",
            Json::Bool(_) => "true or false",
            Json::Number(_) => "a number",
            Json::Text(_) => "text",
            Json::List(_) => "a list",
            Json::Object(_) => "an object",
        }
    }
}

/// Escapes a name for a JSON pointer.
pub fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Formats steps as a JSON pointer: `/nodes/3/config`.
pub(crate) fn pointer_of(steps: &[Step]) -> String {
    let mut pointer = String::new();
    for step in steps {
        pointer.push('/');
        match step {
            Step::Key(key) => pointer.push_str(&pointer_token(key)),
            Step::Index(index) => pointer.push_str(&index.to_string()),
        }
    }
    pointer
}
