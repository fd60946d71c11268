//! Loads a node: its common fields, then its config by its type.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Loader;
use super::advice;
use super::nearest::nearest;
use super::read::{NODE_CONFIG, NoFields, problems};
use crate::definition::fault::FaultCode;
use crate::definition::json::{Json, Member, Tree};
use crate::definition::origin::LoadGaps;
use crate::definition::{
    CodeConfig, ContextOperation, ContinueFromTriggerConfig, EndConfig, ForkConfig, InDoubt, JoinConfig, JoinStrategy,
    LlmConfig, LoopEndConfig, LoopStartConfig, MapConfig, NodeConfig, NodeDefinition, OnError, RetryPolicy,
    RouteConfig, ScriptConfig, SubgraphConfig, ToolConfig, UserInteractionConfig, VariableConfig, WaitConfig,
};

/// Converts a node's type to upper case, and moves its config to `config`.
pub(super) fn normalise_node(loader: &mut Loader, node: &mut Tree) {
    if !node.is_object() {
        return;
    }
    if let Some(Json::Text(word)) = node.get_mut("type").map(|word| &mut word.value) {
        *word = word.replace('-', "_").to_uppercase();
    }
    let is_given = |member: &Member| !matches!(member.value.value, Json::Null);
    let names = |member: &Member| matches!(member.key.as_str(), "config" | "data") && is_given(member);
    let given: Vec<usize> = (0..)
        .zip(node.members())
        .filter(|(_, member)| names(member))
        .map(|(at, _)| at)
        .collect();
    if let [_, second] = given[..] {
        let member = &node.members()[second];
        let message = "`config` is given under two names; remove one";
        let fault = loader
            .source
            .fault(FaultCode::DuplicateField, member.key_span, member.key_span, message);
        loader.out.faults.push(fault);
    }
    let span = node.get("type").map_or(node.span, |word| word.span);
    let Some(members) = node.members_mut() else { return };
    let mut config = given.first().map(|first| members.swap_remove(*first));
    members.retain(|member| !matches!(member.key.as_str(), "config" | "data"));
    let mut config = config.take().unwrap_or_else(|| Member {
        key: String::new(),
        key_span: span,
        value: Tree::empty_object(span),
    });
    "config".clone_into(&mut config.key);
    members.push(config);
}

/// Reads a node in canonical form. `place` is its future index among the nodes.
pub(super) fn read_node(
    loader: &mut Loader,
    tree: &mut Tree,
    place: usize,
    holes: &mut LoadGaps,
) -> Option<NodeDefinition> {
    if !tree.is_object() {
        loader.fault_in(
            FaultCode::InvalidValue,
            tree,
            format!("expected a node, found {}", tree.kind()),
        );
        holes.nodes = true;
        return None;
    }
    holes.nodes |= loader.is_repeated(tree, &["id"]);
    holes.transitions |= loader.is_repeated(tree, &["onError"]);
    // The other fields of the node follow from its type.
    let is_unclear = loader.is_repeated(tree, &["type"]);
    let mut config = tree.take("config");
    let led_on = tree.get("onError").is_some();
    let has_type = tree.get("type").is_some_and(|word| !matches!(word.value, Json::Null));
    let frame = loader.read::<Frame>(tree, &["nodes"]);
    let word = frame.as_ref().and_then(|frame| frame.word.clone());
    holes.transitions |= led_on && tree.get("onError").is_none();
    let read = if is_unclear {
        None
    } else if let (Some(word), Some(config)) = (word, &mut config) {
        read_config(loader, tree, &word, &mut config.value, holes)
    } else {
        let echo = loader.reported.contains(&(tree.span.start, "type"));
        if frame.is_some() && !echo && !has_type {
            loader.fault_in(FaultCode::MissingField, tree, "`type` is missing");
        }
        None
    };
    if let (Some(config), Some(members)) = (config, tree.members_mut()) {
        members.push(config);
    }
    let (Some(frame), Some((config, whole))) = (frame, read) else {
        holes.nodes = true;
        return None;
    };
    if !whole {
        holes.placeholders.push(place);
    }
    Some(NodeDefinition {
        id: frame.id,
        name: frame.name,
        description: frame.description,
        config,
        retry: frame.retry,
        timeout_ms: frame.timeout_ms,
        on_error: frame.on_error,
        in_doubt: frame.in_doubt,
    })
}

