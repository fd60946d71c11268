//! Triggers of type SCHEDULE: accepted forms and faults.

use pirn_definition::definition::{CatchUp, FaultCode, Overlap, ScheduleDefinition, TriggerDefinition};
use serde_json::{Value, json};

use crate::definitions::fixtures::{build, flow, loaded, node, shown, the_fault};

fn trigger(schedule: &Value) -> Value {
    json!({"id": "t", "type": "SCHEDULE", "schedule": schedule,
        "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "w"}}})
}

fn file(trigger: &Value) -> String {
    let mut workflow = flow(&json!([node("s", "START"), node("e", "END")]), &["s>e"]);
    workflow["id"] = json!("w");
    json!({"workflows": [workflow], "triggers": [trigger]}).to_string()
}

#[test]
fn a_schedule_gets_its_defaults_and_round_trips() {
    let read = loaded(trigger(&json!({"cron": "0 3 * * *"})).to_string());
    assert!(read.faults.is_empty(), "{}", shown(&read.faults));
    let expected = TriggerDefinition::scheduled("t", ScheduleDefinition::cron("0 3 * * *"), "w");
    assert_eq!(read.triggers[0].value, expected);
    let all = json!({"cron": "0 0 3 * * *", "timezone": "Europe/Berlin", "overlap": "cancelPrevious",
        "catchUp": "all", "jitterMs": 500});
    let read = loaded(trigger(&all).to_string()).triggers[0].value.clone();
    let schedule = read.schedule.clone().expect("a schedule");
    assert_eq!(
        (schedule.overlap, schedule.catch_up),
        (Overlap::CancelPrevious, CatchUp::All)
    );
    let again = loaded(serde_json::to_string(&read).expect("JSON"));
    assert!(again.faults.is_empty(), "{}", shown(&again.faults));
    assert_eq!(again.triggers[0].value, read);
}

#[test]
fn a_fault_of_a_schedule_is_reported_with_its_location() {
    let cases = [
        (
            trigger(&json!({"cron": "0 3 * *"})),
            FaultCode::InvalidSchedule,
            "/triggers/0/schedule/cron",
        ),
        (
            trigger(&json!({"cron": "0 3 31 2 *"})),
            FaultCode::InvalidSchedule,
            "/triggers/0/schedule/cron",
        ),
        (
            trigger(&json!({"cron": "0 3 * * *", "timezone": "Europe/Berln"})),
            FaultCode::InvalidSchedule,
            "/triggers/0/schedule/timezone",
        ),
        (
            trigger(&json!({"timezone": "UTC"})),
            FaultCode::MissingField,
            "/triggers/0/schedule",
        ),
        (
            trigger(&json!({"cron": "0 3 * * *", "overlap": "maybe"})),
            FaultCode::InvalidValue,
            "/triggers/0/schedule/overlap",
        ),
    ];
    for (trigger, code, place) in cases {
        let compiled = build(file(&trigger));
        assert_eq!(the_fault(&compiled.faults, code).pointer, place, "{trigger}");
    }
    let two = build(file(&trigger(&json!({"cron": "0 3 * *", "timezone": "Europe/Berln"})))).faults;
    let places: Vec<&str> = two.iter().map(|fault| &*fault.pointer).collect();
    assert_eq!(places, ["/triggers/0/schedule/cron", "/triggers/0/schedule/timezone"]);
    let mut stops = trigger(&json!({"cron": "0 3 * * *"}));
    stops["action"] = json!({"type": "STOP_THREAD"});
    let compiled = build(file(&stops));
    assert_eq!(
        the_fault(&compiled.faults, FaultCode::InvalidSchedule).pointer,
        "/triggers/0/action"
    );
    let mut both = trigger(&json!({"cron": "0 3 * * *"}));
    both["condition"] = json!({"eventType": "NODE_FAILED"});
    let compiled = build(file(&both));
    assert_eq!(
        the_fault(&compiled.faults, FaultCode::InvalidValue).pointer,
        "/triggers/0/condition"
    );
    both["type"] = json!("EVENT");
    let compiled = build(file(&both));
    assert_eq!(
        the_fault(&compiled.faults, FaultCode::InvalidValue).pointer,
        "/triggers/0/schedule"
    );
}

#[test]
fn schedules_with_one_stored_name_are_refused() {
    let schedule = json!({"cron": "0 3 * * *"});
    let named = |id: &str| {
        let mut one = trigger(&schedule);
        one["id"] = json!(id);
        one
    };
    let faults_of = |inner: &[(&str, &str)], outer: &[&str]| {
        let workflows = inner.iter().map(|(workflow, id)| {
            let mut file = flow(&json!([node("s", "START"), node("e", "END")]), &["s>e"]);
            file["id"] = json!(workflow);
            file["triggers"] = json!([named(id)]);
            file
        });
        let workflows: Vec<Value> = workflows.collect();
        let outer: Vec<Value> = outer.iter().map(|id| named(id)).collect();
        let compiled = build(json!({"workflows": workflows, "triggers": outer}).to_string());
        let faults = compiled.faults.iter().map(|fault| (fault.code, fault.pointer.clone()));
        faults.collect::<Vec<_>>()
    };
    let taken = |pointer: &str| (FaultCode::DuplicateTriggerId, pointer.to_owned());
    assert_eq!(faults_of(&[("w", "t")], &["t", "w", "w.u"]), []);
    assert_eq!(faults_of(&[("w", "t")], &["w.t"]), [taken("/triggers/0/id")]);
    assert_eq!(
        faults_of(&[("w", "x.t"), ("w.x", "t")], &["w"]),
        [taken("/workflows/1/triggers/0/id")]
    );
    // Equal ids of one owner are one fault and not two.
    assert_eq!(faults_of(&[("w", "t")], &["a.b", "a.b"]), [taken("/triggers/1/id")]);
}
