//! The run machine: a whole run as one value.
//!
//! | message | from | does |
//! |---|---|---|
//! | Control, `ControlThread` | outside | cancels, pauses or resumes every thread, or one |
//! | Elapsed | outside | cancels a thread that is out of time; steps a join; ends a firing |
//! | Assign, Pin | outside | sets a global variable or a section at once; a thread's own variable is for the thread |
//! | Raise | outside | raises events in the main thread's name |
//! | Fire, `FireAlone`, `DetachedEnded` | outside | [`super::firing`]'s table |
//! | `TriggersQuiet` | outside | [`super::quiescence`]'s table |
//! | Fork | a thread, by its conversation | starts the paths; its join decides, by [`crate::join`]'s table |
//! | Map | a thread, by its conversation | the same, with a thread for each item |
//! | Call | a thread, by its conversation | starts the workflow; its end answers the thread |
//! | Drop | a thread, by its conversation | gives up the fork or the called workflow |
//! | Prepared, Applied | a thread | [`super::firing`]'s table |
//! | Ended | a thread, by its conversation | gives up what it started; tells whoever it ran for; may end the run |
//! | `ConversationLost` | whoever contains actors | the thread that it belongs to fails |
//! | `StopLosers` | itself | tells a join's losers to stop, a few at a time |
//!
//! A thread's messages are its machine's table ([`crate::thread`]); a conversation's are [`crate::conversation`]'s.
//!
//! Invariants: every thread that was started ends once; a thread that ends takes what it started with it, unless a JOIN
//! detached it; the outcome is told once, when the main thread and everything attached to it have ended; the same messages
//! in the same order, over the same world, have the same effects.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::conversation::{ConversationTurn, OwnConversation, Speech, assign_global, refuse};
use super::firing::{Firings, GivenUp, too_late};
use super::forks::ForkRun;
use super::graphs::Graphs;
use super::mailbox::Mailbox;
use super::message::{
    Artifacts, Assignment, Control, Ended, HandedConversation, Message, Timer, ToConversation, ToSupervisor, ToThread,
};
use super::quiescence::{Quiescence, Quiet};
use super::start::Start;
use super::step::Step;
use super::thread::{EffectBuffers, LiveThread, ThreadTurn, panicked, pin};
use super::tree::{Branching, Origin, Owned, Tree};
use super::world::World;
use super::{Effect, ForkNo, ThreadNo};
use crate::Millis;
use crate::conversation::{Conversation, Spent};
use crate::definition::{Pinned, VariableScope};
use crate::error::{RunError, RunErrorCode};
use crate::event::{EventMask, EventType, RaisedEvent};
use crate::graph::{Graph, NodeKind};
use crate::join;
use crate::status::ThreadStatus;
use crate::thread::{
    CancelReason, EffectId, Input, Outcome, Output, ThreadEnd, ThreadId, ThreadKind, ThreadMachine, ThreadScope,
    Variables, variable_fields,
};

/// What a run is started with.
#[derive(Clone, Debug)]
pub struct RunSeed {
    /// Names it.
    pub run_id: Arc<str>,
    /// Its workflow.
    pub graph: Arc<Graph>,
    /// Its input.
    pub input: Arc<Value>,
    /// What its conversation starts with.
    pub conversation: Conversation,
    /// Its pinned context.
    pub pinned: Pinned,
    /// What its caller says of it, for whatever it calls.
    pub metadata: Option<Arc<Map<String, Value>>>,
    /// Inside what a token event started: the token limit is not checked.
    pub is_unlimited: bool,
    /// The main thread's limit on time, beside its workflow's own.
    pub deadline_ms: Option<Millis>,
    /// How many triggers stand between the steps of another run and it.
    pub trigger_depth: u32,
    /// For jitter; 0: there is none.
    pub seed: u64,
    /// Somebody outside picks which of several threads takes its first step next: [`Effect::Begin`] asks for it.
    pub picks_starts: bool,
}

/// Where a thread is found.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Slot {
    /// It has heard nothing yet. What it starts with; a branch finds that in its fork.
    NotStarted(Option<Box<Start>>),
    Live(Box<LiveThread>),
    Ended(Box<Ended>),
}

