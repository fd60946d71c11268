//! Names that a JavaScript source can reach, found without parsing it.
//!
//! The result may contain too many names (words in strings and comments, local variables), never too few: these names are passed
//! to the script, which reads the ones it uses.

use std::collections::BTreeSet;
use std::sync::Arc;

/// JavaScript globals that a script can use, sorted. All other globals of an engine are removed: clocks, random numbers,
/// compilers, and objects that reveal garbage collection.
pub const JS_GLOBALS: &[&str] = &[
    "AggregateError",
    "Array",
    "ArrayBuffer",
    "BigInt",
    "BigInt64Array",
    "BigUint64Array",
    "Boolean",
    "DataView",
    "Date",
    "Error",
    "EvalError",
    "Float32Array",
    "Float64Array",
    "Infinity",
    "Int16Array",
    "Int32Array",
    "Int8Array",
    "Iterator",
    "JSON",
    "Map",
    "Math",
    "NaN",
    "Number",
    "Object",
    "Promise",
    "RangeError",
    "ReferenceError",
    "Reflect",
    "RegExp",
    "Set",
    "String",
    "Symbol",
    "SyntaxError",
    "TypeError",
    "URIError",
    "Uint16Array",
    "Uint32Array",
    "Uint8Array",
    "Uint8ClampedArray",
    "WeakMap",
    "WeakSet",
    "atob",
    "btoa",
    "console",
    "decodeURI",
    "decodeURIComponent",
    "encodeURI",
    "encodeURIComponent",
    "escape",
    "globalThis",
    "isFinite",
    "isNaN",
    "parseFloat",
    "parseInt",
    "undefined",
    "unescape",
];

/// Words that are never names, sorted.
const RESERVED: &[&str] = &[
    "arguments",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "eval",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "new",
    "null",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "undefined",
    "var",
    "void",
    "while",
    "with",
    "yield",
];

/// True if `word` is reserved in strict JavaScript (or bound by every function, such as `arguments`).
pub fn is_reserved(word: &str) -> bool {
    RESERVED.binary_search(&word).is_ok()
}

/// True if `name` is a JavaScript global that scripts can use.
pub(super) fn is_global(name: &str) -> bool {
    JS_GLOBALS.binary_search(&name).is_ok()
}

/// True if an identifier can start with `c`.
pub(super) fn begins_name(c: char) -> bool {
    c == '_' || c == '$' || c.is_alphabetic()
}

/// True if an identifier can contain `c` after its first character.
pub(super) fn continues_name(c: char) -> bool {
    // JavaScript reads U+FEFF as white space, and Rust does not.
    let is_space = c.is_whitespace() || c == '\u{feff}';
    begins_name(c) || c.is_alphanumeric() || c == '\u{200c}' || c == '\u{200d}' || (!c.is_ascii() && !is_space)
}

/// True if a variable can have this name: an identifier that is not reserved, or one with hyphens, as the paths of templates have.
/// Expressions cannot contain the name `__proto__`.
pub(crate) fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    let begins = letters.next().is_some_and(begins_name);
    begins && letters.all(|c| c == '-' || continues_name(c)) && !is_reserved(name) && name != "__proto__"
}

/// Names that a JavaScript source can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    bare: BTreeSet<Arc<str>>,
    variables: Used,
    nodes: Used,
}

/// Members of `variables` or `nodes` that a source uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Used {
    /// Members that the source names.
    These(BTreeSet<Arc<str>>),
    /// Possibly all: the source uses the object as a whole or with a computed name.
    All,
}

