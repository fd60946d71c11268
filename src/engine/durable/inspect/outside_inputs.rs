//! Inputs that a run received without a request for them, and their positions among the events of the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pirn_conversation::conversation::MarkMap;
use pirn_core::run::{Effect, SessionSeed, SessionState, ThreadNo, UserMessage};
use pirn_core::thread::{self, EffectId};
use pirn_definition::Millis;
use pirn_definition::definition::PinSection;
use pirn_definition::event_type::EventType;
use pirn_definition::message::Message;
use pirn_events::event::RaisedEvent;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Types of the events that are positions. Others depend on token counts and on details of a node.
const POSITIONS: &[EventType] = &[
    EventType::ThreadStarted,
    EventType::ThreadForkStarted,
    EventType::ThreadJoinStarted,
    EventType::NodeStarted,
    EventType::NodeCompleted,
    EventType::NodeFailed,
    EventType::RequestPrepared,
    EventType::MessageAdded,
    EventType::ToolCallStarted,
    EventType::ToolCallCompleted,
    EventType::ToolCallFailed,
    EventType::InteractionRequested,
    EventType::InteractionAnswered,
    EventType::UserMessage,
];

/// An input that a run received without a request for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutsideInput {
    /// Last event before the input; `None` if the input arrived before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<EventPosition>,
    /// Milliseconds from that event to the input.
    #[serde(default)]
    pub after_ms: Millis,
    /// The input.
    pub input: OutsideInputKind,
}

/// The kinds of inputs that a run receives without a request for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum OutsideInputKind {
    /// A person's message to the model of the main thread.
    Message(UserMessage),
    /// An event that was raised in the run.
    Event(RaisedEvent),
    /// A section of the pinned context; null removes it.
    Pin {
        /// The section.
        section: PinSection,
        /// Its new value.
        value: Value,
    },
    /// A cancel of the run.
    Cancel {
        /// The reason.
        reason: String,
    },
}

/// An event of a run, identified so that a repeated run has the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventPosition {
    /// Type of the event.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// Thread that raised it.
    pub thread_id: Arc<str>,
    /// Node that raised it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<Arc<str>>,
    /// Number among the events of this type, thread and node, from 1.
    pub number: u64,
}

/// The session of a recorded run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedSession {
    /// Id of the session.
    pub id: Arc<str>,
    /// True if the run updates the session even if it does not complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_on_failure: bool,
    /// State with which the run started; `None` if it was the first run of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RecordedSessionState>,
}

/// State of a session before a recorded run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedSessionState {
    /// Messages of its conversation.
    pub conversation: Vec<Message>,
    /// Marks of these messages; `None` if all of them are visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_map: Option<MarkMap>,
    /// Variables of the session.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<Arc<str>, Arc<Value>>,
}

impl RecordedSession {
    /// Returns the session of a run that started with this state.
    pub(in crate::engine::durable) fn of(seed: &SessionSeed, state: &SessionState) -> Self {
        let conversation = &state.conversation;
        let marks = conversation.mark_map();
        let state = (state.version > 0).then(|| RecordedSessionState {
            conversation: conversation
                .since(0)
                .map(|counted| (*counted.message).clone())
                .collect(),
            mark_map: (*marks != MarkMap::default()).then(|| marks.clone()),
            variables: state.variables.clone(),
        });
        Self {
            id: Arc::clone(&seed.id),
            keeps_on_failure: seed.keeps_on_failure,
            state,
        }
    }
}

/// Counts the events of a run that are positions.
// The number in a key is 0, and the value is the number of the last event.
#[derive(Default)]
pub(crate) struct EventPositions(BTreeMap<EventPosition, u64>);

impl EventPositions {
    /// Returns the position of the next event; `None` if its type is no position.
    pub(crate) fn of(&mut self, thread_id: &Arc<str>, event: &RaisedEvent) -> Option<EventPosition> {
        if !POSITIONS.contains(&event.event_type) {
            return None;
        }
        let position = EventPosition {
            event_type: event.event_type,
            thread_id: Arc::clone(thread_id),
            node_id: event.fields.text("nodeId").map(Arc::from),
            number: 0,
        };
        let number = self.0.entry(position.clone()).or_default();
        *number += 1;
        Some(EventPosition {
            number: *number,
            ..position
        })
    }
}

/// Collects the inputs of a replayed run that it did not request.
#[derive(Default)]
pub(in crate::engine::durable) struct OutsideWatch {
    pub(in crate::engine::durable) inputs: Vec<OutsideInput>,
    positions: EventPositions,
    last: Option<(EventPosition, Millis)>,
    /// Scripts and functions that run. Under virtual time they take no time.
    timeless: BTreeSet<(ThreadNo, EffectId)>,
    /// Time of the last journaled input.
    at: Millis,
    /// The last journaled input is the last of `inputs`, and is later than the one before it.
    is_movable: bool,
}

impl OutsideWatch {
    /// Notes that an input was journaled.
    pub(in crate::engine::durable) fn passed(&mut self, at: Millis) {
        // Two inputs of one millisecond would arrive in any order under virtual time.
        if self.is_movable
            && at == self.at
            && let Some(last) = self.inputs.last_mut()
        {
            last.after_ms = last.after_ms.saturating_sub(1);
        }
        self.is_movable = false;
        self.at = at;
    }

    /// Adds an input that arrived at this time; call it before [`Self::passed`].
    pub(in crate::engine::durable) fn add(&mut self, at: Millis, input: OutsideInputKind) {
        let is_later = at > self.at;
        self.passed(at);
        let since = self.last.as_ref().map_or(0, |(_, of_event)| *of_event);
        // While a script runs, only the order can be repeated: the next event comes without a delay.
        let after_ms = if self.timeless.is_empty() {
            at.saturating_sub(since)
        } else {
            0
        };
        self.is_movable = is_later;
        self.inputs.push(OutsideInput {
            after: self.last.as_ref().map(|(position, _)| position.clone()),
            after_ms,
            input,
        });
    }

    /// Notes that an effect has ended.
    pub(in crate::engine::durable) fn ended(&mut self, thread: ThreadNo, effect: EffectId) {
        self.timeless.remove(&(thread, effect));
    }

    /// Notes an effect of a step.
    pub(in crate::engine::durable) fn did(&mut self, at: Millis, effect: &Effect) {
        if let Some(emitted) = effect.emitted() {
            for (_, event) in emitted.numbered() {
                if let Some(position) = self.positions.of(emitted.thread_id, event) {
                    self.last = Some((position, at));
                }
            }
        }
        match effect {
            Effect::Thread { thread, effect } => match effect {
                thread::Effect::Evaluate { id, .. }
                | thread::Effect::Function { id, .. }
                | thread::Effect::Script { id, .. }
                | thread::Effect::ScriptStep { id, .. } => {
                    self.timeless.insert((*thread, *id));
                }
                thread::Effect::Drop { id } => self.ended(*thread, *id),
                _ => {}
            },
            Effect::Drop { thread, effect } => self.ended(*thread, *effect),
            Effect::ThreadEnded { thread } => self.timeless.retain(|(of, _)| of != thread),
            _ => {}
        }
    }
}
