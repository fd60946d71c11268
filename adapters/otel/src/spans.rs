//! Conversion of events to spans.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use pirn_conversation::conversation::TokenUsage;
use pirn_definition::definition::Profile;
use pirn_definition::event_type::EventType;
use pirn_events::event::Event;
use serde::Deserialize;
use serde_json::Value;

use super::names;

/// Maximum number of runs with open spans; beyond it, the spans of one run are dropped.
const MAX_RUNS: usize = 100_000;

/// Returns the profile of this id, or the default one for no id; `None` if the engine has stopped.
pub(super) type ProfileLookup = Box<dyn Fn(Option<&str>) -> Option<Arc<Profile>> + Send>;

/// The open spans of all runs in progress.
pub(super) struct Spans {
    profiles: ProfileLookup,
    runs: BTreeMap<Arc<str>, Run>,
    scope: InstrumentationScope,
    has_contents: bool,
}

#[derive(Default)]
struct Run {
    threads: BTreeMap<Arc<str>, Thread>,
    /// Forks that have started, the latest last: the thread and its path ids.
    forks: Vec<(Arc<str>, Value)>,
    /// The thread that called or triggered another, by the other thread.
    callers: BTreeMap<String, Arc<str>>,
}

struct Thread {
    began: u64,
    workflow: Arc<str>,
    path: Option<String>,
    forked_by: Option<Arc<str>>,
    join: Option<Open>,
    chat: Option<Chat>,
    tools: BTreeMap<String, Open>,
    /// The WAIT node in which the thread is.
    wait: Option<Wait>,
    /// Tool calls that wait for a person's approval, by the question's id.
    asked: BTreeMap<String, String>,
}

/// A WAIT.
struct Wait {
    open: Open,
    node: String,
}

/// The start of a span.
struct Open {
    sequence: u64,
    began: u64,
    attributes: Vec<KeyValue>,
}

/// A model request. Its span stays open until the node's end, whose event contains the usage.
struct Chat {
    request: Open,
    ended: Option<u64>,
    /// True for the first request of a node: the node's event has only the sum of all its requests.
    is_first: bool,
}

/// The parts of a span that depend on its kind.
struct Shape<'a> {
    id: SpanId,
    parent: Option<SpanId>,
    name: Cow<'static, str>,
    kind: SpanKind,
    began: u64,
    ended: u64,
    attributes: Vec<KeyValue>,
    error: Option<&'a Value>,
}

impl Spans {
    pub(super) fn new(has_contents: bool, profiles: ProfileLookup) -> Self {
        let scope = InstrumentationScope::builder(names::SCOPE)
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(names::SCHEMA_URL)
            .build();
        Self {
            profiles,
            runs: BTreeMap::new(),
            scope,
            has_contents,
        }
    }

    /// Returns the event types that the conversion needs.
    pub(super) fn types() -> Vec<EventType> {
        vec![
            EventType::ThreadStarted,
            EventType::ThreadCompleted,
            EventType::ThreadFailed,
            EventType::ThreadCancelled,
            EventType::ThreadForkStarted,
            EventType::ThreadJoinStarted,
            EventType::SubgraphStarted,
            EventType::TriggeredSubgraphStarted,
            EventType::RequestPrepared,
            EventType::MessageAdded,
            EventType::ToolCallStarted,
            EventType::ToolCallCompleted,
            EventType::ToolCallFailed,
            EventType::InteractionRequested,
            EventType::InteractionAnswered,
            EventType::InteractionTimedOut,
            EventType::InteractionWithdrawn,
            EventType::NodeStarted,
            EventType::NodeCompleted,
            EventType::NodeFailed,
        ]
    }

    /// Returns whether a thread of the run is open.
    pub(super) fn knows(&self, run_id: &str) -> bool {
        self.runs.contains_key(run_id)
    }