/// A node without its config.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Frame {
    id: String,
    #[serde(rename = "type")]
    word: Option<String>,
    name: Option<String>,
    description: Option<String>,
    retry: Option<RetryPolicy>,
    timeout_ms: Option<u64>,
    on_error: Option<OnError>,
    in_doubt: Option<InDoubt>,
    #[serde(rename = "config", alias = "data")]
    _config: Option<IgnoredAny>,
}

/// Reads the config. If that fails, returns a placeholder and `false`, so that the node stays in the graph for later checks.
fn read_config(
    loader: &mut Loader,
    node: &Tree,
    word: &str,
    config: &mut Tree,
    holes: &mut LoadGaps,
) -> Option<(NodeConfig, bool)> {
    let before = loader.out.faults.len();
    let parents = NODE_CONFIG;
    let read = match word {
        "START" => loader.read::<NoFields>(config, parents).map(|_| NodeConfig::Start),
        "START_FROM_TRIGGER" => loader
            .read::<NoFields>(config, parents)
            .map(|_| NodeConfig::StartFromTrigger),
        "END" => loader.read::<EndConfig>(config, parents).map(NodeConfig::End),
        "VARIABLE" => loader.read::<VariableConfig>(config, parents).map(NodeConfig::Variable),
        "LLM" => loader.read::<LlmConfig>(config, parents).map(NodeConfig::Llm),
        "CODE" => loader.read::<CodeConfig>(config, parents).map(NodeConfig::Code),
        "SCRIPT" => loader.read::<ScriptConfig>(config, parents).map(NodeConfig::Script),
        "ROUTE" => loader.read::<RouteConfig>(config, parents).map(NodeConfig::Route),
        "FORK" => loader.read::<ForkConfig>(config, parents).map(NodeConfig::Fork),
        "JOIN" => read_join(loader, config).map(NodeConfig::Join),
        "SUBGRAPH" => loader.read::<SubgraphConfig>(config, parents).map(NodeConfig::Subgraph),
        "MAP" => loader.read::<MapConfig>(config, parents).map(NodeConfig::Map),
        "CONTEXT_PROCESSOR" => read_operation(loader, config).map(NodeConfig::ContextProcessor),
        "WAIT" => loader.read::<WaitConfig>(config, parents).map(NodeConfig::Wait),
        "TOOL" => loader.read::<ToolConfig>(config, parents).map(NodeConfig::Tool),
        "USER_INTERACTION" => loader
            .read::<UserInteractionConfig>(config, parents)
            .map(NodeConfig::UserInteraction),
        "LOOP_START" => loader
            .read::<LoopStartConfig>(config, parents)
            .map(NodeConfig::LoopStart),
        "LOOP_END" => loader.read::<LoopEndConfig>(config, parents).map(NodeConfig::LoopEnd),
        "CONTINUE_FROM_TRIGGER" => loader
            .read::<ContinueFromTriggerConfig>(config, parents)
            .map(NodeConfig::ContinueFromTrigger),
        other => {
            unknown_type(loader, node, other);
            return None;
        }
    };
    let faulty = loader.out.faults.len() > before;
    holes.transitions |= faulty
        && matches!(
            word,
            "ROUTE" | "FORK" | "JOIN" | "LOOP_START" | "LOOP_END" | "USER_INTERACTION"
        );
    match read {
        // A faulty field is absent here. A WAIT would then be reported as one without `seconds` and `event`.
        Some(read) => Some((read, !(faulty && word == "WAIT"))),
        None => placeholder(word).map(|config| (config, false)),
    }
}

fn unknown_type(loader: &mut Loader, node: &Tree, word: &str) {
    let place = node.get("type").unwrap_or(node);
    let fault = loader
        .source
        .fault_in(FaultCode::InvalidValue, place, format!("unknown node type `{word}`"));
    let known = || NodeConfig::TYPES.into_iter();
    let help = match advice::of_type(word).or_else(|| nearest(word, known())) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("node types: {}", known().collect::<Vec<_>>().join(", ")),
    };
    loader.out.faults.push(fault.with_help(help));
}

