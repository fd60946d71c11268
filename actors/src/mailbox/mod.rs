//! The message loop of a run.
//!
//! 1. The actors of a run (its supervisor, threads and conversations) live on one arbiter and share the queue of one
//!    [`RunMachine`]. Messages are delivered in FIFO order.
//! 2. External messages enter through the run's one address ([`SupervisorMsg`]); the run's own timers enter through
//!    [`LocalInbox::deliver`]. Both append to the queue and then serve it.
//! 3. One message is handled at a time, inside a catch. A panic ends only the actor that panicked; the supervisor receives the
//!    results that the actor had collected. A panic of the supervisor ends the run.
//! 4. The external inputs of a durable run are journaled. Effects that follow from an input are held back until its journal
//!    record is durable. In other runs effects are executed at once.
//! 5. After [`AT_ONCE`] messages the run yields to the other tasks of the arbiter. Messages that arrived in between are handled
//!    in the next turn.
//! 6. While the backlog of the event bus is long, a run neither starts nor has a turn ([`Backlog`](crate::backlog::Backlog)).
//! 7. The machine of a durable run that waits for long is dropped from memory ([`ParkedRun`]) and rebuilt on the next input.
//!
//! Virtual time and the explorer use this code unchanged. Such a host chooses when a timer fires, when work ends and which thread
//! starts next.
//!
//! Not here: state that the actors of a run share, which is in `run`, and the actors themselves.

mod parked;
mod pending_durability;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use actix::{Actor, ActorContext, Context, Handler};
use pirn_core::run::{
    AnswerRefused, Control, Effect, FiringRecord, Message, MessageRefused, Panic, Panicked, RunMachine, RunStart,
    ThreadNo, ToConversation, ToSupervisor,
};
use pirn_core::thread::{EffectId, FiringId};
use pirn_definition::Millis;
use pirn_definition::error::RunError;

use self::parked::{ParkedRun, shut_down};
use self::pending_durability::PendingDurability;
use crate::acknowledgements::Acknowledge;
use crate::contain::{Exit, contained};
use crate::conversation::ConversationActor;
use crate::protocol::bus::BusMsg;
use crate::protocol::engine::StartedRunLeft;
use crate::protocol::mailbox::PutOff;
use crate::protocol::supervisor::{InteractionAnswer, SaidMessage, SupervisorMsg};
use crate::run::environment::ActorEnvironment;
use crate::run::rebuilt_run::{RebuiltRun, Resumed};
use crate::run::run_context::RunContext;
use crate::run::turn::{LocalInbox, Turn};
use crate::supervisor::{Beginning, NewRun, RunSpec, SupervisorActor, limit_triggers};
use crate::thread::ThreadActor;

/// Maximum number of messages that one turn handles before the run yields to the other tasks of the arbiter.
const AT_ONCE: usize = 128;

/// Minimum time without input before a run is parked, in milliseconds.
const SHORTEST_QUIET: Millis = 1;

/// Queue, actors and machine of one run; see the module.
pub(crate) struct LocalMailbox {
    run: Rc<RunContext>,
    actors: RefCell<ActorsState>,
    own: Weak<Self>,
    /// The mailbox itself, as the inbox that its actors hold.
    inbox: Weak<dyn LocalInbox>,
    /// A later turn is already scheduled. Prevents a second one.
    is_put_off: Cell<bool>,
    /// An urgent turn is scheduled.
    is_urgent: Cell<bool>,
}

/// A run's actors, with the machine in memory or parked.
enum ActorsState {
    Here(Box<Actors>),
    Parked(Box<ParkedRun>),
}

impl ActorsState {
    fn is_over(&self) -> bool {
        match self {
            Self::Here(actors) => actors.supervisor.is_over(),
            Self::Parked(parked) => parked.supervisor.is_over(),
        }
    }
}

/// The actors of a run.
struct Actors {
    machine: RunMachine,
    supervisor: SupervisorActor,
    conversations: ConversationActor,
    /// Threads with work in progress, indexed by thread number.
    threads: Vec<Option<Box<ThreadActor>>>,
    /// Effects of the last step, not yet executed.
    effects: Vec<Effect>,
    /// Effects and callers that wait for the journal. None for a run without a durable journal.
    pending_durability: Option<Box<PendingDurability>>,
    /// The queue may be served. False until the messages that were sent before the first turn are in the queue.
    has_begun: bool,
    /// The queue contains a cancellation or the end of a time limit.
    is_controlled: bool,
}

