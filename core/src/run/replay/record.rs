//! Records from which a run is rebuilt. Replay is deterministic: equal messages in equal order produce equal effects.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pirn_conversation::conversation::Conversation;
use pirn_definition::Millis;
use pirn_definition::definition::{Pinned, ToolDefinition};
use pirn_definition::graph::Graph;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::named_events::NamedEvents;
use crate::run::data::effect::Effect;
use crate::run::data::message::Message;
use crate::run::data::session::SessionSeed;
use crate::run::data::summaries::SummaryRules;
use crate::run::environment::{EventInterest, RunEnvironment, Setting};
use crate::run::parts::memory::DEFAULT_RUN_BYTES;
use crate::run::state::{ForkGap, RunMachine, RunSeed};
use crate::thread;

/// An external input of a run, with everything that its replay needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JournaledInput {
    /// Time of the input: the `now` of [`RunMachine::step`].
    pub at: Millis,
    /// Number of messages that the run had taken before this input: see [`RunMachine::steps`].
    pub after: u64,
    /// Event types with subscribers from this input on.
    pub listening: EventInterest,
    /// True if the input was stored while no process owned the run. Its effects are performed by the next owner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncarried: bool,
    /// Settings of the previous step that its record does not contain, in the form of [`Self::settings`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Setting>,
    /// The message.
    pub message: Message,
    /// Configuration values that were first used in the steps after this input: see [`Settings`](crate::run::Settings). Added to the
    /// record after these steps, when all of them are determined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
}

/// Start of a run.
#[derive(Clone, Debug)]
pub struct RunStart {
    /// Start time.
    pub at: Millis,
    /// Event types with subscribers at the start.
    pub listening: EventInterest,
    /// True if the run was created while no process owned it. Its first effects are performed by the first owner.
    pub uncarried: bool,
    /// Seed of the run.
    pub seed: RunSeed,
    /// Configuration values of the first steps, in the form of [`JournaledInput::settings`].
    pub settings: Vec<Setting>,
}

/// Serialized form of [`RunStart`], with the id of the workflow instead of the workflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStartRecord {
    at: Millis,
    listening: EventInterest,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    uncarried: bool,
    run_id: Arc<str>,
    /// Id of the workflow.
    pub workflow_id: Arc<str>,
    input: Arc<Value>,
    conversation: Conversation,
    pinned: Pinned,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Arc<Map<String, Value>>>,
    is_unlimited: bool,
    trigger_depth: u32,
    seed: u64,
    deadline_ms: Option<Millis>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    picks_starts: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    merges_assignments: bool,
    #[serde(default = "default_run_bytes", skip_serializing_if = "is_default_run_bytes")]
    run_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionSeed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_tools: Option<Arc<Vec<ToolDefinition>>>,
    #[serde(default, skip_serializing_if = "SummaryRules::is_default")]
    summaries: SummaryRules,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settings: Vec<Setting>,
    /// Tools and profiles that the workflows name and that were not registered at the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    /// Gaps before the starts of the run and of its bases, in order.
    // Not computed from the rows of the bases: a removed base has none, but its steps are still replayed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<ForkGap>,
}

