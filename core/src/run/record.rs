//! What a run was told, so that it can be rebuilt: the same messages in the same order do the same.

use serde::{Deserialize, Serialize};

use super::{Effect, Message, RunMachine, RunSeed, World};
use crate::Millis;
use crate::event::EventMask;

/// Who listens to what: event types that nobody listens to are not built.
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
    /// Who listened from then on.
    pub listening: Listening,
    /// What.
    pub message: Message,
}

/// How a run began.
#[derive(Clone, Debug)]
pub struct Begun {
    /// When.
    pub at: Millis,
    /// Who listened.
    pub listening: Listening,
    /// With what.
    pub seed: RunSeed,
}

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
                machine.step(now, message, world, out);
            }
            is_more
        };
        for told in told {
            while machine.steps() < told.after && step(&mut machine, now, world, out) {}
            now = told.at;
            listen(world, told.listening);
            machine.tell(told.message);
        }
        while step(&mut machine, now, world, out) {}
        machine
    }
}
