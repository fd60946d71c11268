//! Threads of a stored run over time, collected while the run is replayed.

use std::sync::Arc;

use pirn_core::run::{Effect, Origin, ReplayStep, RunMachine, ThreadNo};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{ThreadId, ThreadKind};
use pirn_definition::Millis;
use serde::Serialize;

/// A thread of a run, with the steps of its start and its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadSpan {
    /// Id of the thread.
    pub thread_id: Arc<str>,
    /// Thread that started it, or whose event fired its trigger; `None` for the main thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<Arc<str>>,
    /// Kind of the thread.
    pub kind: ThreadKind,
    /// Id of its fork path; index of its item for a thread of a MAP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_id: Option<Arc<str>>,
    /// Id of its workflow.
    pub workflow_id: Arc<str>,
    /// Trigger that started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_id: Option<String>,
    /// Node of the parent that started it; for a triggered thread, the node at which the parent was when the trigger fired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<Arc<str>>,
    /// Step in which it was created.
    pub started_step: u64,
    /// Step in which it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_step: Option<u64>,
    /// Time of its creation in milliseconds since 1970.
    pub started_at: u64,
    /// Time of its end in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Status as of the viewed step.
    pub status: ThreadStatus,
}

/// Collects the threads of a replayed run.
#[derive(Default)]
pub(in crate::engine::durable) struct ThreadWatch {
    step: u64,
    spans: Vec<WatchedThread>,
}

struct WatchedThread {
    parent: Option<ThreadNo>,
    trigger_id: Option<String>,
    node_id: Option<Arc<str>>,
    started: (u64, Millis),
    ended: Option<(u64, Millis)>,
}

impl ThreadWatch {
    pub(in crate::engine::durable) fn saw(&mut self, machine: &RunMachine, replayed: &ReplayStep<'_>) {
        match replayed {
            ReplayStep::Input(_) => self.step += 1,
            ReplayStep::Effects(at, effects) => {
                // In the step that creates a thread its parent still is at the node that started it.
                for thread in self.spans.len()..machine.len() {
                    self.spans
                        .push(WatchedThread::created(machine, thread as ThreadNo, (self.step, *at)));
                }
                for effect in effects.iter() {
                    if let Effect::ThreadEnded { thread } = effect
                        && let Some(span) = self.spans.get_mut(*thread as usize)
                    {
                        // The first end counts: a thread may panic after it has ended.
                        span.ended.get_or_insert((self.step, *at));
                    }
                }
            }
        }
    }

    /// Returns the threads in start order, with their status in the rebuilt run.
    pub(in crate::engine::durable) fn spans(self, machine: &RunMachine) -> Vec<ThreadSpan> {
        let run_id = machine.run_id();
        let id = |thread: ThreadNo| ThreadId::written(run_id, thread as usize);
        let reports = machine.status().threads;
        let spans = reports.into_iter().zip(self.spans);
        spans
            .map(|(report, span)| ThreadSpan {
                thread_id: report.thread_id,
                parent_id: span.parent.map(id),
                kind: report.kind,
                path_id: report.path_id,
                workflow_id: report.workflow_id,
                trigger_id: span.trigger_id,
                node_id: span.node_id,
                started_step: span.started.0,
                ended_step: span.ended.map(|(step, _)| step),
                started_at: span.started.1,
                ended_at: span.ended.map(|(_, at)| at),
                status: report.status,
            })
            .collect()
    }
}

impl WatchedThread {
    fn created(machine: &RunMachine, thread: ThreadNo, started: (u64, Millis)) -> Self {
        let parent = machine.parent(thread);
        let (trigger_id, node_id) = match machine.origin(thread) {
            Some((Origin::Branch { ix, .. }, graph)) => {
                let fork = graph.fork(ix).fork_node;
                (None, Some(Arc::clone(&graph.node(fork).id)))
            }
            Some((Origin::Triggered { firing }, _)) => {
                let firing = machine.firing(firing);
                let node_id = firing.and_then(|firing| firing.current_node_id.as_deref());
                (firing.map(|firing| firing.trigger_id.clone()), node_id.map(Arc::from))
            }
            Some((Origin::Item { .. } | Origin::Called { .. }, _)) => {
                let caller = parent.and_then(|parent| machine.live(parent));
                (
                    None,
                    caller.map(|caller| Arc::clone(&caller.graph().node(caller.node()).id)),
                )
            }
            Some((Origin::Main, _)) | None => (None, None),
        };
        Self {
            parent,
            trigger_id,
            node_id,
            started,
            ended: None,
        }
    }
}
