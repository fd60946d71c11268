//! The state that the actors of one run share on their arbiter.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use futures::FutureExt;
use pirn_core::Millis;
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::{EventMask, EventType, RaisedEvent, WaitNo};
use pirn_core::run::{Begun, Effect, Listening, Message, RunMachine, Setting, Settings, Told};
use pirn_core::thread::FiringId;
use pirn_core::value::TOO_DEEP;

use crate::backlog::Backlog;
use crate::host::Host;
use crate::in_place::InPlace;
use crate::journal::{Keeping, RunJournal};
use crate::ports::Ports;
use crate::protocol::bus::{
    BusMsg, BusSender, EndedRun, Interest, OfRun, RunInterest, Source, Subscriber, TriggerLimit,
};
use crate::protocol::engine::EngineHandle;
use crate::protocol::events::Deliver;
use crate::protocol::mailbox::PutOff;
use crate::protocol::supervisor::{SupervisorHandle, SupervisorMsg};
use crate::room::SharedRoom;
use crate::settings::SharedSettings;
use crate::spans::Spans;

/// Shared by the actors of one run; never leaves their thread.
pub(crate) struct RunContext {
    pub(crate) run_id: Arc<str>,
    pub(crate) host: Host,
    /// Seeds what scripts draw; none: they can not.
    pub(crate) seed: Option<u64>,
    pub(crate) in_place: InPlace,
    interest: Rc<Interest>,
    /// Of its own subscribers; most runs have none.
    own_interest: OnceCell<Arc<RunInterest>>,
    bus: BusSender,
    pub(crate) backlog: Rc<Backlog>,
    /// The room that its turns take.
    pub(crate) room: SharedRoom,
    /// The run's way in for whoever is not one of its actors.
    pub(crate) supervisor: Arc<SupervisorHandle>,
    /// None where nobody wants them.
    pub(crate) spans: Option<Box<Spans>>,
    /// Keeps what it is told; none: nobody does.
    journal: RefCell<Option<Box<dyn RunJournal>>>,
    /// The configuration that it goes by, where that is recorded.
    configuration: Option<Box<Configuration>>,
    /// Number of steps it was told.
    told: Cell<u64>,
    /// Types of events that are raised whoever listens: where the run goes on in another process.
    promised: EventMask,
    /// Between the host's clock and the run's, which goes on in another process.
    epoch: Millis,
    /// The time of the last thing that the run was told; of one with a journal. All that follows from that happens then, here and when
    /// the run is rebuilt.
    told_at: Cell<Option<Millis>>,
    next_waiter: Cell<WaitNo>,
    /// The bus was told which events it keeps.
    keeps_events: Cell<bool>,
    /// The bus was told something of this run.
    is_on_bus: Cell<bool>,
    /// The bus was told of its end.
    has_left_bus: Cell<bool>,
    /// Its engine closes.
    is_closing: Cell<bool>,
}

/// The configuration that a run goes by; and what could not be put into the record of the step that asked for it.
#[derive(Default)]
struct Configuration {
    settings: SharedSettings,
    unrecorded: RefCell<Vec<Setting>>,
}

impl RunContext {
    pub(crate) fn new(
        (run_id, workflow_id): (Arc<str>, &str),
        supervisor: Arc<SupervisorHandle>,
        (host, seed): (Host, Option<u64>),
        (bus, interest): (BusSender, Rc<Interest>),
        (backlog, room): (Rc<Backlog>, SharedRoom),
        in_place: InPlace,
        not_before: Millis,
    ) -> Self {
        let epoch = host.wall_clock().max(not_before).saturating_sub(host.now());
        let is_durable = in_place.ports().is_durable();
        let promised = if is_durable { promised() } else { EventMask::NONE };
        Self {
            spans: Spans::of(&run_id, workflow_id),
            run_id,
            host,
            seed,
            in_place,
            interest,
            own_interest: OnceCell::new(),
            bus,
            backlog,
            room,
            supervisor,
            journal: RefCell::default(),
            configuration: is_durable.then(Box::default),
            told: Cell::default(),
            promised,
            epoch,
            told_at: Cell::default(),
            next_waiter: Cell::default(),
            keeps_events: Cell::default(),
            is_on_bus: Cell::default(),
            has_left_bus: Cell::default(),
            is_closing: Cell::default(),
        }
    }