/// The handler of a message.
#[derive(Clone, Copy)]
enum MessageTarget {
    Supervisor,
    Thread(ThreadNo),
    /// Owner of the conversation, and the thread and effect that await the answer.
    Conversation(ThreadNo, Option<(ThreadNo, EffectId)>),
}

impl MessageTarget {
    fn thread(self) -> Option<ThreadNo> {
        match self {
            Self::Supervisor => None,
            Self::Thread(thread) | Self::Conversation(thread, _) => Some(thread),
        }
    }

    /// Returns the actor that executes an effect.
    fn of_effect(effect: &Effect) -> Self {
        match effect {
            Effect::Thread { thread, .. } | Effect::AwaitTriggers { thread, .. } | Effect::Drop { thread, .. } => {
                Self::Thread(*thread)
            }
            // The thread has ended, so only the supervisor remains; every other effect is the supervisor's own.
            _ => Self::Supervisor,
        }
    }

    fn of(message: &Message) -> Self {
        match message {
            Message::Supervisor(_) => Self::Supervisor,
            Message::Thread(thread, _) => Self::Thread(*thread),
            Message::Conversation(owner, ToConversation::Serve { thread, effect, .. }) => {
                Self::Conversation(*owner, Some((*thread, *effect)))
            }
            Message::Conversation(owner, _) => Self::Conversation(*owner, None),
        }
    }
}

/// The result of serving the queue.
enum ServeResult {
    /// The queue is empty.
    All,
    /// The limit of one turn was reached; messages remain.
    Some,
    /// The supervisor panicked: the run is lost.
    Lost(String),
}

impl LocalMailbox {
    fn new(run: Rc<RunContext>, mut spec: RunSpec) -> Rc<Self> {
        // Subscribers are added before the first step, so that they receive every event.
        for subscription in std::mem::take(&mut spec.subscriptions) {
            run.subscribe(subscription.mask(), subscription.after, subscription.deliver);
        }
        let (supervisor, beginning) = SupervisorActor::new(spec);
        // Timers of the first step hold this weak reference. A host fires none inside `set_timer`, so it is valid by then.
        Rc::new_cyclic(|own: &Weak<Self>| {
            let inbox: Weak<dyn LocalInbox> = own.clone();
            let actors = match beginning {
                Beginning::New(new) => Actors::begin(*new, supervisor, &run, &inbox),
                Beginning::Resumed(resumed) => Actors::resume(*resumed, supervisor, &run, &inbox),
            };
            Self {
                run,
                inbox,
                actors: RefCell::new(ActorsState::Here(Box::new(actors))),
                own: Weak::clone(own),
                is_put_off: Cell::new(false),
                is_urgent: Cell::new(false),
            }
        })
    }

    /// Serves the queue. Returns the panic message if the supervisor panicked.
    fn serve(&self) -> Option<String> {
        let standing = &mut *self.actors.borrow_mut();
        // The queue of a parked run is empty: its messages wait in `ParkedRun`.
        let ActorsState::Here(actors) = standing else {
            return None;
        };
        let put_off = || (!self.is_put_off.replace(true)).then(|| -> Weak<dyn PutOff> { self.own.clone() });
        if actors.is_held_up() && self.run.has_turn_later(put_off) {
            return None;
        }
        match actors.serve(&self.run, &self.inbox) {
            ServeResult::All => {
                // The queue is empty, so the control message was handled.
                actors.is_controlled = false;
                if self.run.is_to_leave(|| actors.supervisor.is_behind_stored()) {
                    self.leave(actors);
                } else {
                    self.schedule_parking(actors);
                }
                None
            }
            ServeResult::Some => {
                if actors.is_controlled {
                    self.put_off_once(&self.is_urgent, Self::has_urgent_turn);
                } else {
                    self.put_off();
                }
                None
            }
            ServeResult::Lost(message) => Some(message),
        }
    }

    /// Schedules another turn of the run, unless one is scheduled already.
    fn put_off(&self) {
        self.put_off_once(&self.is_put_off, PutOff::has_turn);
    }

    /// Schedules `turn`, unless `is_scheduled` says that it is scheduled already.
    fn put_off_once(&self, is_scheduled: &Cell<bool>, turn: fn(&Self)) {
        if is_scheduled.replace(true) {
            return;
        }
        let own = Weak::clone(&self.own);
        self.run.host.spawn(
            None,
            Box::pin(async move {
                // The run may have ended before its turn.
                if let Some(own) = own.upgrade() {
                    turn(&own);
                }
            }),
        );
    }

