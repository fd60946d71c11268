//! Free names of a script, found without running it.
//!
//! The result may omit names, but never contains a name that the script declares: a possible declaration counts as one. If a
//! token is ambiguous, the result is empty.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::is_reserved;
use super::names::member_after;
use super::tokens::{Token, TokenKind, tokens};

/// A free name of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeName {
    /// The name.
    pub name: String,
    /// Byte range of its first occurrence.
    pub at: Range<usize>,
    /// True if the name is assigned there.
    pub is_assigned: bool,
    /// Members that the source names at all occurrences of the name, such as `.b` of `a.b`.
    pub members: Vec<Member>,
}

/// A member of a free name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Byte range of the member's name.
    pub at: Range<usize>,
    /// Byte range of the name of the member's own member, unless that is called as a function.
    pub field: Option<Range<usize>>,
}

impl Member {
    /// Returns the member directly after `from`, if the source names it: `.x`, `?.x`, `["x"]`, `['x']`.
    pub(crate) fn after(source: &str, from: usize) -> Option<Self> {
        let at = member_range(source, from)?;
        let field = field_of(source, &at);
        Some(Self { at, field })
    }

    /// Returns the byte range of the member's name, unless the member is called as a function.
    pub(crate) fn read(&self, source: &str) -> Option<&Range<usize>> {
        (!is_called(source, &self.at)).then_some(&self.at)
    }
}

/// Returns the byte range of the name of a member's own member, unless that is called as a function.
pub(crate) fn field_of(source: &str, member: &Range<usize>) -> Option<Range<usize>> {
    member_range(source, member_end(source, member)).filter(|field| !is_called(source, field))
}

fn is_called(source: &str, member: &Range<usize>) -> bool {
    let rest = &source[member_end(source, member)..];
    rest.trim_start().starts_with('(') || rest.starts_with("?.(")
}

fn member_range(source: &str, from: usize) -> Option<Range<usize>> {
    let rest = &source[from..];
    let name = member_after(rest)?;
    let start = from + rest.find(name)?;
    Some(start..start + name.len())
}

/// Returns the end of a member's access: after `"]` if the member is quoted.
fn member_end(source: &str, at: &Range<usize>) -> usize {
    let is_quoted = source[at.end..].starts_with(['"', '\'']);
    at.end + if is_quoted { 2 } else { 0 }
}

/// JavaScript words that are keywords in some positions and plain names in others.
const CONTEXTUAL: [&str; 10] = [
    "__proto__",
    "as",
    "async",
    "from",
    "get",
    "let",
    "of",
    "set",
    "static",
    "undefined",
];

/// Keywords followed by the round brackets of a statement.
const STATEMENTS: [&str; 6] = ["await", "for", "if", "switch", "while", "with"];

/// Returns the free names of an expression, or of the body of a function, each once and in the order of their first occurrence.
/// Names that the source tests with `typeof` are excluded. Linear in the length; empty if the source does not parse.
///
/// ```
/// use pirn_definition::script::free_names;
/// let names = free_names("const { a } = input; return a + b + typeof c");
/// assert_eq!(names.iter().map(|free| &*free.name).collect::<Vec<_>>(), ["input", "b"]);
/// ```
pub fn free_names(source: &str) -> Vec<FreeName> {
    let Some(tokens) = tokens(source) else {
        return Vec::new();
    };
    let Some(partners) = partners(&tokens) else {
        return Vec::new();
    };
    let reader = Reader {
        source,
        tokens: &tokens,
        partners: &partners,
    };
    // Properties of the global object are also names, and cannot be listed.
    if (0..tokens.len()).any(|at| reader.word(at) == Some("globalThis")) {
        return Vec::new();
    }
    let Outside { declared, members } = reader.declarations();
    let asked: BTreeSet<&str> = (0..tokens.len())
        .filter(|at| reader.is_asked_for(*at))
        .filter_map(|at| reader.word(at))
        .collect();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    let mut free: Vec<FreeName> = Vec::new();
    for at in (0..tokens.len()).filter(|at| !members.contains(at) && reader.is_reference(*at)) {
        let Some(name) = reader.word(at) else { continue };
        if declared.contains(name) || asked.contains(name) {
            continue;
        }
        let place = *found.entry(name).or_insert_with(|| {
            free.push(FreeName {
                name: name.to_owned(),
                at: tokens[at].at.clone(),
                is_assigned: reader.is_assigned(at),
                members: Vec::new(),
            });
            free.len() - 1
        });
        free[place].members.extend(Member::after(source, tokens[at].at.end));
    }
    free
}

