//! Tracing spans, so that log lines name the thread and node of the run.
//!
//! | span | fields | entered while |
//! |---|---|---|
//! | `run` | `run_id`, `workflow_id` | the run handles a message for no thread |
//! | `thread` | `thread_id`, `workflow_id`, `path_id` of a branch or an item | the thread handles a message |
//! | `node` | `node_id`, `awaits` | a model, tool, asynchronous function or script works for the node |
//!
//! Spans are nested: node, thread, the thread that started it, up to the main thread and the run. Interest is checked once per
//! run; without it no spans are created.

use std::cell::RefCell;
use std::collections::BTreeMap;

use futures::future::BoxFuture;
use pirn_core::run::{Origin, RunMachine, ThreadNo};
use tracing::span::EnteredSpan;
use tracing::{Instrument, Span, info_span};

use crate::host::Label;

/// Target of the spans. Fixed, so that filters of subscribers do not depend on the path of this module.
const TARGET: &str = "pirn_actors";

/// The spans of a run.
pub(crate) struct Spans {
    run: Span,
    /// Spans by thread; none for an ended thread.
    threads: RefCell<BTreeMap<ThreadNo, Option<Span>>>,
}

impl Spans {
    /// Creates the spans of a run. None if no tracing subscriber is interested.
    pub(crate) fn of(run_id: &str, workflow_id: &str) -> Option<Box<Self>> {
        // Without a parent, because the run may outlive the span of its caller.
        let run = info_span!(target: TARGET, parent: None, "run", run_id, workflow_id);
        (!run.is_disabled()).then(|| {
            Box::new(Self {
                run,
                threads: RefCell::default(),
            })
        })
    }

    /// Enters the span of a thread, or of the run.
    pub(crate) fn enter(&self, thread: Option<ThreadNo>, machine: &RunMachine) -> EnteredSpan {
        match thread {
            Some(thread) => self.thread(thread, machine).entered(),
            None => self.run.clone().entered(),
        }
    }

    /// Drops the span of an ended thread.
    pub(crate) fn ended(&self, thread: ThreadNo) {
        // The entry stays, so that a late message does not create the span again.
        self.threads.borrow_mut().insert(thread, None);
    }

    /// Instruments work for a node with the node's span.
    pub(crate) fn work(
        &self,
        label: Label<'_>,
        machine: &RunMachine,
        work: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, ()> {
        Box::pin(work.instrument(self.node(label, machine)))
    }

    /// Creates the span of work for a node.
    pub(crate) fn node(&self, label: Label<'_>, machine: &RunMachine) -> Span {
        let thread = self.thread(label.thread, machine);
        info_span!(target: TARGET, parent: &thread, "node", node_id = label.node, awaits = label.awaits.as_str())
    }

    fn thread(&self, thread: ThreadNo, machine: &RunMachine) -> Span {
        if let Some(known) = self.threads.borrow().get(&thread) {
            // Late messages for an ended thread are logged in the span of the run.
            return known.as_ref().unwrap_or(&self.run).clone();
        }
        let Some((origin, graph)) = machine.origin(thread) else {
            return self.run.clone();
        };
        let (parent, path_id) = match origin {
            Origin::Main | Origin::Triggered { .. } => (None, None),
            Origin::Called { parent, .. } => (Some(parent), None),
            Origin::Branch { fork, .. } | Origin::Item { fork, .. } => (
                machine.fork_parent(fork).map(|(parent, _)| parent),
                origin.path_id(graph),
            ),
        };
        let parent = parent.map_or_else(|| self.run.clone(), |parent| self.thread(parent, machine));
        let span = info_span!(
            target: TARGET,
            parent: &parent,
            "thread",
            thread_id = &*machine.thread_id(thread),
            workflow_id = &*graph.workflow_id,
            path_id = path_id.as_deref(),
        );
        self.threads.borrow_mut().insert(thread, Some(span.clone()));
        span
    }
}
