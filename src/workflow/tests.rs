//! Any sequence of builder calls produces the workflow that the equivalent JSON produces.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A builder call that refers to existing nodes by number.
#[derive(Clone, Debug)]
enum Call {
    Step {
        kind: usize,
        from: usize,
    },
    Edge {
        from: usize,
        to: usize,
        condition: Option<String>,
        weight: i32,
    },
    Route {
        targets: Vec<(usize, i32)>,
        otherwise: Option<usize>,
    },
    ForkJoin {
        paths: Vec<usize>,
        serial: bool,
        when: usize,
        main: Option<usize>,
        detach: bool,
    },
    Repeat {
        limit: Option<u64>,
        until: Option<String>,
    },
    Ask {
        choices: bool,
        policy: usize,
        target: usize,
    },
    Settings {
        node: usize,
        attempts: u32,
        target: usize,
    },
}

fn call() -> impl Strategy<Value = Call> {
    let node = 0..64_usize;
    let text = || proptest::option::of("[a-z]{1,6} > [0-9]");
    prop_oneof![
        (0..KINDS, node.clone()).prop_map(|(kind, from)| Call::Step { kind, from }),
        (node.clone(), node.clone(), text(), -9..9_i32).prop_map(|(from, to, condition, weight)| Call::Edge {
            from,
            to,
            condition,
            weight
        }),
        (vec((node.clone(), -9..9_i32), 0..4), proptest::option::of(node.clone()))
            .prop_map(|(targets, otherwise)| Call::Route { targets, otherwise }),
        (
            vec(node.clone(), 0..4),
            any::<bool>(),
            0..5_usize,
            proptest::option::of(node.clone()),
            any::<bool>()
        )
            .prop_map(|(paths, serial, when, main, detach)| Call::ForkJoin {
                paths,
                serial,
                when,
                main,
                detach
            }),
        (proptest::option::of(1..9_u64), text()).prop_map(|(limit, until)| Call::Repeat { limit, until }),
        (any::<bool>(), 0..4_usize, node.clone()).prop_map(|(choices, policy, target)| Call::Ask {
            choices,
            policy,
            target
        }),
        (node.clone(), 1..5_u32, node).prop_map(|(node, attempts, target)| Call::Settings { node, attempts, target }),
    ]
}

const KINDS: usize = 12;

