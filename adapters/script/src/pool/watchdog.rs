//! The watchdog: answers jobs that exceed their time limit, and abandons threads that do not return.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::{Answer, GRACE, Job, PATIENCE, Phase, Running, Shared, State, TaskResult, Thread, deliver, too_many_stuck};
use crate::deadline::now;

/// Work of the watchdog to do after it has released the lock.
#[derive(Default)]
struct Round {
    late: Vec<(Answer, TaskResult)>,
    refused: Vec<Job>,
    abandoned: usize,
    next: Option<Instant>,
}

impl Shared {
    /// Main loop of the watchdog.
    pub(super) fn run_watchdog(self: &Arc<Self>) {
        let mut state = self.lock();
        while !state.is_closed || state.threads.values().any(Thread::is_busy) {
            let round = self.round(&mut state);
            state.looks_at = round.next;
            if !round.late.is_empty() || round.abandoned > 0 {
                let stuck = state.stuck;
                drop(state);
                if round.abandoned > 0 {
                    tracing::warn!(
                        stuck,
                        "scripts did not stop at their time limits: their threads were abandoned"
                    );
                }
                for (answer, done) in round.late {
                    deliver(answer, done);
                }
                for job in round.refused {
                    job.refuse(too_many_stuck(stuck));
                }
                state = self.lock();
                continue;
            }
            state = match round.next {
                Some(next) => {
                    let left = next.saturating_duration_since(now());
                    let woken = self.alarm.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.alarm.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Wakes the watchdog for a deadline earlier than the one for which it waits.
    pub(super) fn look_at(&self, state: &mut State, deadline: Instant) {
        if state.looks_at.is_none_or(|looks_at| deadline < looks_at) {
            state.looks_at = Some(deadline);
            self.alarm.notify_one();
        }
    }

    fn round(self: &Arc<Self>, state: &mut State) -> Round {
        let mut round = Round::default();
        let time = now();
        let mut earliest = |at: Instant| round.next = Some(round.next.map_or(at, |next: Instant| next.min(at)));
        for thread in state.threads.values_mut() {
            match &thread.phase {
                Phase::Running(running) if running.deadline > time => earliest(running.deadline),
                Phase::Running(running) => {
                    thread.cancel_handle.kill();
                    let run = Arc::clone(&running.run);
                    earliest(time + PATIENCE);
                    let phase = std::mem::replace(&mut thread.phase, Phase::Late { run, since: time });
                    if let Phase::Running(Running { answer, fault, .. }) = phase {
                        round.late.push((answer, TaskResult::failed(fault.into())));
                    }
                }
                Phase::Late { since, .. } if *since + PATIENCE > time => earliest(*since + PATIENCE),
                Phase::Late { .. } => {
                    thread.phase = Phase::Stuck;
                    round.abandoned += 1;
                }
                Phase::Idle | Phase::Preparing | Phase::Stuck => {}
            }
        }
        state.stuck += round.abandoned;
        state.given_up += round.abandoned as u64;
        self.replace(state, &mut round);
        round
    }

    /// Starts replacements for abandoned threads. If too many were abandoned, waiting jobs are refused.
    fn replace(self: &Arc<Self>, state: &mut State, round: &mut Round) {
        if round.abandoned == 0 {
            return;
        }
        if state.stuck > self.settings.max_stuck {
            round.refused = state.queue.drain().collect();
            state.refused += round.refused.len() as u64;
            return;
        }
        for _ in 0..round.abandoned.min(state.queue.len()) {
            if let Err(error) = self.start_thread(state) {
                tracing::error!(%error, "starting a new script thread failed");
            }
        }
    }
}

const _: () = assert!(GRACE.as_millis() + PATIENCE.as_millis() <= 200);
