//! Messages and positions for templates that do not parse.

use std::ops::Range;

use pirn_definition::script::{FreeName, Member, Path, is_reserved, place};

use super::helpers::HELPERS;
use crate::TextFault;

/// Maximum characters of a quoted tag.
const QUOTED: usize = 40;

/// A tag in the source of a template.
struct Tag<'t> {
    at: usize,
    /// The tag with its braces; extends to the end of the template if it is not closed.
    text: &'t str,
    /// The text between the braces, without whitespace control marks.
    inside: &'t str,
    is_closed: bool,
}

/// Explains why handlebars could not parse `source`; `near` is the byte at which it stopped.
pub(super) fn of_syntax(source: &str, near: Option<usize>) -> TextFault {
    let tags = tags(source);
    let found = unclosed(&tags).or_else(|| blocks(&tags)).or_else(|| empty(&tags));
    let (at, message) = found.unwrap_or_else(|| {
        let near = near.unwrap_or_default();
        let tag = tags.iter().rev().find(|tag| tag.at <= near).or(tags.first());
        match tag {
            Some(tag) => (
                tag.at,
                format!(
                    "invalid tag `{}`: a tag is a path, or a helper and its values",
                    quoted(tag.text)
                ),
            ),
            None => (near, "invalid template".to_owned()),
        }
    });
    at_byte(source, at, message)
}

/// Creates a fault about a name, at its first occurrence in a tag.
pub(super) fn about(source: &str, name: &str, message: String) -> TextFault {
    match place_in_tags(source, name) {
        Some(at) => at_byte(source, at, message),
        None => TextFault {
            message,
            line: None,
            column: None,
        },
    }
}

/// Returns the first byte of a name or path in a tag.
pub fn place_in_tags(source: &str, name: &str) -> Option<usize> {
    tags(source).iter().find_map(|tag| {
        let mut found = tag.text.match_indices(name);
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let whole = found
            .find(|(at, _)| !tag.text[..*at].ends_with(is_part) && !tag.text[at + name.len()..].starts_with(is_part));
        whole.map(|(at, _)| tag.at + at)
    })
}

/// Returns the names at the start of the paths in plain tags, `{{name.member}}`. Tags inside of blocks are excluded: a block may
/// test whether its path exists, and it may have names of its own.
pub(crate) fn free_names(source: &str) -> Vec<FreeName> {
    let mut names = Vec::new();
    let mut depth = 0_usize;
    for tag in tags(source) {
        if tag.text.starts_with("{{{{") {
            break;
        }
        if tag.inside.starts_with(['#', '^']) {
            depth += 1;
        } else if tag.inside.starts_with('/') {
            depth = depth.saturating_sub(1);
        } else if depth == 0 {
            names.extend(free_name(source, &tag));
        }
    }
    names
}

fn free_name(source: &str, tag: &Tag<'_>) -> Option<FreeName> {
    let path = Path::of_template(tag.inside)?;
    let root = path.root();
    let is_literal = root.starts_with(|first: char| first.is_ascii_digit()) || is_reserved(root);
    if is_literal || HELPERS.contains(&root.as_ref()) || matches!(root.as_ref(), "this" | "else") {
        return None;
    }
    let start = tag.at + tag.text.find(tag.inside)?;
    let end = start + root.len();
    let path_end = start + tag.inside.len();
    let is_nodes = root.as_ref() == "nodes";
    let member = is_nodes
        .then(|| member(source, end..path_end))
        .flatten()
        .map(|(at, after)| Member {
            at,
            field: member(source, after..path_end).map(|(field, _)| field),
        });
    Some(FreeName {
        name: root.to_string(),
        at: start..end,
        is_assigned: false,
        members: member.into_iter().collect(),
    })
}

/// Returns the range of the member at the start of `within`, `.x-y` or `["x"]`, and the end of the access.
fn member(source: &str, within: Range<usize>) -> Option<(Range<usize>, usize)> {
    let text = &source[within.clone()];
    if let Some(name) = text.strip_prefix('.') {
        let length = name.find(['.', '[']).unwrap_or(name.len());
        let start = within.start + 1;
        return (length > 0).then_some((start..start + length, start + length));
    }
    let quote = text
        .strip_prefix('[')?
        .chars()
        .next()
        .filter(|sign| matches!(sign, '"' | '\''))?;
    let start = within.start + 2;
    let length = text[2..].find(quote)?;
    Some((start..start + length, start + length + 2))
}

