//! Compiler from a set of definitions to graphs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::compile_context::CompileContext;
use super::diagnostics::{Diagnostics, child, pointer};
use super::model::{About, Graph, Node, NodeKind, Snippet};
use super::nodes::compiler::NodeCompiler;
use super::nodes::loops::pair_loops;
use super::snippets::known_names::{KnownNames, variable_names};
use super::snippets::list::Snippets;
use super::structure::adjacency::Adjacency;
use super::structure::pairing::pair;
use super::structure::references::{Calls, WorkflowNames, check_calls, check_subgraphs, is_triggered};
use super::structure::regions::check_regions;
use super::triggers::check_trigger;
use crate::definition::json::Step;
use crate::definition::{
    Budget, Fault, FaultCode, Loaded, Located, MAX_FAULTS, MIN_RESULT_TOKENS, NodeConfig, TriggerDefinition,
    VariableDefinition, VariableType, WorkflowConfig, WorkflowDefinition, bounded, schedule_name,
};
use crate::event_type::is_kept;
use crate::script::event_names;

/// Minimum memory limit of a run, in bytes.
const LEAST_RUN_BYTES: u64 = 65_536;

/// Maximum cost that a budget may allow: costs are integers in units of 10^-12.
const MOST_COST: f64 = 1_000_000.0;

/// The result of compiling a set of definitions.
#[derive(Debug, Default)]
pub struct Compiled {
    /// The graphs, in the order of the definitions; empty if there are any faults.
    pub graphs: Vec<Arc<Graph>>,
    /// The faults.
    pub faults: Vec<Fault>,
    /// The warnings.
    pub warnings: Vec<Fault>,
}

impl Compiled {
    /// Returns the graphs, or all faults.
    pub fn into_result(self) -> Result<Vec<Arc<Graph>>, Vec<Fault>> {
        if self.faults.is_empty() {
            Ok(self.graphs)
        } else {
            Err(self.faults)
        }
    }
}

/// Checks and compiles loaded definitions. The result includes the loader's faults and warnings.
///
/// ```
/// use pirn_definition::definition::{SourceFile, load};
/// use pirn_definition::graph::{CompileContext, compile_loaded};
/// let text = r#"{"id": "w", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
///                "edges": [{"from": "s", "to": "e"}]}"#;
/// let loaded = load(&SourceFile::new("w.json", text));
/// let graphs = compile_loaded(&loaded, &CompileContext::default()).into_result().unwrap();
/// assert_eq!(&*graphs[0].workflow_id, "w");
/// ```
pub fn compile_loaded(loaded: &Loaded, context: &CompileContext<'_>) -> Compiled {
    let context = CompileContext {
        unreadable: &loaded.unreadable,
        ..*context
    };
    if loaded.faults.len() > MAX_FAULTS {
        // The rest of the files was not read.
        return Compiled {
            faults: loaded.faults.clone(),
            warnings: loaded.warnings.clone(),
            graphs: Vec::new(),
        };
    }
    let compiled = compile(&loaded.workflows, &loaded.triggers, &context);
    let mut out = Compiled {
        faults: loaded.faults.clone(),
        warnings: loaded.warnings.clone(),
        graphs: Vec::new(),
    };
    out.faults.extend(compiled.faults);
    out.warnings.extend(compiled.warnings);
    if out.faults.is_empty() {
        out.graphs = compiled.graphs;
    }
    out
}

