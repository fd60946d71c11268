//! Model requests of a stored run, reconstructed from its journal.
//!
//! A journal contains no request: the replay of the run builds it again from the recorded inputs. Tools, parameters and the model's
//! name come from the profiles and tools of this process, because a journal contains their names only.
//!
//! The list of a run's requests holds no messages. One request with its messages needs those of the thread's previous request too,
//! for the comparison, so a replay retains at most one unbuilt request for each live thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_actors::call_settings::CallSettings;
use pirn_actors::ports::ToolSpec;
use pirn_conversation::conversation::{Cost, PreparedRequest, TokenUsage};
use pirn_conversation::model_call::{FinishReason, ModelFailure};
use pirn_core::run::{
    Effect, JournaledInput, Message as RunMessage, Origin, ReplayStep, RunMachine, ThreadNo, ToThread, effect_key,
};
use pirn_core::thread::{self, EffectId, Input, ModelReply, Outcome, ThreadId};
use pirn_definition::Millis;
use pirn_definition::definition::ToolEntry;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{ContextNode, Graph, NodeIx, NodeKind};
use pirn_definition::message::{Message, Role};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::mask::masked;
use super::prefix::{ComparedRequest, PrefixComparison, compare};
use super::sent_call::{SentCall, SettingsSource};
use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::engine::durable::records::stored::StoredRecords;
use crate::engine::durable::resume_error::ResumeError;

/// A model call of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestSummary {
    /// Id of the effect.
    pub effect_id: String,
    /// Step in which the request was made.
    pub step: u64,
    /// Thread that made it.
    pub thread_id: Arc<str>,
    /// The LLM node, or the CONTEXT_PROCESSOR that summarizes.
    pub node_id: Arc<str>,
    /// Profile of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<String>,
    /// The provider's name of the model; `None` if this process does not have the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Time of the request in milliseconds since 1970.
    pub at: u64,
    /// Milliseconds until the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Milliseconds until the first piece of the reply. Set by programs that have received the pieces: a journal contains none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<u64>,
    /// Estimated tokens of the request, tools included.
    pub estimated_tokens: u64,
    /// Tokens that the provider received, cached ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Tokens that the provider sent, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
    /// Tokens that the provider read from its cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Cost of the call, if the profile has prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Reason that the reply ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// Number of the attempt of its node: 1 for the first. The retries of a profile are part of one attempt.
    pub attempts: u32,
    /// Error, if the call failed or was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
}

/// A model call as it was sent and answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestView {
    /// The call.
    #[serde(flatten)]
    pub summary: RequestSummary,
    /// The request.
    pub request: RequestContent,
    /// The reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<ResponseContent>,
    /// Position of the pinned context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<PinnedBlock>,
    /// Comparison with the previous request that the provider's cache may contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<RequestPrefix>,
}

/// Content of a model request. It contains no keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestContent {
    /// Messages in order, repaired for the model, with the pinned context at its position.
    pub messages: Vec<Arc<Message>>,
    /// `{name, description, parameters}` of each tool; only the name of a tool that this process does not have.
    pub tools: Vec<Value>,
    /// Parameters of the profile, overridden by those of the node. Values of fields that are named like keys are masked.
    pub parameters: Map<String, Value>,
    /// Schema of the structured output that the node requires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Arc<Value>>,
}

/// Content of a model's reply.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseContent {
    /// The assistant's message.
    pub message: Message,
    /// Tokens that the provider reported.
    pub usage: TokenUsage,
}

/// Position of the pinned context in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedBlock {
    /// Index of its first message.
    pub inserted_at: usize,
    /// Number of its messages.
    pub count: usize,
}

/// Comparison of a request with an earlier one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestPrefix {
    /// Effect id of the earlier request.
    pub previous: String,
    /// Common part, and the reason of the first difference.
    #[serde(flatten)]
    pub comparison: PrefixComparison,
}

/// A model call that a replay has requested, before its settings are known.
struct SeenRequest {
    thread: ThreadNo,
    effect: EffectId,
    thread_id: Arc<str>,
    call: SentCall,
    step: u64,
    at: Millis,
    tokens: u64,
    attempts: u32,
    outcome: Option<SeenOutcome>,
}

/// Outcome of a call.
struct SeenOutcome {
    duration_ms: Millis,
    usage: TokenUsage,
    finish_reason: Option<FinishReason>,
    error: Option<RunError>,
}

