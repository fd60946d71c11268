//! A model with the call settings of its profile: retries, limits, a total timeout and fallbacks.
//!
//! [`Attempts`] makes the decisions; this module waits and calls. Dropping a call drops its pending request and releases its
//! permit.

use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use pirn_actors::host::WorkClock;
use pirn_actors::ports::{Model, ModelCall, ModelSession, laid_over_profile};
use pirn_conversation::conversation::{MessageRules, ModelRequest, TokenUsage};
use pirn_conversation::model_call::{Attempts, CallBound, FailureKind, GateLimits, ModelFailure, Next};
use pirn_core::thread::ModelReply;
use pirn_definition::Millis;
use pirn_definition::definition::Profile;
use pirn_definition::error::{RunError, RunErrorCode};
use serde_json::{Map, Value, json};

use crate::limiter::{Limiter, Permit};
use crate::policy::CallPolicy;

/// A profile in the chain of fallbacks.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) profile: Arc<Profile>,
    pub(super) model: Arc<dyn Model>,
    pub(super) policy: Arc<CallPolicy>,
    /// Limiter of the link's calls. Without limits in the policy, it only delays calls after `Retry-After`.
    pub(super) limiter: Arc<Limiter>,
}

impl Link {
    /// Creates a link that calls the model without retries, limits or fallbacks.
    pub(super) fn plain(profile: Profile, model: Arc<dyn Model>) -> Self {
        Self {
            profile: Arc::new(profile),
            model,
            policy: Arc::new(CallPolicy::plain()),
            limiter: Limiter::new(GateLimits::default()),
        }
    }
}

/// A profile followed by its fallbacks; never empty.
pub(super) struct RetryingModel {
    links: Arc<[Link]>,
}

impl RetryingModel {
    pub(super) fn new(first: Link, fallbacks: impl IntoIterator<Item = Link>) -> Self {
        Self {
            links: std::iter::once(first).chain(fallbacks).collect(),
        }
    }
}

impl Model for RetryingModel {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let links = Arc::clone(&self.links);
        // Call the model now rather than when the future is polled: scripted models answer in the order of the calls.
        let first = links.first().and_then(|link| {
            let (run, tokens) = (&call.context.run_id, call.request.tokens);
            let permit = link.limiter.try_enter(run, tokens, &call.clock)?;
            Some((permit, link.model.call(call.clone())))
        });
        CallLoop::new(links, call, first).run().boxed()
    }

    fn answered(&self, request: &ModelRequest, session: &ModelSession) {
        if let Some(first) = self.links.first() {
            first.model.answered(request, session);
        }
    }

    fn is_external(&self) -> bool {
        self.links.iter().any(|link| link.model.is_external())
    }

    /// Any of the links may serve the request.
    fn call_bound(&self, request: &ModelRequest, parameters: &Map<String, Value>) -> CallBound {
        let own = self.links.first().and_then(|link| link.profile.parameters.as_ref());
        let bounds = self.links.iter().enumerate().map(|(place, link)| {
            if place == 0 {
                return link.model.call_bound(request, parameters);
            }
            // The parameters of the node are those by which these differ from its profile's.
            let of_node = |(name, value): &(&String, &Value)| own.and_then(|own| own.get(*name)) != Some(*value);
            let of_node = parameters.iter().filter(of_node);
            let of_node = of_node.map(|(name, value)| (name.clone(), value.clone())).collect();
            let parameters = laid_over_profile(&link.profile, Some(&of_node));
            link.model.call_bound(request, &parameters)
        });
        bounds.reduce(CallBound::or).unwrap_or_default()
    }

    /// Any of the links may serve the request.
    fn message_rules(&self) -> MessageRules {
        let rules = self.links.iter().map(|link| link.model.message_rules());
        rules.fold(MessageRules::default(), MessageRules::and)
    }
}

