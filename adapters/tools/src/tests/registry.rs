//! Tests of the registry.

use std::sync::Arc;

use pirn_actors::host::SimulatedHost;
use serde_json::json;

use pirn_actors::ports::Tools;
use pirn_core::thread::ToolResult;
use pirn_definition::message::ToolCall;

use super::super::*;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "text": {"type": "string"}, "count": {"type": "integer"}, "kind": {"enum": ["a", "b"]},
            "list": {"type": "array", "items": {"type": ["number", "null"]}},
        },
        "required": ["text"],
    })
}

fn registry() -> ToolRegistry {
    ToolRegistry::new()
        .with(tool_fn("say", "Says it", schema(), |given| async move {
            Ok(given["text"].to_string())
        }))
        .with(tool_fn("fail", "Fails", json!({}), |_| async {
            Err("no luck".to_owned())
        }))
        .with(tool_fn("panic", "Panics", json!({}), |_| async { panic!("inside") }))
        .with(tool_fn(
            "panic-at-once",
            "Panics",
            json!({}),
            |_| -> std::future::Ready<_> { panic!("outside") },
        ))
        .with(tool_fn("never", "Never ends", json!({}), |_| std::future::pending()))
}

fn call_in(registry: &ToolRegistry, host: &SimulatedHost, name: &str, arguments: Value) -> ToolResult {
    let names = ["say", "fail", "panic", "panic-at-once", "never", "unregistered"].map(Arc::from);
    let call = ToolCall {
        id: "1".to_owned(),
        name: name.to_owned(),
        arguments,
    };
    host.block_on(registry.call(&names, call.into(), host.host().work_clock()))
        .expect("it ends")
        .unasked()
}

fn call(name: &str, arguments: Value) -> ToolResult {
    call_in(&registry(), &SimulatedHost::new(None), name, arguments)
}

fn assert_fails(result: &ToolResult, part: &str) {
    assert!(
        result.failed && result.content.contains(part),
        "expected `{part}`, got {result:?}"
    );
}

#[test]
fn a_tool_call_returns_its_result() {
    let result = call(
        "say",
        json!({"text": "hi", "count": 2.0, "kind": "b", "list": [1.5, null], "more": 1}),
    );
    assert_eq!(
        result,
        ToolResult {
            content: "\"hi\"".to_owned(),
            ..ToolResult::default()
        }
    );
}

#[test]
fn an_error_is_returned_to_the_model() {
    assert_fails(&call("fail", json!({})), "no luck");
    assert_fails(&call("fail", json!(null)), "no luck");
}

#[test]
fn a_panic_becomes_an_error_result() {
    assert_fails(&call("panic", json!({})), "inside");
    assert_fails(&call("panic-at-once", json!({})), "outside");
}

#[test]
fn an_unknown_tool_is_an_error_that_lists_the_available_tools() {
    assert_fails(&call("sya", json!({})), "`sya`; there are: say, fail");
    assert_fails(&call("unregistered", json!({})), "no tool `unregistered`");
    let host = SimulatedHost::new(None);
    assert_fails(
        &call_in(&ToolRegistry::new(), &host, "say", json!({})),
        "no tools are registered",
    );
    let offered = |names: &[Arc<str>]| {
        let call = ToolCall {
            id: "1".to_owned(),
            name: "sya".to_owned(),
            arguments: json!({}),
        };
        let result = host.block_on(registry().call(names, call.into(), host.host().work_clock()));
        result.expect("it ends").unasked()
    };
    assert_fails(&offered(&["sya".into()]), "the registered tools are: ");
    assert_fails(&offered(&[]), "this node has no tools");
}

#[test]
fn a_tool_not_offered_by_the_node_is_not_called() {
    let host = SimulatedHost::new(None);
    let call = ToolCall {
        id: "1".to_owned(),
        name: "say".to_owned(),
        arguments: json!({"text": "x"}),
    };
    let result = host.block_on(registry().call(&["fail".into()], call.into(), host.host().work_clock()));
    assert_fails(&result.expect("it ends").unasked(), "there are: fail");
}

#[test]
fn wrong_arguments_do_not_reach_the_tool() {
    for (given, part) in [
        (json!({}), "arguments.text is missing"),
        (json!(null), "arguments.text is missing"),
        (json!("text"), "arguments must be of type object"),
        (json!({"text": 1}), "arguments.text must be of type string"),
        (
            json!({"text": "x", "count": 1.5}),
            "arguments.count must be of type integer",
        ),
        (
            json!({"text": "x", "kind": "c"}),
            r#"arguments.kind must be one of ["a","b"]"#,
        ),
        (
            json!({"text": "x", "list": [1, "2"]}),
            "arguments.list[1] must be of type number or null",
        ),
    ] {
        assert_fails(&call("say", given), part);
    }
}

#[test]
fn a_tool_that_takes_too_long_is_stopped() {
    let host = SimulatedHost::new(None);
    assert_fails(&call_in(&registry(), &host, "never", json!({})), "longer than 60000 ms");
    assert_eq!(host.host().now(), DEFAULT_TIMEOUT);

    let mut registry = ToolRegistry::new();
    let options = ToolOptions {
        timeout: 5,
        ..ToolOptions::default()
    };
    registry.register_with(tool_fn("never", "", json!({}), |_| std::future::pending()), options);
    assert_fails(&call_in(&registry, &host, "never", json!({})), "longer than 5 ms");
    assert_eq!(host.host().now(), DEFAULT_TIMEOUT + 5);
}

#[test]
fn models_receive_the_specs_of_their_allowed_tools() {
    let specs = registry().specs(&["say".into(), "unregistered".into(), "fail".into()]);
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["say", "fail"]);
    assert_eq!(
        (specs[0].description.as_str(), &specs[0].parameters),
        ("Says it", &schema())
    );
}
