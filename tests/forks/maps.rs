//! MAP: a fork with one branch per item of a list.

use pirn::{Engine, EventType, Message, Role, ThreadStatus};
use pirn_tests::world::{Ran, code, line, node, run, run_in, say, wait, workflow};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Milliseconds that an item takes; the last is never waited for. A power of two by the item's index is added, so that no
/// two items end at one instant even if they run one after another.
const TIMES: [u32; 4] = [100, 200, 400, 3_600_000];

const MAX_ITEMS: usize = 5;

/// An item: the duration of its branch, and whether the branch then fails.
#[derive(Clone, Copy, Debug)]
struct Item {
    time: usize,
    fails: bool,
}

/// Waits for the time in its input, then completes or fails.
fn worker() -> Value {
    let waits = || (0..TIMES.len()).flat_map(|time| (0..MAX_ITEMS).map(move |place| (time, place)));
    let routes: Vec<Value> = waits()
        .map(|(time, place)| {
            let condition = format!("input.time === {time} && input.place === {place}");
            json!({"condition": condition, "targetNodeId": format!("w{time}-{place}")})
        })
        .collect();
    let mut nodes = vec![
        json!({"id": "start", "type": "START"}),
        node("when", "ROUTE", json!({ "routes": routes })),
        code(
            "ends",
            "if (input.fails) throw new Error('broken'); return {from: input.place}",
        ),
        json!({"id": "end", "type": "END"}),
    ];
    let mut edges = vec!["start>when".to_owned(), "ends>end".to_owned()];
    for (time, place) in waits() {
        let id = format!("w{time}-{place}");
        nodes.push(wait(&id, TIMES[time] + (1 << place)));
        edges.push(format!("when>{id}>ends"));
    }
    let edges: Vec<&str> = edges.iter().map(String::as_str).collect();
    workflow("worker", &nodes, &edges)
}

fn together(main: Value, called: Value) -> Value {
    Value::from_iter([("workflows", Value::from(vec![main, called]))])
}

fn inputs(items: &[Item]) -> Vec<Value> {
    let input = |(place, item): (usize, &Item)| json!({"place": place, "time": item.time, "fails": item.fails});
    items.iter().enumerate().map(input).collect()
}

fn mapped(items: &[Item], config: &Value) -> Ran {
    let mut map = json!({"items": inputs(items), "subgraphId": "worker"});
    map.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    run(
        &together(line("main", &[node("map", "MAP", map)]), worker()),
        Value::Null,
    )
}

/// The items as a FORK with paths that call the workflow.
fn forked(items: &[Item], join: &Value, concurrency: Option<u32>) -> Ran {
    let paths: Vec<String> = (0..items.len()).map(|place| place.to_string()).collect();
    let calls: Vec<String> = paths.iter().map(|path| format!("call{path}")).collect();
    let mut rule = json!({"forkPathIds": paths});
    rule.as_object_mut().unwrap().extend(join.as_object().unwrap().clone());
    let mut nodes = vec![
        json!({"id": "start", "type": "START"}),
        node("fork", "FORK", json!({"forkPathIds": paths, "childNodeIds": calls})),
        node("join", "JOIN", rule),
        json!({"id": "end", "type": "END"}),
    ];
    let mut edges = vec!["start>fork".to_owned(), "join>end".to_owned()];
    for (call, input) in calls.iter().zip(inputs(items)) {
        let text = format!("({input})");
        let config = json!({"subgraphId": "worker", "input": text, "conversation": "none"});
        nodes.push(node(call, "SUBGRAPH", config));
        edges.push(format!("fork>{call}"));
        edges.push(format!("{call}>join"));
    }
    let edges: Vec<&str> = edges.iter().map(String::as_str).collect();
    let mut main = workflow("main", &nodes, &edges);
    main["config"] = json!({"maxConcurrentBranches": concurrency});
    run(&together(main, worker()), Value::Null)
}

/// The paths of a list, or of `[{pathId}]`, as numbers.
fn numbers(list: &Value) -> Vec<u64> {
    let number = |entry: &Value| match entry {
        Value::String(path) => path.parse().unwrap(),
        Value::Object(failed) if failed.contains_key("pathId") => failed["pathId"].as_str().unwrap().parse().unwrap(),
        Value::Object(failed) => failed["index"].as_u64().unwrap(),
        index => index.as_u64().unwrap(),
    };
    list.as_array().unwrap().iter().map(number).collect()
}

