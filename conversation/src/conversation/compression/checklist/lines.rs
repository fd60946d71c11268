//! Lines of one message, without code, and with wrapped lines joined.

use std::borrow::Cow;

use pirn_definition::message::Role;

use super::super::super::extractive::{each_sentence, goes_on, is_unspaced};
use super::super::facts::lower;
use super::Section;
use super::quote::every_line;
use super::words::words_of_languages;

/// Maximum length of a statement in bytes. Longer sentences are data or prose without statements.
pub(super) const MOST_BYTES: usize = 2_000;
/// Maximum length of joined lines in bytes.
const MOST_JOINED: usize = 16_000;
/// Maximum length of a label in characters.
const MOST_LABEL: usize = 40;
/// Maximum number of words of a label.
const MOST_LABEL_WORDS: usize = 4;
/// Start and end of a block of code.
const FENCE: &str = "```";

/// Line of a message, or several lines that one sentence is wrapped over.
pub(super) struct Line<'t> {
    /// Text without the mark of a list item.
    pub(super) text: Cow<'t, str>,
    /// Number of bytes before the first line.
    pub(super) indent: usize,
    pub(super) is_item: bool,
}

/// Consecutive lines that may be one wrapped sentence.
struct Group<'t> {
    lines: Vec<&'t str>,
    bytes: usize,
    indent: usize,
    is_item: bool,
    /// The next line may belong to it.
    is_open: bool,
}

/// Returns the lines of a message that are neither blank nor code.
pub(super) fn lines_of(text: &str, role: Role) -> Vec<Line<'_>> {
    let raw: Vec<&str> = every_line(text).collect();
    // A fence that nothing closes is text, so that it hides no rule.
    let last_fence = raw.iter().rposition(|line| closes_code(line.trim()));
    // The line breaks of a tool result separate records.
    let may_join = matches!(role, Role::User | Role::System);
    let (mut groups, mut is_code) = (Vec::<Group<'_>>::new(), false);
    for (at, raw) in raw.iter().enumerate() {
        let line = raw.trim();
        let opens = !is_code && opens_code(line) && last_fence.is_some_and(|last| at < last);
        if is_code || opens || line.is_empty() {
            is_code = opens || is_code && !closes_code(line);
            if let Some(last) = groups.last_mut() {
                last.is_open = false;
            }
            continue;
        }
        let indent = raw.len() - raw.trim_start().len();
        match groups.last_mut() {
            Some(last) if may_join && last.takes(line, indent) => last.push(line),
            Some(_) | None => groups.push(Group::new(line, indent)),
        }
    }
    groups.into_iter().flat_map(Group::into_lines).collect()
}

impl<'t> Group<'t> {
    fn new(line: &'t str, indent: usize) -> Self {
        let item = without_bullet(line);
        Self {
            lines: vec![item],
            bytes: item.len(),
            indent,
            is_item: item.len() < line.len(),
            is_open: heading_of(item).is_none() && !is_markdown_heading(item) && !is_data(item),
        }
    }

    fn push(&mut self, line: &'t str) {
        self.bytes += line.len() + 1;
        self.lines.push(line);
    }

    /// Returns whether `next` can be a part of a sentence that the group has not ended.
    fn takes(&self, next: &str, indent: usize) -> bool {
        let last = self.lines[self.lines.len() - 1];
        // Only `1.` starts a list within a sentence: `24. Dezember` is a date.
        let digits = next.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_number = digits.len() < next.len() && digits.starts_with(". ") && !next.starts_with("1.");
        let is_part = self.is_item || label(self.lines[0]).is_some();
        // A capital letter after an item, a label or an indented line starts a paragraph.
        let may_end = is_part && indent <= self.indent || indent < self.indent;
        let is_continued = !may_end || !next.starts_with(char::is_uppercase);
        self.is_open
            && is_continued
            && self.bytes + next.len() < MOST_JOINED
            && !is_ended(last, next)
            && (!starts_anew(next) || is_number && (!self.is_item || indent > self.indent))
    }

    /// Returns one line if the lines are one item, one label, or contain a rule together.
    fn into_lines(self) -> Vec<Line<'t>> {
        let (indent, is_item) = (self.indent, self.is_item);
        let joined = self.joined();
        // Other lines remain separate, because lists without marks are common.
        let is_one = is_item || label(self.lines[0]).is_some() || is_rule(&joined, &self.lines);
        if is_one && each_sentence(&joined).all(|sentence| sentence.len() <= MOST_BYTES) {
            return vec![Line {
                text: joined,
                indent,
                is_item,
            }];
        }
        let line = |(at, text): (usize, &'t str)| Line {
            text: Cow::Borrowed(text),
            indent,
            is_item: is_item && at == 0,
        };
        self.lines.into_iter().enumerate().map(line).collect()
    }

    fn joined(&self) -> Cow<'t, str> {
        if let [one] = self.lines[..] {
            return Cow::Borrowed(one);
        }
        let mut text = String::with_capacity(self.bytes);
        for line in &self.lines {
            // Scripts without spaces between words have none between lines either.
            let is_spaced = !text.ends_with(is_unspaced) || !line.starts_with(is_unspaced);
            if !text.is_empty() && is_spaced {
                text.push(' ');
            }
            text.push_str(line);
        }
        Cow::Owned(text)
    }
}