    /// A turn that does not wait for the backlog. The run may be in the queue of the backlog too, and stays there.
    fn has_urgent_turn(&self) {
        self.is_urgent.set(false);
        self.turn();
    }

    fn turn(&self) {
        if let Some(lost) = self.serve() {
            // This turn may be a task of its own; only the actor's handler can report the panic and stop the actor.
            self.run.supervisor.do_send(SupervisorMsg::Lost(lost));
        } else if self.actors.borrow().is_over() {
            self.run.supervisor.do_send(SupervisorMsg::Over);
        }
    }

    /// Ends the run in this process if all of its inputs are durable; otherwise requests a journal write and tries again in a
    /// later turn.
    fn leave(&self, actors: &mut Actors) {
        // Only durable runs leave.
        let Some(pending_durability) = &actors.pending_durability else {
            return;
        };
        if pending_durability.is_kept(self.run.recorded()) {
            actors.stop(shut_down(), &self.run);
        } else if !pending_durability.is_awaited() {
            // A caller that waits makes the next turn request a write. Its result starts the turn after that.
            actors.acknowledge(&self.run, Box::new(|_| ()));
            self.put_off();
        }
    }

    /// Sets a timer that parks the run after its quiet period, if the run only waits.
    fn schedule_parking(&self, actors: &mut Actors) {
        let Some(pending_durability) = &mut actors.pending_durability else {
            return;
        };
        // The timer that is set checks the quiet period when it fires.
        if pending_durability.parking.is_some() {
            return;
        }
        let Some(after) = self.run.parks_in() else { return };
        let own = Weak::clone(&self.own);
        let park = move || {
            if let Some(own) = own.upgrade() {
                own.park();
            }
        };
        pending_durability.parking = self.run.host.when_quiet(after.max(SHORTEST_QUIET), park);
    }

    /// Drops the machine from memory if the quiet period is over; otherwise sets the timer again.
    fn park(&self) {
        let standing = &mut *self.actors.borrow_mut();
        let ActorsState::Here(actors) = standing else { return };
        let Some(pending_durability) = &mut actors.pending_durability else {
            return;
        };
        pending_durability.parking = None;
        if self.run.parks_in() != Some(0) || !actors.machine.is_idle() {
            return self.schedule_parking(actors);
        }
        if !pending_durability.is_kept(self.run.recorded()) {
            // No effect waited for these inputs, so they were not written yet. Parking is tried again once they are durable.
            actors.acknowledge(&self.run, Box::new(|_| ()));
            self.put_off();
            return;
        }
        let (supervisor, threads) = (
            std::mem::take(&mut actors.supervisor),
            std::mem::take(&mut actors.threads),
        );
        *standing = ActorsState::Parked(Box::new(ParkedRun::new(supervisor, threads)));
    }

    /// Handles an external message. Returns the messages that were held back while the machine was parked; the caller delivers
    /// them next.
    fn receive(&self, message: SupervisorMsg) -> Vec<SupervisorMsg> {
        let standing = &mut *self.actors.borrow_mut();
        match (&mut *standing, message) {
            (ActorsState::Here(actors), message) => actors.receive(message, &self.run, &self.inbox),
            (ActorsState::Parked(parked), SupervisorMsg::Woken(Ok(machine))) => {
                let waiting = parked.take_waiting();
                *standing = ActorsState::Here(Box::new(Actors::woken(*machine, parked, &self.run)));
                return waiting;
            }
            (ActorsState::Parked(parked), SupervisorMsg::Woken(Err(error))) => parked.stop(error, &self.run),
            (ActorsState::Parked(parked), message) => parked.receive(message, &self.run),
        }
        Vec::new()
    }
}

/// Refuses messages to a run that has ended in this process, which notifies their callers.
fn refuse(messages: Vec<SupervisorMsg>) {
    for message in messages {
        message.refuse(None);
    }
}

impl PutOff for LocalMailbox {
    fn has_turn(&self) {
        self.is_put_off.set(false);
        self.turn();
    }
}

impl LocalInbox for LocalMailbox {
    fn deliver(&self, message: Message) {
        let mut standing = self.actors.try_borrow_mut();
        let Ok(ActorsState::Here(actors)) = standing.as_deref_mut() else {
            // Called from a destructor in the middle of a turn, or while the machine is parked. The address keeps the message in
            // order.
            return self.run.supervisor.do_send(SupervisorMsg::Tell(message));
        };
        actors.is_controlled |= matches!(message, Message::Supervisor(ToSupervisor::Elapsed(_)));
        self.run.deliver(&mut actors.machine, message);
        // `turn` borrows the actors again.
        drop(standing);
        self.turn();
    }
}

