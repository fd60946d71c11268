//! The report of a run, and its status while it runs.

use std::sync::Arc;

use pirn_conversation::conversation::{Conversation, TokenUsage};
use pirn_definition::Millis;
use serde_json::Value;

use crate::run::ThreadNo;
use crate::run::data::doubt::{DoubtReport, RepeatReport, Resolution};
use crate::run::data::message::{Message, ToThread};
use crate::run::data::report::{ConversationReport, FiringReport, NodeReport, RunReport, RunStatus, TokenReport};
use crate::run::data::thread_list::{KnownThread, ThreadList};
use crate::run::data::thread_state::Slot;
use crate::run::state::RunMachine;
use crate::status::ThreadStatus;
use crate::thread::{EffectId, FiringId, Input, Interaction, NodeRecord, ScriptState, ThreadMachine, Variables};

impl RunMachine {
    pub(in crate::run) fn report(&mut self, now: Millis) -> RunReport {
        // Taken, because a run is reported once (`Termination`).
        let salvaged = self.salvaged.take();
        let left = self.artifacts(0);
        // A lost conversation: report the saved messages, and that it was lost.
        let (conversation, lost) = match left.map(|left| left.conversation.clone()) {
            Some(Some(conversation)) => (conversation, None),
            Some(None) => (
                salvaged.map_or_else(Conversation::new, |said| *said),
                Some(crate::run::turns::conversation::lost()),
            ),
            None => (Conversation::new(), None),
        };
        let history = left.map_or(&[][..], |left| &left.history);
        let mut report = self.report_of(now, &conversation, history);
        // The run is reported only after the end of the main thread, so the default does not occur.
        report.status = self.end_of(0).map_or(ThreadStatus::Failed, |end| end.status);
        if lost.is_some() && report.status == ThreadStatus::Completed {
            report.status = ThreadStatus::Failed;
        }
        report.error = report.error.or(lost);
        report
    }

    /// Returns the report with the conversation and the history of the main thread.
    fn report_of(&self, now: Millis, conversation: &Conversation, history: &[NodeRecord]) -> RunReport {
        let end = self.end_of(0);
        let variables = self
            .variables_of(0)
            .map(|(name, value)| (String::from(&**name), (**value).clone()));
        let mut nodes = self.nodes(0, history);
        nodes.extend(self.merged_nodes());
        let spending = self.spending();
        RunReport {
            run_id: String::from(&*self.run_id),
            thread_id: String::from(&*self.thread_id(0)),
            workflow_id: String::from(&*self.graph_of(0).workflow_id),
            session: self.session_id(),
            status: self.status_of(0),
            output: end.map_or_else(Default::default, |end| (**end.output.value()).clone()),
            variables: variables.collect(),
            error: end.and_then(|end| end.error.clone()),
            conversation: ConversationReport::of(conversation, self.session_id().is_some()),
            tokens: TokenReport {
                context: conversation.visible_tokens(),
                spent: spending.total,
            },
            usage: spending.usage,
            budget: self.budget_report(),
            nodes,
            threads: self.thread_list(spending.threads),
            firings: self.firings.iter().map(|(_, run)| run.report.clone()).collect(),
            waiting_messages: self.waiting_messages().cloned().collect(),
            repeated: self.doubts().iter().filter_map(repeated).collect(),
            in_doubt: self.doubts().to_vec(),
            elapsed_ms: self.without_gaps(now).saturating_sub(self.started_at),
        }
    }

    /// Returns the nodes of firings with `mergeHistory: true`, each with its firing.
    fn merged_nodes(&self) -> impl Iterator<Item = NodeReport> {
        let merged = self
            .firings
            .iter()
            // The report has the history of the main thread only, so the nodes of other threads' firings are left out.
            .filter(|(_, run)| run.main == 0 && run.firing.execute().is_some_and(|execute| execute.merge_history));
        merged.flat_map(|(id, run)| {
            run.nodes.iter().map(|node| NodeReport {
                firing: Some(*id),
                ..node.clone()
            })
        })
    }

