//! The record of a run, so that it can be rebuilt: the same messages in the same order do the same.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ledger::CallMost;
use super::memory::DEFAULT_RUN_BYTES;
use super::{Effect, Message, RunMachine, RunSeed, SessionSeed, World};
use crate::Millis;
use crate::conversation::Conversation;
use crate::definition::Pinned;
use crate::event::EventMask;
use crate::graph::Graph;

/// The event types that somebody listens to: others are not built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Types that a subscriber or a trigger listens to.
    pub interest: EventMask,
    /// Types that a trigger watches.
    pub watched: EventMask,
    /// Types that a trigger watches which holds the thread.
    pub holding: EventMask,
}

/// Something that a run was told from outside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    /// When: [`RunMachine::step`]'s `now`.
    pub at: Millis,
    /// So many messages had been taken before: see [`RunMachine::steps`].
    pub after: u64,
    /// The event types that somebody listened to from then on.
    pub listening: Listening,
    /// No process carried the run: what follows from it has not begun before one goes on with the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncarried: bool,
    /// The most of the model calls that budgets were asked for since what was told before: see [`RunMachine::call_bounds`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<CallMost>,
    /// The message.
    pub message: Message,
}

/// The beginning of a run.
#[derive(Clone, Debug)]
pub struct Begun {
    /// When.
    pub at: Millis,
    /// The event types that somebody listened to.
    pub listening: Listening,
    /// No process carried the run then: what it begins with has not begun before one goes on with it.
    pub uncarried: bool,
    /// With what.
    pub seed: RunSeed,
}

/// The same, to be written down: without its workflow, which is found again by its id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BegunRecord {
    at: Millis,
    listening: Listening,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    uncarried: bool,
    run_id: Arc<str>,
    /// Its workflow's id.
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
    #[serde(default = "default_run_bytes", skip_serializing_if = "is_default_run_bytes")]
    run_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionSeed>,
}

fn default_run_bytes() -> u64 {
    DEFAULT_RUN_BYTES
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_default_run_bytes(bytes: &u64) -> bool {
    *bytes == DEFAULT_RUN_BYTES
}

impl BegunRecord {
    /// As it is written down.
    pub fn of(begun: &Begun) -> Self {
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
            run_bytes: seed.run_bytes,
            session: seed.session,
        }
    }

    /// The session that the run belongs to.
    pub fn session(&self) -> Option<&SessionSeed> {
        self.session.as_ref()
    }

    /// The same beginning, for a run that leaves nothing in the session.
    #[must_use]
    pub fn aside(mut self) -> Self {
        if let Some(session) = &mut self.session {
            session.is_aside = true;
        }
        self
    }

    /// When the run began.
    pub fn at(&self) -> Millis {
        self.at
    }

    /// The same beginning with another input.
    #[must_use]
    pub fn with_input(self, input: Value) -> Self {
        Self {
            input: Arc::new(input),
            ..self
        }
    }

    /// The same beginning, for a run of another name.
    #[must_use]
    pub fn named(self, run_id: &str) -> Self {
        Self {
            run_id: run_id.into(),
            ..self
        }
    }

    /// As it was, over the workflow of this id.
    pub fn begun(self, graph: Arc<Graph>) -> Begun {
        Begun {
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
                run_bytes: self.run_bytes,
                session: self.session,
            },
        }
    }
}

/// Something that a rebuilt run goes through once more.
#[derive(Debug)]
pub enum Replayed<'a> {
    /// It was told this.
    Told(&'a Told),
    /// It wanted this done, which is there to be taken.
    Did(Millis, &'a mut Vec<Effect>),
}

/// The place where what was written down does not fit the run: the workflow, or what steps it, is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diverged {
    /// The first step that does not fit, from 1.
    pub step: u64,
}

impl std::fmt::Display for Diverged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "step {} does not fit what came before it", self.step)
    }
}

impl std::error::Error for Diverged {}

impl RunMachine {
    /// A run as it was, from how it began and what it was told. `world` is told who listens by `listen`; what the run wanted
    /// done all along is appended to `out`.
    pub fn rebuild<W: World>(
        begun: Begun,
        told: impl IntoIterator<Item = Told>,
        world: &mut W,
        listen: impl Fn(&mut W, Listening),
        out: &mut Vec<Effect>,
    ) -> Self {
        let mut now = begun.at;
        listen(world, begun.listening);
        let mut machine = Self::new(now, begun.seed, world, out);
        let step = |machine: &mut Self, now: Millis, world: &mut W, out: &mut Vec<Effect>| {
            let message = machine.next_message();
            let is_more = message.is_some();
            if let Some(message) = message {
                machine.step_again(now, message, world, out);
            }
            is_more
        };
        for told in told {
            machine.expect_bounds(&told.bounds);
            while machine.steps() < told.after && step(&mut machine, now, world, out) {}
            now = told.at;
            listen(world, told.listening);
            machine.tell(told.message);
        }
        while step(&mut machine, now, world, out) {}
        machine
    }

    /// A run as it was, from how it began and what it was told. `world` is told who listens by `listen`, and `saw` everything
    /// that the run went through, in order.
    ///
    /// # Errors
    /// Fails if the run did not take as many messages between two that it was told as it had.
    pub fn replay<W: World>(
        begun: Begun,
        told: impl IntoIterator<Item = Told>,
        world: &mut W,
        listen: impl Fn(&mut W, Listening),
        saw: &mut dyn FnMut(Replayed<'_>),
    ) -> Result<Self, Diverged> {
        let (mut now, mut did) = (begun.at, Vec::new());
        listen(world, begun.listening);
        let mut machine = Self::new(now, begun.seed, world, &mut did);
        saw(Replayed::Did(now, &mut did));
        let mut step = |machine: &mut Self, now: Millis, world: &mut W, saw: &mut dyn FnMut(Replayed<'_>)| {
            let Some(message) = machine.next_message() else {
                return false;
            };
            did.clear();
            machine.step_again(now, message, world, &mut did);
            saw(Replayed::Did(now, &mut did));
            true
        };
        for (told, number) in told.into_iter().zip(1..) {
            machine.expect_bounds(&told.bounds);
            while machine.steps() < told.after && step(&mut machine, now, world, saw) {}
            if machine.steps() != told.after {
                return Err(Diverged { step: number });
            }
            now = told.at;
            listen(world, told.listening);
            saw(Replayed::Told(&told));
            machine.tell(told.message);
        }
        while step(&mut machine, now, world, saw) {}
        Ok(machine)
    }

    /// A step that was taken before. Where code that is called in place panicked then it does so again: that it did is what
    /// the run is told next.
    fn step_again(&mut self, now: Millis, message: Message, world: &mut dyn World, out: &mut Vec<Effect>) {
        let stepped = catch_unwind(AssertUnwindSafe(|| self.step(now, message, world, out)));
        drop(stepped);
    }
}
