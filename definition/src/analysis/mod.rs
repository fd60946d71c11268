//! Static analysis (`pirn validate`): warnings about definitions that compile but cannot work as intended.
//!
//! 1. The analysis does not guess. A condition counts as decided only if its text is a literal; otherwise it may be true or
//!    false. A warning therefore applies to every run, as far as the files determine it.
//! 2. Each check has its own file and stable codes; `docs/validation-codes.md` shows a bad and a corrected example of each.
//! 3. The work is near-linear in the size of the definitions ([`Analysis::work`] counts it), and no depth of nesting overflows
//!    the stack.
//!
//! | file | codes |
//! |---|---|
//! | `flow/joins` | `JOIN_NEVER_SUCCEEDS`, `THRESHOLD_OUT_OF_REACH` |
//! | `flow/unstarted_branches` | `BRANCH_NEVER_STARTS` |
//! | `flow/loops` | `LOOP_WITHOUT_EXIT` |
//! | `flow/routes` | `UNREACHABLE_ROUTE` |
//! | `triggers/dead_triggers` | `TRIGGER_NEVER_FIRES` |
//! | `triggers/trigger_cycles` | `TRIGGER_FIRES_ITSELF`, `WORKFLOW_RING` |
//! | `triggers/token_limit` | `TOKEN_LIMIT_WITHOUT_COMPRESSION` |
//! | `prompt_cache` | `UNCACHEABLE_PROMPT` |
//! | `foreign_placeholders` | `INVALID_TEMPLATE` |
//! | `assignments`, `silent_scripts` | `INVALID_EXPRESSION` |
//! | `variables/hidden_variables` | `MISSING_FIELD`, `UNKNOWN_NAME` |
//! | `variables/lost_variables` | `MISSING_FIELD` |
//! | `variables/output_fields` | `UNKNOWN_NAME` |
//!
//! Not here: faults that make a definition invalid ([`crate::graph`]).

mod assignments;
mod facts;
mod flow;
mod foreign_placeholders;
mod prompt_cache;
mod silent_scripts;
mod triggers;
mod variables;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::definition::json::Step;
use crate::definition::{Fault, FaultCode, Loaded, Located, Origin, TriggerDefinition, WorkflowDefinition};
use crate::graph::{Compiled, Graph, Node};

use self::facts::flow_facts::FlowFacts;

/// Findings of an analysis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Analysis {
    /// The warnings, workflow by workflow, then those of outer triggers.
    pub warnings: Vec<Fault>,
    /// Number of visited nodes, transitions and triggers, in which the cost is near-linear.
    pub work: u64,
}

/// Analyses loaded and compiled definitions. Empty if there are any faults, which must be corrected first.
///
/// ```
/// use pirn_definition::analysis::analyse;
/// use pirn_definition::definition::{SourceFile, load};
/// use pirn_definition::graph::{CompileContext, compile_loaded};
/// let text = r#"{"id": "w", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
///                "edges": [{"from": "s", "to": "e"}, {"from": "s", "to": "e", "label": "never taken"}]}"#;
/// let loaded = load(&SourceFile::new("w.json", text));
/// let compiled = compile_loaded(&loaded, &CompileContext::default());
/// let found = analyse(&loaded, &compiled);
/// assert_eq!(found.warnings[0].code.as_str(), "UNREACHABLE_ROUTE");
/// ```
pub fn analyse(loaded: &Loaded, compiled: &Compiled) -> Analysis {
    let mut found = Analysis::default();
    if !compiled.faults.is_empty() || compiled.graphs.len() != loaded.workflows.len() {
        return found;
    }
    let set = WorkflowSet {
        flows: loaded.workflows.iter().zip(&compiled.graphs).map(Flow::of).collect(),
        triggers: &loaded.triggers,
    };
    let facts = FlowFacts::of_all(&set, &mut found.work);
    for (flow, facts) in set.flows.iter().zip(&facts) {
        flow::joins::report(flow, facts, &mut found);
        flow::unstarted_branches::report(flow, facts, &mut found);
        flow::loops::report(flow, facts, &mut found);
        flow::routes::report(flow, &mut found);
        triggers::token_limit::report(flow, &set, &mut found);
        prompt_cache::report(flow, &mut found);
        foreign_placeholders::report(flow, &mut found);
        assignments::report(flow, &mut found);
        silent_scripts::report(flow, &mut found);
        variables::output_fields::report(flow, facts, &mut found);
        variables::lost_variables::report(flow, facts, &mut found);
    }
    assignments::report_triggers(&set, &mut found);
    foreign_placeholders::report_triggers(&set, &mut found);
    variables::hidden_variables::report(&set, &mut found);
    triggers::dead_triggers::report(&set, &mut found);
    triggers::trigger_cycles::report(&set, &mut found);
    found
}

