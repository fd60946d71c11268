//! Workflow files, loaded and checked once: for a program that says what is wrong with them, and for the engine that then
//! runs them without reading them again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pirn_core::analysis::analyse;
use pirn_core::definition::{ContextOperation, FaultCode, Loaded, NodeConfig, nearest};
pub use pirn_core::definition::{Fault, SourceFile};
use pirn_core::graph::{CompileContext, Compiled, Graph, compile_loaded};

use crate::config::{ConfigText, profile_faults, profile_warnings};
use crate::script::TextSyntax;

/// The world that files are checked in.
///
/// ```
/// use pirn::check::{SourceFile, World, check};
/// let file = SourceFile::new("greet.json", r#"{"id": "greet", "nodes": [{"id": "start", "type": "STRAT"}], "edges": []}"#);
/// let checked = check(&[file], &World::default());
/// let fault = &checked.faults()[0];
/// assert_eq!((fault.code.as_str(), &*fault.pointer), ("INVALID_VALUE", "/nodes/0/type"));
/// assert_eq!(fault.help.as_deref(), Some("did you mean `START`?"));
/// ```
#[derive(Clone, Copy, Default)]
pub struct World<'a> {
    /// The config file beside the workflows: its profiles and tools are known, and what is wrong with the profiles is a
    /// fault. Absent: tools are not known, any name passes, and neither are profiles where the files define none.
    pub config: Option<&'a ConfigText>,
    /// The registered functions. Absent: not known, any name passes.
    pub functions: Option<&'a BTreeSet<String>>,
}

/// Files that were checked as one set. Clones share it.
#[derive(Clone, Debug)]
pub struct Checked(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    loaded: Loaded,
    compiled: Compiled,
}

/// Checks files as one set. Every fault and warning is reported, in the order of the files and of the places in them.
pub fn check(files: &[SourceFile], world: &World<'_>) -> Checked {
    let loaded = Loaded::of(files);
    let from_config = world
        .config
        .and_then(|config| config.profiles().ok())
        .unwrap_or_default();
    let in_files = loaded.profiles.iter().map(|profile| profile.value.id.clone());
    let built_in = ["echo", "extractive"].map(str::to_owned);
    let profiles: BTreeSet<String> = in_files
        .chain(built_in)
        .chain(from_config.into_iter().map(|profile| profile.id))
        .collect();
    let has_profiles = world.config.is_some() || !loaded.profiles.is_empty();
    let tools = tools_of(world.config);
    let syntax = TextSyntax::default();
    let context = CompileContext {
        syntax: &syntax,
        functions: world.functions,
        profiles: has_profiles.then_some(&profiles),
        tools: tools.as_ref(),
        first_uid: next_uids(loaded.workflows.len()),
        ..CompileContext::default()
    };
    let mut compiled = compile_loaded(&loaded, &context);
    let wrong = profile_faults(&loaded, world.config);
    compiled.warnings.extend(analyse(&loaded, &compiled).warnings);
    compiled.warnings.extend(unknown_names(&loaded));
    if !has_profiles {
        compiled.warnings.extend(unconfigured_profiles(&loaded, &profiles));
    }
    compiled.warnings.extend(missing_programs(world.config));
    compiled.warnings.extend(profile_warnings(&loaded, world.config));
    if !wrong.is_empty() {
        // Which profiles there are is not known before they are right.
        compiled.faults.retain(|fault| fault.code != FaultCode::UnknownProfile);
        compiled.faults.extend(wrong);
    }
    let by_place = |fault: &Fault| {
        let file = fault
            .file
            .as_ref()
            .and_then(|name| files.iter().position(|file| file.name == *name));
        (file, fault.position.map(|position| position.offset))
    };
    compiled.faults.sort_by_key(by_place);
    compiled.warnings.sort_by_key(by_place);
    Checked(Arc::new(Parts { loaded, compiled }))
}

