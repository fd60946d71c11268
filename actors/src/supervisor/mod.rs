//! The supervisor actor, one a run: owns the run's tree of threads, joins them, cancels them, reports.
//!
//! Invariants:
//! 1. Every thread that was started ends exactly once here, by its own word or by its actor's exit.
//! 2. A thread that ends takes what it started with it, unless a JOIN detached it.
//! 3. The outcome is told once, when the main thread and everything attached to it have ended.

mod assign;
mod children;
mod firings;
mod forks;
mod losers;
mod lost;
mod message;
mod report;
mod signs;
mod table;
mod turns;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, ActorContext, Context, Handler};
use pirn_core::Millis;
use pirn_core::conversation::{Conversation, Spent};
use pirn_core::event::{EventMask, EventType, RaisedEvent};
use pirn_core::graph::{ForkIx, Graph};
use pirn_core::thread::{CancelReason, EffectId, FiringId, Input, Joined, Outcome, Output, ThreadKind};
use pirn_sync::{Permit, Setter};
use serde_json::Value;

use crate::engine::OnEnd;
use crate::events::BusMsg;
use crate::host::{Seat, TimerHandle};
use crate::run::{RunReport, RunShared};
use crate::thread::{Ended, ThreadMsg};
pub(crate) use assign::Assignment;
use firings::FiringRun;
use forks::ForkRun;
use losers::Losers;
pub use message::RunStatus;
pub(crate) use message::{Control, SupervisorMsg};
use table::Threads;
use turns::{Fresh, Place, Told};

/// A thread's place in its run; 0 is the main thread.
pub(crate) type ThreadNo = u32;

/// Names a fork instance of a run.
pub(crate) type ForkNo = u32;

/// How a thread came to be, for its end.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Main,
    Branch { fork: ForkNo, ix: ForkIx, path: u32 },
    Called { parent: ThreadNo, effect: EffectId },
    Triggered { firing: FiringId },
}

/// What a thread started and takes with it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Owned {
    Fork(ForkNo),
    Child { effect: EffectId, thread: ThreadNo },
    Firing(FiringId),
}

struct Child {
    kind: ThreadKind,
    graph: Arc<Graph>,
    place: Place,
    origin: Origin,
    owned: Vec<Owned>,
    depth: u32,
    trigger_depth: u32,
    /// Inside what a token event started: the token limit is not checked.
    is_unlimited: bool,
    is_detached: bool,
    /// It stands at a safe point until it is resumed.
    is_paused: bool,
    /// How much it was told and has not heard yet.
    told: Cell<u32>,
}

/// What a run is started with.
pub(crate) struct RunSpec {
    pub(crate) graph: Arc<Graph>,
    pub(crate) input: Arc<Value>,
    pub(crate) conversation: Conversation,
    pub(crate) is_unlimited: bool,
    pub(crate) trigger_depth: u32,
    pub(crate) outcome: Setter<Arc<RunReport>>,
    pub(crate) settled: Setter<()>,
    pub(crate) on_end: Option<OnEnd>,
    pub(crate) permit: Permit,
    pub(crate) seat: Option<Seat>,
}

pub(crate) struct SupervisorActor {
    run: Rc<RunShared>,
    /// Until the first step; in a box, so that a run that waits has no room for it.
    spec: Option<Box<RunSpec>>,
    graph: Arc<Graph>,
    started_at: Millis,
    threads: Threads,
    fresh: Fresh,
    told: Told,
    losers: Losers,
    forks: BTreeMap<ForkNo, ForkRun>,
    next_fork: ForkNo,
    firings: BTreeMap<FiringId, FiringRun>,
    live: usize,
    live_detached: usize,
    /// By the threads that have ended: also where nobody was left to take what they came to.
    spent: Spent,
    /// What was said in the main thread's conversation, where its actor panicked.
    said: Option<Box<Conversation>>,
    /// By graph: the token limit of the profile its first LLM node names.
    token_limits: Vec<(u64, Option<u64>)>,
    /// Of threads whose workflow limits their time.
    deadlines: BTreeMap<ThreadNo, TimerHandle>,
    outcome: Option<Setter<Arc<RunReport>>>,
    settled: Option<Setter<()>>,
    on_end: Option<OnEnd>,
    permit: Option<Permit>,
    seat: Option<Seat>,
    is_reporting: bool,
    /// The whole run is: what begins meanwhile is too.
    is_paused: bool,
    /// How often the triggers were heard out before the report.
    hearings: u32,
}

