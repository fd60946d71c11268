//! The run's end and what it says of itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_core::conversation::Conversation;
use pirn_core::error::RunError;
use pirn_core::status::ThreadStatus;
use pirn_core::thread::NodeRecord;

use super::turns::Place;
use super::{Child, RunStatus, SupervisorActor, SupervisorMsg};
use crate::answer::Answer;
use crate::events::BusMsg;
use crate::run::{ConversationReport, NodeReport, RunReport, TokenReport};
use crate::thread::{ConversationRef, Left};
use crate::thread_list::{KnownThread, ThreadList};

/// More links than a chain of triggers has: detached threads may go on for ever, and a report does not wait for them.
const MOST_LINKS: u32 = 16;

impl SupervisorActor {
    /// When the main thread and what is attached to it have ended, the outcome is put together.
    pub(super) fn look_for_the_end(&mut self) {
        let is_over = self.threads.get(0).is_some_and(Child::has_ended);
        if is_over && self.live == self.live_detached && self.outcome.is_some() && !self.is_reporting {
            self.is_reporting = true;
            self.hear_triggers_out();
        }
    }

    /// What its last events set off, and what follows from that, belongs to the run: its report waits for it. A run that
    /// raised nothing which a trigger watches for waits for nobody.
    pub(super) fn hear_triggers_out(&mut self) {
        let supervisor = Arc::clone(&self.run.supervisor);
        if self.run.is_watched.take() && self.hearings < MOST_LINKS {
            self.hearings += 1;
            self.run.engine.bus.do_send(BusMsg::HearOut {
                run_id: Arc::clone(&self.run.run_id),
                links: MOST_LINKS,
                answer: Answer::new(move |_| supervisor.do_send(SupervisorMsg::HeardOut)),
            });
            return;
        }
        let main = self.threads.get(0).and_then(Child::ended);
        let conversation = |left: &Left| left.conversation.clone();
        let nothing = || ConversationRef::Snapshot(Conversation::new());
        match main.map(|ended| ended.left.as_deref().map_or_else(nothing, conversation)) {
            Some(ConversationRef::Snapshot(conversation)) => self.report(Ok(conversation)),
            Some(shared @ ConversationRef::Shared(_)) => shared
                .with_snapshot(move |conversation| supervisor.do_send(SupervisorMsg::Reported(Box::new(conversation)))),
            None => {}
        }
    }

    pub(super) fn report(&mut self, conversation: Result<Conversation, RunError>) {
        self.is_reporting = false;
        // Of a conversation that was lost there is what had been said in it, and that it was lost.
        let (conversation, lost) = match conversation {
            Ok(conversation) => (conversation, None),
            Err(error) => (
                self.said.take().map_or_else(Conversation::new, |said| *said),
                Some(error),
            ),
        };
        let Some(main) = self.threads.get(0) else { return };
        let Some(ended) = main.ended() else { return };
        let left = ended.left.as_deref();
        let globals = self.run.globals.borrow();
        let own = left.into_iter().flat_map(|left| left.variables.iter());
        let all = globals.iter().chain(own);
        let variables: BTreeMap<_, _> = all
            .map(|(name, value)| (String::from(&**name), (**value).clone()))
            .collect();
        let mut nodes = self.nodes(0, left.map_or(&[], |left| &left.history));
        nodes.extend(self.merged_nodes());
        let report = RunReport {
            run_id: String::from(&*self.run.run_id),
            thread_id: String::from(&*self.threads.id(0)),
            workflow_id: String::from(&*main.graph.workflow_id),
            status: if lost.is_some() && ended.end.status == ThreadStatus::Completed {
                ThreadStatus::Failed
            } else {
                ended.end.status
            },
            output: (**ended.end.output.value()).clone(),
            variables,
            error: ended.end.error.clone().or(lost),
            conversation: ConversationReport::of(&conversation),
            tokens: TokenReport {
                context: conversation.visible_tokens(),
                spent: self.spent,
            },
            nodes,
            threads: self.thread_list(),
            firings: self.firing_reports(),
            elapsed_ms: self.run.host.now() - self.started_at,
        };
        drop(globals);
        if let Some(on_end) = self.on_end.take() {
            on_end(&report);
        }
        if let Some(outcome) = self.outcome.take() {
            outcome.set(Arc::new(report));
        }
    }

    pub(super) fn nodes(&self, thread: super::ThreadNo, history: &[NodeRecord]) -> Vec<NodeReport> {
        let Some(child) = self.threads.get(thread) else {
            return Vec::new();
        };
        history
            .iter()
            .map(|record| NodeReport {
                node_id: Arc::clone(&child.graph.node(record.node).id),
                status: record.status,
                attempts: record.attempts,
                firing: None,
            })
            .collect()
    }

    pub(super) fn status(&self) -> RunStatus {
        let main = self.threads.get(0).map(Child::status);
        RunStatus {
            status: main.unwrap_or(ThreadStatus::Created),
            threads: self.thread_list().into_vec(),
        }
    }

    fn thread_list(&self) -> ThreadList {
        let known = self.threads.iter().map(|child| KnownThread {
            graph: &child.graph,
            kind: child.kind,
            path: child.path(),
            status: child.status(),
        });
        ThreadList::of(Arc::clone(&self.run.run_id), known)
    }
}

impl Child {
    fn status(&self) -> ThreadStatus {
        match &self.place {
            Place::Ended(ended) => ended.end.status,
            Place::Fresh { .. } => ThreadStatus::Created,
            Place::Standing(_) | Place::Away if self.is_paused => ThreadStatus::Paused,
            Place::Standing(_) | Place::Away => ThreadStatus::Running,
        }
    }
}
