//! Joins in a loop or after another join: each decides independently of the one before, and no result is lost.

use pirn_tests::world::{code, line, node, run, wait, workflow};
use serde_json::{Value, json};

/// Each iteration's fork is decided by the branches of that iteration: the first to end alternates.
#[test]
fn the_join_of_an_iteration_is_independent_of_the_previous_iteration() {
    let bundle = workflow(
        "race",
        &[
            node("start", "START", json!({})),
            node(
                "for",
                "LOOP_START",
                json!({"loopId": "l", "dataSource": {"iterable": 4}}),
            ),
            node(
                "both",
                "FORK",
                json!({"forkPathIds": ["even", "odd"], "childNodeIds": ["e", "o"]}),
            ),
            node(
                "e",
                "ROUTE",
                json!({"routes": [{"condition": "loop.index % 2 === 0", "targetNodeId": "e-fast"}], "defaultTargetNodeId": "e-slow"}),
            ),
            wait("e-fast", 1),
            wait("e-slow", 1_000),
            code("e-said", "return 'even ' + loop.index"),
            node(
                "o",
                "ROUTE",
                json!({"routes": [{"condition": "loop.index % 2 === 1", "targetNodeId": "o-fast"}], "defaultTargetNodeId": "o-slow"}),
            ),
            wait("o-fast", 1),
            wait("o-slow", 1_000),
            code("o-said", "return 'odd ' + loop.index"),
            node(
                "join",
                "JOIN",
                json!({"forkPathIds": ["even", "odd"], "joinStrategy": "ANY_COMPLETED"}),
            ),
            node(
                "keep",
                "VARIABLE",
                json!({"variableName": "met", "expression": "[...met, { said: output.outputs, stopped: output.cancelled }]"}),
            ),
            node("next", "LOOP_END", json!({"loopId": "l"})),
            node("end", "END", json!({"output": "met"})),
        ],
        &[
            "start>for>both",
            "both>e",
            "both>o",
            "e-fast>e-said>join",
            "e-slow>e-said",
            "o-fast>o-said>join",
            "o-slow>o-said",
            "join>keep>next>end",
        ],
    );
    let mut bundle = bundle;
    bundle["variables"] = json!([{"name": "met", "value": []}]);
    let ran = run(&bundle, Value::Null);
    assert_eq!(ran.code(), "", "{:?}", ran.report.error);
    assert_eq!(
        ran.report.output,
        json!([
            {"said": {"even": "even 0"}, "stopped": ["odd"]},
            {"said": {"odd": "odd 1"}, "stopped": ["even"]},
            {"said": {"even": "even 2"}, "stopped": ["odd"]},
            {"said": {"odd": "odd 3"}, "stopped": ["even"]},
        ])
    );
}

fn mapped(map: &Value, item: &str) -> pirn_tests::world::Ran {
    let main = line("main", &[node("map", "MAP", map.clone())]);
    let item = line("item", &[code("work", item)]);
    run(&json!({"workflows": [main, item]}), Value::Null)
}

#[test]
fn no_item_is_dropped_when_concurrency_is_limited() {
    for concurrency in [1, 2, 7] {
        let items: Vec<u32> = (0..50).collect();
        let map = json!({"items": items, "subgraphId": "item", "concurrency": concurrency});
        let ran = mapped(&map, "return input * 2");
        let doubled: Vec<u32> = items.iter().map(|item| item * 2).collect();
        assert_eq!(ran.report.output["results"], json!(doubled), "{concurrency} at a time");
        assert_eq!(ran.report.threads.len(), 51, "{concurrency} at a time");
    }
}

#[test]
fn completed_results_are_reported_when_one_item_fails() {
    let fails_at_the_third = "if (input === 2) throw new Error('no'); return 'did ' + input";
    let some = json!({"items": [0, 1, 2, 3], "subgraphId": "item", "joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 3, "concurrency": 1});
    let ran = mapped(&some, fails_at_the_third);
    assert_eq!(ran.report.output["results"], json!(["did 0", "did 1", null, "did 3"]));
    let all = json!({"items": [0, 1, 2, 3], "subgraphId": "item", "concurrency": 1});
    let ran = mapped(&all, fails_at_the_third);
    let error = ran.report.error.clone().expect("failed");
    assert_eq!(error.code.as_str(), "JOIN_CONDITION_NOT_MET");
    let details = error.details.clone().unwrap_or_default().to_string();
    assert!(details.contains("did 0") && details.contains("did 1"), "{details}");
}
