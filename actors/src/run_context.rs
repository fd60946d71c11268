//! What the actors of one run share on their arbiter.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use pirn_core::event::RaisedEvent;
use pirn_core::run::{Listening, Message, RunMachine, Told};

use crate::host::Host;
use crate::in_place::InPlace;
use crate::ports::Ports;
use crate::protocol::bus::{BusMsg, BusSender, Interest, Source, WaiterId};
use crate::protocol::engine::EngineHandle;
use crate::protocol::supervisor::SupervisorHandle;
use crate::spans::Spans;

/// Shared by the actors of one run; never leaves their thread.
pub(crate) struct RunContext {
    pub(crate) run_id: Arc<str>,
    pub(crate) host: Host,
    /// Seeds what scripts draw; none: they can not.
    pub(crate) seed: Option<u64>,
    pub(crate) in_place: InPlace,
    pub(crate) interest: Rc<Interest>,
    bus: BusSender,
    /// The run's way in for whoever is not one of its actors.
    pub(crate) supervisor: Arc<SupervisorHandle>,
    /// Where somebody wants them.
    pub(crate) spans: Option<Box<Spans>>,
    next_waiter: Cell<WaiterId>,
    /// The bus was told something of this run.
    is_on_bus: Cell<bool>,
}

impl RunContext {
    pub(crate) fn new(
        (run_id, workflow_id): (Arc<str>, &str),
        supervisor: Arc<SupervisorHandle>,
        (host, seed): (Host, Option<u64>),
        (bus, interest): (BusSender, Rc<Interest>),
        in_place: InPlace,
    ) -> Self {
        Self {
            spans: Spans::of(&run_id, workflow_id),
            run_id,
            host,
            seed,
            in_place,
            interest,
            bus,
            supervisor,
            next_waiter: Cell::default(),
            is_on_bus: Cell::default(),
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

    /// Who listens to what just now.
    pub(crate) fn listening(&self) -> Listening {
        let interest = &self.interest;
        Listening {
            interest: interest.listening(),
            watched: interest.triggers(),
            holding: interest.holding(),
        }
    }

    /// Tells the run's machine something from outside, for the record too.
    pub(crate) fn tell(&self, machine: &mut RunMachine, message: Message) {
        let message = self.record(machine, message);
        machine.tell(message);
    }

    /// Has the journal keep what the machine is told just now.
    pub(crate) fn record(&self, machine: &RunMachine, message: Message) -> Message {
        let Some(journal) = &self.ports().journal else {
            return message;
        };
        let told = Told {
            at: self.host.now(),
            after: machine.steps(),
            listening: self.listening(),
            message,
        };
        journal.told(&self.run_id, &told);
        told.message
    }

    /// The bus, to be told something of this run: then it is told of the run's end too.
    pub(crate) fn bus(&self) -> &BusSender {
        self.is_on_bus.set(true);
        &self.bus
    }

    /// Whether the bus was told anything of this run.
    pub(crate) fn is_on_bus(&self) -> bool {
        self.is_on_bus.get()
    }

    /// A number that no other wait of this run has.
    pub(crate) fn next_waiter(&self) -> WaiterId {
        let waiter = self.next_waiter.get();
        self.next_waiter.set(waiter + 1);
        waiter
    }

    /// Tells the bus what happened in a thread.
    pub(crate) fn emit(&self, workflow_id: Arc<str>, thread_id: Arc<str>, raised: RaisedEvent) {
        let source = self.source(workflow_id, thread_id);
        self.bus().do_send(BusMsg::Raise {
            follows: false,
            source,
            raised,
        });
    }

    /// The same for events that came together.
    pub(crate) fn emit_all(&self, workflow_id: Arc<str>, thread_id: Arc<str>, raised: Vec<RaisedEvent>) {
        let source = self.source(workflow_id, thread_id);
        self.bus().do_send(BusMsg::RaiseAll { source, raised });
    }

    fn source(&self, workflow_id: Arc<str>, thread_id: Arc<str>) -> Source {
        Source {
            run_id: Arc::clone(&self.run_id),
            workflow_id,
            thread_id,
            timestamp: self.host.wall_clock(),
        }
    }
}
