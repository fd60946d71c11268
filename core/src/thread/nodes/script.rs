//! SCRIPT: runs a script that starts agents, workflows and tools.
//!
//! The script is a pure function of its source, its arguments and the ordered results of its calls. [`Effect::ScriptStep`] evaluates
//! it until it waits; the answer has the calls that are new since the last step. The node performs them by effects of other node
//! types, and delivers their results to the next step in the order of their arrival. Only these answers are journaled: a replay
//! never runs the script, and a resumed run evaluates it again with the recorded results.
//!
//! | stage | answer | action |
//! |---|---|---|
//! | Input | value | starts the first step |
//! | Step | new calls | starts them, up to `concurrency` at once; starts the next step if results have arrived meanwhile |
//! | Step | end of the script | cancels its calls; the node completes or fails |
//! | any | result of a call | starts the next queued call; starts a step unless one is in progress |

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use imbl::Vector;
use pirn_definition::Millis;
use pirn_definition::definition::{
    AgentOptions, ConversationMode, ScriptLimits, ToolEntry, agent_workflow, json_from_value, workflow_of_tool,
    workflow_tool_name,
};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{NodeKind, ScriptNode};
use pirn_definition::message::ToolCall;
use pirn_definition::value::{MAX_LEVELS, levels, memory};
use pirn_events::event::Field;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::questions::consent::ConsentOutcome;
use super::questions::question::{QuestionContent, QuestionOutcome};
use super::tool::value_of;
use crate::thread::context::{Progress, StepContext, done, evaluate, failure};
use crate::thread::data::effect::{Callee, Effect, EffectId, Evaluation, Outcome, TimerPurpose, ToolResult};
use crate::thread::data::question::{Consent, Interaction, OpenQuestion};
use crate::thread::data::script_state::{CallKind, CallLimits, ScriptInstance, ScriptState, SeenBudget};
use crate::thread::data::stages::{CallNo, NodeRun, ScriptCall, ScriptStage, ScriptWork, TakenEvent};
use crate::thread::machine::ThreadMachine;

/// Returns true if calls of this kind count for `concurrency`. Waits do not: they use nothing, and a queued timer would be late.
fn is_limited(kind: CallKind) -> bool {
    match kind {
        CallKind::Agent | CallKind::Workflow | CallKind::Tool => true,
        CallKind::Ask | CallKind::Sleep | CallKind::Event | CallKind::Cancel => false,
    }
}

/// Token budget at a step.
#[derive(Deserialize)]
struct StepTokens {
    total: u64,
    spent: u64,
    /// Number of results from which on the script saw these figures.
    from: usize,
}

impl ScriptCall {
    fn cancel(&self, cx: &mut StepContext<'_>) {
        match &self.work {
            ScriptWork::Tool {
                consent: Some(consent), ..
            } => consent.abandon(cx),
            ScriptWork::Ask { open, .. } => open.withdraw(cx),
            ScriptWork::Event { timer, .. } => {
                let ids = [Some(self.id), *timer];
                cx.out.extend(ids.into_iter().flatten().map(|id| Effect::Drop { id }));
            }
            ScriptWork::Child { .. } | ScriptWork::Tool { consent: None, .. } | ScriptWork::Sleep => {
                cx.out.push(Effect::Drop { id: self.id });
            }
        }
    }
}

/// Answer of a step.
#[derive(Deserialize)]
struct StepAnswer {
    /// Time of the first step.
    now: Option<Millis>,
    /// Token budget, if one applies.
    tokens: Option<StepTokens>,
    /// New calls, in order.
    #[serde(default)]
    calls: Vec<NewCall>,
    /// New log lines, each with its level.
    #[serde(default)]
    notes: Vec<(String, String)>,
    /// End of the script.
    end: Option<ScriptEnd>,
}

#[derive(Deserialize)]
struct NewCall {
    kind: CallKind,
    args: Value,
    digest: Arc<str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ScriptEnd {
    Returned(Value),
    /// A returned value that is too deep for an answer, as JSON.
    Written(String),
    Failed {
        code: RunErrorCode,
        message: String,
        details: Option<Value>,
    },
}

/// Result of a call for the script.
type CallResult = Result<Value, RunError>;

impl ScriptStage {
    /// Returns the open questions, each with the effect that awaits its answer.
    pub(super) fn interactions(&self, thread: &ThreadMachine) -> Vec<(EffectId, Interaction)> {
        let open = self.running.values().filter_map(|call| match &call.work {
            ScriptWork::Tool { consent, .. } => consent.as_ref()?.interaction(thread),
            ScriptWork::Ask {
                open,
                question,
                schema,
                timeout_ms,
            } => {
                let content = content(question, schema.as_ref(), *timeout_ms);
                Some((open.id, content.of(thread, open.id)))
            }
            ScriptWork::Child { .. } | ScriptWork::Sleep | ScriptWork::Event { .. } => None,
        });
        open.collect()
    }

