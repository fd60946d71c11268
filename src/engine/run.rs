//! Builder of a run, with all options except its input.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use pirn_actors::engine::{RunRequest, SessionRequest};
use pirn_actors::events::{Deliver, Subscription};
use pirn_core::run::AnswerRefused;
use pirn_core::thread::Interaction;
use pirn_definition::Millis;
use pirn_definition::definition::{Pinned, ToolDefinition};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::value::{MAX_LEVELS, TOO_DEEP};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::Formatter;

use super::{AutoResponder, BlockingEvents, Engine, Events, History, RunHandle, events};

/// Builder of a run: `engine.run("id").input(json!({})).start()?`.
pub struct RunBuilder {
    pub(super) engine: Engine,
    pub(super) run_id: Arc<str>,
    pub(super) request: RunRequest,
    subscriptions: Vec<Subscription>,
    /// Reason why the input is invalid; returned when the run is started.
    invalid: Option<RunError>,
    keeps_on_failure: bool,
    answers: Option<AutoResponder>,
}

/// Message for a run that is to keep its outcome on failure and has no session.
const KEPT_NOWHERE: &str =
    "keep_on_failure stores a failed run's conversation and variables in its session: name a session";

impl RunBuilder {
    pub(super) fn new(engine: Engine, workflow_id: String) -> Self {
        Self {
            run_id: engine.shared.next_run_id(),
            engine,
            request: RunRequest {
                workflow_id,
                ..RunRequest::default()
            },
            subscriptions: Vec::new(),
            invalid: None,
            keeps_on_failure: false,
            answers: None,
        }
    }

    /// Sets the run's input (default null): a JSON value, or anything that serializes to one. Other values (such as a map whose
    /// keys are not strings) cause INVALID_INPUT when the run is started.
    #[must_use]
    pub fn input(mut self, input: impl Serialize) -> Self {
        match input_of(input) {
            // The error is kept until the start, so that a builder chain has one place to fail, and a later valid input clears it.
            Ok(input) => (self.request.input, self.invalid) = (input, None),
            Err(invalid) => self.invalid = Some(invalid),
        }
        self
    }