    /// Returns the spans that an event completes.
    pub(super) fn observe(&mut self, event: &Event) -> Vec<SpanData> {
        let mut out = Vec::new();
        let event_type = event.raised.event_type;
        if event_type != EventType::ThreadStarted && !self.runs.contains_key(&event.run_id) {
            // The event arrived after the end of the last thread.
            return out;
        }
        let run = self.runs.entry(Arc::clone(&event.run_id)).or_default();
        let data = &event.raised.fields;
        let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
        match event_type {
            EventType::ThreadStarted => {
                let path = data.get("pathId").and_then(Value::as_str).map(str::to_owned);
                let has_path = |ids: &Value| {
                    ids.as_array()
                        .is_some_and(|ids| ids.iter().any(|id| id.as_str() == path.as_deref()))
                };
                let forked_by = run.forks.iter().rev().find(|(_, ids)| path.is_some() && has_path(ids));
                let forked_by = forked_by.map(|(thread, _)| Arc::clone(thread));
                let thread = Thread {
                    began: event.timestamp,
                    workflow: Arc::clone(&event.workflow_id),
                    path,
                    forked_by,
                    join: None,
                    chat: None,
                    tools: BTreeMap::new(),
                    wait: None,
                    asked: BTreeMap::new(),
                };
                run.threads.insert(Arc::clone(&event.thread_id), thread);
            }
            EventType::ThreadForkStarted => {
                let ids = data.get("forkPathIds").cloned().unwrap_or_default();
                run.forks.push((Arc::clone(&event.thread_id), ids));
            }
            EventType::SubgraphStarted | EventType::TriggeredSubgraphStarted => {
                run.callers
                    .insert(text("childThreadId").to_owned(), Arc::clone(&event.thread_id));
            }
            EventType::ThreadCompleted | EventType::ThreadFailed | EventType::ThreadCancelled => {
                self.thread_ended(event, &mut out);
            }
            _of_a_thread => self.of_thread(event, &mut out),
        }
        if self.runs.len() > MAX_RUNS {
            self.runs.pop_first();
        }
        out
    }

    fn of_thread(&mut self, event: &Event, out: &mut Vec<SpanData>) {
        let Some(thread) = self
            .runs
            .get_mut(&event.run_id)
            .and_then(|run| run.threads.get_mut(&event.thread_id))
        else {
            return;
        };
        let data = &event.raised.fields;
        let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let open = |attributes: Vec<KeyValue>| Open {
            sequence: event.sequence,
            began: event.timestamp,
            attributes,
        };
        let mut shapes = Vec::new();
        let mut links = Vec::new();
        match event.raised.event_type {
            EventType::ThreadJoinStarted => {
                thread.join = Some(open(vec![
                    KeyValue::new(names::NODE_ID, text("nodeId")),
                    KeyValue::new(names::JOIN_STRATEGY, text("joinStrategy")),
                ]));
            }
            EventType::RequestPrepared => {
                let before = thread.chat.take();
                let is_first = before.is_none();
                shapes.extend(before.map(|chat| chat.shape(event, None, None)));
                let profile_id = data.get("profileId").and_then(Value::as_str);
                let tokens = data.get("tokensUsed").and_then(Value::as_i64).unwrap_or_default();
                thread.chat = Some(Chat {
                    request: open(attributes_of(
                        profile_id,
                        (self.profiles)(profile_id).as_deref(),
                        tokens,
                    )),
                    ended: None,
                    is_first,
                });
            }
            EventType::MessageAdded => {
                let reply = data.get("message").filter(|message| message["role"] == "assistant");
                if let (Some(reply), Some(chat)) = (reply, thread.chat.as_mut().filter(|chat| chat.ended.is_none())) {
                    chat.ended = Some(event.timestamp);
                    if self.has_contents {
                        chat.request
                            .attributes
                            .push(KeyValue::new(names::OUTPUT_MESSAGES, reply.to_string()));
                    }
                }
            }
            EventType::ToolCallStarted => {
                let mut attributes = vec![
                    KeyValue::new(names::TOOL_NAME, text("name")),
                    KeyValue::new(names::TOOL_CALL_ID, text("toolCallId")),
                    KeyValue::new(names::NODE_ID, text("nodeId")),
                ];
                if self.has_contents {
                    let arguments = data.get("arguments").map(Value::to_string).unwrap_or_default();
                    attributes.push(KeyValue::new(names::TOOL_CALL_ARGUMENTS, arguments));
                }
                thread.tools.insert(text("toolCallId"), open(attributes));
            }
            EventType::ToolCallCompleted | EventType::ToolCallFailed => {
                if let Some(mut call) = thread.tools.remove(&text("toolCallId")) {
                    call.attributes
                        .push(KeyValue::new(names::OPERATION, names::EXECUTE_TOOL));
                    if self.has_contents {
                        call.attributes
                            .push(KeyValue::new(names::TOOL_CALL_RESULT, text("result")));
                    }
                    let name = format!("{} {}", names::EXECUTE_TOOL, text("name"));
                    let mut shape = call.shape(event, "tool", name.into(), SpanKind::Internal);
                    if event.raised.event_type == EventType::ToolCallFailed {
                        shape.error = Some(&TOOL_ERROR);
                    }
                    shapes.push(shape);
                }
            }
            EventType::InteractionRequested => {
                let call = data.get("tool").and_then(|tool| tool["toolCallId"].as_str());
                let asked = call.map(|call| (text("interactionId"), call.to_owned()));
                thread.asked.extend(asked);
            }
            EventType::InteractionAnswered | EventType::InteractionTimedOut | EventType::InteractionWithdrawn => {
                let call = thread.asked.remove(&text("interactionId"));
                if let Some(call) = call.and_then(|call| thread.tools.get_mut(&call)) {
                    call.began = event.timestamp;
                }
            }
            // A retried WAIT continues the first wait.
            EventType::NodeStarted if text("nodeType") == "WAIT" && thread.wait.is_none() => {
                thread.wait = Some(Wait {
                    open: open(Vec::new()),
                    node: text("nodeId"),
                });
            }
            EventType::NodeCompleted | EventType::NodeFailed => {
                let error = data.get("error").filter(|error| error.is_object());
                let node_type = text("nodeType");
                if let Some(chat) = thread.chat.take_if(|_| node_type == "LLM") {
                    let usage = data.get("output").and_then(|output| output.get("usage"));
                    shapes.push(chat.shape(event, usage, error));
                }
                if let Some(join) = thread.join.take_if(|_| node_type == "JOIN") {
                    let children = data
                        .get("output")
                        .and_then(|output| output["childThreadIds"].as_object());
                    let children = children
                        .into_iter()
                        .flat_map(|children| children.values())
                        .filter_map(Value::as_str);
                    links = children.map(|thread| thread_span(&event.run_id, thread)).collect();
                    let name = format!("join {}", text("nodeId"));
                    let mut shape = join.shape(event, "join", name.into(), SpanKind::Internal);
                    shape.error = error;
                    shapes.push(shape);
                }
                if let Some(wait) = thread.wait.take_if(|_| node_type == "WAIT") {
                    let mut shape = wait.shape(event);
                    shape.error = error;
                    shapes.push(shape);
                }
            }
            _other => {}
        }
        let parent = thread_span(&event.run_id, &event.thread_id);
        for mut shape in shapes {
            shape.parent = Some(parent);
            shape
                .attributes
                .push(KeyValue::new(names::THREAD_ID, event.thread_id.to_string()));
            out.push(self.span(event, shape, &links));
        }
    }

