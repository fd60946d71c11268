//! Expressions that are certainly good JavaScript, told without asking QuickJS: most conditions are.
//!
//! The grammar here is a small part of JavaScript's. What is in it parses; what is not may parse all the same, and is for
//! QuickJS to say. Left out on purpose: slashes (regular expressions, comments), backslashes, templates, assignment, every
//! reserved word but those that are values, mixed `??`, and `--`, which can begin a comment.

use pirn_core::script::is_reserved;

/// Brackets and signs within each other; deeper ones are left to QuickJS.
const DEEPEST: u32 = 64;

/// Reserved words that are values.
const VALUES: [&str; 4] = ["false", "null", "true", "undefined"];

/// Words that are names in some places only.
const SOMETIMES: [&str; 6] = ["as", "async", "from", "get", "of", "set"];

/// Longer operators stand before those they begin with.
const OPERATORS: [&str; 13] = [
    "===", "!==", "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*",
];

/// Whether `text` is an expression, for certain.
pub(super) fn is_expression(text: &str) -> bool {
    if text.contains("--") || text.contains("++") || text.contains("**") {
        return false;
    }
    let mut reader = Reader { rest: text, depth: 0 };
    reader.expression().is_some() && reader.is_at_end()
}

struct Reader<'a> {
    rest: &'a str,
    depth: u32,
}

/// Something was read; none where this grammar does not know it.
type Read = Option<()>;

impl<'a> Reader<'a> {
    fn expression(&mut self) -> Read {
        self.deeper(|reader| {
            reader.operands()?;
            if reader.take("?") {
                reader.expression()?;
                reader.expect(":")?;
                reader.expression()?;
            }
            Some(())
        })
    }

    fn operands(&mut self) -> Read {
        self.operand()?;
        while OPERATORS.iter().any(|operator| self.take(operator)) {
            self.operand()?;
        }
        Some(())
    }

    fn operand(&mut self) -> Read {
        self.deeper(|reader| {
            if reader.take("!") || reader.take("-") || reader.take("+") {
                return reader.operand();
            }
            reader.value()?;
            loop {
                if reader.take("?.") || reader.take(".") {
                    reader.word()?;
                } else if reader.take("[") {
                    reader.expression()?;
                    reader.expect("]")?;
                } else if reader.take("(") {
                    if reader.take(")") {
                        continue;
                    }
                    reader.expression()?;
                    while reader.take(",") {
                        reader.expression()?;
                    }
                    reader.expect(")")?;
                } else {
                    return Some(());
                }
            }
        })
    }

    fn value(&mut self) -> Read {
        if self.take("(") {
            self.expression()?;
            return self.expect(")");
        }
        match self.rest.bytes().next()? {
            quote @ (b'"' | b'\'') => self.text(char::from(quote)),
            b'0'..=b'9' => self.number(),
            _ => {
                let word = self.word()?;
                let is_plain = !is_reserved(word) && !SOMETIMES.contains(&word);
                (is_plain || VALUES.contains(&word)).then_some(())
            }
        }
    }

    fn text(&mut self, quote: char) -> Read {
        let inside = &self.rest[1..];
        let end = inside.find([quote, '\\', '\n', '\r', '\u{2028}', '\u{2029}'])?;
        self.rest = inside[end..].strip_prefix(quote)?;
        Some(())
    }

    fn number(&mut self) -> Read {
        let whole = self.digits();
        if whole.len() > 1 && whole.starts_with('0') {
            return None;
        }
        if let Some(rest) = self.rest.strip_prefix('.') {
            self.rest = rest;
            if self.digits().is_empty() {
                return None;
            }
        }
        // `1n`, `1e3`, `0x1`, `1a`, `1.2.3`.
        let next = self.rest.chars().next();
        next.is_none_or(|next| next.is_ascii() && !is_of_word(next) && next != '.')
            .then_some(())
    }

    fn digits(&mut self) -> &'a str {
        let end = self
            .rest
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        digits
    }

    fn word(&mut self) -> Option<&'a str> {
        self.space();
        let end = self
            .rest
            .find(|letter: char| !is_of_word(letter))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let is_name = word.starts_with(|first: char| !first.is_ascii_digit())
            && rest.chars().next().is_none_or(|next| next.is_ascii());
        self.rest = rest;
        is_name.then_some(word)
    }

    fn deeper(&mut self, read: impl FnOnce(&mut Self) -> Read) -> Read {
        self.depth += 1;
        let done = if self.depth > DEEPEST { None } else { read(self) };
        self.depth -= 1;
        done
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Read {
        self.take(token).then_some(())
    }

    fn is_at_end(&mut self) -> bool {
        self.space();
        self.rest.is_empty()
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '$')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::script::TextSyntax;

    #[test]
    fn what_conditions_mostly_say_is_told_at_once() {
        for text in [
            "a",
            "variables.count > 3 && output.status === 'ok'",
            "(variables.n || 0) + 1",
            "!input.done",
            "nodes[\"x\"].output.list[0] != null ? 1.5 : -2",
            "items.filter(isOpen, 1).length >= 0",
            "output?.content.includes('是')",
        ] {
            assert!(is_expression(text), "{text}");
        }
    }

    #[test]
    fn what_is_not_certain_is_left_to_quickjs() {
        for text in [
            "",
            "a +",
            "a b",
            "1) + (2",
            "a, b",
            "a = 1",
            "let",
            "new X",
            "a /b/ c",
            "a // b",
            "a ?? b || c",
            "1 <!--x",
            "07",
            "1.",
            "1.a",
            "1a",
            "'a",
            "'a\\'",
            "`a`",
            "{{a}}",
            "x => x",
            "...a",
            "a.1",
            "a..b",
            "a?.5:1",
            "é",
            "aé",
            "await x",
            "[1]",
        ] {
            assert!(!is_expression(text), "{text}");
        }
        assert!(!is_expression(&format!("{}a{}", "(".repeat(200), ")".repeat(200))));
        assert!(!is_expression(&"!".repeat(100_000)));
    }

    const PIECES: &[&str] = &[
        "a", "b.c", " ", "(", ")", "[", "]", ".", "?.", "?", ":", "!", "-", "+", "*", "<", ">", "=", "==", "===", "!=",
        "&&", "||", "0", "1", "1.5", "'x'", "\"y\"", "'", ",", "in", "new", "null", "true", "this", "let", "async",
        "\n", "$", "_", "e", "n",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn what_is_told_to_be_an_expression_is_one_to_quickjs(texts in prop::collection::vec(prop::collection::vec(prop::sample::select(PIECES), 1..9), 300)) {
            let syntax = TextSyntax::default();
            for pieces in texts {
                let text = pieces.concat();
                if is_expression(&text) {
                    prop_assert_eq!(syntax.ask_quickjs(&text), Ok(()), "{}", text);
                }
            }
        }
    }
}
