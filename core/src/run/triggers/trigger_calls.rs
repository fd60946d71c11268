//! Function calls and notifications of triggers. A durable run performs them as effects, so that start and end of each are
//! journaled.

use std::sync::Arc;

use pirn_definition::error::RunError;
use pirn_definition::event_type::EventType;
use pirn_events::event::RaisedEvent;
use serde_json::json;

use crate::run::data::effect::Effect;
use crate::run::data::message::FollowUp;
use crate::run::data::trigger::{CallNo, CallTarget, TriggerCall};
use crate::run::state::RunMachine;
use crate::run::step::Step;

impl RunMachine {
    /// Starts a call for a trigger that fired.
    pub(in crate::run) fn call_trigger(&mut self, what: Arc<TriggerCall>, step: &mut Step<'_>) {
        let calls = self.trigger_calls.get_or_insert_default();
        calls.last += 1;
        let call = calls.last;
        // The run has not settled while a call is open: `left` counts these.
        calls.open.insert(call, Arc::clone(&what));
        step.out.push(Effect::CallTrigger { call, what });
    }

    /// Handles the end of a call, successful or not.
    pub(in crate::run) fn trigger_called(&mut self, call: CallNo, error: Option<RunError>, step: &mut Step<'_>) {
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
                event: RaisedEvent::new(event_type, fields).at_depth(event.raised.trigger_depth.saturating_add(1)),
            };
            self.follow_up(follow_up, step);
        }
        // After the event above: if a trigger watches it, the run does not settle before that trigger has acted.
        self.check_completion(step);
    }

    /// Returns the number of open calls.
    pub(in crate::run) fn open_calls(&self) -> usize {
        self.trigger_calls.as_ref().map_or(0, |calls| calls.open.len())
    }

    /// Returns the number of open calls for which the run's outcome waits.
    pub(in crate::run) fn calls_before_outcome(&self) -> usize {
        let calls = self.trigger_calls.iter().flat_map(|calls| calls.open.values());
        calls.filter(|call| call.holds_outcome).count()
    }
}
