//! Events.

mod data;
mod waits;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::value::Output;

pub(crate) use data::FieldRef;
pub use data::{EventData, EventFields, Field};
pub use waits::{EventWaits, MAX_KEPT_EVENTS, TakenEvents, WaitNo, is_kept, is_named, missed_event};

macro_rules! event_types {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal,)*) => {
        /// The type of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum EventType {
            $($(#[doc = $doc])* #[serde(rename = $word)] $name,)*
        }

        impl EventType {
            /// Every type, in declaration order.
            pub const ALL: &'static [EventType] = &[$(EventType::$name,)*];

            /// The upper-case word used in JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(EventType::$name => $word,)* }
            }
        }
    };
}

event_types! {
    /// A thread took its first step.
    ThreadStarted = "THREAD_STARTED",
    /// A thread ended COMPLETED.
    ThreadCompleted = "THREAD_COMPLETED",
    /// A thread ended FAILED or TIMEOUT.
    ThreadFailed = "THREAD_FAILED",
    /// A thread ended CANCELLED.
    ThreadCancelled = "THREAD_CANCELLED",
    /// A thread stopped at a safe point.
    ThreadPaused = "THREAD_PAUSED",
    /// A paused thread went on.
    ThreadResumed = "THREAD_RESUMED",
    /// A FORK started its paths.
    ThreadForkStarted = "THREAD_FORK_STARTED",
    /// Every path a FORK started has ended.
    ThreadForkCompleted = "THREAD_FORK_COMPLETED",
    /// A JOIN began to wait.
    ThreadJoinStarted = "THREAD_JOIN_STARTED",
    /// A JOIN's strategy succeeded.
    ThreadJoinConditionMet = "THREAD_JOIN_CONDITION_MET",
    /// A node began (each attempt).
    NodeStarted = "NODE_STARTED",
    /// A node ended well.
    NodeCompleted = "NODE_COMPLETED",
    /// A node failed (each attempt).
    NodeFailed = "NODE_FAILED",
    /// A message joined a conversation.
    MessageAdded = "MESSAGE_ADDED",
    /// A model request was put together: what it costs, of how much, and where the pinned block went.
    RequestPrepared = "REQUEST_PREPARED",
    /// A model request was repaired: calls without result closed, orphan results left out.
    RequestRepaired = "REQUEST_REPAIRED",
    /// The next request is over the token limit.
    TokenLimitExceeded = "TOKEN_LIMIT_EXCEEDED",
    /// The next request is over 80 % of the token limit.
    TokenUsageWarning = "TOKEN_USAGE_WARNING",
    /// A compression was applied.
    CompressionCompleted = "COMPRESSION_COMPLETED",
    /// A compression was not applied; the old conversation is whole.
    CompressionFailed = "COMPRESSION_FAILED",
    /// A triggered sub-workflow began.
    TriggeredSubgraphStarted = "TRIGGERED_SUBGRAPH_STARTED",
    /// A triggered sub-workflow ended and its results were applied.
    TriggeredSubgraphCompleted = "TRIGGERED_SUBGRAPH_COMPLETED",
    /// A triggered sub-workflow failed; the main thread goes on unchanged.
    TriggeredSubgraphFailed = "TRIGGERED_SUBGRAPH_FAILED",
    /// A trigger could not do its action.
    TriggerFailed = "TRIGGER_FAILED",
    /// A called sub-workflow began.
    SubgraphStarted = "SUBGRAPH_STARTED",
    /// A called sub-workflow ended.
    SubgraphCompleted = "SUBGRAPH_COMPLETED",
    /// A tool call began.
    ToolCallStarted = "TOOL_CALL_STARTED",
    /// A tool call ended well.
    ToolCallCompleted = "TOOL_CALL_COMPLETED",
    /// A tool call failed; the model was told.
    ToolCallFailed = "TOOL_CALL_FAILED",
    /// A question was put to a person.
    InteractionRequested = "INTERACTION_REQUESTED",
    /// A question was answered.
    InteractionAnswered = "INTERACTION_ANSWERED",
    /// The thread that asked no longer waits.
    InteractionWithdrawn = "INTERACTION_WITHDRAWN",
    /// Nobody answered a question in time.
    InteractionTimedOut = "INTERACTION_TIMED_OUT",
    /// A variable was assigned.
    VariableChanged = "VARIABLE_CHANGED",
    /// State was stored.
    CheckpointCreated = "CHECKPOINT_CREATED",
    /// A piece of a model's reply.
    LlmToken = "LLM_TOKEN",
    /// A trigger's SEND_NOTIFICATION.
    Notification = "NOTIFICATION",
    /// A run went on after a crash, and an effect of it had begun and had no outcome.
    EffectInDoubt = "EFFECT_IN_DOUBT",
    /// Raised by user code.
    Custom = "CUSTOM",
    /// CUSTOM events that WAIT nodes might have taken are no longer kept: there were too many of their name.
    EventDropped = "EVENT_DROPPED",
    /// A time of a SCHEDULE trigger has come: the event that its run is given. No run raises it.
    ScheduleDue = "SCHEDULE_DUE",
    /// A script wrote a line with `console`.
    ScriptLog = "SCRIPT_LOG",
    /// A large tool result was kept, and its conversation shows a preview.
    ArtifactKept = "ARTIFACT_KEPT",
    /// A large tool result is no longer kept: its run has too many.
    ArtifactDropped = "ARTIFACT_DROPPED",
    /// So much of a budget is used that models are told.
    BudgetWarning = "BUDGET_WARNING",
    /// A model call has used more than it had reserved of its budget.
    BudgetOverrun = "BUDGET_OVERRUN",
    /// The next request is over the share of the token limit at which a compression begins early.
    TokenLimitApproached = "TOKEN_LIMIT_APPROACHED",
}