impl SupervisorActor {
    pub(crate) fn new(run: Rc<RunShared>, spec: RunSpec) -> Self {
        Self {
            graph: Arc::clone(&spec.graph),
            started_at: run.host.now(),
            threads: Threads::of(Arc::clone(&run.run_id)),
            run,
            spec: Some(Box::new(spec)),
            fresh: Fresh::default(),
            told: Told::default(),
            losers: Losers::default(),
            forks: BTreeMap::new(),
            next_fork: 0,
            firings: BTreeMap::new(),
            live: 0,
            live_detached: 0,
            spent: Spent::default(),
            said: None,
            token_limits: Vec::new(),
            deadlines: BTreeMap::new(),
            outcome: None,
            settled: None,
            on_end: None,
            permit: None,
            seat: None,
            is_reporting: false,
            is_paused: false,
            hearings: 0,
        }
    }

    fn begin(&mut self) {
        let Some(spec) = self.spec.take().map(|spec| *spec) else {
            return;
        };
        self.outcome = Some(spec.outcome);
        self.settled = Some(spec.settled);
        self.on_end = spec.on_end;
        self.permit = Some(spec.permit);
        self.seat = spec.seat;
        // What it was told already comes before the first turn; most runs were told nothing.
        let takes_turn = !self.run.engine.is_simulated && !self.run.supervisor.is_told();
        self.fresh.is_asked = takes_turn;
        self.start_main(spec.input, spec.conversation, spec.is_unlimited, spec.trigger_depth);
        if takes_turn {
            self.first_turns();
        }
    }

    fn cancel(&mut self, thread: ThreadNo, reason: CancelReason) {
        self.cancel_caused(thread, reason, 0);
    }

    /// Stops a thread for something that stands `trigger_depth` triggers away from the run's own steps: so does what
    /// the thread still says.
    fn cancel_caused(&mut self, thread: ThreadNo, reason: CancelReason, trigger_depth: u32) {
        self.tell_stopped(thread);
        if let Some(child) = self.threads.get_mut(thread) {
            child.trigger_depth = child.trigger_depth.max(trigger_depth);
        }
        self.tell(thread, ThreadMsg::Input(Input::Cancel { reason, trigger_depth }));
    }

    fn depth_of(&self, thread: ThreadNo) -> u32 {
        self.threads.get(thread).map_or(0, |child| child.trigger_depth)
    }

