//! Aliases to canonical names, words to canonical case, `null` to absent; unknown fields found.

use std::borrow::Cow;

use super::Loader;
use super::nearest::nearest;
use super::read::Problem;
use super::shape::{Field, Holds, Shape};
use crate::definition::fault::FaultCode;
use crate::definition::json::{Json, Member, Span, Tree};

/// Known fields listed in the advice on an unknown one.
const MOST_LISTED: usize = 12;

impl Loader {
    /// Brings an object, or every object of a list, into canonical form.
    pub(super) fn normalise(&mut self, shape: &Shape, tree: &mut Tree) {
        match &mut tree.value {
            Json::Object(members) => self.members(shape, tree.span, members),
            Json::List(items) => {
                for item in items.iter_mut().filter(|item| item.is_object()) {
                    self.normalise(shape, item);
                }
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) => {}
        }
    }

    fn members(&mut self, shape: &Shape, object: Span, members: &mut Vec<Member>) {
        let mut kept: Vec<&'static str> = Vec::with_capacity(members.len().min(shape.fields.len()));
        members.retain_mut(|member| {
            let Some(field) = shape.fields.iter().find(|field| answers_to(field, &member.key)) else {
                self.unknown_field(shape, object, member);
                return false;
            };
            if matches!(member.value.value, Json::Null) && !matches!(field.holds, Holds::Value) {
                return false;
            }
            if kept.contains(&field.name) {
                let message = format!("`{}` and another name for it are both given; keep one", member.key);
                let fault = self
                    .source
                    .fault(FaultCode::DuplicateField, member.key_span, member.key_span, message);
                self.out.faults.push(fault);
                return false;
            }
            if !self.canonical(field, object, &mut member.value) {
                return false;
            }
            member.key = Cow::Borrowed(field.name);
            kept.push(field.name);
            true
        });
    }

    /// Brings a field's value into canonical form. Whether it can be kept.
    fn canonical(&mut self, field: &Field, object: Span, value: &mut Tree) -> bool {
        match field.holds {
            Holds::Value | Holds::Plain => true,
            Holds::Upper => {
                let is_upper = |letter: u8| letter.is_ascii_uppercase() || letter == b'_';
                fold(value, is_upper, |word| word.replace('-', "_").to_uppercase());
                true
            }
            Holds::Lower => {
                fold(value, |letter| letter.is_ascii_lowercase(), str::to_lowercase);
                true
            }
            Holds::Object(shape) => {
                self.normalise(shape, value);
                true
            }
            Holds::Either(shape, problems) => {
                if !value.is_object() && value.as_list().is_none() {
                    fold_if(value, "all");
                    return true;
                }
                if !shape.fields.is_empty() {
                    self.normalise(shape, value);
                }
                let found: Vec<Problem> = problems(value);
                self.report(&found, &[field.name]);
                if !found.is_empty() {
                    self.reported.insert((object.start, field.name));
                }
                found.is_empty()
            }
        }
    }

    fn unknown_field(&mut self, shape: &Shape, object: Span, member: &Member) {
        let message = format!("unknown field `{}`", member.key);
        let fault = self
            .source
            .fault(FaultCode::UnknownField, member.key_span, member.key_span, message);
        let names = || {
            shape
                .fields
                .iter()
                .flat_map(|field| std::iter::once(&field.name).chain(field.aliases))
        };
        let help = match nearest(&member.key, names().copied()) {
            Some(near) => {
                let meant = shape.fields.iter().find(|field| answers_to(field, near));
                self.reported.extend(meant.map(|field| (object.start, field.name)));
                format!("did you mean `{near}`?")
            }
            None if shape.fields.is_empty() => "it takes no fields".to_owned(),
            None => {
                let known: Vec<&str> = shape.fields.iter().map(|field| field.name).take(MOST_LISTED).collect();
                format!("known fields: {}", known.join(", "))
            }
        };
        self.out.faults.push(fault.with_help(help));
    }
}

fn answers_to(field: &Field, key: &str) -> bool {
    field.name == key || field.aliases.contains(&key)
}

/// Folds a word, or every word of a list. One of nothing but letters that are `done` stays as it is.
fn fold(value: &mut Tree, done: impl Fn(u8) -> bool + Copy, change: impl Fn(&str) -> String + Copy) {
    match &mut value.value {
        Json::Text(word) if word.bytes().all(done) => {}
        Json::Text(word) => *word = change(word),
        Json::List(items) => items.iter_mut().for_each(|item| fold(item, done, change)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Object(_) => {}
    }
}

fn fold_if(value: &mut Tree, word: &str) {
    if let Json::Text(text) = &mut value.value
        && text.eq_ignore_ascii_case(word)
    {
        word.clone_into(text);
    }
}