    fn thread_ended(&mut self, event: &Event, out: &mut Vec<SpanData>) {
        let Some(run) = self.runs.get_mut(&event.run_id) else {
            return;
        };
        let Some(mut thread) = run.threads.remove(&event.thread_id) else {
            return;
        };
        run.forks.retain(|(by, _)| *by != event.thread_id);
        let caller = run.callers.remove(&*event.thread_id);
        let parent = thread.forked_by.clone().or(caller);
        let is_over = run.threads.is_empty();
        let error = event.raised.fields.get("error").filter(|error| error.is_object());
        // Spans that the end of the thread interrupts end with it.
        let mut open: Vec<Shape<'_>> = Vec::new();
        open.extend(thread.chat.map(|chat| chat.shape(event, None, error)));
        // A call that was not approved did not start.
        thread
            .tools
            .retain(|id, _| !thread.asked.values().any(|asked| asked == id));
        for mut call in thread.tools.into_values() {
            call.attributes
                .push(KeyValue::new(names::OPERATION, names::EXECUTE_TOOL));
            open.push(call.shape(event, "tool", names::EXECUTE_TOOL.into(), SpanKind::Internal));
        }
        open.extend(
            thread
                .join
                .map(|join| join.shape(event, "join", "join".into(), SpanKind::Internal)),
        );
        open.extend(thread.wait.map(|wait| wait.shape(event)));
        let own = thread_span(&event.run_id, &event.thread_id);
        for mut shape in open {
            shape.parent = Some(own);
            shape.error = shape.error.or(error);
            out.push(self.span(event, shape, &[]));
        }
        let mut attributes = vec![
            KeyValue::new(names::RUN_ID, event.run_id.to_string()),
            KeyValue::new(names::THREAD_ID, event.thread_id.to_string()),
        ];
        let name = if let Some(path) = &thread.path {
            attributes.push(KeyValue::new(names::PATH_ID, path.clone()));
            format!("branch {path}")
        } else {
            attributes.push(KeyValue::new(names::OPERATION, names::INVOKE_WORKFLOW));
            attributes.push(KeyValue::new(names::WORKFLOW_NAME, thread.workflow.to_string()));
            format!("{} {}", names::INVOKE_WORKFLOW, thread.workflow)
        };
        let shape = Shape {
            id: own,
            parent: parent.map(|thread| thread_span(&event.run_id, &thread)),
            name: name.into(),
            kind: SpanKind::Internal,
            began: thread.began,
            ended: event.timestamp,
            attributes,
            error,
        };
        out.push(self.span(event, shape, &[]));
        if is_over {
            self.runs.remove(&event.run_id);
        }
    }

