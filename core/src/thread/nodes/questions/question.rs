//! An open question to a person. USER_INTERACTION nodes have one, and tool calls that need approval.

use std::sync::Arc;

use pirn_definition::Millis;
use pirn_definition::error::RunError;
use pirn_definition::event_type::EventType;
use pirn_events::event::RaisedEvent;
use serde_json::{Map, Value, json};

use crate::thread::context::{StepContext, failure};
use crate::thread::data::effect::{Effect, EffectId, Outcome, PersonsAnswer, TimerPurpose};
use crate::thread::data::question::{ClientCall, Interaction, OpenQuestion, ToolConsent};
use crate::thread::machine::ThreadMachine;

/// Content of a question, without its location.
#[derive(Default)]
pub(in crate::thread::nodes) struct QuestionContent {
    pub(in crate::thread::nodes) question: Arc<str>,
    pub(in crate::thread::nodes) assignee: Option<Arc<str>>,
    pub(in crate::thread::nodes) schema: Option<Arc<Map<String, Value>>>,
    pub(in crate::thread::nodes) choices: Option<Arc<Vec<Value>>>,
    pub(in crate::thread::nodes) timeout_ms: Option<Millis>,
    pub(in crate::thread::nodes) tool: Option<Arc<ToolConsent>>,
    pub(in crate::thread::nodes) client_tool: Option<Arc<ClientCall>>,
    /// True for a question of a script. The schema has not been validated, in contrast to that of a node.
    pub(in crate::thread::nodes) is_of_script: bool,
}

impl QuestionContent {
    /// Adds the location.
    pub(in crate::thread::nodes) fn of(self, thread: &ThreadMachine, id: EffectId) -> Interaction {
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
            client_tool: self.client_tool,
        }
    }
}

/// End of a question.
pub(in crate::thread::nodes) enum QuestionOutcome {
    /// A person answered.
    Answered(PersonsAnswer),
    /// The time limit passed without an answer.
    NobodyInTime,
    /// The host failed to ask.
    Failed(RunError),
}

impl OpenQuestion {
    /// Opens a question.
    pub(in crate::thread::nodes) fn put(cx: &mut StepContext<'_>, content: QuestionContent) -> Self {
        let (id, timeout_ms) = (cx.next_effect(), content.timeout_ms);
        let unchecked_schema = content.schema.clone().filter(|_| content.is_of_script);
        // Checked here, because the fields need clones of schema and choices.
        if cx.listens(EventType::InteractionRequested) {
            let asked = content.of(cx.thread, id);
            // Absent instead of null for the question of a USER_INTERACTION node.
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
            let client_tool = asked.client_tool.as_ref().map(|call| ("clientTool", json!(call)));
            let fields = fields.into_iter().chain(tool).chain(client_tool).collect::<Vec<_>>();
            cx.emit_raised(RaisedEvent::of(EventType::InteractionRequested, fields));
        }
        // After the event: an answer cannot precede the announcement of its question.
        cx.out.push(Effect::Ask {
            id,
            node: cx.thread.at,
            unchecked_schema,
        });
        // Not `StepContext::limit`: the node's limit fails the attempt, this one ends the question only.
        let timer = timeout_ms.map(|after_ms| {
            let id = cx.next_effect();
            cx.out.push(Effect::Timer {
                id,
                node: cx.thread.at,
                after_ms,
                purpose: TimerPurpose::Limit,
            });
            id
        });
        Self { id, timer }
    }

    /// Processes an awaited answer and cancels the other effect.
    pub(in crate::thread::nodes) fn handle_answer(
        self,
        cx: &mut StepContext<'_>,
        effect: EffectId,
        outcome: Outcome,
    ) -> QuestionOutcome {
        // The person and the time limit race: the first answer in the queue decides, and the other effect is cancelled.
        if self.timer == Some(effect) {
            cx.out.push(Effect::Drop { id: self.id });
            self.emit(cx, EventType::InteractionTimedOut, []);
            return QuestionOutcome::NobodyInTime;
        }
        // An effect is awaited or cancelled: the timer is not awaited any more.
        if let Some(id) = self.timer {
            cx.out.push(Effect::Drop { id });
        }
        match outcome {
            Outcome::Answered(answer) => {
                let fields = [("answer", json!(answer.answer)), ("by", json!(answer.by))];
                self.emit(cx, EventType::InteractionAnswered, fields);
                QuestionOutcome::Answered(answer)
            }
            other => {
                // The announcement of the question may have been delivered already.
                self.emit(cx, EventType::InteractionWithdrawn, []);
                QuestionOutcome::Failed(failure(other))
            }
        }
    }

    /// Cancels the question.
    pub(in crate::thread::nodes) fn withdraw(self, cx: &mut StepContext<'_>) {
        cx.out.push(Effect::Drop { id: self.id });
        if let Some(id) = self.timer {
            cx.out.push(Effect::Drop { id });
        }
        // Notifies subscribers of INTERACTION_REQUESTED that the question no longer expects an answer.
        self.emit(cx, EventType::InteractionWithdrawn, []);
    }

    fn emit<const N: usize>(self, cx: &mut StepContext<'_>, event_type: EventType, more: [(&'static str, Value); N]) {
        if !cx.listens(event_type) {
            return;
        }
        // Reborrowed, because `emit_raised` below needs the whole context.
        let thread = &*cx.thread;
        let named = [
            ("interactionId", json!(interaction_id(thread, self.id))),
            ("nodeId", json!(thread.graph().node(thread.at).id)),
        ];
        let fields = named.into_iter().chain(more).collect::<Vec<_>>();
        cx.emit_raised(RaisedEvent::of(event_type, fields));
    }
}

fn interaction_id(thread: &ThreadMachine, effect: EffectId) -> String {
    // Unique without a counter: effect ids are never reused in a thread.
    format!("{}.{effect}", thread.thread_id())
}
