//! Threads of a run in memory, from the events that it retains. They have no steps: these follow from the journal of a store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::runs::events::event_log::{EventLog, ReadEvent, RecordedEvent};
use crate::runs::events::position::Position;
use pirn::{Event, EventType, ThreadKind, ThreadSpan, ThreadStatus};

/// Number of events that are read at once.
const PAGE: usize = 1_000;

/// Maximum size of the events that are read at once.
const PAGE_BYTES: usize = 1 << 20;

/// A fork whose paths have not all ended: its thread, its node and the ids of its paths.
struct OpenFork {
    thread_id: Arc<str>,
    node_id: Option<Arc<str>>,
    paths: Vec<String>,
}

/// A called or triggered thread, by its parent's event.
struct Announced {
    parent: Arc<str>,
    node: Option<Arc<str>>,
    trigger: Option<String>,
}

/// Returns the threads of the log's run that are in its events, in the order of their first steps.
pub(crate) fn of_log(log: &EventLog) -> Vec<ThreadSpan> {
    let mut threads = Threads::default();
    read_each(log, is_relevant, |event| threads.observe(event));
    threads.spans
}

/// Returns the threads of a run with these events, in the order of their first steps.
pub(crate) fn of_events(events: &[Event]) -> Vec<ThreadSpan> {
    let mut threads = Threads::default();
    let relevant = events.iter().filter(|event| is_relevant(event.raised.event_type));
    relevant.for_each(|event| threads.observe(event));
    threads.spans
}

/// Returns the ids of the workflows of the threads in the log's events, and the definitions of those that were written during the run,
/// by id.
pub(crate) fn workflows_in_log(log: &EventLog) -> (BTreeSet<Arc<str>>, BTreeMap<String, String>) {
    let (mut ids, mut written) = (BTreeSet::new(), BTreeMap::new());
    let is_start = |event_type| matches!(event_type, EventType::ThreadStarted | EventType::SubgraphStarted);
    read_each(log, is_start, |event| {
        if event.raised.event_type == EventType::ThreadStarted {
            ids.insert(Arc::clone(&event.workflow_id));
        }
        written.extend(written_by(event));
    });
    (ids, written)
}

/// Returns the id and the definition of the workflow that an event started, if it was written during the run.
pub(crate) fn written_by(event: &Event) -> Option<(String, String)> {
    let fields = &event.raised.fields;
    let definition = fields
        .get("definition")
        .filter(|_| event.raised.event_type == EventType::SubgraphStarted)?;
    Some((fields.get("subgraphId")?.as_str()?.to_owned(), definition.to_string()))
}

/// Passes the events of some types that the log retains, in order.
fn read_each(log: &EventLog, is_relevant: impl Fn(EventType) -> bool, mut observe: impl FnMut(&Event)) {
    let mut after = Position::START;
    loop {
        let page = log.after(after, PAGE, PAGE_BYTES);
        let Some(last) = page.events.last() else { return };
        after = last.position();
        let relevant = page.events.iter().filter(|event| is_relevant(event.event_type()));
        for ReadEvent { event, .. } in relevant.filter_map(RecordedEvent::read) {
            observe(&event);
        }
    }
}

fn is_relevant(event_type: EventType) -> bool {
    matches!(
        event_type,
        EventType::ThreadStarted
            | EventType::ThreadCompleted
            | EventType::ThreadFailed
            | EventType::ThreadCancelled
            | EventType::ThreadPaused
            | EventType::ThreadResumed
            | EventType::ThreadForkStarted
            | EventType::ThreadForkCompleted
            | EventType::SubgraphStarted
            | EventType::TriggeredSubgraphStarted
    )
}

#[derive(Default)]
struct Threads {
    spans: Vec<ThreadSpan>,
    places: BTreeMap<Arc<str>, usize>,
    forks: Vec<OpenFork>,
    announced: BTreeMap<String, Announced>,
}