/// Collects the model calls of a replayed run.
#[derive(Default)]
pub(in crate::engine::durable) struct RequestWatch {
    step: u64,
    all: Vec<SeenRequest>,
    /// Calls without an outcome: index in `all`.
    open: BTreeMap<(ThreadNo, EffectId), usize>,
    /// Number of attempts by the effect of the first one.
    attempts: BTreeMap<(ThreadNo, EffectId), u32>,
    /// Number of ended threads that triggers started, by the thread for which they ran.
    triggered: BTreeMap<ThreadNo, usize>,
    wanted: Option<WantedRequest>,
}

/// A request that is retained with its messages.
struct WantedRequest {
    thread: ThreadNo,
    effect: EffectId,
    /// Last request of each live thread.
    last: BTreeMap<ThreadNo, SentRequest>,
    found: Option<SentRequest>,
    previous: Option<SentRequest>,
    /// The conversation was compressed between both requests.
    is_compressed: bool,
    reply: Option<ModelReply>,
}

/// A request with the state of its thread at that time.
#[derive(Clone)]
struct SentRequest {
    /// Index of the call in [`RequestWatch::all`].
    place: usize,
    request: Arc<PreparedRequest>,
    /// Number of nodes that the thread had entered.
    nodes: usize,
    /// Number of threads that had ended and that triggers had started for this thread.
    triggered: usize,
}

impl RequestWatch {
    /// Creates a watch that also retains the request of this effect.
    fn wanting(thread: ThreadNo, effect: EffectId) -> Self {
        let wanted = WantedRequest {
            thread,
            effect,
            last: BTreeMap::new(),
            found: None,
            previous: None,
            is_compressed: false,
            reply: None,
        };
        Self {
            wanted: Some(wanted),
            ..Self::default()
        }
    }

    pub(in crate::engine::durable) fn saw(&mut self, machine: &RunMachine, replayed: &ReplayStep<'_>) {
        match replayed {
            ReplayStep::Input(input) => {
                self.step += 1;
                self.received(machine, input);
            }
            ReplayStep::Effects(at, effects) => {
                for effect in effects.iter() {
                    self.did(machine, *at, effect);
                }
            }
        }
    }

    fn received(&mut self, machine: &RunMachine, input: &JournaledInput) {
        let RunMessage::Thread(thread, ToThread::Input(Input::Answer { effect, outcome })) = &input.message else {
            return;
        };
        let Some(place) = self.open.remove(&(*thread, *effect)) else {
            return;
        };
        let duration_ms = self.all[place].duration(machine, input.at);
        let ended = match outcome {
            Outcome::Reply(reply) => {
                if let Some(wanted) = &mut self.wanted
                    && (wanted.thread, wanted.effect) == (*thread, *effect)
                {
                    wanted.reply = Some((**reply).clone());
                }
                SeenOutcome {
                    duration_ms,
                    usage: reply.usage,
                    // A reply with tool calls ended because of them, whatever the provider reported.
                    finish_reason: Some(if reply.tool_calls.is_empty() {
                        reply.finish_reason
                    } else {
                        FinishReason::ToolCalls
                    }),
                    error: None,
                }
            }
            Outcome::Failed(error) => SeenOutcome::failed(duration_ms, error.clone()),
            // A model call has no other outcome.
            _ => return,
        };
        self.all[place].outcome = Some(ended);
    }

    fn did(&mut self, machine: &RunMachine, at: Millis, effect: &Effect) {
        match effect {
            Effect::Thread {
                thread,
                effect: effect @ thread::Effect::Model { id, key, request, .. },
            } => {
                let Some(live) = machine.live(*thread) else { return };
                let Some(call) = SentCall::of(live.graph(), effect) else {
                    return;
                };
                let attempts = self.attempts.entry((*thread, *key)).or_default();
                *attempts += 1;
                let seen = SeenRequest {
                    thread: *thread,
                    effect: *id,
                    thread_id: Arc::clone(live.thread_id()),
                    call,
                    step: self.step,
                    at,
                    tokens: request.tokens(),
                    attempts: *attempts,
                    outcome: None,
                };
                let place = self.all.len();
                self.open.insert((*thread, *id), place);
                if let Some(wanted) = &mut self.wanted {
                    let sent = SentRequest {
                        place,
                        request: Arc::clone(request),
                        nodes: live.history().count(),
                        triggered: self.triggered.get(thread).copied().unwrap_or_default(),
                    };
                    wanted.sent(machine, &seen, sent);
                }
                self.all.push(seen);
            }
            Effect::Drop { thread, effect } => self.cancelled(machine, *thread, *effect, at),
            Effect::ThreadEnded { thread } => {
                let of_thread = self.open.range((*thread, 0)..=(*thread, EffectId::MAX));
                let left: Vec<EffectId> = of_thread.map(|((_, effect), _)| *effect).collect();
                for effect in left {
                    self.cancelled(machine, *thread, effect, at);
                }
                // A compression that a trigger starts runs in a thread.
                if let (Some((Origin::Triggered { .. }, _)), Some(main)) =
                    (machine.origin(*thread), machine.parent(*thread))
                {
                    *self.triggered.entry(main).or_default() += 1;
                }
                if let Some(wanted) = &mut self.wanted {
                    wanted.last.remove(thread);
                }
            }
            _other => {}
        }
    }

