//! Origin of a definition: its source text, and the position of each of its parts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::fault::{Fault, FaultCode, Position};
use super::json::{Json, Lines, Span, Step, Tree, parse, pointer_at, pointer_of, written_offset};
use crate::script::place::line_and_column;

/// Folders of skills by their name in a text: the text files of each by path, or the reason that it cannot be read.
pub type SkillFolders = BTreeMap<String, Result<BTreeMap<String, String>, Unreadable>>;

/// Script files by their path in a text: the text of each, or the reason that it cannot be read.
pub type ScriptFiles = BTreeMap<String, Result<String, Unreadable>>;

/// Reason that a file or folder that a text names cannot be read, one sentence with its path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// A source text and its name in messages.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The name as the user would write it.
    pub name: String,
    /// The JSON text.
    pub text: Arc<str>,
    skills: Arc<SkillFolders>,
    scripts: Arc<ScriptFiles>,
}

impl SourceFile {
    /// Creates a source file: `SourceFile::new("flow.json", text)`.
    pub fn new(name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
            skills: Arc::default(),
            scripts: Arc::default(),
        }
    }

    /// Adds the script files that the text names. The caller that read the text has read them too.
    #[must_use]
    pub fn with_scripts(self, scripts: Arc<ScriptFiles>) -> Self {
        Self { scripts, ..self }
    }

    /// Adds the folders of skills that the text names. The caller that read the text has read them too.
    #[must_use]
    pub fn with_skills(self, skills: Arc<SkillFolders>) -> Self {
        Self { skills, ..self }
    }

    /// Returns the folders of skills.
    pub fn skills(&self) -> &SkillFolders {
        &self.skills
    }

    /// Returns a fault of a JSON text at the value of `pointer`, or at its deepest ancestor that exists.
    pub fn fault_at(&self, code: FaultCode, pointer: &str, message: impl Into<String>) -> Fault {
        match parse(&self.text) {
            Ok(parsed) => Source::of(self).fault_in(code, parsed.root.deepest(&steps_of(pointer)), message),
            Err(_) => self.fault_in(code, pointer, 0..0, message),
        }
    }

    /// Returns a fault at these bytes of a text in any format.
    pub fn fault_in(&self, code: FaultCode, pointer: &str, bytes: Range<usize>, message: impl Into<String>) -> Fault {
        let (line, column) = Lines::of(&self.text).place(&self.text, bytes.start);
        Fault {
            code,
            message: message.into(),
            pointer: pointer.to_owned(),
            file: Some(self.name.clone()),
            position: Some(Position {
                line,
                column,
                offset: bytes.start,
                length: bytes.len(),
            }),
            help: None,
        }
    }
}

/// Returns the steps of a JSON pointer. A number is read as a list index.
fn steps_of(pointer: &str) -> Vec<Step> {
    let parts = pointer.split('/').skip(1);
    parts
        .map(|part| match part.parse() {
            Ok(place) => Step::Index(place),
            Err(_) => Step::Key(part.replace("~1", "/").replace("~0", "~")),
        })
        .collect()
}

/// Source of a definition; empty if the definition was built in code.
#[derive(Clone, Debug, Default)]
pub struct Origin(Option<Arc<Part>>);

#[derive(Debug)]
struct Part {
    source: Arc<Source>,
    /// The definition's part of the text, with canonical names and the user's spans.
    tree: Tree,
    holes: LoadGaps,
}

/// Parts of a definition that could not be read. Checks that would only report a consequence are skipped.
#[derive(Debug, Default)]
pub(crate) struct LoadGaps {
    /// The definition has a fault: no graph is built from it.
    pub(crate) faulty: bool,
    /// A node is missing.
    pub(crate) nodes: bool,
    /// A variable is missing.
    pub(crate) variables: bool,
    /// An edge, route, path or `onError` is missing.
    pub(crate) transitions: bool,
    /// Nodes with a placeholder as their config, ascending.
    pub(crate) placeholders: Vec<usize>,
    /// Starts of the objects and lists that lost a part whose fault is reported.
    pub(crate) incomplete: BTreeSet<u32>,
}

/// Value for a definition without missing parts.
static WHOLE: LoadGaps = LoadGaps {
    faulty: false,
    nodes: false,
    variables: false,
    transitions: false,
    placeholders: Vec::new(),
    incomplete: BTreeSet::new(),
};

impl Origin {
    pub(crate) fn new(source: &Arc<Source>, tree: Tree, holes: LoadGaps) -> Self {
        Self(Some(Arc::new(Part {
            source: Arc::clone(source),
            tree,
            holes,
        })))
    }

    /// The file's name.
    pub fn file(&self) -> Option<&str> {
        self.0.as_deref().map(|part| part.source.name.as_str())
    }

    pub(crate) fn holes(&self) -> &LoadGaps {
        self.0.as_deref().map_or(&WHOLE, |part| &part.holes)
    }

    /// Returns true if the part named by `steps`, or else its deepest ancestor that exists, lost a part whose fault is reported.
    pub(crate) fn is_incomplete(&self, steps: &[Step]) -> bool {
        let part = self.0.as_deref();
        part.is_some_and(|part| part.holes.incomplete.contains(&part.tree.deepest(steps).span.start))
    }

