//! LOOP_START, LOOP_END and TOOL, in a thread machine with an environment that answers at once.

use std::sync::Arc;

use pirn_core::thread::{
    Effect, Environment, Input, Outcome, Output, Outputs, ThreadEnd, ThreadId, ThreadKind, ThreadMachine, ThreadScope,
    ThreadSeed, ToolResult, Variables, evaluate,
};
use pirn_definition::definition::{SourceFile, load};
use pirn_definition::error::{RunErrorCode, ScriptFault};
use pirn_definition::graph::{CompileContext, Evaluator, Graph, SnippetIx, Unevaluated, compile_loaded};
use pirn_definition::script::{Plain, PlainText, Scope};
use pirn_events::event::EventMask;
use serde_json::{Value, json};

/// Evaluator for paths, literals, sums and comparisons.
struct Arithmetic;

impl Arithmetic {
    fn number(source: &str, scope: &dyn Scope) -> Result<f64, ScriptFault> {
        Ok(Self::of(source, scope)?.as_f64().unwrap_or(f64::NAN))
    }

    fn of(source: &str, scope: &dyn Scope) -> Result<Arc<Value>, ScriptFault> {
        if let Some((a, b)) = source.split_once(" >= ") {
            return Ok(Arc::new(json!(Self::number(a, scope)? >= Self::number(b, scope)?)));
        }
        if let Some((a, b)) = source.split_once(" + ") {
            return Ok(Arc::new(json!(Self::number(a, scope)? + Self::number(b, scope)?)));
        }
        let plain = Plain::read(source).ok_or_else(|| ScriptFault::error(format!("not read here: {source}")))?;
        plain
            .value(scope)
            .unwrap_or_else(|| Err(ScriptFault::error("only JavaScript knows")))
    }
}

