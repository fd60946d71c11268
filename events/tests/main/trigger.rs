//! Arbitrary inputs for the trigger machine: no trigger exceeds its count, removed and disabled triggers never fire, no panic.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_definition::definition::TriggerDefinition;
use pirn_definition::event_type::EventType;
use pirn_events::event::{Event, EventMask, RaisedEvent};
use pirn_events::trigger::{DEFAULT_CHAIN_LIMIT, DEFAULT_TRIGGERED_EVENTS, FireResult, Owner, TriggerMachine};
use proptest::prelude::*;
use serde_json::json;

#[derive(Clone, Debug)]
enum Action {
    Add {
        inside: bool,
        id: u8,
        most: u64,
        enabled: bool,
    },
    Remove {
        inside: bool,
        id: u8,
    },
    Enable {
        inside: bool,
        id: u8,
        enabled: bool,
    },
    RunEnded(u8),
    Happened {
        run: u8,
        depth: u32,
        is_other: bool,
    },
    /// A number without a trigger.
    FireUnknown,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (any::<bool>(), 0..4_u8, 0..4_u64, any::<bool>())
            .prop_map(|(inside, id, most, enabled)| Action::Add { inside, id, most, enabled }),
        1 => (any::<bool>(), 0..4_u8).prop_map(|(inside, id)| Action::Remove { inside, id }),
        2 => (any::<bool>(), 0..4_u8, any::<bool>())
            .prop_map(|(inside, id, enabled)| Action::Enable { inside, id, enabled }),
        1 => (0..3_u8).prop_map(Action::RunEnded),
        8 => (0..3_u8, 0..10_u32, prop::bool::weighted(0.2))
            .prop_map(|(run, depth, is_other)| Action::Happened { run, depth, is_other }),
        1 => Just(Action::FireUnknown),
    ]
}

fn owner(inside: bool) -> Owner {
    if inside {
        Owner::Workflow("w".into())
    } else {
        Owner::Engine
    }
}

fn event(run: u8, depth: u32, is_other: bool) -> Event {
    Event {
        sequence: 1,
        timestamp: 0,
        run_id: run.to_string().into(),
        workflow_id: if is_other { "other" } else { "w" }.into(),
        thread_id: "t".into(),
        raised: RaisedEvent {
            trigger_depth: depth,
            ..RaisedEvent::new(EventType::NodeFailed, [])
        },
    }
}

