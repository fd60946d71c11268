//! The state machine of a whole run.
//!
//! | message | sender | action |
//! |---|---|---|
//! | Control, `ControlThread` | outside | cancels, pauses or resumes every thread, or one |
//! | Elapsed | outside | cancels a thread that exceeded its time limit; steps a join; ends a firing |
//! | Assign, Pin | outside | sets a global variable or a pinned section at once; forwards a thread's variable to the thread |
//! | Say | outside | see the table of [`crate::run::turns::message_intake`] |
//! | Raise | outside | raises events in the main thread's name |
//! | `FollowUp` | outside | raises an event in the name of the thread whose event caused it |
//! | Migrated | outside | none: the record is read by the next owner of the run |
//! | Fired | outside | queues the message of the trigger's action |
//! | `CallTrigger`, `TriggerCalled` | outside | calls a trigger's function or hook; the result raises an event, may end the run |
//! | Recovered | outside | records which effects are in doubt, for the report too |
//! | Fire, `FireAlone`, `DetachedEnded` | outside | see the table of [`crate::run::parts::firing`] |
//! | `TriggersQuiet` | outside | see the table of [`crate::run::parts::quiescence`] |
//! | Session | outside | see the table of [`crate::run::steps::session`] |
//! | Fork | a thread, through its conversation | starts the paths; the join decides ([`crate::join`]) |
//! | Map | a thread, through its conversation | starts a thread for each item; the join decides |
//! | Call | a thread, through its conversation | starts the workflow; its outcome answers the thread |
//! | Drop | a thread, through its conversation | cancels the fork or the called workflow |
//! | Prepared, Applied | a thread | see the table of [`crate::run::parts::firing`] |
//! | Ended | a thread, through its conversation | cancels what it started; notifies its starter; may end the run |
//! | Panicked | the host of the actors | ends the thread, or the thread that owns the conversation |
//! | `StopLosers` | the run | cancels a join's losers in groups |
//!
//! The tables for messages to threads and conversations are in [`crate::thread`] and [`pirn_conversation::conversation`].
//!
//! Invariants:
//! - Each started thread ends once.
//! - A thread that ends cancels everything that it started, except what a JOIN detached.
//! - The outcome is sent once: when the main thread and everything attached to it have ended.
//! - Equal messages in equal order, with an equal [`RunEnvironment`], produce equal effects.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use pirn_definition::Millis;
use pirn_definition::definition::Pinned;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_events::event::EventMask;

use super::ThreadNo;
use super::data::effect::Effect;
use super::data::message::{ConversationSource, Message, Timer, ToConversation, ToSupervisor, ToThread};
use super::data::session::RunSession;
use super::data::thread_state::{ConversationSlot, EffectBuffers, InitialState, LiveThread, Slot};
use super::environment::RunEnvironment;
use super::parts::firing::Firings;
use super::parts::globals::Globals;
use super::parts::graphs::Graphs;
use super::parts::mailbox::Mailbox;
use super::parts::memory::Memory;
use super::parts::quiescence::Termination;
use super::parts::tree::{Origin, ThreadLookup, Tree};
use super::state::{ForkGaps, RunMachine, RunSeed};
use super::step::Step;
use super::turns::conversation::{ConversationTurn, refuse};
use super::turns::thread::{ThreadTurn, pin};
use crate::join;
use crate::thread::{CancelReason, EffectId, Input, Outcome, ThreadId, ThreadKind, ThreadScope};

impl RunMachine {
    /// Creates a run and queues the first step of its main thread.
    pub fn new(now: Millis, seed: RunSeed, env: &mut dyn RunEnvironment, out: &mut Vec<Effect>) -> Self {
        let mut machine = Self {
            run_id: seed.run_id,
            started_at: now,
            gaps: (!seed.gaps.is_empty()).then(|| Box::new(ForkGaps(seed.gaps))),
            seed: seed.seed,
            picks_starts: seed.picks_starts,
            merges_assignments: seed.merges_assignments,
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
            quiescence: Termination::default(),
            salvaged: None,
            is_paused: false,
            deadline_ms: seed.deadline_ms,
            memory: Memory::new(seed.graph.config.run_bytes().unwrap_or(seed.run_bytes)),
            awaited: EventMask::NONE,
            steps: 0,
            events: 0,
            doubts: None,
            trigger_calls: None,
            user_messages: None,
            client_tools: seed.client_tools,
            summaries: seed.summaries.into(),
            cache: None,
            session: seed.session.map(|seed| Box::new(RunSession::new(seed))),
            budget: None,
            agents: None,
            remains: None,
            spare: None,
            buffers: EffectBuffers::default(),
        };
        // No step receives the values of the seed, so their bytes are counted here.
        machine.memory.took(&seed.input);
        machine.memory.made(seed.conversation.memory_total());
        let start = InitialState {
            // Only a session passes on the messages of earlier runs: the messages of a seed count as this run's.
            conversation: ConversationSource::Snapshot(seed.conversation.inheriting(0)),
            trigger_depth: seed.trigger_depth,
            is_unlimited: seed.is_unlimited,
            ..InitialState::of(seed.graph, ThreadKind::Main, Origin::Main, seed.input)
        };
        let mut step = Step::new(now, (EventMask::NONE, 0), env, out);
        machine.start(start, &mut step);
        machine.events = step.events;
        machine
    }