/// A set of event types, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventMask(u64);

impl EventMask {
    /// No type.
    pub const NONE: Self = Self(0);
    /// Every type.
    pub const ALL: Self = Self(u64::MAX);

    /// The set of one.
    pub fn of(event_type: EventType) -> Self {
        Self(1 << (event_type as u64))
    }

    /// True if the set has the type.
    pub fn contains(self, event_type: EventType) -> bool {
        self.0 & Self::of(event_type).0 != 0
    }

    /// True if some type is in both sets.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The raw bits, for an atomic.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// From the raw bits.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// An event as a machine raises it; the bus adds `sequence` and `timestamp`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RaisedEvent {
    /// The type.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// Name of a CUSTOM event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_name: Option<Arc<str>>,
    /// Triggers between the run's own steps and this event.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trigger_depth: u32,
    /// The fields of this type of event; of a CUSTOM event one, `data`.
    #[serde(flatten)]
    pub fields: EventFields,
}

impl RaisedEvent {
    /// An event with fields: `RaisedEvent::new(EventType::NodeStarted, [("nodeId", json!("a"))])`.
    pub fn new<const N: usize>(event_type: EventType, fields: [(&'static str, Value); N]) -> Self {
        Self::with(event_type, EventFields::of_list(fields))
    }

    /// A CUSTOM event. What stands in its data is nowhere taken for a field of the event.
    pub fn custom(name: impl Into<Arc<str>>, data: impl Into<EventData>) -> Self {
        let data = Field::Data(Box::new(data.into()));
        Self {
            event_name: Some(name.into()),
            ..Self::with(EventType::Custom, EventFields::of([(DATA, data)]))
        }
    }

    /// An event with these fields.
    pub(crate) fn with(event_type: EventType, fields: EventFields) -> Self {
        Self {
            event_type,
            event_name: None,
            trigger_depth: 0,
            fields,
        }
    }

    /// The same with fields as they lie somewhere: `("nodeId", Field::from(&id))`.
    pub fn of<F: Into<Field>>(event_type: EventType, fields: impl IntoIterator<Item = (&'static str, F)>) -> Self {
        let fields = fields.into_iter().map(|(name, field)| (name, field.into()));
        Self::with(event_type, EventFields::of(fields))
    }

    /// The event, at least `depth` triggers away from the run's own steps.
    #[must_use]
    pub fn at_depth(mut self, depth: u32) -> Self {
        self.trigger_depth = self.trigger_depth.max(depth);
        self
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(depth: &u32) -> bool {
    *depth == 0
}

/// An event as subscribers, triggers and `--events` see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Gapless within the run, from 1.
    pub sequence: u64,
    /// Milliseconds since the Unix epoch (under virtual time: since the run's start).
    pub timestamp: u64,
    /// The run.
    pub run_id: Arc<str>,
    /// The workflow of the thread it happened in.
    pub workflow_id: Arc<str>,
    /// The thread it happened in.
    pub thread_id: Arc<str>,
    /// Its type and fields.
    #[serde(flatten)]
    pub raised: RaisedEvent,
}

impl Event {
    /// As JSON: what scripts, WAIT nodes and registered functions get to see. The same as serde makes of it, for less.
    pub fn to_json(&self) -> Value {
        Value::Object(self.fields())
    }

    /// As [`Event::to_json`], made when somebody looks.
    pub fn shown_later(self: &Arc<Self>) -> Output {
        let event = Arc::clone(self);
        Output::later(1 + self.raised.fields.levels(), move || event.to_json())
    }

    /// Makes `shown` what [`Event::to_json`] gives. Where another event with the same fields stands there, its place is
    /// taken without making an object anew.
    pub fn show_in(&self, shown: &mut Value) {
        let is_shown = match shown {
            Value::Object(fields) => self.replace(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
        };
        if !is_shown {
            *shown = self.to_json();
        }
    }

    fn fields(&self) -> Map<String, Value> {
        let mut fields = self.raised.fields.to_map();
        for name in OWN_FIELDS {
            if let Some(value) = self.own(name) {
                fields.insert(name.to_owned(), (&value).into());
            }
        }
        fields
    }

    /// Sets every field to this event's. False where that is not the event: there are others, or too few.
    fn replace(&self, fields: &mut Map<String, Value>) -> bool {
        // Both stand in the same order: a field of its type is the next one of those, or this is another event's.
        let mut typed = self.raised.fields.iter().peekable();
        let mut own = 0;
        for (name, shown) in fields.iter_mut() {
            match (typed.next_if(|(next, _)| *next == name), self.own(name)) {
                (Some((_, value)), _) => shown.clone_from(value),
                (None, Some(value)) => {
                    own += 1;
                    value.show_in(shown);
                }
                (None, None) => return false,
            }
        }
        typed.next().is_none() && own == self.own_count()
    }

    /// One of the event's own fields.
    fn own(&self, name: &str) -> Option<Own<'_>> {
        match name {
            "sequence" => Some(Own::Number(self.sequence)),
            "timestamp" => Some(Own::Number(self.timestamp)),
            "runId" => Some(Own::Text(&self.run_id)),
            "workflowId" => Some(Own::Text(&self.workflow_id)),
            "threadId" => Some(Own::Text(&self.thread_id)),
            "type" => Some(Own::Text(self.raised.event_type.as_str())),
            "eventName" => self.raised.event_name.as_deref().map(Own::Text),
            "triggerDepth" => {
                let depth = u64::from(self.raised.trigger_depth);
                (depth > 0).then_some(Own::Number(depth))
            }
            _ => None,
        }
    }

    fn own_count(&self) -> usize {
        let is_deep = self.raised.trigger_depth > 0;
        OWN_FIELDS.len() - usize::from(self.raised.event_name.is_none()) - usize::from(!is_deep)
    }
}

/// The field of a CUSTOM event that has what its raiser gave.
pub(crate) const DATA: &str = "data";

/// The fields of every event.
pub(crate) const OWN_FIELDS: [&str; 8] = [
    "sequence",
    "timestamp",
    "runId",
    "workflowId",
    "threadId",
    "type",
    "eventName",
    "triggerDepth",
];

/// The value of one of them.
enum Own<'a> {
    Number(u64),
    Text(&'a str),
}

impl Own<'_> {
    fn show_in(&self, shown: &mut Value) {
        match (self, shown) {
            (Self::Text(text), Value::String(shown)) => {
                shown.clear();
                shown.push_str(text);
            }
            (own, shown) => *shown = own.into(),
        }
    }
}

impl From<&Own<'_>> for Value {
    fn from(own: &Own<'_>) -> Self {
        match own {
            Own::Number(number) => (*number).into(),
            Own::Text(text) => (*text).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Events of few names, so that the same ones meet again.
    fn event() -> impl Strategy<Value = Event> {
        let name = prop_oneof![
            "[ab]",
            Just("data".to_owned()),
            prop::sample::select(&OWN_FIELDS[..]).prop_map(str::to_owned),
        ];
        let value = prop_oneof![
            (0..9_i32).prop_map(|n| json!(n)),
            "[a-z]{0,3}".prop_map(|text| json!(text))
        ];
        (
            prop::sample::select(EventType::ALL),
            prop::option::of("[a-z]{0,4}"),
            0..3_u32,
            prop::collection::btree_map(name, value, 0..4),
            (0..9_u64, "[a-z]{1,9}"),
        )
            .prop_map(|(event_type, event_name, depth, data, (sequence, run_id))| {
                let raised = match event_name {
                    Some(name) => RaisedEvent::custom(name, data.into_iter().collect::<EventData>()),
                    None => RaisedEvent::new(
                        event_type,
                        data.into_iter()
                            .next()
                            .map_or([("a", json!(1))], |(_, value)| [("b", value)]),
                    ),
                };
                Event {
                    sequence,
                    timestamp: 5,
                    thread_id: format!("{run_id}.0").into(),
                    run_id: run_id.into(),
                    workflow_id: "w".into(),
                    raised: raised.at_depth(depth),
                }
            })
    }

    proptest! {
        #[test]
        fn whatever_the_data_of_an_event_is_called_its_own_fields_are_its_own(event in event()) {
            let written = serde_json::to_string(&event).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Event>(&written).unwrap(), &event, "{}", written);
            let shown = event.to_json();
            prop_assert_eq!(&shown["sequence"], &json!(event.sequence));
            prop_assert_eq!(&shown["runId"], &json!(event.run_id));
            prop_assert_eq!(&shown["type"], &json!(event.raised.event_type));
        }

        #[test]
        fn an_event_as_json_is_what_serde_makes_of_it(event in event()) {
            prop_assert_eq!(event.to_json(), serde_json::to_value(&event).unwrap());
        }

        #[test]
        fn whatever_was_shown_before_an_event_nothing_of_it_is_left(
            events in prop::collection::vec(prop_oneof![event().prop_map(Some), Just(None)], 0..6),
        ) {
            let mut shown = Value::Null;
            for event in events {
                match event {
                    Some(event) => {
                        event.show_in(&mut shown);
                        prop_assert_eq!(&shown, &event.to_json());
                    }
                    None => shown = json!({"type": null, "b": [1]}),
                }
            }
        }
    }
}
