//! Queue lengths of an engine's actors, counted on request.

use futures::future::join_all;
use pirn_sync::Completion;

use super::EngineShared;

/// Numbers of messages in the mailboxes of an engine's actors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MailboxDepths {
    /// Messages for runs in progress.
    pub runs: u64,
    /// Messages for event buses.
    pub event_buses: u64,
    /// Messages for trigger matchers.
    pub trigger_matchers: u64,
}

impl EngineShared {
    /// Returns the queue lengths. Each arbiter counts between two of its tasks; a stopped arbiter counts as 0.
    pub fn mailbox_depths(&self) -> impl Future<Output = MailboxDepths> + Send + use<> {
        // Runs have shared counters; the counters of the bus and the matcher are bound to their thread.
        let runs = self.runs.waiting();
        // All requests are sent before the first await, so that the arbiters count at nearly the same time.
        let asked = self.ask_every_arbiter(|local, answer| {
            answer.give((local.bus_depth.waiting() as u64, local.matcher_depth.waiting() as u64));
        });
        async move {
            let none = MailboxDepths {
                runs,
                ..MailboxDepths::default()
            };
            let answers = join_all(asked.iter().map(Completion::wait)).await;
            answers
                .into_iter()
                .flatten()
                .fold(none, |sum, (bus, matcher)| MailboxDepths {
                    event_buses: sum.event_buses + bus,
                    trigger_matchers: sum.trigger_matchers + matcher,
                    ..sum
                })
        }
    }
}