/// Returns whether `joined` has words of rules or constraints, and no line has stronger ones on its own ("ok", "never deploy").
fn is_rule(joined: &str, lines: &[&str]) -> bool {
    let of = [Section::Rules, Section::Constraints];
    let hits = |text: &str| words_of_languages().hits(&lower(text));
    let is_binding = |text: &str| of.iter().any(|section| hits(text).has(*section));
    is_binding(joined) || hits(joined).has_weak(Section::Constraints) && !lines.iter().any(|line| is_binding(line))
}

/// Returns whether a line ends a sentence, if `next` is the next line.
fn is_ended(line: &str, next: &str) -> bool {
    let closing = ['"', '\'', ')', ']', '*', '_', '`', '”', '’', '」', '』', '）'];
    let said = line.trim_end_matches(closing);
    let marks = ['.', '!', '?', ':', ';', '…', '。', '！', '？', '：', '；'];
    said.ends_with(marks) && !line.strip_suffix('.').is_some_and(|before| goes_on(before, next))
}

/// Returns whether a line cannot continue the line before: an item, a heading, a label, a table, JSON, or a rule on its own.
fn starts_anew(line: &str) -> bool {
    let is_capital = line.starts_with(char::is_uppercase);
    let start: Vec<&str> = line.split_whitespace().take(2).collect();
    let name = line.split(':').next().unwrap_or_default();
    let is_field = name.len() < line.len() && name.split_whitespace().count() <= 2;
    without_bullet(line).len() < line.len()
        || is_markdown_heading(line)
        || label(line).is_some()
        || line.starts_with('|')
        || is_data(line)
        || !line.contains(char::is_alphanumeric)
        || is_capital && (is_field || words_of_languages().hits(&lower(&start.join(" "))).has(Section::Rules))
}

/// Returns whether the line starts with a bracket of JSON.
fn is_data(line: &str) -> bool {
    line.starts_with(['{', '[', '}', ']'])
}

/// Returns whether the line may open a block of code. A fence that ends on its own line is text.
fn opens_code(line: &str) -> bool {
    line.strip_prefix(FENCE)
        .is_some_and(|rest| !rest.trim_start_matches('`').contains('`'))
}

fn closes_code(line: &str) -> bool {
    line.starts_with(FENCE) && line.bytes().all(|c| c == b'`')
}

fn is_markdown_heading(line: &str) -> bool {
    let is_bold = |mark: &str| line.len() > 2 * mark.len() && line.starts_with(mark) && line.ends_with(mark);
    line.starts_with('#') && line.trim_start_matches('#').starts_with(' ') || is_bold("**") || is_bold("__")
}

/// Returns the section that a heading names: `Rules:`, `## Rules`, `**Rules**`.
pub(super) fn heading_of(line: &str) -> Option<Section> {
    match label(line.trim_start_matches(['#', ' '])) {
        Some((section, "")) => Some(section),
        None if is_markdown_heading(line) => named(line),
        Some(_) | None => None,
    }
}

/// Returns the section that a label at the start of a line names, and the text after the label.
pub(super) fn label(line: &str) -> Option<(Section, &str)> {
    let end = line
        .char_indices()
        .take(MOST_LABEL)
        .find(|(_, c)| matches!(c, ':' | '：'));
    let (at, colon) = end?;
    let section = named(&line[..at])?;
    let text = line[at + colon.len_utf8()..].trim_matches(|c: char| c.is_whitespace() || c == '*' || c == '_');
    Some((section, text))
}

fn named(name: &str) -> Option<Section> {
    let name = name.trim_matches(|c: char| !c.is_alphanumeric());
    if name.chars().nth(MOST_LABEL).is_some() || name.split_whitespace().count() > MOST_LABEL_WORDS {
        return None;
    }
    words_of_languages().hits(&lower(name)).label()
}

/// Returns the line without the mark of a list item: `- `, `* `, `1. `.
fn without_bullet(line: &str) -> &str {
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    if digits.len() < line.len()
        && let Some(item) = digits.strip_prefix(". ").or_else(|| digits.strip_prefix(") "))
    {
        return item.trim_start();
    }
    let marks = ["- ", "* ", "• ", "+ ", "> "];
    let item = marks.iter().find_map(|mark| line.strip_prefix(mark));
    item.map_or(line, str::trim_start)
}