    fn emit(&self, thread: ThreadNo, event_type: EventType, fields: impl FnOnce() -> Vec<(&'static str, Value)>) {
        self.emit_caused(thread, 0, event_type, fields);
    }

    /// As [`Self::emit`], for what a trigger brought about.
    fn emit_caused(
        &self,
        thread: ThreadNo,
        trigger_depth: u32,
        event_type: EventType,
        fields: impl FnOnce() -> Vec<(&'static str, Value)>,
    ) {
        if !self.run.listens(event_type) {
            return;
        }
        let Some(child) = self.threads.get(thread) else { return };
        let event = RaisedEvent::of(event_type, fields()).at_depth(child.trigger_depth.max(trigger_depth));
        self.run.emit(&child.graph.workflow_id, &self.threads.id(thread), event);
        self.tell_raised(thread, EventMask::of(event_type));
    }

    /// Events were raised from outside, in the main thread's name.
    fn raised(&self, events: Vec<RaisedEvent>) {
        let Some(main) = self.threads.get(0) else { return };
        let types = events.iter().fold(EventMask::NONE, |types, event| {
            types.union(EventMask::of(event.event_type))
        });
        self.run
            .emit_all(types, &main.graph.workflow_id, &self.threads.id(0), events);
        self.tell_raised(0, types);
    }

    /// Events were raised in a thread's name: where one may hold the thread, that asks at its next safe point.
    fn tell_raised(&self, thread: ThreadNo, types: EventMask) {
        if self.run.engine.interest.holding().intersects(types) {
            self.tell(thread, ThreadMsg::Input(Input::Raised));
        }
    }

    /// A thread has ended, by its own word.
    fn ended(&mut self, thread: ThreadNo, mut ended: Ended) {
        if ended.left.is_some() && !self.takes_over(thread) {
            ended.left = None;
        }
        let Some(child) = self.threads.get_mut(thread).filter(|child| !child.has_ended()) else {
            return;
        };
        self.spent.add(ended.spent);
        child.place = Place::Ended(ended);
        self.deadlines.remove(&thread);
        let (origin, owned, is_detached) = (child.origin, std::mem::take(&mut child.owned), child.is_detached);
        self.live -= 1;
        if is_detached {
            self.live_detached -= 1;
        }
        let trigger_depth = self.depth_of(thread);
        for owned in owned {
            self.give_up(owned, trigger_depth);
        }
        match origin {
            Origin::Main => {}
            Origin::Branch { fork, path, .. } => self.branch_ended(fork, path as usize, thread),
            Origin::Called { parent, effect } => self.called_ended(parent, effect, thread),
            Origin::Triggered { firing } => self.triggered_ended(firing, thread),
        }
        self.look_for_the_end();
    }

    /// Whether what this thread leaves behind may be taken over, should it end now.
    fn takes_over(&self, thread: ThreadNo) -> bool {
        match self.threads.get(thread).map(|child| child.origin) {
            Some(Origin::Main | Origin::Triggered { .. }) => true,
            Some(Origin::Branch { fork, path, .. }) => {
                let run = self.forks.get(&fork);
                run.is_some_and(|run| run.machine.may_take_over(path as usize))
            }
            Some(Origin::Called { .. }) | None => false,
        }
    }

    /// What a thread started ends with it.
    fn give_up(&mut self, owned: Owned, trigger_depth: u32) {
        match owned {
            Owned::Fork(fork) => self.cancel_fork(fork),
            Owned::Child { thread, .. } => self.cancel_caused(thread, CancelReason::ParentEnded, trigger_depth),
            Owned::Firing(firing) => self.give_up_firing(firing),
        }
    }

    fn drop_effect(&mut self, thread: ThreadNo, effect: EffectId) {
        let Some(child) = self.threads.get(thread) else { return };
        let wanted = child.owned.iter().copied().find(|owned| match owned {
            Owned::Fork(fork) => self.forks.get(fork).is_some_and(|run| run.effect == effect),
            Owned::Child { effect: own, .. } => *own == effect,
            Owned::Firing(_) => false,
        });
        if let Some(owned) = wanted {
            if let Some(child) = self.threads.get_mut(thread) {
                child.owned.retain(|other| *other != owned);
            }
            self.give_up(owned, self.depth_of(thread));
        }
    }

    fn disown(&mut self, thread: ThreadNo, owned: Owned) {
        if let Some(child) = self.threads.get_mut(thread) {
            child.owned.retain(|other| *other != owned);
        }
    }

    fn control(&mut self, control: &Control) {
        match control {
            Control::Cancel(reason) => self.cancel(0, CancelReason::Requested { reason: reason.clone() }),
            Control::Shutdown => self.cancel_all(),
            Control::Pause => {
                self.is_paused = true;
                self.tell_all(&Input::Pause { trigger_depth: 0 });
            }
            Control::Resume => {
                self.is_paused = false;
                self.tell_all(&Input::Resume { trigger_depth: 0 });
            }
        }
    }

    fn cancel_all(&self) {
        self.tell_all(&Input::Cancel {
            reason: CancelReason::Shutdown,
            trigger_depth: 0,
        });
    }

    fn tell_all(&self, input: &Input) {
        for thread in 0..self.threads.len() {
            self.tell(thread as ThreadNo, ThreadMsg::Input(input.clone()));
        }
    }

    /// A trigger does something to a thread.
    fn control_thread(&mut self, thread: ThreadNo, control: Control, trigger_depth: u32) {
        let input = match control {
            Control::Cancel(reason) => {
                return self.cancel_caused(thread, CancelReason::Requested { reason }, trigger_depth);
            }
            Control::Shutdown => return self.cancel_caused(thread, CancelReason::Shutdown, trigger_depth),
            Control::Pause => Input::Pause { trigger_depth },
            Control::Resume => Input::Resume { trigger_depth },
        };
        self.tell(thread, ThreadMsg::Input(input));
    }

    fn answer_thread(&mut self, thread: ThreadNo, effect: EffectId, outcome: Outcome) {
        self.tell(thread, ThreadMsg::Answer { effect, outcome });
    }
}

/// What a join hands to its parent, apart from the conversation.
fn joined(output: Output, variables: BTreeMap<String, Value>) -> Outcome {
    Outcome::Joined(Joined {
        output,
        variables: variables
            .into_iter()
            .map(|(name, value)| (name.into(), Arc::new(value)))
            .collect(),
    })
}

impl Actor for SupervisorActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        self.begin();
        self.end_turn(context);
    }
}