    /// Returns the status of the run.
    pub fn status(&self) -> RunStatus {
        RunStatus {
            status: self.status_of(0),
            threads: self.thread_list(self.spending().threads).into_vec(),
            waiting_messages: self.waiting_messages().cloned().collect(),
        }
    }

    /// Returns the report of a firing.
    pub fn firing(&self, firing: FiringId) -> Option<&FiringReport> {
        self.firings.get(firing).map(|run| &run.report)
    }

    /// Returns the open questions to people, by thread.
    pub fn interactions(&self) -> Vec<Interaction> {
        let threads = 0..self.tree.len() as ThreadNo;
        let open = threads.filter_map(|thread| Some(self.live(thread)?.interactions()));
        open.flatten().map(|(_, interaction)| interaction).collect()
    }

    /// Returns an open question by its id, with the thread and effect that await the answer.
    pub fn interaction(&self, id: &str) -> Option<(ThreadNo, EffectId, Interaction)> {
        let (thread_id, _) = id.rsplit_once('.')?;
        let thread = self.thread_of(thread_id)?;
        let mut open = self.live(thread)?.interactions().into_iter();
        let (effect, interaction) = open.find(|(_, interaction)| interaction.id == id)?;
        // An answer that is still queued closes the question, so that it is accepted once.
        let is_answered = self.mailbox.any(|message| match message {
            Message::Thread(no, ToThread::Input(Input::Answer { effect: of, .. })) => (*no, *of) == (thread, effect),
            _ => false,
        });
        (!is_answered).then_some((thread, effect, interaction))
    }

    /// Returns the threads whose script has made calls and not ended.
    pub fn unfinished_scripts(&self) -> impl Iterator<Item = (&ThreadMachine, ScriptState)> {
        let threads = 0..self.tree.len() as ThreadNo;
        let live = threads.filter_map(|thread| self.live(thread));
        live.filter_map(|thread| Some((thread, thread.unfinished_script()?)))
    }

    /// Returns the variables that a thread can read, or could read at its end, and their values. A variable of the thread follows
    /// the global one of its name, which it hides: in a map it replaces that one.
    pub fn variables_of(&self, thread: ThreadNo) -> impl Iterator<Item = (&Arc<str>, &Arc<Value>)> {
        // A thread that has ended has no machine any more.
        let live = self.live(thread).map(ThreadMachine::variables);
        let own = live.or_else(|| self.artifacts(thread).map(|left| &left.variables));
        self.globals.iter().chain(own.into_iter().flat_map(Variables::iter))
    }

    /// Returns the report of the run at this time, even if it has not ended.
    pub fn report_so_far(&self, now: Millis) -> RunReport {
        let own = self.live(0);
        let left = self.artifacts(0);
        // A snapshot in O(1). A main thread that has ended left its conversation in its artifacts.
        let conversation = match self.slots.first() {
            Some(Slot::Live(live)) => live.conversation().cloned(),
            _ => left.and_then(|left| left.conversation.clone()),
        };
        let conversation = conversation.unwrap_or_else(Conversation::new);
        let history: Vec<NodeRecord> = match (own, left) {
            (Some(machine), _) => machine.history().copied().collect(),
            (None, Some(left)) => left.history.clone(),
            (None, None) => Vec::new(),
        };
        self.report_of(now, &conversation, &history)
    }

    fn thread_list(&self, spent: Vec<(TokenUsage, TokenUsage)>) -> ThreadList {
        let known = (0..).zip(self.tree.iter()).map(|(thread, at)| KnownThread {
            graph: self.graphs.get(at.graph),
            kind: at.kind,
            origin: at.origin,
            status: self.status_of(thread),
        });
        ThreadList::of(Arc::clone(&self.run_id), known, spent)
    }
}

/// Converts a doubt whose effect was performed again.
fn repeated(doubt: &DoubtReport) -> Option<RepeatReport> {
    match doubt.resolution {
        Resolution::Repeated => Some(RepeatReport {
            effect_id: doubt.effect_id.clone(),
            node_id: Arc::clone(&doubt.node_id),
            kind: doubt.kind,
        }),
        Resolution::Done | Resolution::Failed => None,
    }
}
