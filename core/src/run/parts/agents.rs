//! Limits of submitted workflows on everything that starts in them and below: agents, concurrency and nesting.
//!
//! The threads of a submitted workflow are its own, those of its forks' paths, and all that these call or that triggers start for them.
//! A thread may be below several submitted workflows: an agent counts for each of them.
//!
//! An execution of an LLM node, a call of a workflow and an item of a MAP count as one agent each. A called workflow and the first agent
//! that it starts count together, so that an agent of a script, a workflow with one LLM node, counts once. Compressions do not count.

use std::collections::BTreeMap;

use pirn_definition::definition::WorkflowConfig;
use serde::{Deserialize, Serialize};

use super::tree::{Origin, ThreadLookup};
use crate::run::ThreadNo;

/// Number of started agents, by the first thread of the submitted workflow. The first thread of a called workflow has the number 1 once
/// the agent that counts together with its call has started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct AgentCounts(BTreeMap<ThreadNo, u64>);

impl AgentCounts {
    /// Returns the number of agents that the machine of a thread may still start; `None` if no limit applies.
    pub(in crate::run) fn left(&self, thread: ThreadNo, threads: ThreadLookup<'_>) -> Option<u64> {
        let left = self.uncounted_left(thread, threads)?;
        Some(left + u64::from(self.counted_by_call(thread, threads).is_some()))
    }

    /// Counts the agents that the machine of a thread has started.
    pub(in crate::run) fn started(&mut self, thread: ThreadNo, mut count: u64, threads: ThreadLookup<'_>) {
        if let Some(first) = self.counted_by_call(thread, threads) {
            self.0.insert(first, 1);
            count -= 1;
        }
        self.add(thread, count, threads);
    }

    /// Counts a workflow that starts for a thread outside of its machine. Returns false if the limits allow none.
    pub(in crate::run) fn start_workflow(&mut self, thread: ThreadNo, threads: ThreadLookup<'_>) -> bool {
        let is_allowed = self.uncounted_left(thread, threads) != Some(0);
        if is_allowed {
            self.add(thread, 1, threads);
        }
        is_allowed
    }

    fn uncounted_left(&self, thread: ThreadNo, threads: ThreadLookup<'_>) -> Option<u64> {
        // A compression belongs to the request of an agent, which it must not fail.
        if threads.tree.get(thread)?.is_unlimited {
            return None;
        }
        let left = |(first, config): (ThreadNo, &WorkflowConfig)| {
            let started = self.0.get(&first).copied().unwrap_or(0);
            config.max_agents.unwrap_or(0).saturating_sub(started)
        };
        submitted(thread, threads).map(left).min()
    }

    fn add(&mut self, thread: ThreadNo, count: u64, threads: ThreadLookup<'_>) {
        for (first, _) in submitted(thread, threads) {
            *self.0.entry(first).or_default() += count;
        }
    }

    /// Returns the first thread of the workflow that a thread walks if its next agent was counted by the call of the workflow.
    fn counted_by_call(&self, thread: ThreadNo, threads: ThreadLookup<'_>) -> Option<ThreadNo> {
        let first = first_thread(thread, threads)?;
        let at = threads.tree.get(first)?;
        let is_called = matches!(at.origin, Origin::Called { .. } | Origin::Item { .. });
        // The call that submits a workflow does not count.
        let is_counted = is_called && threads.graphs.get(at.graph).config.max_agents.is_none();
        (is_counted && !self.0.contains_key(&first)).then_some(first)
    }
}

/// Returns the lowest limit of the submitted workflows that contain a thread on concurrent branches and calls.
pub(in crate::run) fn concurrency(thread: ThreadNo, threads: ThreadLookup<'_>) -> Option<u32> {
    let limits = submitted(thread, threads).filter_map(|(_, config)| config.max_concurrent_branches);
    limits.min()
}

/// Returns true if the submitted workflows that contain a thread allow it to submit another one.
pub(in crate::run) fn may_submit(thread: ThreadNo, threads: ThreadLookup<'_>) -> bool {
    let mut nested = submitted(thread, threads).zip(1..);
    nested.all(|((_, config), levels)| levels <= config.max_nested.unwrap_or(0))
}

/// Returns the error of a call that `dynamic.limits.agents` does not allow.
pub(in crate::run) fn none_left(workflow_id: &str) -> String {
    format!("the workflow `{workflow_id}` was not started: `dynamic.limits.agents` allows no further agent")
}

/// Returns the thread in which the workflow of a thread started: a branch walks the workflow of the thread that forked it.
fn first_thread(thread: ThreadNo, ThreadLookup { tree, .. }: ThreadLookup<'_>) -> Option<ThreadNo> {
    let mut first = thread;
    loop {
        let at = tree.get(first)?;
        if !matches!(at.origin, Origin::Branch { .. }) {
            return Some(first);
        }
        first = at.parent?;
    }
}

/// Returns the first threads of the submitted workflows that contain a thread, from the innermost one, and their configuration.
fn submitted(thread: ThreadNo, threads: ThreadLookup<'_>) -> impl Iterator<Item = (ThreadNo, &WorkflowConfig)> {
    let mut next = Some(thread);
    let workflows = std::iter::from_fn(move || {
        let first = first_thread(next?, threads)?;
        let at = threads.tree.get(first)?;
        next = at.parent;
        Some((first, &threads.graphs.get(at.graph).config))
    });
    workflows.filter(|(_, config)| config.max_agents.is_some())
}