fn item() -> impl Strategy<Value = Item> {
    (0..TIMES.len(), any::<bool>()).prop_map(|(time, fails)| Item { time, fails })
}

fn join() -> impl Strategy<Value = Value> {
    let strategy = prop::sample::select(vec![
        "ALL_COMPLETED",
        "ANY_COMPLETED",
        "ALL_FAILED",
        "ANY_FAILED",
        "SUCCESS_COUNT_THRESHOLD",
    ]);
    let timeout = prop::sample::select(vec![None, Some(0.15), Some(0.35)]);
    (strategy, 1..4_u32, timeout, any::<bool>()).prop_map(|(strategy, threshold, timeout, detach)| {
        let on_decided = if detach { "detach" } else { "cancel" };
        let mut join = json!({"joinStrategy": strategy, "timeout": timeout, "onDecided": on_decided});
        if strategy == "SUCCESS_COUNT_THRESHOLD" {
            join["threshold"] = json!(threshold);
        }
        join
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn a_map_ends_like_a_fork_with_one_path_per_item(
        items in prop::collection::vec(item(), 3..=MAX_ITEMS),
        join in join(),
        concurrency in prop::option::of(1..4_u32),
    ) {
        let mut config = join.clone();
        config["concurrency"] = json!(concurrency);
        let (map, fork) = (mapped(&items, &config), forked(&items, &join, concurrency));
        prop_assert_eq!((map.report.status, map.code()), (fork.report.status, fork.code()));
        prop_assert_eq!(map.report.elapsed_ms, fork.report.elapsed_ms, "decided at the same time");
        let details = |ran: &Ran| ran.report.error.as_ref().and_then(|error| error.details.clone());
        let (of_map, of_fork) = match (details(&map), details(&fork)) {
            (Some(of_map), Some(of_fork)) => {
                let statuses = |details: &Value|->Vec<Value> {
                    details["paths"].as_array().unwrap().iter().map(|path| path["status"].clone()).collect()
                };
                prop_assert_eq!(statuses(&of_map), statuses(&of_fork));
                (of_map, of_fork)
            }
            _ => (map.report.output.clone(), fork.report.output.clone()),
        };
        for list in ["completed", "failed", "cancelled"] {
            prop_assert_eq!(numbers(&of_map[list]), numbers(&of_fork[list]), "{}", list);
        }
        for place in 0..items.len() {
            let path = place.to_string();
            prop_assert_eq!(map.path_end(&path), fork.path_end(&path), "{}", path);
        }
        if let Some(results) = map.report.output["results"].as_array() {
            let completed = numbers(&of_map["completed"]);
            for (place, result) in (0..).zip(results) {
                let expected = if completed.contains(&place) { json!({"from": place}) } else { Value::Null };
                prop_assert_eq!(result, &expected);
            }
        }
    }
}

#[test]
fn a_map_of_an_empty_list_is_decided_by_its_join_strategy() {
    for (strategy, holds) in [
        ("ALL_COMPLETED", true),
        ("ALL_FAILED", true),
        ("ANY_COMPLETED", false),
        ("ANY_FAILED", false),
        ("SUCCESS_COUNT_THRESHOLD", false),
    ] {
        let ran = mapped(&[], &json!({"joinStrategy": strategy, "threshold": 1}));
        let code = if holds { "" } else { "JOIN_CONDITION_NOT_MET" };
        assert_eq!(ran.code(), code, "{strategy}");
        if holds {
            let nothing = json!({"results": [], "completed": [], "failed": [], "cancelled": []});
            assert_eq!(ran.report.output, nothing, "{strategy}");
        }
        assert_eq!(ran.report.threads.len(), 1, "{strategy}");
    }
}

/// The outputs of a MAP over a workflow that answers with its input.
fn echoed(config: &Value) -> Ran {
    let echo = line("echo", &[]);
    let mut config = config.clone();
    config["subgraphId"] = json!("echo");
    let map = [code("before", "return 7"), node("map", "MAP", config)];
    run(&together(line("main", &map), echo), json!({"list": ["a", "b"]}))
}

#[test]
fn each_item_is_an_input_or_is_mapped_to_one() {
    let results = |config: Value| echoed(&config).report.output["results"].clone();
    assert_eq!(results(json!({"items": "input.list"})), json!(["a", "b"]));
    assert_eq!(results(json!({"items": [1, "{{input.list}}"]})), json!([1, ["a", "b"]]));
    assert_eq!(
        results(json!({"items": "({x: 1, y: 2})"})),
        json!([{"key": "x", "value": 1}, {"key": "y", "value": 2}])
    );
    let named = json!({"items": "input.list", "itemName": "letter", "input": {"at": "{{index}}", "is": "{{letter}}", "of": "{{output}}"}});
    assert_eq!(
        results(named),
        json!([{"at": 0, "is": "a", "of": 7}, {"at": 1, "is": "b", "of": 7}])
    );
    assert_eq!(
        results(json!({"items": "[3, 4]", "input": "item * 10 + index"})),
        json!([30, 41])
    );
}

#[test]
fn the_path_id_of_an_item_is_its_index() {
    let ran = echoed(&json!({"items": [true, false]}));
    let started = ran.of(EventType::ThreadForkStarted);
    assert_eq!(started[0].raised.fields["forkPathIds"], json!(["0", "1"]));
    let threads: Vec<(&str, Option<&str>)> = ran
        .report
        .threads
        .iter()
        .map(|thread| (&*thread.workflow_id, thread.path_id.as_deref()))
        .collect();
    assert_eq!(threads, [("main", None), ("echo", Some("0")), ("echo", Some("1"))]);
    assert_eq!(ran.nodes(), ["start", "before", "map", "end"]);
}

#[test]
fn too_many_items_and_non_lists_are_errors() {
    let long = echoed(&json!({"items": "[1, 2, 3]", "maxItems": 2}));
    assert_eq!(long.code(), "TOO_MANY_ITEMS");
    assert_eq!(long.report.threads.len(), 1, "nothing was started");
    let by_default = echoed(&json!({"items": "Array(1001).fill(0)"}));
    assert_eq!(by_default.code(), "TOO_MANY_ITEMS");
    for items in ["7", "null", "'text'", "true"] {
        assert_eq!(echoed(&json!({"items": items})).code(), "NODE_FAILED", "{items}");
    }
    assert_eq!(
        echoed(&json!({"items": "[1]", "input": "item.x.y"})).code(),
        "SCRIPT_ERROR"
    );
}

#[test]
fn items_see_the_maps_conversation_if_configured_and_never_change_it() {
    let worker = line("worker", &[say("speak", "from {{input}}")]);
    for (mode, seen) in [("none", 1), ("fork", 2)] {
        let map = node(
            "map",
            "MAP",
            json!({"items": ["a"], "subgraphId": "worker", "conversation": mode}),
        );
        let bundle = together(line("main", &[map]), worker.clone());
        let before = vec![Message::new(Role::User, "hello")];
        let ran = run_in(Engine::builder().virtual_time(Some(1)), &bundle, Value::Null, before);
        let said: Vec<&str> = ran
            .report
            .conversation
            .messages
            .iter()
            .map(|m| m.content.as_str())
            .collect();
        assert_eq!(said, ["hello"], "{mode}");
        let added = ran.of(EventType::MessageAdded);
        let last = added.last().expect("the item's thread spoke");
        assert_eq!(last.raised.fields["index"], json!(seen - 1), "{mode}");
    }
}

#[test]
fn the_time_limit_of_an_items_workflow_applies_to_the_item() {
    let mut slow = line("worker", &[wait("long", 50)]);
    slow["config"] = json!({"timeoutMs": 10});
    let map = node(
        "map",
        "MAP",
        json!({"items": [1, 2], "subgraphId": "worker", "joinStrategy": "ALL_FAILED"}),
    );
    let ran = run(&together(line("main", &[map]), slow), Value::Null);
    assert_eq!((ran.code(), ran.report.elapsed_ms), ("", 10));
    assert_eq!(ran.path_end("1"), Some(ThreadStatus::Timeout));
    assert_eq!(numbers(&ran.report.output["failed"]), [0, 1]);
}