/// A reply that was requested, and the permit for its request.
type Reply = (Permit, BoxFuture<'static, Result<ModelReply, RunError>>);

/// State of one call.
struct CallLoop {
    links: Arc<[Link]>,
    call: ModelCall,
    /// The reply of the first attempt, if it was made at once.
    first: Option<Reply>,
    attempts: Attempts,
    chance: u64,
    /// Time at which the current profile's total timeout expires.
    deadline: Option<Millis>,
    /// Error of the earlier profiles; the latest is outermost.
    before: Option<RunError>,
    /// Usage of the failed attempts.
    spent: TokenUsage,
}

impl CallLoop {
    fn new(links: Arc<[Link]>, call: ModelCall, first: Option<Reply>) -> Self {
        let attempts = Attempts::new(links.iter().map(|link| link.policy.retry).collect());
        Self {
            chance: call.chance,
            links,
            call,
            first,
            attempts,
            deadline: None,
            before: None,
            spent: TokenUsage::default(),
        }
    }

    async fn run(mut self) -> Result<ModelReply, RunError> {
        self.begin();
        loop {
            let Some(link) = self.links.get(self.attempts.profile()).cloned() else {
                return Err(self.give_up());
            };
            let first = self.first.take();
            let attempt = attempt(&link, self.call_of(&link), first);
            let error = match within(&self.call.clock, self.deadline, attempt.boxed()).await {
                Some(Ok(mut reply)) => {
                    reply.usage.add(self.spent);
                    return Ok(reply);
                }
                Some(Err(error)) if error.code == RunErrorCode::Cancelled => return Err(error),
                Some(Err(error)) => error,
                None => late(&link),
            };
            self.spent.add(ModelFailure::of(&error).spent);
            self.failed(&link, error).await;
        }
    }

    /// Waits for the decided delay. Afterwards the next profile is called, or the call fails if there is none.
    async fn failed(&mut self, link: &Link, error: RunError) {
        let failure = ModelFailure::of(&error);
        if let (FailureKind::RateLimited, Some(after)) = (failure.kind, failure.retry_after)
            && after <= link.policy.retry.max_delay
        {
            link.limiter.close_for(after, &self.call.clock);
        }
        let attempt = self.attempts.attempt();
        let chance = self.next_chance();
        let mut next = self.attempts.failed(failure, chance);
        if let Next::Retry { after } = next {
            let now = self.call.clock.now();
            if self
                .deadline
                .is_some_and(|deadline| now.saturating_add(after) >= deadline)
            {
                next = self.attempts.failed(FailureKind::Late.into(), chance);
            }
        }
        let profile = link.profile.id.as_str();
        tracing::warn!(
            profile,
            attempt,
            kind = failure.kind.as_str(),
            ?next,
            "a model call failed"
        );
        match next {
            Next::Retry { after } => self.call.clock.sleep(after).await,
            Next::Fallback { .. } | Next::GiveUp => {
                let error = self.named(link, error, attempt);
                self.before = Some(error);
                self.begin();
            }
        }
        if next != Next::GiveUp {
            self.call.tokens.begin_anew();
        }
    }

    /// Starts the total timeout of the current profile.
    fn begin(&mut self) {
        let total = self.links.get(self.attempts.profile());
        let total = total.and_then(|link| link.policy.timeouts.total);
        self.deadline = total.map(|total| self.call.clock.now().saturating_add(total));
    }

    /// Returns the call as this profile receives it: with its default parameters under the node's, and with a separate model
    /// session.
    fn call_of(&self, link: &Link) -> ModelCall {
        if self.attempts.profile() == 0 {
            return self.call.clone();
        }
        ModelCall {
            profile: Arc::clone(&link.profile),
            parameters: laid_over_profile(&link.profile, Some(&self.call.own_parameters)),
            session: self.call.session.of_fallback(&link.profile.id),
            key_part: format!("{}-{}", self.call.key_part, self.attempts.profile()),
            ..self.call.clone()
        }
    }

    fn named(&mut self, link: &Link, mut error: RunError, attempts: u32) -> RunError {
        let times = if attempts > 1 {
            format!(" ({attempts} attempts)")
        } else {
            String::new()
        };
        error.message = format!("profile `{}`: {}{times}", link.profile.id, error.message);
        let mut details = match error.details.take() {
            Some(Value::Object(details)) => details,
            Some(other) => Map::from_iter([("said".to_owned(), other)]),
            None => Map::new(),
        };
        details.insert("profileId".to_owned(), json!(link.profile.id));
        details.insert("attempts".to_owned(), json!(attempts));
        error.details = Some(Value::Object(details));
        match self.before.take() {
            Some(before) => error.caused_by(before),
            None => error,
        }
    }

    fn give_up(&mut self) -> RunError {
        let none = || RunError::new(RunErrorCode::ModelError, "no model is available");
        ModelFailure::spending(self.before.take().unwrap_or_else(none), self.spent)
    }

    /// Returns the next random number of the call's private sequence (splitmix64).
    fn next_chance(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.chance ^ (self.chance >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Makes one attempt after waiting for the limiter.
async fn attempt(link: &Link, call: ModelCall, first: Option<Reply>) -> Result<ModelReply, RunError> {
    let (mut permit, reply) = if let Some(first) = first {
        first
    } else {
        let (run, tokens) = (&call.context.run_id, call.request.tokens);
        let permit = link.limiter.enter(run, tokens, &call.clock).await;
        (permit, link.model.call(call))
    };
    let result = reply.await;
    match &result {
        // Without reported usage, the estimate remains charged.
        Ok(reply) if reply.usage.total == 0 => {}
        Ok(reply) => permit.spent(reply.usage.total),
        Err(error) if ModelFailure::of(error).kind.costs_nothing() => permit.spent(0),
        Err(_) => {}
    }
    result
}

/// Returns the output of `work`, or `None` if it is not complete at the deadline.
async fn within<F: Future + Unpin>(clock: &WorkClock, deadline: Option<Millis>, work: F) -> Option<F::Output> {
    let Some(deadline) = deadline else {
        return Some(work.await);
    };
    match select(work, clock.sleep(deadline.saturating_sub(clock.now()))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(((), _)) => None,
    }
}

fn late(link: &Link) -> RunError {
    let total = link.policy.timeouts.total.unwrap_or_default();
    ModelFailure::new(FailureKind::Late).into_error(format!("not done within {total} ms"))
}