impl Actors {
    fn of(machine: RunMachine, supervisor: SupervisorActor, effects: Vec<Effect>, is_durable: bool) -> Self {
        Self {
            machine,
            supervisor,
            conversations: ConversationActor,
            threads: Vec::new(),
            effects,
            pending_durability: is_durable.then(Box::default),
            has_begun: false,
            is_controlled: false,
        }
    }

    /// Restores the actors around a machine that was rebuilt after parking.
    fn woken(machine: RunMachine, parked: &mut ParkedRun, run: &RunContext) -> Self {
        Self {
            threads: std::mem::take(&mut parked.threads),
            pending_durability: Some(Box::new(PendingDurability::after(run.recorded()))),
            has_begun: true,
            // `false`, because `pending_durability` is set above: it continues after the steps that are durable.
            ..Self::of(machine, std::mem::take(&mut parked.supervisor), Vec::new(), false)
        }
    }

    fn begin(new: NewRun, supervisor: SupervisorActor, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) -> Self {
        // Before `listening`, which includes the types that the run's triggers watch.
        run.keep_triggers(None);
        let now = run.now();
        let begun = RunStart {
            at: now,
            listening: run.listening(),
            uncarried: false,
            seed: new.seed(&run.run_id, run.supervisor.metadata(), &run.host, run.ports().run_bytes),
            settings: Vec::new(),
        };
        run.supervisor.begin_at(now);
        // The limits must be set before the first event.
        limit_triggers(&begun.seed.graph, run);
        // The journal is opened first, because the machine's effects are reported to it.
        run.begun(&begun);
        // Requested before the first script, so that a run that is interrupted earlier has the seed too.
        run.script_seed();
        let mut effects = Vec::new();
        let machine = RunMachine::new(begun.at, begun.seed, &mut ActorEnvironment::of(run), &mut effects);
        let mut actors = Self::of(machine, supervisor, effects, run.is_durable());
        if let Some(pending_durability) = &mut actors.pending_durability {
            pending_durability.is_unwritten = true;
        }
        actors.perform(now, run, inbox);
        actors
    }

    /// Resumes a run of an earlier process. Effects without an outcome are executed again, unless one of the first messages says
    /// otherwise.
    fn resume(
        resumed: Resumed,
        supervisor: SupervisorActor,
        run: &Rc<RunContext>,
        inbox: &Weak<dyn LocalInbox>,
    ) -> Self {
        let Resumed {
            mut rebuilt,
            inputs,
            journal,
        } = resumed;
        let (again, mut first) = rebuilt.events_again();
        let RebuiltRun {
            mut machine,
            settings,
            open,
            answered,
            steps,
            at,
            ..
        } = rebuilt;
        // The clock and the journal continue first, because inputs are recorded below.
        run.goes_on((steps, at), settings, journal);
        // Answers to missed events come first: those events are older than the new messages.
        first.extend(inputs);
        if first.is_empty() && run.has_unrecorded(&mut machine) {
            // Inputs that arrived while the run had no owner are executed with this process's configuration. The configuration is
            // recorded first.
            first.push(Message::Supervisor(ToSupervisor::Recovered(Vec::new())));
        }
        // Limits must be set before the bus counts the earlier firings.
        if let Some((_, workflow)) = machine.origin(0) {
            limit_triggers(workflow, run);
        }
        run.keep_triggers(None);
        // The names are registered before the earlier events are sent, because the bus retains only events with registered names.
        run.keep_events();
        run.bus().do_send(BusMsg::Resumed(Box::new(again)));
        // Effects are held back until the first record is durable. The write fails if another process has resumed the run.
        let mut actors = Self::of(machine, supervisor, Vec::new(), true);
        // Sessions are restored before open effects call the models again.
        for (thread, requests) in answered {
            let actor = thread_actor(&mut actors.threads, thread);
            for asked in requests {
                actor.model_answered(&asked, run);
            }
        }
        for message in first {
            run.deliver(&mut actors.machine, message);
        }
        let now = run.now();
        actors.effects = open.effects(now);
        actors.perform(now, run, inbox);
        actors
    }

