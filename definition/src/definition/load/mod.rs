//! Loader: converts text to definitions and accepts aliases and legacy forms.
//!
//! 1. All faults of a text are reported at once, each at its position in the user's own text.
//! 2. The readable parts are returned even if other parts have faults, so that [`crate::graph`] can add its own faults. It gets
//!    the list of missing parts and does not report consequences of them.
//! 3. No text makes the loader panic or recurse without bound.
//!
//! Not here: rules that need more than one part of a definition ([`crate::graph`]).

mod advice;
mod fork;
mod nearest;
mod node;
mod read;
mod script;
mod skills;
mod trigger;
mod workflow;

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

use self::read::Problem;
use super::fault::{Fault, FaultCode, MAX_FAULTS, bounded};
use super::json::{DuplicateKey, Json, MAX_DEFINITION_DEPTH, Member, Parsed, Tree, parse, too_deep_definition};
use super::origin::{LoadGaps, Located, Origin, Source, SourceFile};
use super::{Profile, TriggerDefinition, WorkflowDefinition};

pub use nearest::nearest;
pub(crate) use read::steps_of;
pub use script::script_files;
pub use skills::skill_folders;

/// Key under which a file names its JSON Schema, for editors.
pub(super) const SCHEMA_FIELD: &str = "$schema";

/// Definitions read from a text.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The readable workflows, in the text's order.
    pub workflows: Vec<Located<WorkflowDefinition>>,
    /// Triggers outside a workflow.
    pub triggers: Vec<Located<TriggerDefinition>>,
    /// Model profiles.
    pub profiles: Vec<Located<Profile>>,
    /// Ids of workflows that could not be read at all; empty if a workflow has no readable id. References to them are not reported as
    /// unknown.
    pub unreadable: Vec<String>,
    /// The faults.
    pub faults: Vec<Fault>,
    /// The warnings.
    pub warnings: Vec<Fault>,
}

impl Loaded {
    /// Reads several texts as one set.
    pub fn of<'a>(files: impl IntoIterator<Item = &'a SourceFile>) -> Self {
        let mut all = Self::default();
        for file in files {
            all.extend(load(file));
        }
        all
    }

    /// Adds the definitions of another text.
    pub fn extend(&mut self, other: Loaded) {
        self.workflows.extend(other.workflows);
        self.triggers.extend(other.triggers);
        self.profiles.extend(other.profiles);
        self.unreadable.extend(other.unreadable);
        self.faults.extend(other.faults);
        self.warnings.extend(other.warnings);
    }
}

/// Reads a text: one workflow, one trigger, a list of workflows, or a bundle `{workflows[], triggers[], profiles[]}`. An object
/// may name its JSON Schema as `$schema`. A file whose name ends with `.js` is a script workflow.
///
/// ```
/// use pirn_definition::definition::{SourceFile, load};
/// let text = r#"{"id": "w", "nodes": [{"id": "s", "type": "start"}, {"id": "e", "type": "END"}],
///                "edges": [{"from": "s", "to": "e"}]}"#;
/// let loaded = load(&SourceFile::new("w.json", text));
/// assert!(loaded.faults.is_empty());
/// assert_eq!(loaded.workflows[0].value.nodes.len(), 2);
/// ```
pub fn load(file: &SourceFile) -> Loaded {
    let source = Source::of(file);
    let mut loader = Loader {
        source,
        out: Loaded::default(),
        reported: BTreeSet::new(),
        gaps: BTreeSet::new(),
        repeated: BTreeSet::new(),
    };
    if script::is_script(&file.name) {
        script::load(&mut loader, file);
        return loader.out;
    }
    match parse(&file.text) {
        Ok(Parsed { root, duplicates }) => {
            for DuplicateKey { key, first, other } in duplicates.into_iter().take(MAX_FAULTS + 1) {
                let message = format!("the key `{key}` appears twice in this object");
                let fault = loader.source.fault(FaultCode::DuplicateField, first, other, message);
                loader.out.faults.push(fault);
                loader.repeated.insert(first.start);
            }
            loader.root(root);
        }
        Err(error) => {
            let fault = loader.source.fault(error.code, error.span, error.span, error.message);
            let advice = Some(error.code)
                .filter(|code| *code == FaultCode::InvalidJson)
                .and_then(|_| advice::of_text(&file.name, &file.text));
            loader.out.faults.push(match advice {
                Some(advice) => fault.with_help(advice),
                None => fault,
            });
        }
    }
    let by_place = |fault: &Fault| fault.position.map(|position| position.offset);
    loader.out.faults.sort_by_key(by_place);
    loader.out.warnings.sort_by_key(by_place);
    bounded(&mut loader.out.faults, "faults");
    bounded(&mut loader.out.warnings, "warnings");
    loader.out
}

