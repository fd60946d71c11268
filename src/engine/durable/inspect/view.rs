//! Read access to stored runs: the current state, the state after a step, the steps and the threads.

use std::collections::BTreeSet;
use std::sync::Arc;

use pirn_actors::rebuilt_run::RebuiltRun;
use pirn_core::run::{
    DoubtKind, JournaledInput, Message, PendingWaits, RunReport, ThreadNo, Timer, ToSupervisor, ToThread,
};
use pirn_core::thread::{EffectId, Input, Interaction, Outcome};
use pirn_store::{Run, WaitingFor};
use serde::Serialize;
use serde_json::{Value, json};

use super::failures::{FailedNode, FailureWatch};
use super::requests::{RequestSummary, RequestWatch};
use super::sent_call::SettingsSource;
use super::threads::{ThreadSpan, ThreadWatch};
use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::engine::durable::records::journal::{answered, waiting_for};
use crate::engine::durable::records::stored::StoredRecords;
use crate::engine::durable::resume_error::ResumeError;

/// State of a stored run after one of its steps.
#[derive(Debug)]
pub struct RunView {
    /// Stored metadata of the run. Always current, not as of `step`.
    pub run: Run,
    /// Input with which the run started.
    pub input: Arc<Value>,
    /// Number of the step.
    pub step: u64,
    /// Report as of the step.
    pub report: RunReport,
    /// Reason that the run waited, unless an effect was executing or the run had ended.
    pub waiting_for: Option<WaitingFor>,
    /// Steps up to and including `step`.
    pub history: Vec<Step>,
    /// Events raised up to and including `step`.
    pub events: Vec<Arc<pirn_events::event::Event>>,
    /// Open questions to a person.
    pub interactions: Vec<Interaction>,
    /// Threads that were started up to and including `step`, in start order.
    pub threads: Vec<ThreadSpan>,
    /// Model calls up to and including `step`, in the order of their requests.
    pub requests: Vec<RequestSummary>,
    /// Threads that failed, in the order of their ends.
    pub(in crate::engine::durable) failed: Vec<FailedNode>,
    /// Definition that the run currently uses.
    definition: Arc<str>,
}

impl RunView {
    /// Returns the report as of the step, with the run's status in its store: the JSON that `pirn runs show` prints.
    pub fn to_json(&self) -> Value {
        let mut shown = json!(self.report);
        shown["steps"] = json!(self.step);
        let is_current = self.is_current();
        if let Some(what) = self.shown_wait() {
            shown["waitingFor"] = json!(what.as_str());
            shown["status"] = json!("WAITING");
        }
        if let Some(base) = &self.run.base {
            shown["forkedFrom"] = json!({"runId": base.run, "step": base.step});
        }
        if let Some(session) = &self.run.session {
            shown["session"] = json!(session);
        }
        if !self.interactions.is_empty() {
            let open = self.interactions.iter().map(|question| {
                let mut shown = json!(question);
                shown["status"] = json!("OPEN");
                shown
            });
            shown["interactions"] = open.collect();
        }
        // For an unfinished run without an owner the store's status is more precise than the report's.
        if is_current && !self.run.status.is_final() {
            shown["status"] = json!(self.run.status.as_str());
        }
        shown
    }

    /// Returns true if the step is the run's last one.
    pub(in crate::engine::durable) fn is_current(&self) -> bool {
        self.step == self.run.steps
    }

    /// Returns the reason that the run waits. After the last step it is the one in the store: a recorded input, which the next owner
    /// processes, may have ended the wait.
    pub(in crate::engine::durable) fn shown_wait(&self) -> Option<WaitingFor> {
        if self.is_current() {
            self.run.status.waiting_for()
        } else {
            self.waiting_for
        }
    }

    /// Returns the definitions of the workflows whose threads the run has started, in the order of their first thread.
    pub fn workflow_definitions(&self) -> Vec<Value> {
        let definition: Value = serde_json::from_str(&self.definition).unwrap_or_default();
        let all = definition["workflows"].as_array();
        let mut used: Vec<&Arc<str>> = Vec::new();
        for thread in &self.threads {
            if !used.contains(&&thread.workflow_id) {
                used.push(&thread.workflow_id);
            }
        }
        let found = used.into_iter().filter_map(|id| {
            let mut all = all?.iter();
            all.find(|workflow| workflow["id"] == **id).cloned()
        });
        found.collect()
    }
}

/// Step of a run: one recorded input.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Step number, from 1; 0 is the run's start.
    pub step: u64,
    /// Thread that received the input.
    pub thread_id: String,
    /// Node that requested the effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<Arc<str>>,
    /// Kind of the input.
    pub kind: StepKind,
    /// Id of the effect that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect_id: Option<String>,
    /// Time of the step in milliseconds since 1970.
    pub at: u64,
    /// Milliseconds from the effect's request to its outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The effect was in doubt when the run was recovered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// Kind of a run's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// The run started.
    Start,
    /// A model replied.
    Model,
    /// A tool call ended or requires consent.
    Tool,
    /// A function returned.
    Function,
    /// A script ended, or an expensive evaluation of expressions and templates.
    Code,
    /// A timer of a thread or of a trigger's sub-workflow expired.
    Timer,
    /// An event arrived.
    Event,
    /// A person answered.
    Interaction,
    /// A person sent a message to the run's model.
    Message,
    /// The time limit of a join expired.
    Join,
    /// A trigger acted, or a call or run that it started ended.
    Trigger,
    /// An external command (cancel, pause, resume, pin), or any other input.
    External,
    /// The run has settled.
    End,
}

