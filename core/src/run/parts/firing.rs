//! Triggered sub-workflows: the states of a trigger's firing, and the order of the firings of one thread.
//!
//! | state | its turn | prepared | thread starts | run starts | its end | applied | failure | main thread ends |
//! |---|---|---|---|---|---|---|---|---|
//! | Queued | **Preparing** | - | - | - | - | - | - | **Over**, refused |
//! | Preparing | - | copies input and conversation | **Running** | **Detached** | - | - | **Over**, failed | **Over**, refused |
//! | Running | - | - | - | - | success: **Returning**; else **Over**, failed | - | **Over**, failed | thread is cancelled |
//! | Detached | - | - | - | - | compression: **Returning**; else **Over** | - | **Over**, failed | -: its run ends later |
//! | Returning | - | - | - | - | - | **Over**, completed or failed | **Over**, failed | **Over**, failed: too late |
//! | Over | - | - | - | - | - | - | - | - |
//!
//! A `-` changes nothing.
//!
//! - One firing at a time prepares or runs for a thread, in firing order.
//! - A second firing of a trigger coalesces with the first one while that is queued or active for the thread.
//! - The number of queued firings of a thread is bounded; further firings are refused.
//! - A firing whose result waits for a safe point does not block the next one if another firing holds the thread. Otherwise the two
//!   would deadlock: a thread that is held before a model call applies only compressions.
//! - An early compression (TOKEN_LIMIT_APPROACHED) holds no thread and blocks only other compressions. If the thread exceeds its
//!   limit before the compression ends, and the trigger has `waitForCompletion`, the thread waits for it and then checks the limit
//!   again.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use pirn_conversation::conversation::{Basis, Conversation};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{Graph, Node};
use pirn_definition::value::memory;
use serde::{Deserialize, Serialize};

use crate::run::ThreadNo;
use crate::run::data::message::TriggerContext;
use crate::run::data::report::{FiringOutcome, FiringReport, NodeReport};
use crate::run::data::trigger::Firing;
use crate::thread::{FiringId, Variables};

/// Maximum number of open firings of one thread; further firings are refused.
const QUEUE_LIMIT: usize = 16;

/// State of a firing. The module documentation has the transition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::run) enum FiringState {
    Queued,
    /// The thread's state was requested.
    Preparing,
    Running(ThreadNo),
    /// A detached run executes; the thread does not wait.
    Detached,
    /// The thread has received the result and applies it at its next safe point.
    Returning,
    Over,
}

/// A firing with its state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::run) struct FiringRun {
    pub(in crate::run) firing: Firing,
    pub(in crate::run) main: ThreadNo,
    state: FiringState,
    /// Snapshot of the main thread's conversation that the child received.
    pub(in crate::run) basis: Option<Box<(Basis, Conversation)>>,
    /// Variables of the main thread in that snapshot.
    pub(in crate::run) variables: Variables,
    pub(in crate::run) report: FiringReport,
    pub(in crate::run) nodes: Vec<NodeReport>,
    /// Firing that holds the thread until this early compression ends. Set if the thread exceeded its limit before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    awaited_by: Option<FiringId>,
}

impl FiringRun {
    fn new((id, firing): (FiringId, Firing), main: ThreadNo, state: FiringState) -> Self {
        let report = FiringReport {
            firing: id,
            trigger_id: firing.trigger.id.clone(),
            main_thread_id: firing.event.thread_id.to_string(),
            current_node_id: None,
            next_node_id: None,
            timestamp: firing.event.timestamp,
            thread_id: String::new(),
            status: None,
            outcome: FiringOutcome::Open,
            coalesced: 0,
            error: None,
            warnings: Vec::new(),
            nodes: Vec::new(),
        };
        Self {
            firing,
            main,
            state,
            basis: None,
            variables: Variables::default(),
            report,
            nodes: Vec::new(),
            awaited_by: None,
        }
    }

    /// Returns the memory of the event in bytes.
    pub(in crate::run) fn event_memory(&self) -> u64 {
        match self.state {
            // `end` has dropped the fields of the event.
            FiringState::Over => 0,
            _ => memory(&self.firing.event.to_json()),
        }
    }

    fn holds(&self) -> bool {
        self.firing.holds() || self.awaited_by.is_some()
    }

    /// Takes the firing that holds the thread until this one ends.
    pub(in crate::run) fn take_awaiting(&mut self) -> Option<FiringId> {
        self.awaited_by.take()
    }