impl Analysis {
    fn warn(&mut self, origin: &Origin, code: FaultCode, pointer: &[Step], message: impl Into<String>) {
        self.warnings.push(origin.fault(code, pointer, message));
    }
}

/// Returns true if the file states a field. A definition does not distinguish a default value from the same value in the file.
fn is_stated(origin: &Origin, pointer: &[Step]) -> bool {
    // The pointer of a fault ends at the deepest part that the file contains.
    let placed = origin.fault(FaultCode::MissingField, pointer, "").pointer;
    matches!(pointer.last(), Some(Step::Key(field)) if placed.rsplit('/').next() == Some(field.as_str()))
}

/// The definitions that are analysed together.
struct WorkflowSet<'a> {
    flows: Vec<Flow<'a>>,
    /// Triggers outside of workflows.
    triggers: &'a [Located<TriggerDefinition>],
}

impl<'a> WorkflowSet<'a> {
    /// Returns every trigger, with its workflow, its index there and its origin.
    fn every_trigger(&self) -> impl Iterator<Item = PlacedTrigger<'a>> {
        let inner = self.flows.iter().enumerate().flat_map(|(flow, one)| {
            let triggers = one.definition.triggers.iter().enumerate();
            triggers.map(move |(place, trigger)| PlacedTrigger {
                flow: Some(flow),
                place,
                trigger,
                origin: one.origin,
            })
        });
        let outer = self.triggers.iter().enumerate().map(|(place, trigger)| PlacedTrigger {
            flow: None,
            place,
            trigger: &trigger.value,
            origin: &trigger.origin,
        });
        inner.chain(outer)
    }

    fn places(&self) -> BTreeMap<&'a str, usize> {
        let by_id = self.flows.iter().enumerate();
        by_id.map(|(place, flow)| (&*flow.graph.workflow_id, place)).collect()
    }
}

/// A workflow as a definition and as a graph. Node indices are equal in both.
struct Flow<'a> {
    definition: &'a WorkflowDefinition,
    origin: &'a Origin,
    graph: &'a Graph,
}

impl<'a> Flow<'a> {
    fn of((written, graph): (&'a Located<WorkflowDefinition>, &'a Arc<Graph>)) -> Self {
        Self {
            definition: &written.value,
            origin: &written.origin,
            graph,
        }
    }

    /// Returns the workflows that its nodes call.
    fn calls(&self) -> impl Iterator<Item = &'a Arc<str>> + use<'a> {
        self.graph.nodes.iter().filter_map(Node::calls)
    }
}

/// A trigger and its location.
#[derive(Clone, Copy)]
struct PlacedTrigger<'a> {
    /// The workflow that contains it; `None` for an outer trigger.
    flow: Option<usize>,
    place: usize,
    trigger: &'a TriggerDefinition,
    origin: &'a Origin,
}

impl PlacedTrigger<'_> {
    /// Returns the pointer to a part of the trigger in its text.
    fn pointer<const N: usize>(&self, steps: [&str; N]) -> Vec<Step> {
        let mut pointer = match (self.flow, self.origin.file()) {
            (Some(_), _) | (None, None) => crate::graph::diagnostics::pointer!["triggers", self.place],
            (None, Some(_)) => Vec::new(),
        };
        pointer.extend(steps.map(|key| Step::Key(key.to_owned())));
        pointer
    }
}