    /// Starts a step if the script has something to do.
    fn proceed(mut self: Box<Self>, cx: &mut StepContext<'_>) -> Progress {
        self.start_queued(cx);
        if self.id.is_some() {
            return self.wait();
        }
        if self.delivered < self.results.len() {
            return self.step(cx);
        }
        if self.running.is_empty() {
            let message = "the script waits for a promise that will never settle: none of its calls is in progress";
            return self.fail(cx, RunError::new(RunErrorCode::ScriptError, message));
        }
        self.wait()
    }

    fn wait(self: Box<Self>) -> Progress {
        Progress::Wait(NodeRun::Script(self))
    }

    fn fail(self: Box<Self>, cx: &mut StepContext<'_>, error: RunError) -> Progress {
        abandon(cx, &self);
        Progress::Failed(error)
    }

    fn step(mut self: Box<Self>, cx: &mut StepContext<'_>) -> Progress {
        let id = cx.next_effect();
        self.id = Some(id);
        // The results before were delivered by the last step.
        let from = if self.now.is_some() { self.delivered + 1 } else { 0 };
        self.delivered = self.results.len();
        let state = self.state(cx.thread, from);
        cx.out.push(Effect::ScriptStep {
            id,
            node: cx.thread.at,
            state: Arc::new(state),
        });
        self.wait()
    }

    /// Returns the recorded inputs up to the results that were delivered last.
    fn state(&self, thread: &ThreadMachine, from: usize) -> ScriptState {
        let limits = limits(thread);
        ScriptState {
            args: self.args.clone(),
            seed: self.seed,
            known: self.calls.clone(),
            results: self.results.take(self.delivered),
            notes: self.notes,
            budget: self.budget.clone(),
            from,
            tools: tool_names(thread),
            limits: CallLimits {
                calls: limits.calls,
                agents: limits.agents,
            },
            now: self.now,
            tokens: None,
            instance: self.instance.clone(),
        }
    }

    /// Returns the recorded inputs with which the script made its calls; `None` if it has made none.
    pub(super) fn recorded(&self, thread: &ThreadMachine) -> Option<ScriptState> {
        (!self.calls.is_empty()).then(|| self.state(thread, self.delivered + 1))
    }