    pub(in crate::run) fn state(&self) -> FiringState {
        self.state
    }

    /// Records the thread's current node, and its next node if there is exactly one edge.
    pub(in crate::run) fn set_location(&mut self, graph: &Graph, node: &Node) {
        self.report.current_node_id = Some(node.id.to_string());
        self.report.next_node_id = match node.edges.as_slice() {
            // With several edges the next node depends on conditions that have not been evaluated.
            [edge] => Some(graph.node(edge.target).id.to_string()),
            _ => None,
        };
    }

    /// Stores a snapshot of the thread. The result of the firing is compared with it.
    pub(in crate::run) fn set_basis(&mut self, prepared: &TriggerContext) {
        let conversation = &prepared.conversation;
        // The clone shares all messages. `change_of` finds with it whether the child has changed them.
        self.basis = Some(Box::new((conversation.basis(), conversation.clone())));
        self.variables = prepared.variables.clone();
    }

    fn end(&mut self, outcome: FiringOutcome, error: Option<RunError>) {
        self.state = FiringState::Over;
        self.report.outcome = outcome;
        self.report.error = error;
        // These are not read again. A run with thousands of firings would otherwise hold all their events and snapshots.
        self.firing.forget_event();
        self.basis = None;
        self.variables = Variables::default();
    }
}

/// Result of admitting a firing.
#[derive(Debug, PartialEq)]
pub(in crate::run) enum FiringAdmission {
    /// The firing is queued.
    Queued,
    /// A firing of this trigger is already queued or active for the thread. The new one is counted there and dropped.
    Coalesced,
    /// An early compression of this trigger is active. The new firing holds the thread until that ends.
    Awaits,
    /// The firing is not started.
    Refused(RunError),
}

/// Action for a firing whose main thread has ended.
#[derive(Debug, PartialEq)]
pub(in crate::run) enum AbandonAction {
    /// Cancel the thread of the firing.
    Stop(ThreadNo),
    /// The firing is over; its thread was not started.
    NeverBegan(RunError),
    /// The firing is over; its result is discarded.
    TooLate,
    /// No action: the detached run of the firing has not ended yet.
    Nothing,
}

/// Every firing of a run. Empty for most runs, which then allocate nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct Firings(Option<Box<AllFirings>>);

impl Deref for Firings {
    type Target = AllFirings;

    fn deref(&self) -> &AllFirings {
        // Reads of a run without firings see an empty value and allocate nothing.
        static NONE: AllFirings = AllFirings {
            all: BTreeMap::new(),
            open: BTreeMap::new(),
            last: 0,
            holding: BTreeMap::new(),
        };
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Firings {
    fn deref_mut(&mut self) -> &mut AllFirings {
        self.0.get_or_insert_default()
    }
}

impl Firings {
    /// Takes the firings that hold a thread and that it has not received yet.
    pub(in crate::run) fn take_holding(&mut self, main: ThreadNo) -> Vec<FiringId> {
        // Not through `DerefMut`, which would allocate for every thread of a run without firings.
        let all = self.0.as_deref_mut();
        all.and_then(|all| all.holding.remove(&main)).unwrap_or_default()
    }

    /// Ends the firings of a main thread that has ended, and returns the action for each.
    pub(in crate::run) fn abandon(&mut self, main: ThreadNo) -> Vec<(FiringId, AbandonAction)> {
        self.0.as_deref_mut().map(|all| all.abandon(main)).unwrap_or_default()
    }
}

/// Content of [`Firings`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct AllFirings {
    all: BTreeMap<FiringId, FiringRun>,
    /// Open firings by main thread, in firing order. Few at a time, even if a thread has had thousands.
    open: BTreeMap<ThreadNo, Vec<FiringId>>,
    /// Id of the last firing. Ids follow the order in which the run received the firings.
    #[serde(default)]
    last: FiringId,
    /// Firings that hold a thread and that it has not received yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    holding: BTreeMap<ThreadNo, Vec<FiringId>>,
}

impl AllFirings {
    pub(in crate::run) fn get(&self, id: FiringId) -> Option<&FiringRun> {
        self.all.get(&id)
    }

    pub(in crate::run) fn get_mut(&mut self, id: FiringId) -> Option<&mut FiringRun> {
        self.all.get_mut(&id)
    }

    pub(in crate::run) fn iter(&self) -> impl Iterator<Item = (&FiringId, &FiringRun)> {
        self.all.iter()
    }

