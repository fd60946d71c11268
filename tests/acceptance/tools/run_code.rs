//! `run_code`: a script of a model that calls the tools of its node.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use pirn::explore::explore;
use pirn::script::{CodeLimits, ScriptSettings};
use pirn::tools::{Approval, ToolOptions, ToolRegistry, tool_fn};
use pirn::{Engine, EngineBuilder, EventType, Role, RunReport, ThreadStatus};
use pirn_tests::world::{Ran, code, line, node, run_in, run_unrecorded};
use serde_json::{Value, json};

/// A workflow with a model that calls `run_code` for each script in one reply, and then replies `done`.
fn running(scripts: &[&str], config: &Value) -> Value {
    let calls = scripts.iter().enumerate();
    let calls: Vec<Value> = calls
        .map(|(at, script)| json!({"id": format!("c{at}"), "name": "run_code", "arguments": {"code": script}}))
        .collect();
    let mut whole = json!({
        "profileId": "script", "prompt": "go",
        "tools": ["run_code", "count", "fail", "delete", "workflow:math.double", {"name": "rare", "deferred": true}],
    });
    for (name, value) in config.as_object().expect("an object") {
        whole[name] = value.clone();
    }
    let mut double = line("math.double", &[code("double", "return input.n * 2")]);
    double["description"] = json!("Doubles a number.");
    double["inputSchema"] = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    json!({
        "workflows": [line("main", &[node("ask", "LLM", whole)]), double],
        "profiles": [{"id": "script", "provider": "scripted", "responses": [{"toolCalls": calls}, {"content": "done"}]}],
    })
}

/// An engine with the tools `count`, which returns an object, `fail`, `delete`, which a person approves, and `rare`.
fn engine(approval: Approval) -> (EngineBuilder, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let count = tool_fn(
        "count",
        "Counts the letters of n.\nIn two lines.",
        schema,
        move |given: Value| {
            counted.fetch_add(1, Ordering::SeqCst);
            let n = given["n"].as_u64().unwrap_or_default();
            std::future::ready(Ok::<_, String>(
                json!({"n": n, "page": "secret ".repeat(50)}).to_string(),
            ))
        },
    );
    let any = || json!({"type": "object"});
    let fail = tool_fn("fail", "Fails.", any(), |_: Value| {
        std::future::ready(Err::<String, _>("on purpose".to_owned()))
    });
    let delete = tool_fn("delete", "Deletes.", any(), |given: Value| {
        std::future::ready(Ok::<_, String>(format!("deleted {}", given["path"])))
    });
    let rare = tool_fn("rare", "Is rare.", any(), |_: Value| {
        std::future::ready(Ok::<_, String>("rare".to_owned()))
    });
    let mut tools = ToolRegistry::new();
    for tool in [count, fail, rare] {
        tools.register(tool);
    }
    tools.register_with(
        delete,
        ToolOptions {
            approval,
            ..ToolOptions::default()
        },
    );
    let limits = CodeLimits {
        time: Duration::from_secs(2),
        ..CodeLimits::default()
    };
    let settings = ScriptSettings {
        code: limits,
        ..ScriptSettings::default()
    };
    (
        Engine::builder().virtual_time(Some(7)).tools(tools).scripts(settings),
        made,
    )
}

fn results(report: &RunReport) -> Vec<String> {
    let messages = report.conversation.messages.iter();
    let results = messages.filter(|message| message.role == Role::Tool);
    results.map(|message| message.content.as_str().to_owned()).collect()
}

/// Runs a script. Returns the result of its call.
#[track_caller]
fn result(script: &str, config: &Value) -> (String, Ran) {
    let bundle = running(&[script], config);
    let ran = run_in(engine(Approval::Never).0, &bundle, Value::Null, Vec::new());
    assert_eq!(ran.report.output["content"], "done", "{:?}", ran.report.error);
    assert!(
        ran.report.threads.iter().all(|thread| thread.status.is_final()),
        "{script}"
    );
    (results(&ran.report)[0].clone(), ran)
}

