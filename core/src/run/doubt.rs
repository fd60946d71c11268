//! Effects that had begun and had no outcome when their process ended.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ThreadNo;
use super::trigger_calls::CallNo;
use crate::definition::InDoubt;
use crate::thread::{self, EffectId};

/// An effect in doubt, as a run that goes on after a crash is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// The thread that awaits it; of a trigger's call the one that raised the event.
    pub thread: ThreadNo,
    /// The effect; of a trigger's call its number.
    pub effect: EffectId,
    /// The effect that its idempotency key names, of the node's first attempt; none: its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EffectId>,
    /// The node; of a trigger's call the trigger.
    pub node_id: Arc<str>,
    /// Its kind.
    pub kind: DoubtKind,
    /// Its policy.
    pub policy: InDoubt,
    /// Its resolution.
    pub resolution: Resolution,
}

impl Doubt {
    /// The effect's idempotency key.
    pub fn key(&self, run_id: &str) -> String {
        self.name_of(run_id, self.key.unwrap_or(self.effect))
    }

    /// Names the effect itself: every attempt has a name of its own.
    pub fn effect_id(&self, run_id: &str) -> String {
        self.name_of(run_id, self.effect)
    }

    fn name_of(&self, run_id: &str, effect: EffectId) -> String {
        match self.kind {
            DoubtKind::Trigger => trigger_key(run_id, effect),
            DoubtKind::Model | DoubtKind::Tool | DoubtKind::Function | DoubtKind::Code => {
                effect_key(run_id, self.thread, effect)
            }
        }
    }
}

/// An effect that is done outside, by what does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DoubtKind {
    /// A model.
    Model,
    /// A tool.
    Tool,
    /// A registered function.
    Function,
    /// JavaScript of a CODE node.
    Code,
    /// A function or the notification hook that a trigger calls.
    Trigger,
}

impl DoubtKind {
    /// The kind of an effect that may have begun; none for what is waited for, and for texts.
    pub fn of(effect: &thread::Effect) -> Option<Self> {
        match effect {
            thread::Effect::Model { .. } => Some(Self::Model),
            thread::Effect::Tool { .. } => Some(Self::Tool),
            thread::Effect::Function { .. } => Some(Self::Function),
            thread::Effect::Script { .. } => Some(Self::Code),
            thread::Effect::Timer { .. }
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

/// The resolution of a doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resolution {
    /// It is done once more, with the same key.
    Repeated,
    /// It had been done: its outcome was found out.
    Done,
    /// It counts as failed.
    Failed,
}

/// A doubt in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DoubtReport {
    /// The idempotency key of the call: run, thread, and number of the effect of its first attempt.
    pub effect_id: String,
    /// The node; of a trigger's call the trigger.
    pub node_id: Arc<str>,
    /// Its kind.
    pub kind: DoubtKind,
    /// Its policy.
    pub policy: InDoubt,
    /// Its resolution.
    pub resolution: Resolution,
}

/// An effect that was done more than once, in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepeatReport {
    /// The effect.
    pub effect_id: String,
    /// The node; of a trigger's call the trigger.
    pub node_id: Arc<str>,
    /// Its kind.
    pub kind: DoubtKind,
}

/// Names an effect, the same in every process; of a node's first attempt: the idempotency key of its call.
pub fn effect_key(run_id: &str, thread: ThreadNo, effect: EffectId) -> String {
    format!("{run_id}.{thread}.{effect}")
}

/// The same for a call of a trigger.
pub fn trigger_key(run_id: &str, call: CallNo) -> String {
    format!("{run_id}.t{call}")
}
