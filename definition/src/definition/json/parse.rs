//! Parser of strict JSON, with messages for common mistakes.

use super::{Json, MAX_BYTES, MAX_DEPTH, Member, Span, Tree};
use crate::definition::FaultCode;

/// A tree, and the duplicate keys of its objects.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) root: Tree,
    pub(crate) duplicates: Vec<DuplicateKey>,
}

/// A key that appears twice in one object.
#[derive(Debug)]
pub(crate) struct DuplicateKey {
    pub(crate) key: String,
    pub(crate) first: Span,
    pub(crate) other: Span,
}

/// The first syntax error of a text.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) code: FaultCode,
    pub(crate) message: String,
    pub(crate) span: Span,
}

/// Parses a text.
pub(crate) fn parse(text: &str) -> Result<Parsed, SyntaxError> {
    if text.len() > MAX_BYTES {
        let message = format!("the JSON text has {} bytes; the limit is {MAX_BYTES}", text.len());
        return Err(SyntaxError {
            code: FaultCode::LimitExceeded,
            message,
            span: Span { start: 0, end: 0 },
        });
    }
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        members: Vec::new(),
        items: Vec::new(),
        duplicates: Vec::new(),
    };
    if text.starts_with('\u{feff}') {
        parser.at = '\u{feff}'.len_utf8();
    }
    parser.skip_space();
    let root = parser.value()?;
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.unexpected("the end of the text"));
    }
    Ok(Parsed {
        root,
        duplicates: parser.duplicates,
    })
}

/// Objects with at most this number of members compare keys pairwise; larger ones are sorted.
const MAX_UNSORTED: usize = 8;

fn repeats_a_key(members: &[Member]) -> bool {
    let has_before = |(place, member): (usize, &Member)| members[..place].iter().any(|other| other.key == member.key);
    members.iter().enumerate().any(has_before)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// Members of the open objects, as a stack, so that each object's list is allocated once with its final length.
    members: Vec<Member>,
    /// Items of the open lists, as a stack.
    items: Vec<Tree>,
    duplicates: Vec<DuplicateKey>,
}

/// Content of a quoted string.
enum Quoted<'a> {
    Plain(&'a str),
    Escaped(String),
}