    /// Models, tools, functions, scripts.
    pub(crate) fn ports(&self) -> &Ports {
        self.in_place.ports()
    }

    /// The run's engine.
    pub(crate) fn engine(&self) -> &Arc<dyn EngineHandle> {
        self.in_place.engine()
    }

    /// The configuration that it goes by, where that is recorded.
    pub(crate) fn settings(&self) -> Option<&SharedSettings> {
        self.configuration
            .as_deref()
            .map(|configuration| &configuration.settings)
    }

    /// The interest of listeners just now.
    pub(crate) fn listening(&self) -> Listening {
        let own = self.own_interest.get().map_or(EventMask::NONE, |own| own.mask());
        listening(&self.interest, self.promised.union(own))
    }

    /// The run's time, in milliseconds since 1970 as its host has it; never goes back, in no process of the run.
    pub(crate) fn now(&self) -> Millis {
        self.host.now() + self.epoch
    }

    /// The time of the steps that the run takes next.
    pub(crate) fn step_time(&self) -> Millis {
        self.told_at.get().unwrap_or_else(|| self.now())
    }

    /// The run begins.
    pub(crate) fn begun(&self, begun: &Begun) {
        let journal = self.ports().journal.as_ref();
        self.told_at.set(journal.map(|_| begun.at));
        self.journal
            .replace(journal.map(|journal| journal.begun(begun, self.in_place.graphs())));
    }

    /// The run goes on after so many steps, the last of them told at this time.
    pub(crate) fn goes_on(&self, (steps, at): (u64, Millis), mut settings: Settings, journal: Box<dyn RunJournal>) {
        if let Some(own) = self.settings() {
            settings.go_on();
            *own.get() = settings;
        }
        self.told.set(steps);
        self.told_at.set(Some(at));
        self.journal.replace(Some(journal));
    }

    /// True if it goes on in another process where this one ends.
    pub(crate) fn is_durable(&self) -> bool {
        self.promised != EventMask::NONE
    }

    /// Tells the run's machine something from outside, for the record too.
    pub(crate) fn tell(&self, machine: &mut RunMachine, message: Message) {
        if self.told_at.get().is_some() {
            self.told_at.set(Some(self.now()));
        }
        let message = self.record(machine, message);
        machine.tell(message);
    }

    /// Number of steps it was told so far.
    pub(crate) fn told(&self) -> u64 {
        self.told.get()
    }

    /// It wants something done outside.
    pub(crate) fn did(&self, effect: &Effect) {
        if let Some(journal) = self.journal.borrow_mut().as_mut() {
            journal.did(effect);
        }
    }

    /// Has what it was told kept. What came of that, where it is known at once; else it is told so later.
    pub(crate) fn keep(&self, machine: &mut RunMachine) -> Option<Result<(), RunError>> {
        self.note_settings(machine);
        let keeping = self.journal.borrow_mut().as_mut().and_then(|journal| journal.keep());
        let Some(mut keeping) = keeping else {
            return Some(Ok(()));
        };
        // Mostly so of what is kept in memory: then nothing happens in between.
        if let Some(result) = (&mut keeping).now_or_never() {
            return Some(result);
        }
        self.await_kept(keeping);
        None
    }

    fn await_kept(&self, keeping: Keeping) {
        let (supervisor, step) = (Arc::clone(&self.supervisor), self.told.get());
        let waiting = Box::pin(async move {
            let result = keeping.await;
            supervisor.do_send(SupervisorMsg::Kept { step, result });
        });
        self.host.wait(waiting);
    }

    /// Milliseconds that it is to be quiet yet before its machine leaves memory; none: it waits for more than people, events
    /// and timers, or its machine stays.
    pub(crate) fn parks_in(&self) -> Option<Millis> {
        let after = self.journal.borrow().as_ref()?.parks_after()?;
        let quiet = self.now().saturating_sub(self.step_time());
        Some(after.saturating_sub(quiet))
    }

    /// Its engine closes.
    pub(crate) fn close(&self) {
        self.is_closing.set(true);
    }

