//! `TRIGGER_FIRES_ITSELF`, `WORKFLOW_RING`: what a trigger starts raises the event it waits for, alone or through
//! others. At run time the chain's depth limit ends it; where no thread is started, nothing may.
//!
//! A trigger counts where it fires at every event of its type: one with an expression that may not hold, a `threadId`
//! or a `maxTriggers` that counts across what it starts is bounded by it. A failure is no event that "follows", and neither is a token event:
//! inside what it starts the limit is not checked.
//!
//! The graph: a node an event of a workflow, one an event of any workflow, one a run of a workflow. A trigger is an
//! edge from the event it waits for to what it starts, and to the events its action raises in the same thread. A
//! trigger fires itself iff its edge lies in a component.

use std::collections::{BTreeMap, BTreeSet};

use super::raises::{is_unbounded, raised_by_action, raised_by_run, started_by};
use super::{Analysis, Placed, Set};
use crate::definition::FaultCode;
use crate::event::EventType;
use crate::graph::NodeIx;
use crate::graph::traps::components;

/// Reports each trigger that fires itself, and each ring of workflows once.
pub(super) fn report(set: &Set<'_>, found: &mut Analysis) {
    let places = set.places();
    let watching: Vec<Watching<'_>> = set
        .every_trigger()
        .filter_map(|placed| Watching::of(placed, set, &places))
        .collect();
    found.work += watching.len() as u64;
    if watching.is_empty() {
        return;
    }
    let map = Map::of(set, &watching);
    let next = map.edges(set, &places, &watching);
    found.work += next.iter().map(|targets| 1 + targets.len() as u64).sum::<u64>();
    let component = components(&next);

    let mut rings: BTreeMap<usize, Vec<&Watching<'_>>> = BTreeMap::new();
    for one in &watching {
        let on_ring = map.edges_of(one).find_map(|(from, to)| {
            let here = component[from as usize];
            (here.is_some() && here == component[to as usize])
                .then_some(here)
                .flatten()
        });
        if let Some(ring) = on_ring {
            rings.entry(ring).or_default().push(one);
        }
    }
    for ring in rings.values() {
        report_ring(set, ring, found);
    }
}

fn report_ring(set: &Set<'_>, ring: &[&Watching<'_>], found: &mut Analysis) {
    let started: BTreeSet<usize> = ring.iter().filter_map(|one| one.starts).collect();
    if started.len() > 1
        && let Some(first) = ring.first()
    {
        let names: Vec<&str> = started
            .iter()
            .map(|place| &*set.flows[*place].graph.workflow_id)
            .collect();
        let message = format!("triggers start these workflows in a ring: {}", names.join(", "));
        let way = first.placed.way(["action"]);
        found.warn(first.placed.origin, FaultCode::WorkflowRing, &way, message);
        return;
    }
    for one in ring {
        let id = &one.placed.trigger.id;
        let event = one.event().as_str();
        let others: Vec<&str> = ring.iter().map(|one| one.placed.trigger.id.as_str()).collect();
        let through = match others.as_slice() {
            [_] | [] => String::new(),
            [..] => format!(", in a ring of {}", others.join(", ")),
        };
        let message = format!("`{id}` fires itself: what it does raises {event} again{through}");
        found.warn(
            one.placed.origin,
            FaultCode::TriggerFiresItself,
            &one.placed.way(["action"]),
            message,
        );
    }
}

/// A trigger that fires at every event of its type.
struct Watching<'a> {
    placed: Placed<'a>,
    /// The workflow it watches; none: every one.
    scope: Option<usize>,
    starts: Option<usize>,
    raises: Vec<EventType>,
}

impl<'a> Watching<'a> {
    fn of(one: Placed<'a>, set: &Set<'_>, places: &BTreeMap<&str, usize>) -> Option<Self> {
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
        let raises = raised_by_action(one.trigger, starts.map(|place| &set.flows[place]));
        Some(Self {
            placed: one,
            scope,
            starts,
            raises,
        })
    }

    fn event(&self) -> EventType {
        self.placed.trigger.condition.event_type
    }
}

/// Numbers for the nodes: an event of a workflow, an event of any, a run.
struct Map {
    flows: usize,
    /// The event types that anybody watches.
    events: Vec<EventType>,
}

impl Map {
    fn of(set: &Set<'_>, watching: &[Watching<'_>]) -> Self {
        let mut events: Vec<EventType> = watching.iter().map(Watching::event).collect();
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

    fn edges(&self, set: &Set<'_>, places: &BTreeMap<&str, usize>, watching: &[Watching<'_>]) -> Vec<Vec<NodeIx>> {
        let mut next = vec![Vec::new(); (self.flows + 1) * self.events.len() + self.flows];
        for (place, flow) in set.flows.iter().enumerate() {
            for event in 0..self.events.len() {
                next[self.event_in(place, event) as usize].push(self.event_anywhere(event));
            }
            let raised = raised_by_run(flow.graph)
                .into_iter()
                .filter_map(|event| self.place(event));
            next[self.run(place) as usize].extend(raised.map(|event| self.event_in(place, event)));
            let called = flow.calls().filter_map(|id| places.get(&**id));
            next[self.run(place) as usize].extend(called.map(|called| self.run(*called)));
        }
        // triggers outside are many more than what they can do: equal edges stand once
        let mut seen = BTreeSet::new();
        for one in watching {
            let key = (one.scope, one.event(), one.starts, one.raises.clone());
            if seen.insert(key) {
                for (from, to) in self.edges_of(one) {
                    next[from as usize].push(to);
                }
            }
        }
        next
    }

    /// A trigger's own edges.
    fn edges_of<'a>(&'a self, one: &'a Watching<'_>) -> impl Iterator<Item = (NodeIx, NodeIx)> + 'a {
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
        let raised: Vec<usize> = one.raises.iter().filter_map(|event| self.place(*event)).collect();
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
