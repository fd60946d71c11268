//! Check of one profile: a request for a reply, and a request for a tool call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{Engine, EventType, Profile, RunError, RunErrorCode, RunReport, ThreadStatus, Tool, ToolSpec};
use pirn_actors::host::WorkClock;
use pirn_conversation::model_call::{FailureKind, ModelFailure};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Time limit of a check, milliseconds.
const LONGEST_MS: u64 = 60_000;

/// Event capacity: more pieces than the reply to a check can have.
const PIECES: usize = 4_096;

/// Findings about a profile; a `None` field could not be determined.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProbeResult {
    id: String,
    provider: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    reachable: Option<bool>,
    key_accepted: Option<bool>,
    answers: Option<bool>,
    /// Number of pieces in which the reply arrived.
    pieces: usize,
    streams: Option<bool>,
    tools: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl ProbeResult {
    pub(super) fn works(&self) -> bool {
        self.answers == Some(true)
    }

    pub(super) fn as_text(&self) -> String {
        let model = self
            .model
            .as_deref()
            .map(|model| format!(", {model}"))
            .unwrap_or_default();
        let endpoint = self
            .endpoint
            .as_deref()
            .map(|place| format!(" at {place}"))
            .unwrap_or_default();
        let head = format!("{} ({}{model}{endpoint})\n", self.id, self.provider);
        let facts = [
            ("reachable", self.reachable),
            ("key accepted", self.key_accepted),
            ("answers", self.answers),
            ("streams", self.streams),
            ("tools", self.tools),
        ];
        let lines = facts.into_iter().map(|(name, known)| {
            let known = match known {
                Some(true) => "yes",
                Some(false) => "no",
                None => "not known",
            };
            format!("  {name:<13} {known}\n")
        });
        let error = self.error.iter().map(|error| format!("  {error}\n"));
        std::iter::once(head).chain(lines).chain(error).collect()
    }
}

/// Checks the profile's model with two requests: one for some words, one for a tool call.
pub(super) fn check(profile: &Profile) -> ProbeResult {
    let mut checked = ProbeResult {
        id: profile.id.clone(),
        provider: profile.provider.clone(),
        model: profile.model.clone(),
        endpoint: profile.endpoint.clone(),
        reachable: None,
        key_accepted: None,
        answers: None,
        pieces: 0,
        streams: None,
        tools: None,
        error: None,
    };
    let profile = alone(profile);
    let asked = ask(
        &profile,
        &json!({"prompt": "Count from one to five in words. Reply with the words only."}),
        None,
    );
    match asked {
        Ok(pieces) => {
            checked.reachable = Some(true);
            checked.key_accepted = Some(true);
            checked.answers = Some(true);
            checked.pieces = pieces;
            let asks_whole = profile.rest.get("stream") == Some(&Value::Bool(false));
            // A single piece is inconclusive: the reply may be that short.
            checked.streams = if asks_whole {
                Some(false)
            } else {
                (pieces > 1).then_some(true)
            };
        }
        Err(error) => {
            checked.failed(&error);
            return checked;
        }
    }
    let called = Arc::new(AtomicBool::new(false));
    let node = json!({
        "prompt": format!("Call the tool {TOOL} with the word \"ready\", then reply with: done."),
        "tools": [TOOL],
        // One round is enough to know, and some models request the tool again after each result.
        "maxToolRounds": 1, "onLimit": "answer",
    });
    let asked = ask(&profile, &node, Some(Arc::clone(&called)));
    checked.tools = Some(called.load(Ordering::Relaxed));
    match asked {
        Err(error) if has_no_rule(&error) => {
            checked.tools = checked.tools.filter(|called| *called);
            checked.error = Some(format!("with a tool: {NO_RULE}"));
        }
        Err(error) => checked.error = Some(format!("with a tool: {}", error.message)),
        Ok(_) => {}
    }
    checked
}