    fn stepped(mut self: Box<Self>, cx: &mut StepContext<'_>, outcome: Outcome) -> Progress {
        self.id = None;
        let answer = match outcome {
            Outcome::Value(value) => StepAnswer::deserialize(&*value).map_err(|error| {
                let message = format!("the answer of the script's host is invalid: {error}");
                RunError::new(RunErrorCode::ScriptError, message)
            }),
            other => Err(failure(other)),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.fail(cx, error),
        };
        self.now = self.now.or(answer.now);
        if let Some(StepTokens { total, spent, from }) = answer.tokens {
            let seen = SeenBudget {
                total,
                spent: Vector::new(),
            };
            let seen = self.budget.get_or_insert(seen);
            if seen.spent.last().is_none_or(|(_, before)| *before != spent) {
                seen.spent.push_back((from, spent));
            }
        }
        self.notes += answer.notes.len() as u64;
        for (level, text) in answer.notes {
            note(cx, &level, &text);
            self.add_to_log(cx, &text);
        }
        match answer.end {
            None => {}
            Some(ScriptEnd::Returned(value)) => return self.returned(cx, value),
            Some(ScriptEnd::Written(json)) => {
                return match serde_json::from_str(&json) {
                    Ok(value) => self.returned(cx, value),
                    Err(error) => self.fail(cx, RunError::new(RunErrorCode::ScriptError, error.to_string())),
                };
            }
            Some(ScriptEnd::Failed { code, message, details }) => {
                let error = RunError::new(code, message);
                let error = match details {
                    Some(details) => error.with_details(details),
                    None => error,
                };
                return self.fail(cx, error);
            }
        }
        let limits = limits(cx.thread);
        let is_code_mode = tool_result_bytes(cx).is_some();
        for NewCall { kind, args, digest } in answer.calls {
            let no = self.calls.len() as CallNo;
            self.calls.push_back((kind, digest));
            // The script makes no call to cancel the losers of a join: the join does.
            self.cancels += u32::from(kind == CallKind::Cancel);
            if kind != CallKind::Cancel && no - self.cancels >= limits.calls {
                let message = format!(
                    "the script made more than {} calls of its host (`limits.calls`)",
                    limits.calls
                );
                return self.fail(cx, RunError::new(RunErrorCode::ScriptLimitExceeded, message));
            }
            match kind {
                // Those of a script of `run_code` are refused when they start.
                CallKind::Agent | CallKind::Workflow if !is_code_mode => {
                    self.agents += 1;
                    if self.agents > limits.agents {
                        let message = format!(
                            "the script started more than {} agents (`limits.agents`)",
                            limits.agents
                        );
                        return self.fail(cx, RunError::new(RunErrorCode::ScriptLimitExceeded, message));
                    }
                    if let Err(mut error) = cx.start_agents(1) {
                        error.code = RunErrorCode::ScriptLimitExceeded;
                        return self.fail(cx, error);
                    }
                    self.queue.push_back((no, args));
                }
                CallKind::Agent | CallKind::Workflow | CallKind::Tool => self.queue.push_back((no, args)),
                CallKind::Cancel => self.cancel_calls(cx, &args),
                CallKind::Ask | CallKind::Sleep | CallKind::Event => self.start(cx, no, args),
            }
            if let Some(error) = self.excess(limits) {
                return self.fail(cx, error);
            }
        }
        // The script has received these events, and has cancelled no call of them.
        self.taken.retain(|taken| taken.result >= self.delivered);
        self.proceed(cx)
    }

    fn returned(self: Box<Self>, cx: &mut StepContext<'_>, value: Value) -> Progress {
        let output = match tool_result_bytes(cx) {
            Some(limit) => match self.as_tool_result(value, limit) {
                Ok(text) => Value::from(text),
                Err(error) => return self.fail(cx, error),
            },
            None => value,
        };
        // Calls that the script does not await any more.
        abandon(cx, &self);
        done(Arc::new(output).into())
    }

    /// Adds a line to the log of a script of `run_code`.
    fn add_to_log(&mut self, cx: &StepContext<'_>, text: &str) {
        let Some(limit) = tool_result_bytes(cx) else { return };
        // One line more than the limit: the output is then refused.
        if (self.log.len() as u64) <= limit {
            self.log.push('\n');
            self.log.push_str(text);
        }
    }

    /// Returns the output of a script of `run_code`: the return value as text, and the log lines.
    fn as_tool_result(&self, value: Value, limit: u64) -> Result<String, RunError> {
        let mut text = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        if !self.log.is_empty() {
            text.push_str("\n\nLog:");
            text.push_str(&self.log);
        }
        let bytes = text.len();
        if bytes as u64 > limit {
            let message = format!(
                "the return value and the log of the script have {bytes} bytes, more than {limit} (`codeLimits.outputBytes`): return \
                 less, such as the parts that matter"
            );
            return Err(RunError::new(RunErrorCode::ScriptLimitExceeded, message));
        }
        Ok(text)
    }

    /// Cancels the calls that a decided join of the script does not need.
    fn cancel_calls(&mut self, cx: &mut StepContext<'_>, args: &Value) {
        let numbers = args.as_array().into_iter().flatten();
        let numbers: BTreeSet<CallNo> = numbers.filter_map(|no| CallNo::try_from(no.as_u64()?).ok()).collect();
        for no in &numbers {
            if let Some(call) = self.running.remove(no) {
                call.cancel(cx);
            }
            self.give_back_event(cx, *no);
        }
        self.queue.retain(|(queued, _)| !numbers.contains(queued));
    }

    /// Makes the event of a call that was cancelled after its arrival available to the later waits of the thread.
    fn give_back_event(&mut self, cx: &mut StepContext<'_>, no: CallNo) {
        let Some(place) = self.taken.iter().position(|taken| taken.call == no) else {
            return;
        };
        let TakenEvent {
            word, sequence, before, ..
        } = self.taken.remove(place);
        let taken = cx.thread.taken.get_or_insert_default();
        // Another call may have taken a later event: the earlier one would then be out of order.
        if taken.last(&word) == sequence {
            taken.give_back(&word, before);
        }
    }