/// Returns a step of each kind, and its node in JSON without the id.
fn step(kind: usize) -> (Step, Value) {
    match kind {
        0 => (
            Llm::prompt("p")
                .profile_id("a")
                .tools(["t*"])
                .max_tool_rounds(3_u32)
                .into(),
            json!({"type": "LLM", "config": {"prompt": "p", "profileId": "a", "tools": ["t*"], "maxToolRounds": 3}}),
        ),
        1 => (
            Code::js("return 1").into(),
            json!({"type": "CODE", "config": {"code": "return 1"}}),
        ),
        2 => (
            Code::function("f").input(json!({"n": 1})).into(),
            json!({"type": "CODE", "config": {"function": "f", "input": {"n": 1}}}),
        ),
        3 => (
            Assign::to("v", "1 + 1")
                .variable_type(VariableType::Number)
                .global()
                .readonly()
                .into(),
            json!({"type": "VARIABLE", "config": {"variableName": "v", "expression": "1 + 1", "variableType": "number",
                "scope": "global", "readonly": true}}),
        ),
        4 => (
            Subgraph::of("other")
                .input("input")
                .conversation(ConversationMode::Share)
                .into(),
            json!({"type": "SUBGRAPH", "config": {"subgraphId": "other", "input": "input", "conversation": "share"}}),
        ),
        5 => (
            MapItems::of("input", "other")
                .when(JoinWhen::AtLeast(2))
                .concurrency(4_u32)
                .detach()
                .into(),
            json!({"type": "MAP", "config": {"items": "input", "subgraphId": "other", "concurrency": 4,
                "joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 2, "onDecided": "detach"}}),
        ),
        6 => (
            CallTool::named("t")
                .arguments(json!({"n": "{{input}}"}))
                .assign_to("v")
                .into(),
            json!({"type": "TOOL", "config": {"tool": "t", "arguments": {"n": "{{input}}"}, "assignTo": "v"}}),
        ),
        7 => (
            Wait::time(Duration::from_millis(1500)).into(),
            json!({"type": "WAIT", "config": {"seconds": 1.5}}),
        ),
        8 => (
            Wait::event_within("paid", Duration::from_secs(2)).into(),
            json!({"type": "WAIT", "config": {"event": "paid", "timeout": 2}}),
        ),
        9 => (
            Context::truncate_role(pirn_definition::message::Role::User, Kept::Last(3)).into(),
            json!({"type": "CONTEXT_PROCESSOR", "config": {"operation": "truncate", "keepLast": 3, "role": "user"}}),
        ),
        10 => (
            Context::replace(Messages::Last(2), [(pirn_definition::message::Role::System, "s")]).into(),
            json!({"type": "CONTEXT_PROCESSOR", "config": {"operation": "replace", "target": {"lastN": 2},
                "replacement": [{"role": "system", "content": "s"}]}}),
        ),
        _ => (
            Context::pin(pirn_definition::definition::PinSection::Role, "r").into(),
            json!({"type": "CONTEXT_PROCESSOR", "config": {"operation": "pin", "section": "role", "value": "r"}}),
        ),
    }
}

const WHEN: [(JoinWhen, &str); 5] = [
    (JoinWhen::AllCompleted, "ALL_COMPLETED"),
    (JoinWhen::AnyCompleted, "ANY_COMPLETED"),
    (JoinWhen::AllFailed, "ALL_FAILED"),
    (JoinWhen::AnyFailed, "ANY_FAILED"),
    (JoinWhen::AtLeast(7), "SUCCESS_COUNT_THRESHOLD"),
];

/// Executes the calls.
fn built(calls: &[Call]) -> WorkflowDefinition {
    workflow("w", "n0", |flow, start| {
        // Ids follow the order of the nodes.
        let mut count = 1;
        let mut id = || {
            count += 1;
            format!("n{}", count - 1)
        };
        let mut nodes = vec![flow.then(start, id(), Llm::go_on())];
        for call in calls {
            let at = |node: &usize| nodes[node % nodes.len()];
            match call {
                Call::Step { kind, from } => {
                    let node = flow.then(at(from), id(), step(*kind).0);
                    nodes.push(node);
                }
                Call::Edge {
                    from,
                    to,
                    condition,
                    weight,
                } => {
                    let mut edge = flow.edge(at(from), at(to));
                    edge.weight(f64::from(*weight)).label("l");
                    if let Some(condition) = condition {
                        edge.when(condition);
                    }
                }
                Call::Route { targets, otherwise } => {
                    let route = flow.route(id());
                    for (target, priority) in targets {
                        flow.when(route, "c", at(target)).priority(f64::from(*priority));
                    }
                    if let Some(target) = otherwise {
                        flow.otherwise(route, at(target));
                    }
                }
                Call::ForkJoin {
                    paths,
                    serial,
                    when,
                    main,
                    detach,
                } => {
                    let mut fork = flow.fork(id());
                    if *serial {
                        flow.in_series(&fork);
                    }
                    let handles: Vec<_> = (0..)
                        .zip(paths)
                        .map(|(number, child)| flow.path(&mut fork, format!("p{number}"), at(child)))
                        .collect();
                    let mut join = Join::when(WHEN[*when].0).timeout(Duration::from_millis(2500));
                    if let Some(main) = main.filter(|_| !handles.is_empty()) {
                        join = join.main_path(handles[main % handles.len()]);
                    }
                    if *detach {
                        join = join.detach().merge_variables(MergeVariables::All);
                    }
                    let join = flow.join(id(), fork, join);
                    nodes.push(join);
                }
                Call::Repeat { limit, until } => {
                    let mut repeated = Loop::over_as("l", "input", "each");
                    if let Some(limit) = limit {
                        repeated = repeated.at_most(*limit, LoopLimit::Finish);
                    }
                    let begin = flow.loop_start(id(), repeated);
                    flow.edge(at(&0), &begin);
                    let end = match until {
                        Some(until) => flow.loop_until(id(), begin, until),
                        None => flow.loop_end(id(), begin),
                    };
                    nodes.push(end);
                }
                Call::Ask {
                    choices,
                    policy,
                    target,
                } => {
                    let mut ask = Ask::question("q?").assignee("{{input}}").assign_to("v");
                    if *choices {
                        ask = ask.choices(["yes", "no"]);
                    }
                    let target = at(target);
                    let question = flow.ask(id(), ask);
                    let after = Duration::from_secs(3);
                    match policy {
                        0 => flow.expires(question, after),
                        1 => flow.answers_itself(question, after, "no"),
                        2 => flow.gives_up(question, after, target),
                        _ => &mut *flow,
                    };
                }
                Call::Settings { node, attempts, target } => {
                    flow.at(at(node))
                        .name("n")
                        .retry(RetryPolicy::attempts(*attempts))
                        .timeout(Duration::from_millis(70))
                        .on_error(at(target))
                        .in_doubt(pirn_definition::definition::InDoubt::Keyed);
                }
            }
        }
    })
}

/// Converts the calls to JSON without using the builder.
fn written(calls: &[Call]) -> Value {
    let mut nodes: Vec<Value> = vec![json!({"id": "n0", "type": "START"}), json!({"id": "n1", "type": "LLM"})];
    let mut edges = vec![json!({"from": "n0", "to": "n1"})];
    // Nodes to which calls may refer.
    let mut plain = vec![1];
    for call in calls {
        let at = |node: &usize| plain[node % plain.len()];
        let id = |node: &usize| format!("n{}", at(node));
        let new = nodes.len();
        let mut add = |number: usize, mut node: Value| {
            node["id"] = json!(format!("n{number}"));
            nodes.push(node);
        };
        match call {
            Call::Step { kind, from } => {
                edges.push(json!({"from": id(from), "to": format!("n{new}")}));
                add(new, step(*kind).1);
                plain.push(new);
            }
            Call::Edge {
                from,
                to,
                condition,
                weight,
            } => edges.push(json!({"sourceNodeId": id(from),
                "targetNodeId": id(to), "condition": condition, "weight": weight, "label": "l"})),
            Call::Route { targets, otherwise } => {
                let routes: Vec<Value> = targets
                    .iter()
                    .map(|(target, priority)| json!({"condition": "c", "targetNodeId": id(target), "priority": priority}))
                    .collect();
                add(
                    new,
                    json!({"type": "ROUTE", "config":
                    {"routes": routes, "defaultTargetNodeId": otherwise.as_ref().map(id)}}),
                );
            }
            Call::ForkJoin {
                paths,
                serial,
                when,
                main,
                detach,
            } => {
                let ids: Vec<String> = (0..paths.len()).map(|number| format!("p{number}")).collect();
                let children: Vec<String> = paths.iter().map(id).collect();
                for child in &children {
                    edges.push(json!({"from": format!("n{new}"), "to": child}));
                }
                add(
                    new,
                    json!({"type": "FORK", "config": {"forkPathIds": ids, "childNodeIds": children,
                    "forkStrategy": if *serial { "serial" } else { "parallel" }}}),
                );
                let main = main
                    .filter(|_| !ids.is_empty())
                    .map(|main| ids[main % ids.len()].clone());
                let (strategy, threshold) = (WHEN[*when].1, (*when == 4).then_some(7));
                let (decided, merge) = if *detach { ("detach", "all") } else { ("cancel", "none") };
                add(
                    new + 1,
                    json!({"type": "JOIN", "config": {"forkPathIds": ids, "joinStrategy": strategy, "timeout": 2.5,
                    "threshold": threshold, "mainPathId": main, "onDecided": decided, "mergeVariables": merge}}),
                );
                plain.push(new + 1);
            }
            Call::Repeat { limit, until } => {
                edges.push(json!({"from": "n1", "to": format!("n{new}")}));
                let policy = if limit.is_some() { "finish" } else { "fail" };
                add(
                    new,
                    json!({"type": "LOOP_START", "config": {"loopId": "l", "maxIterations": limit, "onLimit": policy,
                    "dataSource": {"iterable": "input", "variableName": "each"}}}),
                );
                add(
                    new + 1,
                    json!({"type": "LOOP_END", "config": {"loopId": "l", "breakCondition": until}}),
                );
                plain.push(new + 1);
            }
            Call::Ask {
                choices,
                policy,
                target,
            } => {
                let mut config = json!({"question": "q?", "assignee": "{{input}}", "assignTo": "v"});
                if *choices {
                    config["choices"] = json!(["yes", "no"]);
                }
                if *policy < 3 {
                    config["timeoutMs"] = json!(3000);
                    config["onTimeout"] =
                        [json!("fail"), json!("default"), json!({"targetNodeId": id(target)})][*policy].clone();
                }
                if *policy == 1 {
                    config["default"] = json!("no");
                }
                add(new, json!({"type": "USER_INTERACTION", "config": config}));
            }
            Call::Settings { node, attempts, target } => {
                let target = id(target);
                let node = &mut nodes[at(node)];
                node["name"] = json!("n");
                node["retry"] = json!({"maxAttempts": attempts});
                node["timeoutMs"] = json!(70);
                node["onError"] = json!({"targetNodeId": target});
                node["inDoubt"] = json!("keyed");
            }
        }
    }
    json!({"id": "w", "nodes": nodes, "edges": edges})
}

proptest! {
    #[test]
    fn builder_calls_equal_the_parsed_json(calls in vec(call(), 0..12)) {
        let built = built(&calls);
        let parsed = written(&calls).to_string().parse::<WorkflowDefinition>();
        prop_assert_eq!(parsed.as_ref(), Ok(&built));
        // Serialized in the form that an engine reads.
        let text = serde_json::to_string(&built).unwrap_or_default();
        prop_assert_eq!(text.parse::<WorkflowDefinition>(), Ok(built));
    }
}

/// Returns a workflow that waits for an event with every kind of time limit, all of them this one.
fn limited(limit: Duration) -> WorkflowDefinition {
    workflow("w", "start", |flow, start| {
        let wait = flow.then(start, "wait", Wait::event_within("go", limit));
        flow.at(wait).timeout(limit);
        let map = flow.then(wait, "map", MapItems::of("input", "w").timeout(limit));
        let mut fork = flow.fork("fork");
        flow.edge(map, &fork);
        let one = flow.node("one", Code::js("return 1"));
        flow.path(&mut fork, "one", one);
        let join = flow.join("join", fork, Join::when(JoinWhen::AllCompleted).timeout(limit));
        flow.edge(one, join);
        let question = flow.ask("ask", Ask::question("Go?"));
        flow.edge(join, question);
        flow.answers_itself(question, limit, 0);
        let end = flow.end("end");
        flow.edge(question, end);
    })
}

#[test]
fn a_time_limit_below_one_millisecond_is_one_millisecond() {
    let shortest = limited(Duration::from_millis(1));
    assert_eq!(limited(Duration::ZERO), shortest);
    assert_eq!(limited(Duration::from_micros(1)), shortest);
    assert!(!serde_json::to_string(&shortest).unwrap_or_default().contains("0.0,"));
}

#[test]
fn null_is_an_input() {
    let flow = workflow("w", "start", |flow, start| {
        let first = flow.then(start, "first", Code::js("return { n: 1 }"));
        let second = flow.then(first, "second", Code::js("return input").input(Value::Null));
        let end = flow.end_with("end", "nodes.second");
        flow.edge(second, end);
    });
    let engine = crate::Engine::builder().workflow(&flow).virtual_time(None).build();
    let run = engine.expect("valid").start("w", json!(1)).expect("admitted");
    let report = run.outcome_blocking();
    assert_eq!(report.output, Value::Null, "{:?}", report.error);
}

#[test]
fn a_weight_or_priority_that_is_not_finite_is_a_fault() {
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let flow = workflow("w", "start", |flow, start| {
            let route = flow.route("route");
            flow.edge(start, route).weight(number);
            let end = flow.end("end");
            flow.when(route, "true", end).priority(number);
        });
        let Err(crate::BuildError::Workflows(faults)) = crate::Engine::builder().workflow(&flow).build() else {
            panic!("{number} is accepted");
        };
        let found: Vec<_> = faults.iter().map(|fault| (fault.code, &*fault.pointer)).collect();
        let invalid = crate::FaultCode::InvalidValue;
        assert!(
            found
                .iter()
                .any(|(code, at)| *code == invalid && at.ends_with("weight")),
            "{faults:?}"
        );
        assert!(
            found
                .iter()
                .any(|(code, at)| *code == invalid && at.ends_with("priority")),
            "{faults:?}"
        );
    }
}