    /// True if the backlog of the event bus delays the next turn. A run that must end has its turn at once: its triggers fill
    /// the bus on their own, and only the end of the run stops them.
    fn is_held_up(&self) -> bool {
        !self.machine.is_idle() && !self.is_controlled
    }

    fn serve(&mut self, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) -> ServeResult {
        let is_leaving = self
            .pending_durability
            .as_ref()
            .is_some_and(|pending_durability| pending_durability.is_leaving());
        // A run that leaves takes no more steps, because they would not become durable in this process.
        if !self.has_begun || is_leaving || self.supervisor.is_over() {
            return ServeResult::All;
        }
        run.step_buffers.borrow_mut().lend(&mut self.machine, &mut self.effects);
        let served = self.serve_queue(run, inbox);
        // Buffers that a panicking supervisor used are not returned: their contents are unknown.
        if !matches!(served, ServeResult::Lost(_)) {
            run.step_buffers
                .borrow_mut()
                .take_back(&mut self.machine, &mut self.effects);
        }
        served
    }

    fn serve_queue(&mut self, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) -> ServeResult {
        // One time for all steps of the turn: a replay reads it from the record of the input.
        let mut now = run.step_time();
        for _ in 0..AT_ONCE {
            let Some(message) = self.machine.next_message() else {
                // Write only when the queue is empty, so that one write covers all inputs of the turn.
                if let Err(lost) = self.keep(now, run, inbox) {
                    return ServeResult::Lost(lost);
                }
                if self.machine.is_idle() || self.supervisor.is_over() {
                    return ServeResult::All;
                }
                // An effect that was released by the journal may have added messages to the queue.
                now = run.step_time();
                continue;
            };
            let addressee = MessageTarget::of(&message);
            let _span = run
                .spans
                .as_ref()
                .map(|spans| spans.enter(addressee.thread(), &self.machine));
            if let Err(exit) = contained(|| self.handle(message, now, run, inbox))
                && let Some(lost) = self.panicked(addressee, &exit, now, run, inbox)
            {
                return ServeResult::Lost(lost);
            }
        }
        ServeResult::Some
    }

    /// Requests a journal write if an effect or a caller waits for it.
    fn keep(&mut self, now: Millis, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) -> Result<(), String> {
        // Repeated, because an effect that panics adds an input, which must be written too.
        loop {
            let step = run.recorded();
            if !self
                .pending_durability
                .as_mut()
                .is_some_and(|pending_durability| pending_durability.asks(step))
            {
                return Ok(());
            }
            match run.keep(&mut self.machine) {
                Some(result) => self.kept(step, result, now, run, inbox)?,
                None => return Ok(()),
            }
        }
    }

    /// Ends the run in this process: cancels its work and discards the effects that wait for the journal.
    fn stop(&mut self, error: RunError, run: &Rc<RunContext>) {
        let later = self
            .pending_durability
            .as_mut()
            .map_or_else(Vec::new, |pending_durability| {
                pending_durability.lost(&error);
                pending_durability.take_later()
            });
        self.threads.clear();
        self.supervisor.stop(error, run);
        refuse(later);
    }

    /// Ends the run in this process for a shutdown. Waits for a commit in flight: the commit may end the run, and another process
    /// must not read the store before the outcome is known. Returns the panic message if the supervisor panicked.
    fn shut_down(&mut self, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) -> Result<(), String> {
        let is_over = self.supervisor.is_over();
        let Some(pending_durability) = self.pending_durability.as_mut().filter(|_| !is_over) else {
            self.stop(shut_down(), run);
            return Ok(());
        };
        let is_unwritten = pending_durability.is_unwritten;
        if !pending_durability.leave() {
            self.stop(shut_down(), run);
        } else if is_unwritten {
            // No process could resume a run without a stored start, and a run that has started it would count it as failed.
            self.acknowledge(run, Box::new(|_| ()));
            return self.keep(run.now(), run, inbox);
        }
        Ok(())
    }