impl Handler<SupervisorMsg> for SupervisorActor {
    type Result = ();

    fn handle(&mut self, message: SupervisorMsg, context: &mut Context<Self>) {
        match message {
            SupervisorMsg::Fork {
                thread,
                effect,
                fork,
                state,
            } => self.fork(thread, effect, fork, state),
            SupervisorMsg::Child {
                thread,
                effect,
                node,
                input,
                conversation,
            } => self.child(thread, effect, node, input, conversation),
            SupervisorMsg::FirstTurns => self.first_turns(),
            SupervisorMsg::FirstTurn(thread) => self.first_turn(thread),
            SupervisorMsg::LastTurns => self.last_turns(),
            SupervisorMsg::Turns => self.told.is_asked.set(false),
            SupervisorMsg::Turn(thread) => self.turn_of(thread),
            SupervisorMsg::Tell { thread, message } => self.tell(thread, *message),
            SupervisorMsg::Stands { thread, is_paused } => {
                if let Some(child) = self.threads.get_mut(thread) {
                    child.is_paused = is_paused;
                }
            }
            SupervisorMsg::Drop { thread, effect } => self.drop_effect(thread, effect),
            SupervisorMsg::Ended { thread, ended } => self.ended(thread, *ended),
            SupervisorMsg::Exited { thread, exit, known } => self.exited(thread, &exit, known),
            SupervisorMsg::Deadline { fork, generation } => self.deadline(fork, generation),
            SupervisorMsg::ThreadDeadline { thread, after_ms } => {
                self.cancel(thread, CancelReason::TimedOut { after_ms });
            }
            SupervisorMsg::Control(control) => self.control(&control),
            SupervisorMsg::ControlThread {
                thread_id,
                control,
                trigger_depth,
                unknown,
            } => match self.threads.number_of(&thread_id) {
                Some(thread) => self.control_thread(thread, control, trigger_depth),
                None => unknown(),
            },
            SupervisorMsg::Assign { scope, assignment } => self.assign(scope, assignment),
            SupervisorMsg::Pin(section, value) => {
                if let Err(error) = crate::thread::pin(&mut self.run.pinned.borrow_mut(), section, &value) {
                    tracing::warn!(%error, "a pinned section was refused");
                }
            }
            SupervisorMsg::Raise(batch) => self.raised(batch.take()),
            SupervisorMsg::Status(answer) => answer(self.status()),
            SupervisorMsg::Fire(firing) => self.fire(*firing),
            SupervisorMsg::FireAlone { firing, taken } => {
                taken.give(());
                self.fire_alone(*firing);
            }
            SupervisorMsg::Described { firing, described } => self.described(firing, described),
            SupervisorMsg::FiringDeadline { firing } => self.firing_deadline(firing),
            SupervisorMsg::Returned { firing, conversation } => match *conversation {
                Ok(conversation) => self.returned(firing, &conversation),
                Err(error) => self.firing_failed(firing, &error),
            },
            SupervisorMsg::ConversationLost { thread, message, known } => {
                self.conversation_lost(thread, &message, known);
            }
            SupervisorMsg::Compressed { firing, output } => self.compressed(firing, output),
            SupervisorMsg::Applied { firing, error } => {
                self.run.unheard.set(self.run.unheard.get().saturating_sub(1));
                self.applied(firing, error);
            }
            SupervisorMsg::HeardOut => self.hear_triggers_out(),
            SupervisorMsg::Reported(conversation) => self.report(*conversation),
        }
        self.end_turn(context);
    }
}

impl SupervisorActor {
    /// Gives turns to those that were told something, and ends where nothing is left.
    fn end_turn(&mut self, context: &mut Context<Self>) {
        self.turns();
        if self.outcome.is_none() && self.spec.is_none() && self.live == 0 && !self.is_reporting {
            self.run.engine.forget_run(&self.run.run_id);
            if self.run.may_be_on_bus() {
                self.run.bus().do_send(BusMsg::RunEnded {
                    run_id: Arc::clone(&self.run.run_id),
                });
            }
            self.permit = None;
            if let Some(settled) = self.settled.take() {
                settled.set(());
            }
            context.stop();
        }
    }
}
