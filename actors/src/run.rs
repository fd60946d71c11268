//! What the actors of one run share on their arbiter.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use pirn_core::conversation::Tokenizer;
use pirn_core::event::RaisedEvent;
use pirn_core::run::Listening;
pub use pirn_core::run::{
    ConversationReport, FiringOutcome, FiringReport, NodeReport, RunReport, RunStatus, ThreadReport, TokenReport,
};

use crate::engine::{EngineShared, Local};
use crate::host::Host;
use crate::line::SupervisorLine;
use crate::protocol::bus::{BusMsg, BusSender, Source, WaiterId};

/// A run's way in for whoever is not one of its actors. An address of its own costs every holder two allocations; whoever
/// holds one here shares it.
pub(crate) type SupervisorAddr = Arc<SupervisorLine>;

/// A tokenizer, and what a workflow calls it.
type NamedTokenizer = (Option<String>, Arc<dyn Tokenizer>);

/// Shared by the actors of one run; never leaves their thread.
pub(crate) struct RunShared {
    pub(crate) engine: Arc<EngineShared>,
    pub(crate) host: Host,
    pub(crate) run_id: Arc<str>,
    pub(crate) local: Local,
    /// By the name that a workflow gives, see [`Self::tokenizer`].
    tokenizers: RefCell<Vec<NamedTokenizer>>,
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
            engine,
            host,
            run_id,
            local,
            tokenizers: RefCell::default(),
            supervisor,
            next_waiter: Cell::default(),
            is_on_bus: Cell::default(),
        }
    }

    /// The tokenizer of this name, asked for once a run: a fork whose branches all speak does not make one for each.
    pub(crate) fn tokenizer(&self, name: Option<&str>) -> Arc<dyn Tokenizer> {
        // A run has few workflows, most one.
        let known = |known: &&NamedTokenizer| known.0.as_deref() == name;
        if let Some((_, tokenizer)) = self.tokenizers.borrow().iter().find(known) {
            return Arc::clone(tokenizer);
        }
        let tokenizer = (self.engine.ports.tokenizer)(name);
        let mut tokenizers = self.tokenizers.borrow_mut();
        tokenizers.reserve_exact(1);
        tokenizers.push((name.map(str::to_owned), Arc::clone(&tokenizer)));
        tokenizer
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
