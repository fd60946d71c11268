//! Models and tools that reply from a recording.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::host::WorkClock;
use pirn_actors::journal::Graphs;
use pirn_actors::ports::{
    AskedCall, CallContext, Model, ModelCall, ModelSession, Models, Ports, ToolOutcome, ToolSpec, Tools,
};
use pirn_conversation::conversation::{MessageRules, ModelRequest};
use pirn_conversation::model_call::{CallBound, FailureKind, ModelFailure};
use pirn_core::thread::{Interaction, ModelReply, ToolResult};
use pirn_definition::Millis;
use pirn_definition::definition::{BuiltInTool, InDoubt, Profile};
use pirn_definition::error::{RunError, RunErrorCode};
use serde_json::{Map, Value, json};

use super::differences::{equal_characters, of_texts, of_values, quoted};
use super::graders::GradeFailure;
use super::varying::Varying;
use crate::engine::durable::{RecordedRequest, RecordedToolCall, Recording, RequestKey};

/// Milliseconds after which a call without a recorded outcome fails. Its thread was cancelled before in the recorded run.
const NEVER: Millis = 3_600_000;

/// Maximum number of reported calls that the recording does not contain.
const MAX_UNKNOWN: usize = 10;

/// A recording and the parts of it that were used.
pub(super) struct Player {
    recording: Recording,
    varying: Varying,
    /// Digest of each recorded request without what varies.
    digests: Vec<String>,
    /// Arguments of each recorded tool call without what varies.
    arguments: Vec<Value>,
    /// Calls that the recording does not contain are made, and not refused.
    calls_others: bool,
    used: Mutex<Used>,
}

/// Indices of the used parts, and the calls that the recording does not contain.
#[derive(Default)]
struct Used {
    requests: BTreeSet<usize>,
    tool_calls: BTreeSet<usize>,
    answers: BTreeSet<usize>,
    unknown: Vec<GradeFailure>,
}

/// Takes the first unused element that fits. An exactly equal one is preferred, then one of this thread, then one of this node.
fn take<T>(
    elements: &[T],
    used: &mut BTreeSet<usize>,
    fits: impl Fn(usize, &T) -> bool,
    place_of: impl Fn(&T) -> (bool, bool, bool),
) -> Option<usize> {
    let unused = (0..elements.len()).filter(|place| !used.contains(place) && fits(*place, &elements[*place]));
    // The first of several equal ones: `max_by_key` would return the last.
    let found = unused.rev().max_by_key(|place| place_of(&elements[*place]))?;
    used.insert(found);
    Some(found)
}

