//! One firing of a trigger that starts a workflow.

use std::sync::Arc;

use pirn_core::definition::{TriggerAction, TriggerDefinition};
use pirn_core::event::{Event, EventType};
use pirn_core::thread::FiringId;
use serde_json::Value;

use crate::answer::Answer;
use crate::engine::{DetachedRun, EngineShared, OnEnd};
use crate::supervisor::SupervisorMsg;
use crate::triggers::{TriggerMatcherActor, depth_after, event_fields, failure};

/// A sub-workflow that a trigger starts for a thread.
#[derive(Clone, Debug)]
pub(crate) struct Firing {
    pub(crate) id: FiringId,
    pub(crate) trigger: Arc<TriggerDefinition>,
    pub(crate) event: Arc<Event>,
}

impl Firing {
    /// How many triggers stand between the run's own steps and what it does.
    pub(crate) fn trigger_depth(&self) -> u32 {
        depth_after(&self.event)
    }

    /// Whether a token event set it off.
    pub(crate) fn is_token_event(&self) -> bool {
        matches!(
            self.event.raised.event_type,
            EventType::TokenLimitExceeded | EventType::TokenUsageWarning
        )
    }

    /// Whether it needs nothing of the thread that raised the event: what it starts gets the event alone.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.trigger.action, TriggerAction::StartWorkflow { .. }) && !self.is_token_event()
    }

    /// The detached run that it starts; none where it starts none.
    pub(crate) fn detached(&self, on_end: OnEnd) -> Option<DetachedRun> {
        let TriggerAction::StartWorkflow { workflow_id, input } = &self.trigger.action else {
            return None;
        };
        let fields = input.as_ref().map_or(&[][..], |input| &input.fields);
        Some(DetachedRun {
            workflow_id: workflow_id.clone(),
            input: Value::Object(event_fields(&self.event, fields)),
            messages: Vec::new(),
            is_unlimited: false,
            trigger_depth: self.trigger_depth(),
            on_end,
        })
    }

    /// Has the event's run start it, for its record. A run that is over has none to keep: it is started all the same.
    pub(crate) fn start_alone(self, engine: &Arc<EngineShared>) {
        let run_id = Arc::clone(&self.event.run_id);
        let (own, without) = (Arc::clone(engine), self.clone());
        let taken = Answer::new(move |taken: Result<(), _>| {
            if taken.is_err() {
                without.start_unrecorded(&own);
            }
        });
        let firing = Box::new(self);
        // Where the run is gone the message is dropped, and with it the answer.
        let _: Result<(), String> = engine.tell_run(&run_id, SupervisorMsg::FireAlone { firing, taken });
    }

    fn start_unrecorded(&self, engine: &Arc<EngineShared>) {
        let trigger = self.trigger.id.clone();
        let detached = self.detached(Box::new(move |report| {
            if let Some(error) = &report.error {
                let workflow = &report.workflow_id;
                tracing::warn!(%error, trigger, workflow, "a workflow that a trigger started failed");
            }
        }));
        if let Some(Err(error)) = detached.map(|run| engine.start_detached(run)) {
            let failed = failure(&self.trigger.id, &error.to_string());
            TriggerMatcherActor::raise(engine, &self.event, failed);
        }
    }
}
