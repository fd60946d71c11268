//! The invariants of a run that hold in every interleaving.

use std::collections::{BTreeMap, BTreeSet};

use pirn::{EventType, FiringOutcome, ThreadStatus};
use pirn_core::thread::NodeStatus;
use pirn_events::event::Event;
use pirn_tests::world::Ran;

use serde_json::{Value, json};

use super::cast::{Notes, summarized, unpadded, unpadded_all};
use super::shapes::{Does, Shape, Watch};
use super::{stopped, waits};

/// Number of times that a run exercised each invariant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    compressed: usize,
    compressed_twice: usize,
    not_compressed: usize,
    appended_meanwhile: usize,
    added: usize,
    coalesced: u64,
    failed: usize,
    refused: usize,
    paused: usize,
    detached: usize,
    stopped: usize,
    stopped_waiting: usize,
    heard: usize,
    waited_in_vain: usize,
}

impl Coverage {
    pub(crate) fn add(&mut self, other: &Self) {
        self.compressed += other.compressed;
        self.compressed_twice += other.compressed_twice;
        self.not_compressed += other.not_compressed;
        self.appended_meanwhile += other.appended_meanwhile;
        self.added += other.added;
        self.coalesced += other.coalesced;
        self.failed += other.failed;
        self.refused += other.refused;
        self.paused += other.paused;
        self.detached += other.detached;
        self.stopped += other.stopped;
        self.stopped_waiting += other.stopped_waiting;
        self.heard += other.heard;
        self.waited_in_vain += other.waited_in_vain;
    }

    /// Asserts that the random scenarios exercised every invariant, since a scenario without the case proves nothing.
    pub(crate) fn assert_exercised(&self) {
        assert!(
            self.compressed > 30
                && self.compressed_twice > 3
                && self.not_compressed > 10
                && self.appended_meanwhile > 5
                && self.added > 20
                && self.coalesced > 3
                && self.failed > 10
                && self.refused > 0
                && self.paused > 5
                && self.detached > 5
                && self.stopped > 5
                && self.stopped_waiting > 0
                && self.heard > 10
                && self.waited_in_vain > 10,
            "{self:?}"
        );
    }
}

/// Compares a run with the run of its scenario without triggers.
pub(crate) fn check(seed: u64, shape: &Shape, ran: &Ran, plain: &Ran, notes: &Notes) -> Coverage {
    let case = format!("seed {seed}: {}", describe(shape));
    assert_eq!(notes.wrong(), Vec::<String>::new(), "{case}");
    assert_eq!(plain.report.status, ThreadStatus::Completed, "{case}");
    let is_stopped = stopped::is_stopped(&case, shape, ran);
    let (ways, plain_ways) = (way(shape, ran), way(shape, plain));
    if is_stopped {
        stopped::assert_prefix_of_path(&case, &ways, &plain_ways);
        stopped::assert_messages_of_completed_nodes(&case, ran, plain);
    } else {
        assert_eq!(ways, plain_ways, "{case}: main's way is its own");
        assert_messages_once_in_order(&case, ran, plain);
    }
    assert_no_duplicate_visible_message(&case, ran);
    waits::assert_wait_ends_at_first_event(&case, shape, ran);
    waits::assert_wait_ends_at_first_event(&case, shape, plain);
    added_where_completed(&case, shape, ran);
    one_at_a_time(&case, ran);
    in_order(&case, ran);
    accounted_for(&case, shape, ran, notes, shape.is_calm && !is_stopped);
    count(shape, ran)
}

/// Returns the nodes that the main thread entered and how they ended. For a node that waits for an event, the status is omitted:
/// the event may arrive in time in one run and late in another.
fn way(shape: &Shape, ran: &Ran) -> Vec<(String, Option<NodeStatus>, u32)> {
    let nodes = ran.report.nodes.iter();
    nodes
        .map(|node| {
            let is_settled = !shape.waits.contains_key(&*node.node_id);
            (
                node.node_id.to_string(),
                is_settled.then_some(node.status),
                node.attempts,
            )
        })
        .collect()
}

/// Returns the visible messages without those that triggers added, each once, with summaries expanded.
pub(super) fn own(ran: &Ran) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut said = unpadded_all(ran.visible());
    // A summary may include messages of the current turn, which also stay visible after it.
    said.retain(|unpadded| !unpadded.starts_with("trig ") && seen.insert(unpadded.clone()));
    said
}

fn describe(shape: &Shape) -> String {
    let watches: Vec<String> = shape
        .watches
        .iter()
        .map(|watch| {
            format!(
                "{} {:?} on {} {:?}",
                watch.id, watch.does, watch.event_type, watch.node_id
            )
        })
        .collect();
    format!("calm {}, {watches:?}", shape.is_calm)
}