/// Checks and compiles workflows and outer triggers as one set, so that they may refer to each other.
///
/// The definitions are not changed. A definition built in code is converted with [`Located::from`]. For loaded definitions, use
/// [`compile_loaded`], which also reports the loader's faults.
pub fn compile(
    workflows: &[Located<WorkflowDefinition>],
    triggers: &[Located<TriggerDefinition>],
    context: &CompileContext<'_>,
) -> Compiled {
    let names = WorkflowNames::of(workflows, context);
    let mut reports: Vec<Diagnostics<'_>> = workflows
        .iter()
        .map(|workflow| Diagnostics::new(&workflow.origin))
        .collect();
    check_ids(workflows, context, &mut reports);
    let variables = Arc::new(variable_names(workflows, triggers, context));
    let mut graphs = Vec::with_capacity(workflows.len());
    let mut calls = Vec::with_capacity(workflows.len());
    let mut found: usize = reports.iter().map(|report| report.faults.len()).sum();
    for (place, (workflow, report)) in workflows.iter().zip(&mut reports).enumerate() {
        if found > MAX_FAULTS {
            break;
        }
        let before = report.faults.len();
        let uid = context.first_uid.wrapping_add(place as u64);
        let (graph, called) = compile_one(&workflow.value, uid, (&names, &variables), context, report);
        graphs.extend(graph.map(Arc::new));
        calls.push(called);
        found += report.faults.len() - before;
    }
    if found <= MAX_FAULTS {
        check_calls(workflows, &calls, context, &mut reports);
    }

    let mut out = Compiled::default();
    for report in reports {
        out.faults.extend(report.faults);
        out.warnings.extend(report.warnings);
    }
    check_outer_triggers(workflows, triggers, (&names, &variables), context, &mut out);
    check_schedule_names(workflows, triggers, &mut out);
    bounded(&mut out.faults, "faults");
    bounded(&mut out.warnings, "warnings");
    if out.faults.is_empty() {
        out.graphs = graphs;
    }
    out
}

fn check_ids(workflows: &[Located<WorkflowDefinition>], context: &CompileContext<'_>, reports: &mut [Diagnostics<'_>]) {
    let mut seen: BTreeSet<&str> = context.registered.iter().map(|graph| &*graph.workflow_id).collect();
    let mut twice = 0;
    for (workflow, report) in workflows.iter().zip(reports) {
        if twice > MAX_FAULTS {
            break;
        }
        let id = workflow.value.id.as_str();
        if id.is_empty() {
            report.fault(
                FaultCode::InvalidValue,
                &pointer!["id"],
                "a workflow needs an id that is not empty",
            );
        } else if !seen.insert(id) {
            twice += 1;
            report.fault(
                FaultCode::DuplicateWorkflowId,
                &pointer!["id"],
                format!("another workflow has the id `{id}`"),
            );
        }
    }
}

/// Compiles a workflow. The graph is only valid if no fault of the set was reported.
fn compile_one(
    definition: &WorkflowDefinition,
    uid: u64,
    (names, variable_names): (&WorkflowNames<'_>, &Arc<BTreeSet<Arc<str>>>),
    context: &CompileContext<'_>,
    report: &mut Diagnostics<'_>,
) -> (Option<Graph>, Calls) {
    let holes = report.origin.holes();
    let triggered = is_triggered(definition);
    let config = check_config(&definition.config, context, report);
    let adjacency = Adjacency::of(definition, &|node| names.calls_normal(node), report);
    let start = if holes.nodes {
        None
    } else {
        check_terminals(definition, triggered, report)
    };
    let partners = if holes.nodes || holes.transitions {
        vec![None; definition.nodes.len()]
    } else {
        let mut partners = pair(definition, report);
        pair_loops(definition, &mut partners, report);
        partners
    };
    let depths = if start.is_some() && !holes.transitions {
        check_regions(definition, &adjacency, &partners, triggered, report)
    } else {
        vec![None; definition.nodes.len()]
    };
    check_subgraphs(definition, &adjacency, names, &holes.placeholders, report);
    check_variables(definition, report);
    let mut seen = BTreeSet::new();
    for (place, trigger) in definition.triggers.iter().enumerate() {
        let pointer = pointer!["triggers", place];
        let variables = Some(&**variable_names);
        check_trigger(trigger, &pointer, &mut seen, (names, variables), context, report);
    }
    let calls = Calls::of(definition, &adjacency, &depths);
    let compile = |snippets, report: &mut Diagnostics<'_>| {
        let mut compiler = NodeCompiler {
            definition,
            adjacency: &adjacency,
            partners: &partners,
            context,
            variable_names,
            snippets,
            report,
        };
        let (nodes, forks) = compiler.compile(&holes.placeholders);
        let reducers = compiler.reducers();
        (nodes, forks, reducers, compiler.snippets)
    };
    // All snippets are checked in one batch, which the syntax may distribute over threads. If one is faulty, the nodes are
    // compiled once more, so that its fault is in order with the others.
    let mut found = Diagnostics::new(report.origin);
    let (nodes, forks, reducers, snippets) = compile(Snippets::unchecked(), &mut found);
    // An unknown name may be defined in a part that could not be read.
    let is_whole = !holes.nodes && !holes.variables && holes.placeholders.is_empty() && context.unreadable.is_empty();
    let known = if is_whole {
        KnownNames::of_workflow(variable_names, &adjacency.by_id, definition)
    } else {
        KnownNames::default()
    };
    let wrong = snippets.check(context.syntax, &known);
    if wrong.is_empty() {
        report.extend(found);
    } else {
        compile(Snippets::checked(wrong), report);
    }
    let snippets = snippets.into_table();
    let graph = start
        .filter(|_| report.faults.is_empty() && !holes.faulty)
        .map(|start| Graph {
            workflow_id: Arc::from(definition.id.as_str()),
            about: About {
                name: definition.name.clone(),
                version: definition.version.clone(),
                description: definition.description.clone(),
                input_schema: definition.input_schema.clone(),
            },
            source: None,
            uid,
            awaited_events: awaited_events(&nodes, &snippets),
            nodes,
            start,
            triggered,
            snippets,
            forks,
            variables: definition.variables.clone(),
            reducers,
            variable_names: Arc::clone(variable_names),
            triggers: definition.triggers.clone(),
            config,
            by_id: adjacency.by_id,
        });
    (graph, calls)
}

