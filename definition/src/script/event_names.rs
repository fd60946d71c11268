//! Names of the events for which a script workflow waits.

use std::collections::BTreeSet;

use super::tokens::{TokenKind, calls, tokens};

/// Returns the names that the calls of `event` in a script write as plain strings. Computed names are unknown before the run.
pub fn event_names(source: &str) -> BTreeSet<&str> {
    if !source.contains("event") {
        return BTreeSet::new();
    }
    let tokens = tokens(source).unwrap_or_default();
    let names = calls(source, &tokens, "event").filter_map(|first| {
        let first = tokens.get(first).filter(|token| token.kind == TokenKind::Literal)?;
        let written = &source[first.at.clone()];
        let quoted = |quote: char| written.strip_prefix(quote)?.strip_suffix(quote);
        quoted('\'').or_else(|| quoted('"')).filter(|name| !name.contains('\\'))
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_calls_with_a_plain_string_are_found() {
        let source = "await event('go'); any([() => event(\"paid\", { timeoutMs: 5 }), () => event(name)]); event('a\\'b'); x.event('y'); \
                      const event2 = 'event(\"z\")'";
        assert_eq!(event_names(source), BTreeSet::from(["go", "paid"]));
        assert_eq!(event_names("return 1"), BTreeSet::new());
    }
}
