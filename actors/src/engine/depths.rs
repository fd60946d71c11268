//! The messages that wait for an engine's actors, counted when somebody asks.

use futures::future::join_all;
use pirn_sync::Completion;

use super::EngineShared;

/// The number of messages that wait in the mailboxes of an engine's actors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MailboxDepths {
    /// Those of the runs under way.
    pub runs: u64,
    /// Those of the event buses.
    pub event_buses: u64,
    /// Those of the trigger matchers.
    pub trigger_matchers: u64,
}

impl EngineShared {
    /// The messages that wait, of every arbiter where it stands between two of its tasks. One that has stopped has none.
    pub fn mailbox_depths(&self) -> impl Future<Output = MailboxDepths> + Send + use<> {
        let runs = self.runs.waiting();
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