impl Threads {
    fn observe(&mut self, event: &Event) {
        let text = |name: &str| event.raised.fields.get(name).and_then(Value::as_str);
        match event.raised.event_type {
            EventType::ThreadStarted => self.start(event),
            EventType::ThreadCompleted | EventType::ThreadFailed | EventType::ThreadCancelled => {
                if let Some(span) = self.span(event) {
                    span.ended_at = Some(event.timestamp);
                    span.status = status(text("status"));
                }
            }
            EventType::ThreadPaused => self.set_status(event, ThreadStatus::Paused),
            EventType::ThreadResumed => self.set_status(event, ThreadStatus::Running),
            EventType::ThreadForkStarted => {
                let paths = event.raised.fields.get("forkPathIds").and_then(Value::as_array);
                let paths = paths.into_iter().flatten();
                self.forks.push(OpenFork {
                    thread_id: Arc::clone(&event.thread_id),
                    node_id: text("nodeId").map(Arc::from),
                    paths: paths.filter_map(Value::as_str).map(str::to_owned).collect(),
                });
            }
            EventType::ThreadForkCompleted => {
                let node = text("nodeId");
                self.forks
                    .retain(|fork| fork.thread_id != event.thread_id || fork.node_id.as_deref() != node);
            }
            EventType::SubgraphStarted | EventType::TriggeredSubgraphStarted => {
                if let Some(child) = text("childThreadId") {
                    let announced = Announced {
                        parent: Arc::clone(&event.thread_id),
                        node: text("nodeId").or(text("currentNodeId")).map(Arc::from),
                        trigger: text("triggerId").map(str::to_owned),
                    };
                    match self.places.get(child) {
                        Some(place) => announced.apply(&mut self.spans[*place]),
                        None => drop(self.announced.insert(child.to_owned(), announced)),
                    }
                }
            }
            _other => {}
        }
    }

    fn start(&mut self, event: &Event) {
        let text = |name: &str| event.raised.fields.get(name).and_then(Value::as_str);
        let mut span = ThreadSpan {
            thread_id: Arc::clone(&event.thread_id),
            parent_id: None,
            kind: kind(text("kind")),
            path_id: text("pathId").map(Arc::from),
            workflow_id: Arc::clone(&event.workflow_id),
            trigger_id: None,
            node_id: None,
            started_step: 0,
            ended_step: None,
            started_at: event.timestamp,
            ended_at: None,
            status: ThreadStatus::Running,
        };
        if let Some(announced) = self.announced.remove(&*event.thread_id) {
            announced.apply(&mut span);
        } else if let Some(path) = &span.path_id {
            let mut forks = self
                .forks
                .iter()
                .filter(|fork| fork.paths.iter().any(|id| **id == **path));
            // Two open forks with a path of this id do not tell which of them started the thread.
            if let (Some(fork), None) = (forks.next(), forks.next()) {
                span.parent_id = Some(Arc::clone(&fork.thread_id));
                span.node_id.clone_from(&fork.node_id);
            }
        }
        self.places.insert(Arc::clone(&event.thread_id), self.spans.len());
        self.spans.push(span);
    }

    fn span(&mut self, event: &Event) -> Option<&mut ThreadSpan> {
        let place = *self.places.get(&event.thread_id)?;
        self.spans.get_mut(place)
    }

    fn set_status(&mut self, event: &Event, status: ThreadStatus) {
        if let Some(span) = self.span(event) {
            span.status = status;
        }
    }
}

impl Announced {
    fn apply(self, span: &mut ThreadSpan) {
        span.parent_id = Some(self.parent);
        span.node_id = self.node;
        span.trigger_id = self.trigger;
    }
}

fn kind(word: Option<&str>) -> ThreadKind {
    let all = [ThreadKind::Branch, ThreadKind::Subgraph, ThreadKind::Triggered];
    let named = all.into_iter().find(|kind| Some(kind.as_str()) == word);
    named.unwrap_or(ThreadKind::Main)
}

fn status(word: Option<&str>) -> ThreadStatus {
    let all = [
        ThreadStatus::Completed,
        ThreadStatus::Failed,
        ThreadStatus::Cancelled,
        ThreadStatus::Timeout,
    ];
    let named = all.into_iter().find(|status| Some(status.as_str()) == word);
    named.unwrap_or(ThreadStatus::Completed)
}
