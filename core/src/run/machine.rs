//! The run machine: a whole run as one value.
//!
//! | message | from | does |
//! |---|---|---|
//! | Control, `ControlThread` | outside | cancels, pauses or resumes every thread, or one |
//! | Elapsed | outside | cancels a thread that is out of time; steps a join; ends a firing |
//! | Assign, Pin | outside | sets a global variable or a section at once; a thread's own variable is for the thread |
//! | Raise | outside | raises events in the main thread's name |
//! | `FollowUp` | outside | raises an event in the name of the thread whose event set it off |
//! | Migrated | outside | nothing: it is for whoever goes on with the run |
//! | Fired | outside | what the trigger does, told in its place |
//! | `CallTrigger`, `TriggerCalled` | outside | has a function or hook of a trigger called; its end raises an event, and may end the run |
//! | Recovered | outside | says which effects are in doubt, for the report too |
//! | Fire, `FireAlone`, `DetachedEnded` | outside | [`super::firing`]'s table |
//! | `TriggersQuiet` | outside | [`super::quiescence`]'s table |
//! | Session | outside | [`super::session`]'s table |
//! | Fork | a thread, by its conversation | starts the paths; its join decides, by [`crate::join`]'s table |
//! | Map | a thread, by its conversation | the same, with a thread for each item |
//! | Call | a thread, by its conversation | starts the workflow; its end answers the thread |
//! | Drop | a thread, by its conversation | gives up the fork or the called workflow |
//! | Prepared, Applied | a thread | [`super::firing`]'s table |
//! | Ended | a thread, by its conversation | gives up what it started; tells whoever it ran for; may end the run |
//! | Panicked | whoever contains actors | a thread's ends it; a conversation's ends the thread that it belongs to |
//! | `StopLosers` | itself | tells a join's losers to stop, a few at a time |
//!
//! A thread's messages are its machine's table ([`crate::thread`]); a conversation's are [`crate::conversation`]'s.
//!
//! Invariants: every thread that was started ends once; a thread that ends takes what it started with it, unless a JOIN
//! detached it; the outcome is told once, when the main thread and everything attached to it have ended; the same messages
//! in the same order, over the same world, have the same effects.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::budget::Places;
use super::conversation::{ConversationTurn, Speech, refuse};
use super::firing::Firings;
use super::forks::ForkRun;
use super::globals::Globals;
use super::graphs::Graphs;
use super::ledger::Ledger;
use super::mailbox::Mailbox;
use super::memory::Memory;
use super::message::{HandedConversation, Message, Timer, ToConversation, ToSupervisor, ToThread};
use super::quiescence::Quiescence;
use super::session::{RunSession, SessionSeed};
use super::slots::Slot;
use super::start::Start;
use super::step::Step;
use super::thread::{EffectBuffers, LiveThread, ThreadTurn, pin};
use super::tree::{Branching, Origin, Tree};
use super::trigger_calls::TriggerCalls;
use super::world::World;
use super::{DoubtReport, Effect, ForkNo, ThreadNo};
use crate::Millis;
use crate::conversation::{Conversation, LargeResults};
use crate::definition::Pinned;
use crate::error::{RunError, RunErrorCode};
use crate::event::{EventMask, EventType};
use crate::graph::Graph;
use crate::join;
use crate::thread::{CancelReason, EffectId, Input, Outcome, ThreadId, ThreadKind, ThreadScope};

/// The things that a run is started with.
#[derive(Clone, Debug)]
pub struct RunSeed {
    /// Names it.
    pub run_id: Arc<str>,
    /// Its workflow.
    pub graph: Arc<Graph>,
    /// Its input.
    pub input: Arc<Value>,
    /// The messages that its conversation starts with.
    pub conversation: Conversation,
    /// Its pinned context.
    pub pinned: Pinned,
    /// Its caller's metadata, for whatever it calls.
    pub metadata: Option<Arc<Map<String, Value>>>,
    /// Inside what a token event started: the token limit is not checked.
    pub is_unlimited: bool,
    /// The main thread's limit on time, beside its workflow's own.
    pub deadline_ms: Option<Millis>,
    /// Triggers between the steps of another run and it.
    pub trigger_depth: u32,
    /// For jitter; 0: there is none.
    pub seed: u64,
    /// Somebody outside picks which of several threads takes its first step next: [`Effect::Begin`] asks for it.
    pub picks_starts: bool,
    /// Bytes that it may hold, where its workflow does not say.
    pub run_bytes: u64,
    /// The session that the run belongs to: it begins when it has its turn there.
    pub session: Option<SessionSeed>,
}

