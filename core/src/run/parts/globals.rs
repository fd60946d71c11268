//! Global variables of a run, and the evaluation of VARIABLE nodes on other OS threads.
//!
//! An assignment reads and writes in one step. An inline evaluation is assigned in the same turn. Other evaluations start with
//! [`Globals::request`]: each variable has one active evaluation and a FIFO queue, so that N threads cost N evaluations. If a
//! variable that the expression may read is written during the evaluation (inline, by a trigger, by the host, or by an assignment
//! to another variable), the result is stale and the expression is evaluated again. Each repetition follows another thread's
//! write, so threads cannot block each other.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use pirn_definition::definition::VariableScope;
use pirn_definition::error::RunError;
use pirn_definition::graph::{Graph, NodeIx, NodeKind};
use pirn_definition::script::{Names, Used};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::run::ThreadNo;
use crate::run::step::Step;
use crate::thread::{Effect, EffectId, Evaluation, Variable, Variables};

/// Global variables with their pending assignments.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct Globals {
    variables: Variables,
    /// Pending evaluations; `None` in most runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<Box<Pending>>,
}

/// Assignments that wait for an evaluation on another OS thread.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Pending {
    /// Requests by variable, in FIFO order. The first is active or about to start. No queue is empty.
    queues: BTreeMap<Arc<str>, BTreeMap<Ticket, Request>>,
    /// Variable and ticket of each thread's request; a thread has at most one.
    places: BTreeMap<ThreadNo, (Arc<str>, Ticket)>,
    /// The last ticket.
    tickets: Ticket,
    /// Number of writes since the first request.
    writes: u64,
    /// Number of the last write, by variable.
    written: BTreeMap<Arc<str>, u64>,
}

/// Number of a request, in FIFO order.
pub(in crate::run) type Ticket = u64;

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    thread: ThreadNo,
    effect: EffectId,
    node: NodeIx,
    what: Evaluation,
    /// Number of writes before its evaluation started; `None` while it is queued.
    started: Option<u64>,
}

/// State of an evaluation that has ended.
#[derive(Debug)]
pub(in crate::run) enum Evaluated {
    /// Current: no variable that it may have read was written since. Contains the next thread of the queue.
    Fresh(Option<ThreadNo>),
    /// Stale: a variable that it may have read was written. Contains the repeated effect.
    Stale(Effect),
    /// The evaluation does not belong to a global assignment.
    Other,
}

impl Deref for Globals {
    type Target = Variables;

    fn deref(&self) -> &Variables {
        &self.variables
    }
}

impl Globals {
    /// Assigns a global variable; every thread sees the value at once. Returns the value converted to the variable's type.
    pub(in crate::run) fn assign(
        &mut self,
        step: &mut Step<'_>,
        name: &Arc<str>,
        value: Arc<Value>,
        readonly: bool,
    ) -> Result<Arc<Value>, RunError> {
        // A refused assignment is no write: pending evaluations stay current.
        let value = self.variables.assign(name, value, readonly)?;
        self.note_write(name);
        step.env.shared(format_args!("variable {name} {readonly}"), &value);
        Ok(value)
    }

    /// Defines a variable of a workflow.
    pub(in crate::run) fn define(&mut self, name: &Arc<str>, variable: Variable) {
        self.variables.define(Arc::clone(name), variable);
        // A definition may replace a value that a pending evaluation has read.
        self.note_write(name);
    }

    /// Marks a variable to be passed to the next run of the session.
    pub(in crate::run) fn keep_for_session(&mut self, name: &str) {
        self.variables.keep_for_session(name);
    }

    fn note_write(&mut self, name: &Arc<str>) {
        // Writes are counted only while an evaluation is pending: other runs pay one test.
        if let Some(pending) = &mut self.pending {
            pending.writes += 1;
            pending.written.insert(Arc::clone(name), pending.writes);
        }
    }

    /// Requests an evaluation on another OS thread. Returns its ticket if it is queued, `None` if it may start at once.
    pub(in crate::run) fn request(
        &mut self,
        thread: ThreadNo,
        (effect, node, what): (EffectId, NodeIx, &Evaluation),
        name: &Arc<str>,
    ) -> Option<Ticket> {
        let pending = self.pending.get_or_insert_default();
        pending.tickets += 1;
        // Tickets ascend, so that the first entry of a queue is the oldest request.
        let ticket = pending.tickets;
        let queue = pending.queues.entry(Arc::clone(name)).or_default();
        let starts = queue.is_empty();
        queue.insert(
            ticket,
            Request {
                thread,
                effect,
                node,
                what: what.clone(),
                // The count at the start: a later write may make the result stale.
                started: starts.then_some(pending.writes),
            },
        );
        pending.places.insert(thread, (Arc::clone(name), ticket));
        (!starts).then_some(ticket)
    }

