//! The variables that all threads of a run share, and the VARIABLE nodes whose values are evaluated on another thread.
//!
//! The read and the write of one assignment are one step. A value that is evaluated inline is assigned in the same turn. A value
//! that is evaluated elsewhere is requested by [`Globals::request`]: for each variable one evaluation is under way, and others
//! wait in the order of their requests, so that N threads cost N evaluations. Where a variable that the expression may read is
//! written meanwhile (inline, by a trigger, by the host, or by an assignment to another variable), the result is stale and the
//! expression is evaluated again. Each repetition follows another thread's write, so threads cannot block each other.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ThreadNo;
use super::step::Step;
use crate::definition::VariableScope;
use crate::error::RunError;
use crate::graph::{Graph, NodeIx, NodeKind};
use crate::script::{Names, Used};
use crate::thread::{Effect, EffectId, Evaluation, Variable, Variables};

/// The variables of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Globals {
    variables: Variables,
    /// None while no assignment is evaluated elsewhere, as in most runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<Box<Pending>>,
}

/// Assignments whose values are evaluated elsewhere.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Pending {
    /// By variable, in the order of the requests. The first is under way or about to start. No queue is empty.
    queues: BTreeMap<Arc<str>, BTreeMap<Ticket, Request>>,
    /// The place of a thread's request; a thread has one at a time.
    places: BTreeMap<ThreadNo, (Arc<str>, Ticket)>,
    /// The last ticket.
    tickets: Ticket,
    /// Number of writes since the first request.
    writes: u64,
    /// By variable, the number of its last write.
    written: BTreeMap<Arc<str>, u64>,
}

/// The number of a request, in the order of requests.
pub(super) type Ticket = u64;

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    thread: ThreadNo,
    effect: EffectId,
    node: NodeIx,
    what: Evaluation,
    /// The number of writes before its evaluation started; none: it waits.
    started: Option<u64>,
}

/// An evaluation that has ended.
#[derive(Debug)]
pub(super) enum Evaluated {
    /// Its variables are as it read them. The next thread of its queue goes on.
    Fresh(Option<ThreadNo>),
    /// A variable that it may have read was written meanwhile: this is done again.
    Stale(Effect),
    /// No assignment waits for it.
    Other,
}

impl Deref for Globals {
    type Target = Variables;

    fn deref(&self) -> &Variables {
        &self.variables
    }
}

impl Globals {
    /// Assigns a variable of the run: every thread sees it from then on. Returns the value as its type has it.
    pub(super) fn assign(
        &mut self,
        step: &mut Step<'_>,
        name: &Arc<str>,
        value: Arc<Value>,
        readonly: bool,
    ) -> Result<Arc<Value>, RunError> {
        let value = self.variables.assign(name, value, readonly)?;
        self.note_write(name);
        step.world.shared(format_args!("variable {name} {readonly}"), &value);
        Ok(value)
    }

    /// Sets a variable as its definition has it.
    pub(super) fn define(&mut self, name: &Arc<str>, variable: Variable) {
        self.variables.define(Arc::clone(name), variable);
        self.note_write(name);
    }

    /// The variable is handed on to the next run of the session from now on.
    pub(super) fn hand_on(&mut self, name: &str) {
        self.variables.hand_on(name);
    }

    fn note_write(&mut self, name: &Arc<str>) {
        if let Some(pending) = &mut self.pending {
            pending.writes += 1;
            pending.written.insert(Arc::clone(name), pending.writes);
        }
    }

    /// Requests the evaluation of a node's value elsewhere. Returns the ticket of one that waits; none where it starts at once.
    pub(super) fn request(
        &mut self,
        thread: ThreadNo,
        (effect, node, what): (EffectId, NodeIx, &Evaluation),
        name: &Arc<str>,
    ) -> Option<Ticket> {
        let pending = self.pending.get_or_insert_default();
        pending.tickets += 1;
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
                started: starts.then_some(pending.writes),
            },
        );
        pending.places.insert(thread, (Arc::clone(name), ticket));
        (!starts).then_some(ticket)
    }

    /// Starts the evaluation of a thread that has waited and is the first now.
    pub(super) fn start(&mut self, thread: ThreadNo) -> Option<Effect> {
        let pending = self.pending.as_mut()?;
        let (name, ticket) = pending.places.get(&thread)?;
        let mut first = pending.queues.get_mut(name)?.first_entry()?;
        let request = first.get_mut();
        if request.started.is_some() || first.key() != ticket {
            return None;
        }
        let request = first.get_mut();
        request.started = Some(pending.writes);
        Some(request.evaluate())
    }

    /// An evaluation of a thread has ended.
    pub(super) fn evaluated(&mut self, graph: &Graph, thread: ThreadNo, effect: EffectId) -> Evaluated {
        let Some(pending) = &mut self.pending else {
            return Evaluated::Other;
        };
        let Some(request) = pending.request(thread).filter(|request| request.effect == effect) else {
            return Evaluated::Other;
        };
        let (node, started) = (request.node, request.started.unwrap_or(0));
        if pending.writes > started && pending.may_have_read(graph, node, started) {
            let writes = pending.writes;
            if let Some(request) = pending.request(thread) {
                request.started = Some(writes);
                return Evaluated::Stale(request.evaluate());
            }
        }
        Evaluated::Fresh(self.withdraw(thread).and_then(|(_, next)| next))
    }

    /// True if a thread has requested this evaluation.
    pub(super) fn has_requested(&mut self, thread: ThreadNo, effect: EffectId) -> bool {
        let request = self.pending.as_mut().and_then(|pending| pending.request(thread));
        request.is_some_and(|request| request.effect == effect)
    }

    /// Removes a thread's request. Returns whether it was under way, and the thread that goes on instead.
    pub(super) fn withdraw(&mut self, thread: ThreadNo) -> Option<(bool, Option<ThreadNo>)> {
        let pending = self.pending.as_mut()?;
        let (name, ticket) = pending.places.remove(&thread)?;
        let queue = pending.queues.get_mut(&name)?;
        let was_first = queue.first_key_value().is_some_and(|(first, _)| *first == ticket);
        let was_started = queue.remove(&ticket).is_some_and(|request| request.started.is_some());
        let next = queue.values().next().filter(|_| was_first).map(|next| next.thread);
        if queue.is_empty() {
            pending.queues.remove(&name);
        }
        if pending.places.is_empty() {
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

    /// True if a variable that a node's expression can name was written after so many writes.
    fn may_have_read(&self, graph: &Graph, node: NodeIx, after: u64) -> bool {
        let NodeKind::Variable { expression, .. } = &graph.node(node).kind else {
            return true;
        };
        let names = Names::of(&graph.snippet(*expression).source);
        let is_named = |name: &str| match names.variables() {
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

/// The variable of the run that a node assigns the result of an evaluation to.
pub(super) fn assigned(graph: &Graph, node: NodeIx, what: &Evaluation) -> Option<Arc<str>> {
    match (&graph.node(node).kind, what) {
        (NodeKind::Variable { name, scope, .. }, Evaluation::Value(_)) if *scope != VariableScope::Thread => {
            Some(Arc::clone(name))
        }
        _ => None,
    }
}
