//! Function calls and notifications of triggers. A durable run performs them as effects, so that start and end of each are
//! journaled.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_definition::definition::InDoubt;
use pirn_definition::error::RunError;
use pirn_definition::event_type::EventType;
use pirn_events::event::{Event, RaisedEvent};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::message::FollowUp;
use super::step::Step;
use super::{Effect, RunMachine};

/// Number of a trigger's call in its run.
pub type CallNo = u64;

/// A call by a trigger.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TriggerCall {
    /// Id of the trigger.
    pub trigger_id: Arc<str>,
    /// Event on which the trigger fired.
    pub event: Arc<Event>,
    /// Function or hook to call.
    pub target: CallTarget,
    /// Policy for a call that is interrupted by the end of the process.
    pub in_doubt: InDoubt,
    /// True if the run's outcome waits for the call; else only the run's settlement waits for it.
    pub holds_outcome: bool,
}

/// Target of a trigger's call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallTarget {
    /// A registered function.
    Function {
        /// Name of the function.
        name: String,
        /// Parameters, passed together with the event.
        parameters: Map<String, Value>,
    },
    /// The engine's notification hook.
    Notification {
        /// Text of the notification.
        message: String,
        /// Channel name, interpreted by the hook.
        channel: Option<String>,
    },
}

/// Open calls of a run's triggers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct TriggerCalls {
    last: CallNo,
    open: BTreeMap<CallNo, Arc<TriggerCall>>,
}

impl RunMachine {
    /// Starts a call for a trigger that fired.
    pub(super) fn call_trigger(&mut self, what: Arc<TriggerCall>, step: &mut Step<'_>) {
        let calls = self.trigger_calls.get_or_insert_default();
        calls.last += 1;
        let call = calls.last;
        // The run has not settled while a call is open: `left` counts these.
        calls.open.insert(call, Arc::clone(&what));
        step.out.push(Effect::CallTrigger { call, what });
    }

    /// Handles the end of a call, successful or not.
    pub(super) fn trigger_called(&mut self, call: CallNo, error: Option<RunError>, step: &mut Step<'_>) {
        let open = self.trigger_calls.as_mut().map(|calls| &mut calls.open);
        let Some(called) = open.and_then(|open| open.remove(&call)) else {
            return;
        };
        let event = &called.event;
        // The main thread raises the event if the call's event names no thread of this run.
        let thread = self.thread_of(&event.thread_id).unwrap_or_default();
        let trigger = || ("triggerId", json!(called.trigger_id));
        let follows = match (error, &called.target) {
            (Some(error), _) => Some((EventType::TriggerFailed, [trigger(), ("error", json!(error))])),
            (None, CallTarget::Notification { message, .. }) => {
                Some((EventType::Notification, [("message", json!(message)), trigger()]))
            }
            (None, CallTarget::Function { .. }) => None,
        };
        // Events of types without subscribers are not built.
        if let Some((event_type, fields)) = follows.filter(|(event_type, _)| step.listens(*event_type)) {
            let follow_up = FollowUp {
                thread,
                // One deeper than its cause, so that the chain limit also stops triggers that watch failures of triggers.
                event: RaisedEvent::new(event_type, fields).at_depth(event.raised.trigger_depth + 1),
            };
            self.follow_up(follow_up, step);
        }
        // After the event above: if a trigger watches it, the run does not settle before that trigger has acted.
        self.check_completion(step);
    }

    /// Returns the number of open calls.
    pub(super) fn open_calls(&self) -> usize {
        self.trigger_calls.as_ref().map_or(0, |calls| calls.open.len())
    }

    /// Returns the number of open calls for which the run's outcome waits.
    pub(super) fn calls_before_outcome(&self) -> usize {
        let calls = self.trigger_calls.iter().flat_map(|calls| calls.open.values());
        calls.filter(|call| call.holds_outcome).count()
    }
}
