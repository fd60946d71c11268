//! The journal of what runs are told.
//!
//! A run is what it began with and what it was told, in that order: its machine does the same when it is told the same. What
//! is evaluated or called in place is not told it: that is done again.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use pirn_core::Millis;
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::graph::Graph;
use pirn_core::run::{Begun, Effect, Setting, Told};

/// Graphs by workflow id: what a run finds the workflows in that it calls, as they were when it began.
pub type Graphs = Arc<BTreeMap<String, Arc<Graph>>>;

/// Keeps what the runs of an engine are told.
pub trait Journal: Send + Sync + 'static {
    /// A run begins, over these workflows. Called on the run's own thread; must not block.
    fn begun(&self, begun: &Begun, graphs: &Graphs) -> Box<dyn RunJournal>;

    /// True if runs go on from it in another process. Their events are then raised whoever listens, so sequences stay
    /// the same; but pieces of replies, which come differently each time, take the number of the event before them.
    fn is_durable(&self) -> bool {
        false
    }
}

/// Keeps what one run is told. Called on the run's own thread, in order; must not block.
pub trait RunJournal: Send {
    /// It was told something.
    fn told(&mut self, told: &Told);

    /// The run went by this configuration since it was told the last thing, or began: what could not be put into the record of
    /// that is given back, and comes with the next thing that it is told.
    fn went_by(&mut self, settings: Vec<Setting>) -> Vec<Setting> {
        settings
    }

    /// It wants something done outside.
    fn did(&mut self, effect: &Effect);

    /// Has all that it was told so far kept. None: nothing waits for that.
    fn keep(&mut self) -> Option<Keeping> {
        None
    }

    /// Milliseconds that the run is to be quiet before its machine leaves memory; none: it waits for more than people, events
    /// and timers, or its machine stays.
    fn parks_after(&self) -> Option<Millis> {
        None
    }

    /// True if the run waits for people or events alone.
    fn waits_outside(&self) -> bool {
        false
    }

    /// Reads the run again, over the workflows that it began with. Asked for only where [`Self::parks_after`] has said
    /// something, and all that the run was told is kept.
    fn read(&self, _graphs: &Graphs) -> Reading {
        let never = "this journal is not read again";
        Box::pin(std::future::ready(Err(RunError::new(RunErrorCode::StoreError, never))))
    }
}

/// A run as its journal has it: its beginning, and all that it was told.
pub type Reading = BoxFuture<'static, Result<(Begun, Vec<Told>), RunError>>;

/// Ready once it is durable; or it will not be, and nothing that follows from it may happen.
pub type Keeping = BoxFuture<'static, Result<(), RunError>>;