    fn cancelled(&mut self, machine: &RunMachine, thread: ThreadNo, effect: EffectId, at: Millis) {
        if let Some(place) = self.open.remove(&(thread, effect)) {
            let error = RunError::new(RunErrorCode::Cancelled, "the call was cancelled before its outcome");
            let duration_ms = self.all[place].duration(machine, at);
            self.all[place].outcome = Some(SeenOutcome::failed(duration_ms, error));
        }
    }

    /// Returns the wanted request; `None` if the run did not make it.
    fn view(mut self, run_id: &str, source: &SettingsSource<'_>) -> Option<RequestView> {
        let wanted = self.wanted.take()?;
        let found = wanted.found?;
        let now = SentContent::of(&found, source.of(&self.all[found.place].call));
        let prefix = wanted.previous.map(|previous| {
            let seen = &self.all[previous.place];
            let before = SentContent::of(&previous, source.of(&seen.call));
            RequestPrefix {
                previous: effect_key(run_id, seen.thread, seen.effect),
                comparison: compare(&before.compared(), &now.compared(), wanted.is_compressed),
            }
        });
        let request = found.request.built();
        let response = wanted.reply.map(|reply| ResponseContent {
            usage: reply.usage,
            message: Message {
                tool_calls: reply.tool_calls,
                metadata: reply.metadata,
                ..Message::new(Role::Assistant, reply.content)
            },
        });
        Some(RequestView {
            summary: self.all.swap_remove(found.place).summary(run_id, source),
            pinned: request.inserted_at.map(|inserted_at| PinnedBlock {
                inserted_at,
                count: request.inserted,
            }),
            request: RequestContent {
                messages: request.messages.clone(),
                tools: now.tools,
                parameters: masked(now.settings.parameters),
                response_format: now.settings.response_format,
            },
            response,
            prefix,
        })
    }

    /// Returns the calls in the order of their requests.
    pub(in crate::engine::durable) fn summaries(
        self,
        run_id: &str,
        settings: &SettingsSource<'_>,
    ) -> Vec<RequestSummary> {
        self.all
            .into_iter()
            .map(|seen| seen.summary(run_id, settings))
            .collect()
    }
}

impl WantedRequest {
    fn sent(&mut self, machine: &RunMachine, seen: &SeenRequest, sent: SentRequest) {
        if (self.thread, self.effect) == (seen.thread, seen.effect) {
            // A continued request extends those of another thread, whose prefix the provider has cached.
            let before = seen
                .call
                .goes_on
                .as_ref()
                .and_then(|goes_on| machine.thread_of(&goes_on.thread_id));
            self.previous = self.last.get(&before.unwrap_or(seen.thread)).cloned();
            if let (Some(previous), Some(live)) = (&self.previous, machine.live(seen.thread)) {
                let mut entered = live.history().skip(previous.nodes.saturating_sub(1));
                self.is_compressed = sent.triggered > previous.triggered
                    || entered.any(|record| is_compression(live.graph(), record.node));
            }
            self.found = Some(sent);
            // Nothing else is needed, and the last requests retain their conversations.
            self.last.clear();
        } else if self.found.is_none() {
            self.last.insert(seen.thread, sent);
        }
    }
}

fn is_compression(graph: &Graph, node: NodeIx) -> bool {
    matches!(&graph.node(node).kind, NodeKind::Context(ContextNode::Compress(_)))
}

/// A request with the settings of its call.
struct SentContent<'a> {
    sent: &'a SentRequest,
    settings: CallSettings,
    tools: Vec<Value>,
}

