//! The caller's handle to a run.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use pirn_actors::engine::StartedRun;
use pirn_core::run::{AnswerRefused, MessageRefused, RunReport, RunStatus};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{Interaction, When};
use pirn_definition::definition::PinSection;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_events::event::{EventData, RaisedEvent};
use pirn_sync::{Lost, completion};
use serde_json::{Value, json};

use super::runtime::EngineRuntime;

/// A run that was started. Dropping the handle does not stop the run.
#[derive(Clone)]
pub struct RunHandle {
    started: StartedRun,
    runtime: EngineRuntime,
}

impl RunHandle {
    pub(super) fn new(started: StartedRun, runtime: EngineRuntime) -> Self {
        Self { started, runtime }
    }

    /// Returns the run's id.
    pub fn run_id(&self) -> &str {
        &self.started.run_id
    }

    /// Returns the time when the run began, in milliseconds since the Unix epoch, which is also its start in the store. `None` until
    /// the run has begun, and for a resumed run. The time is available after [`RunHandle::wait_durable`].
    pub fn started_at(&self) -> Option<u64> {
        self.started.started_at()
    }

    /// Waits for the run to end and returns its report. There is always a report: a run whose supervisor died ends FAILED with
    /// `ACTOR_PANICKED`.
    ///
    /// # Cancel safety
    /// Cancel safe: the run continues, and a later call returns the same report.
    pub async fn outcome(&self) -> Arc<RunReport> {
        self.started.outcome.wait().await.unwrap_or_else(|lost| self.lost(lost))
    }

    /// Like [`RunHandle::outcome`], for a thread that may block. The threads that run the engine's actors may not: the thread of a
    /// [local](super::EngineBuilder::local) engine, and the caller of an inline function. There a run that has not ended yields a
    /// report of status RUNNING with an error that explains this, and the run continues.
    pub fn outcome_blocking(&self) -> Arc<RunReport> {
        // Blocking here would stop the actor that has to end the run.
        if self.runtime.carries_actors_here() {
            return self.try_outcome().unwrap_or_else(|| self.would_wait_for_itself());
        }
        self.started
            .outcome
            .wait_blocking()
            .unwrap_or_else(|lost| self.lost(lost))
    }

    /// Returns the outcome if the run has ended.
    pub fn try_outcome(&self) -> Option<Arc<RunReport>> {
        self.started
            .outcome
            .peek()
            .map(|outcome| outcome.unwrap_or_else(|lost| self.lost(lost)))
    }

    /// Waits until everything that the run started has ended too, including detached branches.
    ///
    /// # Cancel safety
    /// Cancel safe: the run continues.
    pub async fn wait_all_ended(&self) {
        // An error means that the run's actor is gone, so the run has settled.
        let _: Result<(), Lost> = self.started.settled.wait().await;
    }

    /// Like [`RunHandle::wait_all_ended`], for a thread that may block. On a thread that runs the engine's actors it returns at once.
    pub fn wait_all_ended_blocking(&self) {
        if self.runtime.carries_actors_here() {
            return;
        }
        // As in `wait_all_ended`, a lost completion means that the run's actor is gone.
        let _: Result<(), Lost> = self.started.settled.wait_blocking();
    }

    /// Cancels the run with this reason; it ends CANCELLED. Has no effect on a run that has ended.
    pub fn cancel(&self, reason: impl Into<String>) {
        self.started.cancel(reason);
        self.runtime.wake();
    }

    /// Ends a durable run in this process, to be resumed in another: its outcome here is an error with that reason. A run that is
    /// not durable is cancelled.
    pub fn release(&self) {
        self.started.leave();
        self.runtime.wake();
    }

