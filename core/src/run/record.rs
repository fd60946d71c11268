//! The record of a run, so that it can be rebuilt: the same messages in the same order do the same.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fired::NamedEvents;
use super::memory::DEFAULT_RUN_BYTES;
use super::{Effect, Message, RunMachine, RunSeed, SessionSeed, Setting, World};
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
    /// As [`Self::settings`], of the step before: what was not in its record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Setting>,
    /// The message.
    pub message: Message,
    /// The configuration that what followed from it went by, where that was not recorded before: see
    /// [`Settings`](super::Settings). Known only when all of it has followed, and put into the record then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
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
    /// As [`Told::settings`], of the beginning.
    pub settings: Vec<Setting>,
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settings: Vec<Setting>,
    /// Tools and profiles that its workflows name and that were not there when it began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
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
            settings: begun.settings.clone(),
            missing: Vec::new(),
        }
    }

    /// The same beginning, where these tools and profiles are not there.
    #[must_use]
    pub fn without(self, missing: &[String]) -> Self {
        Self {
            missing: missing.to_vec(),
            ..self
        }
    }

    /// The tools and profiles that its workflows name and that were not there when it began.
    pub fn missing(&self) -> &[String] {
        &self.missing
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
            settings: self.settings,
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
    /// A run as it was, from how it began and what it was told. `world` is told who listens by `listen`, and `saw` everything
    /// that the run went through, in order.
    ///
    /// # Errors
    /// Fails if the run did not take as many messages between two that it was told as it had, or has not raised the event that a
    /// trigger fired on.
    pub fn replay<W: World>(
        begun: Begun,
        told: impl IntoIterator<Item = Told>,
        world: &mut W,
        listen: impl Fn(&mut W, Listening),
        saw: &mut dyn FnMut(Replayed<'_>),
    ) -> Result<Self, Diverged> {
        let told: Vec<Told> = told.into_iter().collect();
        let mut events = NamedEvents::of(&begun.seed.run_id, &told);
        let (mut now, mut did) = (begun.at, Vec::new());
        listen(world, begun.listening);
        world.expect(&begun.settings);
        let mut machine = Self::new(now, begun.seed, world, &mut did);
        machine.expect_calls(&begun.settings);
        events.saw(now, &did);
        saw(Replayed::Did(now, &mut did));
        let mut step = |machine: &mut Self,
                        now: Millis,
                        world: &mut W,
                        events: &mut NamedEvents,
                        saw: &mut dyn FnMut(Replayed<'_>)| {
            let Some(message) = machine.next_message() else {
                return false;
            };
            did.clear();
            machine.step_again(now, message, world, &mut did);
            events.saw(now, &did);
            saw(Replayed::Did(now, &mut did));
            true
        };
        for (mut told, number) in told.into_iter().zip(1..) {
            world.expect(&told.before);
            machine.expect_calls(&told.before);
            while machine.steps() < told.after && step(&mut machine, now, world, &mut events, saw) {}
            if machine.steps() != told.after || !events.complete(&mut told) {
                return Err(Diverged { step: number });
            }
            now = told.at;
            listen(world, told.listening);
            world.next_step();
            world.expect(&told.settings);
            saw(Replayed::Told(&told));
            machine.tell(told.message);
            machine.expect_calls(&told.settings);
        }
        while step(&mut machine, now, world, &mut events, saw) {}
        Ok(machine)
    }

    /// A step that was taken before. Where code that is called in place panicked then it does so again: that it did is what
    /// the run is told next.
    fn step_again(&mut self, now: Millis, message: Message, world: &mut dyn World, out: &mut Vec<Effect>) {
        let stepped = catch_unwind(AssertUnwindSafe(|| self.step(now, message, world, out)));
        drop(stepped);
    }
}