    /// Starts the evaluation of a thread that reached the front of its queue.
    pub(in crate::run) fn start(&mut self, thread: ThreadNo) -> Option<Effect> {
        let pending = self.pending.as_mut()?;
        let (name, ticket) = pending.places.get(&thread)?;
        let mut first = pending.queues.get_mut(name)?.first_entry()?;
        let request = first.get_mut();
        // A thread is also woken to continue a long turn: its evaluation is then active already, or still has to wait.
        if request.started.is_some() || first.key() != ticket {
            return None;
        }
        // Borrowed again, because `key` needs the entry in between.
        let request = first.get_mut();
        request.started = Some(pending.writes);
        Some(request.evaluate())
    }

    /// Handles the end of a thread's evaluation.
    pub(in crate::run) fn evaluated(&mut self, graph: &Graph, thread: ThreadNo, effect: EffectId) -> Evaluated {
        let Some(pending) = &mut self.pending else {
            return Evaluated::Other;
        };
        // Every answer of the thread arrives here, for example that of a timer.
        let Some(request) = pending.request(thread).filter(|request| request.effect == effect) else {
            return Evaluated::Other;
        };
        let (node, started) = (request.node, request.started.unwrap_or(0));
        // Compare-and-swap: between its start and now another write may have changed what the expression read.
        // The counts are compared first: usually nothing was written, and the expression need not be searched for names.
        if pending.writes > started && pending.may_have_read(graph, node, started) {
            let writes = pending.writes;
            if let Some(request) = pending.request(thread) {
                request.started = Some(writes);
                return Evaluated::Stale(request.evaluate());
            }
        }
        Evaluated::Fresh(self.withdraw(thread).and_then(|(_, next)| next))
    }

    /// Returns true if this evaluation belongs to a request of the thread.
    pub(in crate::run) fn has_requested(&mut self, thread: ThreadNo, effect: EffectId) -> bool {
        let request = self.pending.as_mut().and_then(|pending| pending.request(thread));
        request.is_some_and(|request| request.effect == effect)
    }

    /// Removes a thread's request. Returns whether it was active, and the next thread of the queue.
    pub(in crate::run) fn withdraw(&mut self, thread: ThreadNo) -> Option<(bool, Option<ThreadNo>)> {
        let pending = self.pending.as_mut()?;
        let (name, ticket) = pending.places.remove(&thread)?;
        let queue = pending.queues.get_mut(&name)?;
        let was_first = queue.first_key_value().is_some_and(|(first, _)| *first == ticket);
        let was_started = queue.remove(&ticket).is_some_and(|request| request.started.is_some());
        // Only behind the first request: otherwise the first one is still active, and its end wakes the next.
        let next = queue.values().next().filter(|_| was_first).map(|next| next.thread);
        if queue.is_empty() {
            pending.queues.remove(&name);
        }
        if pending.places.is_empty() {
            // Frees the counts of writes too. No evaluation is left that could compare them.
            self.pending = None;
        }
        Some((was_started, next))
    }
}

impl Pending {
    fn request(&mut self, thread: ThreadNo) -> Option<&mut Request> {
        let (name, ticket) = self.places.get(&thread)?;
        self.queues.get_mut(name)?.get_mut(ticket)
    }

    /// Returns true if a global variable that the node's expression may read was written after write number `after`.
    fn may_have_read(&self, graph: &Graph, node: NodeIx, after: u64) -> bool {
        let NodeKind::Variable { expression, .. } = &graph.node(node).kind else {
            // Not reached, because only VARIABLE nodes assign. `true` is the safe answer: the expression is evaluated again.
            return true;
        };
        let names = Names::of(&graph.snippet(*expression).source);
        let is_named = |name: &str| match names.variables() {
            // The expression passes the variables on as a whole and may read any of them.
            Used::All => true,
            Used::These(members) => members.contains(name) || names.bare().any(|bare| &**bare == name),
        };
        let written = self.written.iter().filter(|(_, write)| **write > after);
        written.map(|(name, _)| name).any(|name| is_named(name))
    }
}

impl Request {
    fn evaluate(&self) -> Effect {
        Effect::Evaluate {
            id: self.effect,
            node: self.node,
            what: self.what.clone(),
        }
    }
}

/// Returns the global variable to which a node assigns an evaluation.
pub(in crate::run) fn assigned(graph: &Graph, node: NodeIx, what: &Evaluation) -> Option<Arc<str>> {
    match (&graph.node(node).kind, what) {
        (NodeKind::Variable { name, scope, .. }, Evaluation::Value(_)) if *scope != VariableScope::Thread => {
            Some(Arc::clone(name))
        }
        _ => None,
    }
}
