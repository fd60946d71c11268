//! The trigger index against a reference that tests every trigger. Its cost grows with the number of matches.

use std::sync::Arc;

use pirn_definition::definition::TriggerDefinition;
use pirn_definition::event_type::EventType;
use pirn_events::event::{Event, EventData, RaisedEvent};
use pirn_events::trigger::{Owner, TriggerMachine};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A comparison `event.data.<field> <operator> <literal>`, or none, optionally joined with a second one by `&&`.
#[derive(Clone, Debug)]
struct Watching {
    owner: usize,
    thread: Option<usize>,
    name: Option<usize>,
    comparison: Option<(usize, bool, Value)>,
    second: Option<(usize, bool, Value)>,
    enabled: bool,
}

const OWNERS: [Option<&str>; 3] = [None, Some("w0"), Some("w1")];
const THREADS: [&str; 2] = ["t0", "t1"];
const NAMES: [&str; 2] = ["go", "stop"];
const FIELDS: [&str; 2] = ["a", "b"];

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!("1")),
        Just(json!("x")),
        Just(json!(1)),
        Just(json!(0)),
        Just(json!(true)),
        Just(json!(false)),
    ]
}

fn fields() -> impl Strategy<Value = Value> {
    prop_oneof![
        values(),
        Just(json!(1.0)),
        Just(json!(1.5)),
        Just(json!(null)),
        Just(json!(["1"]))
    ]
}

fn watching() -> impl Strategy<Value = Watching> {
    let comparison = || prop::option::of((0..2_usize, any::<bool>(), values()));
    let place = (0..3_usize, prop::option::of(0..2_usize), prop::option::of(0..2_usize));
    (place, comparison(), comparison(), prop::bool::weighted(0.8)).prop_map(
        |((owner, thread, name), comparison, second, enabled)| Watching {
            owner,
            thread,
            name,
            comparison,
            second,
            enabled,
        },
    )
}

fn definition(id: usize, watching: &Watching) -> TriggerDefinition {
    let comparisons = [&watching.comparison, &watching.second].into_iter().flatten();
    let comparisons: Vec<String> = comparisons
        .map(|(field, is_loose, literal)| {
            let operator = if *is_loose { "==" } else { "===" };
            format!("event.data.{} {operator} {literal}", FIELDS[*field])
        })
        .collect();
    let mut condition = json!({"eventType": "CUSTOM"});
    if let Some(name) = watching.name {
        condition["eventName"] = json!(NAMES[name]);
    }
    if !comparisons.is_empty() {
        condition["expression"] = json!(comparisons.join(" && "));
    }
    let definition = json!({
        "id": id.to_string(), "condition": condition, "enabled": watching.enabled,
        "action": {"type": "STOP_THREAD", "parameters": {}},
    });
    let mut definition: TriggerDefinition = serde_json::from_value(definition).expect("a trigger");
    definition.thread_id = watching.thread.map(|thread| THREADS[thread].to_owned());
    definition
}

/// JavaScript's answer to `value == literal` or `value === literal`.
fn equal(value: &Value, literal: &Value, is_loose: bool) -> bool {
    let number = |value: &Value| match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Value::String(text) => text.parse().ok(),
        Value::Array(items) => items.first().and_then(Value::as_str).and_then(|text| text.parse().ok()),
        Value::Null | Value::Object(_) => None,
    };
    match (value, literal) {
        (Value::Number(_), Value::Number(_)) => number(value) == number(literal),
        (Value::String(one), Value::String(other)) => one == other,
        (Value::Bool(one), Value::Bool(other)) => one == other,
        (Value::Null, _) => false,
        (Value::Array(items), Value::String(other)) => is_loose && items[0] == *other,
        (_, _) => is_loose && number(value).is_some() && number(value) == number(literal),
    }
}

proptest! {
    #[test]
    fn the_index_returns_every_matching_trigger_and_answers_only_if_the_condition_holds(
        triggers in prop::collection::vec(watching(), 0..40),
        removed in prop::collection::vec(any::<bool>(), 40),
        a in prop::option::of(fields()), b in prop::option::of(fields()),
        name in prop::option::of(0..2_usize), workflow in 0..2_usize, thread in 0..2_usize,
    ) {
        let mut machine = TriggerMachine::default();
        let mut keys = Vec::new();
        let owner = |watching: &Watching| OWNERS[watching.owner].map_or(Owner::Engine, |id| Owner::Workflow(id.into()));
        for (id, watching) in triggers.iter().enumerate() {
            keys.push(machine.add(owner(watching), Arc::new(definition(id, watching))).expect("ids differ"));
        }
        for (id, watching) in triggers.iter().enumerate().filter(|(id, _)| removed[*id]) {
            prop_assert!(machine.remove(&owner(watching), &id.to_string()).is_some());
        }
        let data: EventData = [("a", a), ("b", b)].into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        let mut raised = RaisedEvent::custom("", data);
        raised.event_name = name.map(|name| NAMES[name].into());
        let event = Event {
            sequence: 1, timestamp: 0, run_id: "r".into(), workflow_id: format!("w{workflow}").into(),
            thread_id: THREADS[thread].into(), raised,
        };
        let candidates = machine.candidates(&event);
        prop_assert!(candidates.is_sorted_by_key(|candidate| candidate.key), "in the order they were added");
        for (id, watching) in triggers.iter().enumerate() {
            let watches = watching.enabled && !removed[id]
                && OWNERS[watching.owner].is_none_or(|owner| *owner == *event.workflow_id)
                && watching.thread.is_none_or(|own| own == thread)
                && watching.name.is_none_or(|own| Some(own) == name);
            let holds = [&watching.comparison, &watching.second].into_iter().flatten().all(|(field, is_loose, literal)| {
                event.raised.fields["data"].get(FIELDS[*field]).is_some_and(|value| equal(value, literal, *is_loose))
            });
            let candidate = candidates.iter().find(|candidate| candidate.key == keys[id]);
            let (is_candidate, is_answered) = (candidate.is_some(), candidate.is_some_and(|candidate| candidate.is_answered));
            prop_assert!(is_candidate || !(watches && holds), "{watching:?} is left out of {event:?}");
            prop_assert!(!is_candidate || watches, "{watching:?} does not watch {event:?}");
            prop_assert!(!is_answered || holds, "{watching:?} {event:?}");
        }
        let watched = triggers.iter().enumerate().any(|(id, watching)| watching.enabled && !removed[id]);
        prop_assert_eq!(machine.interest().contains(EventType::Custom), watched);
    }
}