    fn open(&self, main: ThreadNo) -> impl Iterator<Item = (FiringId, &FiringRun)> {
        // Only the open firings of the thread are visited, not all of the run.
        let open = self.open.get(&main).map_or(&[][..], Vec::as_slice);
        open.iter().filter_map(|id| Some((*id, self.all.get(id)?)))
    }

    /// Returns the threads that execute `main`'s firings.
    pub(in crate::run) fn threads(&self, main: ThreadNo) -> impl Iterator<Item = ThreadNo> {
        self.open(main).filter_map(|(_, run)| match run.state {
            FiringState::Running(thread) => Some(thread),
            FiringState::Queued
            | FiringState::Preparing
            | FiringState::Detached
            | FiringState::Returning
            | FiringState::Over => None,
        })
    }

    /// Allocates the id of the next firing.
    pub(in crate::run) fn next_id(&mut self) -> FiringId {
        self.last += 1;
        self.last
    }

    /// Adds a firing that holds the thread. The thread receives it at its next safe point.
    pub(in crate::run) fn hold(&mut self, main: ThreadNo, id: FiringId) {
        self.holding.entry(main).or_default().push(id);
    }

    /// Queues, coalesces or refuses a firing.
    pub(in crate::run) fn admit(
        &mut self,
        (id, firing): (FiringId, Firing),
        main: ThreadNo,
        is_live: bool,
    ) -> FiringAdmission {
        if !is_live {
            let error = RunError::new(RunErrorCode::Cancelled, "the thread had ended when its trigger fired");
            // Recorded although it never starts, so that the report lists every firing.
            return self.refuse((id, firing), main, error);
        }
        let same = |(id, run): (FiringId, &FiringRun)| (run.firing.trigger.id == firing.trigger.id).then_some(id);
        let same = self.open(main).find_map(same);
        if let Some(run) = same.and_then(|same| self.all.get_mut(&same)) {
            run.report.coalesced += 1;
            // At its limit, the thread waits for the compression that has started early instead of starting another one.
            if firing.holds() && run.firing.is_early() && run.awaited_by.is_none() {
                run.awaited_by = Some(id);
                return FiringAdmission::Awaits;
            }
            return FiringAdmission::Coalesced;
        }
        // After the search for the same trigger: a firing that coalesces needs no place in the queue.
        if self.open(main).count() >= QUEUE_LIMIT {
            let error = RunError::new(RunErrorCode::Overloaded, "too many triggers wait for this thread");
            return self.refuse((id, firing), main, error);
        }
        self.open.entry(main).or_default().push(id);
        self.all
            .insert(id, FiringRun::new((id, firing), main, FiringState::Queued));
        FiringAdmission::Queued
    }

    fn refuse(&mut self, (id, firing): (FiringId, Firing), main: ThreadNo, error: RunError) -> FiringAdmission {
        let mut run = FiringRun::new((id, firing), main, FiringState::Queued);
        run.end(FiringOutcome::Refused, Some(error.clone()));
        // Not in `open`: a refused firing blocks nothing.
        self.all.insert(id, run);
        FiringAdmission::Refused(error)
    }

    /// Adds a firing whose run needs nothing of the thread.
    pub(in crate::run) fn detached(&mut self, (id, firing): (FiringId, Firing), main: ThreadNo) -> &mut FiringRun {
        self.all
            .entry(id)
            // Not in `open`: the thread neither waits for this run nor cancels it.
            .or_insert_with(|| FiringRun::new((id, firing), main, FiringState::Detached))
    }

    /// Selects the thread's next firing and moves it to `Preparing`.
    pub(in crate::run) fn next_of(&mut self, main: ThreadNo) -> Option<FiringId> {
        let queued = |run: &FiringRun| run.state == FiringState::Queued;
        let is_held = self.open(main).any(|(_, run)| run.holds());
        // Results of compressions are excluded: a held thread applies these before its model call.
        let is_aside = |run: &FiringRun| is_held && run.state == FiringState::Returning && !run.firing.is_token_event();
        let is_kept_waiting = |next: &FiringRun| {
            let keeps = |run: &FiringRun| !queued(run) && !is_aside(run) && !passes(&next.firing, &run.firing);
            self.open(main).any(|(_, run)| keeps(run))
        };
        // FIFO, except that a blocked early compression does not block the firings behind it.
        let mut next = None;
        for (id, run) in self.open(main).filter(|(_, run)| queued(run)) {
            if !is_kept_waiting(run) {
                next = Some(id);
                break;
            }
            if !run.firing.is_early() {
                break;
            }
        }
        let next = next?;
        self.pass(next, FiringState::Queued, FiringState::Preparing)?;
        Some(next)
    }