    /// Executes the effects that waited for the journal up to `step`. Returns the panic message if the supervisor panicked.
    fn kept(
        &mut self,
        step: u64,
        result: Result<(), RunError>,
        now: Millis,
        run: &Rc<RunContext>,
        inbox: &Weak<dyn LocalInbox>,
    ) -> Result<(), String> {
        // A step that is not durable must not have effects.
        if let Err(error) = result {
            self.stop(error, run);
            return Ok(());
        }
        if let Some(pending_durability) = &mut self.pending_durability {
            pending_durability.kept(step);
            if pending_durability.is_left() {
                self.stop(shut_down(), run);
                return Ok(());
            }
            // Another commit is in flight. Until its outcome is known, the effects of this one are not executed here.
            if pending_durability.is_leaving() && !pending_durability.settles() {
                return Ok(());
            }
        }
        while let Some((at, effect)) = self
            .pending_durability
            .as_mut()
            .and_then(|pending_durability| pending_durability.release(now))
        {
            let target = MessageTarget::of_effect(&effect);
            // Effects call code of the embedding program. A panic there ends the thread of the effect, as it does without a store.
            if let Err(exit) = contained(|| self.perform_effect(effect, (at, now), run, inbox))
                && let Some(lost) = self.panicked(target, &exit, now, run, inbox)
            {
                return Err(lost);
            }
        }
        // The released effects may include the end of the run.
        if self.supervisor.is_over() {
            let later = self
                .pending_durability
                .as_mut()
                .map_or_else(Vec::new, |pending_durability| pending_durability.take_later());
            refuse(later);
        }
        Ok(())
    }

    /// Handles an external message.
    fn receive(&mut self, message: SupervisorMsg, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) {
        let heard = match &mut self.pending_durability {
            Some(pending_durability) => pending_durability.hold_back(message),
            None => Some(message),
        };
        let Some(message) = heard else { return };
        match message {
            SupervisorMsg::Begin => self.has_begun = true,
            // The turn after each message stops the actor.
            SupervisorMsg::Over => {}
            SupervisorMsg::Subscribe { .. }
            | SupervisorMsg::Kept { .. }
            | SupervisorMsg::AnswerInteraction(_)
            | SupervisorMsg::Say(_)
            | SupervisorMsg::AwaitKept(_)
                if self.supervisor.is_over() =>
            {
                message.refuse(None);
            }
            SupervisorMsg::AnswerInteraction(answer) => self.answer(*answer, run),
            SupervisorMsg::Say(said) => self.say(*said, run),
            SupervisorMsg::AwaitKept(kept) => self.acknowledge(run, kept),
            SupervisorMsg::Subscribe { mask, deliver } => run.subscribe(mask, 0, deliver),
            // Unwinds in the actor's handler, where the panic is contained and reported.
            SupervisorMsg::Lost(message) => std::panic::resume_unwind(Box::new(message)),
            SupervisorMsg::Control(Control::Shutdown) if run.is_durable() => {
                if let Err(lost) = self.shut_down(run, inbox) {
                    std::panic::resume_unwind(Box::new(lost));
                }
            }
            SupervisorMsg::Closing => run.close(),
            SupervisorMsg::KeepTriggers(workflow) => run.keep_triggers(Some(&workflow)),
            SupervisorMsg::StartedRunLeft { firing, error } => self.started_run_left(firing, error, run),
            SupervisorMsg::Kept { step, result } => {
                if let Err(lost) = self.kept(step, result, run.now(), run, inbox) {
                    std::panic::resume_unwind(Box::new(lost));
                }
            }
            SupervisorMsg::Triggered {
                sequence,
                trigger,
                then,
            } => {
                let does = then.and_then(|then| then.for_machine(&self.machine));
                let fired = ToSupervisor::Fired(Box::new(FiringRecord::new(sequence, trigger, does)));
                run.deliver(&mut self.machine, Message::Supervisor(fired));
            }
            message => {
                self.is_controlled |= matches!(message, SupervisorMsg::Control(_));
                if let Some(message) = message.for_machine(&self.machine) {
                    run.deliver(&mut self.machine, message);
                }
            }
        }
    }

    /// Handles that a run which this run started has left its engine without an outcome.
    fn started_run_left(&mut self, firing: FiringId, error: RunError, run: &RunContext) {
        if !run.is_durable() {
            return run.deliver(&mut self.machine, Message::started_run_ended(firing, Err(error)));
        }
        // No input: it would be a failure for ever, and the started run may still complete.
        run.started_run_left(firing);
        // At a shutdown, this run leaves too, and is resumed together with that one.
        if !run.engine().is_closed() {
            let starter = Arc::clone(&run.run_id);
            run.engine().follow_started(StartedRunLeft { starter, firing, error });
        }
    }

    /// Answers a question in the name of a person. The caller is notified once the answer is durable.
    fn answer(&mut self, answer: InteractionAnswer, run: &Rc<RunContext>) {
        // `check` has reported a refusal to the caller.
        let Some((message, taken)) = answer.check(&self.machine, run.ports().fits, run.host.wall_clock()) else {
            return;
        };
        run.deliver(&mut self.machine, message);
        self.acknowledge(
            run,
            Box::new(|kept| taken(kept.map_err(|error| AnswerRefused::not_kept(&error)))),
        );
    }