/// Returns the CUSTOM events that WAIT nodes and scripts name, without duplicates.
fn awaited_events(nodes: &[Node], snippets: &[Snippet]) -> Vec<Arc<str>> {
    let mut words: BTreeSet<&str> = events_of_waits(nodes).collect();
    for node in nodes {
        if let NodeKind::Orchestration(script) = &node.kind {
            words.extend(event_names(&snippets[script.code as usize].source));
        }
    }
    words.into_iter().filter(|word| is_kept(word)).map(Arc::from).collect()
}

/// Returns the CUSTOM events that WAIT nodes name.
pub(super) fn events_of_waits(nodes: &[Node]) -> impl Iterator<Item = &str> {
    nodes.iter().filter_map(|node| match &node.kind {
        NodeKind::WaitEvent { event, .. } if is_kept(event) => Some(&**event),
        _ => None,
    })
}

/// Checks that there is one start and at least one end; in a triggered sub-workflow exactly one end. Returns the start, if any.
fn check_terminals(definition: &WorkflowDefinition, triggered: bool, report: &mut Diagnostics<'_>) -> Option<u32> {
    let places = |wanted: fn(&NodeConfig) -> bool| -> Vec<usize> {
        (0..definition.nodes.len())
            .filter(|place| wanted(&definition.nodes[*place].config))
            .collect()
    };
    let starts = places(|config| matches!(config, NodeConfig::Start));
    let ends = places(|config| matches!(config, NodeConfig::End(_)));
    if !triggered {
        match starts.as_slice() {
            [] => report.fault(FaultCode::MissingStart, &pointer!["nodes"], "the workflow has no START"),
            [_] => {}
            [_, more @ ..] => {
                for place in more {
                    let message = format!("`{}` is a second START", definition.nodes[*place].id);
                    report.fault(FaultCode::MultipleStart, &pointer!["nodes", *place], message);
                }
            }
        }
        if ends.is_empty() {
            report.fault(FaultCode::MissingEnd, &pointer!["nodes"], "the workflow has no END");
        }
        return starts.first().map(|place| *place as u32);
    }
    let code = FaultCode::InvalidTriggeredWorkflow;
    let firsts = places(|config| matches!(config, NodeConfig::StartFromTrigger));
    let lasts = places(|config| matches!(config, NodeConfig::ContinueFromTrigger(_)));
    for (found, word) in [(&firsts, "START_FROM_TRIGGER"), (&lasts, "CONTINUE_FROM_TRIGGER")] {
        match found.as_slice() {
            [] => report.fault(
                code,
                &pointer!["nodes"],
                format!("a triggered sub-workflow needs exactly one {word}"),
            ),
            [_] => {}
            [_, more @ ..] => {
                for place in more {
                    let message = format!("`{}` is a second {word}", definition.nodes[*place].id);
                    report.fault(code, &pointer!["nodes", *place], message);
                }
            }
        }
    }
    for place in starts.iter().chain(&ends) {
        let node = &definition.nodes[*place];
        let message = format!(
            "`{}` is a {}, which a triggered sub-workflow cannot contain",
            node.id,
            node.config.type_name()
        );
        report.fault(code, &pointer!["nodes", *place], message);
    }
    firsts.first().map(|place| *place as u32)
}