impl Default for Used {
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl Names {
    /// Returns the names in `source`: `Names::of("a.b + variables.c")` has the bare names `a` and `variables`, and `c` among the
    /// variables. Linear in the length.
    pub fn of(source: &str) -> Self {
        let mut names = Self::default();
        let mut rest = source;
        let mut before = "";
        while let Some(c) = rest.chars().next() {
            if !continues_name(c) {
                rest = &rest[c.len_utf8()..];
                before = &source[..source.len() - rest.len()];
                continue;
            }
            let end = rest.find(|c| !continues_name(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let is_member = before.ends_with('.') && !before.ends_with("...");
            if begins_name(c) && !is_member && !is_reserved(word) {
                match word {
                    "variables" => names.variables.note(member_after(after)),
                    "nodes" => names.nodes.note(member_after(after)),
                    _ => {}
                }
                names.bare.insert(Arc::from(word));
            }
            rest = after;
            before = &source[..source.len() - rest.len()];
        }
        names
    }

    /// Returns the identifiers that are not members of another value: in order, each once.
    pub fn bare(&self) -> impl Iterator<Item = &Arc<str>> {
        self.bare.iter()
    }

    /// Returns the variables used as `variables.name`.
    pub fn variables(&self) -> &Used {
        &self.variables
    }

    /// Returns the nodes used as `nodes["id"]`.
    pub fn nodes(&self) -> &Used {
        &self.nodes
    }

    /// Adds the bare name `name`.
    pub fn add(&mut self, name: &Arc<str>) {
        self.bare.insert(name.clone());
    }

    /// Adds the variable `name`, as `variables.name`.
    pub fn add_variable(&mut self, name: &str) {
        self.variables.note(Some(name));
    }

    /// Adds the node `id`, as `nodes["id"]`.
    pub fn add_node(&mut self, id: &str) {
        self.nodes.note(Some(id));
    }
}

impl Used {
    fn note(&mut self, member: Option<&str>) {
        match (self, member) {
            (Self::These(names), Some(name)) => {
                names.insert(Arc::from(name));
            }
            (all, None) => *all = Self::All,
            (Self::All, Some(_)) => {}
        }
    }
}

/// Returns the member directly after an object's name: `.x`, `?.x`, `["x"]`, `['x']`. Any other access may be to any member.
pub(super) fn member_after(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('[') {
        let quote = quoted.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (name, end) = quoted[1..].split_once(quote)?;
        return (end.starts_with(']') && !name.contains('\\')).then_some(name);
    }
    let member = text.strip_prefix("?.").or_else(|| text.strip_prefix('.'))?;
    if !member.starts_with(begins_name) {
        return None;
    }
    let end = member.find(|c| !continues_name(c)).unwrap_or(member.len());
    // A `\` would start an escape sequence that is part of the name.
    (!member[end..].starts_with('\\')).then_some(&member[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(source: &str) -> Vec<String> {
        Names::of(source).bare().map(ToString::to_string).collect()
    }

    #[test]
    fn members_and_reserved_words_are_not_bare_names() {
        assert_eq!(bare("a.b.c ? typeof d : [...e, f?.g]"), ["a", "d", "e", "f"]);
        assert_eq!(bare("1e5 + 0xff + 10n + x1"), ["x1"]);
        assert_eq!(bare("变量.长度 > $x_1"), ["$x_1", "变量"]);
    }

    #[test]
    fn static_members_of_variables_and_nodes_are_collected() {
        let names = Names::of(r#"variables.a + variables?.b + variables["c d"] + nodes['x-y'].z"#);
        assert_eq!(names.variables(), &Used::These(["a", "b", "c d"].map(Arc::from).into()));
        assert_eq!(names.nodes(), &Used::These(["x-y"].map(Arc::from).into()));
    }

    #[test]
    fn any_other_use_of_variables_captures_all_of_them() {
        for source in [
            "variables",
            "variables[x]",
            "variables .a",
            "({...variables}).a",
            "variables?.[x]",
            "variables.\\u0061",
        ] {
            assert_eq!(Names::of(source).variables(), &Used::All, "{source}");
        }
        assert_eq!(Names::of("my.variables").variables(), &Used::default());
    }

    #[test]
    fn the_tables_are_sorted() {
        assert!(JS_GLOBALS.is_sorted());
        assert!(RESERVED.is_sorted());
    }
}