impl Evaluator for Arithmetic {
    fn value(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<Arc<Value>, Unevaluated> {
        Ok(Self::of(&graph.snippet(snippet).source, scope)?)
    }
    fn truth(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<bool, Unevaluated> {
        Ok(*self.value(graph, snippet, scope)? == json!(true))
    }
    fn text(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<String, Unevaluated> {
        self.text_of(&graph.snippet(snippet).source, scope)
    }
    fn template_value(
        &mut self,
        graph: &Graph,
        snippet: SnippetIx,
        scope: &dyn Scope,
    ) -> Result<Arc<Value>, Unevaluated> {
        let template = PlainText::read(&graph.snippet(snippet).source);
        Ok(template
            .ok_or_else(|| ScriptFault::template("not read here"))?
            .value(scope)?)
    }
    fn value_of(&mut self, source: &str, scope: &dyn Scope) -> Result<Arc<Value>, Unevaluated> {
        Ok(Self::of(source, scope)?)
    }
    fn truth_of(&mut self, source: &str, scope: &dyn Scope) -> Result<bool, Unevaluated> {
        Ok(*Self::of(source, scope)? == json!(true))
    }
    fn text_of(&mut self, source: &str, scope: &dyn Scope) -> Result<String, Unevaluated> {
        let template = PlainText::read(source).ok_or_else(|| ScriptFault::template("not read here"))?;
        Ok(template.render(scope)?)
    }
}

/// A thread that has ended, with its tool calls.
struct Walked {
    machine: ThreadMachine,
    end: ThreadEnd,
    calls: Vec<Value>,
}

impl Walked {
    fn variable(&self, name: &str) -> Value {
        self.machine
            .variables()
            .value(name)
            .map_or(Value::Null, |value| (**value).clone())
    }

    fn code(&self) -> Option<RunErrorCode> {
        self.end.error.as_ref().map(|error| error.code)
    }
}

fn walk(nodes: &Value, edges: &[&str], input: Value) -> Walked {
    let edges: Vec<Value> = edges
        .iter()
        .flat_map(|chain| {
            chain
                .split('>')
                .collect::<Vec<_>>()
                .windows(2)
                .map(|pair| json!({"from": pair[0], "to": pair[1]}))
                .collect::<Vec<_>>()
        })
        .collect();
    let file = json!({"id": "w", "nodes": nodes, "edges": edges,
        "variables": [{"name": "sum", "value": 0}, {"name": "count", "value": 0}]});
    let loaded = load(&SourceFile::new("w.json", file.to_string()));
    let graphs = compile_loaded(&loaded, &CompileContext::default())
        .into_result()
        .unwrap_or_else(|faults| panic!("{faults:?}"));
    let seed = ThreadSeed {
        thread_id: ThreadId::new("r".into(), 0),
        kind: ThreadKind::Main,
        path_id: None,
        first: graphs[0].start,
        stop_at: None,
        input: Arc::new(input),
        variables: pirn_core::thread::thread_variables(&graphs[0]),
        outputs: Outputs::default(),
        last: Output::default(),
        agent: None,
        trigger_depth: 0,
    };
    let mut machine = ThreadMachine::new(Arc::clone(&graphs[0]), seed);
    let environment = Environment {
        random: 0,
        interest: EventMask::NONE,
        holding: EventMask::NONE,
        has_globals: false,
        user_messages: None,
        agents_left: None,
        concurrency: None,
    };
    let (mut out, mut calls) = (Vec::new(), Vec::new());
    machine.step(environment, Input::Start, &mut out);
    loop {
        let mut effects = std::mem::take(&mut out).into_iter();
        let effect = effects.next().expect("the thread waits for nothing");
        let (effect, outcome) = match effect {
            Effect::Evaluate { id, node, what } => {
                let globals = Variables::default();
                let scope = ThreadScope::new(&machine, &globals);
                let outcome = evaluate(&graphs[0], node, what, &scope, &mut Arithmetic);
                (id, outcome.expect("answered in place"))
            }
            Effect::Tool { id, call, .. } => {
                let result = match call.name.as_str() {
                    "fails" => ToolResult {
                        content: "no".to_owned(),
                        failed: true,
                        ..ToolResult::default()
                    },
                    _ => ToolResult {
                        content: call.arguments.to_string(),
                        failed: false,
                        ..ToolResult::default()
                    },
                };
                calls.push(call.arguments);
                (id, Outcome::Tool(Box::new(result)))
            }
            Effect::Ended(end) => return Walked { machine, end, calls },
            other => panic!("{other:?}"),
        };
        machine.step(environment, Input::Answer { effect, outcome }, &mut out);
    }
}

fn node(id: &str, kind: &str, config: &Value) -> Value {
    json!({"id": id, "type": kind, "config": config})
}

/// START, a loop that adds `what` to `sum` and counts, END.
fn summing(start: &Value, end: &Value, what: &str, input: Value) -> Walked {
    let mut start = start.clone();
    start["loopId"] = json!("l");
    let mut end = end.clone();
    end["loopId"] = json!("l");
    let nodes = json!([
        node("s", "START", &json!({})),
        node("for", "LOOP_START", &start),
        node(
            "add",
            "VARIABLE",
            &json!({"variableName": "sum", "expression": format!("sum + {what}")})
        ),
        node(
            "one",
            "VARIABLE",
            &json!({"variableName": "count", "expression": "count + 1"})
        ),
        node("next", "LOOP_END", &end),
        node("e", "END", &json!({})),
    ]);
    walk(&nodes, &["s>for>add>one>next>e"], input)
}

#[test]
fn m10_a_loop_runs_its_nodes_once_per_item() {
    let source = json!({"dataSource": {"iterable": [1, 2, 3], "variableName": "item"}});
    let walked = summing(&source, &json!({}), "item", json!(null));
    assert_eq!(walked.variable("sum").as_f64(), Some(6.0), "M10");
    assert_eq!(walked.variable("item"), json!(3), "M10");
}

#[test]
fn m03_m05_m08_a_loop_iterates_over_numbers_paths_or_without_a_source() {
    let of = |start: Value, what: &str, input: Value| {
        let walked = summing(&start, &json!({}), what, input);
        (walked.variable("sum").as_f64(), walked.variable("count").as_f64())
    };
    assert_eq!(
        of(json!({"dataSource": {"iterable": 5}}), "loop.item", json!(null)),
        (Some(10.0), Some(5.0)),
        "M03"
    );
    let items = json!({"items": [1, 2, 3]});
    assert_eq!(
        of(
            json!({"dataSource": {"iterable": "{{input.items}}"}}),
            "loop.item",
            items.clone()
        ),
        (Some(6.0), Some(3.0)),
        "M05"
    );
    assert_eq!(
        of(json!({"dataSource": {"iterable": "input.items"}}), "loop.item", items),
        (Some(6.0), Some(3.0))
    );
    assert_eq!(
        of(json!({"maxIterations": 3}), "loop.index", json!(null)),
        (Some(3.0), Some(3.0)),
        "M08"
    );
    let text = of(
        json!({"dataSource": {"iterable": "'hello'"}}),
        "loop.index",
        json!(null),
    );
    assert_eq!(text, (Some(10.0), Some(5.0)), "M04: the characters of a text");
}

#[test]
fn m06_an_unresolved_path_is_an_error() {
    let walked = summing(
        &json!({"dataSource": {"iterable": "{{invalid.items}}"}}),
        &json!({}),
        "1",
        json!(null),
    );
    assert_eq!(walked.code(), Some(RunErrorCode::ScriptError), "M06");
}

#[test]
fn m07_a_loop_without_items_is_skipped() {
    let walked = summing(&json!({"dataSource": {"iterable": []}}), &json!({}), "1", json!("in"));
    assert_eq!(walked.variable("count"), json!(0), "M07");
    assert_eq!(**walked.end.output.value(), json!("in"), "M07");
}

#[test]
fn m09_a_loop_ends_after_the_iteration_in_which_its_condition_holds() {
    let walked = summing(
        &json!({"dataSource": {"iterable": 10}}),
        &json!({"breakCondition": "sum >= 3"}),
        "loop.item",
        json!(null),
    );
    assert_eq!(walked.variable("count").as_f64(), Some(3.0), "M09");
    assert_eq!(walked.variable("sum").as_f64(), Some(3.0), "M09");
}

#[test]
fn reaching_the_iteration_limit_is_an_error_or_the_end() {
    let source = |on_limit: &str| json!({"dataSource": {"iterable": 5}, "maxIterations": 2, "onLimit": on_limit});
    let walked = summing(&source("fail"), &json!({}), "1", json!(null));
    assert_eq!(walked.code(), Some(RunErrorCode::LoopLimitExceeded));
    let walked = summing(&source("finish"), &json!({}), "1", json!(null));
    assert_eq!((walked.code(), walked.variable("count").as_f64()), (None, Some(2.0)));
    let exact = json!({"dataSource": {"iterable": 2}, "maxIterations": 2});
    assert_eq!(
        summing(&exact, &json!({}), "1", json!(null)).code(),
        None,
        "no items are left"
    );
}

#[test]
fn loops_nest_and_the_inner_loop_restarts_in_each_iteration() {
    let nodes = json!([
        node("s", "START", &json!({})),
        node(
            "outer",
            "LOOP_START",
            &json!({"loopId": "o", "dataSource": {"iterable": 3, "variableName": "row"}})
        ),
        node(
            "inner",
            "LOOP_START",
            &json!({"loopId": "i", "dataSource": {"iterable": [10, 20]}})
        ),
        node(
            "add",
            "VARIABLE",
            &json!({"variableName": "sum", "expression": "sum + loop.item"})
        ),
        node("inner-end", "LOOP_END", &json!({"loopId": "i"})),
        node(
            "count",
            "VARIABLE",
            &json!({"variableName": "count", "expression": "count + loop.index"})
        ),
        node("outer-end", "LOOP_END", &json!({"loopId": "o"})),
        node("e", "END", &json!({})),
    ]);
    let walked = walk(&nodes, &["s>outer>inner>add>inner-end>count>outer-end>e"], json!(null));
    assert_eq!(walked.variable("sum").as_f64(), Some(90.0));
    assert_eq!(
        walked.variable("count").as_f64(),
        Some(3.0),
        "`loop` is the outer one again"
    );
}

#[test]
fn max_steps_applies_per_iteration_and_the_history_stays_bounded() {
    let walked = summing(
        &json!({"maxIterations": 100_000}),
        &json!({}),
        "loop.index",
        json!(null),
    );
    assert_eq!(walked.code(), None, "each iteration has all of maxSteps");
    assert_eq!(walked.variable("sum").as_f64(), Some(4_999_950_000.0));
    assert!(
        walked.machine.history().count() < 1_100,
        "finished iterations leave the history"
    );
}

#[test]
fn a_tool_node_calls_its_tool_with_evaluated_arguments() {
    let of = |tool: &str, arguments: Value| {
        let config = json!({"tool": tool, "arguments": arguments, "assignTo": "found"});
        let nodes = json!([
            node("s", "START", &json!({})),
            node("t", "TOOL", &config),
            node("e", "END", &json!({}))
        ]);
        walk(&nodes, &["s>t>e"], json!({"q": "rust", "n": [1]}))
    };
    let walked = of(
        "search",
        json!({"query": "{{input.q}}", "all": "{{input.n}}", "limit": 3}),
    );
    assert_eq!(walked.calls, [json!({"query": "rust", "all": [1], "limit": 3})]);
    assert_eq!(
        walked.variable("found"),
        walked.calls[0],
        "a result that is JSON is JSON"
    );
    assert_eq!(**walked.end.output.value(), walked.calls[0]);
    assert_eq!(
        of("search", json!("input")).calls,
        [json!({"q": "rust", "n": [1]})],
        "text is an expression"
    );
    assert_eq!(of("search", json!(null)).calls, [json!({})]);
    assert_eq!(of("fails", json!(null)).code(), Some(RunErrorCode::ToolError));
}