impl Player {
    pub(super) fn new(recording: Recording, calls_others: bool) -> Arc<Self> {
        let varying = Varying::of(&recording, 0);
        let requests = recording.requests.iter();
        let calls = recording.tool_calls.iter();
        Arc::new(Self {
            digests: requests
                .map(|request| varying.in_key(&recording.key(request)).digest())
                .collect(),
            arguments: calls.map(|call| varying.in_value(&call.arguments)).collect(),
            varying,
            recording,
            calls_others,
            used: Mutex::default(),
        })
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the calls that the recording does not contain.
    pub(super) fn unknown(&self) -> Vec<GradeFailure> {
        self.used().unknown.clone()
    }

    /// Makes the models and tools of an engine reply from the recording.
    pub(super) fn wrap(self: &Arc<Self>, ports: &mut Ports) {
        ports.models = Arc::new(RecordedModels {
            player: Arc::clone(self),
            models: Arc::clone(&ports.models),
        });
        ports.tools = Arc::new(RecordedTools {
            player: Arc::clone(self),
            tools: Arc::clone(&ports.tools),
        });
    }

    /// Returns the recorded answer to a question.
    pub(super) fn answer(&self, question: &Interaction) -> Option<(Value, Option<Arc<str>>, Millis)> {
        let mut used = self.used();
        let answers = &self.recording.answers;
        let place = take(
            answers,
            &mut used.answers,
            |_, answer| answer.node_id == question.node_id,
            |answer| (true, answer.thread_id == question.thread_id, true),
        )?;
        let answer = &answers[place];
        Some((answer.answer.clone(), answer.by.clone(), answer.after_ms))
    }

    /// Returns true for a run that the recorded run starts by START_WORKFLOW. Its calls are not recorded, and the case does not compare it.
    fn is_of_other(&self, caller: &CallContext) -> bool {
        *caller.run_id != *self.recording.run_id
    }

    /// Returns the recorded request with this key.
    fn request(&self, key: &RequestKey, context: &CallContext) -> Option<&RecordedRequest> {
        if self.is_of_other(context) {
            return None;
        }
        let (digest, key) = (key.digest(), self.varying.in_key(key));
        let digest_of_key = key.digest();
        let requests = &self.recording.requests;
        let is_of_node = |request: &RecordedRequest| Some(&request.node_id) == context.node_id.as_ref();
        let mut used = self.used();
        let found = take(
            requests,
            &mut used.requests,
            |place, request| request.digest == digest || self.digests[place] == digest_of_key,
            |request| {
                let is_of_thread = request.thread_id == context.thread_id;
                (request.digest == digest, is_of_thread, is_of_node(request))
            },
        );
        let found = found.map(|place| &requests[place]);
        if found.is_none() && !self.calls_others {
            let unused = |place: usize| !used.requests.contains(&place);
            let message = self.unknown_request(&key, context, unused);
            note(&mut used, "request", message);
        }
        found
    }

    fn tool_call(&self, asked: &AskedCall) -> Option<&RecordedToolCall> {
        let calls = &self.recording.tool_calls;
        let caller = asked.caller.as_ref();
        if caller.is_some_and(|caller| self.is_of_other(caller)) {
            return None;
        }
        let mut used = self.used();
        let arguments = self.varying.in_value(&asked.call.arguments);
        let is_equal = |place: usize, call: &RecordedToolCall| {
            call.name == asked.call.name
                && self.arguments[place] == arguments
                && call.is_consented == asked.is_consented
        };
        let found = take(calls, &mut used.tool_calls, is_equal, |call| {
            let is_of_node = caller.is_some_and(|caller| Some(&call.node_id) == caller.node_id.as_ref());
            let is_of_thread = caller.is_some_and(|caller| call.thread_id == caller.thread_id);
            (call.arguments == asked.call.arguments, is_of_thread, is_of_node)
        });
        if found.is_none() && !self.calls_others {
            let message = self.unknown_tool_call(&asked.call.name, &arguments, &used.tool_calls);
            note(&mut used, "toolCall", message);
        }
        found.map(|place| &calls[place])
    }

    /// Describes a request that the recording does not contain by its first difference from the nearest recorded one.
    fn unknown_request(&self, key: &RequestKey, context: &CallContext, unused: impl Fn(usize) -> bool) -> String {
        let node = context.node_id.as_deref().unwrap_or_default();
        let requests = self.recording.requests.iter().enumerate();
        let keyed =
            requests.map(|(place, request)| (place, request, self.varying.in_key(&self.recording.key(request))));
        // The first of several equally near ones.
        let nearest = keyed.rev().max_by_key(|(place, request, recorded)| {
            let equal = key
                .messages
                .iter()
                .zip(&recorded.messages)
                .take_while(|(one, other)| one == other);
            let equal = equal.count();
            let text = |key: &RequestKey| key.messages.get(equal).map(|message| text_of(&message.content));
            let characters = match (text(key), text(recorded)) {
                (Some(one), Some(other)) => equal_characters(&one, &other),
                (_, _) => 0,
            };
            (&*request.node_id == node, equal, unused(*place), characters)
        });
        let Some((place, request, recorded)) = nearest else {
            return format!("node `{node}`: the recording has no reply to this request: it contains no request");
        };
        let difference = difference(&recorded, key).unwrap_or_else(|| {
            // An equal request is found before, unless all its replies are used.
            "it is equal, and the run has received all its recorded replies".to_owned()
        });
        format!(
            "node `{node}`: the recording has no reply to this request; the nearest is request {} (node `{}`): {difference}",
            place + 1,
            request.node_id
        )
    }

    fn unknown_tool_call(&self, name: &str, arguments: &Value, used: &BTreeSet<usize>) -> String {
        let start = format!("tool `{name}`: the recording has no result for {}", quoted(arguments));
        let calls = self.recording.tool_calls.iter().enumerate();
        let mut of_tool = calls.filter(|(_, recorded)| recorded.name == name).peekable();
        let Some((first, _)) = of_tool.peek().copied() else {
            return format!("{start}: it contains no call of this tool");
        };
        let unused = of_tool.find(|(place, _)| !used.contains(place));
        let place = unused.map_or(first, |(place, _)| place);
        let differences = of_values("arguments", &self.arguments[place], arguments);
        let difference = differences
            .first()
            .map_or("it is equal, and its result is used", String::as_str);
        format!("{start}; the nearest is call {}: {difference}", place + 1)
    }
}

fn note(used: &mut Used, grader: &'static str, message: String) {
    let failure = GradeFailure { grader, message };
    // A node that retries its call repeats the message.
    if used.unknown.len() < MAX_UNKNOWN && !used.unknown.contains(&failure) {
        used.unknown.push(failure);
    }
}

fn text_of(content: &Value) -> String {
    content.as_str().map_or_else(|| content.to_string(), str::to_owned)
}

/// Describes the first difference of two requests.
fn difference(recorded: &RequestKey, now: &RequestKey) -> Option<String> {
    let count = recorded.messages.len().max(now.messages.len());
    for place in 0..count {
        let number = place + 1;
        let (one, other) = match (recorded.messages.get(place), now.messages.get(place)) {
            (Some(one), Some(other)) if one == other => continue,
            (Some(one), Some(other)) => (one, other),
            (Some(one), None) => {
                let text = quoted(&one.content);
                return Some(format!("message {number} ({}) is missing: {text}", one.role.as_str()));
            }
            (None, Some(other)) => {
                let text = quoted(&other.content);
                return Some(format!("message {number} ({}) is new: {text}", other.role.as_str()));
            }
            (None, None) => return None,
        };
        if one.role != other.role {
            let (one, other) = (one.role.as_str(), other.role.as_str());
            return Some(format!("message {number}: recorded role {one}, now {other}"));
        }
        let role = one.role.as_str();
        if one.content != other.content {
            let texts = of_texts("recorded", &text_of(&one.content), "now", &text_of(&other.content));
            return Some(format!("message {number} ({role}), {texts}"));
        }
        let calls = of_values("toolCalls", &json!(one.tool_calls), &json!(other.tool_calls));
        return Some(format!("message {number} ({role}), {}", calls.join("; ")));
    }
    if recorded.tools != now.tools {
        let (one, other) = (recorded.tools.join(", "), now.tools.join(", "));
        return Some(format!("recorded tools [{one}], now [{other}]"));
    }
    let format = |key: &RequestKey| json!(key.response_format);
    let formats = of_values("responseFormat", &format(recorded), &format(now));
    (!formats.is_empty()).then(|| formats.join("; "))
}

struct RecordedModels {
    player: Arc<Player>,
    models: Arc<dyn Models>,
}

impl Models for RecordedModels {
    fn choose(&self, profile_id: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>) {
        // The profile stays, because its limits, tokenizer and message rules affect the run.
        let (profile, model) = self.models.choose(profile_id);
        let player = Arc::clone(&self.player);
        (profile, Arc::new(RecordedModel { player, model }))
    }