    fn start_queued(&mut self, cx: &mut StepContext<'_>) {
        let limit = limits(cx.thread).concurrency;
        let limit = limit.min(cx.environment.concurrency.unwrap_or(limit)) as usize;
        loop {
            let limited = self.running.values().filter(|call| is_limited(call.kind)).count();
            if limited >= limit {
                return;
            }
            let Some((no, args)) = self.queue.pop_front() else {
                return;
            };
            self.start(cx, no, args);
        }
    }

    fn start(&mut self, cx: &mut StepContext<'_>, no: CallNo, args: Value) {
        let Some((kind, _)) = self.calls.get(no as usize) else {
            return;
        };
        let kind = *kind;
        match start(cx, kind, no, args) {
            Ok((id, work)) => drop(self.running.insert(no, ScriptCall { kind, id, work })),
            // The script handles the error, as one of the call.
            Err(error) => self.deliver(no, Err(error)),
        }
    }

    fn deliver(&mut self, no: CallNo, result: CallResult) {
        let result = result.and_then(|value| {
            // The value becomes part of the next step's state, which is two levels deeper.
            if levels(&value) + 4 > MAX_LEVELS {
                return Err(RunError::from(pirn_definition::value::too_deep()));
            }
            Ok(value)
        });
        let result = match result {
            Ok(value) => json!({ "call": no, "value": value }),
            Err(error) => {
                // The message of the innermost cause says what happened; the outer ones name threads.
                let mut cause = &error;
                while let Some(inner) = &cause.cause {
                    cause = inner;
                }
                json!({ "call": no, "error": { "code": cause.code, "message": cause.message } })
            }
        };
        self.bytes += memory(&result);
        self.results.push_back(Arc::new(result));
    }

    fn excess(&self, limits: ScriptLimits) -> Option<RunError> {
        let limit = limits.result_bytes;
        (self.bytes > limit).then(|| {
            let message =
                format!("the results of the script's calls have more than {limit} bytes (`limits.resultBytes`)");
            RunError::new(RunErrorCode::ScriptLimitExceeded, message)
        })
    }

    fn answered(mut self: Box<Self>, cx: &mut StepContext<'_>, effect: EffectId, outcome: Outcome) -> Progress {
        let found = self.running.iter().find(|(_, call)| call.awaits(effect));
        // A late answer to a call that was cancelled.
        let Some((no, call)) = found.map(|(no, _)| *no).and_then(|no| self.running.remove_entry(&no)) else {
            return self.wait();
        };
        let word = match &call.work {
            ScriptWork::Event { event, .. } => Some(Arc::clone(event)),
            _ => None,
        };
        let last = |cx: &StepContext<'_>| {
            let taken = cx.thread.taken.as_deref();
            word.as_deref()
                .map_or(0, |word| taken.map_or(0, |taken| taken.last(word)))
        };
        let before = last(cx);
        match ended(cx, no, call, effect, outcome) {
            Continue(call) => {
                self.running.insert(no, call);
                self.wait()
            }
            Break(result) => {
                let sequence = last(cx);
                if let Some(word) = word.filter(|_| sequence != before) {
                    self.taken.push(TakenEvent {
                        result: self.results.len(),
                        call: no,
                        word,
                        sequence,
                        before,
                    });
                }
                self.deliver(no, result);
                match self.excess(limits(cx.thread)) {
                    Some(error) => self.fail(cx, error),
                    None => self.proceed(cx),
                }
            }
        }
    }
}

pub(super) fn enter(cx: &mut StepContext<'_>, node: &ScriptNode) -> Progress {
    if let Some(after_ms) = node.limits.time_ms {
        cx.limit(after_ms);
    }
    let mut stage = Box::new(ScriptStage {
        id: None,
        args: None,
        // 53 bits: JavaScript reads the number exactly.
        seed: cx.environment.random >> 11,
        now: None,
        notes: 0,
        calls: Vector::new(),
        queue: VecDeque::new(),
        running: BTreeMap::new(),
        results: Vector::new(),
        delivered: 0,
        taken: Vec::new(),
        cancels: 0,
        bytes: 0,
        agents: 0,
        budget: None,
        log: String::new(),
        instance: ScriptInstance::default(),
    });
    if node.input.is_some() {
        stage.id = Some(evaluate(cx, Evaluation::Input));
        return stage.wait();
    }
    stage.args = Some(Arc::clone(&cx.thread.input));
    stage.step(cx)
}

