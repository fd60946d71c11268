//! One order that was run again, with its events.

use std::sync::Arc;

use pirn_core::run::RunReport;
use pirn_events::event::Event;
use serde::Serialize;

use super::{OrderEvent, Outcome};

/// One order that was run again, with everything that it raised.
#[derive(Clone, Debug)]
pub struct ReplayedOrder {
    /// The outcome of the order.
    pub outcome: Outcome,
    /// The report of the run; none if the run is deadlocked.
    pub report: Option<Arc<RunReport>>,
    /// The events of the run, in order.
    pub events: Vec<Arc<Event>>,
    /// The choices of the order, in order, also those without an alternative.
    pub steps: Vec<OrderStep>,
}

/// A choice of an order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OrderStep {
    /// The event that was chosen.
    #[serde(flatten)]
    pub event: OrderEvent,
    /// Number of events that the run had raised before the choice.
    pub raised: usize,
}
