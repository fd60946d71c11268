//! Live runs under another definition: they are moved there where all that they went through is the same, and the first thing
//! that is not is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_actors::journal::Graphs;
use pirn_core::definition::{Loaded, SourceFile};
use pirn_core::event::{EventType, RaisedEvent};
use pirn_core::graph::{Graph, NodeKind};
use pirn_core::run::{Effect, Replayed, ThreadNo, TriggerDecision, TriggersActed, TriggersDecide};
use pirn_core::thread::{self, ThreadId};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::Engine;
use super::definition::laid_over;
use super::offline::left;
use super::resume::{ResumeError, Stored};

/// How a live run stands to another definition.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    /// All that it went through is the same there.
    pub fits: bool,
    /// The first thing that is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<Difference>,
}

/// Something that a run would have done otherwise under another definition.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The step that it followed from; 0 is the run's beginning.
    pub step: u64,
    /// The node that its thread had entered last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<Arc<str>>,
    /// The event that was told, or what was asked of the outside; null: nothing more.
    pub was: Value,
    /// The same under the other definition.
    pub would: Value,
}

/// Something that a run did.
struct Deed {
    step: u64,
    node_id: Option<Arc<str>>,
    what: What,
}

enum What {
    Did(Value),
    Decided(TriggerDecision),
}

/// The deeds of a run in order, as far as its steps fit.
struct Trace {
    run_id: Arc<str>,
    graphs: Graphs,
    deeds: Vec<Deed>,
    step: u64,
    threads: BTreeMap<ThreadNo, Place>,
    triggers: TriggersDecide,
    /// Recorded actions of the triggers.
    acted: TriggersActed,
}

/// Position of a thread.
struct Place {
    workflow_id: Arc<str>,
    /// The node that it entered last.
    entered: Option<Arc<str>>,
}

/// Compares a run with its definition with these files laid over it: what has the id of one that is there takes its place. The
/// other definition is given back too, as a text.
pub(super) async fn check(
    engine: &Engine,
    run_id: &str,
    files: &[SourceFile],
) -> Result<(Migration, Arc<str>), ResumeError> {
    let (stored, _) = left(engine, run_id).await?;
    let faulty = |faults| ResumeError::Definition {
        run_id: run_id.to_owned(),
        faults,
    };
    let definition: Arc<str> = laid_over(&stored.definition, &Loaded::of(files))
        .map_err(faulty)?
        .into();
    let would = Trace::of(engine, &stored, &definition)?;
    let was = Trace::of(engine, &stored, &stored.definition)?;
    // The triggers did what they did in the one run that there is: its events are met as far as they were met there.
    let first_difference = difference(made(was.deeds, &was.acted), made(would.deeds, &was.acted));
    let migration = Migration {
        fits: first_difference.is_none(),
        first_difference,
    };
    Ok((migration, definition))
}

/// A deed: its step, its node, and what it was.
type Made = (u64, Option<Arc<str>>, Value);

/// The deeds without what triggers are still to decide.
fn made(deeds: Vec<Deed>, acted: &TriggersActed) -> impl Iterator<Item = Made> {
    deeds.into_iter().filter_map(|deed| {
        let what = match deed.what {
            What::Did(what) => what,
            What::Decided(decision) => decision.made(acted)?,
        };
        Some((deed.step, deed.node_id, what))
    })
}

fn difference(mut was: impl Iterator<Item = Made>, mut would: impl Iterator<Item = Made>) -> Option<Difference> {
    loop {
        let (one, other) = match (was.next(), would.next()) {
            (None, None) => return None,
            (Some(one), Some(other)) if (one.0, &one.2) == (other.0, &other.2) => continue,
            differ => differ,
        };
        let (step, node_id, _) = [&one, &other].into_iter().flatten().min_by_key(|made| made.0)?;
        return Some(Difference {
            step: *step,
            node_id: node_id.clone(),
            was: one.map(|made| made.2).unwrap_or_default(),
            would: other.map(|made| made.2).unwrap_or_default(),
        });
    }
}

impl Trace {
    /// The deeds of a run under a definition. Where its steps do not fit any more there are no further ones.
    fn of(engine: &Engine, stored: &Stored, definition: &str) -> Result<Self, ResumeError> {
        let run_id = || stored.run.id.clone();
        let graphs = engine
            .graphs_alone("the run's definition", definition)
            .map_err(|faults| ResumeError::Definition {
                run_id: run_id(),
                faults,
            })?;
        let begun = stored.begun(&graphs)?;
        let run_id = Arc::clone(&begun.seed.run_id);
        let outside = Loaded::of(&[SourceFile::new("the run's definition", definition)]).triggers;
        let outside = outside.into_iter().map(|trigger| trigger.value);
        let evaluator = (engine.shared().ports().evaluator)();
        let mut trace = Self {
            triggers: TriggersDecide::new(&run_id, &begun.seed.graph, graphs.values(), outside, evaluator),
            run_id,
            graphs: Arc::clone(&graphs),
            deeds: Vec::new(),
            step: 0,
            threads: BTreeMap::new(),
            acted: TriggersActed::default(),
        };
        let replayed = engine
            .shared()
            .replay_seen(begun, stored.told.clone(), graphs, &mut |seen| trace.saw(&seen));
        // How far it came is seen by what is missing.
        drop(replayed);
        Ok(trace)
    }