fn at_byte(source: &str, at: usize, message: String) -> TextFault {
    let (line, column) = place::line_and_column(source, at);
    TextFault {
        message,
        line: Some(line),
        column: Some(column),
    }
}

fn quoted(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(QUOTED).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

/// Returns all tags except comments and escaped ones.
fn tags(source: &str) -> Vec<Tag<'_>> {
    let mut tags = Vec::new();
    let mut from = 0;
    while let Some(found) = source[from..].find("{{") {
        let at = from + found;
        let rest = &source[at..];
        if source[..at].ends_with('\\') && !source[..at].ends_with("\\\\") {
            from = at + 2;
            continue;
        }
        let (open, close) = match () {
            () if rest.starts_with("{{!--") => ("{{!--", "--}}"),
            () if rest.starts_with("{{{{") => ("{{{{", "}}}}"),
            () if rest.starts_with("{{{") => ("{{{", "}}}"),
            () => ("{{", "}}"),
        };
        let end = rest[open.len()..].find(close).map(|end| open.len() + end);
        // An unclosed tag ends at the start of the next one.
        let next = rest[open.len()..].find("{{").map(|next| open.len() + next);
        let is_closed = end.is_some_and(|end| next.is_none_or(|next| end < next));
        let (inside, length) = match end {
            Some(end) if is_closed => (&rest[open.len()..end], end + close.len()),
            _ => (&rest[open.len()..], next.unwrap_or(rest.len())),
        };
        from = at + length.max(2);
        if !inside.starts_with('!') && open != "{{!--" {
            tags.push(Tag {
                at,
                text: &rest[..length],
                inside: inside.trim_matches(['~', ' ', '\n', '\r', '\t']),
                is_closed,
            });
        }
    }
    tags
}

fn unclosed(tags: &[Tag<'_>]) -> Option<(usize, String)> {
    let tag = tags.iter().find(|tag| !tag.is_closed)?;
    let close = if tag.text.starts_with("{{{") { "}}}" } else { "}}" };
    Some((
        tag.at,
        format!("`{}` is not closed: `{close}` is missing", quoted(tag.text)),
    ))
}

fn empty(tags: &[Tag<'_>]) -> Option<(usize, String)> {
    let tag = tags.iter().find(|tag| tag.inside.is_empty())?;
    Some((tag.at, "a tag is empty: write a path between its brackets".to_owned()))
}

/// Returns the first block that is not closed, or closed by another name.
fn blocks(tags: &[Tag<'_>]) -> Option<(usize, String)> {
    let mut open: Vec<(&Tag<'_>, &str)> = Vec::new();
    for tag in tags {
        let word = |text: &'_ str| {
            text.trim_start()
                .split(|letter: char| letter.is_whitespace() || letter == '(')
                .next()
                .map(str::len)
        };
        let named = |mark: char| {
            let name = tag.inside.strip_prefix(mark)?.trim_start();
            Some(&name[..word(name).unwrap_or_default()])
        };
        if let Some(name) = named('#').or_else(|| named('^').filter(|name| !name.is_empty())) {
            open.push((tag, name));
        } else if let Some(name) = named('/') {
            match open.pop() {
                None => {
                    return Some((
                        tag.at,
                        format!("`{}` ends a block that was not opened", quoted(tag.text)),
                    ));
                }
                Some((begin, opened)) if opened != name => {
                    let message = format!(
                        "`{}` ends the block `{}`: expected `{{{{/{opened}}}}}`",
                        quoted(tag.text),
                        quoted(begin.text)
                    );
                    return Some((tag.at, message));
                }
                Some(_) => {}
            }
        } else if (tag.inside == "else" || tag.inside.starts_with("else ")) && open.is_empty() {
            return Some((tag.at, "`{{else}}` is outside of a block".to_owned()));
        }
    }
    let (begin, name) = open.pop()?;
    let message = format!(
        "the block `{}` is not closed: `{{{{/{name}}}}}` is missing",
        quoted(begin.text)
    );
    Some((begin.at, message))
}