#[test]
fn only_the_return_value_and_the_log_of_a_script_enter_the_conversation() {
    let script = "const pages = await parallel([1, 2, 3].map(n => () => tools.count({ n })))
        console.log('pages', pages.length)
        return { sum: pages.reduce((sum, page) => sum + page.n, 0), twice: await tools.math_double({ n: 4 }) }";
    let (result, ran) = result(script, &json!({}));
    assert_eq!(result, "{\"sum\":6,\"twice\":8}\n\nLog:\npages 3");
    let conversation = json!(ran.report.conversation).to_string();
    assert!(!conversation.contains("secret"), "{conversation}");
    // Each call of a tool is an effect of the child thread with its events.
    let started = ran.of(EventType::ToolCallStarted);
    let named = |name: &str| {
        started
            .iter()
            .filter(|event| event.raised.fields["name"] == *name)
            .count()
    };
    assert_eq!((named("run_code"), named("count")), (1, 3));
    assert_eq!(
        ran.of(EventType::ToolCallCompleted).len(),
        5,
        "those of the script, and its own"
    );
    assert!(ran.report.threads[1].workflow_id.starts_with("run_code@"));
}

#[test]
fn a_script_calls_only_the_tools_of_its_node_and_catches_errors() {
    let caught = |call: &str| {
        format!("try {{ return await {call} }} catch (error) {{ return error.code + ': ' + error.message }}")
    };
    let cases = [
        ("tools.fail({})", "TOOL_ERROR: the tool fail failed: on purpose"),
        ("tool('fail')", "TOOL_ERROR"),
        (
            "tools.rm({})",
            "there is no tool `rm` for scripts; there are: count, fail, delete, math_double",
        ),
        ("tools.rare({})", "no tool `rare`"),
        ("tools.run_code({ code: 'return 1' })", "no tool `run_code`"),
        ("tools.math_double({ n: 'four' })", "does not fit the `inputSchema`"),
        ("tools.count({ n: 'four' })", "TOOL_ERROR"),
        (
            "agent('a')",
            "INVALID_INPUT: agent: a script of `run_code` may call tools only",
        ),
        ("workflow('math.double', { n: 1 })", "workflow: a script of `run_code`"),
        ("ask('Who?')", "ask: a script of `run_code`"),
        ("event('never')", "event: a script of `run_code`"),
        ("sleep(1e9)", "sleep: at most 300000 ms"),
    ];
    for (call, expected) in cases {
        let (result, _) = result(&caught(call), &json!({}));
        assert!(result.contains(expected), "{call}: {result}");
    }
    let thrown = result("await tools.count({})\n  throw new Error('no')", &json!({})).0;
    assert!(
        thrown.contains("no (node script)") && thrown.contains("line 2"),
        "{thrown}"
    );
    let wrong = result("return (", &json!({})).0;
    assert!(
        wrong.contains("INVALID_EXPRESSION") && wrong.contains("/code"),
        "{wrong}"
    );
}

#[test]
fn hostile_scripts_of_a_model_end_within_their_limits_with_a_clear_error() {
    let limits = json!({"codeLimits": {"calls": 20, "resultBytes": 20_000, "outputBytes": 1_000}});
    let cases = [
        ("for (;;) {}", "SCRIPT_LIMIT_EXCEEDED"),
        ("for (;;) await 0", "SCRIPT_LIMIT_EXCEEDED"),
        (
            "for (;;) { try { await tools.count({}) } catch {} }",
            "SCRIPT_LIMIT_EXCEEDED",
        ),
        (
            "await parallel(Array.from({ length: 1000 }, () => () => tools.count({})))",
            "more than 20 calls",
        ),
        ("for (;;) await sleep(1000)", "more than 20 calls"),
        (
            "return 'x'.repeat(1001)",
            "1001 bytes, more than 1000 (`codeLimits.outputBytes`)",
        ),
        (
            "for (let i = 0; i < 100; i++) console.log('x'.repeat(100)); return 1",
            "more than 1000",
        ),
        (
            "const all = []; for (;;) all.push(new Array(1000).fill(1))",
            "SCRIPT_LIMIT_EXCEEDED",
        ),
        ("await new Promise(() => {})", "will never settle"),
        ("tools.count = 1; return 1", "SCRIPT_ERROR"),
        (
            "Object.prototype.n = 5; Array.prototype.push = null; return (await tools.count({ n: 2 })).n",
            "2",
        ),
        (
            "return Object.keys(tools).length + typeof tools.then + typeof await tools",
            "4undefinedobject",
        ),
        ("return await fetch('http://localhost')", "UNKNOWN_NAME"),
        ("const name = 'cou' + 'nt'; return (await tools[name]({ n: 4 })).n", "4"),
        ("globalThis.tool = null; return (await tools.count({ n: 3 })).n", "3"),
    ];
    for (script, expected) in cases {
        let (result, ran) = result(script, &limits);
        assert!(result.contains(expected), "{script}: {result}");
        assert!(result.len() < 1_200, "{script}: {} bytes", result.len());
        assert!(ran.of(EventType::ToolCallStarted).len() <= 21, "{script}");
    }
    let big = "const all = []; for (let i = 0; i < 20; i++) all.push(await tools.count({ n: i })); return all.length";
    let few = json!({"codeLimits": {"resultBytes": 2_000}});
    let (result, _) = result(big, &few);
    assert!(result.contains("`limits.resultBytes`"), "{result}");
}

