//! Tests of the built-in models and of the registry.

mod registry;
mod retrying;
mod scripted;

use std::sync::{Arc, Mutex};

use pirn_actors::host::SimulatedHost;
use pirn_actors::ports::{CallContext, Model, ModelCall, ModelSession, TokenSink};
use pirn_conversation::conversation::{Estimator, ModelRequest, Repairs, message_cost};
use pirn_core::thread::ModelReply;
use pirn_definition::definition::Profile;
use pirn_definition::error::RunError;
use pirn_definition::message::{Message, Role};
use serde_json::{Value, json};

use crate::{Echo, Extractive};

/// One thread on a virtual clock.
struct Caller {
    host: SimulatedHost,
    session: ModelSession,
    messages: Vec<Message>,
    pinned: Option<(usize, usize)>,
}

impl Caller {
    fn new() -> Self {
        Self {
            host: SimulatedHost::new(None),
            session: ModelSession::default(),
            messages: Vec::new(),
            pinned: None,
        }
    }

    /// Creates a call from a thread with `text` as its only user message.
    fn saying(text: &str) -> Self {
        Self {
            messages: vec![Message::new(Role::User, text)],
            ..Self::new()
        }
    }

    fn model_call(&self, tokens: TokenSink) -> ModelCall {
        ModelCall {
            request: Arc::new(ModelRequest {
                messages: self.messages.iter().cloned().map(Arc::new).collect(),
                inserted_at: self.pinned.map(|(at, _)| at),
                inserted: self.pinned.map_or(0, |(_, count)| count),
                repeated: 0,
                repairs: Repairs::default(),
                tokens: 0,
            }),
            profile: Arc::default(),
            parameters: serde_json::Map::new(),
            own_parameters: serde_json::Map::new(),
            tools: Vec::new(),
            response_format: None,
            session: self.session.clone(),
            context: CallContext::default(),
            goes_on_from: Arc::default(),
            key_part: String::new(),
            clock: self.host.host().work_clock(),
            chance: 0,
            tokens,
        }
    }

    fn call(&self, model: &dyn Model) -> Result<ModelReply, RunError> {
        self.run(model, self.model_call(TokenSink::closed()))
    }

    fn run(&self, model: &dyn Model, call: ModelCall) -> Result<ModelReply, RunError> {
        self.host.block_on(model.call(call)).expect("it must end")
    }

    fn content(&self, model: &dyn Model) -> String {
        self.call(model).expect("a reply").content
    }
}

fn profile(value: Value) -> Profile {
    serde_json::from_value(value).expect("a profile")
}

#[test]
fn echo_repeats_the_last_user_message() {
    let mut caller = Caller::saying("first");
    caller.messages.push(Message::new(Role::User, "你好 there"));
    caller.messages.push(Message::new(Role::Assistant, "no"));
    assert_eq!(caller.content(&Echo), "你好 there");
    assert_eq!(Caller::new().content(&Echo), "");
}

#[test]
fn pinned_context_is_not_a_user_message() {
    let mut caller = Caller::saying("question");
    caller
        .messages
        .push(Message::new(Role::User, "## Agent Role Definition"));
    caller.messages.push(Message::new(Role::User, "todo"));
    caller.pinned = Some((1, 2));
    assert_eq!(caller.content(&Echo), "question");
    caller.pinned = Some((0, 1));
    assert_eq!(caller.content(&Echo), "todo");
}

#[test]
fn extractive_ignores_system_messages_and_accepts_parameters() {
    let mut caller = Caller::saying("The bridge is closed. The bridge is old. Jam is sweet.");
    caller.messages.insert(
        0,
        Message::new(Role::System, "Secret bridge rules. The bridge of rules."),
    );
    let mut call = caller.model_call(TokenSink::closed());
    call.parameters.insert("maxSentences".into(), json!(2));
    let reply = caller.run(&Extractive, call).expect("a reply");
    assert_eq!(reply.content, "The bridge is closed. The bridge is old.");

    let mut call = caller.model_call(TokenSink::closed());
    call.parameters.insert("maxTokens".into(), json!("many"));
    let error = caller.run(&Extractive, call).expect_err("bad parameter");
    assert!(error.to_string().starts_with("MODEL_ERROR: `maxTokens`"), "{error}");
}

#[test]
fn a_reply_is_streamed_word_by_word_to_an_open_sink() {
    let pieces = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&pieces);
    let sink = TokenSink::new(move |piece| heard.lock().unwrap().push(piece.to_owned()));
    let caller = Caller::saying("one two 三四");
    let call = caller.model_call(sink);
    caller.run(&Echo, call).expect("a reply");
    assert_eq!(*pieces.lock().unwrap(), ["one ", "two ", "三", "四"]);
}

#[test]
fn usage_equals_the_token_cost_of_the_messages() {
    let caller = Caller::saying("what is this");
    let cost = |role| message_cost(&Message::new(role, "what is this"), &Estimator);
    let usage = caller.call(&Echo).expect("a reply").usage;
    assert_eq!((usage.input, usage.output), (cost(Role::User), cost(Role::Assistant)));
    assert_eq!(usage.total, usage.input + usage.output);
    assert!(usage.input > 0);
}