    /// Returns a fault at the part of the definition named by `pointer`, or at its deepest ancestor that exists.
    pub fn fault_at(&self, code: FaultCode, pointer: &str, message: impl Into<String>) -> Fault {
        self.fault(code, &steps_of(pointer), message)
    }

    /// Returns a fault at the part of the definition named by `steps`, or at its deepest ancestor that exists.
    pub(crate) fn fault(&self, code: FaultCode, steps: &[Step], message: impl Into<String>) -> Fault {
        match self.0.as_deref() {
            Some(part) => part.source.fault_in(code, part.tree.deepest(steps), message),
            None => Fault {
                code,
                message: message.into(),
                pointer: pointer_of(steps),
                file: None,
                position: None,
                help: None,
            },
        }
    }
}

impl Origin {
    /// Returns a fault within a string of the definition, at these bytes of the string named by `steps`. The position in the file
    /// accounts for escapes.
    pub(crate) fn fault_within(
        &self,
        code: FaultCode,
        steps: &[Step],
        at: &Range<usize>,
        message: impl Into<String>,
    ) -> Fault {
        match self.0.as_deref() {
            Some(part) => {
                let tree = part.tree.deepest(steps);
                let Some(shown) = part.source.within(tree, at) else {
                    // The string is the text of another file.
                    let (line, column) = line_and_column(tree.as_text().unwrap_or_default(), at.start);
                    let message = format!("{} (line {line}, column {column})", message.into());
                    return part.source.fault(code, tree.span, tree.span, message);
                };
                part.source.fault(code, tree.span, shown, message)
            }
            None => self.fault(code, steps, message),
        }
    }

    /// Returns a fault within a string: the first string at or below one of `pointers` in which `place` finds a byte range.
    pub fn fault_in_text(
        &self,
        code: FaultCode,
        pointers: &[String],
        place: &dyn Fn(&str) -> Option<Range<usize>>,
        message: impl Into<String>,
    ) -> Option<Fault> {
        let part = self.0.as_deref()?;
        let mut below = pointers.iter().map(|pointer| part.tree.deepest(&steps_of(pointer)));
        let (tree, at) = below.find_map(|tree| tree.find_in_text(place))?;
        let shown = part.source.within(tree, &at).unwrap_or(tree.span);
        Some(part.source.fault(code, tree.span, shown, message))
    }
}

/// A definition and its origin.
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// The definition.
    pub value: T,
    /// Origin of the value.
    pub origin: Origin,
}

impl<T> From<T> for Located<T> {
    fn from(value: T) -> Self {
        Self {
            value,
            origin: Origin::default(),
        }
    }
}

/// A text and its index of positions, built for the first fault.
#[derive(Debug)]
pub(crate) struct Source {
    name: String,
    text: Arc<str>,
    pub(crate) skills: Arc<SkillFolders>,
    pub(crate) scripts: Arc<ScriptFiles>,
    lines: OnceLock<Lines>,
    raw: OnceLock<Option<Tree>>,
}

impl Source {
    pub(crate) fn of(file: &SourceFile) -> Arc<Self> {
        Arc::new(Self {
            name: file.name.clone(),
            text: Arc::clone(&file.text),
            skills: Arc::clone(&file.skills),
            scripts: Arc::clone(&file.scripts),
            lines: OnceLock::new(),
            raw: OnceLock::new(),
        })
    }

    /// Returns a fault at a value. An object with an `id` is shown at the `id`, because its first line is often a lone brace.
    pub(crate) fn fault_in(&self, code: FaultCode, tree: &Tree, message: impl Into<String>) -> Fault {
        let shown = match &tree.value {
            Json::Object(_) => tree.get("id").unwrap_or(tree),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::List(_) => tree,
        };
        self.fault(code, tree.span, shown.span, message)
    }

    /// Returns the position in the file of these bytes of a string.
    fn within(&self, tree: &Tree, at: &Range<usize>) -> Option<Span> {
        let text = tree.as_text()?;
        // The code of a script file is the file itself, not a JSON string in it.
        if tree.span.end as usize == self.text.len() && *text == *self.text {
            let (start, end) = (at.start.min(text.len()) as u32, at.end.min(text.len()) as u32);
            return Some(Span {
                start,
                end: end.max(start + 1),
            });
        }
        let written = self.text.get(tree.span.start as usize + 1..tree.span.end as usize)?;
        let place = |offset| Some(tree.span.start + 1 + written_offset(written, text, offset)? as u32);
        let start = place(at.start.min(text.len()))?;
        let end = place(at.end.min(text.len()))?;
        Some(Span {
            start,
            end: end.max(start + 1),
        })
    }

    /// Returns a fault with the pointer of the value at `at`, shown at `shown`.
    pub(crate) fn fault(&self, code: FaultCode, at: Span, shown: Span, message: impl Into<String>) -> Fault {
        let raw = self
            .raw
            .get_or_init(|| parse(&self.text).ok().map(|parsed| parsed.root));
        let lines = self.lines.get_or_init(|| Lines::of(&self.text));
        let (line, column) = lines.place(&self.text, shown.start as usize);
        Fault {
            code,
            message: message.into(),
            pointer: raw.as_ref().map(|root| pointer_at(root, at.start)).unwrap_or_default(),
            file: Some(self.name.clone()),
            position: Some(Position {
                line,
                column,
                offset: shown.start as usize,
                length: shown.end.saturating_sub(shown.start) as usize,
            }),
            help: None,
        }
    }
}