/// A whole run. See the table above.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunMachine {
    pub(super) run_id: Arc<str>,
    pub(super) started_at: Millis,
    seed: u64,
    #[serde(default)]
    pub(super) picks_starts: bool,
    pub(super) graphs: Graphs,
    pub(super) tree: Tree,
    pub(super) slots: Vec<Slot>,
    pub(super) forks: BTreeMap<ForkNo, ForkRun>,
    pub(super) next_fork: ForkNo,
    pub(super) firings: Firings,
    pub(super) globals: Globals,
    /// Large tool results, of which most runs have none.
    #[serde(default)]
    pub(super) results: Option<Box<LargeResults>>,
    /// None while no section has been set: most runs have none.
    pinned: Option<Box<Pinned>>,
    pub(super) mailbox: Mailbox,
    pub(super) quiescence: Quiescence,
    /// The main thread's conversation, salvaged where its actor panicked.
    pub(super) salvaged: Option<Box<Conversation>>,
    pub(super) is_paused: bool,
    /// The main thread's limit on time, beside its workflow's own.
    #[serde(default)]
    deadline_ms: Option<Millis>,
    /// The bytes that it makes.
    pub(super) memory: Memory,
    /// Types that a WAIT node has waited for.
    awaited: EventMask,
    /// Messages taken so far.
    steps: u64,
    /// Number of events raised so far.
    #[serde(default)]
    events: u64,
    /// Effects that were in doubt after a crash.
    #[serde(default)]
    pub(super) doubts: Box<[DoubtReport]>,
    /// Calls of its triggers, of which few runs have any.
    #[serde(default)]
    pub(super) trigger_calls: Option<Box<TriggerCalls>>,
    /// Its session, where it has one.
    #[serde(default)]
    pub(super) session: Option<Box<RunSession>>,
    /// The accounts of its budgets; none while no thread of it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) budget: Option<Box<Ledger>>,
    /// The main thread, once it has ended. Nobody reads it any more: it is kept so that the outcome need not wait for
    /// its cleaning up, which after a fork of many branches takes a while.
    #[serde(skip)]
    pub(super) remains: Option<Box<LiveThread>>,
    /// The place of a thread that has ended: the next one begins there.
    #[serde(skip)]
    pub(super) spare: Option<Box<LiveThread>>,
    #[serde(skip)]
    pub(super) buffers: EffectBuffers,
}

impl RunMachine {
    /// A run whose main thread has not begun.
    pub fn new(now: Millis, seed: RunSeed, world: &mut dyn World, out: &mut Vec<Effect>) -> Self {
        let mut machine = Self {
            run_id: seed.run_id,
            started_at: now,
            seed: seed.seed,
            picks_starts: seed.picks_starts,
            graphs: Graphs::default(),
            tree: Tree::default(),
            slots: Vec::new(),
            forks: BTreeMap::new(),
            next_fork: 0,
            firings: Firings::default(),
            globals: Globals::default(),
            results: None,
            pinned: (seed.pinned != Pinned::default()).then(|| Box::new(seed.pinned)),
            mailbox: Mailbox::default(),
            quiescence: Quiescence::default(),
            salvaged: None,
            is_paused: false,
            deadline_ms: seed.deadline_ms,
            memory: Memory::new(seed.graph.config.run_bytes().unwrap_or(seed.run_bytes)),
            awaited: EventMask::NONE,
            steps: 0,
            events: 0,
            doubts: Box::default(),
            trigger_calls: None,
            session: seed.session.map(|seed| Box::new(RunSession::new(seed))),
            budget: None,
            remains: None,
            spare: None,
            buffers: EffectBuffers::default(),
        };
        machine.memory.took(&seed.input);
        machine.memory.made(seed.conversation.memory_total());
        let start = Start {
            // Only a session hands messages on: those of a seed are the run's own.
            conversation: HandedConversation::Snapshot(seed.conversation.inheriting(0)),
            trigger_depth: seed.trigger_depth,
            is_unlimited: seed.is_unlimited,
            ..Start::of(seed.graph, ThreadKind::Main, Origin::Main, seed.input)
        };
        let mut step = Step::new(now, (EventMask::NONE, 0), world, out);
        machine.start(start, &mut step);
        machine.events = step.events;
        machine
    }