    /// Queues an external input behind all queued messages. The panic of an actor takes effect at once.
    pub fn receive(&mut self, message: Message) {
        // Maxima of model calls are recorded for one input each: those of the previous input must not answer this one.
        if let Some(ledger) = &mut self.budget {
            ledger.next_input();
        }
        match message {
            Message::Supervisor(ToSupervisor::Panicked(panic)) => self.panicked(&panic),
            Message::Supervisor(ToSupervisor::Fired(fired)) => {
                // Without an action in this run, the record only states that the trigger has fired, for a rebuilt matcher.
                if let Some(message) = fired.message() {
                    self.mailbox.send(message);
                }
            }
            message => self.mailbox.send(message),
        }
    }

    /// Queues the first step of a thread with low priority, behind everything else.
    pub fn begin(&mut self, thread: ThreadNo) {
        // A join that is decided by an early branch can then cancel the other branches before their first step.
        let message = Message::Thread(thread, ToThread::Input(Input::Start));
        self.mailbox.send_later(message);
    }

    /// Takes the next message, for [`Self::step`].
    pub fn next_message(&mut self) -> Option<Message> {
        let message = self.mailbox.take();
        match &message {
            // A record stores this count (`JournaledInput::after`), so that a replay delivers the next input after the same message.
            Some(_) => self.steps += 1,
            // A waiting run keeps no spare allocation: thousands of runs may wait at once.
            None => self.spare = None,
        }
        message
    }

    /// Exchanges the effect buffers. They are empty between two steps, so that many machines can share one pair.
    pub fn swap_buffers(&mut self, buffers: &mut EffectBuffers) {
        std::mem::swap(&mut self.buffers, buffers);
    }

    /// Processes one message and appends its effects to `out`.
    pub fn step(&mut self, now: Millis, message: Message, env: &mut dyn RunEnvironment, out: &mut Vec<Effect>) {
        let mut step = Step::new(now, (self.awaited, self.events), env, out);
        // Caught only to store the counters of the step, and resumed below. The host reports it as an input, which ends the actor.
        let stepped = catch_unwind(AssertUnwindSafe(|| match message {
            Message::Supervisor(message) => self.supervise(message, &mut step),
            Message::Thread(thread, message) => self.thread(thread, message, &mut step),
            Message::Conversation(owner, message) => self.conversation(owner, message, &mut step),
        }));
        (self.awaited, self.events) = (step.awaited, step.events);
        // `quiet` clears the flag if it has counted these events within the step.
        if step.raised_watched {
            self.quiescence.raised();
        }
        // The caller keeps the effects that the step produced before it panicked. They include events whose sequence numbers are
        // used.
        if let Err(panicked) = stepped {
            resume_unwind(panicked);
        }
        // Not within the step: a turn borrows the slot of its thread mutably, and a measurement reads all slots.
        if self.memory.is_due() {
            self.check_memory();
        }
    }