    /// Receives a person's message. The caller is notified once the message is durable.
    fn say(&mut self, said: SaidMessage, run: &Rc<RunContext>) {
        // `check` has reported a refusal to the caller.
        let Some((message, taken)) = said.check(&self.machine) else {
            return;
        };
        // A repeated message changes nothing, but the first one may not be durable yet.
        if let Some(message) = message {
            run.deliver(&mut self.machine, message);
        }
        self.acknowledge(
            run,
            Box::new(|kept| taken(kept.map_err(|error| MessageRefused::not_kept(&error)))),
        );
    }

    /// Calls `acknowledge` once all inputs so far are durable.
    fn acknowledge(&mut self, run: &Rc<RunContext>, acknowledge: Acknowledge) {
        match &mut self.pending_durability {
            Some(pending_durability) => pending_durability.acknowledge(run.recorded(), acknowledge),
            // Without a durable journal an input counts as durable at once.
            None => acknowledge(Ok(())),
        }
    }

    /// Dispatches a message to its actor, then executes the resulting effects.
    fn handle(&mut self, message: Message, now: Millis, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) {
        let mut turn = Turn {
            run,
            machine: &mut self.machine,
            inbox,
            now,
            effects: &mut self.effects,
        };
        match message {
            Message::Supervisor(message) => self.supervisor.handle(message, &mut turn),
            Message::Thread(thread, message) => match self.threads.get_mut(thread as usize) {
                Some(Some(actor)) => actor.handle(message, &mut turn),
                // A thread without work in progress has no actor: the machine steps directly.
                Some(None) | None => turn.step(Message::Thread(thread, message)),
            },
            Message::Conversation(owner, message) => self.conversations.handle(owner, message, &mut turn),
        }
        self.perform(now, run, inbox);
    }

    /// Executes the effects of the last step, or queues those that must wait for the journal.
    fn perform(&mut self, now: Millis, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) {
        if self.effects.is_empty() {
            return;
        }
        // Taken out, because executing an effect borrows `self`; put back to reuse the allocation.
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            // The journal notes an effect when it is requested, also if it is held back.
            run.did(&effect);
            match &mut self.pending_durability {
                None => self.perform_effect(effect, (now, now), run, inbox),
                Some(pending_durability) => {
                    if let Some(effect) = pending_durability.pass(run.recorded(), now, effect) {
                        self.perform_effect(effect, (now, now), run, inbox);
                    }
                }
            }
        }
        self.effects = effects;
    }

    /// Executes an effect that the machine requested at time `at`.
    fn perform_effect(
        &mut self,
        effect: Effect,
        (at, now): (Millis, Millis),
        run: &Rc<RunContext>,
        inbox: &Weak<dyn LocalInbox>,
    ) {
        // Executing an effect is no step, so it requests no effects.
        let mut none = Vec::new();
        let mut turn = Turn {
            run,
            machine: &mut self.machine,
            inbox,
            now,
            effects: &mut none,
        };
        match effect {
            Effect::Thread { thread, effect } => thread_actor(&mut self.threads, thread).perform(effect, &mut turn),
            Effect::AwaitTriggers { thread, effect } => crate::thread::await_triggers(thread, effect, &turn),
            Effect::Drop { thread, effect } => {
                if let Some(Some(actor)) = self.threads.get_mut(thread as usize) {
                    actor.cancel_effect(effect);
                }
            }
            Effect::ThreadEnded { thread } => {
                let actor = self.threads.get_mut(thread as usize).and_then(Option::take);
                self.supervisor.thread_ended(thread, &turn);
                drop(actor);
                if let Some(spans) = &run.spans {
                    spans.ended(thread);
                }
            }
            other => self.supervisor.perform(other, at, &mut turn),
        }
    }

    /// Reports an actor's panic to the supervisor. Returns the message if the supervisor itself panicked.
    fn panicked(
        &mut self,
        addressee: MessageTarget,
        exit: &Exit,
        now: Millis,
        run: &Rc<RunContext>,
        inbox: &Weak<dyn LocalInbox>,
    ) -> Option<String> {
        let Exit::Panicked { message } = exit else { return None };
        let of = match addressee {
            MessageTarget::Supervisor => return Some(message.clone()),
            MessageTarget::Thread(thread) => Panicked::Thread { thread, is_known: true },
            MessageTarget::Conversation(owner, asker) => Panicked::Conversation { owner, asker },
        };
        let panic = |of| {
            let message = message.clone();
            Message::Supervisor(ToSupervisor::Panicked(Box::new(Panic { of, message })))
        };
        let machine = &mut self.machine;
        run.note_settings(machine);
        let of = match (contained(|| machine.receive(panic(of))), of) {
            // The partial results of the thread are unusable too: the panic is reported without them.
            (Err(_), Panicked::Thread { thread, .. }) => {
                let of = Panicked::Thread {
                    thread,
                    is_known: false,
                };
                machine.receive(panic(of));
                of
            }
            (Err(_) | Ok(()), of) => of,
        };
        // Recorded after the machine has handled it, because only then is it known whether the partial results are usable.
        run.record(machine, panic(of));
        // Effects that the actor had produced before the panic are still executed.
        match contained(|| self.perform(now, run, inbox)) {
            Err(Exit::Panicked { message }) => Some(message),
            Ok(()) | Err(Exit::Stopped | Exit::Dropped) => None,
        }
    }
}