/// Asserts that the visible messages, with summaries expanded, equal those of the run without triggers, in order and without
/// duplicates.
fn assert_messages_once_in_order(case: &str, ran: &Ran, plain: &Ran) {
    assert_eq!(own(ran), unpadded_all(plain.visible()), "{case}: {:?}", ran.visible());
    // Archived messages are not deleted: the complete history has every message verbatim.
    let messages = &ran.report.conversation.messages;
    let words: BTreeSet<&str> = messages.iter().map(|message| message.content.as_str()).collect();
    for message in &plain.report.conversation.messages {
        assert!(
            words.contains(message.content.as_str()),
            "{case}: {} is gone",
            message.content
        );
    }
}

/// Asserts that no message is visible twice outside of summaries, and that the system message is first.
fn assert_no_duplicate_visible_message(case: &str, ran: &Ran) {
    let visible = ran.visible();
    let mut verbatim = BTreeSet::new();
    for content in visible.iter().filter(|content| summarized(content).is_none()) {
        let unpadded = unpadded(content);
        assert!(
            verbatim.insert(unpadded.clone()),
            "{case}: {unpadded} occurs twice in {visible:?}"
        );
    }
    assert_eq!(visible.first(), Some(&"You are kind."), "{case}");
}

/// Asserts that messages of a trigger are in the conversation once if its firing completed, and absent otherwise.
fn added_where_completed(case: &str, shape: &Shape, ran: &Ran) {
    let mut said = unpadded_all(ran.visible());
    let mut seen = BTreeSet::new();
    said.retain(|unpadded| unpadded.starts_with("trig ") && seen.insert(unpadded.clone()));
    let adds: BTreeSet<&str> = of(shape, Does::Add).map(|watch| watch.id.as_str()).collect();
    // A fork returns only the conversation of its main path.
    let survives = |thread: &str| {
        let thread = ran.report.threads.iter().find(|report| *report.thread_id == *thread);
        thread.is_some_and(|report| report.path_id.as_ref().is_none_or(|path| path.ends_with("p0")))
    };
    let completed = ran.report.firings.iter().filter(|firing| {
        adds.contains(firing.trigger_id.as_str())
            && firing.outcome == FiringOutcome::Completed
            && survives(&firing.main_thread_id)
    });
    assert_eq!(
        said.len(),
        completed.count(),
        "{case}: {said:?} {:?}",
        ran.report.firings
    );
}

/// Asserts that a thread has at most one triggered sub-workflow at a time, and that every started firing has ended.
fn one_at_a_time(case: &str, ran: &Ran) {
    let mut running: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open: BTreeSet<u64> = BTreeSet::new();
    for event in &ran.events {
        let field = |name: &str| event.raised.fields.get(name);
        let firing = field("firing").and_then(Value::as_u64).unwrap_or_default();
        let child = field("childThreadId").and_then(Value::as_str).unwrap_or_default();
        match event.raised.event_type {
            EventType::TriggeredSubgraphStarted => {
                let before = running.insert(&event.thread_id, child);
                assert_eq!(before, None, "{case}: two at once for {}", event.thread_id);
                open.insert(firing);
            }
            EventType::TriggeredSubgraphCompleted | EventType::TriggeredSubgraphFailed => {
                open.remove(&firing);
            }
            EventType::ThreadCompleted | EventType::ThreadFailed | EventType::ThreadCancelled => {
                running.retain(|_, child| **child != *event.thread_id);
            }
            _other => {}
        }
    }
    assert!(
        running.is_empty() && open.is_empty(),
        "{case}: never ended: {running:?} {open:?}"
    );
    for firing in &ran.report.firings {
        let is_over = firing.outcome != FiringOutcome::Open;
        let is_detached = firing.thread_id.is_empty();
        assert!(is_over || is_detached, "{case}: {firing:?}");
        assert_eq!(
            firing.error.is_some(),
            matches!(firing.outcome, FiringOutcome::Failed | FiringOutcome::Refused),
            "{case}: {firing:?}"
        );
    }
}