    fn span(&self, event: &Event, shape: Shape<'_>, links: &[SpanId]) -> SpanData {
        let context = |id: SpanId| {
            let (high, low) = (hash(&[&event.run_id, "trace"]), hash(&[&event.run_id]));
            let trace = TraceId::from((u128::from(high) << 64) | u128::from(low));
            SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::NONE)
        };
        let mut attributes = shape.attributes;
        let status = match shape.error {
            Some(error) => {
                let code = error["code"].as_str().unwrap_or("_OTHER").to_owned();
                attributes.push(KeyValue::new(names::ERROR_TYPE, code));
                Status::error(error["message"].as_str().unwrap_or_default().to_owned())
            }
            None => Status::Unset,
        };
        let mut span_links = SpanLinks::default();
        span_links.links = links.iter().map(|id| Link::with_context(context(*id))).collect();
        SpanData {
            span_context: context(shape.id),
            parent_span_id: shape.parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: false,
            span_kind: shape.kind,
            name: shape.name,
            start_time: at(shape.began),
            end_time: at(shape.ended),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: span_links,
            status,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// A failed tool returns text to the model and has no error code.
static TOOL_ERROR: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| serde_json::json!({"code": "TOOL_ERROR"}));

impl Open {
    fn shape(self, event: &Event, what: &str, name: Cow<'static, str>, kind: SpanKind) -> Shape<'static> {
        Shape {
            id: SpanId::from(hash(&[&event.run_id, what, &self.sequence.to_string()])),
            parent: None,
            name,
            kind,
            began: self.began,
            ended: event.timestamp,
            attributes: self.attributes,
            error: None,
        }
    }
}

impl Wait {
    fn shape(mut self, event: &Event) -> Shape<'static> {
        let name = format!("wait {}", self.node);
        self.open.attributes.push(KeyValue::new(names::NODE_ID, self.node));
        self.open.shape(event, "wait", name.into(), SpanKind::Internal)
    }
}

impl Chat {
    fn shape<'a>(self, event: &Event, usage: Option<&Value>, error: Option<&'a Value>) -> Shape<'a> {
        let ended = self.ended.unwrap_or(event.timestamp);
        let attributes = &self.request.attributes;
        let model = attributes
            .iter()
            .find(|attribute| attribute.key.as_str() == names::REQUEST_MODEL);
        let name = model.map_or_else(
            || names::CHAT.to_owned(),
            |model| format!("{} {}", names::CHAT, model.value),
        );
        let mut shape: Shape<'a> = self.request.shape(event, "chat", name.into(), SpanKind::Client);
        shape.ended = ended;
        shape.error = error;
        shape.attributes.push(KeyValue::new(names::OPERATION, names::CHAT));
        let usage = usage.filter(|_| self.is_first);
        if let Some(usage) = usage.and_then(|usage| TokenUsage::deserialize(usage).ok()) {
            let mut push = |name, tokens: u64| {
                let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
                shape.attributes.push(KeyValue::new(name, tokens));
            };
            push(names::INPUT_TOKENS, usage.sent());
            push(names::OUTPUT_TOKENS, usage.received());
            for (name, tokens) in [
                (names::CACHE_READ_TOKENS, usage.cached_read),
                (names::CACHE_CREATION_TOKENS, usage.cached_write),
            ] {
                if tokens > 0 {
                    push(name, tokens);
                }
            }
        }
        shape
    }
}

/// Returns the attributes of a model request that are known when it is sent.
fn attributes_of(profile_id: Option<&str>, profile: Option<&Profile>, tokens: i64) -> Vec<KeyValue> {
    let mut attributes = vec![KeyValue::new(names::REQUEST_TOKENS, tokens)];
    attributes.extend(profile_id.map(|id| KeyValue::new(names::PROFILE_ID, id.to_owned())));
    if let Some(Profile { provider, model, .. }) = profile {
        let provider = pirn_models::conventional_provider(provider).to_owned();
        attributes.push(KeyValue::new(names::PROVIDER_NAME, provider));
        let model = model.clone();
        attributes.extend(model.map(|model| KeyValue::new(names::REQUEST_MODEL, model)));
    }
    attributes
}

fn thread_span(run_id: &str, thread_id: &str) -> SpanId {
    SpanId::from(hash(&[run_id, "thread", thread_id]))
}

fn at(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(milliseconds)
}

/// Hashes strings by FNV-1a with a final mix: stable across processes and versions, and never 0, which denotes no id.
fn hash(parts: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0xff])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (hash ^ (hash >> 32)).max(1)
}
