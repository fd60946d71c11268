//! Answers that a program gives to questions when they are raised.

use std::sync::{Arc, OnceLock};

use pirn_actors::engine::StartedRun;
use pirn_actors::events::{Deliver, Delivery, Subscription, Undelivered};
use pirn_actors::host::survive;
use pirn_core::run::AnswerRefused;
use pirn_core::thread::{ClientCall, Interaction, ToolConsent};
use pirn_definition::Millis;
use pirn_definition::event_type::EventType;
use pirn_events::event::Event;
use serde::Deserialize;
use serde_json::Value;

use super::runtime::virtual_host;

/// Returns an answer to a question with the person who answers and the milliseconds until it is given, or `None`.
type GiveAnswer = dyn Fn(&Interaction) -> Option<(Value, Option<Arc<str>>, Millis)> + Send + Sync;

/// Callback for an answer that was refused.
type HearRefusal = dyn Fn(&Interaction, &AnswerRefused) + Send + Sync;

/// Answers the questions of one run when their event is delivered: under virtual time before the clock advances.
#[derive(Clone)]
pub(crate) struct AutoResponder {
    give: Arc<GiveAnswer>,
    refused: Arc<HearRefusal>,
    /// Set before the run's first step.
    run: Arc<OnceLock<StartedRun>>,
}

impl AutoResponder {
    pub(crate) fn new(
        give: impl Fn(&Interaction) -> Option<(Value, Option<Arc<str>>, Millis)> + Send + Sync + 'static,
        refused: impl Fn(&Interaction, &AnswerRefused) + Send + Sync + 'static,
    ) -> Self {
        Self {
            give: Arc::new(give),
            refused: Arc::new(refused),
            run: Arc::default(),
        }
    }

    /// Sets the run to which the answers belong.
    pub(crate) fn of_run(&self, run: &StartedRun) {
        // An instance serves one run, so later calls have no effect.
        self.run.get_or_init(|| run.clone());
    }

    /// Returns a subscription to the questions after the event with this sequence number.
    pub(crate) fn subscription(&self, after: u64) -> Subscription {
        Subscription {
            types: vec![EventType::InteractionRequested],
            after,
            deliver: Box::new(self.clone()),
        }
    }

    /// Answers an open question.
    pub(crate) fn asked(&self, question: Interaction) {
        // Without an answer the question stays open for a person or for its timeout.
        let given = survive("the answer to a question", || (self.give)(&question)).flatten();
        let (Some(run), Some((answer, by, after))) = (self.run.get().cloned(), given) else {
            return;
        };
        let (id, refused) = (question.id.clone(), Arc::clone(&self.refused));
        let give = move || {
            run.answer(&id, Arc::new(answer), by, move |taken| {
                match taken {
                    // Another answer came first, or the question was already closed in a resumed run.
                    Ok(()) | Err(AnswerRefused::NotOpen) => {}
                    Err(error) => {
                        // Called on the run's actor, which must not end with the caller's panic.
                        survive("the report of a refused answer", || refused(&question, &error));
                    }
                }
            });
        };
        match virtual_host().filter(|_| after > 0) {
            Some(host) => host.after(None, after, give).detach(),
            // A real clock has no delays: only a simulated engine repeats the answers of a recording.
            None => give(),
        }
    }
}

impl Deliver for AutoResponder {
    fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered> {
        match delivery {
            Delivery::Event(event) => {
                if let Some(question) = question(&event) {
                    self.asked(question);
                }
            }
            // This subscriber accepts every event, so none is dropped.
            Delivery::Lagged(_) => {}
        }
        Ok(())
    }

    // The run has ended, so none of its questions is open.
    fn end(&mut self, _missed: u64) {}

    fn another(&self) -> Box<dyn Deliver> {
        Box::new(self.clone())
    }
}

/// Returns the question in an INTERACTION_REQUESTED event.
fn question(event: &Event) -> Option<Interaction> {
    let data = &event.raised.fields;
    let field = |name: &str| data.get(name).cloned().unwrap_or_default();
    let text = |name: &str| field(name).as_str().map(Arc::<str>::from);
    let object = |value: Value| match value {
        Value::Object(fields) => Some(Arc::new(fields)),
        _ => None,
    };
    let list = |value: Value| match value {
        Value::Array(items) => Some(Arc::new(items)),
        _ => None,
    };
    // The event repeats every field of the question, so no request to the run is needed, which could not be awaited here.
    Some(Interaction {
        id: text("interactionId")?.to_string(),
        node_id: text("nodeId")?,
        thread_id: Arc::clone(&event.thread_id),
        question: text("question")?,
        assignee: text("assignee"),
        schema: object(field("schema")),
        choices: list(field("choices")),
        timeout_ms: field("timeoutMs").as_u64(),
        tool: data
            .get("tool")
            .and_then(|tool| ToolConsent::deserialize(tool).ok().map(Arc::new)),
        client_tool: data
            .get("clientTool")
            .and_then(|call| ClientCall::deserialize(call).ok().map(Arc::new)),
    })
}
