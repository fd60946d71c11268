//! `TRIGGER_FIRES_ITSELF`, `WORKFLOW_RING`: a trigger's action emits, directly or indirectly, the event that the trigger watches.
//! At run time the maximum chain depth ends such a chain, but a cycle that starts no thread may be unbounded.
//!
//! Only triggers that fire at every event of their type count. An expression that may be false, a `threadId`, or a `maxTriggers`
//! that counts across the started runs bounds the cycle. Failures do not count as consequences, and token events do not either:
//! the token limit is not checked inside triggered workflows.
//!
//! The graph has a node for each event of a workflow, each event of any workflow, and each run of a workflow. A trigger is an
//! edge from the event it watches to the workflow it starts, and to the events that its action emits in the source thread. A
//! trigger fires itself if and only if its edge is in a strongly connected component.

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::facts::emitted_events::{emitted_by_action, emitted_by_run, is_unbounded, started_by};
use crate::analysis::{Analysis, PlacedTrigger, WorkflowSet};
use crate::definition::FaultCode;
use crate::event_type::EventType;
use crate::graph::NodeIx;
use crate::graph::structure::scc::components;

/// Reports each trigger that fires itself, and each cycle of workflows once.
pub(in crate::analysis) fn report(set: &WorkflowSet<'_>, found: &mut Analysis) {
    let places = set.places();
    let watching: Vec<UnboundedTrigger<'_>> = set
        .every_trigger()
        .filter_map(|placed| UnboundedTrigger::of(placed, set, &places))
        .collect();
    found.work += watching.len() as u64;
    if watching.is_empty() {
        return;
    }
    let map = EventGraph::of(set, &watching);
    let next = map.edges(set, &places, &watching);
    found.work += next.iter().map(|targets| 1 + targets.len() as u64).sum::<u64>();
    let component = components(&next);

    let mut cycles: BTreeMap<usize, Vec<&UnboundedTrigger<'_>>> = BTreeMap::new();
    for one in &watching {
        let on_cycle = map.edges_of(one).find_map(|(from, to)| {
            let here = component[from as usize];
            (here.is_some() && here == component[to as usize])
                .then_some(here)
                .flatten()
        });
        if let Some(cycle) = on_cycle {
            cycles.entry(cycle).or_default().push(one);
        }
    }
    for cycle in cycles.values() {
        report_cycle(set, cycle, found);
    }
}

fn report_cycle(set: &WorkflowSet<'_>, cycle: &[&UnboundedTrigger<'_>], found: &mut Analysis) {
    let started: BTreeSet<usize> = cycle.iter().filter_map(|one| one.starts).collect();
    if started.len() > 1
        && let Some(first) = cycle.first()
    {
        let names: Vec<&str> = started
            .iter()
            .map(|place| &*set.flows[*place].graph.workflow_id)
            .collect();
        let message = format!("triggers start these workflows in a cycle: {}", names.join(", "));
        let pointer = first.placed.pointer(["action"]);
        found.warn(first.placed.origin, FaultCode::WorkflowRing, &pointer, message);
        return;
    }
    for one in cycle {
        let id = &one.placed.trigger.id;
        let event = one.event().as_str();
        let others: Vec<&str> = cycle.iter().map(|one| one.placed.trigger.id.as_str()).collect();
        let through = match others.as_slice() {
            [_] | [] => String::new(),
            [..] => format!(", in a cycle of {}", others.join(", ")),
        };
        let message = format!("`{id}` fires itself: its action emits {event} again{through}");
        found.warn(
            one.placed.origin,
            FaultCode::TriggerFiresItself,
            &one.placed.pointer(["action"]),
            message,
        );
    }
}

/// A trigger that fires at every event of its type.
struct UnboundedTrigger<'a> {
    placed: PlacedTrigger<'a>,
    /// The workflow that it watches; `None`: every workflow.
    scope: Option<usize>,
    starts: Option<usize>,
    emits: Vec<EventType>,
}