/// Reads a JOIN. A missing or unknown strategy is replaced by another one, so that other faults are found.
fn read_join(loader: &mut Loader, config: &mut Tree) -> Option<JoinConfig> {
    if !config.is_object() {
        return loader.read::<JoinConfig>(config, NODE_CONFIG);
    }
    let given = config.take("joinStrategy").map(|member| member.value);
    let span = given.as_ref().map_or(config.span, |word| word.span);
    let known = if let Some(word) = given {
        let found = problems::<JoinStrategy>(&word);
        let known = found.is_empty();
        let faults = found
            .into_iter()
            .map(|found| found.under("joinStrategy").fault(&loader.source, NODE_CONFIG));
        loader.out.faults.extend(faults);
        known.then_some(word)
    } else {
        if !loader.reported.contains(&(config.span.start, "joinStrategy")) {
            let fault = loader
                .source
                .fault_in(FaultCode::InvalidJoinStrategy, config, "`joinStrategy` is missing");
            loader.out.faults.push(fault.with_help(STRATEGIES));
        }
        None
    };
    let word = known.unwrap_or_else(|| Tree::text(span, "ALL_COMPLETED"));
    config.put("joinStrategy", word);
    loader.read::<JoinConfig>(config, NODE_CONFIG)
}

const STRATEGIES: &str = "one of ALL_COMPLETED, ANY_COMPLETED, ALL_FAILED, ANY_FAILED, SUCCESS_COUNT_THRESHOLD";

const OPERATIONS: [&str; 7] = ["insert", "replace", "truncate", "clear", "filter", "compress", "pin"];

/// Reads `{operation: "truncate", keepFirst: 2}`, or the form with the fields in a nested object named after the operation.
fn read_operation(loader: &mut Loader, config: &mut Tree) -> Option<ContextOperation> {
    let parents = NODE_CONFIG;
    let Some(operation) = config.take("operation") else {
        loader.fault_in(FaultCode::MissingField, config, "`operation` is missing");
        return None;
    };
    let word = operation.value.as_text().unwrap_or_default().to_lowercase();
    if let Some(inner) = config.take(&word) {
        if let (Json::Object(members), Some(outer)) = (inner.value.value, config.members_mut()) {
            outer.extend(members);
        } else {
            loader.gaps.insert(config.span.start);
            let (span, message) = (inner.value.span, format!("`{word}`: expected an object"));
            let fault = loader.source.fault(FaultCode::InvalidValue, span, span, message);
            loader.out.faults.push(fault);
        }
    }
    let read = match word.as_str() {
        "insert" => loader.read(config, parents).map(ContextOperation::Insert),
        "replace" => loader.read(config, parents).map(ContextOperation::Replace),
        "truncate" => loader.read(config, parents).map(ContextOperation::Truncate),
        "clear" => loader.read(config, parents).map(ContextOperation::Clear),
        "filter" => loader.read(config, parents).map(ContextOperation::Filter),
        "compress" => loader.read(config, parents).map(ContextOperation::Compress),
        "pin" => loader.read(config, parents).map(ContextOperation::Pin),
        other => {
            let message = format!("unknown operation `{other}`");
            let fault = loader
                .source
                .fault_in(FaultCode::InvalidValue, &operation.value, message);
            let help = match nearest(other, OPERATIONS.into_iter()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("operations: {}", OPERATIONS.join(", ")),
            };
            loader.out.faults.push(fault.with_help(help));
            None
        }
    };
    if let Some(members) = config.members_mut() {
        members.insert(0, operation);
    }
    read
}

fn placeholder(word: &str) -> Option<NodeConfig> {
    Some(match word {
        "START" => NodeConfig::Start,
        "START_FROM_TRIGGER" => NodeConfig::StartFromTrigger,
        "END" => NodeConfig::End(EndConfig::default()),
        "VARIABLE" => NodeConfig::Variable(VariableConfig {
            variable_name: String::new(),
            expression: String::new(),
            variable_type: None,
            scope: None,
            readonly: false,
        }),
        "LLM" => NodeConfig::Llm(LlmConfig::default()),
        "ROUTE" => NodeConfig::Route(RouteConfig::default()),
        "FORK" => NodeConfig::Fork(ForkConfig::default()),
        "WAIT" => NodeConfig::Wait(WaitConfig::default()),
        "TOOL" => NodeConfig::Tool(ToolConfig::default()),
        "USER_INTERACTION" => NodeConfig::UserInteraction(UserInteractionConfig::default()),
        "LOOP_START" => NodeConfig::LoopStart(LoopStartConfig::default()),
        "LOOP_END" => NodeConfig::LoopEnd(LoopEndConfig::default()),
        "CONTINUE_FROM_TRIGGER" => NodeConfig::ContinueFromTrigger(ContinueFromTriggerConfig::default()),
        "CODE" | "SCRIPT" | "JOIN" | "SUBGRAPH" | "MAP" | "CONTEXT_PROCESSOR" => {
            NodeConfig::Code(CodeConfig::default())
        }
        _ => return None,
    })
}