impl<'a> SentContent<'a> {
    fn of(sent: &'a SentRequest, settings: CallSettings) -> Self {
        let spec = |spec: &ToolSpec| json!({"name": spec.name, "description": spec.description, "parameters": spec.parameters});
        let mut tools: Vec<Value> = settings.tools.iter().map(spec).collect();
        let is_known = |name: &str| settings.tools.iter().any(|spec| *spec.name == *name);
        let unknown = settings.tool_names.iter().filter(|name| !is_known(name));
        // Names of deferred tools are in the description of `tool_search`.
        let unknown = unknown.filter(|name| ToolEntry::deferred_name(name).is_none());
        tools.extend(unknown.map(|name| json!({ "name": name })));
        Self { sent, settings, tools }
    }

    fn compared(&self) -> ComparedRequest<'_> {
        let request = self.sent.request.built();
        ComparedRequest {
            messages: &request.messages,
            pinned: request.inserted_at.map_or(0..0, |at| at..at + request.inserted),
            profile: &self.settings.profile.id,
            model: self.settings.profile.model.as_deref(),
            tools: &self.tools,
            format: self.settings.response_format.as_deref(),
        }
    }
}

impl SeenOutcome {
    fn failed(duration_ms: Millis, error: RunError) -> Self {
        Self {
            duration_ms,
            // Tokens of failed attempts are reported in the error.
            usage: ModelFailure::of(&error).spent,
            finish_reason: None,
            error: Some(error),
        }
    }
}

impl SeenRequest {
    /// Returns the milliseconds from the request to this time, without the gap before a fork.
    fn duration(&self, machine: &RunMachine, at: Millis) -> Millis {
        // Clocks of two processes may differ, and a duration is never negative.
        machine.without_gaps(at).saturating_sub(machine.without_gaps(self.at))
    }

    fn summary(self, run_id: &str, settings: &SettingsSource<'_>) -> RequestSummary {
        let profile = settings.profile(&self.call);
        let outcome = self.outcome;
        let usage = outcome.as_ref().map(|outcome| outcome.usage);
        let usage = usage.filter(|usage| !usage.is_nothing());
        RequestSummary {
            effect_id: effect_key(run_id, self.thread, self.effect),
            step: self.step,
            thread_id: self.thread_id,
            node_id: Arc::clone(&self.call.graph.node(self.call.node).id),
            profile_id: Some(profile.id.clone()).filter(|id| !id.is_empty()),
            model: profile.model.clone(),
            at: self.at,
            duration_ms: outcome.as_ref().map(|outcome| outcome.duration_ms),
            first_token_ms: None,
            estimated_tokens: self.tokens,
            prompt_tokens: usage.map(|usage| usage.sent()),
            completion_tokens: usage.map(|usage| usage.received()),
            cached_tokens: usage.map(|usage| usage.cached_read),
            cost: usage.and_then(|usage| usage.cost),
            finish_reason: outcome.as_ref().and_then(|outcome| outcome.finish_reason),
            attempts: self.attempts,
            error: outcome.and_then(|outcome| outcome.error),
        }
    }
}

/// Returns a model request of a run with its content.
pub(crate) async fn request(
    engine: &Engine,
    durable: &Durable,
    run_id: &str,
    effect_id: &str,
) -> Result<RequestView, ResumeError> {
    let mut stored = StoredRecords::read(durable, run_id).await?;
    let unknown = || ResumeError::NoSuchRequest {
        run_id: run_id.to_owned(),
        effect_id: effect_id.to_owned(),
    };
    let (thread, effect) = parse_effect(run_id, effect_id).ok_or_else(unknown)?;
    let inputs = std::mem::take(&mut stored.inputs);
    let mut watch = RequestWatch::wanting(thread, effect);
    let rebuilt = stored.rebuild_watched(engine, durable, inputs, &mut |machine, step| watch.saw(machine, step))?;
    watch
        .view(run_id, &SettingsSource::new(engine, &rebuilt.graphs))
        .ok_or_else(unknown)
}

/// Parses an effect's id: the id of its thread, a full stop, and its number.
fn parse_effect(run_id: &str, effect_id: &str) -> Option<(ThreadNo, EffectId)> {
    let (thread_id, effect) = effect_id.rsplit_once('.')?;
    let (thread, effect) = (ThreadId::number(run_id, thread_id)?, effect.parse().ok()?);
    // Other spellings of the number are no ids.
    (effect_key(run_id, thread, effect) == effect_id).then_some((thread, effect))
}