fn check_config(config: &WorkflowConfig, context: &CompileContext<'_>, report: &mut Diagnostics<'_>) -> WorkflowConfig {
    if let Some(compression) = &config.compression {
        context.check_compression(compression, None, &pointer!["config", "compression"], report);
        if compression
            .speculative_at
            .is_some_and(|share| !(share > 0.0 && share < 1.0))
        {
            let message = "`speculativeAt` is a fraction of the token limit: above 0 and below 1";
            let pointer = pointer!["config", "compression", "speculativeAt"];
            report.fault(FaultCode::InvalidValue, &pointer, message);
        }
    }
    let zero = [
        ("maxSteps", config.max_steps == Some(0)),
        ("maxConcurrentBranches", config.max_concurrent_branches == Some(0)),
        ("tokenLimit", config.token_limit == Some(0)),
    ];
    if config.run_bytes().is_some_and(|bytes| bytes < LEAST_RUN_BYTES) {
        let message = format!("`runBytes` must be at least {LEAST_RUN_BYTES}: a run needs some memory to start");
        report.fault(
            FaultCode::InvalidValue,
            &pointer!["config", "limits", "runBytes"],
            message,
        );
    }
    for (key, zero) in zero {
        if zero {
            report.fault(
                FaultCode::InvalidValue,
                &pointer!["config", key],
                format!("`{key}` must be at least 1"),
            );
        }
    }
    if config.artifact_tokens.is_some_and(|tokens| tokens < MIN_RESULT_TOKENS) {
        let message = format!("`artifactTokens` must be at least {MIN_RESULT_TOKENS}: a preview and a page need room");
        report.fault(FaultCode::InvalidValue, &pointer!["config", "artifactTokens"], message);
    }
    if let Some(budget) = &config.budget {
        check_budget(budget, report);
    }
    let timeout_ms = report.milliseconds(config.timeout_ms, || pointer!["config", "timeoutMs"]);
    WorkflowConfig {
        timeout_ms,
        ..config.clone()
    }
}

fn check_budget(budget: &Budget, report: &mut Diagnostics<'_>) {
    let places = [pointer!["config", "budget"], pointer!["config", "budget", "perPath"]];
    for (limits, place) in budget.all().zip(places) {
        let mut wrong = |key: &str, message: &str| {
            let pointer = child(&place, key);
            report.fault(FaultCode::InvalidValue, &pointer, format!("`{key}` {message}"));
        };
        for (key, limit) in [("tokens", limits.tokens), ("modelCalls", limits.model_calls)] {
            if limit == Some(0) {
                wrong(key, "must be at least 1");
            }
        }
        if limits.cost.is_some_and(|cost| !(cost > 0.0 && cost <= MOST_COST)) {
            wrong("cost", "must be above 0, and at most 1,000,000");
        }
        if limits.warn_at.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
            wrong("warnAt", "is a fraction: above 0 and at most 1");
        }
    }
    if budget.per_path.as_ref().is_some_and(|path| path.per_path.is_some()) {
        let pointer = pointer!["config", "budget", "perPath", "perPath"];
        let message = "a path cannot have `perPath`: its limits also apply to each path nested in it";
        report.fault(FaultCode::InvalidValue, &pointer, message);
    }
}

fn check_variables(definition: &WorkflowDefinition, report: &mut Diagnostics<'_>) {
    let mut seen = BTreeSet::new();
    for (place, variable) in definition.variables.iter().enumerate() {
        let pointer = pointer!["variables", place, "name"];
        report.variable_name(&variable.name, &pointer);
        if !variable.name.is_empty() && !seen.insert(variable.name.as_str()) {
            let message = format!("another variable has the name `{}`", variable.name);
            report.fault(FaultCode::InvalidValue, &pointer, message);
        }
        if let Some(variable_type) = variable.variable_type {
            check_initial_value(variable, variable_type, &pointer!["variables", place, "value"], report);
        }
    }
}