    /// True if its engine closes, and it waits for nothing that this process does.
    pub(crate) fn is_to_leave(&self) -> bool {
        let waits = |journal: &dyn RunJournal| journal.waits_outside();
        self.is_closing.get() && self.journal.borrow().as_deref().is_some_and(waits)
    }

    /// Has the run's machine made again, as its journal has it. That is told by [`SupervisorMsg::Woken`].
    pub(crate) fn wake(&self) {
        let reading = self
            .journal
            .borrow()
            .as_ref()
            .map(|journal| journal.read(self.in_place.graphs()));
        let Some(reading) = reading else { return };
        let (supervisor, needed) = (Arc::clone(&self.supervisor), self.in_place.parts());
        let mut waking = async move {
            let made = reading.await.and_then(|(begun, told)| {
                let (ports, engine, graphs) = needed;
                let machine = InPlace::apart(ports, engine, graphs).replay(begun, told, &mut |_| ());
                let machine = machine.map(|(machine, _)| machine);
                machine.map_err(|diverged| RunError::new(RunErrorCode::StoreError, diverged.to_string()))
            });
            supervisor.do_send(SupervisorMsg::Woken(made.map(Box::new)));
        }
        .boxed();
        // At once where it is kept in memory, as it is with what is kept there.
        if (&mut waking).now_or_never().is_none() {
            self.host.external(None, waking).detach();
        }
    }

    /// Names the run that a firing of this one starts.
    pub(crate) fn id_of(&self, firing: FiringId) -> Arc<str> {
        format!("{}-f{firing}", self.run_id).into()
    }

    /// Puts the configuration that the run went by since it was told the last thing into the record of that.
    pub(crate) fn note_settings(&self, machine: &mut RunMachine) {
        let Some(configuration) = &self.configuration else {
            return;
        };
        let mut fresh = configuration.settings.take_fresh();
        fresh.append(&mut machine.take_calls());
        if fresh.is_empty() {
            return;
        }
        if let Some(journal) = self.journal.borrow_mut().as_mut() {
            configuration.unrecorded.borrow_mut().extend(journal.went_by(fresh));
        }
    }

    /// True if the run went by something that is in no record yet.
    pub(crate) fn has_unrecorded(&self, machine: &mut RunMachine) -> bool {
        self.note_settings(machine);
        let configuration = self.configuration.as_deref();
        configuration.is_some_and(|configuration| !configuration.unrecorded.borrow().is_empty())
    }

    /// Has the journal keep what the machine is told in this step.
    pub(crate) fn record(&self, machine: &mut RunMachine, message: Message) -> Message {
        self.note_settings(machine);
        let (message, refused) = message.within_limits();
        if let Some(what) = refused {
            tracing::warn!(run = &*self.run_id, "{what} is refused: {TOO_DEEP}");
        }
        let mut journal = self.journal.borrow_mut();
        let Some(journal) = journal.as_mut() else {
            return message;
        };
        self.told.set(self.told.get() + 1);
        let configuration = self.configuration.as_deref();
        let told = Told {
            at: self.step_time(),
            after: machine.steps(),
            listening: self.listening(),
            uncarried: false,
            before: configuration
                .map(|configuration| configuration.unrecorded.take())
                .unwrap_or_default(),
            message,
            settings: Vec::new(),
        };
        if let Some(configuration) = configuration {
            configuration.settings.get().next_step();
        }
        journal.told(&told);
        told.message
    }

    /// The bus, to be told something of this run: then it is told of the run's end too.
    pub(crate) fn bus(&self) -> &BusSender {
        self.enter_bus();
        &self.bus
    }

    fn enter_bus(&self) {
        if !self.is_on_bus.replace(true) {
            self.interest.opens(&self.run_id);
        }
    }

    /// Tells the bus of the run's end, where it was told anything of the run.
    pub(crate) fn leave_bus(&self) {
        if self.is_on_bus.get() && !self.has_left_bus.replace(true) {
            self.interest.ends(&self.run_id);
            self.bus.do_send(BusMsg::RunEnded(EndedRun {
                run_id: Arc::clone(&self.run_id),
                interest: self.own_interest.get().cloned(),
            }));
        }
    }

