//! Effects in doubt: they had started and had no outcome when their process ended.

use std::sync::Arc;

use pirn_definition::definition::InDoubt;
use serde::{Deserialize, Serialize};

use super::trigger::CallNo;
use crate::run::ThreadNo;
use crate::thread::{self, EffectId};

/// An effect in doubt, as reported to a run that resumes after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnresolvedEffect {
    /// Thread that awaits the effect. For a trigger's call: the thread that raised the event.
    pub thread: ThreadNo,
    /// Id of the effect. For a trigger's call: its number.
    pub effect: EffectId,
    /// Effect of the node's first attempt, which names the idempotency key; `None` if this is the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EffectId>,
    /// Id of the node. For a trigger's call: id of the trigger.
    pub node_id: Arc<str>,
    /// Kind of the effect.
    pub kind: DoubtKind,
    /// Policy of the node or trigger.
    pub policy: InDoubt,
    /// Resolution of the doubt.
    pub resolution: Resolution,
}

impl UnresolvedEffect {
    /// Returns the idempotency key of the effect.
    pub fn key(&self, run_id: &str) -> String {
        // One key for all attempts, so that the called service can detect a repetition.
        self.name_of(run_id, self.key.unwrap_or(self.effect))
    }

    /// Returns the id of this attempt. Unlike the key, it differs between attempts.
    pub fn effect_id(&self, run_id: &str) -> String {
        self.name_of(run_id, self.effect)
    }

    fn name_of(&self, run_id: &str, effect: EffectId) -> String {
        match self.kind {
            // Calls of triggers are numbered in the run, not in a thread. The `t` separates them from numbers of threads.
            DoubtKind::Trigger => trigger_key(run_id, effect),
            // Numbers of effects are unique in a thread only, so that the name includes the thread.
            DoubtKind::Model | DoubtKind::Tool | DoubtKind::Function | DoubtKind::Code => {
                effect_key(run_id, self.thread, effect)
            }
        }
    }
}

/// Kind of an external effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DoubtKind {
    /// A model call.
    Model,
    /// A tool call.
    Tool,
    /// A call of a registered function.
    Function,
    /// JavaScript of a CODE node.
    Code,
    /// A trigger's call of a function or of the notification hook.
    Trigger,
}

impl DoubtKind {
    /// Returns the kind of an effect that may have side effects; `None` for waits and evaluations.
    pub fn of(effect: &thread::Effect) -> Option<Self> {
        match effect {
            thread::Effect::Model { .. } => Some(Self::Model),
            thread::Effect::Tool { .. } => Some(Self::Tool),
            thread::Effect::Function { .. } => Some(Self::Function),
            thread::Effect::Script { .. } => Some(Self::Code),
            // Waits, evaluations and effects that the run itself performs: a repetition has no effect outside of the run.
            thread::Effect::ScriptStep { .. }
            | thread::Effect::Timer { .. }
            | thread::Effect::WaitEvent { .. }
            | thread::Effect::Evaluate { .. }
            | thread::Effect::Conversation { .. }
            | thread::Effect::Fork { .. }
            | thread::Effect::Map { .. }
            | thread::Effect::Ask { .. }
            | thread::Effect::Child { .. }
            | thread::Effect::SetGlobal { .. }
            | thread::Effect::Pin { .. }
            | thread::Effect::Emit(_)
            | thread::Effect::RaiseAndAwaitTriggers { .. }
            | thread::Effect::Applied { .. }
            | thread::Effect::Drop { .. }
            | thread::Effect::Ended(_) => None,
        }
    }
}

/// Resolution of an effect in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resolution {
    /// Performed again with the key of the first attempt.
    Repeated,
    /// Had been performed: its outcome was recovered.
    Done,
    /// Treated as failed.
    Failed,
}

/// An effect in doubt, in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DoubtReport {
    /// Idempotency key of the call: run, thread, and effect number of the first attempt.
    pub effect_id: String,
    /// Id of the node. For a trigger's call: id of the trigger.
    pub node_id: Arc<str>,
    /// Kind of the effect.
    pub kind: DoubtKind,
    /// Policy of the node or trigger.
    pub policy: InDoubt,
    /// Resolution of the doubt.
    pub resolution: Resolution,
}

/// An effect that was performed more than once, in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepeatReport {
    /// Idempotency key of the call.
    pub effect_id: String,
    /// Id of the node. For a trigger's call: id of the trigger.
    pub node_id: Arc<str>,
    /// Kind of the effect.
    pub kind: DoubtKind,
}

/// Returns the name of an effect, equal in every process. For a node's first attempt it is the idempotency key of the call.
pub fn effect_key(run_id: &str, thread: ThreadNo, effect: EffectId) -> String {
    // Derived from the order of effects, not random: the next process computes an equal key without a record of it.
    format!("{run_id}.{thread}.{effect}")
}

/// Returns the name of a trigger's call, equal in every process.
pub fn trigger_key(run_id: &str, call: CallNo) -> String {
    format!("{run_id}.t{call}")
}

/// The effects of a run that were in doubt after crashes.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) struct Doubts(pub(in crate::run) Vec<DoubtReport>);