impl ProbeResult {
    fn failed(&mut self, error: &RunError) {
        if has_no_rule(error) {
            self.error = Some(NO_RULE.to_owned());
            return;
        }
        let failure = ModelFailure::of(error);
        self.answers = Some(false);
        self.error = Some(error.message.clone());
        match failure.kind {
            FailureKind::Unreachable => self.reachable = Some(false),
            FailureKind::Key => {
                self.reachable = failure.status.map(|_| true);
                self.key_accepted = Some(false);
            }
            FailureKind::RateLimited
            | FailureKind::Provider
            | FailureKind::Rejected
            | FailureKind::Stalled
            | FailureKind::Late
            | FailureKind::Dropped
            | FailureKind::Malformed
            | FailureKind::BadFormat => self.reachable = Some(true),
            FailureKind::Unknown => {}
        }
    }
}

/// The message for a script without a rule for the requests of a check.
const NO_RULE: &str = "no rule of the script matches the request of the check";

/// True if the profile is a script that has no rule for the request.
fn has_no_rule(error: &RunError) -> bool {
    let details = error.details.as_ref();
    details.is_some_and(|details| details.get("noResponseLeft") == Some(&Value::Bool(true)))
}

/// Returns the profile without fallback and retries, which would hide a failure.
fn alone(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    profile.rest.remove("fallback");
    profile.rest.insert("retry".to_owned(), json!({"maxAttempts": 1}));
    let mut timeouts = match profile.rest.get("timeouts") {
        Some(Value::Object(timeouts)) => timeouts.clone(),
        Some(_) | None => Map::new(),
    };
    let total = timeouts
        .get("totalMs")
        .and_then(Value::as_u64)
        .filter(|total| *total > 0);
    let total = total.map_or(LONGEST_MS, |total| total.min(LONGEST_MS));
    timeouts.insert("totalMs".to_owned(), json!(total));
    profile.rest.insert("timeouts".to_owned(), Value::Object(timeouts));
    profile
}

/// Runs one LLM node, and returns the number of pieces of its reply.
fn ask(profile: &Profile, node: &Value, called: Option<Arc<AtomicBool>>) -> Result<usize, RunError> {
    let mut node = node.clone();
    node["profileId"] = json!(profile.id);
    let workflow = json!({"id": "check",
        "nodes": [{"id": "start", "type": "START"}, {"id": "ask", "type": "LLM", "config": node}, {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}]});
    let mut builder = Engine::builder()
        .profiles([profile.clone()])
        .arbiters(1)
        .workflows(workflow.to_string());
    if let Some(called) = called {
        builder = builder.tool(Arc::new(Probe { called }));
    }
    let lost = |error: &dyn std::fmt::Display| RunError::new(RunErrorCode::ModelError, error.to_string());
    let engine = builder.build().map_err(|error| lost(&error))?;
    let mut run = engine.run("check");
    let pieces = run.blocking_events(&[EventType::LlmToken], PIECES);
    let report = run.start()?.outcome_blocking();
    engine.shutdown_blocking(Duration::from_secs(1));
    failure(&report).map_or_else(|| Ok(pieces.count()), Err)
}

/// Returns the model's own error, which is nested below those of the node and the run.
fn failure(report: &RunReport) -> Option<RunError> {
    if report.status == ThreadStatus::Completed {
        return None;
    }
    let top = report.error.clone();
    let top = top.unwrap_or_else(|| RunError::new(RunErrorCode::ModelError, "the run ended without an answer"));
    let mut error = &top;
    while error.code != RunErrorCode::ModelError {
        match error.cause.as_ref() {
            Some(cause) => error = cause,
            None => return Some(top),
        }
    }
    Some(error.clone())
}

const TOOL: &str = "repeat_word";

/// A tool that records that it was called.
struct Probe {
    called: Arc<AtomicBool>,
}

impl Tool for Probe {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: TOOL.to_owned(),
            description: "Repeats a word".to_owned(),
            parameters: json!({"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}),
        }
    }

    fn call(&self, arguments: Value, _: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        self.called.store(true, Ordering::Relaxed);
        async move { Ok(arguments["word"].as_str().unwrap_or_default().to_owned()) }.boxed()
    }
}