    /// Sets the run's id instead of a generated one. Call it before subscribing to events. An id of a run in progress is refused
    /// when this run is started.
    #[must_use]
    pub fn run_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.run_id = id.into();
        self
    }

    /// Sets the start of the main thread's conversation. The tokens of messages are counted here; those of an [`Engine::history`]
    /// already were.
    #[must_use]
    pub fn conversation(mut self, messages: impl Into<History>) -> Self {
        self.request.conversation = self.engine.history(&self.request.workflow_id, messages);
        self
    }

    /// Sets pinned context in addition to the workflow's; its sections take precedence.
    #[must_use]
    pub fn pinned(mut self, pinned: Pinned) -> Self {
        self.request.pinned = pinned;
        self
    }

    /// Sets metadata of the run, such as a tenant or a user. Models, tools and functions registered in Rust receive it
    /// ([`CallContext::metadata`](crate::tools::CallContext)), and the API key of a profile can depend on it. Runs that this run's
    /// triggers start inherit it. It is not part of model requests, and expressions and templates cannot read it.
    ///
    /// ```
    /// # use pirn::serde_json::{Value, json};
    /// let engine = pirn::Engine::builder()
    ///     .function("whose", |input| Ok(input.context().metadata["tenant"].clone()))
    ///     .workflows(r#"{"id": "ask", "nodes": [{"id": "s", "type": "START"},
    ///         {"id": "f", "type": "CODE", "config": {"function": "whose"}}, {"id": "e", "type": "END"}],
    ///       "edges": [{"from": "s", "to": "f"}, {"from": "f", "to": "e"}]}"#)
    ///     .build()?;
    /// let run = engine.run("ask").metadata([("tenant", "acme")]).start()?;
    /// assert_eq!(run.outcome_blocking().output, json!("acme"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn metadata<K: Into<String>, V: Into<Value>>(mut self, entries: impl IntoIterator<Item = (K, V)>) -> Self {
        let entries = entries.into_iter().map(|(name, value)| (name.into(), value.into()));
        self.request.metadata = Some(Arc::new(entries.collect()));
        self
    }

    /// Offers tools that the caller executes: the models of the main thread's LLM nodes receive them in addition to the tools of
    /// their nodes (`clientTools` of a node changes this). A call is a question with a
    /// [`client_tool`](crate::Interaction::client_tool): the run waits until
    /// [`RunHandle::answer_tool`](super::RunHandle::answer_tool) sends the result. The definitions are part of the run's record, so
    /// that a durable run waits across restarts. [`start`](Self::start) refuses too many or invalid definitions, and a name that a
    /// tool of such a node has, with `INVALID_INPUT`.
    ///
    /// ```
    /// use pirn::ToolDefinition;
    /// # use pirn::serde_json::json;
    /// # let engine = pirn::Engine::builder()
    /// #     .workflows(r#"{"workflows": [{"id": "ask", "nodes": [{"id": "s", "type": "START"},
    /// #         {"id": "ask", "type": "LLM", "config": {"profileId": "m", "prompt": "Where am I?"}}, {"id": "e", "type": "END"}],
    /// #       "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]}],
    /// #       "profiles": [{"id": "m", "provider": "scripted", "responses": [
    /// #         {"toolCalls": [{"id": "c1", "name": "location", "arguments": {}}]}, {"content": "In Oslo."}]}]}"#)
    /// #     .build()?;
    /// let location = ToolDefinition {
    ///     name: "location".to_owned(),
    ///     description: "Returns the user's city.".to_owned(),
    ///     parameters: json!({"type": "object"}),
    /// };
    /// let run = engine.run("ask").client_tools(vec![location]).answers(
    ///     |question| question.client_tool.as_ref().map(|_call| json!({"output": "Oslo"})),
    ///     |_, refused| panic!("{refused}"),
    /// );
    /// assert_eq!(run.start()?.outcome_blocking().output["content"], "In Oslo.");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn client_tools(mut self, tools: Vec<ToolDefinition>) -> Self {
        self.request.client_tools = tools;
        self
    }

    /// Makes the run part of a session. The run starts from the conversation and the variables of scope `session` that the
    /// session's last run stored, and stores new ones when it completes. Runs of a session execute one after the other, in the
    /// order in which they were started. Messages of [`conversation`](Self::conversation) apply to the session's first run only.
    /// With a [store](crate::EngineBuilder::store), sessions are durable; without one they last as long as the engine, which
    /// retains the 10,000 most recently used.
    ///
    /// ```
    /// # use serde_json::json;
    /// # let engine = pirn::Engine::builder()
    /// #     .workflows(r#"{"id": "ask", "nodes": [{"id": "s", "type": "START"},
    /// #         {"id": "ask", "type": "LLM", "config": {"prompt": "{{input}}"}}, {"id": "e", "type": "END"}],
    /// #       "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]}"#)
    /// #     .build()?;
    /// for question in ["How?", "Why?"] {
    ///     engine.run("ask").input(question).session("chat-7").start()?;
    /// }
    /// let last = engine.run("ask").input("When?").session("chat-7").start()?.outcome_blocking();
    /// let said: Vec<&str> = last.conversation.messages.iter().map(|message| message.content.as_str()).collect();
    /// assert_eq!(said[..4], ["How?", "How?", "Why?", "Why?"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`start`](Self::start) is refused with `SESSION_BUSY` if the session has reached its [maximum of waiting
    /// runs](crate::EngineBuilder::max_waiting). A run fails with it if an earlier run of the session is in the store and has no
    /// owner.
    #[must_use]
    pub fn session(mut self, id: impl Into<Arc<str>>) -> Self {
        let id = id.into();
        self.request.session = Some(SessionRequest {
            id,
            keeps_on_failure: false,
        });
        self
    }

    /// Stores the outcome in the run's [session](Self::session) also if the run fails, is cancelled or times out. By default such a
    /// run leaves the session unchanged. A run without a session is refused with `INVALID_INPUT`.
    #[must_use]
    pub fn keep_on_failure(mut self) -> Self {
        self.keeps_on_failure = true;
        self
    }

    /// Stops the run after this duration on the engine's clock, with status TIMEOUT. If the workflow has a `config.timeoutMs` too,
    /// the earlier limit applies.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let engine = pirn::Engine::builder()
    /// #     .workflows(r#"{"id": "nap", "nodes": [{"id": "s", "type": "START"},
    /// #         {"id": "w", "type": "WAIT", "config": {"seconds": 600}}, {"id": "e", "type": "END"}],
    /// #       "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]}"#)
    /// #     .virtual_time(None)
    /// #     .build()?;
    /// let run = engine.run("nap").deadline(Duration::from_secs(5)).start()?;
    /// let report = run.outcome_blocking();
    /// assert_eq!((report.status, report.elapsed_ms), (pirn::ThreadStatus::Timeout, 5_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn deadline(mut self, limit: Duration) -> Self {
        // A limit beyond 584 million years is the same as none.
        let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        // The minimum is 1 ms: a limit that is rounded down to 0 would be due before the first step.
        self.request.deadline_ms = Some(ms.max(1));
        self
    }

    /// Answers the run's questions when they are raised: under virtual time before the clock advances. `give` returns `None` if it
    /// has no answer, and the question stays open; `refused` is called for an answer that does not fit the question. Both are
    /// called on the thread that executes the run.
    ///
    /// ```
    /// # use pirn::serde_json::{Value, json};
    /// # let engine = pirn::Engine::builder()
    /// #     .workflows(r#"{"id": "pay", "nodes": [{"id": "s", "type": "START"},
    /// #         {"id": "sure", "type": "USER_INTERACTION", "config": {"question": "Pay?"}}, {"id": "e", "type": "END"}],
    /// #       "edges": [{"from": "s", "to": "sure"}, {"from": "sure", "to": "e"}]}"#)
    /// #     .virtual_time(None)
    /// #     .build()?;
    /// let run = engine.run("pay").answers(|question| (&*question.node_id == "sure").then(|| json!("yes")), |_, _| ());
    /// assert_eq!(run.start()?.outcome_blocking().output["answer"], "yes");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn answers(
        mut self,
        give: impl Fn(&Interaction) -> Option<Value> + Send + Sync + 'static,
        refused: impl Fn(&Interaction, &AnswerRefused) + Send + Sync + 'static,
    ) -> Self {
        self.answers = Some(AutoResponder::new(
            move |question| Some((give(question)?, None, 0)),
            refused,
        ));
        self
    }

    /// Sets the number from which the run derives its random numbers (default: a new one).
    #[must_use]
    pub(crate) fn run_seed(mut self, seed: Option<u64>) -> Self {
        self.request.run_seed = seed;
        self
    }

    /// Like [`Self::answers`], with the person who answers and the milliseconds of virtual time until each answer.
    #[must_use]
    pub(crate) fn answers_later(
        mut self,
        give: impl Fn(&Interaction) -> Option<(Value, Option<Arc<str>>, Millis)> + Send + Sync + 'static,
        refused: impl Fn(&Interaction, &AnswerRefused) + Send + Sync + 'static,
    ) -> Self {
        self.answers = Some(AutoResponder::new(give, refused));
        self
    }

    /// Returns a stream of the run's events from the first one on, with a buffer of `capacity` events and of the memory that
    /// [`Events`] states. An empty `types` selects all types.
    pub fn events(&mut self, types: &[EventType], capacity: usize) -> Events {
        let (deliver, events) = self.engine.event_memory.stream(capacity);
        self.subscribe(types, deliver);
        events
    }

    /// Returns the run's events from the first one on, for a thread that blocks. An empty `types` selects all types.
    pub fn blocking_events(&mut self, types: &[EventType], capacity: usize) -> BlockingEvents {
        // The tag lets the iterator detect a thread on which blocking would stop the actors that produce the events.
        let (deliver, events) = events::blocking(capacity, Some(self.engine.runtime.downgrade()));
        self.subscribe(types, deliver);
        events
    }

    pub(crate) fn subscribe(&mut self, types: &[EventType], deliver: Box<dyn Deliver>) {
        let types = types.to_vec();
        self.subscriptions.push(Subscription {
            types,
            after: 0,
            deliver,
        });
    }

    /// Validates what the builder was given, independent of the order of its calls.
    pub(super) fn settle(&mut self) -> Result<(), RunError> {
        // Checked here and not in the setters, because `session` may be called after `keep_on_failure`.
        if let Some(invalid) = self.invalid.take() {
            return Err(invalid);
        }
        if self.keeps_on_failure {
            let Some(session) = &mut self.request.session else {
                return Err(RunError::new(RunErrorCode::InvalidInput, KEPT_NOWHERE));
            };
            session.keeps_on_failure = true;
        }
        Ok(())
    }

    /// Starts it.
    pub fn start(mut self) -> Result<RunHandle, RunError> {
        self.settle()?;
        let engine = self.engine;
        if engine.runtime.is_virtual() {
            // Events without a subscriber are not built, and an event that is not sent takes no scheduling turn, so a subscriber
            // would change the order of a simulated run. Subscribing here makes every run take the order of an observed one.
            let types = Vec::new();
            let deliver = Box::new(events::NullSubscriber);
            let silent = Subscription {
                types,
                after: 0,
                deliver,
            };
            self.subscriptions.insert(0, silent);
        }
        self.subscriptions
            .extend(self.answers.iter().map(|answers| answers.subscription(0)));
        // Two phases: the run takes its first step only in `go`, so no question can be raised before `answers` knows the run.
        let (started, admitted) = engine.shared.admit_run(self.run_id, self.request, self.subscriptions)?;
        if let Some(answers) = self.answers {
            answers.of_run(&started);
        }
        admitted.go()?;
        Ok(RunHandle::new(started, engine.runtime))
    }
}

