//! A question that waits for a person: put, answered, given up. A USER_INTERACTION node has one; so has each tool call that
//! needs a person's consent.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::consent::ToolConsent;
use super::failure;
use crate::Millis;
use crate::error::RunError;
use crate::event::{EventType, RaisedEvent};
use crate::thread::ThreadMachine;
use crate::thread::effect::{Effect, EffectId, Outcome, PersonsAnswer, TimerPurpose};
use crate::thread::step::StepContext;

/// A question that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interaction {
    /// Names it, for as long as there are runs: the thread's id and the number of what that awaits.
    pub id: String,
    /// The node that asks.
    pub node_id: Arc<str>,
    /// Its thread.
    pub thread_id: Arc<str>,
    /// The question.
    pub question: Arc<str>,
    /// Whom it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<Arc<str>>,
    /// JSON Schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Arc<Map<String, Value>>>,
    /// The answers to choose from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<Arc<Vec<Value>>>,
    /// Time the thread waits from the question on, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<Millis>,
    /// The tool call that may run or not by the answer, which is a [`ConsentAnswer`](crate::thread::ConsentAnswer); none: it is a
    /// USER_INTERACTION node's question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<Arc<ToolConsent>>,
}

impl Interaction {
    /// Checks that it is one of the answers to choose from, where there are such. The schema is the caller's to check.
    ///
    /// # Errors
    /// A sentence that names the choices.
    pub fn check_choice(&self, answer: &Value) -> Result<(), String> {
        match &self.choices {
            Some(choices) if !choices.contains(answer) => {
                let choices: Vec<String> = choices.iter().map(Value::to_string).collect();
                Err(format!("expected one of {}", choices.join(", ")))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The content of a question, without the place that it comes from.
#[derive(Default)]
pub(super) struct Content {
    pub(super) question: Arc<str>,
    pub(super) assignee: Option<Arc<str>>,
    pub(super) schema: Option<Arc<Map<String, Value>>>,
    pub(super) choices: Option<Arc<Vec<Value>>>,
    pub(super) timeout_ms: Option<Millis>,
    pub(super) tool: Option<Arc<ToolConsent>>,
}

impl Content {
    /// The question as others see it.
    pub(super) fn of(self, thread: &ThreadMachine, id: EffectId) -> Interaction {
        Interaction {
            id: interaction_id(thread, id),
            node_id: Arc::clone(&thread.graph().node(thread.at).id),
            thread_id: Arc::clone(thread.thread_id()),
            question: self.question,
            assignee: self.assignee,
            schema: self.schema,
            choices: self.choices,
            timeout_ms: self.timeout_ms,
            tool: self.tool,
        }
    }
}

/// A question that was put, by what awaits its end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::thread) struct OpenQuestion {
    /// The person's answer.
    pub(super) id: EffectId,
    /// The end of the time for it.
    pub(super) timer: Option<EffectId>,
}

/// The end of a question.
pub(super) enum Heard {
    /// A person has answered.
    Answered(PersonsAnswer),
    /// Nobody has, in time.
    NobodyInTime,
    /// The host failed.
    Failed(RunError),
}

impl OpenQuestion {
    /// Puts a question.
    pub(super) fn put(walk: &mut StepContext<'_>, content: Content) -> Self {
        let (id, timeout_ms) = (walk.next_effect(), content.timeout_ms);
        if walk.listens(EventType::InteractionRequested) {
            let asked = content.of(walk.thread, id);
            let tool = asked.tool.as_ref().map(|tool| ("tool", json!(tool)));
            let fields = [
                ("interactionId", json!(asked.id)),
                ("nodeId", json!(asked.node_id)),
                ("question", json!(asked.question)),
                ("assignee", json!(asked.assignee)),
                ("schema", json!(asked.schema)),
                ("choices", json!(asked.choices)),
                ("timeoutMs", json!(asked.timeout_ms)),
            ];
            let fields = fields.into_iter().chain(tool).collect::<Vec<_>>();
            walk.emit_raised(RaisedEvent::of(EventType::InteractionRequested, fields));
        }
        walk.out.push(Effect::Ask {
            id,
            node: walk.thread.at,
        });
        let timer = timeout_ms.map(|after_ms| {
            let id = walk.next_effect();
            walk.out.push(Effect::Timer {
                id,
                node: walk.thread.at,
                after_ms,
                purpose: TimerPurpose::Limit,
            });
            id
        });
        Self { id, timer }
    }

    /// True if this is what it waits for.
    pub(super) fn awaits(self, effect: EffectId) -> bool {
        self.id == effect || self.timer == Some(effect)
    }

    /// The end that this answer of the world is; the other one is no longer wanted.
    pub(super) fn hear(self, walk: &mut StepContext<'_>, effect: EffectId, outcome: Outcome) -> Heard {
        if self.timer == Some(effect) {
            walk.out.push(Effect::Drop { id: self.id });
            self.tell(walk, EventType::InteractionTimedOut, []);
            return Heard::NobodyInTime;
        }
        if let Some(id) = self.timer {
            walk.out.push(Effect::Drop { id });
        }
        match outcome {
            Outcome::Answered(answer) => {
                let fields = [("answer", json!(answer.answer)), ("by", json!(answer.by))];
                self.tell(walk, EventType::InteractionAnswered, fields);
                Heard::Answered(answer)
            }
            other => Heard::Failed(failure(other)),
        }
    }

    /// The thread no longer waits.
    pub(super) fn withdraw(self, walk: &mut StepContext<'_>) {
        walk.out.push(Effect::Drop { id: self.id });
        if let Some(id) = self.timer {
            walk.out.push(Effect::Drop { id });
        }
        self.tell(walk, EventType::InteractionWithdrawn, []);
    }

    fn tell<const N: usize>(self, walk: &mut StepContext<'_>, event_type: EventType, more: [(&'static str, Value); N]) {
        if !walk.listens(event_type) {
            return;
        }
        let thread = &*walk.thread;
        let named = [
            ("interactionId", json!(interaction_id(thread, self.id))),
            ("nodeId", json!(thread.graph().node(thread.at).id)),
        ];
        let fields = named.into_iter().chain(more).collect::<Vec<_>>();
        walk.emit_raised(RaisedEvent::of(event_type, fields));
    }
}

fn interaction_id(thread: &ThreadMachine, effect: EffectId) -> String {
    format!("{}.{effect}", thread.thread_id())
}