proptest! {
    #[test]
    fn no_trigger_fires_more_than_max_triggers_times(all in prop::collection::vec(action(), 0..80)) {
        let mut machine = TriggerMachine::default();
        // By owner and id: the maximum count, and the number of firings.
        let mut known: BTreeMap<(bool, u8), (u64, u64)> = BTreeMap::new();
        // Firings of workflow triggers with a limit, by run and id: a trigger that replaces another one continues its count.
        let mut by_run: BTreeMap<(u8, u8), u64> = BTreeMap::new();
        for action in all {
            match action {
                Action::Add { inside, id, most, enabled } => {
                    let definition: TriggerDefinition = serde_json::from_value(json!({
                        "id": id.to_string(), "condition": {"eventType": "NODE_FAILED"}, "maxTriggers": most, "enabled": enabled,
                        "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "m"}}}))?;
                    let added = machine.add(owner(inside), Arc::new(definition));
                    prop_assert_eq!(added.is_err(), known.contains_key(&(inside, id)), "an id stands once");
                    known.entry((inside, id)).or_insert((most, 0));
                }
                Action::Remove { inside, id } => {
                    let was = known.remove(&(inside, id)).is_some();
                    prop_assert_eq!(machine.remove(&owner(inside), &id.to_string()).is_some(), was);
                }
                Action::Enable { inside, id, enabled } => {
                    let changed = machine.set_enabled(&owner(inside), &id.to_string(), enabled);
                    prop_assert_eq!(changed.is_some(), known.contains_key(&(inside, id)));
                }
                Action::RunEnded(run) => {
                    machine.run_ended(&run.to_string());
                    by_run.retain(|(of, _), _| *of != run);
                }
                Action::Happened { run, depth, is_other } => {
                    let event = event(run, depth, is_other);
                    let states: BTreeMap<(bool, String), bool> = [false, true].into_iter().flat_map(|inside| {
                        machine.states(&owner(inside)).into_iter().map(move |state| ((inside, state.id), state.enabled))
                    }).collect();
                    for watcher in machine.candidates(&event) {
                        let id = machine.definition(watcher).expect("it was not removed").id.clone();
                        let before = machine.states(&Owner::Engine);
                        let fire = machine.fire(watcher.key, &event);
                        // Two triggers may have one id: select the one with the increased count.
                        let inside = machine.states(&Owner::Engine) == before;
                        match fire {
                            FireResult::Fired { count } => {
                                prop_assert!(depth < DEFAULT_CHAIN_LIMIT);
                                prop_assert!(!(inside && is_other), "a workflow's trigger watches that workflow");
                                prop_assert_eq!(states.get(&(inside, id.clone())), Some(&true), "it was enabled");
                                let id = id.parse()?;
                                let (most, fired) = known.get_mut(&(inside, id)).expect("it was added");
                                let fired = if inside && *most > 0 { by_run.entry((run, id)).or_default() } else { fired };
                                *fired += 1;
                                let counted = *fired;
                                prop_assert!(*most == 0 || counted <= *most, "{counted} of {most}");
                                prop_assert!(*most == 0 || count == counted, "{count} for {counted}");
                            }
                            FireResult::TooDeep => prop_assert!(depth >= DEFAULT_CHAIN_LIMIT),
                            FireResult::Refused => {}
                            FireResult::Exhausted { .. } => prop_assert!(false, "no run here comes near its budget"),
                        }
                    }
                }
                Action::FireUnknown => {
                    prop_assert_eq!(machine.fire(u32::MAX, &event(0, 0, false)), FireResult::Refused);
                }
            }
            if machine.interest() == EventMask::NONE {
                prop_assert!(machine.candidates(&event(0, 0, false)).is_empty());
            }
        }
    }
}

#[test]
fn f18_a_stored_firing_count_is_restored() {
    let definition: TriggerDefinition = serde_json::from_value(json!({"id": "t", "maxTriggers": 3,
        "condition": {"eventType": "NODE_FAILED"}, "action": {"type": "STOP_THREAD", "parameters": {}}}))
    .expect("a trigger");
    for inside in [false, true] {
        let mut machine = TriggerMachine::default();
        let key = machine.add(owner(inside), Arc::new(definition.clone())).expect("new");
        let fires = |machine: &mut TriggerMachine| {
            let event = event(1, 0, false);
            let is_candidate = machine.candidates(&event).iter().any(|candidate| candidate.key == key);
            is_candidate && matches!(machine.fire(key, &event), FireResult::Fired { .. })
        };
        assert!(fires(&mut machine), "F18");
        let written = serde_json::to_string(&machine).expect("a machine is data");
        assert!(
            fires(&mut machine) && fires(&mut machine) && !fires(&mut machine),
            "F18"
        );
        let mut again: TriggerMachine = serde_json::from_str(&written).expect("as it was written");
        assert_eq!(again.states(&owner(inside))[0].fired, 1, "F18");
        assert!(fires(&mut again) && fires(&mut again) && !fires(&mut again), "F18");
    }
}

#[test]
fn a_removed_candidate_does_not_fire_the_trigger_in_its_slot() {
    let definition = |id: &str| -> TriggerDefinition {
        serde_json::from_value(json!({"id": id, "condition": {"eventType": "NODE_FAILED"},
            "action": {"type": "STOP_THREAD", "parameters": {}}}))
        .expect("a trigger")
    };
    let mut machine = TriggerMachine::default();
    let event = event(1, 0, false);
    machine.add(Owner::Engine, Arc::new(definition("first"))).expect("new");
    let candidates = machine.candidates(&event);
    assert!(machine.remove(&Owner::Engine, "first").is_some());
    machine.add(Owner::Engine, Arc::new(definition("second"))).expect("new");
    assert_eq!(machine.fire(candidates[0].key, &event), FireResult::Refused);
    assert_eq!(machine.states(&Owner::Engine)[0].fired, 0);
    let candidates = machine.candidates(&event);
    assert_eq!(machine.fire(candidates[0].key, &event), FireResult::Fired { count: 1 });
}

#[test]
fn f17_candidates_found_for_many_events_fire_at_most_max_triggers_times() {
    let definition: TriggerDefinition = serde_json::from_value(json!({"id": "t", "maxTriggers": 3,
        "condition": {"eventType": "NODE_FAILED"}, "action": {"type": "STOP_THREAD", "parameters": {}}}))
    .expect("a trigger");
    for inside in [false, true] {
        let mut machine = TriggerMachine::default();
        let key = machine.add(owner(inside), Arc::new(definition.clone())).expect("new");
        machine.set_tag(key, 7);
        let event = event(1, 0, false);
        let mut watchers = Vec::new();
        for _ in 0..5 {
            machine.find(&event, &mut watchers);
        }
        assert!(
            watchers
                .iter()
                .all(|watcher| (watcher.key, watcher.tag) == (key, Some(7)))
        );
        let fires = watchers.iter().map(|watcher| machine.fire(watcher.key, &event));
        let counts: Vec<FireResult> = fires.collect();
        let expected = [1, 2, 3].map(|count| FireResult::Fired { count });
        assert_eq!(counts, [&expected[..], &[FireResult::Refused; 2]].concat(), "F17");
        assert!(machine.definition(watchers[0]).is_some_and(|own| own.id == "t"));
        machine.remove(&owner(inside), "t");
        assert!(machine.definition(watchers[0]).is_none());
    }
}

proptest! {
    /// Budget per run: caused events fire up to the budget, exhaustion is reported once, and no firing follows.
    #[test]
    fn a_run_fires_within_its_trigger_budget_and_reports_exhaustion_once(
        most in prop::collection::vec(prop::option::of(0..6_u64), 3),
        all in prop::collection::vec((0..3_u8, 0..3_u32), 0..60),
    ) {
        let mut machine = TriggerMachine::default();
        let definition: TriggerDefinition = serde_json::from_value(json!({
            "id": "t", "condition": {"eventType": "NODE_FAILED"},
            "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "m"}}}))?;
        let key = machine.add(Owner::Engine, Arc::new(definition)).expect("it is the first");
        for (run, most) in most.iter().enumerate() {
            if let Some(most) = most {
                machine.set_budget(&run.to_string(), *most);
            }
        }
        let mut caused = [0; 3];
        let mut reported = [false; 3];
        for (run, depth) in all {
            let fire = machine.fire(key, &event(run, depth, false));
            let place = usize::from(run);
            let budget = most[place].unwrap_or(DEFAULT_TRIGGERED_EVENTS);
            if depth == 0 {
                prop_assert!(matches!(fire, FireResult::Fired { .. }), "the run's own steps have no budget");
            } else if caused[place] < budget {
                caused[place] += 1;
                prop_assert!(matches!(fire, FireResult::Fired { .. }), "within its budget");
            } else if reported[place] {
                prop_assert_eq!(fire, FireResult::Refused);
            } else {
                reported[place] = true;
                prop_assert_eq!(fire, FireResult::Exhausted { most: budget });
            }
            // Serialization must not change the state.
            machine = serde_json::from_value(serde_json::to_value(&machine)?)?;
        }
        machine.run_ended("0");
        prop_assert!(matches!(machine.fire(key, &event(0, 1, false)), FireResult::Fired { .. }), "its counts are forgotten");
    }
}

/// After its end, a run has at most the default budget, counted from then, even if its budget was larger.
#[test]
fn an_ended_run_has_at_most_the_default_trigger_budget() {
    for (most, before) in [(1_000_000, 7), (1_000_000, 0), (20, 7)] {
        let mut machine = TriggerMachine::default();
        let definition: TriggerDefinition = serde_json::from_value(json!({
            "id": "t", "condition": {"eventType": "NODE_FAILED"},
            "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "m"}}}))
        .expect("a trigger");
        let key = machine.add(Owner::Engine, Arc::new(definition)).expect("new");
        machine.set_budget("1", most);
        let fires = |times: u64, machine: &mut TriggerMachine| {
            let fired =
                (0..times).filter(|_| matches!(machine.fire(key, &event(1, 1, false)), FireResult::Fired { .. }));
            fired.count() as u64
        };
        assert_eq!(fires(before, &mut machine), before);
        machine.run_ends("1");
        let first = fires(100, &mut machine);
        // A repeated call does not restore any budget.
        machine.run_ends("1");
        let left = first + fires(20_000, &mut machine);
        assert_eq!(left, (most - before).min(DEFAULT_TRIGGERED_EVENTS), "{most} {before}");
    }
}

#[test]
fn a_runs_own_triggers_replace_the_registered_ones_of_its_workflow() {
    let definition = |id: &str| -> Arc<TriggerDefinition> {
        let trigger = json!({"id": id, "maxTriggers": 2, "condition": {"eventType": "NODE_FAILED"},
            "action": {"type": "STOP_THREAD", "parameters": {}}});
        Arc::new(serde_json::from_value(trigger).expect("a trigger"))
    };
    let mut machine = TriggerMachine::default();
    let registered = machine.add(owner(true), definition("t")).expect("new");
    let everywhere = machine.add(owner(false), definition("e")).expect("new");
    let (own_run, other_run) = (event(1, 0, false), event(2, 0, false));
    let keys = |machine: &mut TriggerMachine, event: &Event| -> Vec<u32> {
        machine.candidates(event).iter().map(|found| found.key).collect()
    };
    assert_eq!(machine.fire(registered, &own_run), FireResult::Fired { count: 1 });
    machine.set_own(&own_run.run_id, &"w".into(), vec![definition("t")]);
    let own = match keys(&mut machine, &own_run)[..] {
        [first, second] if first == everywhere => second,
        ref found => panic!("{found:?}"),
    };
    assert_ne!(own, registered);
    // A command reaches the run's version too.
    for enabled in [false, true] {
        assert_eq!(machine.set_enabled(&owner(true), "t", enabled), Some(true));
        assert_eq!(keys(&mut machine, &own_run).contains(&own), enabled);
    }
    assert_eq!(keys(&mut machine, &other_run), [registered, everywhere]);
    // The firing of the registered trigger counts.
    assert_eq!(machine.fire(own, &own_run), FireResult::Fired { count: 2 });
    assert_eq!(machine.fire(own, &own_run), FireResult::Refused);
    // Only the first version counts, and the name still leads to the registered trigger.
    machine.set_own(&own_run.run_id, &"w".into(), vec![definition("t"), definition("u")]);
    assert_eq!(keys(&mut machine, &own_run).len(), 2);
    assert_eq!(machine.remove(&owner(true), "t"), Some(registered));
    assert_eq!(keys(&mut machine, &other_run), [everywhere]);
    assert!(machine.run_ended("1") && !machine.run_ended("1"));
    assert_eq!(keys(&mut machine, &own_run), [everywhere]);
    assert!(machine.remove(&owner(false), "e").is_some());
    assert_eq!(machine.interest(), EventMask::NONE);
}