    /// Tells the run something; it is heard after all that was told before.
    /// An actor's panic takes effect at once.
    pub fn tell(&mut self, message: Message) {
        if let Some(ledger) = &mut self.budget {
            ledger.told();
        }
        match message {
            Message::Supervisor(ToSupervisor::Panicked(panic)) => self.panicked(&panic),
            Message::Supervisor(ToSupervisor::Fired(fired)) => {
                if let Some(message) = fired.message() {
                    self.mailbox.send(message);
                }
            }
            message => self.mailbox.send(message),
        }
    }

    /// Lets a thread take its first step, when nothing else waits.
    pub fn begin(&mut self, thread: ThreadNo) {
        let message = Message::Thread(thread, ToThread::Input(Input::Start));
        self.mailbox.send_later(message);
    }

    /// The next message to [`Self::step`] with.
    pub fn next_message(&mut self) -> Option<Message> {
        let message = self.mailbox.take();
        match &message {
            Some(_) => self.steps += 1,
            // A run that waits has no room for a thread to come.
            None => self.spare = None,
        }
        message
    }

    /// Exchanges the room for what its threads want done, of which it needs none between two steps: many machines may share
    /// it.
    pub fn swap_buffers(&mut self, buffers: &mut EffectBuffers) {
        std::mem::swap(&mut self.buffers, buffers);
    }

    /// Messages taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// True if a WAIT node of the run has waited for events of this type.
    pub fn awaits(&self, event_type: EventType) -> bool {
        self.awaited.contains(event_type)
    }

    /// True if nothing is left of the run.
    pub fn has_ended(&self) -> bool {
        self.quiescence.is_settled()
    }

    /// True if nothing waits to be stepped with.
    pub fn is_idle(&self) -> bool {
        self.mailbox.is_empty()
    }

    /// Takes a message; what should happen outside is appended to `out`.
    pub fn step(&mut self, now: Millis, message: Message, world: &mut dyn World, out: &mut Vec<Effect>) {
        let mut step = Step::new(now, (self.awaited, self.events), world, out);
        let stepped = catch_unwind(AssertUnwindSafe(|| match message {
            Message::Supervisor(message) => self.supervise(message, &mut step),
            Message::Thread(thread, message) => self.thread(thread, message, &mut step),
            Message::Conversation(owner, message) => self.conversation(owner, message, &mut step),
        }));
        (self.awaited, self.events) = (step.awaited, step.events);
        if step.raised_watched {
            self.quiescence.raised();
        }
        // Whoever contains it has what the step had wanted done before, its events too: their numbers are taken.
        if let Err(panicked) = stepped {
            resume_unwind(panicked);
        }
        if self.memory.is_due() {
            self.check_memory();
        }
    }

    /// Names it.
    pub fn run_id(&self) -> &Arc<str> {
        &self.run_id
    }

    /// The number of threads started.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// True if no thread was started, which never is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The thread of this id.
    pub fn thread_of(&self, thread_id: &str) -> Option<ThreadNo> {
        let thread = ThreadId::number(&self.run_id, thread_id)?;
        ((thread as usize) < self.tree.len()).then_some(thread)
    }