    fn pass(&mut self, id: FiringId, from: FiringState, to: FiringState) -> Option<&mut FiringRun> {
        // A message about a firing may arrive after its end, for example after its thread ended. It then changes nothing.
        let run = self.all.get_mut(&id).filter(|run| run.state == from)?;
        run.state = to;
        Some(run)
    }

    /// Returns the firing if it is `Preparing`.
    pub(in crate::run) fn preparing(&mut self, id: FiringId) -> Option<&mut FiringRun> {
        self.all.get_mut(&id).filter(|run| run.state == FiringState::Preparing)
    }

    pub(in crate::run) fn started(&mut self, id: FiringId, thread: ThreadNo) {
        self.pass(id, FiringState::Preparing, FiringState::Running(thread));
    }

    pub(in crate::run) fn run_begun(&mut self, id: FiringId) {
        self.pass(id, FiringState::Preparing, FiringState::Detached);
    }

    /// Moves a firing to `Returning`: it succeeded, and its result is sent to the thread.
    pub(in crate::run) fn returning(&mut self, id: FiringId) {
        if let Some(run) = self.all.get_mut(&id)
            && matches!(run.state, FiringState::Running(_) | FiringState::Detached)
        {
            run.state = FiringState::Returning;
        }
    }

    /// Ends a firing: failed if there is an error, else completed. Returns false if it was over before.
    pub(in crate::run) fn over(&mut self, id: FiringId, error: Option<RunError>) -> bool {
        let outcome = match error {
            Some(_) => FiringOutcome::Failed,
            None => FiringOutcome::Completed,
        };
        self.end(id, outcome, error)
    }

    fn end(&mut self, id: FiringId, outcome: FiringOutcome, error: Option<RunError>) -> bool {
        let Some(run) = self.all.get_mut(&id).filter(|run| run.state != FiringState::Over) else {
            return false;
        };
        run.end(outcome, error);
        if let Some(open) = self.open.get_mut(&run.main) {
            // A scan of at most `QUEUE_LIMIT` elements, which keeps the firing order.
            open.retain(|other| *other != id);
            if open.is_empty() {
                self.open.remove(&run.main);
            }
        }
        true
    }

    /// Refuses a firing whose thread ended before the firing started.
    pub(in crate::run) fn never_began(&mut self, id: FiringId) -> RunError {
        let error = RunError::new(
            RunErrorCode::Cancelled,
            "the thread ended before the sub-workflow began",
        );
        self.end(id, FiringOutcome::Refused, Some(error.clone()));
        error
    }