    fn of_run(&self, graphs: &Graphs) -> Option<Arc<dyn Models>> {
        let models = self.models.of_run(graphs)?;
        let player = Arc::clone(&self.player);
        Some(Arc::new(Self { player, models }))
    }
}

struct RecordedModel {
    player: Arc<Player>,
    model: Arc<dyn Model>,
}

impl Model for RecordedModel {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let key = RequestKey::of(&call.request, &call.tools, call.response_format.as_ref());
        let Some(recorded) = self.player.request(&key, &call.context) else {
            if self.player.calls_others {
                return self.model.call(call);
            }
            let error =
                ModelFailure::new(FailureKind::Rejected).into_error("the recording has no reply to this request");
            return std::future::ready(Err(error)).boxed();
        };
        let (after, reply, error) = (recorded.after_ms, recorded.reply.clone(), recorded.error.clone());
        async move {
            pass(after, &call.clock).await;
            match (reply, error) {
                (Some(reply), _) => {
                    call.tokens.put(&reply.content);
                    Ok(reply)
                }
                (None, Some(error)) => Err(error),
                (None, None) => Err(RunError::new(
                    RunErrorCode::ModelError,
                    "the recorded run cancelled this request before its reply",
                )),
            }
        }
        .boxed()
    }

    fn answered(&self, request: &ModelRequest, session: &ModelSession) {
        self.model.answered(request, session);
    }

