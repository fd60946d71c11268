//! Runs of a store as people look at them: now, as they were after a step, and step by step.

use std::collections::BTreeSet;
use std::sync::Arc;

use pirn_actors::rebuilt::Rebuilt;
use pirn_core::run::{DoubtKind, Message, OpenWaits, RunReport, ThreadNo, Timer, ToSupervisor, ToThread, Told};
use pirn_core::thread::{EffectId, Input, Interaction, Outcome};
use pirn_store::{Run, WaitingFor};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::Engine;
use super::Durable;
use super::journal::{answered, waiting_for};
use super::resume::{ResumeError, Stored};

/// A run of a store, as it was after one of its steps.
#[derive(Debug)]
pub struct RunView {
    /// As the store knows it.
    pub run: Run,
    /// The step.
    pub step: u64,
    /// As far as it had come.
    pub report: RunReport,
    /// The thing that it waited for, where nothing else was under way.
    pub waiting_for: Option<WaitingFor>,
    /// Every step up to there.
    pub history: Vec<Step>,
    /// The events up to there, each as it was told.
    pub events: Vec<Arc<pirn_core::event::Event>>,
    /// The questions that waited for a person.
    pub interactions: Vec<Interaction>,
}

/// A step of a run: something that it was told.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// From 1; 0 is the run's start.
    pub step: u64,
    /// The thread that was told.
    pub thread_id: String,
    /// The node whose effect ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<Arc<str>>,
    /// Its kind.
    pub kind: StepKind,
    /// The effect that it is the outcome of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect_id: Option<String>,
    /// In milliseconds since 1970.
    pub at: u64,
    /// Between the effect's beginning and its outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The effect was done more than once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// The kind of a run's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// It began.
    Start,
    /// A model answered.
    Model,
    /// A tool answered.
    Tool,
    /// A function answered.
    Function,
    /// A script, or texts that took long, answered.
    Code,
    /// A time came.
    Timer,
    /// An event came.
    Event,
    /// A person answered.
    Interaction,
    /// A join's time was up.
    Join,
    /// A trigger acted.
    Trigger,
    /// Somebody outside spoke: cancel, pause, resume, pin.
    External,
    /// Nothing is left of it.
    End,
}

impl StepKind {
    /// The word in JSON.
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
            Self::Join => "join",
            Self::Trigger => "trigger",
            Self::External => "external",
            Self::End => "end",
        }
    }
}

/// The run as it was after `at`; none: as it is.
pub(crate) async fn view(
    engine: &Engine,
    durable: &Durable,
    run_id: &str,
    at: Option<u64>,
) -> Result<RunView, ResumeError> {
    let mut stored = Stored::read(durable, run_id).await?;
    let step = at.unwrap_or(stored.run.steps);
    if step > stored.run.steps {
        return Err(ResumeError::NoSuchStep {
            run_id: run_id.to_owned(),
            step,
            last: stored.run.steps,
        });
    }
    // What the run was told goes into its machine: the journal is in memory once.
    let mut told = std::mem::take(&mut stored.told);
    told.truncate(step as usize);
    let run = stored.run.clone();
    let history = outline(run_id, &told, stored.begun.at());
    let rebuilt = stored.rebuild(engine, durable, told)?;
    let report = match &rebuilt.open.report {
        Some(report) => (**report).clone(),
        None => rebuilt.machine.report_so_far(rebuilt.at),
    };
    let waits = OpenWaits::of(&rebuilt.open).waits_for();
    let waiting_for = waits.filter(|_| rebuilt.open.report.is_none()).map(waiting_for);
    let history = steps(&rebuilt, history);
    Ok(RunView {
        interactions: rebuilt.machine.interactions(),
        waiting_for,
        events: rebuilt.events,
        run,
        step,
        report,
        history,
    })
}

/// A step, and the effect of a thread that it is the outcome of.
type Outlined = (Step, Option<(ThreadNo, EffectId)>);

/// The steps, as far as the journal alone says what they are.
fn outline(run_id: &str, told: &[Told], started_at: u64) -> Vec<Outlined> {
    let main = format!("{run_id}.0");
    let mut steps = Vec::with_capacity(told.len() + 2);
    steps.push((plain(&main, 0, StepKind::Start, started_at), None));
    let mut repeated: BTreeSet<String> = BTreeSet::new();
    for (number, told) in (1..).zip(told) {
        if let Message::Supervisor(ToSupervisor::Recovered(doubts)) = &told.message {
            repeated.extend(doubts.iter().map(|doubt| doubt.effect_id(run_id)));
        }
        let mut step = plain(&main, number, kind(&told.message), told.at);
        let mut effect = None;
        step.effect_id = answered(run_id, &told.message);
        step.repeated = step.effect_id.as_ref().is_some_and(|effect| repeated.contains(effect));
        if let Message::Thread(thread, message) = &told.message {
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

/// The same, with what the run asked for.
fn steps(rebuilt: &Rebuilt, outline: Vec<Outlined>) -> Vec<Step> {
    let last = outline.len() as u64 - 1;
    let outlined = outline.into_iter().map(|(mut step, effect)| {
        let asked = effect.and_then(|(thread, effect)| rebuilt.asked(thread, effect));
        if let Some(asked) = asked {
            step.duration_ms = Some(step.at.saturating_sub(asked.at));
            step.node_id = asked.node_id;
            if asked.kind == Some(DoubtKind::Function) {
                step.kind = StepKind::Function;
            }
        }
        step
    });
    let mut steps: Vec<Step> = outlined.collect();
    if rebuilt.open.is_settled {
        let main = format!("{}.0", rebuilt.machine.run_id());
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

/// The difference between two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunDiff {
    /// The steps that are the same in both, from the first on.
    pub common_steps: u64,
    /// The step of the one after those; none where it has no more.
    pub a: Option<Step>,
    /// That of the other.
    pub b: Option<Step>,
    /// Their outcomes.
    pub outcome: OutcomeDiff,
}

/// The outcomes of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutcomeDiff {
    /// Status, output and error are the same.
    pub equal: bool,
    /// `{status, output, error?}` of the one.
    pub a: Value,
    /// That of the other.
    pub b: Value,
}

/// Compares what two runs were told, and what they came to. When they were told is no difference.
pub(crate) async fn diff(engine: &Engine, durable: &Durable, a: &str, b: &str) -> Result<RunDiff, ResumeError> {
    let (one, other) = (Stored::read(durable, a).await?, Stored::read(durable, b).await?);
    let is_same = |(one, other): &(&Told, &Told)| {
        let text = |told: &Told| serde_json::to_string(&told.message).unwrap_or_default();
        text(one) == text(other)
    };
    let common = one.told.iter().zip(&other.told).take_while(is_same).count();
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
            .nth(common + 1)
            .filter(|step| step.kind != StepKind::End)
    };
    let outcome = OutcomeDiff {
        a: outcome(&one),
        b: outcome(&other),
        equal: outcome(&one) == outcome(&other),
    };
    Ok(RunDiff {
        common_steps: common as u64,
        a: next(one),
        b: next(other),
        outcome,
    })
}