    /// Returns the variables that expressions of a live thread can read.
    pub fn scope(&self, thread: ThreadNo) -> Option<ThreadScope<'_>> {
        Some(ThreadScope::new(self.live(thread)?, &self.globals))
    }

    /// Attaches the compiled workflows to a deserialized run: registered ones, and those that the run itself contains.
    ///
    /// # Errors
    /// Returns the id of a missing workflow. The run is then unusable.
    pub fn attach(&mut self, env: &dyn RunEnvironment) -> Result<(), Arc<str>> {
        self.graphs.attach(env)?;
        // Snapshots of earlier versions contain no counts.
        if self
            .tree
            .iter()
            .any(|at| self.graphs.get(at.graph).config.max_agents.is_some())
        {
            self.agents.get_or_insert_default();
        }
        let Self {
            graphs, tree, slots, ..
        } = self;
        for (thread, slot) in (0..).zip(slots) {
            let Some(at) = tree.get(thread) else { continue };
            match slot {
                Slot::Live(live) => live.machine.attach(Arc::clone(graphs.get(at.graph))),
                Slot::NotStarted(Some(start)) => start.graph = Some(Arc::clone(graphs.get(at.graph))),
                // These contain no graph: `graph_of` finds that of a branch that has not started, and of an ended thread, through
                // the tree.
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
            // The machine of an ended thread reports nothing any more, so the run reports the failed assignment.
            }) if !self.is_open(no) => {
                let message = format!("the thread that was to have variable {name} has ended");
                let error = RunError::new(RunErrorCode::Cancelled, message);
                return self.emit_not_assigned(no, &trigger_id, &error, trigger_depth, step);
            }
            // The trigger matcher reports only that the triggers have acted. The firings that hold the thread are listed here.
            ToThread::Input(Input::Answer {
                effect,
                outcome: Outcome::HeldByFiring(_),
            }) => {
                let outcome = Outcome::HeldByFiring(self.firings.take_holding(no));
                ToThread::Input(Input::Answer { effect, outcome })
            }
            message => message,
        };
        // Not only the first step: a pause or a cancel may arrive before it and needs the machine too.
        if let Some(Slot::NotStarted(_)) = self.slots.get(no as usize) {
            self.activate(no);
        }
        // The losers of a join are cancelled in groups. The cancel of this one may still be pending, so it is delivered first.
        if let Some(stop) = self.pending_cancel(no) {
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
            agents,
            memory,
            tree,
            graphs,
            user_messages,
            client_tools,
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
                agents,
                memory,
                places: ThreadLookup { tree, graphs },
                user_messages,
                client_tools,
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
            tree,
            graphs,
            user_messages,
            summaries,
            cache,
            ..
        } = self;
        // The conversation ended with its owner. Threads that shared it may still send requests and need an answer.
        let Some(Slot::Live(live)) = slots.get_mut(owner as usize) else {
            return refuse(mailbox, owner, message);
        };
        // The turn changes the conversation while it reads the machine for ids and events.
        let LiveThread { machine, speech, .. } = &mut **live;
        let ConversationSlot::Own(own) = speech else {
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
            tree,
            graphs,
            user_messages,
            summaries,
            cache,
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
            // The timer may expire while its stop is in flight: the thread has then ended, and `send` drops the cancel.
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
                // A value of the wrong type leaves the section unchanged. The sender validates it before.
                let _: Result<(), RunError> = pin(&mut self.pinned, section, &value);
            }
            ToSupervisor::Say(message) => self.say(*message, step),
            ToSupervisor::Raise(events) => self.raise(events, step),
            ToSupervisor::FollowUp(follow_up) => self.follow_up(*follow_up, step),
            // `receive` queues the message of a firing; `Migrated` is read from the journal only.
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
                callee,
                input,
                conversation,
            } => self.call((thread, effect), node, &callee, input, *conversation, step),
            ToSupervisor::Drop { thread, effect } => self.drop_effect(thread, effect, step),
            ToSupervisor::Prepared { firing, prepared } => self.prepared(firing, prepared, step),
            ToSupervisor::Applied { firing, error } => self.applied(firing, error, step),
            ToSupervisor::Ended { thread, ended } => self.ended(thread, ended, step),
            // `receive` handles panics from outside before they are queued.
            ToSupervisor::Panicked(panic) => self.panicked(&panic),
            ToSupervisor::ConversationLost { thread, error } => {
                self.send(thread, ToThread::Input(Input::Fail(error)));
            }
            ToSupervisor::StopLosers { fork, from } => self.stop_losers(fork, from),
        }
    }

    /// Sends a message to the conversation in which a thread speaks.
    pub(super) fn converse(&mut self, thread: ThreadNo, message: ToConversation) {
        let owner = match self.slots.get(thread as usize) {
            Some(Slot::Live(live)) => live.speaks_in(thread),
            // The thread's own number has no live conversation: `conversation` refuses the message and answers its sender.
            Some(Slot::NotStarted(_) | Slot::Ended(_)) | None => thread,
        };
        self.mailbox.send(Message::Conversation(owner, message));
    }

    pub(super) fn answer(&mut self, thread: ThreadNo, effect: EffectId, outcome: Outcome) {
        self.send(thread, ToThread::Input(Input::Answer { effect, outcome }));
    }

    /// Returns the public id of the thread.
    pub fn thread_id(&self, thread: ThreadNo) -> Arc<str> {
        match self.live(thread) {
            Some(machine) => Arc::clone(machine.thread_id()),
            None => ThreadId::written(&self.run_id, thread as usize),
        }
    }
}