#[test]
fn a_person_approves_each_call_of_a_script_and_a_refusal_is_an_error_in_it() {
    let script = "const all = []
        for (const path of ['a', 'b']) {
            try { all.push(await tools.delete({ path })) } catch (error) { all.push(error.code + ' ' + error.message) }
        }
        return all.join('; ')";
    let bundle = running(&[script], &json!({}));
    let (builder, _) = engine(Approval::Ask);
    let engine = builder.workflows(bundle.to_string()).build().expect("builds");
    let run = engine.run("main").start().expect("starts");
    for answer in [json!("allow"), json!({"decision": "refuse", "reason": "too risky"})] {
        engine.wait_idle();
        let open = block_on(run.interactions());
        assert_eq!(open.len(), 1, "{open:?}");
        assert_eq!(open[0].tool.as_ref().map(|tool| tool.name.as_str()), Some("delete"));
        block_on(run.answer(&open[0].id, answer)).expect("is taken");
    }
    let report = run.outcome_blocking();
    let result = &results(&report)[0];
    assert!(result.starts_with("deleted \"a\"; TOOL_ERROR"), "{result}");
    assert!(result.contains("too risky"), "{result}");
}

#[test]
fn the_end_of_the_node_cancels_its_scripts() {
    let waits = "await sleep(100000); await tools.count({}); return 1";
    let mut bundle = running(&[waits, waits], &json!({}));
    bundle["workflows"][0]["config"] = json!({"timeoutMs": 5_000});
    let (builder, made) = engine(Approval::Never);
    let ran = run_unrecorded(builder, &bundle, Value::Null, Vec::new());
    let statuses: Vec<_> = ran.report.threads.iter().map(|thread| thread.status).collect();
    assert_eq!(
        statuses,
        [ThreadStatus::Timeout, ThreadStatus::Cancelled, ThreadStatus::Cancelled]
    );
    assert_eq!(made.load(Ordering::SeqCst), 0);
    let limited = json!({"codeLimits": {"timeMs": 2_000}});
    let (result, ran) = result("await sleep(100000); return 1", &limited);
    assert!(result.contains("NODE_TIMEOUT"), "{result}");
    assert_eq!(ran.report.elapsed_ms, 2_000);
}

#[test]
fn the_concurrency_of_a_script_is_limited() {
    let active = Arc::new(Mutex::new((0, 0)));
    let seen = Arc::clone(&active);
    let count = tool_fn("count", "Counts.", json!({"type": "object"}), move |_: Value| {
        let active = Arc::clone(&active);
        {
            let mut active = active.lock().expect("no panic");
            active.0 += 1;
            active.1 = active.1.max(active.0);
        }
        async move {
            futures::future::ready(()).await;
            active.lock().expect("no panic").0 -= 1;
            Ok::<_, String>("1".to_owned())
        }
    });
    let script = "return (await parallel(Array.from({ length: 9 }, () => () => tools.count({})))).length";
    let bundle = running(
        &[script],
        &json!({"tools": ["run_code", "count"], "codeLimits": {"concurrency": 3}}),
    );
    let ran = run_unrecorded(
        Engine::builder().virtual_time(Some(1)).tool(count),
        &bundle,
        Value::Null,
        Vec::new(),
    );
    assert_eq!(results(&ran.report)[0], "9");
    assert!(seen.lock().expect("no panic").1 <= 3);
}

