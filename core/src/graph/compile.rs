//! A set of definitions to graphs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::context::CompileContext;
use super::model::Graph;
use super::nodes::NodeCompiler;
use super::pairing::pair;
use super::references::{Calls, Names, check_calls, check_subgraphs, is_triggered};
use super::regions::check_regions;
use super::site::{Site, and, at};
use super::snippets::Snippets;
use super::syntax::NoSyntax;
use super::triggers::check_trigger;
use super::ways::Ways;
use crate::definition::{
    Fault, FaultCode, Loaded, Located, NodeConfig, TriggerDefinition, WorkflowConfig, WorkflowDefinition,
};

/// What compiling a set of definitions gave.
#[derive(Debug, Default)]
pub struct Compiled {
    /// The graphs, in the order of the definitions; none where anything is wrong.
    pub graphs: Vec<Arc<Graph>>,
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// What works but deserves a word.
    pub warnings: Vec<Fault>,
}

impl Compiled {
    /// The graphs, or everything that is wrong.
    pub fn into_result(self) -> Result<Vec<Arc<Graph>>, Vec<Fault>> {
        if self.faults.is_empty() {
            Ok(self.graphs)
        } else {
            Err(self.faults)
        }
    }
}

/// Checks and compiles what was loaded; the loader's faults and warnings stand with the others.
///
/// ```
/// use pirn_core::definition::{SourceFile, load};
/// use pirn_core::graph::{CompileContext, compile_loaded};
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

/// Checks and compiles workflows, and the triggers outside them, as one set: they may name each other.
///
/// The definitions are not changed. A definition built in code comes in by [`Located::from`]. For what a loader gave,
/// [`compile_loaded`] keeps the loader's faults in view.
pub fn compile(
    workflows: &[Located<WorkflowDefinition>],
    triggers: &[Located<TriggerDefinition>],
    context: &CompileContext<'_>,
) -> Compiled {
    let names = Names::of(workflows, context);
    let mut sites: Vec<Site<'_>> = workflows.iter().map(|workflow| Site::new(&workflow.origin)).collect();
    check_ids(workflows, context, &mut sites);
    let mut graphs = Vec::with_capacity(workflows.len());
    let mut calls = Vec::with_capacity(workflows.len());
    for (place, (workflow, site)) in workflows.iter().zip(&mut sites).enumerate() {
        let uid = context.first_uid.wrapping_add(place as u64);
        let (graph, called) = compile_one(&workflow.value, uid, &names, context, site);
        graphs.extend(graph.map(Arc::new));
        calls.push(called);
    }
    check_calls(workflows, &calls, context, &mut sites);

    let mut out = Compiled::default();
    for site in sites {
        out.faults.extend(site.faults);
        out.warnings.extend(site.warnings);
    }
    check_outer_triggers(workflows, triggers, &names, context, &mut out);
    if out.faults.is_empty() {
        out.graphs = graphs;
    }
    out
}

fn check_ids(workflows: &[Located<WorkflowDefinition>], context: &CompileContext<'_>, sites: &mut [Site<'_>]) {
    let mut seen: BTreeSet<&str> = context.registered.iter().map(|graph| &*graph.workflow_id).collect();
    for (workflow, site) in workflows.iter().zip(sites) {
        let id = workflow.value.id.as_str();
        if id.is_empty() {
            site.fault(
                FaultCode::InvalidValue,
                &at!["id"],
                "a workflow needs an id that is not empty",
            );
        } else if !seen.insert(id) {
            site.fault(
                FaultCode::DuplicateWorkflowId,
                &at!["id"],
                format!("another workflow is called `{id}` too"),
            );
        }
    }
}

/// The graph, where it can be built; it is only of use if nothing at all is wrong.
fn compile_one(
    definition: &WorkflowDefinition,
    uid: u64,
    names: &Names<'_>,
    context: &CompileContext<'_>,
    site: &mut Site<'_>,
) -> (Option<Graph>, Calls) {
    let holes = site.origin.holes();
    let triggered = is_triggered(definition);
    let config = check_config(&definition.config, site);
    let ways = Ways::of(definition, &|node| names.names_normal(node), site);
    let start = if holes.nodes {
        None
    } else {
        check_terminals(definition, triggered, site)
    };
    let partners = if holes.nodes || holes.ways {
        vec![None; definition.nodes.len()]
    } else {
        pair(definition, site)
    };
    let depths = if start.is_some() && !holes.ways {
        check_regions(definition, &ways, &partners, triggered, site)
    } else {
        vec![None; definition.nodes.len()]
    };
    check_subgraphs(definition, &ways, names, &holes.stand_ins, site);
    check_variables(definition, site);
    let mut seen = BTreeSet::new();
    for (place, trigger) in definition.triggers.iter().enumerate() {
        check_trigger(trigger, &at!["triggers", place], &mut seen, names, context, site);
    }
    let calls = Calls::of(definition, &ways, &depths);
    let compile = |snippets, site: &mut Site<'_>| {
        let mut compiler = NodeCompiler {
            definition,
            ways: &ways,
            partners: &partners,
            context,
            snippets,
            site,
        };
        let (nodes, forks) = compiler.compile(&holes.stand_ins);
        (nodes, forks, compiler.snippets)
    };
    // The texts are checked all at once. Where one is wrong, the nodes are gone through once more, for its fault to stand
    // among the others.
    let mut found = Site::new(site.origin);
    let (nodes, forks, snippets) = compile(Snippets::new(&NoSyntax), &mut found);
    let wrong = snippets.check(context.syntax);
    if wrong.is_empty() {
        site.extend(found);
    } else {
        compile(Snippets::checked(wrong), site);
    }
    let snippets = snippets.into_table();
    let graph = start
        .filter(|_| site.faults.is_empty() && !holes.faulty)
        .map(|start| Graph {
            workflow_id: Arc::from(definition.id.as_str()),
            uid,
            nodes,
            start,
            triggered,
            snippets,
            forks,
            variables: definition.variables.clone(),
            triggers: definition.triggers.clone(),
            config,
            by_id: ways.by_id,
        });
    (graph, calls)
}

