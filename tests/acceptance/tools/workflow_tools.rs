//! Workflows as tools of models, and workflows that models write.

use futures::executor::block_on;
use pirn::{Engine, EventType, Interaction, Role, RunHandle, ThreadStatus};
use pirn_tests::world::{Ran, code, line, node, run, run_in, workflow};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns a workflow whose model makes these calls in one reply, followed by the reply `done`.
fn calling(config: &Value, calls: &Value, others: &[Value]) -> Value {
    let mut config = config.clone();
    config["profileId"] = json!("script");
    config["prompt"] = json!("go");
    let mut workflows = vec![line("main", &[node("ask", "LLM", config)])];
    workflows.extend_from_slice(others);
    json!({
        "workflows": workflows,
        "profiles": [
            {"id": "script", "provider": "scripted", "responses": [{"toolCalls": calls}, {"content": "done"}]},
            {"id": "cheap", "provider": "scripted", "responses": [{"content": "cheap reply"}]},
        ],
    })
}

fn results(ran: &Ran) -> Vec<&str> {
    let messages = ran.report.conversation.messages.iter();
    let results = messages.filter(|message| message.role == Role::Tool);
    results.map(|message| message.content.as_str()).collect()
}

#[allow(clippy::needless_pass_by_value, reason = "called with `json!`")]
fn call(id: &str, name: &str, arguments: Value) -> Value {
    json!({"id": id, "name": name, "arguments": arguments})
}

/// A workflow that doubles a number, with a schema for its input.
fn double() -> Value {
    let mut double = line("math.double", &[code("double", "return input.n * 2")]);
    double["description"] = json!("Doubles a number.");
    double["inputSchema"] = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    double
}

#[test]
fn a_model_calls_a_workflow_and_receives_its_output_or_its_error() {
    let calls = json!([
        call("a", "math_double", json!({"n": 4})),
        call("b", "math_double", json!({"n": "four"})),
        call("c", "fails", json!({})),
        call("d", "unknown", json!({})),
    ]);
    let fails = line("fails", &[code("no", "throw new Error('on purpose')")]);
    let config = json!({"tools": ["workflow:math.double", "workflow:fails"]});
    let ran = run(&calling(&config, &calls, &[double(), fails]), json!(null));
    assert_eq!(ran.report.output["content"], "done", "{:?}", ran.report.error);
    let results = results(&ran);
    assert_eq!(results[0], "8");
    assert!(results[1].contains("does not fit the `inputSchema`"), "{results:?}");
    assert!(results[2].contains("workflow fails ended FAILED"), "{results:?}");
    assert!(results[3].contains("no tool `unknown`"), "{results:?}");
    let failed: Vec<_> = ran
        .of(EventType::ToolCallFailed)
        .iter()
        .map(|event| &event.raised.fields["toolCallId"])
        .cloned()
        .collect();
    assert_eq!(failed.len(), 3, "{failed:?}");
    // The child's events are in the stream of the run.
    assert_eq!(
        ran.of(EventType::SubgraphStarted).len(),
        2,
        "nothing starts with a wrong input"
    );
}

#[test]
fn calls_of_workflows_in_one_reply_run_concurrently_and_the_end_of_the_run_cancels_them() {
    let waits = line("waits", &[node("w", "WAIT", json!({"seconds": 10}))]);
    let calls: Vec<_> = (0..3).map(|at| call(&format!("c{at}"), "waits", json!({}))).collect();
    let config = json!({"tools": ["workflow:waits"]});
    let mut bundle = calling(&config, &json!(calls), &[waits]);
    let ran = run(&bundle, json!(null));
    assert_eq!(ran.report.elapsed_ms, 10_000, "not one after the other");
    bundle["workflows"][0]["config"] = json!({"timeoutMs": 5_000});
    let ran = run(&bundle, json!(null));
    let statuses: Vec<_> = ran.report.threads.iter().map(|thread| thread.status).collect();
    assert_eq!(statuses[0], ThreadStatus::Timeout);
    assert_eq!(statuses[1..], [ThreadStatus::Cancelled; 3]);
}

