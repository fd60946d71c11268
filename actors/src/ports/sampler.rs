//! Model requests that a tool makes during its call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pirn_conversation::conversation::{ModelRequest, TokenUsage, repair_order};
use pirn_conversation::model_call::ModelFailure;
use pirn_core::thread::ModelReply;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::message::Message;
use serde_json::{Map, Value};

use super::{CallContext, ModelCall, ModelSession, Models, TokenSink, laid_over_profile};
use crate::host::{WorkClock, named_seed};

/// Maximum number of requests during one call of a tool.
pub const MAX_SAMPLES: u32 = 100;

/// Estimated characters per token, because no tokenizer counts these requests.
const CHARACTERS: usize = 4;

/// Sends model requests for one call of a tool. The reported usage is charged to the run of the call. Clones share one count.
#[derive(Clone)]
pub struct Sampler(Arc<Shared>);

struct Shared {
    models: Arc<dyn Models>,
    context: CallContext,
    clock: WorkClock,
    session: ModelSession,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    asked: u32,
    spent: TokenUsage,
}

impl Sampler {
    /// A sampler for a call from `context`.
    pub fn new(models: Arc<dyn Models>, context: CallContext, clock: WorkClock) -> Self {
        Self(Arc::new(Shared {
            models,
            context,
            clock,
            session: ModelSession::default(),
            state: Mutex::default(),
        }))
    }

    /// Sends a request to the model of a profile; `parameters` override the profile's. The messages, with system messages first,
    /// are repaired if the provider refuses their order.
    ///
    /// # Errors
    /// Errors of the model; `MODEL_ERROR` after [`MAX_SAMPLES`] requests.
    pub async fn ask(
        &self,
        profile_id: &str,
        messages: Vec<Message>,
        parameters: Map<String, Value>,
    ) -> Result<ModelReply, RunError> {
        // The lock must be released before the await below.
        let asked = {
            let mut state = self.state();
            state.asked += 1;
            state.asked
        };
        if asked > MAX_SAMPLES {
            let message = format!("a tool call may call models at most {MAX_SAMPLES} times");
            return Err(RunError::new(RunErrorCode::ModelError, message));
        }
        let shared = &self.0;
        let (profile, model) = shared.models.choose(Some(profile_id));
        let (messages, repairs) = repair_order(model.message_rules(), messages);
        let characters: usize = messages.iter().map(|message| message.content.len()).sum();
        let CallContext { run_id, thread_id, .. } = &shared.context;
        let call = ModelCall {
            request: Arc::new(ModelRequest {
                messages: messages.into_iter().map(Arc::new).collect(),
                inserted_at: None,
                inserted: 0,
                repeated: 0,
                repairs,
                tokens: (characters / CHARACTERS) as u64,
            }),
            parameters: laid_over_profile(&profile, Some(&parameters)),
            profile,
            own_parameters: parameters,
            tools: Vec::new(),
            response_format: None,
            session: shared.session.clone(),
            context: shared.context.clone(),
            goes_on_from: Arc::clone(&shared.context.thread_id),
            // Distinguishes the idempotency keys of the requests of one tool call.
            key_part: format!("-{asked}"),
            clock: shared.clock.clone(),
            // Derived from the position in the run, so that virtual time reproduces it.
            chance: named_seed(0, &format!("{run_id} {thread_id} {asked}")),
            tokens: TokenSink::closed(),
        };
        let mut charge = Charge {
            sampler: self,
            spent: TokenUsage::new(call.request.tokens, 0, call.request.tokens),
        };
        let answered = model.call(call).await;
        // A failed request may have used tokens too.
        charge.spent = match &answered {
            Ok(reply) => reply.usage,
            Err(error) => ModelFailure::of(error).spent,
        };
        answered
    }

    /// Tokens spent so far.
    pub fn spent(&self) -> TokenUsage {
        self.state().spent
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Poisoning is ignored: the counters are valid after a panic too.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The usage of one request, counted when it ends. A request that is dropped before its reply counts its estimated input: the
/// provider reports no usage, but has read the messages.
struct Charge<'s> {
    sampler: &'s Sampler,
    spent: TokenUsage,
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.sampler.state().spent.add(self.spent);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use pirn_conversation::conversation::{MessageRules, USER_FIRST, USER_LAST};
    use pirn_definition::definition::Profile;
    use pirn_definition::message::Role;

    use super::*;
    use crate::host::SimulatedHost;
    use crate::ports::Model;

    /// A model with strict rules that replies with the messages of its request.
    struct Strict;

    impl Model for Strict {
        fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
            let messages = call.request.messages.iter();
            let lines: Vec<String> = messages
                .map(|message| format!("{:?} {}", message.role, message.content))
                .collect();
            std::future::ready(Ok(ModelReply {
                content: lines.join("\n"),
                ..ModelReply::default()
            }))
            .boxed()
        }

        fn message_rules(&self) -> MessageRules {
            MessageRules::STRICT
        }
    }

    struct Only;

    impl Models for Only {
        fn choose(&self, _: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>) {
            (Arc::default(), Arc::new(Strict))
        }
    }

    #[test]
    fn the_messages_of_a_tool_are_sent_in_an_order_that_the_provider_accepts() {
        let host = SimulatedHost::new(None);
        let clock = host.host().work_clock();
        let sampler = Sampler::new(Arc::new(Only), CallContext::default(), clock);
        let asked = vec![
            Message::new(Role::System, "help"),
            Message::new(Role::Assistant, "begun"),
            Message::new(Role::User, " "),
            Message::new(Role::Assistant, "so far"),
        ];
        let reply = host.block_on(sampler.ask("any", asked, Map::new()));
        let expected = format!("System help\nUser {USER_FIRST}\nAssistant begun\nAssistant so far\nUser {USER_LAST}");
        assert_eq!(reply.expect("it ends").expect("a reply").content, expected);
    }

    /// A model that never replies.
    struct Silent;

    impl Model for Silent {
        fn call(&self, _: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
            std::future::pending().boxed()
        }
    }

    impl Models for Silent {
        fn choose(&self, _: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>) {
            (Arc::default(), Arc::new(Self))
        }
    }

    #[test]
    fn a_cancelled_request_of_a_tool_counts_its_estimated_input() {
        let host = SimulatedHost::new(None);
        let sampler = Sampler::new(Arc::new(Silent), CallContext::default(), host.host().work_clock());
        let asked = vec![Message::new(Role::User, "twelve chars")];
        assert!(sampler.ask("any", asked, Map::new()).now_or_never().is_none());
        assert_eq!(sampler.spent(), TokenUsage::new(3, 0, 3));
    }
}