    /// True if the run is not to have a turn now: much waits for the bus, or for a text of its triggers. Then it has it when that is
    /// over; `run` is none where it waits already.
    pub(crate) fn has_turn_later(&self, run: impl FnOnce() -> Option<Weak<dyn PutOff>>) -> bool {
        if self.backlog.holds_turns() {
            if let Some(run) = run() {
                self.backlog.turn_later(run, &self.host);
            }
            return true;
        }
        self.interest.holds_turn(&self.run_id, run)
    }

    /// True if the run is not to begin now: much waits for the bus, or the end of an earlier run of its id does. It is told to begin
    /// when that is over.
    pub(crate) fn begins_later(&self) -> bool {
        if self.interest.holds_start(&self.run_id, &self.supervisor) {
            return true;
        }
        let is_held = self.backlog.holds_starts();
        if is_held {
            self.backlog.start_later(&self.supervisor, &self.host);
        }
        is_held
    }

    /// Subscribes to the run's events with a higher sequence than `after`, from now on.
    pub(crate) fn subscribe(&self, mask: EventMask, after: u64, deliver: Box<dyn Deliver>) {
        let subscriber = Subscriber {
            of_run: Some(OfRun {
                run_id: Arc::clone(&self.run_id),
                interest: Arc::clone(self.own_interest.get_or_init(Arc::default)),
            }),
            mask,
            after,
            deliver,
        };
        self.interest.subscribe(self.bus(), subscriber);
    }

    /// Has the run's triggers limited, until the bus is told of its end.
    pub(crate) fn limit_triggers(&self, limit: TriggerLimit) {
        self.enter_bus();
        self.interest.limit_triggers(&self.run_id, limit);
    }

    /// A number that no other wait of this run has.
    pub(crate) fn next_waiter(&self) -> WaitNo {
        let waiter = self.next_waiter.get();
        self.next_waiter.set(waiter + 1);
        waiter
    }

    /// Tells the bus what happened in a thread.
    pub(crate) fn emit(
        &self,
        workflow_id: Arc<str>,
        thread_id: Arc<str>,
        (sequence, raised): (u64, RaisedEvent),
        at: Millis,
    ) {
        let source = self.source(workflow_id, thread_id, at);
        self.bus().do_send(BusMsg::Raise {
            follows: false,
            sequence: self.is_durable().then_some(sequence),
            source,
            raised,
        });
    }

    /// Has the bus keep the CUSTOM events that a WAIT node of any of the run's workflows may ask for later.
    pub(crate) fn keep_events(&self) {
        if self.keeps_events.replace(true) {
            return;
        }
        let graphs = self.in_place.graphs().values();
        let words: Vec<Arc<str>> = graphs.flat_map(|graph| &graph.awaited_events).cloned().collect();
        if !words.is_empty() {
            let run_id = Arc::clone(&self.run_id);
            self.bus().do_send(BusMsg::Keep { run_id, words });
        }
    }

    /// The same for events that came together from outside.
    pub(crate) fn emit_all(
        &self,
        workflow_id: Arc<str>,
        thread_id: Arc<str>,
        (first, raised): (u64, Vec<RaisedEvent>),
        at: Millis,
    ) {
        self.keep_events();
        let source = self.source(workflow_id, thread_id, at);
        self.bus().do_send(BusMsg::RaiseAll {
            first: self.is_durable().then_some(first),
            source,
            raised,
        });
    }

    pub(crate) fn source(&self, workflow_id: Arc<str>, thread_id: Arc<str>, timestamp: Millis) -> Source {
        Source {
            run_id: Arc::clone(&self.run_id),
            workflow_id,
            thread_id,
            timestamp,
        }
    }
}

/// The interest of listeners, and of these types whoever listens.
pub(crate) fn listening(interest: &Interest, promised: EventMask) -> Listening {
    Listening {
        interest: interest.listening().union(promised),
        watched: interest.triggers(),
        holding: interest.holding(),
    }
}

/// All but pieces of replies.
pub(crate) fn promised() -> EventMask {
    let types = EventType::ALL.iter().filter(|kind| **kind != EventType::LlmToken);
    types.fold(EventMask::NONE, |mask, kind| mask.union(EventMask::of(*kind)))
}
