//! State shared by the runs of one engine on one arbiter: its event bus, trigger matcher and evaluator.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::{EngineShared, log_exit};
use crate::backlog::Backlog;
use crate::contain::start_contained_with;
use crate::event_bus::EventBusActor;
use crate::host::Host;
use crate::protocol::bus::{ArbiterSubscriptions, BusMsg, BusSender};
use crate::protocol::mailbox::{Depth, mailbox};
use crate::protocol::matcher::{MatcherMsg, MatcherSender};
use crate::run::inline_services::SharedEvaluator;
use crate::run::step_buffers::SharedBuffers;
use crate::trigger_matcher::TriggerMatcherActor;

/// An engine's actors and evaluator on one arbiter.
#[derive(Clone)]
pub(super) struct Local {
    pub(super) evaluator: SharedEvaluator,
    pub(super) interest: Rc<ArbiterSubscriptions>,
    pub(super) step_buffers: SharedBuffers,
    pub(super) bus: BusSender,
    pub(super) matcher: MatcherSender,
    pub(super) bus_depth: Depth<BusMsg>,
    pub(super) backlog: Rc<Backlog>,
    pub(super) matcher_depth: Depth<MatcherMsg>,
}

thread_local! {
    /// Engines of this arbiter, by engine id, as long as their bus is running.
    static LOCALS: RefCell<BTreeMap<u64, Local>> = const { RefCell::new(BTreeMap::new()) };
}

impl Local {
    /// Starts the bus and the matcher of an engine on the calling arbiter.
    pub(super) fn start(engine: &Arc<EngineShared>, host: &Host) {
        // Both queues exist before the actors, because each actor holds a sender of the other.
        let (bus, bus_mail) = mailbox();
        let (matcher, matcher_mail) = mailbox();
        let local = Self {
            evaluator: Rc::new(RefCell::new((engine.ports.evaluator)())),
            interest: Rc::new(ArbiterSubscriptions::new()),
            step_buffers: SharedBuffers::default(),
            bus_depth: bus_mail.depth(),
            backlog: Rc::new(Backlog::new(bus_mail.depth())),
            matcher_depth: matcher_mail.depth(),
            bus,
            matcher,
        };
        let (bus, heard_by) = (
            local.bus.clone(),
            (Rc::clone(&local.interest), Rc::clone(&local.backlog)),
        );
        let matcher_mail = (local.matcher.clone(), matcher_mail);
        let (ports, handle, gone) = (Arc::clone(&engine.ports), engine.handle(), bus.clone());
        let keeps_runs = engine.ports.is_durable();
        let (own_host, host_after) = (host.clone(), host.clone());
        let (interest_after, backlog_after) = heard_by.clone();
        start_contained_with(
            host,
            move |context| TriggerMatcherActor::new((ports, handle), own_host, heard_by, bus, matcher_mail, context),
            move |exit| {
                // The message is lost if the bus stopped first, and then is not needed.
                gone.do_send(BusMsg::MatcherGone);
                for run in interest_after.all_caught_up() {
                    backlog_after.turn_later(run, &host_after);
                }
                log_exit("the trigger matcher", exit);
            },
        );
        let (bus, matcher, interest) = (local.bus.clone(), local.matcher.clone(), Rc::clone(&local.interest));
        let (uid, backlog) = (engine.uid, Rc::clone(&local.backlog));
        let waiting = Rc::clone(&backlog);
        // The entry is added before the bus starts: a host that shuts down drops the bus at once, and its exit callback removes the
        // entry.
        LOCALS.with_borrow_mut(|locals| locals.insert(uid, local));
        start_contained_with(
            host,
            move |context| {
                let heard_by = (interest, backlog);
                EventBusActor::new(keeps_runs, heard_by, bus, matcher, bus_mail, context)
            },
            move |exit| {
                // `try_with`, because the thread-local may be destroyed already when the host ends together with its thread.
                let gone = LOCALS.try_with(|locals| locals.borrow_mut().remove(&uid));
                // Dropped after the borrow of the map ends: an evaluator's destructor may run arbitrary code.
                drop(gone);
                waiting.wake();
                log_exit("the event bus", exit);
            },
        );
    }

    /// Returns the engine's state on the calling arbiter; none if its bus has stopped.
    pub(super) fn of(uid: u64) -> Option<Self> {
        LOCALS.with_borrow(|locals| locals.get(&uid).cloned())
    }
}