    fn abandon(&mut self, main: ThreadNo) -> Vec<(FiringId, AbandonAction)> {
        // An ended thread does not take them.
        self.holding.remove(&main);
        // Copied, because `never_began` removes elements from `open`.
        let open: Vec<(FiringId, FiringState)> = self.open(main).map(|(id, run)| (id, run.state)).collect();
        open.into_iter()
            .map(|(id, state)| {
                let abandoned = match state {
                    // The state stays: `triggered_ended` ends the firing when its thread has ended.
                    FiringState::Running(thread) => AbandonAction::Stop(thread),
                    FiringState::Queued | FiringState::Preparing => AbandonAction::NeverBegan(self.never_began(id)),
                    // If the thread had applied the result, its message would have arrived before its end: messages are FIFO.
                    FiringState::Returning => AbandonAction::TooLate,
                    FiringState::Detached | FiringState::Over => AbandonAction::Nothing,
                };
                (id, abandoned)
            })
            .collect()
    }
}

/// Returns true if `firing` need not wait for `other`: an early compression blocks only other compressions.
fn passes(firing: &Firing, other: &Firing) -> bool {
    other.is_early() && !firing.is_token_event()
}

/// Returns the error for a result that arrives after the end of its thread.
pub(in crate::run) fn too_late() -> RunError {
    RunError::new(
        RunErrorCode::Cancelled,
        "the thread ended before the result could take effect",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pirn_definition::definition::TriggerDefinition;
    use pirn_definition::event_type::EventType;
    use pirn_events::event::{Event, RaisedEvent};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn firing(id: FiringId, trigger: usize, holds: bool, event_type: EventType) -> (FiringId, Firing) {
        let trigger: TriggerDefinition = serde_json::from_value(json!({
            "id": format!("t{trigger}"),
            "condition": {"eventType": event_type.as_str()},
            "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH",
                "parameters": {"triggeredWorkflowId": "w", "waitForCompletion": holds}},
        }))
        .unwrap();
        let firing = Firing {
            trigger: Arc::new(trigger),
            event: Arc::new(Event {
                sequence: id,
                timestamp: 0,
                run_id: "r".into(),
                workflow_id: "w".into(),
                thread_id: "r.0".into(),
                raised: RaisedEvent::new(event_type, []),
            }),
        };
        (id, firing)
    }

    fn plain(id: FiringId, trigger: usize) -> (FiringId, Firing) {
        firing(id, trigger, true, EventType::NodeCompleted)
    }

    #[test]
    fn firings_of_a_trigger_coalesce_per_thread_until_the_firing_is_over() {
        let mut firings = Firings::default();
        assert_eq!(firings.admit(plain(1, 1), 0, true), FiringAdmission::Queued);
        for id in [2, 3] {
            assert_eq!(firings.admit(plain(id, 1), 0, true), FiringAdmission::Coalesced);
        }
        assert_eq!(
            firings.admit(plain(4, 1), 7, true),
            FiringAdmission::Queued,
            "another thread's"
        );
        assert_eq!(firings.next_of(0), Some(1));
        firings.started(1, 5);
        assert_eq!(
            firings.admit(plain(5, 1), 0, true),
            FiringAdmission::Coalesced,
            "it runs"
        );
        assert!(firings.over(1, None));
        assert_eq!(firings.get(1).unwrap().report.coalesced, 3);
        assert_eq!(
            firings.admit(plain(6, 1), 0, true),
            FiringAdmission::Queued,
            "it is over"
        );
    }

    #[test]
    fn a_firing_over_the_queue_limit_is_refused() {
        let mut firings = Firings::default();
        for n in 0..QUEUE_LIMIT {
            assert_eq!(firings.admit(plain(n as FiringId, n), 0, true), FiringAdmission::Queued);
        }
        let refused = firings.admit(plain(99, 99), 0, true);
        assert!(matches!(refused, FiringAdmission::Refused(error) if error.code == RunErrorCode::Overloaded));
        let refused = firings.admit(plain(100, 100), 3, false);
        assert!(matches!(refused, FiringAdmission::Refused(error) if error.code == RunErrorCode::Cancelled));
        assert_eq!(firings.get(100).unwrap().report.outcome, FiringOutcome::Refused);
    }

    #[test]
    fn one_firing_runs_at_a_time_unless_the_other_waits_for_a_held_thread() {
        let mut firings = Firings::default();
        firings.admit(firing(1, 1, false, EventType::NodeCompleted), 0, true);
        firings.admit(firing(2, 2, true, EventType::TokenLimitExceeded), 0, true);
        assert_eq!(firings.next_of(0), Some(1));
        assert_eq!(firings.next_of(0), None, "one prepares");
        firings.started(1, 4);
        assert_eq!(firings.next_of(0), None, "one runs");
        firings.returning(1);
        assert_eq!(
            firings.next_of(0),
            Some(2),
            "the thread is held for 2 and cannot take 1 before"
        );
        firings.started(2, 5);
        firings.returning(2);
        firings.admit(plain(3, 3), 0, true);
        assert_eq!(firings.next_of(0), None, "a compression takes effect first");
        firings.over(2, None);
        assert_eq!(firings.next_of(0), Some(3));
    }

    #[test]
    fn an_early_compression_delays_only_other_compressions() {
        let mut firings = Firings::default();
        let early = |id, trigger| firing(id, trigger, true, EventType::TokenLimitApproached);
        assert!(!early(1, 1).1.holds());
        for (id, trigger) in [(1, 1), (2, 2)] {
            firings.admit(early(id, trigger), 0, true);
        }
        assert_eq!(firings.next_of(0), Some(1));
        firings.started(1, 4);
        assert_eq!(firings.next_of(0), None, "one compression at a time");
        for (id, trigger) in [(3, 3), (4, 4)] {
            firings.admit(plain(id, trigger), 0, true);
        }
        assert_eq!(firings.next_of(0), Some(3), "it passes both");
        assert_eq!(firings.next_of(0), None, "others are one at a time as ever");
        firings.started(3, 5);
        firings.returning(1);
        firings.over(3, None);
        assert_eq!(
            firings.next_of(0),
            Some(4),
            "also while its result waits for a safe point"
        );
        firings.over(4, None);
        firings.over(1, None);
        assert_eq!(firings.next_of(0), Some(2));
    }

    #[test]
    fn at_the_limit_the_thread_waits_for_the_early_compression_of_its_trigger() {
        let mut firings = Firings::default();
        firings.admit(firing(1, 1, true, EventType::TokenLimitApproached), 0, true);
        firings.next_of(0);
        firings.started(1, 4);
        let exceeded = |id, holds| firing(id, 1, holds, EventType::TokenLimitExceeded);
        assert_eq!(
            firings.admit(exceeded(2, false), 0, true),
            FiringAdmission::Coalesced,
            "it does not wait"
        );
        assert_eq!(firings.admit(exceeded(3, true), 0, true), FiringAdmission::Awaits);
        assert_eq!(firings.get(1).unwrap().report.coalesced, 2);
        assert!(firings.over(1, None));
        assert_eq!(firings.get_mut(1).unwrap().take_awaiting(), Some(3));
        assert_eq!(
            firings.admit(exceeded(4, true), 0, true),
            FiringAdmission::Queued,
            "it is over"
        );
        firings.next_of(0);
        assert_eq!(
            firings.admit(exceeded(5, true), 0, true),
            FiringAdmission::Coalesced,
            "that one began at the limit"
        );
    }

    #[test]
    fn firings_of_an_ended_thread_are_stopped_refused_or_too_late() {
        let mut firings = Firings::default();
        for id in 1..=3 {
            firings.admit(plain(id, id as usize), 0, true);
        }
        firings.next_of(0);
        firings.started(1, 8);
        let abandoned = firings.abandon(0);
        assert_eq!(abandoned[0], (1, AbandonAction::Stop(8)));
        assert!(matches!(
            &abandoned[1..],
            [(2, AbandonAction::NeverBegan(_)), (3, AbandonAction::NeverBegan(_))]
        ));
        firings.returning(1);
        assert_eq!(firings.abandon(0), [(1, AbandonAction::TooLate)]);
        firings.over(1, Some(too_late()));
        assert_eq!(firings.abandon(0), []);
        assert!(!firings.over(1, None), "once");
    }

    proptest! {
        /// Sends every input in every state: a firing follows the rows of the table and is over once.
        #[test]
        fn every_input_moves_a_firing_by_its_state_table(inputs in prop::collection::vec((0..8_u8, 0..4_u64), 0..80)) {
            let mut firings = Firings::default();
            let mut next_id = 0;
            let mut over = std::collections::BTreeSet::new();
            for (input, id) in inputs {
                let before: BTreeMap<FiringId, FiringState> = firings.iter().map(|(id, run)| (*id, run.state)).collect();
                match input {
                    0 => { firings.admit(plain(next_id, (id % 3) as usize), 0, true); next_id += 1; }
                    1 => { firings.next_of(0); }
                    2 => firings.started(id, 9),
                    3 => firings.run_begun(id),
                    4 => firings.returning(id),
                    5 => { if firings.over(id, None) { prop_assert!(over.insert(id)); } }
                    6 => { if let Some(FiringState::Queued | FiringState::Preparing) = before.get(&id) { firings.never_began(id); over.insert(id); } }
                    _ => for (id, abandoned) in firings.abandon(0) {
                        if matches!(abandoned, AbandonAction::NeverBegan(_)) { prop_assert!(over.insert(id)); }
                    },
                }
                for (id, run) in firings.iter() {
                    use FiringState::{Detached, Over, Preparing, Queued, Returning, Running};
                    let Some(before) = before.get(id) else { continue };
                    let is_row = *before == run.state || matches!(
                        (before, run.state),
                        (Queued, Preparing | Over) | (Preparing, Running(_) | Detached | Over)
                            | (Running(_) | Detached, Returning | Over) | (Returning, Over)
                    );
                    prop_assert!(is_row, "{:?} to {:?}", before, run.state);
                    let is_over = run.report.outcome != FiringOutcome::Open;
                    prop_assert_eq!(is_over, run.state == Over);
                }
                let under_way = firings.open(0).filter(|(_, run)| matches!(run.state, FiringState::Preparing | FiringState::Running(_))).count();
                prop_assert!(under_way <= 1, "one at a time");
                prop_assert!(firings.open(0).count() <= QUEUE_LIMIT);
            }
        }
    }
}