/// Checks the initial value of a variable with a type. Unlike at an assignment, text is not converted.
fn check_initial_value(
    variable: &VariableDefinition,
    variable_type: VariableType,
    pointer: &[Step],
    report: &mut Diagnostics<'_>,
) {
    let value = &variable.value;
    if value.is_null() || variable_type.accepts(value) {
        return;
    }
    let expected = match variable_type {
        VariableType::Number => "a number",
        VariableType::String => "a string",
        VariableType::Boolean => "a boolean",
        VariableType::Array => "a list",
        VariableType::Object => "an object",
    };
    let message = format!("the initial value of `{}` is not {expected}", variable.name);
    let is_quoted = |text: &&str| serde_json::from_str(text).is_ok_and(|value| variable_type.accepts(&value));
    let help = match value.as_str().filter(is_quoted) {
        Some(text) => format!("write {text} without quotes"),
        None => format!("write {expected}, or omit `type`"),
    };
    report.fault_with_help(FaultCode::InvalidValue, pointer, message, &help);
}

/// Checks outer triggers. If no workflow is available, an unknown reference is only a warning.
fn check_outer_triggers(
    workflows: &[Located<WorkflowDefinition>],
    triggers: &[Located<TriggerDefinition>],
    (names, variable_names): (&WorkflowNames<'_>, &BTreeSet<Arc<str>>),
    context: &CompileContext<'_>,
    out: &mut Compiled,
) {
    let alone = workflows.is_empty() && context.registered.is_empty() && context.unreadable.is_empty();
    // If no workflow is loaded or a part could not be read, the names of the variables are incomplete.
    let has_gaps = workflows.iter().any(|workflow| {
        let holes = workflow.origin.holes();
        holes.nodes || holes.variables
    });
    let variables = (!alone && !has_gaps).then_some(variable_names);
    let mut seen = BTreeSet::new();
    for (place, trigger) in triggers.iter().enumerate() {
        let mut report = Diagnostics::new(&trigger.origin);
        let pointer = outer_pointer(place, trigger);
        check_trigger(
            &trigger.value,
            &pointer,
            &mut seen,
            (names, variables),
            context,
            &mut report,
        );
        for fault in report.faults {
            if alone && fault.code == FaultCode::UnknownWorkflowReference {
                out.warnings.push(fault);
            } else {
                out.faults.push(fault);
            }
        }
        out.warnings.extend(report.warnings);
    }
}

/// Checks that the names under which schedules are stored differ: WORKFLOW.TRIGGER, and the id alone outside of a workflow.
fn check_schedule_names(
    workflows: &[Located<WorkflowDefinition>],
    triggers: &[Located<TriggerDefinition>],
    out: &mut Compiled,
) {
    let mut taken: BTreeMap<String, Option<&str>> = BTreeMap::new();
    let inner = workflows.iter().flat_map(|workflow| {
        let triggers = workflow.value.triggers.iter().enumerate();
        triggers.map(move |(place, trigger)| {
            let place = (&workflow.origin, pointer!["triggers", place, "id"]);
            (Some(workflow.value.id.as_str()), trigger, place)
        })
    });
    let outer = triggers.iter().enumerate().map(|(place, trigger)| {
        let place = child(&outer_pointer(place, trigger), "id");
        (None, &trigger.value, (&trigger.origin, place))
    });
    for (workflow, trigger, (origin, pointer)) in inner.chain(outer) {
        if trigger.schedule.is_none() {
            continue;
        }
        let name = schedule_name(workflow, &trigger.id);
        // `check_trigger` reports equal ids of one owner.
        if *taken.entry(name.clone()).or_insert(workflow) != workflow {
            let mut report = Diagnostics::new(origin);
            let message =
                format!("another schedule is stored as `{name}`: one of a workflow has the name WORKFLOW.TRIGGER");
            report.fault(FaultCode::DuplicateTriggerId, &pointer, message);
            out.faults.extend(report.faults);
        }
    }
}

/// Returns the pointer to a trigger outside of workflows.
fn outer_pointer(place: usize, trigger: &Located<TriggerDefinition>) -> Vec<Step> {
    if trigger.origin.file().is_some() {
        Vec::new()
    } else {
        child(&pointer!["triggers"], place)
    }
}