fn default_run_bytes() -> u64 {
    DEFAULT_RUN_BYTES
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_default_run_bytes(bytes: &u64) -> bool {
    *bytes == DEFAULT_RUN_BYTES
}

impl RunStartRecord {
    /// Converts a start to its serialized form.
    pub fn of(begun: &RunStart) -> Self {
        let seed = begun.seed.clone();
        Self {
            at: begun.at,
            listening: begun.listening,
            uncarried: begun.uncarried,
            run_id: seed.run_id,
            workflow_id: Arc::clone(&seed.graph.workflow_id),
            input: seed.input,
            conversation: seed.conversation,
            pinned: seed.pinned,
            metadata: seed.metadata,
            is_unlimited: seed.is_unlimited,
            trigger_depth: seed.trigger_depth,
            seed: seed.seed,
            deadline_ms: seed.deadline_ms,
            picks_starts: seed.picks_starts,
            merges_assignments: seed.merges_assignments,
            run_bytes: seed.run_bytes,
            session: seed.session,
            client_tools: seed.client_tools,
            summaries: seed.summaries,
            settings: begun.settings.clone(),
            missing: Vec::new(),
            gaps: seed.gaps,
        }
    }

    /// Records that these tools and profiles are not registered.
    #[must_use]
    pub fn without(self, missing: &[String]) -> Self {
        Self {
            missing: missing.to_vec(),
            ..self
        }
    }

    /// Returns the tools and profiles that the workflows name and that were not registered at the start.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Returns the session that the run belongs to.
    pub fn session(&self) -> Option<&SessionSeed> {
        self.session.as_ref()
    }

    /// Removes the effect on the session: the run changes nothing there.
    #[must_use]
    pub fn without_session_effect(mut self) -> Self {
        if let Some(session) = &mut self.session {
            // The session is still read: a fork starts from its state.
            session.is_aside = true;
        }
        self
    }

    /// Returns the start time.
    pub fn at(&self) -> Millis {
        self.at
    }

    /// Returns the input.
    pub fn input(&self) -> &Arc<Value> {
        &self.input
    }

    /// Replaces the input.
    #[must_use]
    pub fn with_input(self, input: Value) -> Self {
        Self {
            input: Arc::new(input),
            ..self
        }
    }

    /// Adds the gap of a fork, unless it is empty. Gaps that its shared steps do not reach are removed.
    #[must_use]
    pub fn forked(mut self, gap: ForkGap) -> Self {
        self.gaps.retain(|earlier| earlier.to <= gap.from);
        if gap.to > gap.from {
            self.gaps.push(gap);
        }
        self
    }

    /// Replaces the id of the run.
    #[must_use]
    pub fn named(self, run_id: &str) -> Self {
        Self {
            run_id: run_id.into(),
            ..self
        }
    }

    /// Converts the record back, with the workflow of this id.
    pub fn begun(self, graph: Arc<Graph>) -> RunStart {
        RunStart {
            at: self.at,
            listening: self.listening,
            uncarried: self.uncarried,
            seed: RunSeed {
                run_id: self.run_id,
                graph,
                input: self.input,
                conversation: self.conversation,
                pinned: self.pinned,
                metadata: self.metadata,
                is_unlimited: self.is_unlimited,
                trigger_depth: self.trigger_depth,
                seed: self.seed,
                deadline_ms: self.deadline_ms,
                picks_starts: self.picks_starts,
                merges_assignments: self.merges_assignments,
                run_bytes: self.run_bytes,
                session: self.session,
                client_tools: self.client_tools,
                summaries: self.summaries,
                gaps: self.gaps,
            },
            settings: self.settings,
        }
    }
}

/// Element of a replay, in the order of the first execution.
#[derive(Debug)]
pub enum ReplayStep<'a> {
    /// An external input.
    Input(&'a JournaledInput),
    /// Effects of a step, with its time. The receiver may take them out of the vector. Timers of the steps that a fork shares with its
    /// base end later by the gap before the fork.
    Effects(Millis, &'a mut Vec<Effect>),
}

/// The record does not fit the run: the workflow or the code that steps it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {step} does not fit what came before it")]
pub struct Diverged {
    /// Number of the first input that does not fit, from 1.
    pub step: u64,
}

impl RunMachine {
    /// Rebuilds a run from its start and its inputs; see [`Replay`].
    ///
    /// # Errors
    /// As [`Replay::new`].
    pub fn replay<W: RunEnvironment>(
        begun: RunStart,
        inputs: impl IntoIterator<Item = JournaledInput>,
        env: &mut W,
        listen: impl Fn(&mut W, EventInterest),
        saw: &mut dyn FnMut(&Self, ReplayStep<'_>),
    ) -> Result<Self, Diverged> {
        // All inputs are known, so no later one refers to an event.
        let inputs = inputs.into_iter().collect();
        Replay::new(begun, inputs, 0, env, &listen, saw).map(|replay| replay.machine)
    }

    /// Repeats a recorded step. If inline code panicked in it, it panics again. The panic is ignored here because the next recorded
    /// input reports it.
    fn step_again(&mut self, now: Millis, message: Message, env: &mut dyn RunEnvironment, out: &mut Vec<Effect>) {
        let stepped = catch_unwind(AssertUnwindSafe(|| self.step(now, message, env, out)));
        drop(stepped);
    }

    /// Moves the deadlines of timers that a step at this time has set behind the gaps of later forks.
    fn delay_timers(&self, now: Millis, effects: &mut [Effect]) {
        let later: Millis = self
            .gaps()
            .iter()
            .map(|gap| gap.until(Millis::MAX) - gap.until(now))
            .sum();
        if later == 0 {
            return;
        }
        for effect in effects {
            if let Effect::SetTimer { after_ms, .. }
            | Effect::Thread {
                effect: thread::Effect::Timer { after_ms, .. },
                ..
            } = effect
            {
                *after_ms = after_ms.saturating_add(later);
            }
        }
    }
}

/// A replay that can be continued when further inputs were recorded.
///
/// After each group of inputs the messages in the queue are processed to the last one. This repeats the first execution if the group
/// ends with the last input of a commit, because a run commits only when its queue is empty.
#[derive(Debug)]
pub struct Replay {
    machine: RunMachine,
    /// Time of the last input, or of the start.
    now: Millis,
    /// Event types with subscribers since the last input.
    listening: EventInterest,
    events: NamedEvents,
    /// Number of replayed inputs.
    inputs: u64,
}

impl Replay {
    /// Rebuilds a run from its start and its first inputs.
    ///
    /// `recent` is the number of events that are retained because an input of a later [`Self::extend`] may refer to them. `listen`
    /// sets the subscribed event types of `env`. `saw` receives every input and the effects of every step, in order, with the machine
    /// before the input or after the step.
    ///
    /// # Errors
    /// Returns [`Diverged`] if the run takes another number of messages between two inputs than the record states, or does not
    /// raise the event on which a recorded trigger fired.
    pub fn new<W: RunEnvironment>(
        begun: RunStart,
        inputs: Vec<JournaledInput>,
        recent: usize,
        env: &mut W,
        listen: &impl Fn(&mut W, EventInterest),
        saw: &mut dyn FnMut(&RunMachine, ReplayStep<'_>),
    ) -> Result<Self, Diverged> {
        let mut events = NamedEvents::new(&begun.seed.run_id, recent);
        // All records are read before the first step: other events than those that a record refers to need not be retained.
        events.name(inputs.iter().map(|input| &input.message));
        let (now, listening, mut did) = (begun.at, begun.listening, Vec::new());
        listen(env, listening);
        // Before the machine exists: its creation reads the token limit of the workflow.
        env.expect(&begun.settings);
        let mut machine = RunMachine::new(now, begun.seed, env, &mut did);
        // No model call precedes this: the creation of a machine performs no step of a thread.
        machine.expect_calls(&begun.settings);
        events.saw(now, &did);
        machine.delay_timers(now, &mut did);
        saw(&machine, ReplayStep::Effects(now, &mut did));
        let mut replay = Self {
            machine,
            now,
            listening,
            events,
            inputs: 0,
        };
        replay.receive_all(inputs, env, listen, saw)?;
        Ok(replay)
    }

    /// Continues with inputs that were recorded since. `env` must have the settings of the inputs so far, and the event types
    /// that [`Self::listening`] returns.
    ///
    /// # Errors
    /// As [`Self::new`]; also if an input refers to an event that is not retained. The replay must not be continued then.
    pub fn extend<W: RunEnvironment>(
        &mut self,
        inputs: Vec<JournaledInput>,
        env: &mut W,
        listen: &impl Fn(&mut W, EventInterest),
        saw: &mut dyn FnMut(&RunMachine, ReplayStep<'_>),
    ) -> Result<(), Diverged> {
        self.events.name(inputs.iter().map(|input| &input.message));
        self.receive_all(inputs, env, listen, saw)
    }

    /// Returns the event types that had subscribers after the last input.
    pub fn listening(&self) -> EventInterest {
        self.listening
    }

    /// Returns the run after its last input.
    pub fn machine(&self) -> &RunMachine {
        &self.machine
    }

    fn receive_all<W: RunEnvironment>(
        &mut self,
        inputs: Vec<JournaledInput>,
        env: &mut W,
        listen: &impl Fn(&mut W, EventInterest),
        saw: &mut dyn FnMut(&RunMachine, ReplayStep<'_>),
    ) -> Result<(), Diverged> {
        let mut did = Vec::new();
        for mut input in inputs {
            self.inputs += 1;
            // Before the loop: the rest of the previous step reads these settings.
            env.expect(&input.before);
            self.machine.expect_calls(&input.before);
            // A run may receive an input while messages are queued, so the replay stops at the count of the first execution.
            while self.machine.steps() < input.after && self.step(env, &mut did, saw) {}
            // A lower count means that the queue ran empty earlier than in the first execution.
            if self.machine.steps() != input.after || !self.events.complete(&mut input.message) {
                return Err(Diverged { step: self.inputs });
            }
            (self.now, self.listening) = (input.at, input.listening);
            listen(env, input.listening);
            env.next_step();
            env.expect(&input.settings);
            // Before `receive`, which takes the message: an input precedes its effects.
            saw(&self.machine, ReplayStep::Input(&input));
            self.machine.receive(input.message);
            // After `receive`, which discards the calls expected for the previous input.
            self.machine.expect_calls(&input.settings);
        }
        // No record limits the last step, so that its queue is processed to the end.
        while self.step(env, &mut did, saw) {}
        Ok(())
    }

    /// Processes the next message of the queue. Returns false if there is none.
    fn step<W: RunEnvironment>(
        &mut self,
        env: &mut W,
        did: &mut Vec<Effect>,
        saw: &mut dyn FnMut(&RunMachine, ReplayStep<'_>),
    ) -> bool {
        let Some(message) = self.machine.next_message() else {
            return false;
        };
        // `saw` may leave effects in the buffer.
        did.clear();
        self.machine.step_again(self.now, message, env, did);
        self.events.saw(self.now, did);
        self.machine.delay_timers(self.now, did);
        saw(&self.machine, ReplayStep::Effects(self.now, did));
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fork_has_the_rules_of_its_base_and_only_the_gaps_of_its_steps() {
        // A record of version 0.2.0.
        let record: RunStartRecord = serde_json::from_value(json!({
            "at": 0, "listening": EventInterest::default(), "runId": "r", "workflowId": "main", "input": null,
            "conversation": Conversation::new(), "pinned": Pinned::default(), "isUnlimited": false, "triggerDepth": 0,
            "seed": 1, "deadlineMs": null,
        }))
        .unwrap();
        let gap = |from, to| ForkGap { from, to };
        let fork = record.forked(gap(10, 500));
        assert_eq!((&fork.gaps[..], fork.merges_assignments), (&[gap(10, 500)][..], false));
        let again = fork.clone().forked(gap(600, 700));
        assert_eq!(again.gaps, [gap(10, 500), gap(600, 700)]);
        assert!(fork.forked(gap(10, 10)).gaps.is_empty());
    }
}