/// Returns the index of the matching bracket of each bracket.
pub(super) fn partners(tokens: &[Token]) -> Option<Vec<Option<usize>>> {
    let mut partners = vec![None; tokens.len()];
    let mut open = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Open => open.push(at),
            TokenKind::Close => {
                let begin = open.pop()?;
                partners[begin] = Some(at);
                partners[at] = Some(begin);
            }
            TokenKind::Word | TokenKind::Literal | TokenKind::Sign => {}
        }
    }
    open.is_empty().then_some(partners)
}

struct Reader<'t> {
    source: &'t str,
    tokens: &'t [Token],
    partners: &'t [Option<usize>],
}

/// Words that are not free names.
#[derive(Default)]
struct Outside<'t> {
    declared: BTreeSet<&'t str>,
    /// Indices of words that name members of classes and methods of objects.
    members: BTreeSet<usize>,
}

impl<'t> Reader<'t> {
    fn text(&self, at: usize) -> &'t str {
        self.tokens.get(at).map_or("", |token| &self.source[token.at.clone()])
    }

    fn word(&self, at: usize) -> Option<&'t str> {
        (self.tokens.get(at)?.kind == TokenKind::Word).then(|| self.text(at))
    }

    fn before(&self, at: usize) -> &'t str {
        at.checked_sub(1).map_or("", |before| self.text(before))
    }

    fn begins_line(&self, at: usize) -> bool {
        at == 0 || self.tokens[at].begins_line
    }

    fn declarations(&self) -> Outside<'t> {
        let mut outside = Outside::default();
        for at in 0..self.tokens.len() {
            match self.text(at) {
                "let" | "const" | "var" if !matches!(self.before(at), "." | "?.") => {
                    self.declare_list(at + 1, &mut outside.declared);
                }
                "function" => {
                    let name = at + 1 + usize::from(self.text(at + 1) == "*");
                    outside.declared.extend(self.word(name));
                    let group = name + usize::from(self.word(name).is_some());
                    self.declare_group(group, &mut outside.declared);
                }
                "catch" if self.text(at + 1) == "(" => self.declare_group(at + 1, &mut outside.declared),
                "class" => {
                    outside
                        .declared
                        .extend(self.word(at + 1).filter(|word| *word != "extends"));
                    self.pass_over_members(at, &mut outside.members);
                }
                "=>" if self.before(at) == ")" => {
                    if let Some(begin) = self.partners[at - 1] {
                        self.declare_group(begin, &mut outside.declared);
                    }
                }
                "=>" => outside
                    .declared
                    .extend(at.checked_sub(1).and_then(|before| self.word(before))),
                "{" if self.before(at) == ")" => self.declare_method(at - 1, &mut outside),
                _ => {}
            }
        }
        outside
    }

    /// Declares the names between `let` and the end of its statement: the first, and those after commas. Without a `;` that may
    /// be more.
    fn declare_list(&self, first: usize, declared: &mut BTreeSet<&'t str>) {
        let mut at = first;
        let mut is_name = true;
        while at < self.tokens.len() {
            let kind = self.tokens[at].kind;
            if kind == TokenKind::Close || self.text(at) == ";" {
                return;
            }
            if is_name {
                match kind {
                    TokenKind::Open => self.declare_group(at, declared),
                    _ => declared.extend(self.word(at)),
                }
            }
            is_name = self.text(at) == ",";
            at = match (kind, self.partners[at]) {
                (TokenKind::Open, Some(end)) => end + 1,
                _ => at + 1,
            };
        }
    }

    /// Declares every word between the brackets that open at `begin`.
    fn declare_group(&self, begin: usize, declared: &mut BTreeSet<&'t str>) {
        let end = self.partners.get(begin).copied().flatten();
        if let Some(end) = end.filter(|end| *end > begin) {
            declared.extend((begin..end).filter_map(|at| self.word(at)));
        }
    }

    /// Declares `name(a, b) {` as a method, unless it is a statement.
    fn declare_method(&self, end: usize, outside: &mut Outside<'t>) {
        let Some(begin) = self.partners[end] else { return };
        if STATEMENTS.contains(&self.before(begin)) {
            return;
        }
        self.declare_group(begin, &mut outside.declared);
        outside.members.extend(begin.checked_sub(1));
    }

    /// Records the words directly in the body of a class, which are names of fields and methods.
    fn pass_over_members(&self, class: usize, members: &mut BTreeSet<usize>) {
        let Some(begin) = (class..self.tokens.len()).find(|at| self.text(*at) == "{") else {
            return;
        };
        let Some(end) = self.partners[begin] else { return };
        let mut at = begin + 1;
        while at < end {
            members.insert(at);
            at = match (self.tokens[at].kind, self.partners[at]) {
                (TokenKind::Open, Some(end)) => end + 1,
                _ => at + 1,
            };
        }
    }

    /// True if a word is a reference to a value, not a member or a label.
    fn is_reference(&self, at: usize) -> bool {
        let Some(word) = self.word(at) else { return false };
        let is_word_of_the_language = match word {
            // A call would load or compile code, which is not available: it counts as a use of a missing name.
            "import" | "eval" => self.text(at + 1) != "(",
            word => is_reserved(word) || CONTEXTUAL.contains(&word),
        };
        if is_word_of_the_language {
            return false;
        }
        match self.before(at) {
            "." | "?." => return false,
            "break" | "continue" if !self.begins_line(at) => return false,
            _ => {}
        }
        let may_begin_member = matches!(self.before(at), "" | "{" | "," | ";" | "}" | ")") || self.begins_line(at);
        !(self.text(at + 1) == ":" && may_begin_member)
    }

    /// True for `typeof name` and `typeof (name)`.
    fn is_asked_for(&self, at: usize) -> bool {
        let is_in_brackets = self.before(at) == "(" && at >= 2 && self.before(at - 1) == "typeof";
        self.before(at) == "typeof" || is_in_brackets
    }

    fn is_assigned(&self, at: usize) -> bool {
        let after = self.text(at + 1);
        let is_sum =
            after.len() > 1 && after.ends_with('=') && !matches!(after, "==" | "===" | "!=" | "!==" | "<=" | ">=");
        after == "=" || is_sum || matches!(after, "++" | "--")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(source: &str) -> Vec<String> {
        free_names(source).into_iter().map(|free| free.name).collect()
    }

    #[test]
    fn members_are_found_at_every_occurrence() {
        let source = r#"nodes.a.text + nodes?.b + nodes['c d']["e"] + nodes.f.g() + nodes[h] + 'nodes.i' + x.nodes.j"#;
        let names = free_names(source);
        let members = names.iter().find(|free| free.name == "nodes").map(|free| &free.members);
        let read: Vec<_> = members.into_iter().flatten().collect();
        let read = read
            .iter()
            .map(|one| (&source[one.at.clone()], one.field.clone().map(|field| &source[field])));
        let expected = [("a", Some("text")), ("b", None), ("c d", Some("e")), ("f", None)];
        assert_eq!(read.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_undeclared_name_is_free() {
        for (source, expected) in [
            ("a + b.c * d['e']", &["a", "b", "d"][..]),
            ("total > 3 ? yes : no", &["total", "yes", "no"]),
            ("fetch('x').then(r => r.json())", &["fetch"]),
            ("`${a} and ${b + `${c}`}`", &["a", "b", "c"]),
            ("[...xs].map(x => x * factor)", &["xs", "factor"]),
            (
                "({ a, b: c, [d]: 1, ...e, f() { return g } })",
                &["a", "c", "d", "e", "g"],
            ),
            (
                "const t = setTimeout(() => done(), 5); return t",
                &["setTimeout", "done"],
            ),
            ("const fs = require('fs'); return fs.x", &["require"]),
            ("let a = 1, b = a\nreturn a + b + c", &["c"]),
            (
                "for (const [k, v] of Object.entries(o)) s += k + v",
                &["Object", "o", "s"],
            ),
            (
                "function f(x, { y = 1 }, ...z) { return x + y + z + w } return f(1)",
                &["w"],
            ),
            ("try { f() } catch { g() }", &["f", "g"]),
            ("try { f() } catch ({ message }) { return message }", &["f"]),
            (
                "class A extends B { #p = 1; q = 2; static r() { return s } } return new A()",
                &["B", "s"],
            ),
            ("outer: for (;;) { for (;;) break outer }", &[]),
            ("switch (x) { case y: return z; default: return 0 }", &["x", "y", "z"]),
            ("a / b / c + /d/.test(e)", &["a", "b", "c", "e"]),
            ("x\n// y\n/* z */ + 'w' + \"v\"", &["x"]),
            ("async (x) => { for await (const y of x) await g(y) }", &["g"]),
            ("import('fs')", &["import"]),
            ("x ? y : z", &["x", "y", "z"]),
            ("f(a, b ? c : d)", &["f", "a", "b", "c", "d"]),
            ("a?.b ?? c", &["a", "c"]),
            ("1e5 + 0xff + 10n + 1.5.toFixed(n) + .5", &["n"]),
            ("variables.a + nodes['b'].c", &["variables", "nodes"]),
            ("new Foo(new.target)", &["Foo"]),
            ("变量.长度", &["变量"]),
        ] {
            assert_eq!(free(source), expected, "{source}");
        }
    }

    #[test]
    fn a_name_that_may_be_declared_is_not_free() {
        for source in [
            "typeof a === 'undefined' ? 1 : a",
            "typeof (a) == 'x'",
            "globalThis.a = 1; return a",
            "var [a, { b, c: [d] }] = 1; return [a, b, d]",
            "const o = { get a() { return 1 }, set a(v) {}, async *b(x) { yield x } }; return o",
            "const f = async x => x, g = (y, z = y) => z; return f(g())",
            "L: { break L }",
            "if (1) { let q = 2 } return q",
            "x => ({ y: x })",
            "return await (async () => 3)()",
        ] {
            assert_eq!(free(source), [""; 0], "{source}");
        }
    }

    #[test]
    fn ambiguous_or_invalid_source_has_no_free_names() {
        for source in ["{} /a/ b", "a <!-- b", "a\n--> b", "\\u0061", "'a", "`${", "f(", ")"] {
            assert_eq!(free(source), [""; 0], "{source}");
        }
    }

    #[test]
    fn a_free_name_has_a_location_and_an_assignment_flag() {
        let names = free_names("const a = 1;\ntotal = a;\nn += 1; b == c");
        let told: Vec<_> = names.iter().map(|free| (&*free.name, free.is_assigned)).collect();
        assert_eq!(told, [("total", true), ("n", true), ("b", false), ("c", false)]);
        assert_eq!(names[0].at, 13..18);
    }

    proptest::proptest! {
        /// Nested declarations around uses, in many notations: a name that is used and not declared is free.
        #[test]
        fn declared_names_are_never_free(
            names in proptest::collection::vec("[a-e]", 1..12),
            forms in proptest::collection::vec(0..8_usize, 12),
        ) {
            let mut source = String::new();
            let mut declared = BTreeSet::new();
            for (name, form) in names.iter().zip(&forms) {
                let n = declared.len();
                let piece = match form {
                    0 => format!("let {name}_{n} = {name};\n"),
                    1 => format!("const {{ x: {name}_{n} }} = {name}, y_{n} = [{name}]\n"),
                    2 => format!("function {name}_{n}(q) {{ return {name}(q) }}\n"),
                    3 => format!("const {name}_{n} = (q, [r]) => `${{q}}${{{name}}}`;\n"),
                    4 => format!("for (const {name}_{n} of {name}) {{ {name}_{n}.f = /{name}/ }}\n"),
                    5 => format!("try {{ {name} }} catch ({name}_{n}) {{ {name}_{n} }}\n"),
                    6 => format!("class {name}_{n} {{ m(q) {{ return q + {name} }} }}\n"),
                    _ => format!("var {name}_{n} = {{ {name}: 1, m() {{ return {name} }} }}\n"),
                };
                source.push_str(&piece);
                declared.insert(format!("{name}_{n}"));
            }
            let used: BTreeSet<&str> = names.iter().map(String::as_str).collect();
            let found = free(&source);
            proptest::prop_assert!(found.iter().all(|name| used.contains(name.as_str())), "{found:?} in {source}");
        }
    }
}
