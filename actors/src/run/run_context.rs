//! State shared by the actors of one run.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use futures::FutureExt;
use pirn_core::run::{Effect, EventInterest, JournaledInput, Message, RunMachine, RunStart, Setting, Settings};
use pirn_core::thread::{FiringId, started_run_id};
use pirn_definition::Millis;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::value::TOO_DEEP;
use pirn_events::event::{EventMask, RaisedEvent, WaitNo};

use super::inline_services::InlineServices;
use super::settings::SharedSettings;
use super::spans::Spans;
use super::step_buffers::SharedBuffers;
use crate::backlog::Backlog;
use crate::host::Host;
use crate::journal::{JournalFlush, RunJournal};
use crate::ports::Ports;
use crate::protocol::bus::{
    ArbiterSubscriptions, BusMsg, BusSender, EndedRun, OfRun, RunInterest, Source, Subscriber, TriggerLimit,
    WorkflowTriggers,
};
use crate::protocol::engine::EngineHandle;
use crate::protocol::events::Deliver;
use crate::protocol::mailbox::PutOff;
use crate::protocol::supervisor::{SupervisorHandle, SupervisorMsg};

/// State shared by the actors of one run; never leaves their thread.
pub(crate) struct RunContext {
    pub(crate) run_id: Arc<str>,
    pub(crate) host: Host,
    pub(crate) inline_services: InlineServices,
    interest: Rc<ArbiterSubscriptions>,
    /// Interest of the run's private subscribers. Most runs have none.
    own_interest: OnceCell<Arc<RunInterest>>,
    bus: BusSender,
    pub(crate) backlog: Rc<Backlog>,
    /// Reusable buffers, lent to the run for each of its turns.
    pub(crate) step_buffers: SharedBuffers,
    /// Address of the run for everything that is not one of its actors.
    pub(crate) supervisor: Arc<SupervisorHandle>,
    /// Spans of the run; `None` if tracing is off for it.
    pub(crate) spans: Option<Box<Spans>>,
    /// Journal of the run's inputs, if one is configured.
    journal: RefCell<Option<Box<dyn RunJournal>>>,
    /// Recorded configuration (token counts, profiles) of a durable run.
    configuration: Option<Box<Configuration>>,
    /// Number of recorded inputs.
    recorded: Cell<u64>,
    /// Event types raised without any subscriber. A durable run raises all of them, so that sequences are equal in every process.
    promised: EventMask,
    /// Difference between the run's clock and the host's. The run's clock continues across processes.
    epoch: Millis,
    /// Time of the last input, for a run with a journal. All steps that follow from an input use its time, so that a replay uses
    /// equal times.
    input_at: Cell<Option<Millis>>,
    next_waiter: Cell<WaitNo>,
    /// The bus has the list of CUSTOM events to retain.
    keeps_events: Cell<bool>,
    /// The bus has received a message about this run.
    is_on_bus: Cell<bool>,
    /// The bus has received the end of this run.
    has_left_bus: Cell<bool>,
    /// The engine is closing.
    is_closing: Cell<bool>,
}

/// The configuration that a run used, and settings that are not yet in a record: the record of the step that used them was
/// already written.
#[derive(Default)]
struct Configuration {
    settings: SharedSettings,
    unrecorded: RefCell<Vec<Setting>>,
}

impl RunContext {
    pub(crate) fn new(
        (run_id, workflow_id): (Arc<str>, &str),
        supervisor: Arc<SupervisorHandle>,
        host: Host,
        (bus, interest): (BusSender, Rc<ArbiterSubscriptions>),
        (backlog, step_buffers): (Rc<Backlog>, SharedBuffers),
        inline_services: InlineServices,
        not_before: Millis,
    ) -> Self {
        // Time must not be before the last input of an earlier process: the wall clock may have been set back since.
        let epoch = host.wall_clock().max(not_before).saturating_sub(host.now());
        let is_durable = inline_services.ports().is_durable();
        let promised = if is_durable { promised() } else { EventMask::NONE };
        Self {
            spans: Spans::of(&run_id, workflow_id),
            run_id,
            host,
            inline_services,
            interest,
            own_interest: OnceCell::new(),
            bus,
            backlog,
            step_buffers,
            supervisor,
            journal: RefCell::default(),
            configuration: is_durable.then(Box::default),
            recorded: Cell::default(),
            promised,
            epoch,
            input_at: Cell::default(),
            next_waiter: Cell::default(),
            keeps_events: Cell::default(),
            is_on_bus: Cell::default(),
            has_left_bus: Cell::default(),
            is_closing: Cell::default(),
        }
    }

    /// Returns the models, tools, functions and scripts.
    pub(crate) fn ports(&self) -> &Ports {
        self.inline_services.ports()
    }