impl<'a> UnboundedTrigger<'a> {
    fn of(one: PlacedTrigger<'a>, set: &WorkflowSet<'_>, places: &BTreeMap<&str, usize>) -> Option<Self> {
        if !is_unbounded(one.trigger, one.flow.is_some()) {
            return None;
        }
        let find = |id: &str| places.get(id).copied();
        let scope = match (one.flow, one.trigger.workflow_id.as_deref()) {
            (Some(flow), _) => Some(flow),
            (None, Some(id)) => Some(find(id)?),
            (None, None) => None,
        };
        let starts = started_by(&one.trigger.action).and_then(find);
        let emits = emitted_by_action(one.trigger, starts.map(|place| &set.flows[place]));
        Some(Self {
            placed: one,
            scope,
            starts,
            emits,
        })
    }

    fn event(&self) -> EventType {
        self.placed.trigger.condition.event_type
    }
}

/// Node numbers: an event of a workflow, an event of any workflow, a run.
struct EventGraph {
    flows: usize,
    /// Event types that at least one trigger watches.
    events: Vec<EventType>,
}

impl EventGraph {
    fn of(set: &WorkflowSet<'_>, watching: &[UnboundedTrigger<'_>]) -> Self {
        let mut events: Vec<EventType> = watching.iter().map(UnboundedTrigger::event).collect();
        events.sort_unstable();
        events.dedup();
        Self {
            flows: set.flows.len(),
            events,
        }
    }

    fn place(&self, event: EventType) -> Option<usize> {
        self.events.binary_search(&event).ok()
    }
    fn event_in(&self, flow: usize, event: usize) -> NodeIx {
        (flow * self.events.len() + event) as NodeIx
    }
    fn event_anywhere(&self, event: usize) -> NodeIx {
        (self.flows * self.events.len() + event) as NodeIx
    }
    fn run(&self, flow: usize) -> NodeIx {
        ((self.flows + 1) * self.events.len() + flow) as NodeIx
    }

    fn edges(
        &self,
        set: &WorkflowSet<'_>,
        places: &BTreeMap<&str, usize>,
        watching: &[UnboundedTrigger<'_>],
    ) -> Vec<Vec<NodeIx>> {
        let mut next = vec![Vec::new(); (self.flows + 1) * self.events.len() + self.flows];
        for (place, flow) in set.flows.iter().enumerate() {
            for event in 0..self.events.len() {
                next[self.event_in(place, event) as usize].push(self.event_anywhere(event));
            }
            let raised = emitted_by_run(flow.graph)
                .into_iter()
                .filter_map(|event| self.place(event));
            next[self.run(place) as usize].extend(raised.map(|event| self.event_in(place, event)));
            let called = flow.calls().filter_map(|id| places.get(&**id));
            next[self.run(place) as usize].extend(called.map(|called| self.run(*called)));
        }
        // deduplicated, because many outer triggers can have equal edges
        let mut seen = BTreeSet::new();
        for one in watching {
            let key = (one.scope, one.event(), one.starts, one.emits.clone());
            if seen.insert(key) {
                for (from, to) in self.edges_of(one) {
                    next[from as usize].push(to);
                }
            }
        }
        next
    }

    /// Returns the edges of one trigger.
    fn edges_of<'a>(&'a self, one: &'a UnboundedTrigger<'_>) -> impl Iterator<Item = (NodeIx, NodeIx)> + 'a {
        let event = self.place(one.event());
        let started = event.zip(one.starts).map(|(event, starts)| {
            let from = match one.scope {
                Some(flow) => self.event_in(flow, event),
                None => self.event_anywhere(event),
            };
            (from, self.run(starts))
        });
        let flows = match one.scope {
            Some(flow) => flow..flow + 1,
            None => 0..self.flows,
        };
        let raised: Vec<usize> = one.emits.iter().filter_map(|event| self.place(*event)).collect();
        let same_thread = flows.flat_map(move |flow| {
            let raised = raised.clone();
            let pairs = event
                .into_iter()
                .flat_map(move |from| raised.clone().into_iter().map(move |to| (from, to)));
            pairs.map(move |(from, to)| (self.event_in(flow, from), self.event_in(flow, to)))
        });
        started.into_iter().chain(same_thread)
    }
}
