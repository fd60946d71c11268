//! Tokens of a JavaScript source.

use std::ops::Range;

use super::names::{begins_name, continues_name, is_reserved};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A name or a reserved word.
    Word,
    /// A number, a string, a regular expression, a private name, or the text of a template.
    Literal,
    /// `(`, `[`, `{`, and `${` of a template.
    Open,
    /// Closing bracket: `)`, `]`, `}`.
    Close,
    /// Anything else.
    Sign,
}

/// A token and its byte range.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) at: Range<usize>,
    /// True if there is a line break between the previous token and this one.
    pub(super) begins_line: bool,
}

/// Signs of more than one character; a sign is listed before its own prefixes.
const SIGNS: [&str; 33] = [
    ">>>=", "...", "===", "!==", "**=", "<<=", ">>=", ">>>", "&&=", "||=", "??=", "=>", "==", "!=", "<=", ">=", "&&",
    "||", "??", "?.", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<", ">>", "**",
];

/// Returns the tokens of a source. `None` if a sign is ambiguous (a `/` after a bracket, an escape in a name, HTML's comments) or
/// a literal is not terminated.
pub(super) fn tokens(source: &str) -> Option<Vec<Token>> {
    if source.contains("<!--") || source.contains("-->") {
        return None;
    }
    let mut lexer = Lexer {
        source,
        at: 0,
        tokens: Vec::new(),
        open: Vec::new(),
        begins_line: true,
    };
    while lexer.at < source.len() {
        lexer.next()?;
    }
    Some(lexer.tokens)
}

/// Returns the index of the first token after the bracket of each call of a global function.
pub(super) fn calls<'t>(source: &'t str, tokens: &'t [Token], function: &'t str) -> impl Iterator<Item = usize> + 't {
    let text = |at: usize| tokens.get(at).map_or("", |token| &source[token.at.clone()]);
    let is_call = move |at: &usize| {
        let is_member = *at > 0 && matches!(text(at - 1), "." | "?." | "function");
        text(*at) == function && text(at + 1) == "(" && !is_member
    };
    (0..tokens.len()).filter(is_call).map(|at| at + 2)
}

/// True if a function with this body may return a value, throw or log: it has one of these words outside of nested functions. True for
/// a source with an ambiguous sign.
pub fn has_effect(body: &str) -> bool {
    let Some(tokens) = tokens(body) else { return true };
    let text = |at: usize| &body[tokens[at].at.clone()];
    // The open brackets, each with its index and whether it begins the body of a function.
    let mut open: Vec<(usize, bool)> = Vec::new();
    let mut last_closed = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Open => {
                let follows = |sign: &str| at > 0 && text(at - 1) == sign;
                // The word before the parameters, or the condition.
                let is_condition = || {
                    last_closed > 0
                        && matches!(
                            text(last_closed - 1),
                            "if" | "for" | "while" | "switch" | "catch" | "with" | "await"
                        )
                };
                let is_body = text(at) == "{" && (follows("=>") || follows(")") && !is_condition());
                open.push((at, is_body));
            }
            TokenKind::Close => last_closed = open.pop().map_or(0, |(at, _)| at),
            TokenKind::Word if !open.iter().any(|(_, body)| *body) => match text(at) {
                "return" | "throw" | "console" => return true,
                // The function of SCRIPT nodes, not `Math.log`.
                "log" if at == 0 || text(at - 1) != "." => return true,
                _other => {}
            },
            TokenKind::Word | TokenKind::Literal | TokenKind::Sign => {}
        }
    }
    false
}

