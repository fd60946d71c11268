//! A lane to a server whose requests do not identify the tool call to which they belong: it admits the calls of one run at a time.
//!
//! A server's request during a call (to a person or a model) is answered by the run of that call. In MCP such a request names no
//! call, and over HTTP a server may send it outside of the call's response. While calls of one run are in progress, those of other
//! runs therefore wait, in FIFO order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;

/// Clones refer to one lane.
#[derive(Clone)]
pub(super) struct Lane {
    state: Arc<Mutex<State>>,
    /// True if the server may call models, which every run can answer.
    is_always: bool,
}

#[derive(Default)]
struct State {
    /// The run that has calls in progress.
    run: Arc<str>,
    inside: usize,
    waiting: VecDeque<(Arc<str>, oneshot::Sender<Pass>)>,
}

/// Permission to make a call, released on drop.
pub(super) struct Pass(Lane);

impl Lane {
    /// `is_always`: whether calls enter the lane even if elicitations have no handler.
    #[cfg_attr(not(feature = "mcp"), allow(dead_code, reason = "only MCP servers send requests"))]
    pub(super) fn new(is_always: bool) -> Self {
        let state = Arc::default();
        Self { state, is_always }
    }

    pub(super) fn is_always(&self) -> bool {
        self.is_always
    }

    /// Waits until a run may make a call.
    pub(super) async fn enter(&self, run: &Arc<str>) -> Pass {
        let admitted = {
            let mut state = self.state();
            // A run that calls continuously must not starve others.
            let is_next = state.run == *run && state.waiting.is_empty();
            if state.inside == 0 || is_next {
                state.run = Arc::clone(run);
                state.inside += 1;
                return Pass(self.clone());
            }
            let (admit, admitted) = oneshot::channel();
            state.waiting.push_back((Arc::clone(run), admit));
            admitted
        };
        match admitted.await {
            Ok(pass) => pass,
            // The sender exists until it has sent, so this cannot happen.
            Err(_cancelled) => std::future::pending().await,
        }
    }

    fn leave(&self) {
        let mut admitted = Vec::new();
        {
            let mut state = self.state();
            state.inside -= 1;
            if state.inside == 0
                && let Some((run, _)) = state.waiting.front()
            {
                state.run = Arc::clone(run);
                let (now, later) = std::mem::take(&mut state.waiting)
                    .into_iter()
                    .partition(|(run, _)| *run == state.run);
                state.waiting = later;
                let now: VecDeque<_> = now;
                state.inside = now.len();
                admitted.extend(now);
            }
        }
        // Sending to a dropped call drops the pass, and its drop takes the lock, so the lock must not be held here.
        for (_, admit) in admitted {
            drop(admit.send(Pass(self.clone())));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent after every statement, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;

    type Entering = std::pin::Pin<Box<dyn Future<Output = Pass>>>;

    fn enter(lane: &Lane, run: &str) -> Entering {
        let (lane, run) = (lane.clone(), Arc::from(run));
        let mut entering: Entering = Box::pin(async move { lane.enter(&run).await });
        // The first poll enters the queue, so poll once here to fix the order.
        match entering.as_mut().now_or_never() {
            Some(pass) => Box::pin(std::future::ready(pass)),
            None => entering,
        }
    }

    #[test]
    fn calls_of_one_run_run_together_and_other_runs_wait_in_order() {
        let lane = Lane::new(true);
        let first = enter(&lane, "a").now_or_never().expect("the lane is free");
        let second = enter(&lane, "a").now_or_never().expect("its run is in the lane");
        let (mut b, mut c, mut a) = (enter(&lane, "b"), enter(&lane, "c"), enter(&lane, "a"));
        assert!(a.as_mut().now_or_never().is_none(), "others came before");
        let mut again = enter(&lane, "b");
        drop(first);
        assert!(b.as_mut().now_or_never().is_none());
        drop(second);
        let passes = (b.as_mut().now_or_never(), again.as_mut().now_or_never());
        assert!(passes.0.is_some() && passes.1.is_some());
        assert!(c.as_mut().now_or_never().is_none());
        drop(passes);
        drop(c);
        assert!(a.as_mut().now_or_never().is_some(), "a dropped waiter is skipped");
    }

    proptest! {
        #[test]
        fn at_most_one_run_is_in_the_lane_and_every_call_enters(
            steps in prop::collection::vec((0..3_usize, any::<prop::sample::Index>()), 0..80),
        ) {
            let lane = Lane::new(true);
            let mut waiting: Vec<(usize, Entering)> = Vec::new();
            let mut inside: Vec<(usize, Pass)> = Vec::new();
            let settle = |waiting: &mut Vec<(usize, Entering)>, inside: &mut Vec<(usize, Pass)>| {
                waiting.retain_mut(|(run, entering)| match entering.as_mut().now_or_never() {
                    Some(pass) => { inside.push((*run, pass)); false }
                    None => true,
                });
                let runs: std::collections::BTreeSet<usize> = inside.iter().map(|(run, _)| *run).collect();
                assert!(runs.len() <= 1, "{runs:?}");
                assert!(!inside.is_empty() || waiting.is_empty(), "the lane is free, and a waiter remains");
            };
            for (step, which) in steps {
                match step {
                    0 | 1 => {
                        let run = which.index(3);
                        waiting.push((run, enter(&lane, &run.to_string())));
                    }
                    _ if !inside.is_empty() => drop(inside.swap_remove(which.index(inside.len()))),
                    _ if !waiting.is_empty() => drop(waiting.swap_remove(which.index(waiting.len()))),
                    _ => {}
                }
                settle(&mut waiting, &mut inside);
            }
            while !inside.is_empty() {
                inside.pop();
                settle(&mut waiting, &mut inside);
            }
            prop_assert!(waiting.is_empty());
        }
    }
}