/// Serializes a run's input; INVALID_INPUT if it cannot be represented as JSON, or is nested too deeply.
pub(crate) fn input_of(input: impl Serialize) -> Result<Value, RunError> {
    let invalid = |message: String| RunError::new(RunErrorCode::InvalidInput, message);
    // First without a result, because `to_value` recurses without a limit and overflows the stack.
    let mut measure = serde_json::Serializer::with_formatter(std::io::sink(), LevelLimit::default());
    if input.serialize(&mut measure).is_err_and(|error| error.is_io()) {
        return Err(invalid(format!("the input: {TOO_DEEP}")));
    }
    serde_json::to_value(input).map_err(|error| invalid(error.to_string()))
}

/// Ends a serialization at the first list or object beyond [`MAX_LEVELS`].
#[derive(Default)]
struct LevelLimit {
    levels: usize,
}

impl LevelLimit {
    fn open(&mut self) -> std::io::Result<()> {
        self.levels += 1;
        if self.levels > MAX_LEVELS {
            return Err(std::io::Error::other(TOO_DEEP));
        }
        Ok(())
    }
}

impl Formatter for LevelLimit {
    fn begin_array<W: ?Sized + Write>(&mut self, _writer: &mut W) -> std::io::Result<()> {
        self.open()
    }

    fn end_array<W: ?Sized + Write>(&mut self, _writer: &mut W) -> std::io::Result<()> {
        self.levels -= 1;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, _writer: &mut W) -> std::io::Result<()> {
        self.open()
    }

    fn end_object<W: ?Sized + Write>(&mut self, _writer: &mut W) -> std::io::Result<()> {
        self.levels -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_of_many_levels_is_refused_without_a_stack_overflow() {
        let nested = |levels: usize| (0..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        assert!(input_of(nested(MAX_LEVELS)).is_ok());
        for levels in [MAX_LEVELS + 1, 2_000] {
            let error = input_of(nested(levels)).expect_err("it is too deep");
            assert_eq!(error.code, RunErrorCode::InvalidInput);
            assert_eq!(error.message, format!("the input: {TOO_DEEP}"));
        }
        let siblings = Value::Array(vec![nested(MAX_LEVELS - 1); 3]);
        assert!(input_of(siblings).is_ok());
    }
}