impl StepKind {
    /// Returns the name of the kind in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Function => "function",
            Self::Code => "code",
            Self::Timer => "timer",
            Self::Event => "event",
            Self::Interaction => "interaction",
            Self::Message => "message",
            Self::Join => "join",
            Self::Trigger => "trigger",
            Self::External => "external",
            Self::End => "end",
        }
    }
}

/// Returns the state of a run after step `at`; `None` for its current state.
pub(crate) async fn view(
    engine: &Engine,
    durable: &Durable,
    run_id: &str,
    at: Option<u64>,
) -> Result<RunView, ResumeError> {
    let mut stored = StoredRecords::read(durable, run_id).await?;
    let step = at.unwrap_or(stored.run.steps);
    if step > stored.run.steps {
        return Err(ResumeError::NoSuchStep {
            run_id: run_id.to_owned(),
            step,
            last: stored.run.steps,
        });
    }
    // The inputs move into the rebuilt machine, so that memory holds only one copy of the journal.
    let mut inputs = std::mem::take(&mut stored.inputs);
    // Truncate before the replay, so that a view of an early step of a long run is cheap.
    inputs.truncate(step as usize);
    let run = stored.run.clone();
    // The outline is built before the replay, which consumes the inputs.
    let history = outline(run_id, &inputs, stored.begun.at());
    let (mut threads, mut requests) = (ThreadWatch::default(), RequestWatch::default());
    let mut failures = FailureWatch::default();
    let rebuilt = stored.rebuild_watched(engine, durable, inputs, &mut |machine, step| {
        threads.saw(machine, step);
        requests.saw(machine, step);
        failures.saw(machine, step);
    })?;
    let report = match &rebuilt.open.report {
        Some(report) => (**report).clone(),
        // The time of the last input and not of the clock: the view must not depend on when it is requested.
        None => rebuilt.machine.report_so_far(rebuilt.at),
    };
    let waits = PendingWaits::of(&rebuilt.open).waits_for();
    // After the report only detached work remains, and the run itself waits for nothing.
    let waiting_for = waits.filter(|_| rebuilt.open.report.is_none()).map(waiting_for);
    let history = steps(&rebuilt, history);
    Ok(RunView {
        interactions: rebuilt.machine.interactions(),
        threads: threads.spans(&rebuilt.machine),
        requests: requests.summaries(run_id, &SettingsSource::new(engine, &rebuilt.graphs)),
        definition: stored.definition,
        failed: failures.failed(),
        waiting_for,
        events: rebuilt.events,
        input: Arc::clone(stored.begun.input()),
        run,
        step,
        report,
        history,
    })
}

/// A step, and the effect that the step ended, if a thread requested it.
type OutlinedStep = (Step, Option<(ThreadNo, EffectId)>);

/// Lists the steps with everything that the journal alone contains.
fn outline(run_id: &str, inputs: &[JournaledInput], started_at: u64) -> Vec<OutlinedStep> {
    let main = format!("{run_id}.0");
    // Two more, for the start and the end.
    let mut steps = Vec::with_capacity(inputs.len() + 2);
    steps.push((plain(&main, 0, StepKind::Start, started_at), None));
    let mut repeated: BTreeSet<String> = BTreeSet::new();
    for (number, input) in (1..).zip(inputs) {
        // The record of a recovery precedes the outcomes of the effects that it repeats.
        if let Message::Supervisor(ToSupervisor::Recovered(doubts)) = &input.message {
            repeated.extend(doubts.iter().map(|doubt| doubt.effect_id(run_id)));
        }
        let mut step = plain(&main, number, kind(&input.message), input.at);
        let mut effect = None;
        step.effect_id = answered(run_id, &input.message);
        step.repeated = step.effect_id.as_ref().is_some_and(|effect| repeated.contains(effect));
        if let Message::Thread(thread, message) = &input.message {
            step.thread_id = format!("{run_id}.{thread}");
            if let ToThread::Input(Input::Answer { effect: of, .. }) = message {
                effect = Some((*thread, *of));
            }
        }
        steps.push((step, effect));
    }
    steps
}

fn plain(main: &str, step: u64, kind: StepKind, at: u64) -> Step {
    Step {
        step,
        thread_id: main.to_owned(),
        node_id: None,
        kind,
        effect_id: None,
        at,
        duration_ms: None,
        repeated: false,
    }
}