/// Reads a trigger in any accepted form: `{id, name?, type: "EVENT", condition, action, ...}`.
///
/// ```
/// use pirn_definition::definition::TriggerDefinition;
/// let text = r#"{"id": "t", "type": "EVENT", "condition": {"eventType": "NODE_FAILED"}, "action": {"type": "stop_thread"}}"#;
/// assert_eq!(text.parse::<TriggerDefinition>().map(|trigger| trigger.id), Ok("t".to_owned()));
/// let wrong = r#"{"id": "t", "condition": {"eventType": "NODE_FAILD"}, "action": {"type": "stop_thread"}}"#;
/// assert_eq!(wrong.parse::<TriggerDefinition>().unwrap_err()[0].help.as_deref(), Some("did you mean `NODE_FAILED`?"));
/// ```
impl FromStr for TriggerDefinition {
    type Err = Vec<Fault>;

    fn from_str(text: &str) -> Result<Self, Vec<Fault>> {
        let file = SourceFile::new("trigger", text);
        let loaded = load(&file);
        match loaded.triggers.into_iter().next() {
            Some(trigger) if loaded.faults.is_empty() => Ok(trigger.value),
            _ if !loaded.faults.is_empty() => Err(loaded.faults),
            _ => Err(vec![file.fault_at(FaultCode::InvalidValue, "", "expected a trigger")]),
        }
    }
}

/// Reads a workflow in any accepted form. [`crate::graph`] checks that it is a valid graph.
///
/// ```
/// use pirn_definition::definition::WorkflowDefinition;
/// let text = r#"{"id": "w", "nodes": [{"id": "s", "type": "start"}, {"id": "e", "type": "END"}],
///                "edges": [{"from": "s", "to": "e"}]}"#;
/// assert_eq!(text.parse::<WorkflowDefinition>().map(|workflow| workflow.nodes.len()), Ok(2));
/// ```
impl FromStr for WorkflowDefinition {
    type Err = Vec<Fault>;

    fn from_str(text: &str) -> Result<Self, Vec<Fault>> {
        let file = SourceFile::new("workflow", text);
        let loaded = load(&file);
        let is_one = loaded.workflows.len() == 1 && loaded.triggers.is_empty() && loaded.profiles.is_empty();
        match loaded.workflows.into_iter().next() {
            Some(workflow) if loaded.faults.is_empty() && is_one => Ok(workflow.value),
            _ if !loaded.faults.is_empty() => Err(loaded.faults),
            _ => Err(vec![file.fault_at(
                FaultCode::InvalidValue,
                "",
                "expected one workflow",
            )]),
        }
    }
}

/// State of reading one text.
struct Loader {
    source: Arc<Source>,
    out: Loaded,
    /// Fields that have another fault than being absent: the start of their object, and the field.
    reported: BTreeSet<(u32, &'static str)>,
    /// Starts of the objects and lists of the current definition that lost a part with a fault.
    gaps: BTreeSet<u32>,
    /// Starts of the keys that appear again in their object. The value that was meant is unknown.
    repeated: BTreeSet<u32>,
}

impl Loader {
    /// True if one of these keys appears twice in the object.
    fn is_repeated(&self, tree: &Tree, keys: &[&str]) -> bool {
        // The set of most files is empty.
        let is_one = |member: &Member| keys.contains(&&*member.key) && self.repeated.contains(&member.key_span.start);
        !self.repeated.is_empty() && tree.members().iter().any(is_one)
    }

    /// True if the maximum number of faults is reached. Without the bound, a file full of faults would be in memory twice.
    fn is_full(&self) -> bool {
        self.out.faults.len() > MAX_FAULTS
    }

    fn root(&mut self, mut root: Tree) {
        // The field is used by editors only.
        root.take(SCHEMA_FIELD);
        match root.value {
            Json::List(items) => {
                for item in items {
                    if self.is_full() {
                        break;
                    }
                    self.definition(item);
                }
            }
            Json::Object(_) if is_bundle(&root) => self.bundle(root),
            Json::Object(_) => self.definition(root),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) => {
                let message = format!(
                    "expected a workflow, a trigger, a list or a bundle, found {}",
                    root.kind()
                );
                self.fault_in(FaultCode::InvalidValue, &root, message);
            }
        }
    }

    fn bundle(&mut self, mut root: Tree) {
        if self.is_repeated(&root, &["workflows"]) {
            self.out.unreadable.push(String::new());
        }
        for (key, read) in [
            ("workflows", Self::workflow as fn(&mut Self, Tree)),
            ("triggers", Self::trigger),
            ("profiles", Self::profile),
        ] {
            let Some(member) = root.take(key) else { continue };
            match member.value.value {
                Json::List(items) => {
                    for item in items {
                        if self.is_full() {
                            break;
                        }
                        self.shallow(item, read);
                    }
                }
                Json::Null => {}
                Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::Object(_) => {
                    let message = format!("`{key}`: expected a list, found {}", member.value.kind());
                    self.fault_in(FaultCode::InvalidValue, &member.value, message);
                }
            }
        }
        self.read::<NoOtherLists>(&mut root, &[]);
    }

