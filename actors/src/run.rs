//! What the actors of one run share on their arbiter.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use pirn_core::event::RaisedEvent;
pub use pirn_core::run::{
    ConversationReport, FiringOutcome, FiringReport, NodeReport, RunReport, RunStatus, ThreadReport, TokenReport,
};
use pirn_core::run::{Listening, Message, RunMachine, Told};

use crate::engine::{EngineShared, Local};
use crate::host::Host;
use crate::line::SupervisorLine;
use crate::protocol::bus::{BusMsg, BusSender, Source, WaiterId};
use crate::world::InPlace;

/// A run's way in for whoever is not one of its actors. An address of its own costs every holder two allocations; whoever
/// holds one here shares it.
pub(crate) type SupervisorAddr = Arc<SupervisorLine>;

/// Shared by the actors of one run; never leaves their thread.
pub(crate) struct RunShared {
    pub(crate) engine: Arc<EngineShared>,
    pub(crate) host: Host,
    pub(crate) run_id: Arc<str>,
    pub(crate) local: Local,
    pub(crate) in_place: InPlace,
    pub(crate) supervisor: SupervisorAddr,
    next_waiter: Cell<WaiterId>,
    /// Whether the bus was told anything of this run.
    pub(crate) is_on_bus: Cell<bool>,
}

impl RunShared {
    pub(crate) fn new(
        engine: Arc<EngineShared>,
        host: Host,
        run_id: Arc<str>,
        local: Local,
        supervisor: SupervisorAddr,
    ) -> Self {
        Self {
            in_place: InPlace::new(Arc::clone(&engine), Rc::clone(&local.evaluator)),
            engine,
            host,
            run_id,
            local,
            supervisor,
            next_waiter: Cell::default(),
            is_on_bus: Cell::default(),
        }
    }

    /// Who listens to what just now.
    pub(crate) fn listening(&self) -> Listening {
        let interest = &self.local.interest;
        Listening {
            interest: interest.listening(),
            watched: interest.triggers(),
            holding: interest.holding(),
        }
    }

    /// Tells the run's machine something from outside, for the record too.
    pub(crate) fn tell(&self, machine: &mut RunMachine, message: Message) {
        if let Some(journal) = &self.engine.ports.journal {
            let told = Told {
                at: self.host.now(),
                after: machine.steps(),
                listening: self.listening(),
                message,
            };
            journal.told(&self.run_id, &told);
            return machine.tell(told.message);
        }
        machine.tell(message);
    }

    /// The bus, to be told something of this run: then it is told of the run's end too.
    pub(crate) fn bus(&self) -> &BusSender {
        self.is_on_bus.set(true);
        &self.local.bus
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