/// A whole run. See the table above.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunMachine {
    pub(super) run_id: Arc<str>,
    pub(super) started_at: Millis,
    seed: u64,
    #[serde(default)]
    picks_starts: bool,
    pub(super) graphs: Graphs,
    pub(super) tree: Tree,
    pub(super) slots: Vec<Slot>,
    pub(super) forks: BTreeMap<ForkNo, ForkRun>,
    pub(super) next_fork: ForkNo,
    pub(super) firings: Firings,
    pub(super) globals: Variables,
    pinned: Pinned,
    pub(super) mailbox: Mailbox,
    quiescence: Quiescence,
    /// By the threads that have ended: also where nobody was left to take what they came to.
    pub(super) spent: Spent,
    /// What was said in the main thread's conversation, where its actor panicked.
    pub(super) salvaged: Option<Box<Conversation>>,
    is_paused: bool,
    /// The main thread's limit on time, beside its workflow's own.
    #[serde(default)]
    deadline_ms: Option<Millis>,
    /// Types that a WAIT node has waited for.
    awaited: EventMask,
    /// Messages taken so far.
    steps: u64,
    /// What the main thread's nodes left behind. Nobody reads it any more: it is kept so that the outcome need not wait for
    /// its cleaning up, which after a fork of many branches takes a while.
    #[serde(skip)]
    remains: Option<Box<LiveThread>>,
    /// The place of a thread that has ended: the next one begins there.
    #[serde(skip)]
    spare: Option<Box<LiveThread>>,
    #[serde(skip)]
    buffers: EffectBuffers,
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
            globals: Variables::default(),
            pinned: seed.pinned,
            mailbox: Mailbox::default(),
            quiescence: Quiescence::default(),
            spent: Spent::default(),
            salvaged: None,
            is_paused: false,
            deadline_ms: seed.deadline_ms,
            awaited: EventMask::NONE,
            steps: 0,
            remains: None,
            spare: None,
            buffers: EffectBuffers::default(),
        };
        let start = Start {
            conversation: HandedConversation::Snapshot(seed.conversation),
            trigger_depth: seed.trigger_depth,
            is_unlimited: seed.is_unlimited,
            ..Start::of(seed.graph, ThreadKind::Main, Origin::Main, seed.input)
        };
        let mut step = Step::new(now, EventMask::NONE, world, out);
        machine.start(start, &mut step);
        machine
    }

    // ---- what is told it

    /// Tells the run something; it is heard after all that was told before.
    pub fn tell(&mut self, message: Message) {
        self.mailbox.send(message);
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

    /// How many messages were taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether a WAIT node of the run has waited for events of this type.
    pub fn awaits(&self, event_type: EventType) -> bool {
        self.awaited.contains(event_type)
    }

    /// Whether every thread of the run has ended.
    pub fn has_ended(&self) -> bool {
        self.tree.live() == 0
    }

    /// Whether nothing waits to be stepped with.
    pub fn is_idle(&self) -> bool {
        self.mailbox.is_empty()
    }

    /// Takes a message; what should happen outside is appended to `out`.
    pub fn step(&mut self, now: Millis, message: Message, world: &mut dyn World, out: &mut Vec<Effect>) {
        let mut step = Step::new(now, self.awaited, world, out);
        match message {
            Message::Supervisor(message) => self.supervise(message, &mut step),
            Message::Thread(thread, message) => self.thread(thread, message, &mut step),
            Message::Conversation(owner, message) => self.conversation(owner, message, &mut step),
        }
        self.awaited = step.awaited;
        if step.raised_watched {
            self.quiescence.raised();
        }
    }

    /// A thread's actor panicked in its turn: it ends FAILED with what it had gathered, or, where even that is not
    /// `known`, with nothing.
    pub fn thread_panicked(&mut self, thread: ThreadNo, message: &str, is_known: bool, out: &mut Vec<Effect>) {
        let Some(Slot::Live(live)) = self.slots.get_mut(thread as usize) else {
            return;
        };
        out.push(Effect::ThreadEnded { thread });
        if is_known {
            let (owner, ended) = (live.speaks_in(thread), live.panicked(message));
            let message = ToConversation::Ended(thread, Box::new(ended));
            return self.mailbox.send(Message::Conversation(owner, message));
        }
        let end = ThreadEnd {
            status: ThreadStatus::Failed,
            output: Output::default(),
            error: Some(panicked(message)),
        };
        let ended = Box::new(Ended {
            end,
            spent: Spent::default(),
            panicked: true,
            artifacts: None,
        });
        self.mailbox
            .send(Message::Supervisor(ToSupervisor::Ended { thread, ended }));
    }

    /// A conversation's actor panicked while it served `asker`: whoever asks it hears so, and the thread that it belongs to
    /// ends.
    pub fn conversation_panicked(&mut self, owner: ThreadNo, message: &str, asker: Option<(ThreadNo, EffectId)>) {
        if let Some(Slot::Live(live)) = self.slots.get_mut(owner as usize)
            && let Speech::Own(own) = std::mem::replace(&mut live.speech, Speech::Lost)
            && owner == 0
        {
            self.salvaged = Some(Box::new(own.machine.conversation().clone()));
        }
        let message = format!("the conversation's actor panicked: {message}");
        let error = RunError::new(RunErrorCode::ActorPanicked, message);
        let lost = ToSupervisor::ConversationLost { thread: owner, error };
        self.mailbox.send(Message::Supervisor(lost));
        if let Some((thread, effect)) = asker {
            let outcome = Outcome::Failed(super::conversation::lost());
            super::conversation::answer(&mut self.mailbox, thread, effect, outcome);
        }
    }

    // ---- what it is

    /// Names it.
    pub fn run_id(&self) -> &Arc<str> {
        &self.run_id
    }

    /// How many threads were started.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether no thread was started, which never is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The thread of this id.
    pub fn thread_of(&self, thread_id: &str) -> Option<ThreadNo> {
        let digits = thread_id.strip_prefix(&*self.run_id)?.strip_prefix('.')?;
        // `7`, `07` and `+7` are one number, but only one of them is the thread's.
        if digits.starts_with('+') || (digits.starts_with('0') && digits.len() > 1) {
            return None;
        }
        let thread: ThreadNo = digits.parse().ok()?;
        ((thread as usize) < self.tree.len()).then_some(thread)
    }

    /// A thread that has begun and has not ended.
    pub fn live(&self, thread: ThreadNo) -> Option<&ThreadMachine> {
        match self.slots.get(thread as usize)? {
            Slot::Live(live) => Some(&live.machine),
            Slot::NotStarted(_) | Slot::Ended(_) => None,
        }
    }

    /// What a live thread's texts see.
    pub fn scope(&self, thread: ThreadNo) -> Option<ThreadScope<'_>> {
        Some(ThreadScope::new(self.live(thread)?, &self.globals))
    }

    /// How a thread came to be, and which workflow it walks.
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

    // ---- threads and conversations

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
                step,
            };
            turn.take(message);
        }
    }

    /// The thread hears something for the first time.
    fn make(&mut self, no: ThreadNo) {
        let Some(at) = self.tree.get(no).cloned() else { return };
        let Some(slot) = self.slots.get_mut(no as usize) else {
            return;
        };
        let start = match slot {
            Slot::NotStarted(start) => start.take(),
            Slot::Live(_) | Slot::Ended(_) => return,
        };
        let token_limit = self.graphs.token_limit(at.graph).filter(|_| !at.is_unlimited);
        let own = |conversation| Speech::Own(OwnConversation::new(conversation, token_limit));
        let made = match (start, at.origin) {
            (Some(start), _) => {
                let made = start.into_machine(ThreadId::new(Arc::clone(&self.run_id), no));
                made.map(|(machine, conversation)| match conversation {
                    HandedConversation::Snapshot(conversation) => (machine, own(conversation)),
                    HandedConversation::Shared(owner) => (machine, Speech::Shared(owner)),
                })
            }
            (None, Origin::Branch { fork, path, .. }) => {
                let branch = self.branch(no, fork, path as usize);
                branch.map(|(machine, conversation)| (machine, own(conversation)))
            }
            (None, Origin::Main | Origin::Item { .. } | Origin::Called { .. } | Origin::Triggered { .. }) => None,
        };
        if let Some((machine, speech)) = made {
            let keeps_artifacts = self.keeps_artifacts(no);
            let live = LiveThread::new(machine, speech, keeps_artifacts);
            self.slots[no as usize] = Slot::Live(match self.spare.take() {
                Some(mut place) => {
                    *place = live;
                    place
                }
                None => Box::new(live),
            });
        }
    }

    fn conversation(&mut self, owner: ThreadNo, message: ToConversation, step: &mut Step<'_>) {
        let Self {
            slots,
            globals,
            mailbox,
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
            mailbox,
            step,
        };
        turn.take(message);
    }

    // ---- the supervisor

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
                // A section that the value does not fit stays as it was: whoever pins it checks before.
                let _: Result<(), RunError> = pin(&mut self.pinned, section, &value);
            }
            ToSupervisor::Raise(events) => self.raise(events, step),
            ToSupervisor::Fire(firing) => self.fire(&firing, step),
            ToSupervisor::FireAlone(firing) => self.fire_alone(*firing, step),
            ToSupervisor::DetachedEnded { firing, output } => self.detached_ended(firing, output, step),
            ToSupervisor::TriggersQuiet => {
                let quiet = self.quiescence.triggers_quiet();
                self.quiet(quiet, step);
            }
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
            ToSupervisor::ConversationLost { thread, error } => {
                self.send(thread, ToThread::Input(Input::Fail(error)));
            }
            ToSupervisor::StopLosers { fork, from } => self.stop_losers(fork, from),
        }
    }

    fn control(&mut self, control: &Control) {
        match control {
            Control::Cancel(reason) => {
                let reason = CancelReason::Requested { reason: reason.clone() };
                return self.cancel(0, reason, 0);
            }
            Control::Pause => self.is_paused = true,
            Control::Resume => self.is_paused = false,
            Control::Shutdown => {}
        }
        for thread in 0..self.tree.len() as ThreadNo {
            self.send(thread, ToThread::Input(control.clone().input(0)));
        }
    }

    fn control_thread(&mut self, thread: ThreadNo, control: Control, trigger_depth: u32) {
        match control.input(trigger_depth) {
            Input::Cancel { reason, trigger_depth } => self.cancel(thread, reason, trigger_depth),
            input => self.send(thread, ToThread::Input(input)),
        }
    }

    /// Stops a thread for something that stands `trigger_depth` triggers away from the run's own steps: so does what
    /// the thread still says.
    pub(super) fn cancel(&mut self, thread: ThreadNo, reason: CancelReason, trigger_depth: u32) {
        self.tree.raise_depth(thread, trigger_depth);
        self.send(thread, ToThread::Input(Input::Cancel { reason, trigger_depth }));
    }

    fn assign(&mut self, assignment: Assignment, step: &mut Step<'_>) {
        let Assignment {
            thread,
            scope,
            trigger_id,
            name,
            value,
            trigger_depth,
        } = assignment;
        match scope {
            VariableScope::Thread => {
                let input = Input::Assign {
                    trigger_id,
                    name,
                    value,
                    trigger_depth,
                };
                // Also where the thread has ended: what comes to nothing is said.
                self.mailbox.send(Message::Thread(thread, ToThread::Input(input)));
            }
            VariableScope::Global => match assign_global(&mut self.globals, step, &name, value, false) {
                Ok(value) => self.emit_caused(thread, trigger_depth, EventType::VariableChanged, step, || {
                    variable_fields(&name, &value, VariableScope::Global).into()
                }),
                Err(error) => self.say_not_assigned(thread, &trigger_id, &error, trigger_depth, step),
            },
        }
    }

    fn say_not_assigned(
        &mut self,
        thread: ThreadNo,
        trigger_id: &str,
        error: &RunError,
        trigger_depth: u32,
        step: &mut Step<'_>,
    ) {
        self.emit_caused(thread, trigger_depth, EventType::TriggerFailed, step, || {
            vec![("triggerId", json!(trigger_id)), ("error", json!(error))]
        });
    }

    /// Whether a thread still takes effect: one that has said its last word does not, though that may not have been heard.
    pub(super) fn is_open(&self, thread: ThreadNo) -> bool {
        match self.slots.get(thread as usize) {
            Some(Slot::Live(live)) => !live.machine.status().is_final(),
            Some(Slot::NotStarted(_)) => true,
            Some(Slot::Ended(_)) | None => false,
        }
    }

    /// Events were raised from outside, in the main thread's name.
    fn raise(&mut self, events: Vec<RaisedEvent>, step: &mut Step<'_>) {
        let types = events.iter().fold(EventMask::NONE, |types, event| {
            types.union(EventMask::of(event.event_type))
        });
        step.note_watched(types);
        step.out.push(Effect::EmitAll {
            workflow_id: Arc::clone(&self.graph_of(0).workflow_id),
            thread_id: self.thread_id(0),
            events,
        });
        self.tell_raised(0, types, step);
    }

    /// Events were raised in a thread's name: where one may hold the thread, that asks at its next safe point.
    fn tell_raised(&mut self, thread: ThreadNo, types: EventMask, step: &Step<'_>) {
        if step.listening.holding.intersects(types) {
            self.send(thread, ToThread::Input(Input::Raised));
        }
    }

    pub(super) fn emit(
        &mut self,
        thread: ThreadNo,
        event_type: EventType,
        step: &mut Step<'_>,
        fields: impl FnOnce() -> Vec<(&'static str, Value)>,
    ) {
        self.emit_caused(thread, 0, event_type, step, fields);
    }

    /// As [`Self::emit`], for what a trigger brought about.
    pub(super) fn emit_caused(
        &mut self,
        thread: ThreadNo,
        trigger_depth: u32,
        event_type: EventType,
        step: &mut Step<'_>,
        fields: impl FnOnce() -> Vec<(&'static str, Value)>,
    ) {
        if !step.listens(event_type) {
            return;
        }
        let Some(at) = self.tree.get(thread) else { return };
        let event = RaisedEvent::of(event_type, fields()).at_depth(at.trigger_depth.max(trigger_depth));
        step.emit(&self.graphs.get(at.graph).workflow_id, &self.thread_id(thread), event);
        self.tell_raised(thread, EventMask::of(event_type), step);
    }

    /// A thread has ended, by its own word or because its actor panicked.
    fn ended(&mut self, thread: ThreadNo, mut ended: Box<Ended>, step: &mut Step<'_>) {
        if !self.tree.is_live(thread) {
            return;
        }
        let status = ended.end.status;
        if ended.panicked {
            let (path_id, error) = (self.path_id(thread), ended.end.error.clone());
            self.emit(thread, EventType::ThreadFailed, step, || {
                vec![
                    ("status", json!(status)),
                    ("pathId", json!(path_id)),
                    ("output", Value::Null),
                    ("error", json!(error)),
                ]
            });
        }
        if ended.artifacts.is_some() && !self.keeps_artifacts(thread) {
            ended.artifacts = None;
        }
        self.spent.add(ended.spent);
        let slot = std::mem::replace(&mut self.slots[thread as usize], Slot::Ended(ended));
        if let Slot::Live(live) = slot {
            if thread == 0 {
                self.remains = Some(live);
            } else {
                self.spare = Some(live);
            }
        }
        let Some(owned) = self.tree.end(thread) else { return };
        let Some(at) = self.tree.get(thread) else { return };
        let (origin, trigger_depth) = (at.origin, at.trigger_depth);
        if let Some(after_ms) = self.time_limit(at) {
            let timer = Timer::Thread { thread, after_ms };
            step.out.push(Effect::StopTimer { timer });
        }
        for owned in owned {
            self.give_up(owned, trigger_depth, step);
        }
        for (firing, given_up) in self.firings.give_up(thread) {
            match given_up {
                GivenUp::Stop(child) => self.cancel(child, CancelReason::ParentEnded, trigger_depth),
                GivenUp::NeverBegan(error) => self.say_refused(firing, &error, step),
                GivenUp::TooLate => self.applied(firing, Some(too_late()), step),
                GivenUp::Nothing => {}
            }
        }
        match origin {
            Origin::Main => {}
            Origin::Branch { fork, path, .. } | Origin::Item { fork, index: path } => {
                self.branch_ended(fork, path as usize, status, step);
            }
            Origin::Called { parent, effect } => self.called_ended(parent, effect, thread, step),
            Origin::Triggered { firing } => self.triggered_ended(firing, thread, step),
        }
        let main_ended = !self.tree.is_live(0);
        let quiet = self
            .quiescence
            .ended(main_ended, self.tree.attached(), self.tree.live());
        self.quiet(quiet, step);
    }

    fn quiet(&mut self, mut quiet: Option<Quiet>, step: &mut Step<'_>) {
        // What was raised in this very step counts.
        if std::mem::take(&mut step.raised_watched) {
            self.quiescence.raised();
        }
        while let Some(next) = quiet.take() {
            match next {
                Quiet::AskTriggers => step.out.push(Effect::QuiesceTriggers),
                Quiet::Report => {
                    let report = self.report(step.now);
                    step.out.push(Effect::Report(Box::new(report)));
                    quiet = self.quiescence.ended(true, self.tree.attached(), self.tree.live());
                }
                Quiet::Settle => step.out.push(Effect::Settled),
            }
        }
    }

    /// Whether what this thread leaves behind may be taken over, should it end now.
    fn keeps_artifacts(&self, thread: ThreadNo) -> bool {
        match self.tree.get(thread).map(|at| at.origin) {
            Some(Origin::Main | Origin::Triggered { .. }) => true,
            Some(Origin::Branch { fork, path, .. }) => {
                let run = self.forks.get(&fork);
                run.is_some_and(|run| run.machine.may_take_over(path as usize))
            }
            Some(Origin::Item { .. } | Origin::Called { .. }) | None => false,
        }
    }

    /// What a thread started ends with it.
    fn give_up(&mut self, owned: Owned, trigger_depth: u32, step: &mut Step<'_>) {
        match owned {
            Owned::Fork(fork) => self.step_fork(fork, join::Input::Cancel, step),
            Owned::Child { thread, .. } => self.cancel(thread, CancelReason::ParentEnded, trigger_depth),
        }
    }

    fn drop_effect(&mut self, thread: ThreadNo, effect: EffectId, step: &mut Step<'_>) {
        let wanted = self.tree.owned(thread).iter().copied().find(|owned| match owned {
            Owned::Fork(fork) => self.forks.get(fork).is_some_and(|run| run.effect == effect),
            Owned::Child { effect: own, .. } => *own == effect,
        });
        if let Some(owned) = wanted {
            self.tree.disown(thread, owned);
            let trigger_depth = self.tree.trigger_depth(thread);
            self.give_up(owned, trigger_depth, step);
        }
    }

    // ---- for all of these

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

    /// Takes a thread into the run; its first step is to come.
    pub(super) fn register(&mut self, at: Branching, start: Option<Box<Start>>, step: &mut Step<'_>) -> ThreadNo {
        let thread = self.tree.add(at);
        if self.slots.is_empty() {
            self.slots.reserve_exact(1);
        }
        self.slots.push(Slot::NotStarted(start));
        if self.is_paused {
            self.send(thread, ToThread::Input(Input::Pause { trigger_depth: 0 }));
        }
        if self.picks_starts {
            step.out.push(Effect::Begin { thread });
        } else {
            self.begin(thread);
        }
        thread
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

    fn ended_thread(&self, thread: ThreadNo) -> Option<&Ended> {
        match self.slots.get(thread as usize)? {
            Slot::Ended(ended) => Some(ended),
            Slot::NotStarted(_) | Slot::Live(_) => None,
        }
    }

    /// How a thread ended.
    pub(super) fn end_of(&self, thread: ThreadNo) -> Option<&ThreadEnd> {
        self.ended_thread(thread).map(|ended| &ended.end)
    }

    pub(super) fn artifacts(&self, thread: ThreadNo) -> Option<&Artifacts> {
        self.ended_thread(thread)?.artifacts.as_deref()
    }

    pub(super) fn status_of(&self, thread: ThreadNo) -> ThreadStatus {
        match self.slots.get(thread as usize) {
            Some(Slot::Ended(ended)) => ended.end.status,
            Some(Slot::Live(live)) if live.machine.status() == ThreadStatus::Paused => ThreadStatus::Paused,
            Some(Slot::Live(live)) if live.machine.status() == ThreadStatus::Created => ThreadStatus::Created,
            // Its last word has not been heard.
            Some(Slot::Live(_)) => ThreadStatus::Running,
            Some(Slot::NotStarted(_)) | None => ThreadStatus::Created,
        }
    }
}

/// Whether a node is left without waiting for anybody.
pub fn is_in_place(kind: &NodeKind) -> bool {
    match kind {
        NodeKind::Start
        | NodeKind::StartFromTrigger
        | NodeKind::End { .. }
        | NodeKind::Variable { .. }
        | NodeKind::Function { .. }
        | NodeKind::Route { .. }
        | NodeKind::Join(_)
        | NodeKind::Context(_)
        | NodeKind::LoopStart(_)
        | NodeKind::LoopEnd { .. }
        | NodeKind::ContinueFromTrigger(_) => true,
        NodeKind::Llm(_)
        | NodeKind::Script { .. }
        | NodeKind::Fork(_)
        | NodeKind::Subgraph { .. }
        | NodeKind::Map(_)
        | NodeKind::UserInteraction(_)
        | NodeKind::WaitTime(_)
        | NodeKind::WaitEvent { .. }
        | NodeKind::Tool { .. } => false,
    }
}
