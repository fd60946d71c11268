//! `pirn::explore`: every order in which branches can end (SPEC section 8).

use std::collections::BTreeSet;

use pirn::explore::{Exploration, Explorer, explore};
use pirn::{Engine, EventType, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{code, forked, line, node, wait};
use proptest::prelude::*;
use serde_json::{Value, json};

fn explorer(bundle: &Value) -> Explorer {
    explore(Engine::builder().workflows(bundle.to_string()))
}

#[track_caller]
fn explored(bundle: &Value) -> Exploration {
    match explorer(bundle).run() {
        Ok(explored) => explored,
        Err(error) => panic!("{error}"),
    }
}

fn assign(id: &str, name: &str, expression: &str) -> Value {
    node(
        id,
        "VARIABLE",
        json!({ "variableName": name, "expression": expression, "scope": "global" }),
    )
}

fn any() -> Value {
    json!({ "joinStrategy": "ANY_COMPLETED" })
}

fn all() -> Value {
    json!({ "joinStrategy": "ALL_COMPLETED" })
}

fn end_with(mut workflow: Value, output: &str) -> Value {
    for node in workflow["nodes"].as_array_mut().into_iter().flatten() {
        if node["type"] == "END" {
            node["config"] = json!({ "output": output });
        }
    }
    workflow
}

#[test]
fn each_branch_that_can_be_first_yields_a_separate_outcome() {
    for branch in [
        |no: usize| code(&format!("n{no}"), &format!("return {no}")),
        |no: usize| wait(&format!("n{no}"), 1_000 * (no as u32 + 1)),
        |no: usize| node(&format!("n{no}"), "LLM", json!({ "prompt": "hello" })),
        |no: usize| {
            node(
                &format!("n{no}"),
                "VARIABLE",
                json!({ "variableName": "x", "expression": "1" }),
            )
        },
    ] {
        let branches: Vec<Vec<Value>> = (0..3).map(|no| vec![branch(no)]).collect();
        let explored = explored(&forked(&branches, false, &any()));
        assert!(explored.complete, "{explored}");
        let winners: Vec<&Value> = explored
            .outcomes
            .iter()
            .map(|outcome| &outcome.output["completed"])
            .collect();
        assert_eq!(winners, [&json!(["p0"]), &json!(["p1"]), &json!(["p2"])], "{explored}");
        for (place, outcome) in explored.outcomes.iter().enumerate() {
            assert_eq!(outcome.order.len(), 1, "the shortest order is one end: {explored}");
            assert!(outcome.order[0].starts_with(&format!("p{place}")), "{explored}");
        }
    }
}

#[test]
fn an_all_completed_join_has_one_outcome_and_far_fewer_schedules_than_orders() {
    let branches: Vec<Vec<Value>> = (0..7).map(|no| vec![code(&format!("n{no}"), "return 1")]).collect();
    let explored = explored(&forked(&branches, false, &all()));
    assert_eq!((explored.outcomes.len(), explored.complete), (1, true), "{explored}");
    assert_eq!(explored.outcomes[0].status, ThreadStatus::Completed);
    assert!(
        explored.schedules < 5_040 / 10,
        "7! orders, {} schedules",
        explored.schedules
    );
}

#[test]
fn outcomes_with_different_last_writes_to_a_global_variable_are_distinguished() {
    let branches = [
        vec![code("a", "return 1"), assign("wa", "last", "'a'")],
        vec![code("b", "return 1"), assign("wb", "last", "'b'")],
    ];
    let race = end_with(forked(&branches, false, &all()), "last");
    let explored = explored(&race);
    let outputs: Vec<&Value> = explored.outcomes.iter().map(|outcome| &outcome.output).collect();
    assert_eq!(outputs, ["b", "a"], "{explored}");
    assert_eq!(explored.outcomes[0].order, ["p0/a script", "p1/b script"]);
}

#[test]
fn strict_mode_also_compares_variables_without_effect_on_the_output() {
    let branches = [
        vec![code("a", "return 1"), assign("wa", "last", "'a'")],
        vec![code("b", "return 1"), assign("wb", "last", "'b'")],
    ];
    let race = forked(&branches, false, &all());
    assert_eq!(explored(&race).outcomes.len(), 1);
    let strict = explorer(&race).strict(true).run().expect("explored");
    assert_eq!(strict.outcomes.len(), 2, "{strict}");
}

#[test]
fn a_workflow_without_a_choice_is_one_schedule() {
    let explored = explored(&line(
        "one",
        &[code("a", "return 1"), wait("w", 500), code("b", "return 2")],
    ));
    assert_eq!((explored.schedules, explored.complete), (1, true));
    assert_eq!(explored.outcomes[0].order, Vec::<String>::new());
    assert_eq!(explored.outcomes[0].output, json!(2));
}

#[test]
fn schedules_beyond_the_limit_are_sampled_and_reported_as_incomplete() {
    let branches: Vec<Vec<Value>> = (0..6).map(|no| vec![wait(&format!("n{no}"), 10)]).collect();
    let race = forked(&branches, false, &any());
    let run = |seed| {
        explorer(&race)
            .max_schedules(2)
            .samples(40)
            .seed(seed)
            .run()
            .expect("explored")
    };
    let explored = run(7);
    assert_eq!((explored.schedules, explored.complete), (42, false));
    assert_eq!(explored.outcomes.len(), 6, "{explored}");
    assert_eq!(explored, run(7), "the same seed samples the same");
}

#[test]
fn a_stopped_exploration_reports_the_outcomes_found_so_far() {
    let branches: Vec<Vec<Value>> = (0..6).map(|no| vec![wait(&format!("n{no}"), 10)]).collect();
    let race = forked(&branches, false, &any());
    let mut left = 3;
    let stopped = explorer(&race).stop_when(move || {
        left -= 1;
        left == 0
    });
    let stopped = stopped.run().expect("explored");
    assert_eq!(
        (stopped.schedules, stopped.outcomes.len(), stopped.complete),
        (3, 3, false),
        "{stopped}"
    );
    // Also among the random schedules that follow after the maximum.
    let mut left = 3;
    let sampled = explorer(&race).max_schedules(1).stop_when(move || {
        left -= 1;
        left == 0
    });
    let sampled = sampled.run().expect("explored");
    assert_eq!((sampled.schedules, sampled.complete), (3, false), "{sampled}");
}

#[test]
fn a_time_limit_expires_last_unless_timeouts_are_explored() {
    let race = forked(
        &[vec![code("a", "return 1")], vec![code("b", "return 2")]],
        false,
        &json!({ "joinStrategy": "ALL_COMPLETED", "timeout": 5 }),
    );
    assert_eq!(explored(&race).outcomes.len(), 1);
    let explored = explorer(&race).timeouts(true).run().expect("explored");
    let codes: BTreeSet<Option<&str>> = explored
        .outcomes
        .iter()
        .map(|outcome| outcome.error.as_ref().map(|error| error.code.as_str()))
        .collect();
    assert_eq!(codes, BTreeSet::from([None, Some("JOIN_TIMEOUT")]), "{explored}");
}

#[test]
fn a_limit_shorter_than_a_wait_expires_first() {
    let slow = forked(
        &[vec![wait("a", 9_000)], vec![wait("b", 100)]],
        false,
        &json!({ "joinStrategy": "ALL_COMPLETED", "timeout": 5 }),
    );
    let explored = explored(&slow);
    assert_eq!(explored.outcomes.len(), 1, "{explored}");
    assert_eq!(
        explored.outcomes[0].error.as_ref().map(|error| error.code.as_str()),
        Some("JOIN_TIMEOUT")
    );
}

#[test]
fn with_keep_time_the_shorter_wait_wins() {
    let race = forked(&[vec![wait("a", 2_000)], vec![wait("b", 1_000)]], false, &any());
    assert_eq!(explored(&race).outcomes.len(), 2);
    let kept = explorer(&race).keep_time(true).run().expect("explored");
    assert_eq!(kept.outcomes.len(), 1, "{kept}");
    assert_eq!(kept.outcomes[0].output["completed"], json!(["p1"]));
}

#[test]
fn an_outcome_of_a_random_order_is_replayed() {
    let branches: Vec<Vec<Value>> = (0..4)
        .map(|no| vec![assign(&format!("n{no}"), "last", &no.to_string())])
        .collect();
    let race = end_with(forked(&branches, false, &all()), "last");
    for seed in 0..5 {
        let search = || explorer(&race).seed(seed);
        let sampled = search().max_schedules(1).samples(30).run().expect("explored");
        assert!(!sampled.complete && sampled.outcomes.len() > 1, "{sampled}");
        for outcome in &sampled.outcomes {
            assert_eq!(search().replay(&outcome.replay).expect("replayed"), *outcome);
        }
    }
}

#[test]
fn a_replay_delivers_the_events_of_its_order() {
    let race = forked(
        &[vec![code("a", "return 1")], vec![code("b", "return 1")]],
        false,
        &all(),
    );
    let ends = |choices: &str| {
        let mut explorer = explorer(&race);
        let events = explorer.blocking_events(&[EventType::NodeCompleted], 1_000);
        explorer.replay(&choices.parse().expect("choices")).expect("replayed");
        let nodes = events.filter_map(|heard| match heard {
            SubscriptionItem::Event(event) => event.raised.fields.get("nodeId").map(ToString::to_string),
            SubscriptionItem::Lagged(_) => panic!("the buffer suffices"),
        });
        nodes.filter(|id| id.len() == 3).collect::<Vec<_>>()
    };
    assert_eq!(ends("1:1"), ["\"a\"", "\"b\""]);
    assert_eq!(ends("1:2"), ["\"b\"", "\"a\""]);
}

#[test]
fn choices_of_another_workflow_are_refused() {
    let replayed = explorer(&line("one", &[code("a", "return 1")])).replay(&"1:2".parse().expect("choices"));
    let error = replayed.expect_err("one step has one option");
    assert!(error.to_string().contains("the choices do not exist"), "{error}");
}

#[test]
fn a_run_that_waits_for_ever_is_an_outcome() {
    let waits = line("wait", &[node("w", "WAIT", json!({ "event": "never" }))]);
    let explored = explored(&waits);
    let replayed = explorer(&waits).replay(&explored.outcomes[0].replay);
    assert_eq!(replayed.expect("replayed"), explored.outcomes[0]);
    assert_eq!(explored.outcomes.len(), 1);
    assert_eq!(explored.outcomes[0].status, ThreadStatus::Running);
    assert!(explored.to_string().contains("waits for ever"), "{explored}");
}

#[test]
fn a_nondeterministic_function_is_reported() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let calls = AtomicU64::new(0);
    let mut bundle = forked(&[vec![wait("a", 1)], vec![wait("b", 1)]], false, &all());
    bundle["nodes"][0] = node("odd", "CODE", json!({ "function": "odd" }));
    bundle["nodes"]
        .as_array_mut()
        .expect("nodes")
        .push(node("start", "START", json!({})));
    bundle["edges"][0] = json!({ "from": "start", "to": "odd" });
    bundle["edges"]
        .as_array_mut()
        .expect("edges")
        .push(json!({ "from": "odd", "to": "fork" }));
    let builder = Engine::builder()
        .function("odd", move |_| match calls.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(json!(1)),
            _ => Err("no".to_owned()),
        })
        .workflows(bundle.to_string());
    let error = explore(builder).run().expect_err("the second schedule has no fork");
    assert!(error.to_string().contains("returns different results"), "{error}");
}