    /// Returns a guard that cancels the run with this reason on drop: for a request with a client that may disconnect.
    ///
    /// ```
    /// # let engine = pirn::Engine::builder()
    /// #     .workflows(r#"{"id": "nap", "nodes": [{"id": "s", "type": "START"},
    /// #         {"id": "w", "type": "WAIT", "config": {"seconds": 600}}, {"id": "e", "type": "END"}],
    /// #       "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]}"#)
    /// #     .build()?;
    /// let run = engine.start("nap", serde_json::Value::Null)?;
    /// drop(run.cancel_on_drop("the client went away"));
    /// assert_eq!(run.outcome_blocking().status, pirn::ThreadStatus::Cancelled);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_on_drop(&self, reason: impl Into<String>) -> CancelOnDrop {
        CancelOnDrop {
            // An option, so that `disarm` can take the run out before the drop.
            run: Some((self.clone(), reason.into())),
        }
    }

    /// Stops every thread of the run at its next safe point.
    pub fn pause(&self) {
        // Under virtual time the pause needs no wake: no thread reaches a safe point before another call wakes the clock.
        self.started.pause();
    }

    /// Resumes paused threads.
    pub fn resume(&self) {
        self.started.resume();
        self.runtime.wake();
    }

    /// Sets a section of the pinned context from the next model request on; null removes it.
    pub fn pin(&self, section: PinSection, value: Value) {
        // As with a pause, under virtual time the pin is visible only after another call has woken the clock.
        self.started.pin(section, value);
    }

    /// Raises a CUSTOM event in the run, for its WAIT nodes and triggers. An event that a function, a tool or the notification hook
    /// raises while a trigger calls it belongs to that trigger's cascade, whose depth is bounded. An event that they raise from
    /// another task or thread starts a new cascade, and only `maxTriggers` bounds the repetition.
    ///
    /// The name is a string or an `Arc<str>`, which is shared and not copied. The data is a map or, cheaper, an array: after
    /// `run.emit("paid", [("amount", json!(3))])` an expression reads `event.data.amount`. Data nested deeper than
    /// [`MAX_LEVELS`](pirn_definition::value::MAX_LEVELS), less one for the event, is logged and not raised.
    pub fn emit(&self, name: impl Into<Arc<str>>, data: impl Into<EventData>) {
        // The depth is read on the calling thread, because only a trigger's call on this very task or thread belongs to the
        // cascade.
        let event = RaisedEvent::custom(name, data);
        self.started
            .raise(event.at_depth(pirn_actors::current_call::trigger_depth()));
        self.runtime.wake();
    }

    /// Returns the questions that wait for a person, or an empty list once the run has settled.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only reads.
    pub async fn interactions(&self) -> Vec<Interaction> {
        let (setter, open) = completion();
        self.started.interactions(move |open| setter.set(open));
        self.runtime.wake();
        // A settled run no longer answers requests, so waiting for the answer alone could last for ever.
        match select(open.wait(), self.started.settled.wait()).await {
            Either::Left((open, _)) => open.unwrap_or_default(),
            // The answer may have arrived in the same moment as the end, and then it counts.
            Either::Right(_) => open.peek().and_then(Result::ok).unwrap_or_default(),
        }
    }

    /// Answers a question by its id, once. Open questions are answered in any order. In a durable run, an answer that was accepted
    /// is durable.
    ///
    /// # Cancel safety
    /// The answer is sent when the future is first polled. If the future is dropped later, the answer may or may not be accepted; a
    /// second answer to the same question is then refused.
    ///
    /// # Errors
    /// [`AnswerRefused`]: no question of this id is open, or the answer is not one of its `choices` or does not match its `schema`
    /// (checked with the feature `tools` or `providers`); then the question stays open. If the store fails during the call, the
    /// answer may or may not be recorded.
    pub async fn answer(&self, id: &str, answer: impl Into<Value>) -> Result<(), AnswerRefused> {
        self.answer_as(None, id, answer.into()).await
    }

    /// Like [`RunHandle::answer`], with the name of the person who answers, which is `by` in the node's output and the event.
    ///
    /// # Cancel safety
    /// As [`RunHandle::answer`].
    ///
    /// # Errors
    /// As [`RunHandle::answer`].
    pub async fn answer_by(
        &self,
        by: impl Into<Arc<str>>,
        id: &str,
        answer: impl Into<Value>,
    ) -> Result<(), AnswerRefused> {
        self.answer_as(Some(by.into()), id, answer.into()).await
    }

    /// Like [`RunHandle::answer`], with an optional name of the person who answers.
    ///
    /// # Cancel safety
    /// As [`RunHandle::answer`].
    ///
    /// # Errors
    /// As [`RunHandle::answer`].
    pub async fn answer_as(&self, by: Option<Arc<str>>, id: &str, answer: Value) -> Result<(), AnswerRefused> {
        let (setter, taken) = completion();
        self.started
            .answer(id, Arc::new(answer), by, move |result| setter.set(result));
        self.runtime.wake();
        match select(taken.wait(), self.started.settled.wait()).await {
            Either::Left((taken, _)) => taken.unwrap_or(Err(AnswerRefused::NotOpen)),
            // An answer that was accepted just before the run settled must not be reported as refused.
            Either::Right(_) => taken.peek().and_then(Result::ok).unwrap_or(Err(AnswerRefused::NotOpen)),
        }
    }

    /// Sends the result of a [client tool](super::RunBuilder::client_tools)'s call, by the id of its question: a value, or the text of
    /// an error for the model. Equivalent to [`RunHandle::answer`] with `{"output": VALUE}` or `{"error": TEXT}`.
    ///
    /// # Cancel safety
    /// As [`RunHandle::answer`].
    ///
    /// # Errors
    /// As [`RunHandle::answer`].
    pub async fn answer_tool(&self, id: &str, result: Result<Value, String>) -> Result<(), AnswerRefused> {
        let answer = match result {
            Ok(output) => json!({"output": output}),
            Err(error) => json!({"error": error}),
        };
        self.answer_as(None, id, answer).await
    }

    /// Sends a person's message to the model of the run's main conversation, as a user message. The run adds it before the next model
    /// request, or when an LLM node is about to finish ([`When`]); in both cases only when every tool call has its result. An LLM node
    /// that is about to finish while a message waits calls its model again. In a durable run, a message that was accepted is durable.
    ///
    /// If the run ends before its next model request, the message is in [`RunReport::waiting_messages`]. USER_MESSAGE events report
    /// the fate of each message.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # let engine = pirn::Engine::builder().workflows(r#"{"id": "chat", "nodes": [{"id": "s", "type": "START"},
    /// #     {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Ready?"}},
    /// #     {"id": "reply", "type": "LLM"}, {"id": "e", "type": "END"}],
    /// #     "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "reply"}, {"from": "reply", "to": "e"}]}"#).build()?;
    /// use pirn::When;
    ///
    /// let run = engine.start("chat", serde_json::Value::Null)?;
    /// run.say("Reply in English.", When::BeforeNextRequest).await?;
    /// # let question = loop {
    /// #     if let Some(question) = run.interactions().await.pop() { break question }
    /// # };
    /// # run.answer(&question.id, "yes").await?;
    /// # let report = run.outcome().await;
    /// # assert_eq!(report.conversation.messages.iter().next().unwrap().content, "Reply in English.");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// The message is sent when the future is first polled. If the future is dropped later, the message may or may not be accepted;
    /// [`RunHandle::say_as`] with an id can be repeated.
    ///
    /// # Errors
    /// [`MessageRefused`]: the run has ended, its main workflow calls no model, the text is empty or too long, or too many messages
    /// wait. If the store fails during the call, the message may or may not be recorded.
    pub async fn say(&self, text: impl Into<Arc<str>>, when: When) -> Result<(), MessageRefused> {
        self.say_as(None, text, when).await
    }

    /// Like [`RunHandle::say`], with an id for the message. The run ignores a message with an id that it has accepted before, so a
    /// caller that received no reply can send the message again. A run remembers the ids of its last 1,024 messages.
    ///
    /// # Cancel safety
    /// As [`RunHandle::say`].
    ///
    /// # Errors
    /// As [`RunHandle::say`].
    pub async fn say_as(
        &self,
        id: Option<Arc<str>>,
        text: impl Into<Arc<str>>,
        when: When,
    ) -> Result<(), MessageRefused> {
        let (setter, taken) = completion();
        self.started
            .say(id, text.into(), when, move |result| setter.set(result));
        self.runtime.wake();
        match select(taken.wait(), self.started.settled.wait()).await {
            Either::Left((taken, _)) => taken.unwrap_or(Err(MessageRefused::Ended)),
            // A message that was accepted just before the run settled must not be reported as refused.
            Either::Right(_) => taken.peek().and_then(Result::ok).unwrap_or(Err(MessageRefused::Ended)),
        }
    }

    /// Waits until all earlier inputs of the run are durable: events, pins and controls. Returns at once if runs are not persisted.
    ///
    /// # Cancel safety
    /// Cancel safe: the inputs become durable in any case.
    ///
    /// # Errors
    /// Fails if the store failed, or if the run ended before it received this request.
    pub async fn wait_durable(&self) -> Result<(), RunError> {
        let (setter, kept) = completion();
        self.started.await_durable(move |result| setter.set(result));
        self.runtime.wake();
        let ended = || Err(RunError::new(RunErrorCode::Cancelled, "the run has ended"));
        match select(kept.wait(), self.started.settled.wait()).await {
            Either::Left((kept, _)) => kept.unwrap_or_else(|_| ended()),
            // Without a reply before the end, nothing proves that the inputs are durable.
            Either::Right(_) => kept.peek().and_then(Result::ok).unwrap_or_else(ended),
        }
    }

    /// Returns the status of the run, or `None` once it has settled.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only reads.
    pub async fn status(&self) -> Option<RunStatus> {
        let (setter, status) = completion();
        self.started.status(move |status| setter.set(status));
        self.runtime.wake();
        // A mailbox that closes at this moment may retain the request until this handle is dropped, so also wait for the run to
        // settle.
        match select(status.wait(), self.started.settled.wait()).await {
            Either::Left((status, _)) => status.ok(),
            Either::Right(_) => status.peek().and_then(Result::ok),
        }
    }

    fn lost(&self, _: Lost) -> Arc<RunReport> {
        // A completion is lost either because the whole engine stopped or because this one actor died. Only the second is a defect.
        let (code, message) = if self.runtime.has_ended() {
            (RunErrorCode::Cancelled, "the engine has stopped")
        } else {
            (RunErrorCode::ActorPanicked, "the run's supervisor is gone")
        };
        self.unknown(ThreadStatus::Failed, RunError::new(code, message))
    }

    fn would_wait_for_itself(&self) -> Arc<RunReport> {
        let message = "this thread executes actors of the run's engine and would wait for itself: await `outcome`; a function \
                       that waits for a run must be async";
        self.unknown(ThreadStatus::Running, RunError::new(RunErrorCode::Overloaded, message))
    }

    /// Returns a report for a run of which only this status and error are available.
    fn unknown(&self, status: ThreadStatus, error: RunError) -> Arc<RunReport> {
        Arc::new(RunReport::unknown(self.run_id(), status, error))
    }
}

impl IntoFuture for RunHandle {
    type Output = Arc<RunReport>;
    type IntoFuture = BoxFuture<'static, Arc<RunReport>>;

    /// Returns a future of the run's [outcome](RunHandle::outcome), so that `engine.start(..)?.await` waits for the run.
    fn into_future(self) -> Self::IntoFuture {
        async move { self.outcome().await }.boxed()
    }
}

/// Cancels a run on drop, see [`RunHandle::cancel_on_drop`]. Has no effect on a run that has ended.
#[derive(Debug)]
#[must_use = "dropping it stops the run"]
pub struct CancelOnDrop {
    run: Option<(RunHandle, String)>,
}

impl CancelOnDrop {
    /// Disarms the guard: the run continues.
    pub fn disarm(mut self) {
        self.run = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // `cancel` has no effect on a run that has ended, so the guard needs no check.
        if let Some((run, reason)) = self.run.take() {
            run.cancel(reason);
        }
    }
}

impl std::fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunHandle")
            .field("run_id", &self.run_id())
            .finish_non_exhaustive()
    }
}