/// Completes the steps by the node, kind and duration of each requested effect.
fn steps(rebuilt: &RebuiltRun, outline: Vec<OutlinedStep>) -> Vec<Step> {
    let last = outline.len() as u64 - 1;
    let outlined = outline.into_iter().map(|(mut step, effect)| {
        let asked = effect.and_then(|(thread, effect)| rebuilt.asked(thread, effect));
        if let Some(asked) = asked {
            // Clocks of two processes may differ, and a duration is never negative.
            step.duration_ms = Some(step.at.saturating_sub(asked.at));
            step.node_id = asked.node_id;
            // The outcome alone does not tell a function from a script: both are a value.
            if asked.kind == Some(DoubtKind::Function) {
                step.kind = StepKind::Function;
            }
        }
        step
    });
    let mut steps: Vec<Step> = outlined.collect();
    if rebuilt.open.is_settled {
        let main = format!("{}.0", rebuilt.machine.run_id());
        // The end is no recorded input, so it has the number of the last step.
        steps.push(plain(&main, last, StepKind::End, rebuilt.at));
    }
    steps
}

fn kind(message: &Message) -> StepKind {
    match message {
        Message::Thread(_, ToThread::Input(Input::Answer { outcome, .. })) => match outcome {
            Outcome::Reply(_) => StepKind::Model,
            Outcome::Tool(_) | Outcome::NeedsConsent(_) => StepKind::Tool,
            Outcome::Elapsed => StepKind::Timer,
            Outcome::Event { .. } => StepKind::Event,
            Outcome::Answered(_) => StepKind::Interaction,
            Outcome::HeldByFiring(_) => StepKind::Trigger,
            _ => StepKind::Code,
        },
        Message::Supervisor(message) => match message {
            ToSupervisor::Elapsed(Timer::Join { .. }) => StepKind::Join,
            ToSupervisor::Elapsed(Timer::Thread { .. } | Timer::Firing(_)) => StepKind::Timer,
            ToSupervisor::Raise(_) => StepKind::Event,
            ToSupervisor::Say(_) => StepKind::Message,
            ToSupervisor::Assign(_)
            | ToSupervisor::ControlThread { .. }
            | ToSupervisor::Fire(_)
            | ToSupervisor::FireAlone(_)
            | ToSupervisor::Fired { .. }
            | ToSupervisor::CallTrigger(_)
            | ToSupervisor::TriggerCalled { .. }
            | ToSupervisor::FollowUp(_)
            | ToSupervisor::TriggersQuiet
            | ToSupervisor::DetachedEnded { .. } => StepKind::Trigger,
            _ => StepKind::External,
        },
        Message::Thread(..) | Message::Conversation(..) => StepKind::External,
    }
}

/// Difference between two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunDiff {
    /// Number of equal inputs from the start.
    pub common_steps: u64,
    /// First step of run `a` after those; `None` if there is no further step.
    pub a: Option<Step>,
    /// First step of run `b` after those; `None` if there is no further step.
    pub b: Option<Step>,
    /// Outcomes of both runs.
    pub outcome: OutcomeDiff,
}

/// Outcomes of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutcomeDiff {
    /// True if status, output and error are equal.
    pub equal: bool,
    /// Outcome of run `a`: `{status, output, error?}`.
    pub a: Value,
    /// Outcome of run `b`: `{status, output, error?}`.
    pub b: Value,
}

/// Compares the inputs and the outcomes of two runs. The times of the inputs are ignored.
pub(crate) async fn diff(engine: &Engine, durable: &Durable, a: &str, b: &str) -> Result<RunDiff, ResumeError> {
    let (one, other) = (
        StoredRecords::read(durable, a).await?,
        StoredRecords::read(durable, b).await?,
    );
    let is_same = |(one, other): &(&JournaledInput, &JournaledInput)| {
        let text = |input: &JournaledInput| serde_json::to_string(&input.message).unwrap_or_default();
        // Compared as JSON, which is what the journal contains. The messages themselves have no equality.
        text(one) == text(other)
    };
    let common = one.inputs.iter().zip(&other.inputs).take_while(is_same).count();
    // `view` reads the journals again, so only one copy of each is in memory at a time.
    drop((one, other));
    let (one, other) = (
        view(engine, durable, a, None).await?,
        view(engine, durable, b, None).await?,
    );
    let outcome = |view: &RunView| {
        let report = &view.report;
        json!({"status": report.status, "output": report.output, "error": report.error})
    };
    let next = |view: RunView| {
        view.history
            .into_iter()
            // The history starts with step 0, which is no input.
            .nth(common + 1)
            .filter(|step| step.kind != StepKind::End)
    };
    let outcome = OutcomeDiff {
        a: outcome(&one),
        b: outcome(&other),
        equal: with_ids_of(outcome(&one), a, b) == outcome(&other),
    };
    Ok(RunDiff {
        common_steps: common as u64,
        a: next(one),
        b: next(other),
        outcome,
    })
}

/// Replaces the run in the ids of threads: those of a fork differ from those of its base.
fn with_ids_of(value: Value, run: &str, other: &str) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix(run) {
            Some(rest) if rest.is_empty() || rest.starts_with('.') => Value::String(format!("{other}{rest}")),
            _ => Value::String(text),
        },
        Value::Array(items) => items.into_iter().map(|item| with_ids_of(item, run, other)).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields
                .map(|(name, value)| (name, with_ids_of(value, run, other)))
                .collect()
        }
        plain => plain,
    }
}