pub(super) fn answer(
    cx: &mut StepContext<'_>,
    mut stage: Box<ScriptStage>,
    effect: EffectId,
    outcome: Outcome,
) -> Progress {
    if stage.id != Some(effect) {
        return stage.answered(cx, effect, outcome);
    }
    if stage.args.is_some() {
        return stage.stepped(cx, outcome);
    }
    match outcome {
        Outcome::Value(args) => {
            stage.args = Some(args);
            stage.step(cx)
        }
        other => Progress::Failed(failure(other)),
    }
}

/// Cancels the active effects of the node.
pub(super) fn abandon(cx: &mut StepContext<'_>, stage: &ScriptStage) {
    if let Some(id) = stage.id {
        cx.out.push(Effect::Drop { id });
    }
    for call in stage.running.values() {
        call.cancel(cx);
    }
}

fn limits(thread: &ThreadMachine) -> ScriptLimits {
    match &thread.graph().node(thread.at).kind {
        NodeKind::Orchestration(node) => node.limits,
        // The stage belongs to a SCRIPT node, so that this does not occur.
        _ => ScriptLimits::default(),
    }
}

/// Returns the maximum bytes of the output of a script of `run_code`; `None` for other scripts.
fn tool_result_bytes(cx: &StepContext<'_>) -> Option<u64> {
    match &cx.thread.graph().node(cx.thread.at).kind {
        NodeKind::Orchestration(node) => node.tool_result_bytes,
        _ => None,
    }
}

/// Returns the names of the tools that the script may call, without those that match a pattern.
fn tool_names(thread: &ThreadMachine) -> Vec<String> {
    let NodeKind::Orchestration(node) = &thread.graph().node(thread.at).kind else {
        return Vec::new();
    };
    let registered = node
        .tools
        .iter()
        .filter(|tool| workflow_of_tool(tool).is_none() && !tool.ends_with('*'));
    let workflows = called_workflows(node)
        .filter_map(workflow_of_tool)
        .map(workflow_tool_name);
    registered.map(ToString::to_string).chain(workflows).collect()
}

fn note(cx: &mut StepContext<'_>, level: &str, text: &str) {
    cx.emit(EventType::ScriptLog, |thread| {
        [
            ("nodeId", Field::from(&thread.graph().node(thread.at).id)),
            ("level", json!(level).into()),
            ("message", json!(text).into()),
        ]
    });
}

fn content(
    question: &Arc<str>,
    schema: Option<&Arc<Map<String, Value>>>,
    timeout_ms: Option<Millis>,
) -> QuestionContent {
    QuestionContent {
        question: Arc::clone(question),
        schema: schema.cloned(),
        timeout_ms,
        is_of_script: true,
        ..QuestionContent::default()
    }
}

// ---- arguments of the calls; the script's host has checked none of them

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AgentArgs {
    prompt: String,
    system: Option<String>,
    schema: Option<Value>,
    profile_id: Option<String>,
    model: Option<String>,
    tools: Option<Vec<String>>,
    label: Option<String>,
    phase: Option<String>,
    timeout_ms: Option<u64>,
    max_tool_rounds: Option<u32>,
}