/// Returns a regular expression literal longer than `most` bytes. Engines compile a literal during parsing, in more than linear
/// time and without interruption. If the source has an ambiguous `/`, the text between two slashes of a line counts as a literal.
pub fn long_pattern(source: &str, most: usize) -> Option<Range<usize>> {
    // A literal cannot span lines.
    if source.len() <= most || source.split('\n').all(|line| line.len() <= most) {
        return None;
    }
    let starts_with = |at: usize, sign: u8| source.as_bytes().get(at) == Some(&sign);
    // The text of a template is a literal too, and may start with a `/`; no regular expression follows a backtick or a `}`.
    let in_template = |at: usize| at > 0 && (starts_with(at - 1, b'`') || starts_with(at - 1, b'}'));
    let is_long = |at: &Range<usize>| at.len() > most && starts_with(at.start, b'/') && !in_template(at.start);
    if let Some(tokens) = tokens(source) {
        let literals = tokens.into_iter().filter(|token| token.kind == TokenKind::Literal);
        let mut places = literals.map(|token| token.at);
        return places.find(is_long);
    }
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        let mut slashes = line.match_indices('/').map(|(at, _)| start + at);
        let mut before = slashes.next();
        for slash in slashes {
            let stretch = before.replace(slash).unwrap_or(slash)..slash + 1;
            if stretch.len() > most {
                return Some(stretch);
            }
        }
        start += line.len();
    }
    None
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    tokens: Vec<Token>,
    /// Indices of the tokens of unclosed brackets.
    open: Vec<usize>,
    begins_line: bool,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn push(&mut self, kind: TokenKind, length: usize) {
        let at = self.at..self.at + length;
        let begins_line = std::mem::take(&mut self.begins_line);
        match kind {
            TokenKind::Open => self.open.push(self.tokens.len()),
            TokenKind::Close => {
                self.open.pop();
            }
            TokenKind::Word | TokenKind::Literal | TokenKind::Sign => {}
        }
        self.at = at.end;
        self.tokens.push(Token { kind, at, begins_line });
    }

    fn next(&mut self) -> Option<()> {
        let rest = self.rest();
        let letter = rest.chars().next()?;
        match letter {
            '\n' | '\r' | '\u{2028}' | '\u{2029}' => {
                self.begins_line = true;
                self.at += letter.len_utf8();
            }
            _ if letter.is_whitespace() || letter == '\u{feff}' => self.at += letter.len_utf8(),
            '/' if rest.starts_with("//") => {
                self.at += rest.find(['\n', '\r', '\u{2028}', '\u{2029}']).unwrap_or(rest.len());
            }
            '/' if rest.starts_with("/*") => {
                let length = rest[2..].find("*/")? + 4;
                self.begins_line |= rest[..length].contains(['\n', '\r', '\u{2028}', '\u{2029}']);
                self.at += length;
            }
            '"' | '\'' => {
                let length = literal_end(rest, letter)?;
                self.push(TokenKind::Literal, length);
            }
            '`' => {
                self.at += 1;
                self.template()?;
            }
            '0'..='9' => self.push(TokenKind::Literal, number_end(rest)),
            '.' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => {
                self.push(TokenKind::Literal, 1 + number_end(&rest[1..]));
            }
            '#' => {
                let length = 1 + word_end(&rest[1..]);
                self.push(TokenKind::Literal, length);
            }
            '\\' => return None,
            _ if begins_name(letter) => {
                let length = word_end(rest);
                self.push(TokenKind::Word, length);
            }
            '/' if self.begins_pattern()? => {
                let length = pattern_end(rest)?;
                self.push(TokenKind::Literal, length + word_end(&rest[length..]));
            }
            '(' | '[' | '{' => self.push(TokenKind::Open, 1),
            '}' if self.is_in_template() => {
                self.push(TokenKind::Close, 1);
                self.template()?;
            }
            ')' | ']' | '}' => self.push(TokenKind::Close, 1),
            _ => {
                // `?.5` is a conditional operator and a number.
                let is_choice = |sign: &str| sign == "?." && rest[2..].starts_with(|next: char| next.is_ascii_digit());
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign) && !is_choice(sign));
                let length = sign.map_or(letter.len_utf8(), |sign| sign.len());
                self.push(TokenKind::Sign, length);
            }
        }
        Some(())
    }

    fn is_in_template(&self) -> bool {
        let begin = self.open.last().and_then(|begin| self.tokens.get(*begin));
        begin.is_some_and(|begin| &self.source[begin.at.clone()] == "${")
    }

    /// Reads the text of a template up to its end, or to the next `${`.
    fn template(&mut self) -> Option<()> {
        let rest = self.rest();
        let mut letters = rest.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => {
                    letters.next()?;
                }
                '`' => {
                    self.push(TokenKind::Literal, at + 1);
                    return Some(());
                }
                '$' if rest[at..].starts_with("${") => {
                    self.push(TokenKind::Literal, at);
                    self.push(TokenKind::Open, 2);
                    return Some(());
                }
                _ => {}
            }
        }
        None
    }

    /// True if a `/` starts a regular expression, false if it divides; `None` if only a full parser can decide.
    fn begins_pattern(&self) -> Option<bool> {
        let Some(before) = self.tokens.last() else {
            return Some(true);
        };
        let text = &self.source[before.at.clone()];
        match before.kind {
            TokenKind::Word => {
                Some(is_reserved(text) && !matches!(text, "this" | "super" | "null" | "true" | "false" | "undefined"))
            }
            TokenKind::Literal => Some(false),
            TokenKind::Open => Some(true),
            TokenKind::Close if text == "]" => Some(false),
            TokenKind::Close => None,
            TokenKind::Sign => (!matches!(text, "++" | "--")).then_some(true),
        }
    }
}

fn word_end(text: &str) -> usize {
    text.find(|letter| !continues_name(letter)).unwrap_or(text.len())
}

/// Returns the end of a number: digits, letters, a decimal point, a sign after its `e`.
fn number_end(text: &str) -> usize {
    let is_hex = text.starts_with("0x") || text.starts_with("0X");
    let mut had_point = false;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        let goes_on = match letter {
            '.' => !std::mem::replace(&mut had_point, true),
            '+' | '-' => matches!(before, 'e' | 'E') && !is_hex,
            letter => continues_name(letter),
        };
        if !goes_on {
            return at;
        }
        before = letter;
    }
    text.len()
}

fn literal_end(text: &str, quote: char) -> Option<usize> {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => {
                letters.next()?;
            }
            letter if letter == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn pattern_end(text: &str) -> Option<usize> {
    let mut letters = text.char_indices().skip(1);
    let mut in_class = false;
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => {
                letters.next()?;
            }
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return Some(at + 1),
            '\n' => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_regular_expression_literal_is_found() {
        let words = |count: usize| vec!["word"; count].join("|");
        let long = words(100);
        let found = |source: &str| long_pattern(source, 300).map(|at| source[at].to_owned());
        assert_eq!(
            found(&format!("return /{long}/.test(input)")),
            Some(format!("/{long}/"))
        );
        assert_eq!(
            found(&format!("if (x) /{long}/.test(input)")),
            Some(format!("/{long}/"))
        );
        for fine in [
            format!("return /{}/.test(input)", words(50)),
            format!("return '/{long}/'"),
            format!("return `/{long}/`"),
            format!("// /{long}/\nreturn 1"),
            format!("return a\n/{long}\n/b"),
            format!("return /{}/.test(input) || '{long}'", words(50)),
        ] {
            assert_eq!(found(&fine), None, "{fine}");
        }
    }
}
