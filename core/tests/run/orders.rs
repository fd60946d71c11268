//! Every order of ends in small trees, with the time limit of a JOIN, a cancel or the run's time limit at every point.

use pirn_core::run::{Message, Timer, ToSupervisor};
use pirn_core::status::ThreadStatus::{Cancelled, Timeout};
use serde_json::json;

use super::harness::Harness;
use super::oracle::Oracle;
use super::rebuilt;
use super::shapes::{Does, MORE_SHAPES, SHAPES, bundle, triggered_by};

/// Next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Works { thread: usize, succeeds: bool },
    Cancel,
    CancelThread(usize),
    OutOfTime,
    JoinOutOfTime(usize),
    Trigger(usize),
}

/// The run and the reference model, which receive equal events.
pub(crate) struct Both {
    pub(crate) harness: Harness,
    pub(crate) oracle: Oracle,
    /// True if the order contains one cancel or time limit.
    is_stopped: bool,
}

impl Both {
    pub(crate) fn of(shape: Does) -> Self {
        Self {
            harness: Harness::of(&bundle(shape, 1_000)),
            oracle: Oracle::of(shape),
            is_stopped: false,
        }
    }

    pub(crate) fn possible(&self) -> Vec<Next> {
        let mut possible: Vec<Next> = self
            .oracle
            .busy()
            .into_iter()
            .flat_map(|thread| [true, false].map(|succeeds| Next::Works { thread, succeeds }))
            .collect();
        if self.oracle.is_settled() {
            return possible;
        }
        possible.extend(self.oracle.may_trigger().map(Next::Trigger));
        if !self.is_stopped {
            if self.harness.statuses()[0] == pirn_core::status::ThreadStatus::Running {
                possible.extend([Next::Cancel, Next::OutOfTime]);
            }
            possible.extend(self.oracle.busy().into_iter().map(Next::CancelThread));
            possible.extend(self.oracle.joining().into_iter().map(Next::JoinOutOfTime));
        }
        possible
    }

    pub(crate) fn apply(&mut self, next: Next) {
        match next {
            Next::Works { thread, succeeds } => {
                self.oracle.end_effect(thread, succeeds);
                self.harness.end_effect(thread as u32, succeeds);
            }
            Next::Cancel => {
                self.is_stopped = true;
                self.oracle.end(0, Cancelled);
                self.harness.cancel();
            }
            Next::CancelThread(thread) => {
                self.is_stopped = true;
                self.oracle.end(thread, Cancelled);
                self.harness.cancel_thread(thread as u32);
            }
            Next::OutOfTime => {
                self.is_stopped = true;
                self.oracle.end(0, Timeout);
                self.harness.elapse(Timer::Thread {
                    thread: 0,
                    after_ms: 1_000,
                });
            }
            Next::JoinOutOfTime(thread) => {
                self.is_stopped = true;
                self.oracle.join_out_of_time(thread);
                self.harness.join_elapses(thread as u32);
            }
            Next::Trigger(thread) => {
                self.oracle.trigger(thread);
                let thread_id = self.harness.machine.thread_id(thread as u32);
                let (_, graph) = self.harness.machine.origin(thread as u32).unwrap();
                let workflow = triggered_by(&graph.workflow_id);
                let firing = serde_json::from_value(json!({
                    "id": 1,
                    "trigger": {"id": "t", "condition": {"eventType": "CUSTOM"},
                        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH",
                            "parameters": {"triggeredWorkflowId": workflow, "waitForCompletion": false}}},
                    "event": {"sequence": 1, "timestamp": 0, "runId": "r", "workflowId": graph.workflow_id,
                        "threadId": thread_id, "type": "CUSTOM"},
                }));
                let fire = ToSupervisor::Fire(Box::new(firing.unwrap()));
                self.harness.send(Message::Supervisor(fire));
            }
        }
    }

    #[track_caller]
    pub(crate) fn check(&self, order: &[Next]) {
        let (harness, oracle) = (&self.harness, &self.oracle);
        assert_eq!(harness.statuses(), oracle.statuses(), "after {order:?}");
        let working: Vec<usize> = harness.works.keys().map(|thread| *thread as usize).collect();
        assert_eq!(working, oracle.working(), "what is under way after {order:?}");
        assert_eq!(harness.asking(), oracle.asking(), "what is asked after {order:?}");
        assert_eq!(
            harness.joining(),
            oracle.joining(),
            "the JOINs that wait after {order:?}"
        );
        assert_eq!(
            harness.report.is_some(),
            oracle.is_reported(),
            "the outcome after {order:?}"
        );
        if let Some(report) = &harness.report {
            let waits = |(no, status): (usize, bool)| !status && !oracle.is_detached(no);
            let ends = report.threads.iter().map(|thread| thread.status.is_final());
            assert!(
                !ends.enumerate().any(waits),
                "the outcome came too early after {order:?}"
            );
        }
        assert_eq!(harness.is_settled, oracle.is_settled(), "the end after {order:?}");
    }
}

fn replay(shape: Does, order: &[Next]) -> Both {
    let mut both = Both::of(shape);
    for next in order {
        both.apply(*next);
    }
    both
}

/// Tries every order from here on, and returns their number.
fn explore(shape: Does, order: &mut Vec<Next>) -> usize {
    let both = replay(shape, order);
    both.check(order);
    let possible = both.possible();
    if possible.is_empty() {
        assert!(both.harness.is_settled, "nothing is left to come after {order:?}");
        assert!(both.harness.timers.is_empty(), "a timer is left after {order:?}");
        both.harness.check_questions();
        rebuilt::check(&bundle(shape, 1_000), &both.harness);
        return 1;
    }
    let mut orders = 0;
    for next in possible {
        order.push(next);
        orders += explore(shape, order);
        order.pop();
    }
    orders
}

#[test]
fn every_order_of_ends_of_small_trees_matches_the_specification() {
    let mut orders = 0;
    for shape in SHAPES {
        orders += explore(*shape, &mut Vec::new());
    }
    assert!(orders > 1_000, "only {orders} orders");
}

#[test]
fn every_order_of_ends_and_answers_of_maps_questions_and_loops_matches_the_specification() {
    let mut orders = 0;
    for shape in MORE_SHAPES {
        orders += explore(*shape, &mut Vec::new());
    }
    assert!(orders > 1_500, "only {orders} orders");
}