#[test]
fn the_description_of_run_code_lists_the_tools_with_their_schemas() {
    let bundle = running(&["return 1"], &json!({}));
    let (builder, _) = engine(Approval::Never);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let model = Asked(Arc::clone(&asked));
    let mut bundle = bundle;
    bundle["profiles"] = json!([]);
    bundle["workflows"][0]["nodes"][1]["config"]["profileId"] = json!("asked");
    run_unrecorded(
        builder.model("asked", Arc::new(model)),
        &bundle,
        Value::Null,
        Vec::new(),
    );
    let described = asked.lock().expect("no panic")[0].clone();
    // The order of the schema's fields depends on a feature of serde_json.
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let count = format!("// Counts the letters of n.\n// In two lines.\n// args: {schema}\ntools[\"count\"](args)");
    for part in [&*count, "tools[\"math_double\"](args)"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    assert!(
        !described.contains("tools[\"rare\"]") && !described.contains("tools[\"tool_search\"]"),
        "{described}"
    );
}

/// A model that records the description of `run_code`.
struct Asked(Arc<Mutex<Vec<String>>>);

impl pirn::Model for Asked {
    fn call(
        &self,
        call: pirn::ModelCall,
    ) -> futures::future::BoxFuture<'static, Result<pirn::ModelReply, pirn::RunError>> {
        let described = call.tools.iter().filter(|tool| tool.name == "run_code");
        let described = described.map(|tool| tool.description.clone());
        self.0.lock().expect("no panic").extend(described);
        Box::pin(std::future::ready(Ok(pirn::ModelReply::default())))
    }
}

#[test]
fn a_script_may_call_a_deferred_tool_that_a_search_has_revealed() {
    let mut bundle = running(&[], &json!({}));
    let call =
        |name: &str, arguments: Value| json!({"toolCalls": [{"id": name, "name": name, "arguments": arguments}]});
    bundle["profiles"][0]["responses"] = json!([
        call("tool_search", json!({"query": "rare"})),
        call("run_code", json!({"code": "return await tools.rare({})"})),
        {"content": "done"},
    ]);
    let ran = run_in(engine(Approval::Never).0, &bundle, Value::Null, Vec::new());
    assert_eq!(results(&ran.report)[1], "rare");
}

#[test]
fn explore_covers_the_orders_of_the_calls_of_a_script() {
    let one = |name: &'static str| {
        let done = move |_: Value| std::future::ready(Ok::<_, String>(name.to_owned()));
        tool_fn(name, "Answers.", json!({"type": "object"}), done)
    };
    let script = "return await any([() => tools.a({}), () => tools.b({})])";
    let bundle = running(&[script], &json!({"tools": ["run_code", "a", "b"]}));
    let explored = explore(
        Engine::builder()
            .workflows(bundle.to_string())
            .tool(one("a"))
            .tool(one("b")),
    )
    .run()
    .expect("is explored");
    assert!(explored.complete, "{explored}");
    assert!(explored.schedules > 1, "each call can be first: {explored}");
    assert!(
        explored
            .outcomes
            .iter()
            .all(|outcome| outcome.output["content"] == "done"),
        "{explored}"
    );
}

#[test]
fn run_code_needs_its_name_in_tools_and_valid_limits() {
    let faults = |config: Value| {
        let bundle = running(&["return 1"], &config);
        match Engine::builder().workflows(bundle.to_string()).build() {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(faults(json!({})), "");
    let without = faults(json!({"tools": ["count"], "codeLimits": {"calls": 1}}));
    assert!(
        without.contains("`codeLimits` requires the tool `run_code`"),
        "{without}"
    );
    assert!(faults(json!({"codeLimits": {"concurrency": 0}})).contains("at least 1"));
    assert!(faults(json!({"codeLimits": {"cals": 1}})).contains("cals"));
}
