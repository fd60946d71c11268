//! Calls of triggers that fired: functions and notifications. A run that is kept has them made itself, as effects of its own:
//! each is in its record before it begins, and its end is.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::message::FollowUp;
use super::step::Step;
use super::{Effect, RunMachine};
use crate::definition::InDoubt;
use crate::error::RunError;
use crate::event::{Event, EventType, RaisedEvent};

/// Names a call of a trigger in its run.
pub type CallNo = u64;

/// A call of a trigger that fired.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TriggerCall {
    /// The trigger.
    pub trigger_id: Arc<str>,
    /// The event it fired on.
    pub event: Arc<Event>,
    /// The function or the hook.
    pub target: CallTarget,
    /// The policy where the process ends meanwhile.
    pub in_doubt: InDoubt,
    /// The run's outcome waits for its end; else what is left of the run does.
    pub holds_outcome: bool,
}

/// The function or the hook that a trigger calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallTarget {
    /// A registered function.
    Function {
        /// Its name.
        name: String,
        /// Passed to it, beside the event.
        parameters: Map<String, Value>,
    },
    /// The engine's notification hook.
    Notification {
        /// The text.
        message: String,
        /// Free word for the hook.
        channel: Option<String>,
    },
}

/// The calls of a run's triggers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct TriggerCalls {
    last: CallNo,
    open: BTreeMap<CallNo, Arc<TriggerCall>>,
}

impl RunMachine {
    /// A trigger fired that calls something.
    pub(super) fn call_trigger(&mut self, what: Arc<TriggerCall>, step: &mut Step<'_>) {
        let calls = self.trigger_calls.get_or_insert_default();
        calls.last += 1;
        let call = calls.last;
        calls.open.insert(call, Arc::clone(&what));
        step.out.push(Effect::CallTrigger { call, what });
    }

    /// A call has ended, well or not.
    pub(super) fn trigger_called(&mut self, call: CallNo, error: Option<RunError>, step: &mut Step<'_>) {
        let open = self.trigger_calls.as_mut().map(|calls| &mut calls.open);
        let Some(called) = open.and_then(|open| open.remove(&call)) else {
            return;
        };
        let event = &called.event;
        let thread = self.thread_of(&event.thread_id).unwrap_or_default();
        let trigger = || ("triggerId", json!(called.trigger_id));
        let follows = match (error, &called.target) {
            (Some(error), _) => Some((EventType::TriggerFailed, [trigger(), ("error", json!(error))])),
            (None, CallTarget::Notification { message, .. }) => {
                Some((EventType::Notification, [("message", json!(message)), trigger()]))
            }
            (None, CallTarget::Function { .. }) => None,
        };
        if let Some((event_type, fields)) = follows.filter(|(event_type, _)| step.listens(*event_type)) {
            let follow_up = FollowUp {
                thread,
                event: RaisedEvent::new(event_type, fields).at_depth(event.raised.trigger_depth + 1),
            };
            self.follow_up(follow_up, step);
        }
        self.look_for_the_end(step);
    }

    /// Calls that have not ended.
    pub(super) fn open_calls(&self) -> usize {
        self.trigger_calls.as_ref().map_or(0, |calls| calls.open.len())
    }

    /// Those that the run's outcome waits for.
    pub(super) fn calls_before_outcome(&self) -> usize {
        let calls = self.trigger_calls.iter().flat_map(|calls| calls.open.values());
        calls.filter(|call| call.holds_outcome).count()
    }
}