    /// Reads a definition without a list or key around it: its fields determine its type.
    fn definition(&mut self, tree: Tree) {
        let has = |key: &str| tree.get(key).is_some();
        let read = if has("nodes") || has("edges") {
            Self::workflow
        } else if has("condition") || has("action") {
            Self::trigger
        } else if has("provider") {
            Self::profile
        } else {
            Self::workflow
        };
        self.shallow(tree, read);
    }

    /// Reads a definition that is not nested too deeply.
    fn shallow(&mut self, tree: Tree, read: fn(&mut Self, Tree)) {
        match tree.deeper_than(MAX_DEFINITION_DEPTH) {
            None => read(self, tree),
            Some(part) => {
                let fault = self
                    .source
                    .fault_in(FaultCode::LimitExceeded, part, too_deep_definition());
                self.out
                    .faults
                    .push(fault.with_help("read such data from an input, a file or a tool instead"));
            }
        }
    }

    fn workflow(&mut self, tree: Tree) {
        workflow::read_workflow(self, tree);
    }

    fn trigger(&mut self, mut tree: Tree) {
        if let Some(value) = trigger::read_trigger(self, &mut tree) {
            let gaps = LoadGaps {
                incomplete: std::mem::take(&mut self.gaps),
                ..LoadGaps::default()
            };
            let origin = Origin::new(&self.source, tree, gaps);
            self.out.triggers.push(Located { value, origin });
        }
    }

    fn profile(&mut self, mut tree: Tree) {
        if let Some(member) = tree.member("apiKey") {
            let message = "a profile must not contain the key itself";
            let fault = self
                .source
                .fault(FaultCode::UnknownField, member.key_span, member.key_span, message);
            self.out
                .faults
                .push(fault.with_help("store it in an environment variable and name the variable in `apiKeyEnv`"));
        }
        let Some(known) = self.read::<KnownProfile>(&mut tree, &["profiles"]) else {
            return;
        };
        let mut rest = tree.clone();
        if let Some(members) = rest.members_mut() {
            members.retain(|member| !PROFILE_FIELDS.contains(&member.key.as_str()));
        }
        let Some(rest) = self.read::<Map<String, Value>>(&mut rest, &[]) else {
            return;
        };
        let value = Profile {
            id: known.id,
            provider: known.provider,
            model: known.model,
            endpoint: known.endpoint,
            api_key_env: known.api_key_env,
            parameters: known.parameters,
            token_limit: known.token_limit,
            tokenizer: known.tokenizer,
            rest,
        };
        let origin = Origin::new(&self.source, tree, LoadGaps::default());
        self.out.profiles.push(Located { value, origin });
    }

    /// Reads a `T` and reports mismatches. `parents` are the keys that lead to it.
    fn read<T: DeserializeOwned>(&mut self, tree: &mut Tree, pointer: &[&str]) -> Option<T> {
        let result = read::read::<T>(tree);
        self.gaps.extend(result.incomplete);
        self.report(&result.problems, pointer);
        result.value
    }

    /// Reports problems; a misspelt field is not also reported as missing.
    fn report(&mut self, problems: &[Problem], pointer: &[&str]) {
        for problem in problems {
            if self.is_full() {
                return;
            }
            let echo = problem
                .missing()
                .is_some_and(|missing| self.reported.contains(&missing));
            self.reported.extend(problem.meant());
            self.gaps.extend(problem.meant().map(|(object, _)| object));
            if !echo {
                self.out.faults.push(problem.fault(&self.source, pointer));
            }
        }
    }

    fn fault_in(&mut self, code: FaultCode, tree: &Tree, message: impl Into<String>) {
        let fault = self.source.fault_in(code, tree, message);
        self.out.faults.push(fault);
    }

    fn warn_in(&mut self, code: FaultCode, tree: &Tree, message: impl Into<String>) {
        if self.out.warnings.len() > MAX_FAULTS {
            return;
        }
        let fault = self.source.fault_in(code, tree, message);
        self.out.warnings.push(fault);
    }
}

/// A bundle without its lists.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoOtherLists {
    #[serde(rename = "workflows")]
    _workflows: Option<IgnoredAny>,
    #[serde(rename = "triggers")]
    _triggers: Option<IgnoredAny>,
    #[serde(rename = "profiles")]
    _profiles: Option<IgnoredAny>,
}

fn is_bundle(root: &Tree) -> bool {
    let has = |key: &str| root.get(key).is_some();
    !has("nodes") && !has("action") && (has("workflows") || has("triggers") || has("profiles"))
}

/// Fields of a profile that all providers share.
const PROFILE_FIELDS: &[&str] = &[
    "id",
    "provider",
    "model",
    "endpoint",
    "apiKeyEnv",
    "parameters",
    "tokenLimit",
    "tokenizer",
];

/// [`Profile`] without the fields that only its provider defines.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KnownProfile {
    id: String,
    provider: String,
    model: Option<String>,
    endpoint: Option<String>,
    api_key_env: Option<String>,
    parameters: Option<Map<String, Value>>,
    token_limit: Option<u64>,
    tokenizer: Option<String>,
}
