//! Live runs under another definition: they are moved there where all that they went through is the same, and the first thing
//! that is not is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_core::definition::{Loaded, SourceFile};
use pirn_core::event::{EventType, RaisedEvent};
use pirn_core::run::{Effect, Replayed};
use pirn_core::thread;
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
    what: Value,
}

/// The deeds of a run in order, as far as its steps fit.
#[derive(Default)]
struct Trace {
    deeds: Vec<Deed>,
    step: u64,
    /// By thread: the node that it entered last.
    entered: BTreeMap<String, Arc<str>>,
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
    let first_difference = difference(was.deeds, would.deeds);
    let migration = Migration {
        fits: first_difference.is_none(),
        first_difference,
    };
    Ok((migration, definition))
}

fn difference(was: Vec<Deed>, would: Vec<Deed>) -> Option<Difference> {
    let (mut was, mut would) = (was.into_iter(), would.into_iter());
    loop {
        let (one, other) = match (was.next(), would.next()) {
            (None, None) => return None,
            (Some(one), Some(other)) if (one.step, &one.what) == (other.step, &other.what) => continue,
            differ => differ,
        };
        let first = [&one, &other].into_iter().flatten().min_by_key(|deed| deed.step)?;
        return Some(Difference {
            step: first.step,
            node_id: first.node_id.clone(),
            was: one.map(|deed| deed.what).unwrap_or_default(),
            would: other.map(|deed| deed.what).unwrap_or_default(),
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
        let mut trace = Self::default();
        let begun = stored.begun(&graphs)?;
        let replayed = engine
            .shared()
            .replay_seen(begun, stored.told.clone(), graphs, &mut |seen| trace.saw(seen));
        // How far it came is seen by what is missing.
        drop(replayed);
        Ok(trace)
    }

    fn saw(&mut self, seen: Replayed<'_>) {
        match seen {
            Replayed::Told(_) => self.step += 1,
            Replayed::Did(_, effects) => effects.iter().for_each(|effect| self.did(effect)),
        }
    }

    fn did(&mut self, effect: &Effect) {
        match effect {
            Effect::Emit { thread_id, event, .. } => self.raised(thread_id, event),
            Effect::EmitAll { thread_id, events, .. } => events.iter().for_each(|event| self.raised(thread_id, event)),
            Effect::Thread { thread, effect } => {
                if let Some(asked) = asked(effect) {
                    let suffix = format!(".{thread}");
                    let entered = self.entered.iter().find(|(thread_id, _)| thread_id.ends_with(&suffix));
                    let node_id = entered.map(|(_, node_id)| Arc::clone(node_id));
                    self.deed(node_id, asked);
                }
            }
            Effect::SetTimer { timer, after_ms } => {
                self.deed(None, json!({"timer": format!("{timer:?}"), "afterMs": after_ms}));
            }
            Effect::StartRun(start) => {
                self.deed(None, json!({"workflowId": start.workflow_id, "input": start.input}));
            }
            // Events say the same.
            Effect::AwaitSession
            | Effect::LeaveSession(_)
            | Effect::Begin { .. }
            | Effect::Drop { .. }
            | Effect::AwaitTriggers { .. }
            | Effect::ThreadEnded { .. }
            | Effect::StopTimer { .. }
            // So was it told of that.
            | Effect::CallTrigger { .. }
            | Effect::QuiesceTriggers
            | Effect::Report(_)
            | Effect::Settled => {}
        }
    }

    fn raised(&mut self, thread_id: &Arc<str>, event: &RaisedEvent) {
        let node_id = event.fields.get("nodeId").and_then(Value::as_str).map(Arc::from);
        if event.event_type == EventType::NodeStarted
            && let Some(node_id) = &node_id
        {
            self.entered.insert(thread_id.to_string(), Arc::clone(node_id));
        }
        let node_id = node_id.or_else(|| self.entered.get(&**thread_id).cloned());
        self.deed(node_id, json!({"threadId": thread_id, "event": event}));
    }

    fn deed(&mut self, node_id: Option<Arc<str>>, what: Value) {
        let step = self.step;
        self.deeds.push(Deed { step, node_id, what });
    }
}

/// The request to the outside, without the places of nodes in their file.
fn asked(effect: &thread::Effect) -> Option<Value> {
    Some(match effect {
        thread::Effect::Function { id, input, .. } => json!({"function": id, "input": **input.value()}),
        thread::Effect::Script { id, input, .. } => json!({"code": id, "input": input}),
        thread::Effect::Model {
            id, request, choice, ..
        } => {
            let messages: Vec<_> = request.built().messages.iter().map(|message| &**message).collect();
            json!({"model": id, "messages": messages, "choice": choice})
        }
        thread::Effect::Tool { id, call, .. } => json!({"tool": id, "call": call}),
        thread::Effect::Ask { id, .. } => json!({"question": id}),
        thread::Effect::Evaluate { id, .. } => json!({"texts": id}),
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