/// Asserts that timestamps never decrease, and that no node ends before it has started.
fn in_order(case: &str, ran: &Ran) {
    let times: Vec<u64> = ran.events.iter().map(|event| event.timestamp).collect();
    assert!(times.is_sorted(), "{case}: {times:?}");
    let mut inside: BTreeMap<&str, &str> = BTreeMap::new();
    for event in &ran.events {
        let node = event.raised.fields.get("nodeId").and_then(Value::as_str);
        match (event.raised.event_type, node) {
            (EventType::NodeStarted, Some(node)) => {
                inside.insert(&event.thread_id, node);
            }
            (EventType::NodeCompleted | EventType::NodeFailed, Some(node)) => {
                let began = inside.remove(&*event.thread_id);
                assert_eq!(began, Some(node), "{case}: {event:?}");
            }
            _other => {}
        }
    }
}

/// Asserts that every event matched by a trigger had an effect, up to `maxTriggers`. In a calm run the counts are equal. A run
/// that ends while triggers are active may have fewer effects, but never more.
fn accounted_for(case: &str, shape: &Shape, ran: &Ran, notes: &Notes, is_calm: bool) {
    for watch in &shape.watches {
        let matches = ran.events.iter().filter(|event| is_match(watch, event)).count() as u64;
        let expected = watch.max.map_or(matches, |max| matches.min(max));
        let counted = match watch.does {
            Does::Squeeze | Does::SqueezeDetached | Does::Add | Does::Assign | Does::Fail | Does::Start => {
                let records = ran.report.firings.iter();
                records
                    .filter(|firing| firing.trigger_id == watch.id)
                    .map(|firing| 1 + firing.coalesced)
                    .sum()
            }
            Does::Custom => notes.counted(&watch.id),
            Does::Notify => {
                let said = ran.of(EventType::Notification).into_iter();
                said.filter(|event| event.raised.fields["triggerId"] == watch.id.as_str())
                    .count() as u64
            }
            Does::SetVariable | Does::Pause | Does::Resume | Does::Stop => continue,
        };
        if is_calm {
            assert_eq!(counted, expected, "{case}: {}: {:?}", watch.id, ran.report.firings);
        } else {
            assert!(counted <= expected, "{case}: {}: {counted} of {expected}", watch.id);
        }
    }
    let assigns: u64 = of(shape, Does::SetVariable)
        .map(|watch| {
            let matches = ran.events.iter().filter(|event| is_match(watch, event)).count() as u64;
            watch.max.map_or(matches, |max| matches.min(max))
        })
        .sum();
    let changed = ran.of(EventType::VariableChanged).into_iter();
    let changed = changed.filter(|event| event.raised.fields["name"] == "t").count() as u64;
    assert!(
        changed <= assigns && (changed == assigns || !is_calm),
        "{case}: {changed} of {assigns}"
    );
}

pub(super) fn of(shape: &Shape, does: Does) -> impl Iterator<Item = &Watch> {
    shape.watches.iter().filter(move |watch| watch.does == does)
}

pub(super) fn is_match(watch: &Watch, event: &Event) -> bool {
    event.raised.event_type.as_str() == watch.event_type
        && (watch.everywhere || &*event.workflow_id == "main")
        && watch
            .node_id
            .as_ref()
            .is_none_or(|node| event.raised.fields.get("nodeId") == Some(&json!(node)))
}

fn count(shape: &Shape, ran: &Ran) -> Coverage {
    let is_stopped = ran.report.status == ThreadStatus::Cancelled;
    let last = ran.report.nodes.last();
    let waits = |event_type| {
        let ended = ran.of(event_type).into_iter();
        ended.filter(|event| waits::event_of(shape, event).is_some()).count()
    };
    let compressed = ran.of(EventType::CompressionCompleted).len();
    let firings = &ran.report.firings;
    let of = |outcome| firings.iter().filter(|firing| firing.outcome == outcome).count();
    let visible = ran.visible();
    let after = visible.iter().position(|content| summarized(content).is_some());
    Coverage {
        compressed,
        compressed_twice: usize::from(compressed > 1),
        not_compressed: ran.of(EventType::CompressionFailed).len(),
        appended_meanwhile: usize::from(after.is_some_and(|at| visible.len() > at + 3)),
        added: unpadded_all(visible)
            .iter()
            .filter(|unpadded| unpadded.starts_with("trig "))
            .count(),
        coalesced: firings.iter().map(|firing| firing.coalesced).sum(),
        failed: of(FiringOutcome::Failed),
        refused: of(FiringOutcome::Refused),
        paused: ran.of(EventType::ThreadPaused).len(),
        detached: firings.iter().filter(|firing| firing.thread_id.is_empty()).count(),
        stopped: usize::from(is_stopped),
        stopped_waiting: usize::from(is_stopped && last.is_some_and(|node| shape.waits.contains_key(&*node.node_id))),
        heard: waits(EventType::NodeCompleted),
        waited_in_vain: waits(EventType::NodeFailed),
    }
}
