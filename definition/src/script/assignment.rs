//! Assignments in expressions: `=` instead of `==`.

use std::ops::Range;

use super::free_names::partners;
use super::tokens::{TokenKind, tokens};

/// Returns the byte range of the first `=` that assigns a value. Default values of parameters, and everything in curly brackets,
/// are excluded. `None` if the source cannot be read without a parser.
///
/// ```
/// use pirn_definition::script::assignment;
/// assert_eq!(assignment("input.status = 'ok'"), Some(13..14));
/// assert_eq!(assignment("input.status == 'ok'"), None);
/// ```
pub fn assignment(source: &str) -> Option<Range<usize>> {
    let tokens = tokens(source)?;
    let partners = partners(&tokens)?;
    let text = |at: usize| tokens.get(at).map_or("", |token| &source[token.at.clone()]);
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].kind == TokenKind::Sign && text(at) == "=" {
            return Some(tokens[at].at.clone());
        }
        at = match partners[at] {
            Some(end) if end > at && (text(at) == "{" || text(end + 1) == "=>") => end + 1,
            Some(_) | None => at + 1,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::assignment;

    #[test]
    fn only_an_assignment_is_found() {
        for (source, sign) in [
            ("input.a = 1", Some(8)),
            ("{{input.a}} = 1", Some(12)),
            ("input.a > 1 && (input.b = 2)", Some(24)),
            ("input.a == 1 || input.b === 2", None),
            ("input.a >= 1 && input.b != 2 || input.c <= 3", None),
            ("input.list.some((x = 1) => x > 1)", None),
            ("input.list.some(x => { let y = x; return y })", None),
            ("input.text == 'a = b'", None),
            ("`${input.a} = b`", None),
        ] {
            assert_eq!(assignment(source).map(|at| at.start), sign, "{source}");
        }
    }
}
