//! Loads and checks workflow files once: for a program that reports their faults, and for an engine that then runs them without
//! reading them again.

pub(crate) mod budgets;
mod help;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pirn_definition::analysis::analyse;
use pirn_definition::definition::{ContextOperation, FaultCode, Loaded, NodeConfig, Profile, nearest};
pub use pirn_definition::definition::{Fault, SourceFile};
use pirn_definition::graph::{CompileContext, Compiled, Graph, compile_loaded};
use pirn_models::{ModelRegistry, ProfileFault};
use pirn_script::TextSyntax;
use serde_json::Value;

use crate::config::ConfigText;
use crate::profiles::ProfilesError;

/// Names and config against which files are checked.
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
    /// The config file of the workflows. References to its profiles and tools are checked, and faults of its profiles are reported.
    /// If absent, any tool name passes, and so does any profile name unless the files define profiles.
    pub config: Option<&'a ConfigText>,
    /// Registered functions. If absent, any name passes.
    pub functions: Option<&'a BTreeSet<String>>,
    /// Functions that scripts can call in addition to the built-in ones.
    pub script_functions: Option<&'a BTreeSet<String>>,
    /// Tokenizers that the program registers in addition to the built-in ones.
    pub tokenizers: Option<&'a BTreeSet<String>>,
}

/// Files that were checked as one set. Clones share it.
#[derive(Clone, Debug)]
pub struct CheckedFiles(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    loaded: Loaded,
    compiled: Compiled,
}