#[derive(Deserialize)]
struct NamedArgs {
    name: String,
    #[serde(default)]
    input: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskArgs {
    question: String,
    schema: Option<Map<String, Value>>,
    timeout_ms: Option<Millis>,
}

#[derive(Deserialize)]
struct SleepArgs {
    ms: Millis,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventArgs {
    name: String,
    timeout_ms: Option<Millis>,
}

/// Longest sleep of a script of `run_code`: 5 minutes.
const LONGEST_SLEEP_MS: Millis = 300_000;

/// Longest time of a timer, so that sums of times do not overflow: 100 years.
const LONGEST_MS: Millis = 100 * 366 * 24 * 3_600_000;

fn read<T: serde::de::DeserializeOwned>(kind: CallKind, args: Value) -> Result<T, RunError> {
    T::deserialize(&args).map_err(|error| {
        // Read again for the error alone: this reader names the field and its JSON type, and copies the arguments.
        let strict = json_from_value::<T>(args);
        let reason = strict.map_or_else(|error| error.sentence("the argument"), |_| error.to_string());
        RunError::new(RunErrorCode::InvalidInput, format!("{}: {reason}", name_of(kind)))
    })
}

/// Returns the name of the function that makes such calls.
fn name_of(kind: CallKind) -> String {
    json!(kind).as_str().unwrap_or_default().to_owned()
}

fn refused(message: String) -> RunError {
    RunError::new(RunErrorCode::InvalidInput, message)
}

/// Returns true if the node lists the tool, or a pattern such as `git_*` that matches it.
fn offers(node: &ScriptNode, name: &str) -> bool {
    node.tools.iter().any(|listed| ToolEntry::includes(listed, name))
}

/// Starts a call. Returns its effect.
fn start(
    cx: &mut StepContext<'_>,
    kind: CallKind,
    no: CallNo,
    args: Value,
) -> Result<(EffectId, ScriptWork), RunError> {
    let graph = Arc::clone(cx.thread.graph());
    let NodeKind::Orchestration(node) = &graph.node(cx.thread.at).kind else {
        return Err(failure(Outcome::Done));
    };
    let is_code_mode = node.tool_result_bytes.is_some();
    match kind {
        CallKind::Agent | CallKind::Workflow | CallKind::Ask | CallKind::Event if is_code_mode => {
            let name = name_of(kind);
            Err(refused(format!("{name}: a script of `run_code` may call tools only")))
        }
        CallKind::Agent => {
            let args: AgentArgs = read(kind, args)?;
            let (source, input, is_json) = agent(node, args)?;
            Ok((
                child(cx, Callee::Inline(source.into()), input),
                ScriptWork::Child { is_json },
            ))
        }
        CallKind::Workflow => {
            let NamedArgs { name, input } = read(kind, args)?;
            if node.workflows.as_ref().is_some_and(|allowed| !allowed.contains(&name)) {
                return Err(refused(format!(
                    "workflow: `{name}` is not in the `workflows` of the SCRIPT node"
                )));
            }
            let id = child(cx, Callee::Registered(name.into()), input);
            Ok((id, ScriptWork::Child { is_json: false }))
        }
        CallKind::Tool => tool(cx, node, no, read(kind, args)?),
        CallKind::Ask => {
            let AskArgs {
                question,
                schema,
                timeout_ms,
            } = read(kind, args)?;
            let (question, schema) = (Arc::from(question), schema.map(Arc::new));
            let timeout_ms = timeout_ms.map(|limit| limit.min(LONGEST_MS));
            let open = OpenQuestion::put(cx, content(&question, schema.as_ref(), timeout_ms));
            let work = ScriptWork::Ask {
                open,
                question,
                schema,
                timeout_ms,
            };
            Ok((open.id, work))
        }
        CallKind::Sleep => {
            let SleepArgs { ms } = read(kind, args)?;
            if is_code_mode && ms > LONGEST_SLEEP_MS {
                return Err(refused(format!(
                    "sleep: at most {LONGEST_SLEEP_MS} ms in a script of `run_code`"
                )));
            }
            Ok((timer(cx, ms, TimerPurpose::Wait), ScriptWork::Sleep))
        }
        CallKind::Event => Ok(event(cx, read(kind, args)?)),
        // Performed by `cancel_calls`.
        CallKind::Cancel => Err(failure(Outcome::Done)),
    }
}

/// Starts the call of a tool.
fn tool(
    cx: &mut StepContext<'_>,
    node: &ScriptNode,
    no: CallNo,
    args: NamedArgs,
) -> Result<(EffectId, ScriptWork), RunError> {
    let NamedArgs { name, input } = args;
    let mut called = called_workflows(node).filter_map(workflow_of_tool);
    if !offers(node, &name) && !called.any(|id| workflow_tool_name(id) == name) {
        return Err(refused(not_offered(node, &name)));
    }
    let id = cx.next_effect();
    let call = ToolCall {
        id: call_id(no),
        name: name.clone(),
        arguments: input,
    };
    cx.emit(EventType::ToolCallStarted, |thread| {
        [
            ("nodeId", json!(thread.graph().node(thread.at).id)),
            ("toolCallId", json!(call.id)),
            ("name", json!(call.name)),
            ("arguments", call.arguments.clone()),
        ]
    });
    cx.out.push(Effect::Tool {
        id,
        key: id,
        node: cx.thread.at,
        call,
        is_consented: false,
    });
    Ok((id, ScriptWork::Tool { name, consent: None }))
}

/// Returns the entries of `tools` that may be workflows which the script calls by `tool`: those of the node of a script of `run_code`.
/// Other scripts call workflows by `workflow`, which counts them.
pub(crate) fn called_workflows(node: &ScriptNode) -> impl Iterator<Item = &str> {
    let tools = node.tool_result_bytes.iter().flat_map(|_| &node.tools);
    tools.map(|tool| &**tool)
}

fn not_offered(node: &ScriptNode, name: &str) -> String {
    if node.tool_result_bytes.is_none() {
        return format!("tool: `{name}` is not in the `tools` of the SCRIPT node");
    }
    let offered = node.tools.iter().map(|tool| match workflow_of_tool(tool) {
        Some(id) => workflow_tool_name(id),
        None => tool.to_string(),
    });
    let offered: Vec<String> = offered.collect();
    format!(
        "there is no tool `{name}` for scripts; there are: {}",
        offered.join(", ")
    )
}

/// Starts a call that waits for an event.
fn event(cx: &mut StepContext<'_>, args: EventArgs) -> (EffectId, ScriptWork) {
    let EventArgs { name, timeout_ms } = args;
    let event = Arc::from(name);
    let id = cx.wait_event(&event);
    let timer = timeout_ms.map(|after_ms| timer(cx, after_ms, TimerPurpose::Limit));
    (id, ScriptWork::Event { event, timer })
}

/// Returns the source of the agent's workflow, its input, and whether its output is the text of a JSON value.
fn agent(node: &ScriptNode, args: AgentArgs) -> Result<(String, Value, bool), RunError> {
    let named = args.profile_id;
    if let (Some(named), Some(allowed)) = (&named, &node.profiles)
        && !allowed.contains(named)
    {
        return Err(refused(format!(
            "agent: `{named}` is not in the `profiles` of the SCRIPT node"
        )));
    }
    let of_model = args.model.and_then(|model| node.models.get(&model).cloned());
    let all = || node.tools.iter().map(ToString::to_string).collect();
    let tools: Vec<String> = args.tools.unwrap_or_else(all);
    if let Some(other) = tools.iter().find(|name| !offers(node, name)) {
        return Err(refused(format!(
            "agent: the tool `{other}` is not in the `tools` of the SCRIPT node"
        )));
    }
    let is_json = args.schema.is_some();
    let source = agent_workflow(&AgentOptions {
        profile_id: named
            .or(of_model)
            .or_else(|| node.profile_id.as_deref().map(str::to_owned)),
        has_system: args.system.is_some(),
        tools,
        schema: args.schema,
        timeout_ms: args.timeout_ms.map(|limit| limit.min(LONGEST_MS)),
        max_tool_rounds: args.max_tool_rounds,
    });
    let mut input = Map::from_iter([("prompt".to_owned(), Value::from(args.prompt))]);
    // The label and the phase are for readers of the run: the input of a thread is shown with it.
    let named = [("system", args.system), ("label", args.label), ("phase", args.phase)];
    input.extend(
        named
            .into_iter()
            .filter_map(|(key, text)| Some((key.to_owned(), Value::from(text?)))),
    );
    Ok((source, Value::Object(input), is_json))
}

fn child(cx: &mut StepContext<'_>, callee: Callee, input: Value) -> EffectId {
    let id = cx.next_effect();
    cx.out.push(Effect::Child {
        id,
        node: cx.thread.at,
        callee,
        input: Arc::new(input),
        conversation: ConversationMode::None,
    });
    id
}

fn timer(cx: &mut StepContext<'_>, after_ms: Millis, purpose: TimerPurpose) -> EffectId {
    let id = cx.next_effect();
    cx.out.push(Effect::Timer {
        id,
        node: cx.thread.at,
        after_ms: after_ms.min(LONGEST_MS),
        purpose,
    });
    id
}

fn call_id(no: CallNo) -> String {
    format!("script-{no}")
}

/// Processes an awaited answer: the call continues, or breaks with its result.
fn ended(
    cx: &mut StepContext<'_>,
    no: CallNo,
    call: ScriptCall,
    effect: EffectId,
    outcome: Outcome,
) -> ControlFlow<CallResult, ScriptCall> {
    let ScriptCall { kind, id, work } = call;
    match (work, outcome) {
        (ScriptWork::Child { is_json: false }, Outcome::Child { output }) => Break(Ok(Arc::unwrap_or_clone(output))),
        (ScriptWork::Child { is_json: true }, Outcome::Child { output }) => {
            // The model's reply has passed the check against the schema.
            let text = output.as_str().unwrap_or_default();
            let parsed = serde_json::from_str(text).map_err(|error| {
                let message = format!("agent: the reply is not JSON: {error}");
                RunError::new(RunErrorCode::ModelError, message)
            });
            Break(parsed)
        }
        (ScriptWork::Tool { name, consent: None }, Outcome::NeedsConsent(request)) => {
            let consent = Consent::ask(cx, name.clone(), call_id(no), *request);
            let consent = Some(Box::new(consent));
            Continue(ScriptCall {
                kind,
                id,
                work: ScriptWork::Tool { name, consent },
            })
        }
        (
            ScriptWork::Tool {
                name,
                consent: Some(consent),
            },
            outcome,
        ) => match consent.answer(cx, id, effect, outcome) {
            ConsentOutcome::Waits(consent) => {
                let consent = Some(Box::new(consent));
                Continue(ScriptCall {
                    kind,
                    id,
                    work: ScriptWork::Tool { name, consent },
                })
            }
            ConsentOutcome::Ended(result, _) => Break(tool_result(cx, no, &name, &result)),
        },
        (ScriptWork::Tool { name, consent: None }, Outcome::Tool(result)) => Break(tool_result(cx, no, &name, &result)),
        // The tool is a workflow.
        (ScriptWork::Tool { name, consent: None }, Outcome::Child { output }) => {
            let output = Arc::unwrap_or_clone(output);
            tool_event(cx, EventType::ToolCallCompleted, no, &name, &output);
            Break(Ok(output))
        }
        (ScriptWork::Ask { open, timeout_ms, .. }, outcome) => Break(match open.handle_answer(cx, effect, outcome) {
            QuestionOutcome::Answered(answer) => Ok(Arc::unwrap_or_clone(answer.answer)),
            QuestionOutcome::NobodyInTime => {
                let message = format!("ask: no answer within {} ms", timeout_ms.unwrap_or_default());
                Err(RunError::new(RunErrorCode::NodeTimeout, message))
            }
            QuestionOutcome::Failed(error) => Err(error),
        }),
        (ScriptWork::Sleep, Outcome::Elapsed) => Break(Ok(Value::Null)),
        // Another wait of this thread took the event after this one had begun.
        (ScriptWork::Event { event, timer }, Outcome::Event { sequence, .. })
            if cx
                .thread
                .taken
                .as_deref()
                .is_some_and(|taken| taken.is_taken(&event, sequence)) =>
        {
            let id = cx.wait_event(&event);
            Continue(ScriptCall {
                kind,
                id,
                work: ScriptWork::Event { event, timer },
            })
        }
        (ScriptWork::Event { event, timer }, outcome) => {
            if timer == Some(effect) {
                cx.out.push(Effect::Drop { id });
                let message = format!("event: no event {event} within the time limit");
                return Break(Err(RunError::new(RunErrorCode::NodeTimeout, message)));
            }
            if let Some(id) = timer {
                cx.out.push(Effect::Drop { id });
            }
            Break(match outcome {
                Outcome::Event { sequence, event: value } => {
                    cx.take_event(&event, sequence);
                    Ok((**value.value()).clone())
                }
                other => Err(failure(other)),
            })
        }
        (ScriptWork::Tool { name, .. }, other) => {
            let error = failure(other);
            tool_event(cx, EventType::ToolCallFailed, no, &name, &json!(error.to_string()));
            Break(Err(error))
        }
        (ScriptWork::Child { .. } | ScriptWork::Sleep, other) => Break(Err(failure(other))),
    }
}

fn tool_event(cx: &mut StepContext<'_>, event_type: EventType, no: CallNo, name: &str, result: &Value) {
    cx.emit(event_type, |thread| {
        [
            ("nodeId", json!(thread.graph().node(thread.at).id)),
            ("toolCallId", json!(call_id(no))),
            ("name", json!(name)),
            ("result", result.clone()),
        ]
    });
}

fn tool_result(cx: &mut StepContext<'_>, no: CallNo, name: &str, result: &ToolResult) -> CallResult {
    // Also for a failed tool: its model calls were made.
    cx.spend(result.spent.as_deref().copied().unwrap_or_default());
    let event_type = if result.failed {
        EventType::ToolCallFailed
    } else {
        EventType::ToolCallCompleted
    };
    tool_event(cx, event_type, no, name, &json!(result.content));
    if result.failed {
        let message = format!("the tool {name} failed: {}", result.content);
        return Err(RunError::new(RunErrorCode::ToolError, message));
    }
    Ok(value_of(&result.content))
}