    /// The scope of a live thread's texts.
    pub fn scope(&self, thread: ThreadNo) -> Option<ThreadScope<'_>> {
        Some(ThreadScope::new(self.live(thread)?, &self.globals))
    }

    /// The origin of a thread, and the workflow it walks.
    pub fn origin(&self, thread: ThreadNo) -> Option<(Origin, &Arc<Graph>)> {
        let at = self.tree.get(thread)?;
        Some((at.origin, self.graphs.get(at.graph)))
    }

    /// The thread that stands at a fork, and what it awaits there.
    pub fn fork_parent(&self, fork: ForkNo) -> Option<(ThreadNo, EffectId)> {
        self.forks.get(&fork).map(|run| (run.parent, run.effect))
    }

    /// Gives a deserialized run its workflows back.
    ///
    /// # Errors
    /// The id of one that is not there; the run cannot be used.
    pub fn attach(&mut self, find: &dyn Fn(&str) -> Option<Arc<Graph>>) -> Result<(), Arc<str>> {
        self.graphs.attach(find)?;
        let Self {
            graphs, tree, slots, ..
        } = self;
        for (thread, slot) in (0..).zip(slots) {
            let Some(at) = tree.get(thread) else { continue };
            match slot {
                Slot::Live(live) => live.machine.attach(Arc::clone(graphs.get(at.graph))),
                Slot::NotStarted(Some(start)) => start.graph = Some(Arc::clone(graphs.get(at.graph))),
                Slot::NotStarted(None) | Slot::Ended(_) => {}
            }
        }
        Ok(())
    }

    fn thread(&mut self, no: ThreadNo, message: ToThread, step: &mut Step<'_>) {
        let message = match message {
            ToThread::Input(Input::Assign {
                trigger_id,
                name,
                trigger_depth,
                ..
            }) if !self.is_open(no) => {
                let message = format!("the thread that was to have variable {name} has ended");
                let error = RunError::new(RunErrorCode::Cancelled, message);
                return self.say_not_assigned(no, &trigger_id, &error, trigger_depth, step);
            }
            // Whoever matched the triggers knows that they have acted; the run knows what they have fired.
            ToThread::Input(Input::Answer {
                effect,
                outcome: Outcome::HeldByFiring(_),
            }) => {
                let outcome = Outcome::HeldByFiring(self.firings.take_holding(no));
                ToThread::Input(Input::Answer { effect, outcome })
            }
            message => message,
        };
        if let Some(Slot::NotStarted(_)) = self.slots.get(no as usize) {
            self.make(no);
        }
        if let Some(stop) = self.stop_to_come(no) {
            self.turn(no, stop, step);
        }
        self.turn(no, message, step);
    }

    fn turn(&mut self, no: ThreadNo, message: ToThread, step: &mut Step<'_>) {
        let Self {
            slots,
            globals,
            pinned,
            mailbox,
            buffers,
            seed,
            budget,
            memory,
            tree,
            graphs,
            ..
        } = self;
        if let Some(Slot::Live(live)) = slots.get_mut(no as usize) {
            let mut turn = ThreadTurn {
                no,
                live,
                globals,
                pinned,
                mailbox,
                buffers,
                seed: *seed,
                budget,
                memory,
                places: Places { tree, graphs },
                step,
            };
            turn.take(message);
        }
    }

    fn conversation(&mut self, owner: ThreadNo, message: ToConversation, step: &mut Step<'_>) {
        let Self {
            slots,
            globals,
            results,
            mailbox,
            memory,
            ..
        } = self;
        let Some(Slot::Live(live)) = slots.get_mut(owner as usize) else {
            return refuse(mailbox, owner, message);
        };
        let LiveThread { machine, speech, .. } = &mut **live;
        let Speech::Own(own) = speech else {
            return refuse(mailbox, owner, message);
        };
        let mut turn = ConversationTurn {
            owner,
            trigger_depth: machine.trigger_depth(),
            thread: machine,
            own,
            globals,
            results,
            mailbox,
            memory,
            step,
        };
        turn.take(message);
    }

    fn supervise(&mut self, message: ToSupervisor, step: &mut Step<'_>) {
        match message {
            ToSupervisor::Control(control) => self.control(&control),
            ToSupervisor::ControlThread {
                thread,
                control,
                trigger_depth,
            } => self.control_thread(thread, control, trigger_depth),
            ToSupervisor::Elapsed(Timer::Thread { thread, after_ms }) => {
                self.cancel(thread, CancelReason::TimedOut { after_ms }, 0);
            }
            ToSupervisor::Elapsed(Timer::Join { fork, generation }) => {
                self.step_fork(fork, join::Input::Deadline { generation }, step);
            }
            ToSupervisor::Elapsed(Timer::Firing(firing)) => self.firing_deadline(firing, step),
            ToSupervisor::Assign(assignment) => self.assign(*assignment, step),
            ToSupervisor::Pin(section, value) => {
                self.memory.took(&value);
                // A section that the value does not fit stays as it was: whoever pins it checks before.
                let _: Result<(), RunError> = pin(&mut self.pinned, section, &value);
            }
            ToSupervisor::Raise(events) => self.raise(events, step),
            ToSupervisor::FollowUp(follow_up) => self.follow_up(*follow_up, step),
            // Each is taken in its place when it is told.
            ToSupervisor::Fired(_) | ToSupervisor::Migrated(_) => {}
            ToSupervisor::CallTrigger(call) => self.call_trigger(call, step),
            ToSupervisor::TriggerCalled { call, error } => self.trigger_called(call, error, step),
            ToSupervisor::Recovered(doubts) => self.recovered(doubts, step),
            ToSupervisor::Fire(firing) => self.fire(&firing, step),
            ToSupervisor::FireAlone(firing) => self.fire_alone(*firing, step),
            ToSupervisor::DetachedEnded { firing, output } => self.detached_ended(firing, output, step),
            ToSupervisor::TriggersQuiet => {
                let (before, left) = (self.calls_before_outcome(), self.left());
                let quiet = self.quiescence.triggers_quiet(before, left);
                self.quiet(quiet, step);
            }
            ToSupervisor::Session(turn) => self.session_turn(*turn, step),
            ToSupervisor::Fork {
                thread,
                effect,
                fork,
                start,
            } => self.fork(thread, effect, fork, start, step),
            ToSupervisor::Map {
                thread,
                effect,
                node,
                inputs,
                conversation,
            } => self.map(thread, effect, node, inputs, *conversation, step),
            ToSupervisor::Call {
                thread,
                effect,
                node,
                input,
                conversation,
            } => self.call(thread, effect, node, input, *conversation, step),
            ToSupervisor::Drop { thread, effect } => self.drop_effect(thread, effect, step),
            ToSupervisor::Prepared { firing, prepared } => self.prepared(firing, prepared, step),
            ToSupervisor::Applied { firing, error } => self.applied(firing, error, step),
            ToSupervisor::Ended { thread, ended } => self.ended(thread, ended, step),
            ToSupervisor::Panicked(panic) => self.panicked(&panic),
            ToSupervisor::ConversationLost { thread, error } => {
                self.send(thread, ToThread::Input(Input::Fail(error)));
            }
            ToSupervisor::StopLosers { fork, from } => self.stop_losers(fork, from),
        }
    }

    /// The limit on a thread's time. A branch lives within that of the thread that forked it.
    pub(super) fn time_limit(&self, at: &Branching) -> Option<Millis> {
        let own = self.graphs.get(at.graph).config.timeout_ms;
        let of_run = self.deadline_ms.filter(|_| at.kind == ThreadKind::Main);
        let limits = [own, of_run].into_iter().flatten();
        limits
            .filter(|after_ms| *after_ms > 0 && !matches!(at.origin, Origin::Branch { .. }))
            .min()
    }

    /// Tells a thread something; one that has ended hears nothing.
    pub(super) fn send(&mut self, thread: ThreadNo, message: ToThread) {
        if self.tree.is_live(thread) {
            self.mailbox.send(Message::Thread(thread, message));
        }
    }

    /// Tells the conversation that a thread speaks in something.
    pub(super) fn converse(&mut self, thread: ThreadNo, message: ToConversation) {
        let owner = match self.slots.get(thread as usize) {
            Some(Slot::Live(live)) => live.speaks_in(thread),
            Some(Slot::NotStarted(_) | Slot::Ended(_)) | None => thread,
        };
        self.mailbox.send(Message::Conversation(owner, message));
    }

    pub(super) fn answer(&mut self, thread: ThreadNo, effect: EffectId, outcome: Outcome) {
        self.send(thread, ToThread::Input(Input::Answer { effect, outcome }));
    }

    pub(super) fn graph_of(&self, thread: ThreadNo) -> &Arc<Graph> {
        let graph = self.tree.get(thread).map_or(0, |at| at.graph);
        self.graphs.get(graph)
    }

    /// As everyone else knows the thread.
    pub fn thread_id(&self, thread: ThreadNo) -> Arc<str> {
        match self.live(thread) {
            Some(machine) => Arc::clone(machine.thread_id()),
            None => ThreadId::written(&self.run_id, thread as usize),
        }
    }

    pub(super) fn path_id(&self, thread: ThreadNo) -> Option<Arc<str>> {
        self.tree.get(thread)?.origin.path_id(self.graph_of(thread))
    }
}
