//! Triggers that fire themselves, against a naive closure over "this trigger, fired by a thread of that workflow".

use std::collections::BTreeSet;

use pirn_definition::definition::FaultCode;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixtures::{analyse_json, pointers};

const EVENTS: [&str; 6] = [
    "THREAD_COMPLETED",
    "NODE_COMPLETED",
    "VARIABLE_CHANGED",
    "NOTIFICATION",
    "THREAD_PAUSED",
    "THREAD_RESUMED",
];

#[derive(Clone, Copy, Debug)]
enum Action {
    Start(usize),
    Set,
    Notify,
    Pause,
    Resume,
}

#[derive(Clone, Debug)]
struct TriggerSpec {
    scope: Option<usize>,
    event: usize,
    action: Action,
    guarded: bool,
}

#[derive(Clone, Debug)]
struct FlowSpec {
    assigns: bool,
    /// True if the workflow calls the next one.
    calls: bool,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..3_usize).prop_map(Action::Start),
        1 => Just(Action::Set),
        1 => Just(Action::Notify),
        1 => Just(Action::Pause),
        1 => Just(Action::Resume),
    ]
}

fn trigger() -> impl Strategy<Value = TriggerSpec> {
    (
        prop::option::of(0..3_usize),
        0..EVENTS.len(),
        action(),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(scope, event, action, guarded)| TriggerSpec {
            scope,
            event,
            action,
            guarded,
        })
}

fn file(flows: &[FlowSpec], triggers: &[TriggerSpec]) -> Value {
    let written = |(place, trigger): (usize, &TriggerSpec)| {
        let action = match trigger.action {
            Action::Start(flow) => json!({"type": "START_WORKFLOW", "parameters": {"workflowId": format!("w{flow}")}}),
            Action::Set => json!({"type": "SET_VARIABLE", "parameters": {"variableName": "v", "value": 1}}),
            Action::Notify => json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "m"}}),
            Action::Pause => json!({"type": "PAUSE_THREAD", "parameters": {}}),
            Action::Resume => json!({"type": "RESUME_THREAD", "parameters": {}}),
        };
        let mut written =
            json!({"id": format!("t{place}"), "condition": {"eventType": EVENTS[trigger.event]}, "action": action});
        if trigger.guarded {
            written["condition"]["expression"] = json!("event.nodeId === 'x'");
        }
        written
    };
    let placed: Vec<(Option<usize>, Value)> = triggers
        .iter()
        .enumerate()
        .map(|one| (one.1.scope, written(one)))
        .collect();
    let inside = |scope: Option<usize>| -> Vec<Value> {
        placed
            .iter()
            .filter(|(found, _)| *found == scope)
            .map(|(_, written)| written.clone())
            .collect()
    };
    let workflows: Vec<Value> = flows
        .iter()
        .enumerate()
        .map(|(place, flow)| {
            let mut nodes = vec![json!({"id": "s", "type": "START"})];
            let mut edges = Vec::new();
            let mut last = "s";
            if flow.assigns {
                nodes.push(json!({"id": "v", "type": "VARIABLE", "config": {"variableName": "v", "expression": "1"}}));
                edges.push(json!({"from": last, "to": "v"}));
                last = "v";
            }
            if flow.calls && place + 1 < flows.len() {
                nodes.push(json!({"id": "c", "type": "SUBGRAPH", "config": {"subgraphId": format!("w{}", place + 1)}}));
                edges.push(json!({"from": last, "to": "c"}));
                last = "c";
            }
            nodes.push(json!({"id": "e", "type": "END"}));
            edges.push(json!({"from": last, "to": "e"}));
            json!({"id": format!("w{place}"), "nodes": nodes, "edges": edges, "triggers": inside(Some(place))})
        })
        .collect();
    json!({"workflows": workflows, "triggers": inside(None)})
}

/// Returns the events, as (workflow of the thread, event), that follow when the trigger fires in a thread of `flow`.
fn follows(flows: &[FlowSpec], trigger: &TriggerSpec, flow: usize) -> Vec<(usize, &'static str)> {
    let event = EVENTS[trigger.event];
    match trigger.action {
        Action::Start(mut started) => {
            let mut found = Vec::new();
            loop {
                found.extend(["THREAD_COMPLETED", "NODE_COMPLETED"].map(|event| (started, event)));
                if flows[started].assigns {
                    found.push((started, "VARIABLE_CHANGED"));
                }
                if !flows[started].calls || started + 1 >= flows.len() {
                    return found;
                }
                started += 1;
            }
        }
        Action::Set if event != "THREAD_COMPLETED" => vec![(flow, "VARIABLE_CHANGED")],
        Action::Notify => vec![(flow, "NOTIFICATION")],
        Action::Pause if event != "THREAD_PAUSED" && event != "THREAD_COMPLETED" => vec![(flow, "THREAD_PAUSED")],
        Action::Resume if event == "THREAD_PAUSED" => vec![(flow, "THREAD_RESUMED")],
        Action::Set | Action::Pause | Action::Resume => Vec::new(),
    }
}

