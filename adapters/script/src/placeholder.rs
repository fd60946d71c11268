//! `{{path}}` in an expression: `"{{baseValue}} * {{multiplier}}"`, `"'{{status}}' === 'ok'"`.
//!
//! Outside of a string, each becomes a call that reads the path strictly; a string that contains some becomes a concatenation.
//! Values are never pasted into the source, so they cannot be parsed as code.

use pirn_definition::script::Path;

/// An expression with its `{{path}}`s replaced, and the replaced paths.
pub(super) struct Rewritten {
    pub(super) source: String,
    pub(super) paths: Vec<Path>,
    pub(super) shifts: Shifts,
}

/// Offsets at which the rewritten text matches the original again: byte offsets in the new and the old text, ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct Shifts(Vec<(usize, usize)>);

impl Shifts {
    /// Returns the offset in the old text that corresponds to an offset in the new one.
    pub(super) fn original(&self, offset: usize) -> usize {
        let next = self.0.partition_point(|(new, _)| *new <= offset);
        let (new, old) = next.checked_sub(1).map_or((0, 0), |last| self.0[last]);
        let most = self.0.get(next).map_or(usize::MAX, |(_, old)| *old);
        (old + offset - new).min(most)
    }
}

/// Rewrites an expression, or returns `None` if it has no `{{path}}`. `call` returns the text that reads path number `n`.
pub(super) fn rewrite(source: &str, call: impl Fn(usize) -> String) -> Option<Rewritten> {
    if !source.contains("{{") {
        return None;
    }
    let mut text = String::with_capacity(source.len());
    let mut paths = Vec::new();
    let mut shifts = Vec::new();
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        if let Some((path, after)) = placeholder(rest).filter(|_| !text.ends_with('$')) {
            text.push_str(&call(paths.len()));
            paths.push(path);
            rest = after;
            shifts.push((text.len(), source.len() - rest.len()));
            continue;
        }
        let end = match c {
            '"' | '\'' => {
                let end = string_end(rest, c);
                text.push_str(&with_sums(&rest[..end], c, &mut paths, &call));
                rest = &rest[end..];
                shifts.push((text.len(), source.len() - rest.len()));
                continue;
            }
            '`' => string_end(rest, '`'),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '/' if begins_pattern(&text) => pattern_end(rest),
            _ => c.len_utf8(),
        };
        text.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    let shifts = Shifts(shifts);
    (!paths.is_empty()).then_some(Rewritten {
        source: text,
        paths,
        shifts,
    })
}

/// Parses a `{{path}}` at the start of `text`; returns it with the remaining text.
fn placeholder(text: &str) -> Option<(Path, &str)> {
    let tail = text.strip_prefix("{{")?;
    // Stop at the next `{{`: otherwise many unclosed ones would each be searched to the end of the text.
    let (inside, _) = tail
        .split_once("{{")
        .map_or(tail, |(before, _)| before)
        .split_once("}}")?;
    let after = &tail[inside.len() + 2..];
    Some((Path::of_template(inside)?, after))
}

/// Returns a string literal unchanged, or as a concatenation if it contains `{{path}}`s.
fn with_sums(literal: &str, quote: char, paths: &mut Vec<Path>, call: &impl Fn(usize) -> String) -> String {
    let mut sum = String::new();
    let mut rest = literal;
    while let Some(start) = rest.find("{{") {
        let Some((path, after)) = placeholder(&rest[start..]) else {
            sum.push_str(&rest[..start + 2]);
            rest = &rest[start + 2..];
            continue;
        };
        sum.push_str(&rest[..start]);
        sum.push_str(&[&quote.to_string(), " + ", &call(paths.len()), " + ", &quote.to_string()].concat());
        paths.push(path);
        rest = after;
    }
    sum.push_str(rest);
    if sum == literal { sum } else { format!("({sum})") }
}

/// Returns the end of the literal at the start of `text`, including its closing quote.
fn string_end(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return index + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Returns whether a `/` after `text` starts a regular expression rather than a division.
fn begins_pattern(text: &str) -> bool {
    let before = text.trim_end();
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let ends_operand = before.ends_with(|c: char| is_of_name(c) || matches!(c, ')' | ']' | '}' | '"' | '\'' | '`'));
    let word = before.rsplit(|c: char| !is_of_name(c)).next().unwrap_or_default();
    !ends_operand
        || matches!(
            word,
            "return" | "typeof" | "in" | "void" | "delete" | "instanceof" | "await"
        )
}

fn pattern_end(text: &str) -> usize {
    let (mut is_escaped, mut in_class) = (false, false);
    for (index, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return index + 1,
            '\n' => return index,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(source: &str) -> Option<(String, Vec<String>)> {
        let rewritten = rewrite(source, |index| format!("at({index})"))?;
        Some((
            rewritten.source,
            rewritten.paths.iter().map(|path| path.source().to_string()).collect(),
        ))
    }

    #[test]
    fn placeholders_become_lookups() {
        let (source, paths) = rewritten("({{a}} + {{ b-c.d[0] }}) * 2 - 5").unwrap();
        assert_eq!(source, "(at(0) + at(1)) * 2 - 5");
        assert_eq!(paths, ["a", "b-c.d[0]"]);
    }

    #[test]
    fn a_placeholder_in_a_string_becomes_a_concatenation() {
        assert_eq!(rewritten("'{{s}}' === 'ok'").unwrap().0, "('' + at(0) + '') === 'ok'");
        assert_eq!(rewritten(r#""a \" {{s}}!""#).unwrap().0, r#"("a \" " + at(0) + "!")"#);
    }

    #[test]
    fn unchanged_source_maps_to_its_original_offset() {
        let source = "{{a}} + x * '{{b}}' / y";
        let rewritten = rewrite(source, |index| format!("at({index})")).unwrap();
        for name in ["x", "y"] {
            let new = rewritten.source.find(name).unwrap();
            assert_eq!(Some(rewritten.shifts.original(new)), source.find(name), "{name}");
        }
        assert_eq!(rewritten.shifts.original(0), 0);
    }

    #[test]
    fn source_that_only_resembles_a_placeholder_is_unchanged() {
        for source in [
            "({a:{b:1}})",
            "`${{a:1}.a}`",
            "`{{a}}`",
            "/{{a}}/.test(s)",
            "1 // {{a}}",
            "/* {{a}} */ 1",
            "'{{' + a + '}}'",
            "{{a + b}}",
        ] {
            assert_eq!(rewritten(source), None, "{source}");
        }
        assert_eq!(rewritten("x / {{a}} / 2").unwrap().0, "x / at(0) / 2");
    }
}
