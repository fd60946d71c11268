//! Widths of text, and its division into lines.
//!
//! Not here: positions of text.

mod widths;

use widths::BLOCKS;

use crate::drawing::FONT_SIZE;

/// Height of a line of text in pixels.
pub(crate) const LINE_HEIGHT: i32 = 17;
/// Distance from the top of a line to its baseline.
pub(crate) const ASCENT: i32 = 13;

/// Width of a letter that the table lacks, in thousandths of an em.
const LETTER: u16 = 650;
/// Width of ideographs, syllables and symbols.
const IDEOGRAPH: u16 = 1000;
/// Emoji and other characters outside the basic plane are wider than an em in some fonts.
const WIDE: u16 = 1400;

/// Returns the width of a text in pixels, rounded up.
pub(crate) fn width(text: &str, bold: bool) -> i32 {
    pixels(text.chars().map(|c| i64::from(advance(c, bold))).sum())
}

fn pixels(thousandths: i64) -> i32 {
    let pixels = (thousandths * i64::from(FONT_SIZE) + 999) / 1000;
    i32::try_from(pixels).unwrap_or(i32::MAX)
}

fn advance(c: char, bold: bool) -> u16 {
    let code = u32::from(c);
    let block = BLOCKS.iter().find_map(|(first, regular, bolder)| {
        let place = usize::try_from(code.checked_sub(*first)?).ok()?;
        let widths = if bold { bolder } else { regular };
        widths.get(place).copied()
    });
    match block {
        Some(width) if width > 0 => width,
        Some(_) | None => match code {
            0x1_0000.. => WIDE,
            0x1100..=0x115F
            | 0x2190..=0x2BFF
            | 0x2E80..=0xA4CF
            | 0xAC00..=0xD7A3
            | 0xF900..=0xFAFF
            | 0xFE30..=0xFE6F
            | 0xFF00..=0xFFE6 => IDEOGRAPH,
            _ => LETTER,
        },
    }
}

/// Replaces control characters and line breaks by spaces, and removes spaces at the ends and repeated ones.
pub(crate) fn clean(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if is_invisible(c) { ' ' } else { c }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Characters without a width, some of which change the direction of the text around them.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
}

/// Divides cleaned text into at most `count` lines of at most `widest` pixels. The last line is shortened with `…` if text is left.
pub(crate) fn wrap(text: &str, widest: i32, count: usize, bold: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() && lines.len() < count {
        if width(rest, bold) <= widest {
            lines.push(rest.to_owned());
            break;
        }
        if lines.len() + 1 == count {
            lines.push(shortened(rest, widest, bold));
            break;
        }
        let end = fitting(rest, widest, bold);
        let cut = break_before(rest, end);
        lines.push(rest[..cut].trim_end().to_owned());
        rest = rest[cut..].trim_start();
    }
    lines
}

/// Returns the byte length of the longest start of a text that fits: at least one character.
fn fitting(text: &str, widest: i32, bold: bool) -> usize {
    let mut sum = 0;
    for (at, c) in text.char_indices() {
        sum += i64::from(advance(c, bold));
        if pixels(sum) > widest && at > 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the last place up to `end` at which a line may end: a space, otherwise after punctuation within a word, otherwise `end`.
fn break_before(text: &str, end: usize) -> usize {
    let (mut space, mut within) = (None, None);
    let mut before = None;
    for (at, c) in text.char_indices().take_while(|(at, _)| *at <= end) {
        if c == ' ' {
            space = Some(at);
        } else if before.is_some_and(|before: char| "_-/.,:;|&".contains(before) && c.is_alphanumeric()) {
            within = Some(at);
        }
        before = Some(c);
    }
    // A line that is less than a third full looks worse than a broken word.
    let is_long = |at: &usize| *at * 3 >= end;
    space.filter(is_long).or(within.filter(is_long)).unwrap_or(end)
}

fn shortened(text: &str, widest: i32, bold: bool) -> String {
    let dots = i64::from(advance('…', bold));
    let mut sum = dots;
    let mut end = 0;
    for (at, c) in text.char_indices() {
        sum += i64::from(advance(c, bold));
        if pixels(sum) > widest && at > 0 {
            break;
        }
        end = at + c.len_utf8();
    }
    format!("{}…", text[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::{clean, width, wrap};

    #[test]
    fn widths_are_those_of_the_font() {
        // 13 px Liberation Sans: `pango-view --font="Liberation Sans 13px"` measures the same.
        assert_eq!(width("JOIN", false), (500 + 778 + 278 + 723_i32) * 13 / 1000 + 1);
        assert!(width("JOIN", true) > width("JOIN", false));
        assert_eq!(width("漢字", false), 26);
    }

    #[test]
    fn a_long_text_has_at_most_the_given_lines_and_width() {
        let text = "JOIN SUCCESS_COUNT_THRESHOLD 2 of 3, 30 s, and a text without an end that goes on and on";
        for widest in [30, 60, 120, 240] {
            let lines = wrap(text, widest, 3, false);
            assert!(lines.len() <= 3, "{lines:?}");
            for line in &lines {
                assert!(width(line, false) <= widest, "{line}");
            }
        }
        assert!(wrap(text, 120, 3, false)[2].ends_with('…'));
        assert_eq!(wrap("short", 120, 3, false), ["short"]);
        assert_eq!(wrap("", 120, 3, false), Vec::<String>::new());
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two three", 50, 3, false), ["one two", "three"]);
        assert_eq!(
            wrap("SUCCESS_COUNT_THRESHOLD", 130, 3, false),
            ["SUCCESS_COUNT_", "THRESHOLD"]
        );
    }

    #[test]
    fn control_and_direction_characters_are_spaces() {
        assert_eq!(clean(" a\n\tb\u{202E}c\u{0}"), "a b c");
    }
}
