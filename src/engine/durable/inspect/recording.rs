//! Inputs of a stored run, as data from which it can be repeated: replies of models, results of tools, answers of people, its session,
//! and inputs that it did not request ([`outside_inputs`](super::outside_inputs)).

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_actors::ports::ToolSpec;
use pirn_conversation::conversation::{MarkMap, ModelRequest};
use pirn_core::run::{
    Control, Effect, Message as RunMessage, ReplayStep, RunMachine, RunReport, SessionState, ThreadNo, ToSupervisor,
    ToThread,
};
use pirn_core::thread::{self, ConsentRequest, EffectId, Input, ModelReply, Outcome, PersonsAnswer, ToolResult};
use pirn_definition::Millis;
use pirn_definition::definition::{BuiltInTool, Pinned, Profile, ToolDefinition};
use pirn_definition::error::RunError;
use pirn_definition::graph::{ContextNode, Graph, NodeIx, NodeKind};
use pirn_definition::message::{Message, Role};
use pirn_store::ContentHash;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::mask::masked;
use super::outside_inputs::{OutsideInput, OutsideInputKind, OutsideWatch, RecordedSession};
use super::sent_call::{SentCall, SettingsSource};
use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::engine::durable::records::stored::StoredRecords;
use crate::engine::durable::resume_error::ResumeError;

/// Maximum number of recorded requests, tool calls and answers.
const MAX_CALLS: usize = 10_000;

/// Start times before this one, in 2001, are those of a virtual clock, which starts at 0.
const REAL_TIMES: Millis = 1_000_000_000_000;

/// Number of hexadecimal digits of a request's digest.
const DIGEST: usize = 16;

/// Inputs of a run from outside: see [`Engine::recording`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Recording {
    /// Id of the run. Ids of its threads and calls are derived from it.
    pub run_id: String,
    /// Input of the run.
    pub input: Value,
    /// Seed of `Math.random` in CODE and of the order under virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Number from which the run derives `Math.random` of scripts and the jitter of retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_seed: Option<u64>,
    /// Wall-clock time of the start, in milliseconds since 1970; 0 under virtual time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub started_at: Millis,
    /// Wall-clock time of the last input, in milliseconds since 1970; 0 under virtual time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ended_at: Millis,
    /// Messages with which the run started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conversation: Vec<Message>,
    /// Marks of these messages; `None` if all of them are visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_map: Option<MarkMap>,
    /// Pinned context with which the run started.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pinned: Pinned,
    /// Tools that the run's client executes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<ToolDefinition>,
    /// Time limit of the run in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<Millis>,
    /// Profiles of the workflows, for their limits, prices and message rules. Those in the workflow files take precedence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
    /// Tools as the models received them, by the entry of the node that offers them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, Vec<ToolDefinition>>,
    /// Messages of all requests. A message that several requests contain occurs once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<SentMessage>,
    /// Model requests in the order in which they were sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RecordedRequest>,
    /// Tool calls in the order in which they were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<RecordedToolCall>,
    /// Answers of people in the order of their questions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<RecordedAnswer>,
    /// Messages, events, pinned context and a cancel from outside, in the order of their arrival.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<OutsideInput>,
    /// Session of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<RecordedSession>,
}

/// A message of a request, without the ids of its calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SentMessage {
    /// The speaker.
    pub role: Role,
    /// The text, or a list of parts.
    pub content: Value,
    /// `{name, arguments}` of each tool call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
}

/// The part of a model request that decides which recorded reply it receives.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestKey {
    /// The messages.
    pub messages: Vec<SentMessage>,
    /// Names of the offered tools.
    pub tools: Vec<String>,
    /// Schema of the required output.
    pub response_format: Option<Arc<Value>>,
}

/// A model request and its reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedRequest {
    /// Digest of the request: see [`RequestKey::digest`].
    pub digest: String,
    /// Thread that sent it.
    #[serde(default)]
    pub thread_id: Arc<str>,
    /// Node that sent it.
    pub node_id: Arc<str>,
    /// Its messages: indices in [`Recording::messages`].
    pub messages: Vec<usize>,
    /// Names of the offered tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Schema of the required output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Arc<Value>>,
    /// Milliseconds until the reply or the error; `None` if the run cancelled the request before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<Millis>,
    /// The reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<ModelReply>,
    /// The error of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
}