#[test]
fn the_names_of_workflow_tools_are_checked_when_the_workflow_is_loaded() {
    let faults = |tools: Value| {
        let bundle = calling(&json!({"tools": tools}), &json!([]), &[double()]);
        match Engine::builder().workflows(bundle.to_string()).build() {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(faults(json!(["workflow:math.double"])), "");
    assert!(faults(json!(["workflow:math.duble"])).contains("UNKNOWN_WORKFLOW_REFERENCE"));
    assert!(faults(json!(["workflow:math.double", "math_double"])).contains("which is the name of `math_double` too"));
    assert!(
        faults(json!(["search"])).is_empty(),
        "other tools are known to the engine only"
    );
}

#[test]
fn a_deferred_workflow_is_a_fault() {
    let config = json!({"tools": [{"name": "workflow:math.double", "deferred": true}]});
    let bundle = calling(&config, &json!([]), &[double()]);
    let error = Engine::builder()
        .workflows(bundle.to_string())
        .build()
        .expect_err("a fault");
    let expected = "`workflow:math.double` is a workflow, which cannot be deferred: remove `deferred`";
    assert!(error.to_string().contains(expected), "{error}");
}

/// Returns the results of submitting these workflows in a node with these tools.
fn results_of(tools: Value, submissions: &[Value]) -> Vec<String> {
    let calls: Vec<Value> = (0..)
        .zip(submissions)
        .map(|(number, submission)| call(&format!("c{number}"), "run_workflow", submission.clone()))
        .collect();
    let mut config = dynamic(&json!({}));
    config["tools"] = tools;
    let ran = run(&calling(&config, &json!(calls), &[double()]), json!(null));
    results(&ran).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_pattern_lets_submitted_workflows_use_neither_workflows_nor_built_in_tools() {
    let agent = |tool: &str| json!({"script": format!("return await agent('x', {{ tools: ['{tool}'] }})")});
    let graph = |tool: &str| written(&json!({"prompt": "p", "tools": [tool]}));
    let asks = json!({"name": "workflow:math.double", "consent": "ask"});
    let tools = json!(["run_workflow", "*", asks]);
    let refused = results_of(
        tools,
        &[
            agent("workflow:math.double"),
            graph("workflow:math.double"),
            agent("run_workflow"),
            agent("run_code"),
            graph("run_code"),
        ],
    );
    for (result, tool) in refused.iter().zip([
        "workflow:math.double",
        "workflow:math.double",
        "run_workflow",
        "run_code",
        "run_code",
    ]) {
        assert!(result.contains(&format!("the tool `{tool}`")), "{result}");
    }
    assert_eq!(refused.len(), 5);
}

#[test]
fn a_submitted_workflow_does_not_reach_the_tools_of_the_client() {
    let config = json!({"prompt": "p", "clientTools": true});
    let results = results_of(json!(["run_workflow"]), &[written(&config)]);
    assert!(
        results[0].contains("a submitted workflow may not use the tools of the client"),
        "{results:?}"
    );
}

/// A workflow that a model writes: an LLM node between START and END.
fn written(config: &Value) -> Value {
    json!({"graph": {
        "nodes": [{"id": "s", "type": "START"}, {"id": "a", "type": "LLM", "config": config},
            {"id": "e", "type": "END", "config": {"output": "output.content + ' ' + input.topic"}}],
        "edges": [{"from": "s", "to": "a"}, {"from": "a", "to": "e"}],
    }, "input": {"topic": "rain", "label": "own"}})
}

fn dynamic(extra: &Value) -> Value {
    let mut dynamic = json!({"profiles": ["cheap"], "consent": "auto"});
    for (name, value) in extra.as_object().expect("an object") {
        dynamic[name] = value.clone();
    }
    json!({"tools": ["run_workflow"], "dynamic": dynamic})
}

#[test]
fn a_model_runs_a_workflow_that_it_writes_and_corrects_its_faults() {
    let mut broken = written(&json!({"prompt": "p"}));
    broken["graph"]["edges"][1]["to"] = json!("nowhere");
    let calls = json!([
        call("a", "run_workflow", written(&json!({"prompt": "tell {{input.topic}}"}))),
        call("b", "run_workflow", broken),
        call(
            "c",
            "run_workflow",
            written(&json!({"prompt": "p", "profileId": "script"}))
        ),
        call(
            "d",
            "run_workflow",
            json!({"script": "const x = 1\n  return (", "input": 1})
        ),
        call(
            "e",
            "run_workflow",
            json!({"script": "export const meta = { tools: ['rm'] }\nreturn 1"})
        ),
    ]);
    let ran = run(&calling(&dynamic(&json!({})), &calls, &[]), json!(null));
    let results = results(&ran);
    assert_eq!(results[0], "cheap reply rain", "{results:?}");
    let fault = |at: usize| serde_json::from_str::<Value>(results[at]).expect("JSON")["faults"][0].clone();
    assert_eq!(
        (&fault(1)["code"], &fault(1)["pointer"]),
        (&json!("UNKNOWN_NODE_REFERENCE"), &json!("/edges/1/to"))
    );
    assert_eq!(
        (&fault(2)["code"], &fault(2)["pointer"]),
        (&json!("UNKNOWN_PROFILE"), &json!("/nodes/1/config/profileId"))
    );
    assert_eq!(
        (&fault(3)["code"], &fault(3)["pointer"]),
        (&json!("INVALID_EXPRESSION"), &json!("/script"))
    );
    let message = fault(3)["message"].to_string();
    assert!(message.contains("line 2") || message.contains("line 3"), "{message}");
    assert_eq!(
        (&fault(4)["code"], &fault(4)["pointer"]),
        (&json!("UNKNOWN_TOOL"), &json!("/meta/tools/0"))
    );
    assert!(ran.report.threads[1].workflow_id.starts_with("dynamic@"));
    let started = &ran.of(EventType::SubgraphStarted)[0].raised.fields;
    assert_eq!(
        started["definition"]["nodes"][1]["config"]["prompt"],
        "tell {{input.topic}}"
    );
    assert_eq!(started.get("label"), None, "`label` of the input belongs to the model");
}

/// Runs a script that a model submits under these rules. Returns the result of the call.
fn submitted(script: &str, rules: &Value, tools: &Value, others: &[Value]) -> (String, Ran) {
    let mut config = dynamic(rules);
    config["tools"] = tools.clone();
    let calls = json!([call("a", "run_workflow", json!({"script": script, "input": {"n": 4}}))]);
    let ran = run(&calling(&config, &calls, others), json!(null));
    assert_eq!(ran.report.output["content"], "done", "{:?}", ran.report.error);
    (results(&ran)[0].to_owned(), ran)
}

#[test]
fn a_model_runs_a_script_whose_calls_follow_the_rules_of_its_node() {
    let tools = json!(["run_workflow", "workflow:math.double"]);
    let script = "export const meta = { name: 'vote' }
        phase('Ask')
        const said = await parallel([1, 2].map(n => () => agent('say ' + n)))
        return { said, double: await workflow('math.double', args) }";
    let (result, ran) = submitted(script, &json!({}), &tools, &[double()]);
    let output: Value = serde_json::from_str(&result).expect("JSON");
    assert_eq!(output, json!({"said": ["cheap reply", "cheap reply"], "double": 8}));
    assert!(ran.report.threads[1].workflow_id.starts_with("vote@"));
    assert_eq!(
        ran.report.threads.len(),
        5,
        "main, the script, two agents and a workflow"
    );
    let refused = [
        (
            "return await agent('a', { profileId: 'script' })",
            "`script` is not in the `profiles`",
        ),
        (
            "return await agent('a', { tools: ['search'] })",
            "`search` is not in the `tools`",
        ),
        ("return await workflow('main', 1)", "`main` is not in the `workflows`"),
        ("return await tool('search', {})", "`search` is not in the `tools`"),
    ];
    for (script, why) in refused {
        let (result, ran) = submitted(script, &json!({}), &tools, &[double()]);
        assert!(result.contains(why), "{script}: {result}");
        assert_eq!(ran.report.threads.len(), 2, "{script}");
        // The script may handle the refusal.
        let caught = format!("try {{ {script} }} catch (error) {{ return error.code }}");
        assert_eq!(
            submitted(&caught, &json!({}), &tools, &[double()]).0,
            "INVALID_INPUT",
            "{script}"
        );
    }
}

#[test]
fn a_submitted_script_ends_at_the_limits_of_its_node() {
    let tools = json!(["run_workflow", "workflow:waits"]);
    let waits = line("waits", &[node("w", "WAIT", json!({"seconds": 10}))]);
    let cases = [
        (
            json!({"agents": 2}),
            "for (let i = 0; ; i++) await agent('a' + i)",
            "more than 2 agents",
        ),
        (
            json!({"agents": 2}),
            "return await parallel([1, 2, 3].map(n => () => agent('a' + n)))",
            "more than 2 agents",
        ),
        (json!({"tokens": 1}), "return await agent('a')", "allows 1 tokens"),
        (json!({"timeMs": 5_000}), "return await workflow('waits')", "TIMEOUT"),
        (
            json!({}),
            "export const meta = { limits: { calls: 20 } }\nfor (;;) await sleep(1)",
            "more than 20 calls",
        ),
    ];
    for (limits, script, why) in cases {
        let (result, ran) = submitted(script, &json!({"limits": limits}), &tools, std::slice::from_ref(&waits));
        assert!(result.contains(why), "{script}: {result}");
        assert!(
            ran.report.threads.iter().all(|thread| thread.status.is_final()),
            "{script}"
        );
    }
    let two = "return await parallel([1, 2, 3, 4].map(() => () => workflow('waits')))";
    let (_, ran) = submitted(
        two,
        &json!({"limits": {"concurrency": 2}}),
        &tools,
        std::slice::from_ref(&waits),
    );
    assert_eq!(ran.report.elapsed_ms, 20_000, "two at once");
}

/// Submits a graph under a limit of five agents. Returns the result of the call, and the number of agents that ran.
fn agents_of(graph: &Value) -> (String, usize) {
    let calls = json!([call("a", "run_workflow", json!({"graph": graph}))]);
    let mut config = dynamic(&json!({"profiles": ["echo", "writer", "caller"], "limits": {"agents": 5, "depth": 2}}));
    config["tools"] = json!(["run_workflow", "workflow:math.double", "workflow:fails"]);
    let fails = line("fails", &[code("no", "throw new Error('on purpose')")]);
    let mut bundle = calling(&config, &calls, &[double(), fails]);
    let script = json!({"script": "for (let n = 0; n < 2; n++) await agent('a')"});
    let writes = json!({"toolCalls": [call("w", "run_workflow", script)]});
    let profiles = bundle["profiles"].as_array_mut().expect("a list");
    profiles.push(json!({"id": "echo", "provider": "echo"}));
    profiles.push(json!({"id": "writer", "provider": "scripted", "responses": [writes, {"content": "a"}, writes, {"content": "b"}]}));
    let called: Vec<Value> = (0..10)
        .map(|n| call(&format!("c{n}"), "math_double", json!({"n": n})))
        .collect();
    profiles.push(
        json!({"id": "caller", "provider": "scripted", "responses": [{"toolCalls": called}, {"content": "called"}]}),
    );
    let ran = run(&bundle, json!(null));
    let is_submitted = |id: &str| id.starts_with("own@") || id.starts_with("dynamic@");
    let threads = ran.report.threads.iter();
    let called = threads
        .filter(|thread| &*thread.workflow_id != "main" && !is_submitted(&thread.workflow_id))
        .count();
    let started = ran.of(EventType::NodeStarted).into_iter().map(pirn::Event::to_json);
    let own = started.filter(|event| {
        // A node whose agent was refused fails after its start.
        event["nodeType"] == "LLM" && event["workflowId"].as_str().is_some_and(is_submitted)
    });
    let failed = ran.of(EventType::NodeFailed).into_iter().map(pirn::Event::to_json);
    let refused =
        failed.filter(|event| event["nodeType"] == "LLM" && event.to_string().contains("`dynamic.limits.agents`"));
    (results(&ran)[0].to_owned(), called + own.count() - refused.count())
}

#[test]
fn a_submitted_workflow_starts_at_most_the_agents_of_its_limit_in_loops_retries_and_maps() {
    let repeated = |inner: Value| {
        let start = json!({"loopId": "l", "dataSource": {"iterable": 10, "variableName": "n"}});
        let nodes = [
            node("l", "LOOP_START", start),
            inner,
            node("r", "LOOP_END", json!({"loopId": "l"})),
        ];
        line("own", &nodes)
    };
    let retried = |mut node: Value| {
        node["retry"] = json!({"maxAttempts": 20, "initialDelayMs": 1});
        line("own", &[node])
    };
    let llm = |id: &str, profile: &str| node(id, "LLM", json!({"prompt": "p", "profileId": profile}));
    let script = |code: &str| node("n", "SCRIPT", json!({"code": code}));
    let call = |id: &str| node("n", "SUBGRAPH", json!({"subgraphId": id, "input": {"n": 1}}));
    let map = json!({"items": "[1, 2]", "subgraphId": "math.double", "input": {"n": 1}, "maxItems": 2});
    let mut nested = llm("n", "writer");
    nested["config"]["tools"] = json!(["run_workflow"]);
    let round = |id: &str| {
        let start = json!({"loopId": id, "dataSource": {"iterable": 10, "variableName": id}});
        let ids = [format!("{id}1"), format!("{id}2"), format!("{id}3")];
        let end = node(&ids[2], "LOOP_END", json!({"loopId": id}));
        [node(&ids[0], "LOOP_START", start), llm(&ids[1], "echo"), end]
    };
    let paths = json!(["x", "y"]);
    let mut forked = vec![
        node("start", "START", json!({})),
        node("f", "FORK", json!({"forkPathIds": paths, "childNodeIds": ["x1", "y1"]})),
        node(
            "j",
            "JOIN",
            json!({"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED", "mainPathId": "x"}),
        ),
        node("end", "END", json!({})),
    ];
    forked.extend(["x", "y"].map(round).into_iter().flatten());
    let forked = workflow("own", &forked, &["start>f>x1>x2>x3>j>end", "f>y1>y2>y3>j"]);
    let cases = [
        (repeated(llm("n", "echo")), 5),
        (repeated(call("math.double")), 5),
        // Two items each: a third MAP would exceed the limit.
        (repeated(node("n", "MAP", map)), 4),
        (repeated(script("return await agent('a') + await agent('b')")), 5),
        (retried(call("fails")), 5),
        (
            retried(script("await agent('a'); await agent('b'); throw new Error('again')")),
            5,
        ),
        (forked, 5),
        // A node and two agents of the script that it submits in each round.
        (repeated(nested), 5),
    ];
    for (graph, started) in cases {
        let (result, agents) = agents_of(&graph);
        assert!(
            result.contains("`dynamic.limits.agents`") || result.contains("JOIN"),
            "{graph}: {result}"
        );
        assert_eq!(agents, started, "{graph}: {result}");
    }
    // Exactly as many as the limit allows.
    let (result, agents) = agents_of(&line(
        "own",
        &[script("for (let n = 0; n < 5; n++) await agent('a'); return 'all'")],
    ));
    assert_eq!((&*result, agents), ("all", 5));
    // The model receives errors for its further calls, and continues.
    let mut caller = llm("n", "caller");
    caller["config"]["tools"] = json!(["workflow:math.double"]);
    let (result, agents) = agents_of(&line("own", &[caller]));
    assert!(result.contains(r#""content":"called""#), "{result}");
    assert_eq!(agents, 5);
}

#[test]
fn the_output_of_a_workflow_is_cut_to_the_limit_of_a_tool_result() {
    let long = line("long", &[code("n", "return 'é'.repeat(50000)")]);
    let list = line("list", &[code("n", "return Array(40000).fill(1)")]);
    let short = line("short", &[code("n", "return 'a'.repeat(65536)")]);
    let fails = line("fails", &[code("n", "throw new Error('x'.repeat(100000))")]);
    let script = json!({"script": "return 'é'.repeat(50000)"});
    let calls = json!([
        call("a", "long", json!({})),
        call("b", "list", json!({})),
        call("c", "short", json!({})),
        call("d", "run_workflow", script),
        call("e", "fails", json!({})),
        call("f", "run_code", json!({"code": "return 'b'.repeat(70000)"})),
    ]);
    let mut config = dynamic(&json!({}));
    let tools = [
        "workflow:long",
        "workflow:list",
        "workflow:short",
        "workflow:fails",
        "run_workflow",
        "run_code",
    ];
    config["tools"] = json!(tools);
    config["codeLimits"] = json!({"outputBytes": 80000});
    let ran = run(&calling(&config, &calls, &[long, list, short, fails]), json!(null));
    let results = results(&ran);
    for (at, bytes) in [(0, 100_000), (1, 80_001), (3, 100_000)] {
        let (kept, note) = results[at].rsplit_once('\n').expect("a note");
        assert_eq!(kept.len(), 65_536);
        assert_eq!(note, format!("[output cut: the first 65536 bytes of {bytes}]"));
    }
    assert_eq!(results[2].len(), 65_536);
    let (kept, note) = results[4].rsplit_once('\n').expect("a note");
    assert!(kept.len() <= 65_536 && note.starts_with("[output cut"), "{note}");
    assert_eq!(results[5].len(), 70_000, "`codeLimits.outputBytes` applies");
}

#[test]
fn a_form_that_the_node_does_not_allow_is_refused() {
    let tools = json!(["run_workflow"]);
    let (result, _) = submitted("return 1", &json!({"allow": ["graph"]}), &tools, &[]);
    assert!(result.contains("may not submit scripts"), "{result}");
    let (result, _) = submitted("return 1", &json!({"allow": ["script"]}), &tools, &[]);
    assert_eq!(result, "1");
}

#[test]
fn the_budget_and_the_depth_of_a_written_workflow_are_limited() {
    // The scripted model has no maximum for its reply, so that the budget refuses the call before it starts.
    let calls = json!([call("a", "run_workflow", written(&json!({"prompt": "p"})))]);
    let ran = run(
        &calling(&dynamic(&json!({"limits": {"tokens": 1}})), &calls, &[]),
        json!(null),
    );
    assert!(results(&ran)[0].contains("BUDGET"), "{:?}", results(&ran));
    assert_eq!(
        ran.report.status,
        ThreadStatus::Completed,
        "the model receives the refusal"
    );
    let nested = json!({"prompt": "p", "tools": ["run_workflow"]});
    let calls = json!([call("a", "run_workflow", written(&nested))]);
    let ran = run(&calling(&dynamic(&json!({})), &calls, &[]), json!(null));
    assert!(results(&ran)[0].contains("LIMIT_EXCEEDED"), "{:?}", results(&ran));
    let ran = run(
        &calling(&dynamic(&json!({"limits": {"depth": 2}})), &calls, &[]),
        json!(null),
    );
    assert_eq!(results(&ran)[0], "cheap reply rain");
}

#[test]
fn a_person_approves_the_calls_of_a_workflow_by_a_model_and_by_its_scripts() {
    let code = "try { return await tools.math_double({ n: 5 }) } catch (error) { return error.message }";
    let calls = json!([
        call("a", "math_double", json!({"n": 4})),
        call("b", "math_double", json!({"n": 6})),
        call("c", "run_code", json!({ "code": code })),
    ]);
    let tools = json!(["run_code", {"name": "workflow:math.double", "consent": "ask"}]);
    let bundle = calling(&json!({ "tools": tools }), &calls, &[double()]);
    let (_engine, run, open) = asking(&bundle);
    assert_eq!(open.len(), 3, "{open:?}");
    for question in &open {
        let tool = question.tool.as_ref().expect("an approval");
        assert_eq!(tool.schema["required"], json!(["n"]), "{tool:?}");
        let answer = match tool.arguments["n"].as_i64() {
            Some(4) => json!({"decision": "allow", "arguments": {"n": 40}}),
            Some(6) => json!("allow"),
            _ => json!({"decision": "refuse", "reason": "not now"}),
        };
        block_on(run.answer(&question.id, answer)).expect("is taken");
    }
    let report = run.outcome_blocking();
    let messages = report.conversation.messages.iter();
    let results: Vec<_> = messages.filter(|message| message.role == Role::Tool).collect();
    assert!(results[0].content.as_str().ends_with("80"), "{results:?}");
    assert_eq!(results[1].content.as_str(), "12");
    assert!(results[2].content.as_str().contains("not now"), "{results:?}");
    let wrong = calling(
        &json!({"tools": [{"name": "search", "consent": "ask"}]}),
        &json!([]),
        &[],
    );
    let error = Engine::builder()
        .workflows(wrong.to_string())
        .build()
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("`search` is no workflow"), "{error}");
}

#[test]
fn a_workflow_that_calls_itself_as_a_tool_ends_at_the_depth_limit() {
    let calls = json!([call("a", "main", json!({}))]);
    let mut bundle = calling(&json!({"tools": ["workflow:main"]}), &calls, &[]);
    bundle["workflows"][0]["config"] = json!({"maxDepth": 4});
    let ran = run(&bundle, json!(null));
    assert_eq!(ran.report.threads.len(), 5, "the main thread and four below it");
    assert_eq!(ran.report.status, ThreadStatus::Completed);
}

#[test]
fn a_person_sees_the_plan_and_approves_changes_or_refuses_it() {
    let plan = written(&json!({"prompt": "p"}));
    let mut changed = plan.clone();
    changed["input"]["topic"] = json!("snow");
    let answers = [
        (json!("allow"), "cheap reply rain"),
        (json!({"decision": "allow", "arguments": changed}), "cheap reply snow"),
        (
            json!({"decision": "allow", "arguments": {"graph": {"nodes": []}}}),
            "was not started",
        ),
        (json!({"decision": "refuse", "reason": "too dear"}), "too dear"),
    ];
    for (answer, expected) in answers {
        let bundle = calling(
            &dynamic(&json!({"consent": "ask", "limits": {"tokens": 9_000}})),
            &json!([call("a", "run_workflow", plan.clone())]),
            &[],
        );
        let asked = ["up to 1 agents", "at most 9000 tokens", "flowchart"];
        let result = answered(&bundle, &asked, answer);
        assert!(result.contains(expected), "{expected}: {result}");
    }
}

#[test]
fn a_person_sees_the_script_and_its_limits_before_it_runs() {
    let script = "return await agent('p')";
    let bundle = calling(
        &dynamic(&json!({"consent": "ask", "limits": {"agents": 7}})),
        &json!([call("a", "run_workflow", json!({ "script": script }))]),
        &[],
    );
    let result = answered(&bundle, &["up to 7 agents", script], json!("allow"));
    assert_eq!(result, "cheap reply");
}

/// Runs `main` until it waits for answers. Returns the engine, the run and its open questions.
fn asking(bundle: &Value) -> (Engine, RunHandle, Vec<Interaction>) {
    let engine = Engine::builder()
        .virtual_time(Some(7))
        .workflows(bundle.to_string())
        .build()
        .expect("builds");
    let run = engine.run("main").start().expect("starts");
    engine.wait_idle();
    let open = block_on(run.interactions());
    (engine, run, open)
}

/// Runs `main` until it asks whether a workflow may run, and answers. The question contains the texts `asked`. Returns the result of
/// the call that the model receives.
#[track_caller]
fn answered(bundle: &Value, asked: &[&str], answer: Value) -> String {
    let (_engine, run, open) = asking(bundle);
    let question = &open[0].question;
    for part in asked.iter().chain(&["May this workflow run?"]) {
        assert!(question.contains(part), "{part}: {question}");
    }
    block_on(run.answer(&open[0].id, answer)).expect("is taken");
    let report = run.outcome_blocking();
    let mut messages = report.conversation.messages.iter();
    let result = messages.rfind(|message| message.role == Role::Tool).expect("a result");
    result.content.as_str().to_owned()
}

/// Expressions over the input, which a called workflow evaluates in a sequence of nodes.
fn expressions() -> impl Strategy<Value = Vec<&'static str>> {
    let expressions = vec![
        "return input.n + 1",
        "return {deep: [output, input.n]}",
        "return 'text'",
        "return null",
        "throw new Error('no')",
    ];
    prop::collection::vec(prop::sample::select(expressions), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_workflow_has_the_same_output_as_a_tool_and_as_a_subgraph(expressions in expressions(), n in 0..9) {
        let nodes: Vec<_> = expressions.iter().enumerate().map(|(at, text)| code(&format!("n{at}"), text)).collect();
        let called = line("called", &nodes);
        let calls = json!([call("a", "called", json!({"n": n}))]);
        let as_tool = run(&calling(&json!({"tools": ["workflow:called"]}), &calls, std::slice::from_ref(&called)), json!(null));
        let node = node("call", "SUBGRAPH", json!({"subgraphId": "called", "input": {"n": n}}));
        let as_subgraph = run(&json!({"workflows": [line("main", &[node]), called]}), json!(null));
        let result = results(&as_tool)[0].to_owned();
        match as_subgraph.report.status {
            ThreadStatus::Completed => match &as_subgraph.report.output {
                Value::String(text) => prop_assert_eq!(&result, text),
                output => prop_assert_eq!(result, output.to_string()),
            },
            _ => prop_assert!(result.contains("workflow called ended FAILED"), "{}", result),
        }
    }
}

#[test]
fn a_run_with_workflow_tools_is_rebuilt_from_its_inputs() {
    let calls = json!([
        call("a", "math_double", json!({"n": 4})),
        call("b", "run_workflow", written(&json!({"prompt": "p"}))),
        call("c", "run_workflow", json!({"script": "return await agent('p')"})),
    ]);
    let mut config = dynamic(&json!({}));
    config["tools"] = json!(["run_workflow", "workflow:math.double"]);
    let bundle = calling(&config, &calls, &[double()]);
    let ran = run_in(
        Engine::builder().virtual_time(Some(3)),
        &bundle,
        json!(null),
        Vec::new(),
    );
    assert_eq!(results(&ran), ["8", "cheap reply rain", "cheap reply"]);
}