/// Names that a run would pass over in silence: strategies of compressions and tokenizers that nobody knows.
pub fn unknown_names(loaded: &Loaded) -> Vec<Fault> {
    let mut found = Vec::new();
    for workflow in &loaded.workflows {
        let mut warn = |code, pointer: &str, message: String, help: Option<String>| {
            let fault = workflow.origin.fault_at(code, pointer, message);
            found.push(match help {
                Some(help) => fault.with_help(help),
                None => fault,
            });
        };
        let config = &workflow.value.config;
        if let Some(name) = &config.tokenizer
            && !crate::tokens::is_known(name)
        {
            let (message, help) = crate::tokens::unknown(name);
            warn(FaultCode::UnknownTokenizer, "/config/tokenizer", message, Some(help));
        }
        let in_nodes = workflow
            .value
            .nodes
            .iter()
            .enumerate()
            .filter_map(|(place, node)| match &node.config {
                NodeConfig::ContextProcessor(ContextOperation::Compress(compress)) => {
                    Some((format!("/nodes/{place}/config/strategy"), compress))
                }
                _other => None,
            });
        let own = config
            .compression
            .as_ref()
            .map(|compress| ("/config/compression/strategy".to_owned(), compress));
        for (pointer, compress) in own.into_iter().chain(in_nodes) {
            let Some(name) = &compress.strategy else { continue };
            if !STRATEGIES.contains(&name.as_str()) {
                let near = nearest(name, STRATEGIES.iter().copied());
                let message = format!("unknown strategy `{name}`: nothing is compressed");
                let help = near.map_or_else(
                    || format!("there are {}", STRATEGIES.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                warn(FaultCode::UnknownStrategy, &pointer, message, Some(help));
            }
        }
    }
    found
}

/// The profiles that nodes name where none is configured: the config may still be to come, and without one their calls fail.
fn unconfigured_profiles(loaded: &Loaded, built_in: &BTreeSet<String>) -> Vec<Fault> {
    let mut found = Vec::new();
    for workflow in &loaded.workflows {
        for (place, node) in workflow.value.nodes.iter().enumerate() {
            let NodeConfig::Llm(llm) = &node.config else { continue };
            if let Some(id) = llm.profile_id.as_ref().filter(|id| !built_in.contains(*id)) {
                let message = format!("no profile is configured: calls of `{id}` fail until a config defines it");
                let pointer = format!("/nodes/{place}/config/profileId");
                found.push(workflow.origin.fault_at(FaultCode::UnknownProfile, &pointer, message));
            }
        }
    }
    found
}

/// The built-in compression strategies.
const STRATEGIES: [&str; 4] = ["keep_recent", "keep_system_recent", "sliding_window", "summarize"];

#[cfg(feature = "tools")]
fn tools_of(config: Option<&ConfigText>) -> Option<BTreeSet<String>> {
    Some(config?.tools().ok()?.names())
}

#[cfg(not(feature = "tools"))]
fn tools_of(_: Option<&ConfigText>) -> Option<BTreeSet<String>> {
    None
}

/// The programs of tools and MCP servers that this machine does not have: a call of one fails.
#[cfg(feature = "tools")]
fn missing_programs(config: Option<&ConfigText>) -> Vec<Fault> {
    config.map_or_else(Vec::new, ConfigText::missing_programs)
}

#[cfg(not(feature = "tools"))]
fn missing_programs(_: Option<&ConfigText>) -> Vec<Fault> {
    Vec::new()
}

impl Checked {
    /// What is wrong; none: the files can be run.
    pub fn faults(&self) -> &[Fault] {
        &self.0.compiled.faults
    }

    /// What works but deserves a word.
    pub fn warnings(&self) -> &[Fault] {
        &self.0.compiled.warnings
    }

    /// What the files say, also where some of it is wrong.
    pub fn loaded(&self) -> &Loaded {
        &self.0.loaded
    }

    /// The compiled workflows, in the order of the files; none where anything is wrong.
    pub fn graphs(&self) -> &[Arc<Graph>] {
        &self.0.compiled.graphs
    }

    /// What the files say, compiled.
    pub fn compiled(&self) -> &Compiled {
        &self.0.compiled
    }
}

/// The first of `count` graph numbers that no other graph of the process has.
pub(crate) fn next_uids(count: usize) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(count as u64 + 1, Ordering::Relaxed)
}