    /// The run's engine.
    pub(crate) fn engine(&self) -> &Arc<dyn EngineHandle> {
        self.inline_services.engine()
    }

    /// Recorded configuration of a durable run.
    pub(crate) fn settings(&self) -> Option<&SharedSettings> {
        self.configuration
            .as_deref()
            .map(|configuration| &configuration.settings)
    }

    /// Returns the seed of the random numbers that scripts draw: that of the engine. A durable run records it at its start, because it
    /// may be resumed by an engine without one.
    pub(crate) fn script_seed(&self) -> Option<u64> {
        let ask = || self.engine().seed();
        match self.settings() {
            Some(settings) => settings.get().script_seed(ask),
            None => ask(),
        }
    }

    /// Returns the current interest of all listeners.
    pub(crate) fn listening(&self) -> EventInterest {
        let own = self.own_interest.get().map_or(EventMask::NONE, |own| own.mask());
        listening(&self.interest, self.promised.union(own))
    }

    /// Returns the run's time in milliseconds since 1970. Never decreases, not even across processes.
    pub(crate) fn now(&self) -> Millis {
        self.host.now() + self.epoch
    }

    /// Returns the time of the next steps.
    pub(crate) fn step_time(&self) -> Millis {
        self.input_at.get().unwrap_or_else(|| self.now())
    }

    /// Opens the journal of a new run.
    pub(crate) fn begun(&self, begun: &RunStart) {
        let journal = self.ports().journal.as_ref();
        self.input_at.set(journal.map(|_| begun.at));
        self.journal
            .replace(journal.map(|journal| journal.begun(begun, self.inline_services.graphs())));
    }

    /// Continues the journal of a resumed run: the number of steps so far and the time of the last input.
    pub(crate) fn goes_on(&self, (steps, at): (u64, Millis), mut settings: Settings, journal: Box<dyn RunJournal>) {
        if let Some(own) = self.settings() {
            settings.go_on();
            *own.get() = settings;
        }
        self.recorded.set(steps);
        self.input_at.set(Some(at));
        self.journal.replace(Some(journal));
    }

    /// Closes the journal of a run that leaves the engine or has left it, and with it the claim on the run.
    pub(crate) fn close_journal(&self) {
        self.journal.take();
    }

    /// True if another process can resume the run after this one stops.
    pub(crate) fn is_durable(&self) -> bool {
        // `promised` is set for durable runs only, so it serves as the flag.
        self.promised != EventMask::NONE
    }

    /// Sends an external input to the run's machine, and records it in the journal.
    pub(crate) fn deliver(&self, machine: &mut RunMachine, message: Message) {
        // The time is fixed before the input is recorded, because a replay reads it from the record.
        if self.input_at.get().is_some() {
            self.input_at.set(Some(self.now()));
        }
        // Recorded first, because the record contains the number of steps before this input.
        let message = self.record(machine, message);
        machine.receive(message);
    }