fn thread_actor(threads: &mut Vec<Option<Box<ThreadActor>>>, thread: ThreadNo) -> &mut ThreadActor {
    let place = thread as usize;
    if threads.len() <= place {
        if threads.is_empty() {
            // Exact, because most runs have one thread.
            threads.reserve_exact(place + 1);
        }
        threads.resize_with(place + 1, || None);
    }
    threads[place].get_or_insert_with(|| Box::new(ThreadActor::new(thread)))
}

/// The actor behind a run's address.
pub(crate) struct RunActor {
    run: Rc<RunContext>,
    spec: Option<Box<RunSpec>>,
    /// Mailbox of the run; `None` until the first turn, which builds it from `spec`.
    mailbox: Option<Rc<LocalMailbox>>,
    /// Messages that arrived before the mailbox was built.
    waiting: Vec<SupervisorMsg>,
}

impl RunActor {
    pub(crate) fn new(run: Rc<RunContext>, spec: RunSpec) -> Self {
        Self {
            run,
            spec: Some(Box::new(spec)),
            mailbox: None,
            waiting: Vec::new(),
        }
    }

    /// Starts a run whose start was delayed. Messages that arrived before are handled first.
    fn begin(&mut self, context: &mut Context<Self>) {
        let mailbox = self.mailbox();
        for message in std::mem::take(&mut self.waiting) {
            mailbox.receive(message);
        }
        self.receive(SupervisorMsg::Begin, context);
    }

    /// Handles a message, then the messages that were held back for it.
    fn receive(&mut self, message: SupervisorMsg, context: &mut Context<Self>) {
        let unheard = self.mailbox().receive(message);
        self.serve(context);
        for message in unheard {
            self.receive(message, context);
        }
    }

    fn mailbox(&mut self) -> Rc<LocalMailbox> {
        let Self { run, spec, mailbox, .. } = self;
        let made = mailbox.get_or_insert_with(|| {
            let spec = spec.take().expect("the run's specification is taken once");
            LocalMailbox::new(Rc::clone(run), *spec)
        });
        Rc::clone(made)
    }

    /// Serves the queue, and stops the actor when the run is over.
    fn serve(&mut self, context: &mut Context<Self>) {
        let mailbox = self.mailbox();
        if let Some(lost) = mailbox.serve() {
            std::panic::resume_unwind(Box::new(lost));
        }
        if mailbox.actors.borrow().is_over() {
            context.stop();
        }
    }
}

impl Actor for RunActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        if self.run.begins_later() {
            return;
        }
        let mailbox = self.mailbox();
        if self.run.supervisor.is_sent_to() {
            // Queued messages come before the first turn, so the start goes behind them. Most runs have none and skip this hop.
            self.run.supervisor.do_send(SupervisorMsg::Begin);
        } else {
            if let ActorsState::Here(actors) = &mut *mailbox.actors.borrow_mut() {
                actors.has_begun = true;
            }
            self.serve(context);
        }
    }
}

impl Handler<SupervisorMsg> for RunActor {
    type Result = ();

    fn handle(&mut self, message: SupervisorMsg, context: &mut Context<Self>) {
        self.run.supervisor.count_handled();
        match message {
            message if self.mailbox.is_some() => self.receive(message, context),
            SupervisorMsg::Begin => self.begin(context),
            message => self.waiting.push(message),
        }
    }
}