/// Checks files as one set. All faults and warnings are reported, ordered by file and location.
pub fn check(files: &[SourceFile], world: &World<'_>) -> CheckedFiles {
    let loaded = Loaded::of(files);
    // Invalid profiles are reported by `profile_faults`; the other checks run without them.
    let mut defined = world
        .config
        .and_then(|config| config.profiles().ok())
        .unwrap_or_default();
    defined.extend(loaded.profiles.iter().map(|profile| profile.value.clone()));
    // These two need no profile, so naming them is never a fault.
    let built_in = ["echo", "extractive"].map(str::to_owned);
    let ids = defined.iter().map(|profile| profile.id.clone());
    let profiles: BTreeSet<String> = ids.chain(built_in).collect();
    let has_profiles = world.config.is_some() || !loaded.profiles.is_empty();
    let tools = tools_of(world.config);
    let syntax = TextSyntax::default().with_functions(world.script_functions.into_iter().flatten().cloned());
    let context = CompileContext {
        syntax: &syntax,
        functions: world.functions,
        // Without any profile the check would report every name, although a config may follow. A warning is given instead.
        profiles: has_profiles.then_some(&profiles),
        tools: tools.as_ref(),
        first_uid: next_uids(loaded.workflows.len()),
        ..CompileContext::default()
    };
    let mut compiled = compile_loaded(&loaded, &context);
    compiled.faults.extend(unknown_sampling(world.config, &profiles));
    compiled.faults.extend(budget_faults(&loaded, world.config));
    compiled.faults.extend(schema_faults(&loaded));
    compiled.faults.extend(argument_faults(&loaded, world.config));
    compiled.faults.extend(unknown_tokenizers(&loaded, world.tokenizers));
    compiled
        .faults
        .extend(unknown_tokenizers_of_profiles(&loaded, world.config, world.tokenizers));
    let wrong = profile_faults(&loaded, world.config);
    // The analysis needs the compiled graphs.
    compiled.warnings.extend(analyse(&loaded, &compiled).warnings);
    compiled.warnings.extend(unknown_names(&loaded));
    if !has_profiles {
        compiled.warnings.extend(unconfigured_profiles(&loaded, &profiles));
    }
    compiled.warnings.extend(parameters_of_nodes(&loaded, &defined));
    compiled.warnings.extend(missing_programs(world.config));
    compiled.warnings.extend(profile_warnings(&loaded, world.config));
    if !wrong.is_empty() {
        // The set of profile ids is unknown until the profiles are valid.
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
    // The checks run one after the other, and a reader fixes a file from top to bottom. The sort is stable.
    compiled.faults.sort_by_key(by_place);
    compiled.warnings.sort_by_key(by_place);
    // After all checks, because a check may set a more specific help text.
    help::add(&mut compiled.faults);
    help::add(&mut compiled.warnings);
    CheckedFiles(Arc::new(Parts { loaded, compiled }))
}

/// Returns faults for compression strategies that are not built in: a run would silently compress nothing.
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
        let in_nodes = workflow
            .value
            .nodes
            .iter()
            .enumerate()
            .filter_map(|(place, node)| match &node.config {
                NodeConfig::ContextProcessor(ContextOperation::Compress(compress)) => {
                    Some((format!("/nodes/{place}/config/strategy"), compress))
                }
                // Only this operation compresses.
                _other => None,
            });
        let own = config
            .compression
            .as_ref()
            .map(|compress| ("/config/compression/strategy".to_owned(), compress));
        for (pointer, compress) in own.into_iter().chain(in_nodes) {
            // A node inherits the strategy of the workflow, so only the merged settings can be judged.
            let compress = compress.or_default(config.compression.as_ref());
            let Some(name) = &compress.strategy else {
                if pointer.starts_with("/config") {
                    // A workflow that a trigger starts may set a strategy in its node.
                    continue;
                }
                let message = "no strategy: nothing is compressed".to_owned();
                let help = format!(
                    "`strategy` here, or `config.compression.strategy`: {}",
                    STRATEGIES.join(", ")
                );
                warn(
                    FaultCode::UnknownStrategy,
                    pointer.trim_end_matches("/strategy"),
                    message,
                    Some(help),
                );
                continue;
            };
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

/// Returns faults for tokenizers in workflows that are neither built in nor registered by the program.
pub fn unknown_tokenizers(loaded: &Loaded, registered: Option<&BTreeSet<String>>) -> Vec<Fault> {
    let named = loaded
        .workflows
        .iter()
        .filter_map(|workflow| Some((workflow, workflow.value.config.tokenizer.as_ref()?)));
    let unknown = named.filter(|(_, name)| !is_tokenizer(name, registered));
    let fault = unknown.map(|(workflow, name)| {
        let (message, help) = pirn_models::tokens::unknown(name);
        let code = FaultCode::UnknownTokenizer;
        workflow
            .origin
            .fault_at(code, "/config/tokenizer", message)
            .with_help(help)
    });
    fault.collect()
}

fn is_tokenizer(name: &str, registered: Option<&BTreeSet<String>>) -> bool {
    pirn_models::tokens::is_known(name) || registered.is_some_and(|names| names.contains(name))
}

/// Returns unknown tokenizers in the profiles of these files and of the config.
fn unknown_tokenizers_of_profiles(
    loaded: &Loaded,
    config: Option<&ConfigText>,
    registered: Option<&BTreeSet<String>>,
) -> Vec<Fault> {
    let configured = config.and_then(|config| config.profiles().ok()).unwrap_or_default();
    let in_files = loaded.profiles.iter().map(|profile| profile.value.clone());
    let mut found = Vec::new();
    for profile in configured.into_iter().chain(in_files) {
        if let Some(name) = profile
            .tokenizer
            .as_ref()
            .filter(|name| !is_tokenizer(name, registered))
        {
            let (message, help) = pirn_models::tokens::unknown(name);
            let fault = ProfileFault::new(profile.id.as_str(), "/tokenizer", message);
            let code = FaultCode::UnknownTokenizer;
            found.push(
                Fault {
                    code,
                    ..located(&fault, loaded, config)
                }
                .with_help(help),
            );
        }
    }
    found
}

/// Returns faults for invalid JSON Schemas of inputs, replies and answers.
pub fn schema_faults(loaded: &Loaded) -> Vec<Fault> {
    let mut found = Vec::new();
    for workflow in &loaded.workflows {
        let mut check = |pointer: String, schema: &Value| {
            if let Some(message) = pirn_models::json_schema::schema_fault(schema) {
                found.push(workflow.origin.fault_at(FaultCode::InvalidSchema, &pointer, message));
            }
        };
        if let Some(schema) = &workflow.value.input_schema {
            check("/inputSchema".to_owned(), &Value::Object(schema.clone()));
        }
        for (place, node) in workflow.value.nodes.iter().enumerate() {
            match &node.config {
                NodeConfig::Llm(llm) => {
                    let schema = llm.response_format.as_ref().and_then(pirn_models::reply_schema);
                    if let Some(schema) = schema {
                        check(format!("/nodes/{place}/config/responseFormat"), &schema);
                    }
                }
                NodeConfig::UserInteraction(question) => {
                    if let Some(schema) = &question.schema {
                        check(format!("/nodes/{place}/config/schema"), &Value::Object(schema.clone()));
                    }
                }
                _other => {}
            }
        }
    }
    found
}

/// Returns faults for TOOL nodes without an argument that the config's tool requires.
#[cfg(feature = "tools")]
fn argument_faults(loaded: &Loaded, config: Option<&ConfigText>) -> Vec<Fault> {
    let Some(tools) = config.and_then(|config| config.tools().ok()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for workflow in &loaded.workflows {
        for (place, node) in workflow.value.nodes.iter().enumerate() {
            let NodeConfig::Tool(call) = &node.config else { continue };
            let Some(tool) = tools.tools.iter().find(|tool| tool.name == call.tool) else {
                continue;
            };
            let none = serde_json::Map::new();
            let given = match &call.arguments {
                None => &none,
                Some(Value::Object(given)) => given,
                // The value of an expression is determined at run time.
                Some(_) => continue,
            };
            let schema = &tool.input_schema;
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let required = required.filter_map(Value::as_str);
            for missing in required.filter(|name| !given.contains_key(*name)) {
                let properties = schema.get("properties").and_then(Value::as_object);
                let is_own = |name: &str| properties.is_some_and(|own| own.contains_key(name));
                let misspelt = given
                    .keys()
                    .filter(|name| !is_own(name))
                    .find(|name| nearest(name, std::iter::once(missing)).is_some());
                let at = format!("/nodes/{place}/config");
                let (pointer, help) = match misspelt {
                    Some(name) => (format!("{at}/arguments/{name}"), format!("did you mean `{missing}`?")),
                    None if call.arguments.is_some() => (format!("{at}/arguments"), format!("add `{missing}`")),
                    None => (at, format!("add `arguments` with `{missing}`")),
                };
                let message = format!("the tool `{}` needs the argument `{missing}`", tool.name);
                let fault = workflow.origin.fault_at(FaultCode::InvalidValue, &pointer, message);
                found.push(fault.with_help(help));
            }
        }
    }
    found
}

#[cfg(not(feature = "tools"))]
fn argument_faults(_: &Loaded, _: Option<&ConfigText>) -> Vec<Fault> {
    Vec::new()
}

/// Returns warnings about profiles named by nodes while none is configured: the config may follow later; without it their calls
/// fail.
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

/// Returns warnings about parameters of nodes that have no equivalent at their profiles' providers.
fn parameters_of_nodes(loaded: &Loaded, profiles: &[Profile]) -> Vec<Fault> {
    let default = profiles.iter().find(|profile| profile.id == "default");
    // The registry makes this choice too for a node without a profile.
    let default = default.or(profiles.first());
    let mut found = Vec::new();
    for workflow in &loaded.workflows {
        for (place, node) in workflow.value.nodes.iter().enumerate() {
            let NodeConfig::Llm(llm) = &node.config else { continue };
            let profile = match &llm.profile_id {
                Some(id) => profiles.iter().find(|profile| profile.id == *id),
                None => default,
            };
            // Parameters of the profile itself are checked by `profile_warnings`.
            let (Some(profile), Some(_)) = (profile, &llm.parameters) else {
                continue;
            };
            let asked = Profile {
                parameters: llm.parameters.clone(),
                ..profile.clone()
            };
            found.extend(pirn_models::warnings(&asked).into_iter().map(|warning| {
                let pointer = format!("/nodes/{place}/config{}", warning.pointer);
                let code = FaultCode::InvalidProfile;
                workflow.origin.fault_at(code, &pointer, warning.message)
            }));
        }
    }
    found
}

/// The built-in compression strategies.
const STRATEGIES: [&str; 6] = [
    "keep_recent",
    "keep_system_recent",
    "sliding_window",
    "summarize",
    "checklist",
    "clear_tool_results",
];

#[cfg(feature = "tools")]
fn tools_of(config: Option<&ConfigText>) -> Option<BTreeSet<String>> {
    Some(config?.tools().ok()?.names())
}

#[cfg(not(feature = "tools"))]
fn tools_of(_: Option<&ConfigText>) -> Option<BTreeSet<String>> {
    None
}

/// Returns faults for undefined profiles that MCP servers may call.
#[cfg(feature = "mcp")]
fn unknown_sampling(config: Option<&ConfigText>, profiles: &BTreeSet<String>) -> Vec<Fault> {
    config.map_or_else(Vec::new, |config| config.unknown_sampling(profiles))
}

#[cfg(not(feature = "mcp"))]
fn unknown_sampling(_: Option<&ConfigText>, _: &BTreeSet<String>) -> Vec<Fault> {
    Vec::new()
}

/// Returns warnings about programs of tools and MCP servers that are not found on this machine: calls of them fail.
#[cfg(feature = "tools")]
fn missing_programs(config: Option<&ConfigText>) -> Vec<Fault> {
    config.map_or_else(Vec::new, ConfigText::missing_programs)
}

#[cfg(not(feature = "tools"))]
fn missing_programs(_: Option<&ConfigText>) -> Vec<Fault> {
    Vec::new()
}

impl CheckedFiles {
    /// Returns the faults; without any, the files can be run.
    pub fn faults(&self) -> &[Fault] {
        &self.0.compiled.faults
    }

    /// Returns warnings: valid content that is probably a mistake.
    pub fn warnings(&self) -> &[Fault] {
        &self.0.compiled.warnings
    }

    /// Returns the warnings inside of each workflow by the workflow's id; the list of a workflow without any is empty.
    pub fn warnings_by_workflow(&self) -> BTreeMap<String, Vec<Fault>> {
        let mut found = BTreeMap::new();
        for workflow in &self.loaded().workflows {
            let whole = workflow.origin.fault_at(FaultCode::InvalidValue, "", "");
            let is_inside = |warning: &&Fault| {
                let inside = format!("{}/", whole.pointer);
                warning.file == whole.file && (warning.pointer == whole.pointer || warning.pointer.starts_with(&inside))
            };
            let warnings = self.warnings().iter().filter(is_inside).cloned().collect();
            found.insert(workflow.value.id.clone(), warnings);
        }
        found
    }

    /// Returns the parsed files, even if they have faults.
    pub fn loaded(&self) -> &Loaded {
        &self.0.loaded
    }

    /// Returns the compiled workflows in the order of the files, or an empty list if there are faults.
    pub fn graphs(&self) -> &[Arc<Graph>] {
        &self.0.compiled.graphs
    }

    /// Returns the result of compilation.
    pub fn compiled(&self) -> &Compiled {
        &self.0.compiled
    }
}

/// Reserves `count` consecutive graph numbers, unique in the process, and returns the first.
pub(crate) fn next_uids(count: usize) -> u64 {
    // One counter for the process, because graphs of a check may be registered in any engine.
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed, because only the uniqueness of the numbers matters.
    NEXT.fetch_add(count as u64 + 1, Ordering::Relaxed)
}

/// Returns all faults of the profiles of these files and of the config that would prevent an engine from being built, each with its
/// location. Uses no network and reads no keys. Only built-in providers are recognized: for a program with custom models,
/// [`EngineBuilder::build`](crate::EngineBuilder::build) checks the profiles.
pub fn profile_faults(loaded: &Loaded, config: Option<&ConfigText>) -> Vec<Fault> {
    let mut profiles = Vec::new();
    let mut wrong = Vec::new();
    match config.map(ConfigText::profiles) {
        Some(Ok(list)) => profiles = list,
        Some(Err(ProfilesError::Profiles { faults, .. })) => wrong = faults,
        // A section that is not a list of profiles is reported by the reader of the file.
        Some(Err(ProfilesError::File(_))) | None => {}
    }
    profiles.extend(loaded.profiles.iter().map(|profile| profile.value.clone()));
    // The registry needs valid profiles. Faults of the reader come first, as they may be the cause of others.
    if wrong.is_empty()
        && let Err(faults) = ModelRegistry::new(profiles)
    {
        wrong = faults;
    }
    // The loader has already reported a key in a file.
    let is_told = |fault: &ProfileFault| fault.pointer == "/apiKey" && !loaded.faults.is_empty();
    let told = wrong.iter().filter(|fault| !is_told(fault));
    told.map(|fault| located(fault, loaded, config)).collect()
}

/// Returns faults for model calls that draw on a budget and have no known upper bound of usage, given the profiles of these files
/// and of the config. Only built-in providers are known here, as in [`profile_faults`].
pub fn budget_faults(loaded: &Loaded, config: Option<&ConfigText>) -> Vec<Fault> {
    // Most files have no budget, and the registry below is only needed for one.
    if loaded
        .workflows
        .iter()
        .all(|workflow| workflow.value.config.budget.is_none())
    {
        return Vec::new();
    }
    let mut profiles = config.and_then(|config| config.profiles().ok()).unwrap_or_default();
    profiles.extend(loaded.profiles.iter().map(|profile| profile.value.clone()));
    // Faults of the profiles are reported elsewhere.
    ModelRegistry::new(profiles).map_or_else(|_| Vec::new(), |models| budgets::budget_faults(loaded, &models))
}

/// Returns warnings about parameters of profiles that have no equivalent at their providers, each with its location.
pub fn profile_warnings(loaded: &Loaded, config: Option<&ConfigText>) -> Vec<Fault> {
    let configured = config.and_then(|config| config.profiles().ok()).unwrap_or_default();
    let in_files = loaded.profiles.iter().map(|profile| profile.value.clone());
    let mut found = Vec::new();
    for profile in configured.into_iter().chain(in_files) {
        let warnings = pirn_models::warnings(&profile);
        found.extend(warnings.iter().map(|warning| located(warning, loaded, config)));
    }
    found
}

/// Locates faults of profiles at their profiles in the files.
pub(crate) fn located_all(faults: &[ProfileFault], loaded: &Loaded) -> Vec<Fault> {
    faults.iter().map(|fault| located(fault, loaded, None)).collect()
}

/// Locates a fault at its profile.
fn located(fault: &ProfileFault, loaded: &Loaded, config: Option<&ConfigText>) -> Fault {
    // From the end: of profiles with one id, the later one is the fault.
    let own = loaded.profiles.iter().rev().find(|one| one.value.id == fault.profile);
    let in_files = own.map(|one| {
        one.origin
            .fault_at(FaultCode::InvalidProfile, &fault.pointer, said(fault))
    });
    in_files.or_else(|| fault_in(config?, fault)).unwrap_or_else(|| Fault {
        code: FaultCode::InvalidProfile,
        message: said(fault),
        pointer: fault.pointer.clone(),
        file: None,
        position: None,
        help: None,
    })
}

fn said(fault: &ProfileFault) -> String {
    if fault.pointer.is_empty() {
        format!("profile `{}`: {}", fault.profile, fault.message)
    } else {
        fault.to_string()
    }
}

/// Returns the ids of a config's profiles in order, including invalid profiles, and the pointer to their list.
fn profile_ids(config: &ConfigText) -> (&'static str, Vec<Option<&str>>) {
    let (way, list) = match config.written() {
        Value::Array(list) => ("", Some(list)),
        other => ("/profiles", other.get("profiles").and_then(Value::as_array)),
    };
    let list = list.into_iter().flatten();
    (way, list.map(|one| one.get("id").and_then(Value::as_str)).collect())
}

/// Locates a profile's fault in a config, or returns `None` if the profile is not in that file.
fn fault_in(config: &ConfigText, fault: &ProfileFault) -> Option<Fault> {
    let (way, ids) = profile_ids(config);
    let by_place = || fault.profile.strip_prefix('#')?.parse::<usize>().ok();
    // The fault of a duplicate id is located at the last occurrence.
    let place = ids
        .iter()
        .rposition(|id| *id == Some(&*fault.profile))
        .or_else(by_place)?;
    let pointer = format!("{way}/{place}{}", fault.pointer);
    Some(config.fault(FaultCode::InvalidProfile, &pointer, &said(fault)))
}
