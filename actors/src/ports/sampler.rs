//! Models that a tool asks while it works.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pirn_core::conversation::{ModelRequest, Spent};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::message::Message;
use pirn_core::model_call::ModelFailure;
use pirn_core::thread::ModelReply;
use serde_json::{Map, Value};

use super::{CallContext, ModelCall, ModelSession, Models, TokenSink};
use crate::host::{WorkClock, named_seed};

/// Requests that one call of a tool may make.
pub const MAX_SAMPLES: u32 = 100;

/// Characters of a token, where nobody counts.
const CHARACTERS: usize = 4;

/// Asks models for one call of a tool. What they report is spent by the run that the call comes from. Clones are the same.
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
    spent: Spent,
}

impl Sampler {
    /// For a call that comes from `context`.
    pub fn new(models: Arc<dyn Models>, context: CallContext, clock: WorkClock) -> Self {
        Self(Arc::new(Shared {
            models,
            context,
            clock,
            session: ModelSession::default(),
            state: Mutex::default(),
        }))
    }

    /// Asks the model of a profile; `parameters` are laid over the profile's.
    ///
    /// # Errors
    /// As the model; `MODEL_ERROR` past [`MAX_SAMPLES`] requests.
    pub async fn ask(
        &self,
        profile_id: &str,
        messages: Vec<Message>,
        parameters: Map<String, Value>,
    ) -> Result<ModelReply, RunError> {
        let asked = {
            let mut state = self.state();
            state.asked += 1;
            state.asked
        };
        if asked > MAX_SAMPLES {
            let message = format!("a call of a tool asks models at most {MAX_SAMPLES} times");
            return Err(RunError::new(RunErrorCode::ModelError, message));
        }
        let shared = &self.0;
        let (profile, model) = shared.models.choose(Some(profile_id));
        let mut all = profile.parameters.clone().unwrap_or_default();
        all.extend(parameters);
        let characters: usize = messages.iter().map(|message| message.content.len()).sum();
        let CallContext { run_id, thread_id, .. } = &shared.context;
        let call = ModelCall {
            request: Arc::new(ModelRequest {
                messages: messages.into_iter().map(Arc::new).collect(),
                inserted_at: None,
                inserted: 0,
                repeated: 0,
                repairs: pirn_core::conversation::Repairs::default(),
                tokens: (characters / CHARACTERS) as u64,
            }),
            profile,
            parameters: all,
            tools: Vec::new(),
            response_format: None,
            session: shared.session.clone(),
            context: shared.context.clone(),
            goes_on_from: Arc::clone(&shared.context.thread_id),
            key_part: format!("-{asked}"),
            clock: shared.clock.clone(),
            chance: named_seed(0, &format!("{run_id} {thread_id} {asked}")),
            tokens: TokenSink::closed(),
        };
        let answered = model.call(call).await;
        let spent = match &answered {
            Ok(reply) => reply.usage,
            Err(error) => ModelFailure::of(error).spent,
        };
        self.state().spent.add(spent);
        answered
    }

    /// Tokens spent so far.
    pub fn spent(&self) -> Spent {
        self.state().spent
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every holder leaves it whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