    fn is_external(&self) -> bool {
        self.player.calls_others && self.model.is_external()
    }

    fn call_bound(&self, request: &ModelRequest, parameters: &Map<String, Value>) -> CallBound {
        self.model.call_bound(request, parameters)
    }

    fn message_rules(&self) -> MessageRules {
        self.model.message_rules()
    }
}

/// Waits until the time of a recorded outcome.
async fn pass(after: Option<Millis>, clock: &WorkClock) {
    match after {
        Some(0) => {}
        Some(after) => clock.sleep(after).await,
        None => clock.sleep(NEVER).await,
    }
}

struct RecordedTools {
    player: Arc<Player>,
    tools: Arc<dyn Tools>,
}

impl Tools for RecordedTools {
    fn specs(&self, names: &[Arc<str>]) -> Vec<ToolSpec> {
        let specs = names.iter().flat_map(|name| {
            match self
                .player
                .recording
                .tools
                .get(&**name)
                .filter(|_| !self.player.calls_others)
            {
                Some(recorded) => recorded.iter().cloned().map(ToolSpec::from).collect(),
                None => self.tools.specs(std::slice::from_ref(name)),
            }
        });
        specs.collect()
    }

    fn is_external(&self, name: &str) -> bool {
        self.player.calls_others && self.tools.is_external(name)
    }

    fn in_doubt(&self, name: &str, is_consented: bool) -> Option<InDoubt> {
        self.tools.in_doubt(name, is_consented)
    }

    fn call(&self, names: &[Arc<str>], asked: AskedCall, clock: WorkClock) -> BoxFuture<'static, ToolOutcome> {
        if BuiltInTool::of_name(&asked.call.name).is_some() {
            return self.tools.call(names, asked, clock);
        }
        let Some(recorded) = self.player.tool_call(&asked) else {
            if self.player.calls_others {
                return self.tools.call(names, asked, clock);
            }
            let result = ToolResult::failed("the recording has no result for this call");
            return std::future::ready(ToolOutcome::Result(result)).boxed();
        };
        let after = recorded.after_ms;
        let outcome = match (&recorded.result, &recorded.needs_consent) {
            (Some(result), _) => ToolOutcome::Result(result.clone()),
            (None, Some(request)) => ToolOutcome::NeedsConsent(Box::new(request.clone())),
            (None, None) => ToolOutcome::Result(ToolResult::failed(
                "the recorded run cancelled this call before its result",
            )),
        };
        async move {
            pass(after, &clock).await;
            outcome
        }
        .boxed()
    }

    fn close(&self) {
        self.tools.close();
    }
}

#[cfg(test)]
mod tests {
    use pirn_definition::message::ToolCall;

    use super::*;

    #[test]
    fn of_two_calls_that_differ_in_a_time_each_gets_its_own_result() {
        let start: Millis = 1_796_004_687_800;
        let call = |at: Millis| RecordedToolCall {
            name: "t".to_owned(),
            arguments: json!({"at": at}),
            thread_id: "r.0".into(),
            node_id: "n".into(),
            is_consented: false,
            after_ms: Some(0),
            result: None,
            needs_consent: None,
        };
        let recording = Recording {
            run_id: "r".to_owned(),
            started_at: start,
            ended_at: start + 100,
            tool_calls: vec![call(start + 1), call(start + 2)],
            ..Recording::default()
        };
        let player = Player::new(recording, false);
        for at in [start + 2, start + 1] {
            let asked = AskedCall {
                call: ToolCall {
                    id: "c".to_owned(),
                    name: "t".to_owned(),
                    arguments: json!({"at": at}),
                },
                caller: None,
                models: None,
                is_consented: false,
            };
            let found = player.tool_call(&asked).map(|call| &call.arguments);
            assert_eq!(found, Some(&asked.call.arguments));
        }
    }
}