/// Exactly one start, at least one end; for a triggered sub-workflow exactly one of each. The start, if there is one.
fn check_terminals(definition: &WorkflowDefinition, triggered: bool, site: &mut Site<'_>) -> Option<u32> {
    let places = |wanted: fn(&NodeConfig) -> bool| -> Vec<usize> {
        (0..definition.nodes.len())
            .filter(|place| wanted(&definition.nodes[*place].config))
            .collect()
    };
    let starts = places(|config| matches!(config, NodeConfig::Start));
    let ends = places(|config| matches!(config, NodeConfig::End(_)));
    if !triggered {
        match starts.as_slice() {
            [] => site.fault(FaultCode::MissingStart, &at!["nodes"], "the workflow has no START"),
            [_] => {}
            [_, more @ ..] => {
                for place in more {
                    let message = format!("`{}` is a second START", definition.nodes[*place].id);
                    site.fault(FaultCode::MultipleStart, &at!["nodes", *place], message);
                }
            }
        }
        if ends.is_empty() {
            site.fault(FaultCode::MissingEnd, &at!["nodes"], "the workflow has no END");
        }
        return starts.first().map(|place| *place as u32);
    }
    let code = FaultCode::InvalidTriggeredWorkflow;
    let firsts = places(|config| matches!(config, NodeConfig::StartFromTrigger));
    let lasts = places(|config| matches!(config, NodeConfig::ContinueFromTrigger(_)));
    for (found, word) in [(&firsts, "START_FROM_TRIGGER"), (&lasts, "CONTINUE_FROM_TRIGGER")] {
        match found.as_slice() {
            [] => site.fault(
                code,
                &at!["nodes"],
                format!("a triggered sub-workflow needs one {word}"),
            ),
            [_] => {}
            [_, more @ ..] => {
                for place in more {
                    let message = format!("`{}` is a second {word}", definition.nodes[*place].id);
                    site.fault(code, &at!["nodes", *place], message);
                }
            }
        }
    }
    for place in starts.iter().chain(&ends) {
        let node = &definition.nodes[*place];
        let message = format!(
            "`{}` is a {}: a triggered sub-workflow has none",
            node.id,
            node.config.type_name()
        );
        site.fault(code, &at!["nodes", *place], message);
    }
    firsts.first().map(|place| *place as u32)
}

fn check_config(config: &WorkflowConfig, site: &mut Site<'_>) -> WorkflowConfig {
    let zero = [
        ("maxSteps", config.max_steps == Some(0)),
        ("maxConcurrentBranches", config.max_concurrent_branches == Some(0)),
        ("tokenLimit", config.token_limit == Some(0)),
    ];
    for (key, zero) in zero {
        if zero {
            site.fault(
                FaultCode::InvalidValue,
                &at!["config", key],
                format!("`{key}` must be at least 1"),
            );
        }
    }
    let timeout_ms = site.milliseconds(config.timeout_ms, || at!["config", "timeoutMs"]);
    WorkflowConfig {
        timeout_ms,
        ..config.clone()
    }
}

fn check_variables(definition: &WorkflowDefinition, site: &mut Site<'_>) {
    let mut seen = BTreeSet::new();
    for (place, variable) in definition.variables.iter().enumerate() {
        let way = at!["variables", place, "name"];
        if variable.name.is_empty() {
            site.fault(
                FaultCode::InvalidValue,
                &way,
                "a variable needs a name that is not empty",
            );
        } else if !seen.insert(variable.name.as_str()) {
            let message = format!("another variable is called `{}` too", variable.name);
            site.fault(FaultCode::InvalidValue, &way, message);
        }
    }
}

/// Where no workflow at all is at hand, what a trigger names cannot be judged: that is a warning then.
fn check_outer_triggers(
    workflows: &[Located<WorkflowDefinition>],
    triggers: &[Located<TriggerDefinition>],
    names: &Names<'_>,
    context: &CompileContext<'_>,
    out: &mut Compiled,
) {
    let alone = workflows.is_empty() && context.registered.is_empty() && context.unreadable.is_empty();
    let mut seen = BTreeSet::new();
    for (place, trigger) in triggers.iter().enumerate() {
        let mut site = Site::new(&trigger.origin);
        let way = if trigger.origin.file().is_some() {
            Vec::new()
        } else {
            and(&at!["triggers"], place)
        };
        check_trigger(&trigger.value, &way, &mut seen, names, context, &mut site);
        for fault in site.faults {
            if alone && fault.code == FaultCode::UnknownWorkflowReference {
                out.warnings.push(fault);
            } else {
                out.faults.push(fault);
            }
        }
        out.warnings.extend(site.warnings);
    }
}