    fn saw(&mut self, seen: &Replayed<'_>) {
        self.acted.saw(seen);
        match seen {
            Replayed::Told(_) => self.step += 1,
            Replayed::Did(at, effects) => {
                for effect in effects.iter() {
                    self.did(effect);
                    for decision in self.triggers.on(*at, effect) {
                        self.decided(effect, decision);
                    }
                }
            }
        }
    }

    /// A trigger decides on an event of this effect.
    fn decided(&mut self, effect: &Effect, decision: TriggerDecision) {
        let node_id = match effect {
            Effect::Emit { thread_id, event, .. } => self.node_of(thread_id, event),
            _ => None,
        };
        self.deeds.push(Deed {
            step: self.step,
            node_id,
            what: What::Decided(decision),
        });
    }

    fn did(&mut self, effect: &Effect) {
        if let Some(emitted) = effect.emitted() {
            for (_, event) in emitted.numbered() {
                self.raised((emitted.workflow_id, emitted.thread_id), event);
            }
        }
        match effect {
            Effect::Thread { thread, effect } => {
                let place = self.threads.get(thread);
                let graph = place.and_then(|place| self.graphs.get(&*place.workflow_id));
                if let Some(asked) = asked(effect, graph) {
                    let node_id = place.and_then(|place| place.entered.clone());
                    self.deed(node_id, asked);
                }
            }
            Effect::SetTimer { timer, after_ms } => {
                self.deed(None, json!({"timer": format!("{timer:?}"), "afterMs": after_ms}));
            }
            Effect::StartRun(start) => {
                self.deed(None, json!({"workflowId": start.workflow_id, "input": start.input}));
            }
            // Compared above, as events.
            Effect::Emit { .. } | Effect::EmitAll { .. } => {}
            // Events or recorded inputs report these.
            Effect::AwaitSession
            | Effect::LeaveSession(_)
            | Effect::Begin { .. }
            | Effect::Drop { .. }
            | Effect::AwaitTriggers { .. }
            | Effect::ThreadEnded { .. }
            | Effect::StopTimer { .. }
            | Effect::CallTrigger { .. }
            | Effect::QuiesceTriggers
            | Effect::Report(_)
            | Effect::Settled => {}
        }
    }

    fn raised(&mut self, (workflow_id, thread_id): (&Arc<str>, &Arc<str>), event: &RaisedEvent) {
        if let Some(thread) = ThreadId::number(&self.run_id, thread_id) {
            let place = self.threads.entry(thread as ThreadNo).or_insert_with(|| Place {
                workflow_id: Arc::clone(workflow_id),
                entered: None,
            });
            if event.event_type == EventType::NodeStarted {
                place.entered = own_node(event);
            }
        }
        let node_id = self.node_of(thread_id, event);
        self.deed(node_id, json!({"threadId": thread_id, "event": event}));
    }

    /// The node that an event is about, or that its thread is at.
    fn node_of(&self, thread_id: &str, event: &RaisedEvent) -> Option<Arc<str>> {
        let entered = || {
            let thread = ThreadId::number(&self.run_id, thread_id)?;
            self.threads.get(&(thread as ThreadNo))?.entered.clone()
        };
        own_node(event).or_else(entered)
    }

    fn deed(&mut self, node_id: Option<Arc<str>>, what: Value) {
        let step = self.step;
        self.deeds.push(Deed {
            step,
            node_id,
            what: What::Did(what),
        });
    }
}

fn own_node(event: &RaisedEvent) -> Option<Arc<str>> {
    event.fields.get("nodeId").and_then(Value::as_str).map(Arc::from)
}

/// The request to the outside, without the places of nodes in their file. `graph`: the thread's.
fn asked(effect: &thread::Effect, graph: Option<&Arc<Graph>>) -> Option<Value> {
    Some(match effect {
        thread::Effect::Function { id, node, input, .. } => {
            let name = graph.and_then(|graph| match &graph.node(*node).kind {
                NodeKind::Function { name, .. } => Some(name),
                _ => None,
            });
            json!({"function": id, "name": name, "input": **input.value()})
        }
        thread::Effect::Script { id, input, .. } => json!({"code": id, "input": input}),
        thread::Effect::Model {
            id, request, choice, ..
        } => {
            let messages: Vec<_> = request.built().messages.iter().map(|message| &**message).collect();
            json!({"model": id, "messages": messages, "choice": choice})
        }
        thread::Effect::Tool { id, call, .. } => json!({"tool": id, "call": call}),
        thread::Effect::Ask { id, .. } => json!({"question": id}),
        // Their values are in the record: other texts may have come to others.
        thread::Effect::Evaluate { id, node, what } => {
            let written = graph.map(|graph| thread::written(graph, *node, what.clone()));
            json!({"texts": id, "written": written})
        }
        thread::Effect::Timer {
            id, after_ms, purpose, ..
        } => {
            json!({"timer": id, "afterMs": after_ms, "purpose": purpose})
        }
        thread::Effect::WaitEvent { id, event, .. } => json!({"wait": id, "event": event}),
        thread::Effect::Conversation { .. }
        | thread::Effect::Fork { .. }
        | thread::Effect::Map { .. }
        | thread::Effect::Child { .. }
        | thread::Effect::SetGlobal { .. }
        | thread::Effect::Pin { .. }
        | thread::Effect::Emit(_)
        | thread::Effect::RaiseAndAwaitTriggers { .. }
        | thread::Effect::Applied { .. }
        | thread::Effect::Drop { .. }
        | thread::Effect::Ended(_) => return None,
    })
}