/// Returns the result of each strategy if the branches end in this order: an independent implementation of SPEC section 4.
fn decided(strategy: &str, threshold: usize, fails: &[bool], order: &[usize]) -> (bool, Vec<usize>) {
    let count = fails.len();
    let (mut completed, mut failed) = (Vec::new(), 0);
    for branch in order {
        if fails[*branch] {
            failed += 1;
        } else {
            completed.push(*branch);
            completed.sort_unstable();
        }
        let good = completed.len();
        let verdict = match strategy {
            "ALL_COMPLETED" => (good == count, failed >= 1),
            "ANY_COMPLETED" => (good >= 1, failed == count),
            "ALL_FAILED" => (failed == count, good >= 1),
            "ANY_FAILED" => (failed >= 1, good == count),
            _ => (good >= threshold, count - failed < threshold),
        };
        match verdict {
            (true, _) => return (true, completed),
            (_, true) => return (false, Vec::new()),
            (false, false) => {}
        }
    }
    unreachable!("every order decides")
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(count - 1) {
        for place in 0..count {
            let mut longer = shorter.clone();
            longer.insert(place, count - 1);
            all.push(longer);
        }
    }
    all
}

#[test]
fn every_strategy_has_the_outcomes_that_the_rule_gives_over_all_orders() {
    let strategies = [
        "ALL_COMPLETED",
        "ANY_COMPLETED",
        "ALL_FAILED",
        "ANY_FAILED",
        "SUCCESS_COUNT_THRESHOLD",
    ];
    for strategy in strategies {
        for count in 1..=3_usize {
            for pattern in 0..1_u32 << count {
                let fails: Vec<bool> = (0..count).map(|branch| pattern >> branch & 1 == 1).collect();
                let branches: Vec<Vec<Value>> = (0..count)
                    .map(|no| {
                        vec![code(
                            &format!("n{no}"),
                            if fails[no] { "throw new Error('no')" } else { "return 1" },
                        )]
                    })
                    .collect();
                let threshold = count.min(2);
                let mut join = json!({ "joinStrategy": strategy });
                if strategy == "SUCCESS_COUNT_THRESHOLD" {
                    join["threshold"] = json!(threshold);
                }
                let explored = explored(&forked(&branches, false, &join));
                let found: BTreeSet<(bool, Vec<usize>)> = explored
                    .outcomes
                    .iter()
                    .map(|outcome| {
                        let completed = outcome.output["completed"].as_array().cloned().unwrap_or_default();
                        let places = completed
                            .iter()
                            .filter_map(|path| path.as_str()?[1..].parse().ok())
                            .collect();
                        (outcome.status == ThreadStatus::Completed, places)
                    })
                    .collect();
                let expected: BTreeSet<(bool, Vec<usize>)> = permutations(count)
                    .iter()
                    .map(|order| decided(strategy, threshold, &fails, order))
                    .collect();
                assert_eq!(found, expected, "{strategy} {fails:?}\n{explored}");
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Script,
    Wait(u8),
    Write(u8),
    Add(u8),
    Fail,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Script),
        2 => (1..4_u8).prop_map(Step::Wait),
        2 => (0..2_u8).prop_map(Step::Write),
        2 => (0..2_u8).prop_map(Step::Add),
        1 => Just(Step::Fail),
    ]
}

fn branch(no: usize, steps: &[Step]) -> Vec<Value> {
    let one = |(place, step): (usize, &Step)| {
        let id = format!("n{no}x{place}");
        match step {
            Step::Script => code(&id, "return 1"),
            Step::Wait(seconds) => wait(&id, u32::from(*seconds) * 1_000),
            Step::Write(variable) => assign(&id, &format!("g{variable}"), &no.to_string()),
            Step::Add(variable) => assign(&id, &format!("g{variable}"), &format!("g{variable} * 2 + 1")),
            Step::Fail => code(&id, "throw new Error('no')"),
        }
    };
    steps.iter().enumerate().map(one).collect()
}

fn random_race() -> impl Strategy<Value = Value> {
    let branches = prop::collection::vec(prop::collection::vec(steps(), 1..3), 2..4);
    let strategy = prop::sample::select(vec![
        "ALL_COMPLETED",
        "ANY_COMPLETED",
        "ANY_FAILED",
        "SUCCESS_COUNT_THRESHOLD",
    ]);
    (branches, strategy, prop::option::of(1..4_u8)).prop_map(|(branches, strategy, timeout)| {
        let branches: Vec<Vec<Value>> = branches
            .iter()
            .enumerate()
            .map(|(no, steps)| branch(no, steps))
            .collect();
        let mut join = json!({ "joinStrategy": strategy });
        if strategy == "SUCCESS_COUNT_THRESHOLD" {
            join["threshold"] = json!(2);
        }
        if let Some(seconds) = timeout {
            join["timeout"] = json!(seconds);
        }
        let mut race = end_with(forked(&branches, false, &join), "[g0, g1]");
        let initial = |name: &str| json!({ "name": name, "value": 0, "scope": "global" });
        race["variables"] = json!([initial("g0"), initial("g1")]);
        race
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn pruning_orders_at_visited_states_loses_no_outcome_and_no_shortest_order(race in random_race(), timeouts: bool) {
        let run = |is_reduced| {
            explorer(&race).timeouts(timeouts).strict(true).reduce(is_reduced).max_schedules(100_000).run().expect("explored")
        };
        let (reduced, whole) = (run(true), run(false));
        prop_assert!(reduced.complete && whole.complete);
        prop_assert!(reduced.schedules <= whole.schedules);
        let told = |explored: &Exploration| -> Vec<(Value, usize)> {
            let mut told: Vec<(Value, usize)> = explored
                .outcomes
                .iter()
                .map(|outcome| (json!([outcome.status, outcome.output, outcome.error]), outcome.order.len()))
                .collect();
            told.sort_by_key(|(outcome, length)| (outcome.to_string(), *length));
            told
        };
        prop_assert_eq!(told(&reduced), told(&whole), "{}\n{}", reduced, whole);
    }
}
