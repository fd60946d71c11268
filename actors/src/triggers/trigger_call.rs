//! Calls made by triggers: functions and the notification hook.
//!
//! The matcher makes them inline, except for a durable run: that one makes them itself, as effects that start once the inputs
//! before them are durable.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::future::BoxFuture;
use pirn_core::run::{CallNo, CallTarget, Message, ToSupervisor, TriggerCall};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_events::event::Event;
use serde_json::{Map, Value};

use super::follow_up::depth_after;
use crate::answer::{Answer, Lost};
use crate::calls::call_context::CallContext;
use crate::calls::current_call::{EffectName, call_of, work_of};
use crate::calls::input::firing_value;
use crate::host::WorkHandle;
use crate::ports::{Function, Input, Ports, WorkFunction};
use crate::protocol::supervisor::{SupervisorHandle, SupervisorMsg};
use crate::run::turn::Turn;

/// Asynchronous calls of a durable run. Dropping one cancels it.
#[derive(Default)]
pub(crate) struct RunningCalls(BTreeMap<CallNo, WorkHandle>);

impl RunningCalls {
    pub(crate) fn begun(&mut self, call: CallNo, work: WorkHandle) {
        self.0.insert(call, work);
    }

    pub(crate) fn ended(&mut self, call: CallNo) {
        // The work has ended, so the drop of its handle aborts nothing.
        self.0.remove(&call);
    }
}

/// Starts a call of a durable run. Returns the handle of an asynchronous call.
pub(crate) fn begin(call: CallNo, what: &TriggerCall, turn: &mut Turn<'_>) -> Option<WorkHandle> {
    let run = turn.run;
    let effect = || {
        let run_id = Arc::clone(&run.run_id);
        Some(EffectName::TriggerCall { run_id, call })
    };
    let supervisor = &run.supervisor;
    let context = || CallContext {
        metadata: supervisor.metadata().cloned().unwrap_or_default(),
        ..context_of(&what.event)
    };
    let done = match &what.target {
        CallTarget::Notification { message, channel } => {
            notify(run.ports(), &what.event, effect(), message, channel.as_deref())
        }
        CallTarget::Function { name, parameters } => match run.ports().functions.get(name) {
            Some(Function::Inline(function)) => {
                let input = firing_value(&what.event, parameters);
                let call = || function(&Input::from(&input).called_from(&context));
                let call = || call_of(depth_after(&what.event), effect(), call);
                // The function runs in the run's turn; its panic must fail only this call.
                match catch_unwind(AssertUnwindSafe(call)) {
                    Ok(called) => called.map(drop).map_err(failed),
                    Err(_) => Err(failed(format!("function {name} panicked"))),
                }
            }
            Some(Function::Work(function)) => {
                let work = work(function, &what.event, parameters, context(), effect());
                let answer = answer(call, supervisor);
                let work = Box::pin(async move { answer.give(work.await) });
                return Some(run.host.work(None, work));
            }
            None => Err(failed(format!("no function is registered under the name {name}"))),
        },
    };
    // An immediate result is an input too, so that a replay does not repeat the call.
    run.deliver(turn.machine, called(call, done));
    None
}

/// Calls the engine's notification hook.
pub(crate) fn notify(
    ports: &Ports,
    event: &Event,
    effect: Option<EffectName>,
    message: &str,
    channel: Option<&str>,
) -> Result<(), RunError> {
    let notify = || call_of(depth_after(event), effect, || (ports.notify)(message, channel));
    // The hook is code of the embedding program.
    catch_unwind(AssertUnwindSafe(notify)).map_err(|_| failed("the engine's notification hook panicked"))
}

/// Starts an async function.
pub(crate) fn work(
    function: &Arc<WorkFunction>,
    event: &Event,
    parameters: &Map<String, Value>,
    context: CallContext,
    effect: Option<EffectName>,
) -> BoxFuture<'static, Result<Value, String>> {
    let input = firing_value(event, parameters);
    work_of(depth_after(event), effect, || function(input, context))
}

/// Origin of a trigger's function call: the thread that raised the event.
pub(crate) fn context_of(event: &Event) -> CallContext {
    CallContext {
        run_id: Arc::clone(&event.run_id),
        thread_id: Arc::clone(&event.thread_id),
        workflow_id: Arc::clone(&event.workflow_id),
        ..CallContext::default()
    }
}

/// Error for an action that failed for a reason other than its text.
pub(crate) fn failed(message: impl Into<String>) -> RunError {
    RunError::new(RunErrorCode::NodeFailed, message)
}

fn answer(call: CallNo, supervisor: &Arc<SupervisorHandle>) -> Answer<Result<Value, String>> {
    let supervisor = Arc::clone(supervisor);
    Answer::new(move |result: Result<Result<Value, String>, Lost>| {
        let done = match result {
            Ok(done) => done.map(drop).map_err(failed),
            Err(lost) => Err(failed(lost.to_string())),
        };
        supervisor.do_send(SupervisorMsg::Tell(called(call, done)));
    })
}

fn called(call: CallNo, done: Result<(), RunError>) -> Message {
    let error = done.err();
    Message::Supervisor(ToSupervisor::TriggerCalled { call, error })
}