/// Returns the triggers that can cause themselves.
fn looping(flows: &[FlowSpec], triggers: &[TriggerSpec]) -> BTreeSet<usize> {
    let fires = |flow: usize, event: &str| -> Vec<(usize, usize)> {
        let matches = |trigger: &TriggerSpec| {
            !trigger.guarded && EVENTS[trigger.event] == event && trigger.scope.is_none_or(|scope| scope == flow)
        };
        (0..triggers.len())
            .filter(|place| matches(&triggers[*place]))
            .map(|place| (place, flow))
            .collect()
    };
    let next = |(place, flow): (usize, usize)| -> Vec<(usize, usize)> {
        follows(flows, &triggers[place], flow)
            .into_iter()
            .flat_map(|(flow, event)| fires(flow, event))
            .collect()
    };
    let leads_back = |start: (usize, usize)| {
        let mut seen = BTreeSet::new();
        let mut open = next(start);
        while let Some(one) = open.pop() {
            if seen.insert(one) {
                open.extend(next(one));
            }
        }
        seen.contains(&start)
    };
    let may_start =
        |place: usize, flow: usize| !triggers[place].guarded && triggers[place].scope.is_none_or(|scope| scope == flow);
    (0..triggers.len())
        .filter(|place| (0..flows.len()).any(|flow| may_start(*place, flow) && leads_back((*place, flow))))
        .collect()
}

proptest! {
    #[test]
    fn a_trigger_is_reported_as_firing_itself_if_and_only_if_its_action_causes_its_event(
        flows in prop::collection::vec((any::<bool>(), any::<bool>()), 3),
        triggers in prop::collection::vec(trigger(), 0..6),
    ) {
        let flows: Vec<FlowSpec> = flows.into_iter().map(|(assigns, calls)| FlowSpec { assigns, calls }).collect();
        let (_, analysis) = analyse_json(&file(&flows, &triggers));
        let looping = looping(&flows, &triggers);
        let ids: Vec<String> = pointers(&analysis, &[FaultCode::TriggerFiresItself, FaultCode::WorkflowRing]);
        let reported: BTreeSet<usize> = ids.iter().map(|pointer| {
            let steps: Vec<&str> = pointer.split('/').collect();
            let (scope, place) = match steps.as_slice() {
                ["", "workflows", flow, "triggers", place, ..] => (flow.parse().ok(), *place),
                ["", "triggers", place, ..] => (None, *place),
                _ => panic!("{pointer}"),
            };
            let place: usize = place.parse().expect("a place");
            let among = triggers.iter().enumerate().filter(|(_, trigger)| trigger.scope == scope);
            among.map(|(number, _)| number).nth(place).expect("a trigger")
        }).collect();
        prop_assert!(reported.is_subset(&looping), "{reported:?} of {looping:?}\n{:#?}", analysis.warnings);
        // a cycle of workflows is reported once, at one of its triggers
        let rings = !pointers(&analysis, &[FaultCode::WorkflowRing]).is_empty();
        prop_assert!(rings || reported == looping, "{reported:?} of {looping:?}\n{:#?}", analysis.warnings);
        prop_assert_eq!(reported.is_empty(), looping.is_empty());
    }
}

#[test]
fn a_trigger_on_token_events_or_failures_is_not_reported_as_firing_itself() {
    for event in [
        "TOKEN_LIMIT_EXCEEDED",
        "NODE_FAILED",
        "THREAD_FAILED",
        "TRIGGERED_SUBGRAPH_FAILED",
    ] {
        let file = json!({"workflows": [{"id": "w",
            "nodes": [{"id": "s", "type": "START"}, {"id": "l", "type": "LLM"}, {"id": "e", "type": "END"}],
            "edges": [{"from": "s", "to": "l"}, {"from": "l", "to": "e"}]}],
          "triggers": [{"id": "t", "condition": {"eventType": event},
            "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "w"}}}]});
        let (_, analysis) = analyse_json(&file);
        assert_eq!(analysis.warnings, [], "{event}");
    }
}
