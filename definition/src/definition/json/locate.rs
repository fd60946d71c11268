//! Conversion of a byte offset to line and column, and to a JSON pointer.

use super::{Json, Span, Step, Tree, pointer_of};

/// Bytes between two stored character counts.
const BLOCK: usize = 256;

/// Start of each line, and the number of characters before every block. A column is computed without reading the whole line,
/// which may be the whole text.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    starts: Vec<u32>,
    before: Vec<u32>,
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
        let mut before = vec![0];
        let mut count = 0;
        for block in text.as_bytes().chunks(BLOCK) {
            count += characters(block);
            before.push(count);
        }
        Self { starts, before }
    }

    /// Returns line and column of a byte, both from 1; the column counts characters.
    pub(crate) fn place(&self, text: &str, offset: usize) -> (u32, u32) {
        let line = self
            .starts
            .partition_point(|start| *start as usize <= offset)
            .saturating_sub(1);
        let start = self.starts.get(line).map_or(0, |start| *start as usize);
        let mark = u32::from(line == 0 && offset > 0 && text.starts_with('\u{feff}'));
        let column = self.characters_before(text, offset) - self.characters_before(text, start) - mark;
        (line as u32 + 1, column + 1)
    }

    fn characters_before(&self, text: &str, offset: usize) -> u32 {
        let offset = offset.min(text.len());
        let block = offset / BLOCK;
        let counted = self.before.get(block).copied().unwrap_or_default();
        counted + characters(&text.as_bytes()[block * BLOCK..offset])
    }
}

/// Returns the number of characters that start in these bytes.
fn characters(bytes: &[u8]) -> u32 {
    bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u32
}

/// Returns the JSON pointer of the innermost value for which the key or the value contains the byte `offset`.
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

/// Maps an offset in a decoded JSON string to the offset in its source, after the opening quote. Returns `None` if the source is
/// not an encoding of the string.
pub(crate) fn written_offset(written: &str, text: &str, offset: usize) -> Option<usize> {
    let (mut at, mut read) = (0, 0);
    while read < offset {
        let (long, letter) = match written.as_bytes().get(at)? {
            b'\\' if written.as_bytes().get(at + 1) == Some(&b'u') => {
                let letter = text.get(read..)?.chars().next()?;
                (6 * letter.len_utf16(), letter)
            }
            b'\\' => (2, text.get(read..)?.chars().next()?),
            b'"' => return None,
            _ => {
                let letter = written.get(at..)?.chars().next()?;
                (letter.len_utf8(), letter)
            }
        };
        at += long;
        read += letter.len_utf8();
    }
    Some(at)
}

fn holds(span: Span, offset: u32) -> bool {
    span.start <= offset && offset < span.end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Lines, written_offset};

    #[test]
    fn an_offset_in_a_string_maps_to_its_offset_in_the_json_literal() {
        for (written, marked) in [
            (r#""abX""#, 3),
            (r#""\n\"X""#, 5),
            (r#""\u00e9X""#, 7),
            (r#""\ud83d\ude00X""#, 13),
            ("\"日X\"", 4),
        ] {
            let text: String = serde_json::from_str(written).unwrap();
            let offset = text.find('X').unwrap();
            assert_eq!(
                written_offset(&written[1..], &text, offset),
                Some(marked - 1),
                "{written}"
            );
            assert_eq!(&written[marked..=marked], "X");
        }
        assert_eq!(written_offset("a\"", "abc", 2), None);
    }

    proptest! {
        #[test]
        fn line_and_column_match_counting_from_the_start(text in "[a-zü日\n]{0,400}") {
            let lines = Lines::of(&text);
            for (offset, _) in text.char_indices() {
                let before = &text[..offset];
                let line = before.matches('\n').count() as u32 + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as u32 + 1;
                prop_assert_eq!(lines.place(&text, offset), (line, column));
            }
        }
    }
}