/// A call of a tool and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedToolCall {
    /// Name of the tool.
    pub name: String,
    /// Arguments of the call.
    pub arguments: Value,
    /// Thread that made it.
    #[serde(default)]
    pub thread_id: Arc<str>,
    /// Node that made it.
    pub node_id: Arc<str>,
    /// True if a person had approved the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_consented: bool,
    /// Milliseconds until the result; `None` if the run cancelled the call before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<Millis>,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ToolResult>,
    /// The call was not made: a person had to approve it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_consent: Option<ConsentRequest>,
}

/// A question to a person and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedAnswer {
    /// Thread of the question.
    #[serde(default)]
    pub thread_id: Arc<str>,
    /// Node of the question.
    pub node_id: Arc<str>,
    /// Milliseconds until the answer.
    pub after_ms: Millis,
    /// The answer.
    pub answer: Value,
    /// Person who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
}

/// A recording with the definition and the outcome of its run.
#[derive(Clone, Debug)]
pub struct RecordedRun {
    /// Inputs of the run.
    pub recording: Recording,
    /// Id of its workflow.
    pub workflow: String,
    /// Definition that it used, as JSON source.
    pub definition: Arc<str>,
    /// Report of the run.
    pub report: Arc<RunReport>,
}

/// Reason why a run cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The run cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ResumeError),
    /// A recording cannot repeat this run.
    #[error("run {run_id} cannot be recorded: {why}")]
    NotRepeatable {
        /// The run.
        run_id: String,
        /// The reason, and what to do.
        why: String,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl SentMessage {
    /// Returns the texts of a message.
    pub fn of(message: &Message) -> Self {
        let calls = message.tool_calls.iter();
        Self {
            role: message.role,
            content: if message.parts.is_empty() {
                Value::from(message.content.as_str())
            } else {
                json!(message.parts)
            },
            tool_calls: calls
                .map(|call| json!({"name": call.name, "arguments": call.arguments}))
                .collect(),
        }
    }
}

impl RequestKey {
    /// Returns the key of a request.
    pub fn of(request: &ModelRequest, tools: &[ToolSpec], response_format: Option<&Arc<Value>>) -> Self {
        Self {
            messages: request
                .messages
                .iter()
                .map(|message| SentMessage::of(message))
                .collect(),
            tools: tools.iter().map(|tool| tool.name.clone()).collect(),
            response_format: response_format.cloned(),
        }
    }

    /// Returns the first hexadecimal digits of the SHA-256 of the key.
    pub fn digest(&self) -> String {
        let mut digits = ContentHash::of(&json!(self).to_string()).to_string();
        digits.truncate(DIGEST);
        digits
    }
}

impl Recording {
    /// Returns the key of a recorded request.
    pub fn key(&self, request: &RecordedRequest) -> RequestKey {
        let messages = request.messages.iter();
        RequestKey {
            messages: messages
                .filter_map(|place| self.messages.get(*place))
                .cloned()
                .collect(),
            tools: request.tools.clone(),
            response_format: request.response_format.clone(),
        }
    }
}

/// A call without an outcome, and the time of its request.
enum OpenCall {
    Model(usize, Millis),
    Tool(usize, Millis),
    Answer(usize, Millis),
}

/// Collects the calls of a replayed run.
#[derive(Default)]
struct CallWatch {
    recording: Recording,
    /// Calls of the recorded requests. Profiles and tools are looked up after the replay.
    sent: Vec<SentCall>,
    /// Answers are added once they arrive; these are the questions.
    asked: Vec<(Arc<str>, Arc<str>)>,
    answers: BTreeMap<usize, (Millis, PersonsAnswer)>,
    open: BTreeMap<(ThreadNo, EffectId), OpenCall>,
    /// Index of each message, by its JSON.
    places: BTreeMap<String, usize>,
    outside: OutsideWatch,
    /// State of the session when the run got its turn.
    session: Option<SessionState>,
    refused: Option<String>,
}

impl CallWatch {
    fn saw(&mut self, machine: &RunMachine, replayed: &ReplayStep<'_>) {
        match replayed {
            // The repeated run has no gaps.
            ReplayStep::Input(input) => self.received(machine.without_gaps(input.at), &input.message),
            ReplayStep::Effects(at, effects) => {
                for effect in effects.iter() {
                    self.did(machine, machine.without_gaps(*at), effect);
                }
            }
        }
    }

    fn refuse(&mut self, why: impl Into<String>) {
        // The first reason is the earliest one in the run.
        self.refused.get_or_insert_with(|| why.into());
    }

    fn received(&mut self, at: Millis, message: &RunMessage) {
        let outside = match message {
            RunMessage::Thread(thread, ToThread::Input(Input::Answer { effect, outcome })) => {
                self.outside.ended(*thread, *effect);
                if let Some(open) = self.open.remove(&(*thread, *effect)) {
                    self.ended(&open, at, outcome);
                }
                None
            }
            RunMessage::Supervisor(to) => self.received_by_run(at, to),
            // Timers, triggers and the messages between the threads of a run follow from the other inputs.
            _ => None,
        };
        match outside {
            Some(input) => self.outside.add(at, input),
            None => self.outside.passed(at),
        }
        if self.outside.inputs.len() > MAX_CALLS {
            self.refuse("it received more than 10,000 inputs from outside; record a shorter run");
        }
    }

    /// Returns the input if it is from outside.
    fn received_by_run(&mut self, at: Millis, to: &ToSupervisor) -> Option<OutsideInputKind> {
        match to {
            ToSupervisor::Say(message) => Some(OutsideInputKind::Message((**message).clone())),
            ToSupervisor::Raise(events) => {
                let (last, earlier) = events.split_last()?;
                for event in earlier {
                    self.outside.add(at, OutsideInputKind::Event(event.clone()));
                }
                Some(OutsideInputKind::Event(last.clone()))
            }
            ToSupervisor::Pin(section, value) => Some(OutsideInputKind::Pin {
                section: *section,
                value: value.clone(),
            }),
            ToSupervisor::Session(turn) => {
                match &**turn {
                    Ok(state) => self.session = Some(state.clone()),
                    Err(error) => self.refuse(format!(
                        "its session refused the turn ({error}), which a test cannot repeat; record a run that got its turn"
                    )),
                }
                None
            }
            ToSupervisor::Control(control) => match control {
                Control::Cancel(reason) => Some(OutsideInputKind::Cancel { reason: reason.clone() }),
                Control::Shutdown => {
                    self.refuse(
                        "the shutdown of its process cancelled it, which a test cannot repeat; run the workflow again to its \
                         end and record that run",
                    );
                    None
                }
                // A pause changes the times of later steps only.
                Control::Pause | Control::Resume => None,
            },
            // As above: the consequences of other inputs.
            _ => None,
        }
    }

    fn ended(&mut self, open: &OpenCall, at: Millis, outcome: &Outcome) {
        match *open {
            OpenCall::Model(place, asked) => {
                let request = &mut self.recording.requests[place];
                request.after_ms = Some(at.saturating_sub(asked));
                match outcome {
                    Outcome::Reply(reply) => request.reply = Some((**reply).clone()),
                    Outcome::Failed(error) => request.error = Some(error.clone()),
                    // A model call has no other outcome.
                    _ => {}
                }
            }
            OpenCall::Tool(place, asked) => {
                let call = &mut self.recording.tool_calls[place];
                call.after_ms = Some(at.saturating_sub(asked));
                match outcome {
                    Outcome::Tool(result) => call.result = Some((**result).clone()),
                    Outcome::NeedsConsent(request) => call.needs_consent = Some((**request).clone()),
                    Outcome::Failed(error) => call.result = Some(ToolResult::failed(error.message.clone())),
                    // A tool call has no other outcome.
                    _ => {}
                }
            }
            OpenCall::Answer(place, asked) => {
                if let Outcome::Answered(given) = outcome {
                    self.answers.insert(place, (at.saturating_sub(asked), given.clone()));
                }
            }
        }
    }

    fn did(&mut self, machine: &RunMachine, at: Millis, effect: &Effect) {
        self.outside.did(at, effect);
        match effect {
            Effect::Thread { thread, effect } => {
                if let Some(live) = machine.live(*thread) {
                    let of = (*thread, live.graph(), live.thread_id());
                    self.requested(of, at, effect);
                }
            }
            Effect::Drop { thread, effect } => {
                self.open.remove(&(*thread, *effect));
            }
            Effect::ThreadEnded { thread } => self.open.retain(|(of, _), _| of != thread),
            _ => {}
        }
    }

    fn requested(
        &mut self,
        (no, graph, thread_id): (ThreadNo, &Arc<Graph>, &Arc<str>),
        at: Millis,
        effect: &thread::Effect,
    ) {
        let node_id = |node: NodeIx| Arc::clone(&graph.node(node).id);
        let thread_id = Arc::clone(thread_id);
        match effect {
            thread::Effect::Model { id, node, request, .. } => {
                let messages = request.built().messages.iter();
                let messages = messages.map(|message| self.place(&SentMessage::of(message))).collect();
                let place = self.recording.requests.len();
                self.recording.requests.push(RecordedRequest {
                    // Set after the lookup of the tools.
                    digest: String::new(),
                    thread_id,
                    node_id: node_id(*node),
                    messages,
                    tools: Vec::new(),
                    response_format: None,
                    after_ms: None,
                    reply: None,
                    error: None,
                });
                self.sent.extend(SentCall::of(graph, effect));
                self.open.insert((no, *id), OpenCall::Model(place, at));
            }
            thread::Effect::Tool {
                id,
                node,
                call,
                is_consented,
                ..
            } => {
                let place = self.recording.tool_calls.len();
                self.recording.tool_calls.push(RecordedToolCall {
                    name: call.name.clone(),
                    arguments: call.arguments.clone(),
                    thread_id,
                    node_id: node_id(*node),
                    is_consented: *is_consented,
                    after_ms: None,
                    result: None,
                    needs_consent: None,
                });
                self.open.insert((no, *id), OpenCall::Tool(place, at));
            }
            thread::Effect::Ask { id, node, .. } => {
                let place = self.asked.len();
                self.asked.push((thread_id, node_id(*node)));
                self.open.insert((no, *id), OpenCall::Answer(place, at));
            }
            thread::Effect::Drop { id } => {
                self.open.remove(&(no, *id));
            }
            _ => {}
        }
        let recorded = self.recording.requests.len() + self.recording.tool_calls.len() + self.asked.len();
        if recorded > MAX_CALLS {
            self.refuse("it made more than 10,000 calls; record a shorter run");
        }
    }

    /// Returns the index of a message, which is added if it is new.
    fn place(&mut self, message: &SentMessage) -> usize {
        let messages = &mut self.recording.messages;
        *self.places.entry(json!(message).to_string()).or_insert_with(|| {
            messages.push(message.clone());
            messages.len() - 1
        })
    }

    /// Adds the profiles and tools of the requests, and returns the recording.
    fn finish(mut self, source: &SettingsSource<'_>) -> Result<Recording, String> {
        let mut recording = std::mem::take(&mut self.recording);
        recording.profiles = named_profiles(source);
        for (request, call) in recording.requests.iter_mut().zip(&self.sent) {
            let settings = source.of(call);
            if settings.profile.provider.is_empty() {
                return Err(format!(
                    "the profile {} of node {} is not registered here",
                    settings.profile.id, request.node_id
                ));
            }
            if recording.profiles.iter().all(|known| known.id != settings.profile.id) && !is_built_in(&settings.profile)
            {
                recording.profiles.push(offline(&settings.profile));
            }
            let revealed = call.offered.iter().flat_map(|offered| &offered.revealed);
            for entry in settings.tool_names.iter().chain(revealed) {
                if BuiltInTool::of_name(entry).is_none() && !recording.tools.contains_key(&**entry) {
                    let specs = source.tools().specs(std::slice::from_ref(entry));
                    recording
                        .tools
                        .insert(entry.to_string(), specs.into_iter().map(definition).collect());
                }
            }
            request.tools = settings.tools.iter().map(|tool| tool.name.clone()).collect();
            request.response_format = settings.response_format;
        }
        // An entry that has no tools calls a workflow.
        recording.tools.retain(|_, tools| !tools.is_empty());
        let digests: Vec<String> = recording
            .requests
            .iter()
            .map(|request| recording.key(request).digest())
            .collect();
        for (request, digest) in recording.requests.iter_mut().zip(digests) {
            request.digest = digest;
        }
        let asked = self.asked.into_iter().enumerate();
        recording.answers = asked
            .filter_map(|(place, (thread_id, node_id))| {
                let (after_ms, given) = self.answers.remove(&place)?;
                Some(RecordedAnswer {
                    thread_id,
                    node_id,
                    after_ms,
                    answer: (*given.answer).clone(),
                    by: given.by,
                })
            })
            .collect();
        recording.inputs = self.outside.inputs;
        Ok(recording)
    }
}

fn definition(spec: ToolSpec) -> ToolDefinition {
    ToolDefinition {
        name: spec.name,
        description: spec.description,
        parameters: spec.parameters,
    }
}

/// Returns the profile without replies and secrets, for an engine that does not call its model.
fn offline(profile: &Profile) -> Profile {
    let mut offline = Profile {
        parameters: profile.parameters.clone().map(masked),
        rest: masked(profile.rest.clone()),
        ..profile.clone()
    };
    if let Some(responses) = offline.rest.get_mut("responses") {
        *responses = json!([]);
    }
    // A fallback is another profile, which the requests of the recorded run do not name.
    offline.rest.remove("fallback");
    offline
}

/// Returns whether every engine has the profile.
fn is_built_in(profile: &Profile) -> bool {
    profile.id == profile.provider && ["echo", "extractive"].contains(&&*profile.id)
}

/// Returns the default profile, followed by those that the workflows name, also at nodes that the run has not entered.
fn named_profiles(source: &SettingsSource<'_>) -> Vec<Profile> {
    let nodes = source.workflows.values().flat_map(|graph| &graph.nodes);
    let named = nodes.filter_map(|node| match &node.kind {
        NodeKind::Llm(llm) => llm.profile_id.as_deref(),
        NodeKind::Context(ContextNode::Compress(config)) => config.parameters.get("profileId")?.as_str(),
        _ => None,
    });
    let mut profiles: Vec<Profile> = Vec::new();
    for id in std::iter::once(None).chain(named.map(Some)) {
        let (profile, _) = source.models.choose(id);
        // A profile without a provider is not registered here.
        let is_new = profiles.iter().all(|known| known.id != profile.id);
        if is_new && !profile.provider.is_empty() && !is_built_in(&profile) {
            profiles.push(offline(&profile));
        }
    }
    profiles
}

/// Records a run that has ended.
pub(crate) async fn recording(engine: &Engine, durable: &Durable, run_id: &str) -> Result<RecordedRun, RecordError> {
    let refused = |why: String| RecordError::NotRepeatable {
        run_id: run_id.to_owned(),
        why,
    };
    let mut stored = StoredRecords::read(durable, run_id).await?;
    if !stored.run.status.is_final() {
        return Err(refused(
            "it has not ended; resume it with `pirn runs resume`".to_owned(),
        ));
    }
    let inputs = std::mem::take(&mut stored.inputs);
    let mut watch = CallWatch::default();
    let mut rebuilt = stored.rebuild_watched(engine, durable, inputs, &mut |machine, step| watch.saw(machine, step))?;
    if let Some(why) = watch.refused {
        return Err(refused(why));
    }
    let begun = stored.begun(&rebuilt.graphs)?;
    let (begun_at, start) = (begun.at, begun.seed);
    let session = match (&start.session, &watch.session) {
        (Some(seed), Some(state)) => Some(RecordedSession::of(seed, state)),
        (Some(_), None) => {
            let why =
                "it ended before its turn in its session, which a test cannot repeat; record a run that got its turn";
            return Err(refused(why.to_owned()));
        }
        (None, _) => None,
    };
    let source = SettingsSource::new(engine, &rebuilt.graphs);
    let recording = watch.finish(&source).map_err(refused)?;
    let marks = start.conversation.mark_map();
    let report = match &rebuilt.open.report {
        Some(report) => Arc::new((**report).clone()),
        None => Arc::new(rebuilt.machine.report_so_far(rebuilt.at)),
    };
    let (started_at, ended_at) = match begun_at {
        ..REAL_TIMES => (0, 0),
        at => (at, rebuilt.at),
    };
    Ok(RecordedRun {
        recording: Recording {
            run_id: run_id.to_owned(),
            seed: rebuilt.script_seed(),
            run_seed: Some(start.seed),
            started_at,
            ended_at,
            input: (*start.input).clone(),
            conversation: start
                .conversation
                .since(0)
                .map(|counted| (*counted.message).clone())
                .collect(),
            mark_map: (*marks != MarkMap::default()).then(|| marks.clone()),
            pinned: start.pinned,
            client_tools: start.client_tools.map(|tools| (*tools).clone()).unwrap_or_default(),
            deadline_ms: start.deadline_ms,
            session,
            ..recording
        },
        workflow: stored.run.workflow.clone(),
        definition: Arc::clone(&stored.definition),
        report,
    })
}