    /// Returns the number of recorded inputs.
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded.get()
    }

    /// Reports an effect to the journal.
    pub(crate) fn did(&self, effect: &Effect) {
        if let Some(journal) = self.journal.borrow_mut().as_mut() {
            journal.did(effect);
        }
    }

    /// Reports to the journal that a run that this run has started left the engine without an end.
    pub(crate) fn started_run_left(&self, firing: FiringId) {
        if let Some(journal) = self.journal.borrow_mut().as_mut() {
            journal.started_run_left(firing);
        }
    }

    /// Requests that all inputs so far become durable. Returns the result if it is available at once; otherwise
    /// [`SupervisorMsg::Kept`] delivers it.
    pub(crate) fn keep(&self, machine: &mut RunMachine) -> Option<Result<(), RunError>> {
        // First, because the settings belong to the record that is written now.
        self.note_settings(machine);
        let keeping = self.journal.borrow_mut().as_mut().and_then(|journal| journal.keep());
        let Some(mut keeping) = keeping else {
            return Some(Ok(()));
        };
        // An in-memory journal answers at once, which saves a message and a turn.
        if let Some(result) = (&mut keeping).now_or_never() {
            return Some(result);
        }
        self.await_durable(keeping);
        None
    }

    fn await_durable(&self, keeping: JournalFlush) {
        let (supervisor, step) = (Arc::clone(&self.supervisor), self.recorded.get());
        let waiting = Box::pin(async move {
            let result = keeping.await;
            supervisor.do_send(SupervisorMsg::Kept { step, result });
        });
        self.host.wait(waiting);
    }

    /// Milliseconds without input that remain until the run is parked. None if the run waits for more than people, events and
    /// timers, or is never parked.
    pub(crate) fn parks_in(&self) -> Option<Millis> {
        let after = self.journal.borrow().as_ref()?.parks_after()?;
        let quiet = self.now().saturating_sub(self.step_time());
        // Saturates to 0 once the quiet period is over.
        Some(after.saturating_sub(quiet))
    }

    /// Marks the engine as closing.
    pub(crate) fn close(&self) {
        self.is_closing.set(true);
    }

    /// True if the engine is closing and the run waits only for people or events, or in its session for a run that is not executed here.
    pub(crate) fn is_to_leave(&self, is_behind_stored: impl Fn() -> bool) -> bool {
        let waits =
            |journal: &dyn RunJournal| journal.waits_outside() || (journal.waits_for_session() && is_behind_stored());
        self.is_closing.get() && self.journal.borrow().as_deref().is_some_and(waits)
    }

    /// Rebuilds the machine of a parked run from its journal. [`SupervisorMsg::Woken`] delivers the result.
    pub(crate) fn wake(&self) {
        let reading = self
            .journal
            .borrow()
            .as_ref()
            .map(|journal| journal.read(self.inline_services.graphs()));
        // Only runs with a journal are parked.
        let Some(reading) = reading else { return };
        let (supervisor, needed) = (Arc::clone(&self.supervisor), self.inline_services.parts());
        let mut waking = async move {
            let made = reading.await.and_then(|(begun, inputs)| {
                let (ports, engine, graphs) = needed;
                // A private evaluator, because this future may run on another thread.
                let machine = InlineServices::apart(ports, engine, graphs).replay(begun, inputs, &mut |_, _| ());
                let machine = machine.map(|(machine, _)| machine);
                machine.map_err(|diverged| RunError::new(RunErrorCode::StoreError, diverged.to_string()))
            });
            supervisor.do_send(SupervisorMsg::Woken(made.map(Box::new)));
        }
        .boxed();
        // An in-memory journal is read at once; a stored one is read off this thread.
        if (&mut waking).now_or_never().is_none() {
            self.host.access_store(waking).detach();
        }
    }

    /// Returns the id of the run that a firing of this run starts.
    pub(crate) fn id_of(&self, firing: FiringId) -> Arc<str> {
        started_run_id(&self.run_id, firing).into()
    }

    /// Adds the configuration used since the last input to that input's record.
    #[inline]
    pub(crate) fn note_settings(&self, machine: &mut RunMachine) {
        // Inlined up to here: a run that is not durable has no configuration.
        if let Some(configuration) = &self.configuration {
            self.note_settings_of(configuration, machine);
        }
    }

    fn note_settings_of(&self, configuration: &Configuration, machine: &mut RunMachine) {
        let mut fresh = configuration.settings.take_fresh();
        fresh.append(&mut machine.take_calls());
        if fresh.is_empty() {
            return;
        }
        if let Some(journal) = self.journal.borrow_mut().as_mut() {
            configuration.unrecorded.borrow_mut().extend(journal.went_by(fresh));
        }
    }

    /// True if the run used a setting that no record contains yet.
    pub(crate) fn has_unrecorded(&self, machine: &mut RunMachine) -> bool {
        self.note_settings(machine);
        let configuration = self.configuration.as_deref();
        configuration.is_some_and(|configuration| !configuration.unrecorded.borrow().is_empty())
    }

    /// Records an input of the machine as a new step. Returns the message, with its values limited in depth.
    pub(crate) fn record(&self, machine: &mut RunMachine, mut message: Message) -> Message {
        self.note_settings(machine);
        if let Some(what) = message.limit_levels() {
            tracing::warn!(run = &*self.run_id, "{what} is refused: {TOO_DEEP}");
        }
        let mut journal = self.journal.borrow_mut();
        let Some(journal) = journal.as_mut() else {
            return message;
        };
        self.recorded.set(self.recorded.get() + 1);
        let configuration = self.configuration.as_deref();
        let input = JournaledInput {
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
        // After the settings were taken: values requested from here on belong to the new step.
        if let Some(configuration) = configuration {
            configuration.settings.get().next_step();
        }
        journal.record(&input);
        input.message
    }

    /// Returns the bus for a message about this run. From then on the bus is also notified of the run's end.
    pub(crate) fn bus(&self) -> &BusSender {
        self.enter_bus();
        &self.bus
    }

    fn enter_bus(&self) {
        if !self.is_on_bus.replace(true) {
            self.interest.opens(&self.run_id, &self.supervisor);
        }
    }

    /// Notifies the bus of the run's end, if the bus received any message about the run.
    pub(crate) fn leave_bus(&self) {
        // Once only: the supervisor calls this when the run settles, the exit callback of a run actor after a panic.
        if self.is_on_bus.get() && !self.has_left_bus.replace(true) {
            // Counted before the message is sent: a new run with this id waits until the bus has handled it.
            self.interest.ends(&self.run_id);
            self.bus.do_send(BusMsg::RunEnded(EndedRun {
                run_id: Arc::clone(&self.run_id),
                interest: self.own_interest.get().cloned(),
            }));
        }
    }

    /// True if the run must not have a turn now: the backlog of the bus is long, or too many of the run's events wait for the
    /// evaluation of a trigger's text. The turn is then scheduled for later; `run` returns none if it is scheduled already.
    pub(crate) fn has_turn_later(&self, run: impl FnOnce() -> Option<Weak<dyn PutOff>>) -> bool {
        if self.backlog.holds_turns() {
            if let Some(run) = run() {
                self.backlog.turn_later(run, &self.host);
            }
            return true;
        }
        self.interest.holds_turn(&self.run_id, run)
    }

    /// True if the run must not start now: the backlog of the bus is long, or the bus has not handled the end of an earlier run
    /// with this id. [`SupervisorMsg::Begin`] starts it later.
    pub(crate) fn begins_later(&self) -> bool {
        // At most one of the two queues may hold the run, because each sends a `Begin`.
        if self.interest.holds_start(&self.run_id, &self.supervisor) {
            return true;
        }
        let is_held = self.backlog.holds_starts();
        if is_held {
            self.backlog.start_later(&self.supervisor, &self.host);
        }
        is_held
    }

    /// Subscribes to the run's future events with a higher sequence than `after`.
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

    /// Limits the run's triggers until the bus is notified of the run's end.
    pub(crate) fn limit_triggers(&self, limit: TriggerLimit) {
        self.enter_bus();
        self.interest.limit_triggers(&self.run_id, limit);
    }

    /// Sets the triggers of the run's workflows, or of one of them, as own triggers if others are registered. A run uses the workflows of
    /// its start, which may have been replaced since, or belong to another process.
    pub(crate) fn keep_triggers(&self, only: Option<&str>) {
        let (own, registered) = (self.inline_services.graphs(), self.engine().workflows());
        if Arc::ptr_eq(own, &registered) {
            return;
        }
        let asked = own.iter().filter(|(id, _)| only.is_none_or(|only| only == *id));
        let differing = asked.filter(|(id, graph)| {
            registered
                .get(*id)
                .map_or(graph.event_triggers().next().is_some(), |now| {
                    !Arc::ptr_eq(graph, now) && graph.event_triggers().ne(now.event_triggers())
                })
        });
        let differing: WorkflowTriggers = differing
            .map(|(_, graph)| {
                let triggers = graph.event_triggers().cloned().map(Arc::new);
                (Arc::clone(&graph.workflow_id), triggers.collect())
            })
            .collect();
        if !differing.is_empty() {
            self.enter_bus();
            self.interest.own_triggers(&self.run_id, differing);
        }
    }

    /// Returns a number that is unique among the waits of this run.
    pub(crate) fn next_waiter(&self) -> WaitNo {
        let waiter = self.next_waiter.get();
        self.next_waiter.set(waiter + 1);
        waiter
    }

    /// Sends an event of a thread to the bus.
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

    /// Makes the bus retain the CUSTOM events that a WAIT node of the run's workflows may wait for later.
    pub(crate) fn keep_events(&self) {
        if self.keeps_events.replace(true) {
            return;
        }
        let graphs = self.inline_services.graphs().values();
        let words: Vec<Arc<str>> = graphs.flat_map(|graph| &graph.awaited_events).cloned().collect();
        // Most workflows wait for no named event, and the bus needs no entry for their runs.
        if !words.is_empty() {
            let run_id = Arc::clone(&self.run_id);
            self.bus().do_send(BusMsg::Keep { run_id, words });
        }
    }

    /// Sends a batch of external events to the bus.
    pub(crate) fn emit_all(
        &self,
        workflow_id: Arc<str>,
        thread_id: Arc<str>,
        (first, raised): (u64, Vec<RaisedEvent>),
        at: Millis,
    ) {
        // External events may precede the WAIT node that needs them.
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

/// Combines the interest of listeners with the event types that are raised in any case.
pub(crate) fn listening(interest: &ArbiterSubscriptions, promised: EventMask) -> EventInterest {
    EventInterest {
        interest: interest.listening().union(promised),
        watched: interest.triggers(),
        holding: interest.holding(),
    }
}

/// Every event type except pieces of replies.
pub(crate) fn promised() -> EventMask {
    let types = EventType::ALL.iter().filter(|kind| **kind != EventType::LlmToken);
    types.fold(EventMask::NONE, |mask, kind| mask.union(EventMask::of(*kind)))
}
