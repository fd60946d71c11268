//! From a byte of the text to its line and column, and to its JSON pointer.

use super::{Json, Span, Step, Tree, pointer_of};

/// Where lines start.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    starts: Vec<u32>,
}

impl Lines {
    pub(crate) fn of(text: &str) -> Self {
        let mut starts = vec![0];
        starts.extend(
            text.bytes()
                .enumerate()
                .filter(|(_, byte)| *byte == b'\n')
                .map(|(at, _)| at as u32 + 1),
        );
        Self { starts }
    }

    /// Line and column of a byte, both from 1; the column counts characters.
    pub(crate) fn place(&self, text: &str, offset: usize) -> (u32, u32) {
        let line = self
            .starts
            .partition_point(|start| *start as usize <= offset)
            .saturating_sub(1);
        let start = self.starts.get(line).map_or(0, |start| *start as usize);
        let mut end = offset.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let column = text
            .get(start..end)
            .map_or(0, |before| before.trim_start_matches('\u{feff}').chars().count());
        (line as u32 + 1, column as u32 + 1)
    }
}

/// The JSON pointer of the innermost value whose key or value holds the byte `offset`.
pub(crate) fn pointer_at(root: &Tree, offset: u32) -> String {
    let mut steps = Vec::new();
    let mut here = root;
    loop {
        let next = match &here.value {
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) => None,
            Json::List(items) => {
                let place = items.partition_point(|item| item.span.end <= offset);
                items
                    .get(place)
                    .filter(|item| holds(item.span, offset))
                    .map(|item| (Step::Index(place), item))
            }
            Json::Object(members) => {
                let place = members.partition_point(|member| member.value.span.end <= offset);
                let member = members.get(place).filter(|member| member.key_span.start <= offset);
                member.map(|member| (Step::Key(member.key.clone()), &member.value))
            }
        };
        match next {
            Some((step, value)) => {
                steps.push(step);
                here = value;
            }
            None => return pointer_of(&steps),
        }
    }
}

fn holds(span: Span, offset: u32) -> bool {
    span.start <= offset && offset < span.end
}