impl<'a> Parser<'a> {
    fn value(&mut self) -> Result<Tree, SyntaxError> {
        let start = self.at;
        let value = match self.peek() {
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::list)?,
            Some(b'"') => Json::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(_) => self.word()?,
            None => return Err(self.unexpected("a value")),
        };
        Ok(Tree {
            span: span(start, self.at),
            value,
        })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Json, SyntaxError>) -> Result<Json, SyntaxError> {
        if self.depth == MAX_DEPTH {
            let message = format!("nested more than {MAX_DEPTH} levels deep");
            return Err(self.error_at(FaultCode::LimitExceeded, message, self.at, self.at + 1));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Result<Json, SyntaxError> {
        let first = self.members.len();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(Vec::new()));
        }
        loop {
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let key = self.string()?;
            let key_span = span(start, self.at);
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("`:`"));
            }
            self.at += 1;
            self.skip_space();
            let value = self.value()?;
            self.members.push(Member { key, key_span, value });
            if self.another(b'}', "`,` or `}`")? {
                continue;
            }
            let members = self.members.drain(first..).collect();
            return Ok(Json::Object(self.without_repeats(members)));
        }
    }

    fn list(&mut self) -> Result<Json, SyntaxError> {
        let first = self.items.len();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::List(Vec::new()));
        }
        loop {
            let item = self.value()?;
            self.items.push(item);
            if !self.another(b']', "`,` or `]`")? {
                return Ok(Json::List(self.items.drain(first..).collect()));
            }
        }
    }

    /// After an element: returns whether another one follows.
    fn another(&mut self, close: u8, expected: &str) -> Result<bool, SyntaxError> {
        self.skip_space();
        match self.peek() {
            Some(b',') => {
                let comma = self.at;
                self.at += 1;
                self.skip_space();
                if self.peek() == Some(close) {
                    let message = format!(
                        "a comma before `{}`: JSON does not allow trailing commas",
                        char::from(close)
                    );
                    return Err(self.error_at(FaultCode::InvalidJson, message, comma, comma + 1));
                }
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            Some(b'"' | b'{' | b'[' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                let mut error = self.unexpected(expected);
                error.message.push_str(": is a comma missing before it?");
                Err(error)
            }
            Some(_) | None => Err(self.unexpected(expected)),
        }
    }

    fn without_repeats(&mut self, members: Vec<Member>) -> Vec<Member> {
        if members.len() <= MAX_UNSORTED && !repeats_a_key(&members) {
            return members;
        }
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by(|a, b| members[*a].key.cmp(&members[*b].key).then(a.cmp(b)));
        // position of the first key, for each member that repeats a key
        let mut firsts: Vec<Option<Span>> = vec![None; members.len()];
        for pair in order.windows(2) {
            let (before, after) = (&members[pair[0]], &members[pair[1]]);
            if before.key == after.key {
                firsts[pair[1]] = Some(firsts[pair[0]].unwrap_or(before.key_span));
            }
        }
        let mut kept = Vec::with_capacity(members.len());
        for (member, first) in members.into_iter().zip(firsts) {
            match first {
                Some(first) => self.duplicates.push(DuplicateKey {
                    key: member.key,
                    first,
                    other: member.key_span,
                }),
                None => kept.push(member),
            }
        }
        kept
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        match self.quoted()? {
            Quoted::Plain(text) => Ok(text.to_owned()),
            Quoted::Escaped(text) => Ok(text),
        }
    }

    fn quoted(&mut self) -> Result<Quoted<'a>, SyntaxError> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        let mut plain = true;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    plain = false;
                    end += 2;
                }
                Some(0..=0x1f) => {
                    let message = "a line break or control character in text: write it as \\n or \\u....".to_owned();
                    return Err(self.error_at(FaultCode::InvalidJson, message, end, end + 1));
                }
                Some(_) => end += 1,
                None => {
                    let message = "the text ends inside a string: its closing quote is missing".to_owned();
                    return Err(self.error_at(FaultCode::InvalidJson, message, start, bytes.len()));
                }
            }
        }
        self.at = end + 1;
        if plain {
            return Ok(Quoted::Plain(&self.text[start + 1..end]));
        }
        let text = serde_json::from_str(&self.text[start..=end]).map_err(|error| {
            let message = match without_place(&error).as_str() {
                "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
                    "a bad escape in text: half of a surrogate pair".to_owned()
                }
                other => format!("a bad escape in text: {other}"),
            };
            self.error_at(FaultCode::InvalidJson, message, start, end + 1)
        })?;
        Ok(Quoted::Escaped(text))
    }

    fn number(&mut self) -> Result<Json, SyntaxError> {
        let start = self.at;
        while matches!(
            self.peek(),
            Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z')
        ) {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        let number: serde_json::Number = serde_json::from_str(text).map_err(|error| {
            let message = match text {
                "-Infinity" | "-NaN" => format!("invalid number `{text}`"),
                _ => format!("invalid number `{}`: {}", shortened(text), without_place(&error)),
            };
            self.error_at(FaultCode::InvalidJson, message, start, self.at)
        })?;
        Ok(Json::Number(integral(number)))
    }

    fn word(&mut self) -> Result<Json, SyntaxError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'$')) {
            self.at += 1;
        }
        match &self.text[start..self.at] {
            "null" => Ok(Json::Null),
            "true" => Ok(Json::Bool(true)),
            "false" => Ok(Json::Bool(false)),
            "" => Err(self.unexpected("a value")),
            other => {
                let message = match other {
                    "NaN" | "Infinity" | "undefined" => format!("invalid value `{other}`"),
                    _ => format!(
                        "expected a value, found `{}`: strings need double quotes",
                        shortened(other)
                    ),
                };
                Err(self.error_at(FaultCode::InvalidJson, message, start, self.at))
            }
        }
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn unexpected(&self, expected: &str) -> SyntaxError {
        let (message, end) = match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some('/') => (
                format!("expected {expected}, found `/`: JSON has no comments"),
                self.at + 1,
            ),
            Some('\'') => (
                format!("expected {expected}, found `'`: JSON strings need double quotes"),
                self.at + 1,
            ),
            Some(found) if found.is_control() => (
                format!(
                    "expected {expected}, found the byte {:#04x}: the file may not be text",
                    u32::from(found)
                ),
                self.at + found.len_utf8(),
            ),
            Some(found) => (
                format!("expected {expected}, found `{found}`"),
                self.at + found.len_utf8(),
            ),
            None => (format!("expected {expected}, but the text ends here"), self.at),
        };
        self.error_at(FaultCode::InvalidJson, message, self.at, end)
    }

    #[allow(clippy::unused_self)] // reads as the parser's own act at every call
    fn error_at(&self, code: FaultCode, message: String, start: usize, end: usize) -> SyntaxError {
        SyntaxError {
            code,
            message,
            span: span(start, end),
        }
    }
}

fn span(start: usize, end: usize) -> Span {
    Span {
        start: start as u32,
        end: end as u32,
    }
}

/// Converts `5.0` and `5e0` to the integer 5, as JavaScript does.
fn integral(number: serde_json::Number) -> serde_json::Number {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT => (float as i64).into(),
        Some(_) | None => number,
    }
}

/// Removes the suffix "at line 1 column 2" from serde_json's message, because it counts from the wrong start.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 40 {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(40).collect();
    short.push_str("...");
    short
}
