//! Results of each host function, and its errors.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use pirn::explore::explore;
use pirn::tools::tool_fn;
use pirn::{Engine, EventType, Input, RunHandle, ThreadStatus, TokenUsage};
use pirn_tests::world::{line, node, run_in, say, wait};
use serde_json::{Map, Value, json};

use super::{Echo, engine, notes, output, runs, script};

#[test]
fn an_agent_is_a_thread_whose_reply_is_the_value() {
    let code = "export const meta = { name: 'x' }
        phase('Ask')
        const text = await agent(`about ${args.n}`, { label: 'first', system: 'You are brief.' })
        log('got', { text })
        const found = await agent('JSON', { schema: { type: 'object', required: ['of'] }, profileId: 'other' })
        return { text, found }";
    let ran = runs(code, json!({}), json!({ "n": 3 }));
    assert_eq!(
        ran.report.output,
        json!({ "text": "re: about 3", "found": { "of": "JSON" } })
    );
    assert_eq!(notes(&ran), ["phase: Ask", "info: got {\"text\":\"re: about 3\"}"]);
    assert_eq!(ran.of(EventType::SubgraphCompleted).len(), 2);
    let started = ran.of(EventType::SubgraphStarted);
    let started = |at: usize, field: &str| started[at].raised.fields.get(field).cloned();
    assert_eq!((started(0, "label"), started(1, "label")), (Some(json!("first")), None));
    let definition = started(1, "definition").expect("the definition of the agent");
    assert_eq!(definition["nodes"][1]["config"]["profileId"], "other");
    assert_eq!(ran.report.tokens.spent, TokenUsage::new(20, 10, 30));
    let threads: Vec<_> = ran.report.threads.iter().map(|thread| thread.status).collect();
    assert_eq!(threads, [ThreadStatus::Completed; 3]);
}

#[test]
fn an_option_of_agent_that_does_not_exist_is_an_error_with_a_suggestion() {
    let code = "const key = 'modle'; const errors = []
        for (const options of [{ [key]: 'm' }, { temperature: 0 }, { effort: 'low', label: 'x' }]) {
            try { errors.push(await agent('a', Object.assign({}, options))) } catch (e) { errors.push(e.code, e.message) }
        }
        return errors";
    let output = output(code);
    assert_eq!(output[0], "INVALID_INPUT");
    assert_eq!(output[1], "agent: there is no option `modle`: did you mean `model`?");
    let all = output[3].as_str().expect("a message");
    assert!(
        all.starts_with("agent: there is no option `temperature`: the options are label, "),
        "{all}"
    );
    assert_eq!(output[4], "re: a");
    let bundle = script("return 1\nawait agent('x', { modle: 'm' })", json!({})).to_string();
    let faults = engine(&Echo::default())
        .workflows(bundle)
        .build()
        .expect_err("is invalid");
    let faults = faults.to_string();
    let expected = "agent: there is no option `modle`: did you mean `model`? (line 2, column 20 of the text)";
    assert!(faults.contains(expected), "{faults}");
}

#[test]
fn a_call_that_the_script_does_not_wait_for_is_reported() {
    let lost = |code: &str| notes(&runs(code, json!({}), Value::Null));
    assert_eq!(
        lost("const answer = agent('a'); return answer.content"),
        ["warn: agent: 1 call was not executed, because the script ended first: `await` is missing"]
    );
    assert_eq!(
        lost("await agent('a'); tool('x'); sleep(5); return 1"),
        ["warn: tool: 2 calls were not executed, because the script ended first: `await` is missing"]
    );
    // The losers of a join are cancelled.
    for code in [
        "return race(50, [() => 1])",
        "return any([() => agent('SLOW 50 a'), () => 1])",
        "return Promise.race([agent('SLOW 50 a'), agent('b')])",
    ] {
        assert_eq!(lost(code), [""; 0], "{code}");
    }
}

#[test]
fn an_agent_with_an_invalid_schema_fails_with_the_reason() {
    for (schema, reason) in [
        ("'text'", "JSON Schema: \"text\""),
        ("{ type: 'strin' }", "did you mean `string`?"),
    ] {
        let code = format!("try {{ await agent('a', {{ schema: {schema} }}) }} catch (e) {{ return e.message }}");
        let message = output(&code);
        let message = message.as_str().expect("a message");
        assert!(message.contains(reason), "{message}");
        assert!(message.contains(": at /nodes/1/config/responseFormat: "), "{message}");
    }
}

#[test]
fn a_question_with_an_invalid_schema_fails_with_the_reason() {
    let code = "const errors = []
        for (const schema of [{ type: 'strin' }, { required: 'a' }]) {
            try { await ask('a?', schema, { timeoutMs: 5 }) } catch (e) { errors.push(e.code, e.message) }
        }
        return errors";
    let ran = runs(code, json!({}), Value::Null);
    let output = &ran.report.output;
    let invalid = "ask: the schema is not a JSON Schema: ";
    assert_eq!(
        (&output[0], &output[2]),
        (&json!("INVALID_INPUT"), &json!("INVALID_INPUT"))
    );
    assert_eq!(
        output[1],
        format!("{invalid}at /type: unknown type `strin`; did you mean `string`?")
    );
    let other = output[3].as_str().expect("a message");
    assert!(other.starts_with(&format!("{invalid}at /required: ")), "{other}");
    let seen = [EventType::InteractionRequested, EventType::InteractionWithdrawn].map(|of| ran.of(of).len());
    assert_eq!(seen, [2, 2], "each announced question ends");
}

#[test]
fn functions_are_expected_where_a_call_could_not_be_cancelled_or_would_be_lost() {
    let error = |code: &str| {
        output(&format!(
            "try {{ await {code} }} catch (e) {{ return [e.code, e.message] }}"
        ))
    };
    for (code, message) in [
        (
            "any([agent('a')])",
            "any: element 0 must be a function: write `() => agent(...)`",
        ),
        (
            "race(9, [() => 1, null])",
            "race: element 1 must be a function: write `() => agent(...)`",
        ),
        (
            "race([() => 1])",
            "race: the milliseconds are missing: write `race(1000, [...])`",
        ),
        (
            "threshold(1, [{}])",
            "threshold: element 0 must be a function: write `() => agent(...)`",
        ),
        (
            "pipeline([1], [x => x])",
            "pipeline: stage 0 must be a function, one argument for each stage",
        ),
        (
            "pipeline(x => x)",
            "pipeline: the first argument must be a list of items",
        ),
    ] {
        assert_eq!(error(code), json!(["INVALID_INPUT", message]), "{code}");
    }
}

#[test]
fn a_script_with_calls_and_without_return_is_reported() {
    let warned = |code: &str| notes(&runs(code, json!({}), Value::Null));
    assert_eq!(
        warned("const text = await agent('a')\ntext"),
        ["warn: the script has no `return`, so that its output is null"]
    );
    for code in [
        "await agent('a'); return",
        "const none = 1",
        "await parallel([() => { return agent('a') }])",
    ] {
        assert_eq!(warned(code), [""; 0], "{code}");
    }
}

#[test]
fn a_failure_in_parallel_or_pipeline_is_null_in_its_position_and_an_event() {
    let code = "const flat = await parallel([() => agent('a'), () => agent('FAIL b'), () => { throw new Error('c') }, async () => 4])
        const piped = await pipeline([1, 2, 3], (x, item, i) => agent(`${x} ${item} ${i}`),
            (text, item) => { if (item === 2) throw new Error('two'); return text + '!' })
        return { flat, piped }";
    let ran = runs(code, json!({}), Value::Null);
    let expected = json!({ "flat": ["re: a", null, null, 4], "piped": ["re: 1 1 0!", null, "re: 3 3 2!"] });
    assert_eq!(ran.report.output, expected);
    let mut notes = notes(&ran);
    notes.sort();
    assert!(
        notes[0].starts_with("error: parallel: function 1 failed: Error: "),
        "{notes:?}"
    );
    assert_eq!(
        notes[1..],
        [
            "error: parallel: function 2 failed: Error: c",
            "error: pipeline: item 1 failed: Error: two"
        ]
    );
}

#[test]
fn any_race_and_threshold_cancel_the_calls_of_the_losers_only() {
    let echo = Echo::default();
    let code = "const first = await any([
            async () => { await agent('FAIL x'); return 'never' },
            async () => { await agent('SLOW 50 a'); return agent('then') },
            async () => { await agent('SLOW 1000 b'); await agent('after b') },
        ])
        const two = await threshold(2, [() => agent('SLOW 20 c'), () => agent('SLOW 90 d'), () => agent('FAIL'), () => agent('SLOW 30 e')])
        const raced = await race(1000, [() => agent('SLOW 5 f'), () => agent('SLOW 900 g')])
        let late = null
        try { await race(10, [() => agent('SLOW 500 h')]) } catch (error) { late = [error.code, error.message] }
        const inner = await any([() => parallel([() => agent('SLOW 9 i'), () => agent('SLOW 8 j')]), () => sleep(99999)])
        return { first, two, raced, late, inner, last: await agent('last') }";
    let ran = run_in(engine(&echo), &script(code, json!({})), Value::Null, Vec::new());
    assert_eq!(ran.report.error, None);
    let late = json!(["NODE_TIMEOUT", "race: no function ended within 10 ms"]);
    let expected = json!({
        "first": "re: then", "two": ["re: SLOW 20 c", null, null, "re: SLOW 30 e"], "raced": "re: SLOW 5 f", "late": late,
        "inner": ["re: SLOW 9 i", "re: SLOW 8 j"], "last": "re: last",
    });
    assert_eq!(ran.report.output, expected);
    assert!(!echo.prompts().iter().any(|prompt| prompt == "after b"));
    let cancelled = ran
        .report
        .threads
        .iter()
        .filter(|thread| thread.status == ThreadStatus::Cancelled);
    assert_eq!(cancelled.count(), 4, "b, d, g and h");
}

#[test]
fn race_and_sleep_take_fractions_of_milliseconds_and_refuse_what_is_no_time() {
    let code = "await sleep(1.5)
        const raced = await race(1500.5, [() => agent('SLOW 5 a')])
        const refused = []
        for (const ms of [NaN, Infinity, -1, 1e20, '20', null])
            try { refused.push(await race(ms, [() => agent('b')])) } catch (error) { refused.push(error.message) }
        return { raced, refused }";
    let ran = run_in(
        engine(&Echo::default()),
        &script(code, json!({})),
        Value::Null,
        Vec::new(),
    );
    assert_eq!(ran.report.error, None);
    assert_eq!(ran.report.output["raced"], json!("re: SLOW 5 a"));
    let refused = json!(["race: expected a number of milliseconds, 0 to 9007199254740991"; 6].to_vec());
    assert_eq!(ran.report.output["refused"], refused);
}

#[test]
fn time_limits_take_fractions_and_refuse_what_is_no_time() {
    let code = "const fine = await agent('a', { timeoutMs: 1000.5, maxToolRounds: 2 })
        const refused = []
        for (const call of [() => agent('b', { timeoutMs: '20' }), () => agent('b', { maxToolRounds: 1.5 }),
            () => ask('c', null, { timeoutMs: -1 }), () => event('d', { timeoutMs: NaN })])
            try { refused.push(await call()) } catch (error) { refused.push(error.code, error.message) }
        return { fine, refused }";
    let output = output(code);
    assert_eq!(output["fine"], "re: a");
    let expected = "expected a number of milliseconds, 0 to 9007199254740991";
    assert_eq!(
        output["refused"],
        json!([
            "INVALID_INPUT",
            format!("agent: `timeoutMs`: {expected}"),
            "INVALID_INPUT",
            "agent: `maxToolRounds`: expected a whole number, 0 to 4294967295",
            "INVALID_INPUT",
            format!("ask: `timeoutMs`: {expected}"),
            "INVALID_INPUT",
            format!("event: `timeoutMs`: {expected}"),
        ])
    );
}

#[test]
fn a_script_calls_workflows_tools_people_timers_and_events() {
    let shout = |arguments: Value| std::future::ready(Ok::<_, String>(json!({ "loud": arguments }).to_string()));
    let code = "const child = await workflow('child', { x: 1 })
        const loud = await tool('shout', { a: 1 })
        let refused = null
        try { await tool('other', {}) } catch (error) { refused = [error.code, error.message] }
        const before = Date.now()
        await sleep(500)
        const [raised] = await Promise.all([event('NODE_COMPLETED'), workflow('waits', {})])
        return { child, loud, refused, raised: raised.type, isSame: before === Date.now(), random: typeof Math.random() }";
    let bundle = json!({ "workflows": [
        script(code, json!({ "tools": ["shout"] })),
        line("child", &[node("v", "VARIABLE", json!({ "variableName": "x", "expression": "input.x + 1" }))]),
        line("waits", &[wait("w", 10)]),
    ] });
    let engine = engine(&Echo::default()).tool(tool_fn("shout", "shouts", json!({ "type": "object" }), shout));
    let ran = run_in(engine, &bundle, Value::Null, Vec::new());
    assert_eq!(ran.report.error, None);
    let refused = json!([
        "INVALID_INPUT",
        "tool: `other` is not in the `tools` of the SCRIPT node"
    ]);
    let expected = json!({
        "child": 2, "loud": { "loud": { "a": 1 } }, "refused": refused, "raised": "NODE_COMPLETED", "isSame": true, "random": "number",
    });
    assert_eq!(ran.report.output, expected);
    assert_eq!(ran.of(EventType::ToolCallCompleted).len(), 1);
    assert!(ran.report.elapsed_ms >= 510, "{}", ran.report.elapsed_ms);
}

#[test]
fn a_join_cancels_a_call_only_if_no_other_function_waits_for_it() {
    let code = "const facts = {}
        const fact = key => facts[key] ??= agent(`SLOW 700 ${key}`)
        const [quick, needed] = await parallel([
          () => any([async () => agent('SLOW 700 ' + await fact('a')), async () => { await sleep(1000); return 'timer' }]),
          async () => { await sleep(100); return agent('SLOW 700 needed ' + await fact('a')) },
        ])
        const lone = any([() => fact('b'), () => sleep(1)])
        const later = async () => { await lone; return fact('b') }
        return { quick, needed, later: await later().catch(error => error.code) }";
    let output = output(code);
    let needed = output["needed"].as_str().unwrap_or_default();
    assert_eq!(
        (&output["quick"], &output["later"]),
        (&json!("timer"), &json!("CANCELLED")),
        "{output}"
    );
    assert!(needed.starts_with("re: SLOW 700 needed re: "), "{output}");
}

#[test]
fn a_function_that_lost_its_join_makes_no_further_call() {
    let code = "const shared = sleep(300)
        const first = await any([async () => { await shared; await agent('late'); log('went on') }, async () => { await sleep(10); return 'fast' }])
        await sleep(800)
        return first";
    let ran = runs(code, json!({}), Value::Null);
    assert_eq!(ran.report.output, "fast");
    assert_eq!((notes(&ran), ran.of(EventType::SubgraphStarted).len()), (vec![], 0));
}

#[test]
fn the_calls_of_a_failed_function_are_cancelled_with_those_of_the_losers() {
    let code = "const first = await any([async () => Promise.all([agent('SLOW 700 a'), agent('FAIL b')]), async () => { await sleep(50); return 'ok' }])
        await sleep(1000)
        return first";
    let ran = runs(code, json!({}), Value::Null);
    assert_eq!(ran.report.output, "ok");
    let statuses = ran.report.threads.iter().map(|thread| thread.status);
    assert_eq!(statuses.filter(|status| *status == ThreadStatus::Cancelled).count(), 1);
}

#[test]
fn a_race_fails_with_whatever_its_first_function_throws() {
    let code = "const ends = []
        for (const thrown of ['', 0, false, null, undefined])
            ends.push(await race(1000, [async () => { throw thrown }]).then(() => 'resolved', () => 'caught'))
        return ends";
    assert_eq!(output(code), json!(["caught"; 5].to_vec()));
}

#[test]
fn a_threshold_that_the_number_of_functions_decides_starts_none_of_them() {
    let code = "const all = () => [() => agent('a'), () => agent('b')]
        return [await threshold(0, all()), await threshold(3, all()).catch(error => error.code)]";
    let ran = runs(code, json!({}), Value::Null);
    assert_eq!(ran.report.output, json!([[null, null], "JOIN_CONDITION_NOT_MET"]));
    assert_eq!(ran.of(EventType::SubgraphStarted).len(), 0);
}

#[test]
fn arguments_that_are_too_deep_or_cyclic_are_an_error_of_the_call() {
    let code =
        "const nested = levels => { let value = 1; for (let i = 0; i < levels; i++) value = [value]; return value }
        const cyclic = []; cyclic.push(cyclic)
        const code = async value => { try { await workflow('child', value); return 'ok' } catch (error) { return error.code } }
        const hidden = { toJSON: () => nested(200) }
        return [await code(nested(80)), await code('['.repeat(200)), await code(nested(200)), await code(cyclic), await code(hidden)]";
    let bundle = json!({ "workflows": [script(code, json!({})), line("child", &[])] });
    let ran = run_in(engine(&Echo::default()), &bundle, Value::Null, Vec::new());
    let limit = "SCRIPT_LIMIT_EXCEEDED";
    assert_eq!(
        ran.report.output,
        json!(["ok", "ok", limit, limit, limit]),
        "{:?}",
        ran.report.error
    );
}

#[test]
fn the_output_of_a_script_has_the_limits_of_a_value_and_errors_name_places_within_it() {
    let nested =
        "const nested = levels => { let value = 1; for (let i = 0; i < levels; i++) value = [value]; return value }; ";
    for levels in [1, 97, 98, 99, 100] {
        let ran = runs(&format!("{nested} return nested({levels})"), json!({}), Value::Null);
        assert_eq!(ran.report.error, None, "{levels}");
        let expected = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(ran.report.output.to_string(), expected);
    }
    let cases = [
        ("return nested(101)".to_owned(), "more than 100 levels at `[0][0]"),
        (
            "return { a: [1, () => 1] }".to_owned(),
            "the result holds a function at `a[1]`",
        ),
        ("return () => 1".to_owned(), "the result is a function"),
        ("return { get a() { throw new Error('no') } }".to_owned(), "no"),
    ];
    for (code, why) in cases {
        let error = runs(&format!("{nested} {code}"), json!({}), Value::Null)
            .report
            .error
            .clone();
        let error = json!(error);
        assert_eq!(error["code"], "SCRIPT_ERROR", "{code}: {error}");
        assert!(
            error["message"].as_str().is_some_and(|text| text.contains(why)),
            "{code}: {error}"
        );
    }
}

#[test]
fn a_call_made_by_the_arguments_of_another_call_keeps_its_own_result() {
    let code = "let inner
        const outer = workflow('child', { get seen() { inner ??= agent('inner'); return 'x' } })
        return [await outer, await inner]";
    let bundle = json!({ "workflows": [script(code, json!({})), line("child", &[])] });
    let ran = run_in(engine(&Echo::default()), &bundle, Value::Null, Vec::new());
    assert_eq!(
        ran.report.output,
        json!([{ "seen": "x" }, "re: inner"]),
        "{:?}",
        ran.report.error
    );
}

#[test]
fn date_as_a_function_returns_the_recorded_time_as_text() {
    let code = "return [typeof Date(), Date(0) === `${new Date()}`]";
    assert_eq!(output(code), json!(["string", true]));
}

#[test]
fn a_value_without_json_is_logged_as_its_string() {
    let code = "const cyclic = []; cyclic.push(cyclic); log(10n, cyclic); log({ toJSON() { throw 1 }, toString() { throw 1 } })";
    let ran = runs(code, json!({}), Value::Null);
    let lines: Vec<String> = notes(&ran).iter().map(ToString::to_string).collect();
    assert!(
        lines[0].contains("10 ") && lines[1].contains("a value without a text"),
        "{lines:?}"
    );
}

#[test]
fn the_losers_of_joins_do_not_count_as_calls() {
    let code = "for (let i = 0; i < 2; i++) await any([() => sleep(1), () => sleep(500)]); await sleep(1); return budget.calls.remaining()";
    let ran = runs(code, json!({ "limits": { "calls": 6 } }), Value::Null);
    assert_eq!((ran.report.error, ran.report.output), (None, json!(1)));
}

#[test]
fn two_waits_of_a_script_take_different_events() {
    let code = "const [a, b] = await parallel([() => event('x'), () => event('x')])
        return [a.data, b.data, await event('x', { timeoutMs: 50 }).catch(error => error.code)]";
    let engine = engine(&Echo::default()).workflows(script(code, json!({})).to_string());
    let engine = engine.build().expect("a valid script");
    let run = engine.start("main", Value::Null).expect("starts");
    for number in [1, 2] {
        run.emit("x", Map::from_iter([("n".to_owned(), json!(number))]));
    }
    let report = run.outcome_blocking();
    assert_eq!(
        report.output,
        json!([{ "n": 1 }, { "n": 2 }, "NODE_TIMEOUT"]),
        "{:?}",
        report.error
    );
}

#[test]
fn an_event_that_is_raised_before_the_script_waits_for_it_is_not_lost() {
    let code = "await event('start'); return (await event('x', { timeoutMs: 50 })).data";
    let engine = engine(&Echo::default()).workflows(script(code, json!({})).to_string());
    let engine = engine.build().expect("a valid script");
    let run = engine.start("main", Value::Null).expect("starts");
    run.emit("x", Map::from_iter([("n".to_owned(), json!(1))]));
    run.emit("start", Map::new());
    assert_eq!(run.outcome_blocking().output, json!({ "n": 1 }));
}

#[test]
fn an_event_whose_wait_loses_a_join_at_the_same_moment_is_available_to_the_next_wait() {
    let code = "const first = await any([() => event('x'), () => sleep(200).then(() => 'timer')])
        return first === 'timer' ? await event('x', { timeoutMs: 3000 }).then(() => 'later', error => error.code) : 'first'";
    let mut script = script(code, json!({}))["nodes"][1].clone();
    script["id"] = json!("script");
    let edges = [
        ["start", "fork"],
        ["fork", "script"],
        ["fork", "pause"],
        ["pause", "emit"],
        ["script", "join"],
        ["emit", "join"],
        ["join", "end"],
    ];
    let edges = edges.map(|[from, to]| json!({ "from": from, "to": to }));
    let flow = json!({ "id": "main", "edges": edges,
        "nodes": [{ "id": "start", "type": "START" }, { "id": "fork", "type": "FORK" }, script, wait("pause", 200),
            { "id": "emit", "type": "CODE", "config": { "function": "emit" } },
            { "id": "join", "type": "JOIN", "config": { "joinStrategy": "ALL_COMPLETED" } },
            { "id": "end", "type": "END", "config": { "output": "nodes.join.outputs.script" } }] });
    let mut ends = BTreeSet::new();
    for seed in 1..=60 {
        let run = Arc::new(OnceLock::<RunHandle>::new());
        let emitting = Arc::clone(&run);
        let emit = move |_: &Input<'_>| {
            emitting.wait().emit("x", Map::new());
            Ok(Value::Null)
        };
        let builder = engine(&Echo::default()).virtual_time(Some(seed)).function("emit", emit);
        let engine = builder.workflows(flow.to_string()).build().expect("a valid workflow");
        let started = engine.start("main", Value::Null).expect("starts");
        let report = run.get_or_init(|| started).clone().outcome_blocking();
        ends.insert(report.output.to_string());
    }
    assert!(
        ends.iter().all(|end| ["\"first\"", "\"later\""].contains(&&**end)),
        "{ends:?}"
    );
}

#[test]
fn an_uncaught_error_has_its_place_in_the_script() {
    let ran = runs(
        "const a = 1\n\n  throw new TypeError('no ' + a)",
        json!({}),
        Value::Null,
    );
    let error = ran.report.error.expect("an error");
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("SCRIPT_ERROR", "TypeError: no 1")
    );
    assert_eq!(
        error.details.as_ref().map(|details| details["line"].clone()),
        Some(json!(3))
    );
    let ran = runs("await new Promise(() => {})", json!({}), Value::Null);
    assert!(ran.report.error.expect("an error").message.contains("never settle"));
}

#[test]
fn the_end_of_a_script_cancels_its_calls() {
    let code = "agent('SLOW 5000 a'); agent('SLOW 6000 b'); await agent('c'); return 1";
    let ran = runs(code, json!({ "limits": { "concurrency": 2 } }), Value::Null);
    assert_eq!(ran.report.output, json!(1));
    let ran2 = runs(
        "await agent('SLOW 9000 a')",
        json!({ "limits": { "timeMs": 100 } }),
        Value::Null,
    );
    let error = ran2.report.error.expect("an error");
    assert_eq!(error.code.as_str(), "NODE_TIMEOUT");
    assert!(
        ran2.report
            .threads
            .iter()
            .any(|thread| thread.status == ThreadStatus::Cancelled)
    );
}

#[test]
fn at_most_concurrency_calls_are_in_progress() {
    let code = "await parallel([1, 2, 3, 4, 5, 6].map(n => () => agent(`SLOW 100 ${n}`))); return Date.now()";
    for (concurrency, ms) in [(1, 600), (2, 300), (6, 100)] {
        let ran = runs(code, json!({ "limits": { "concurrency": concurrency } }), Value::Null);
        assert_eq!(ran.report.elapsed_ms, ms, "{concurrency}");
    }
}

#[test]
fn a_script_of_claude_code_runs_unchanged() {
    let code = "export const meta = {
          name: 'review-changes',
          description: 'Review changed files across dimensions, verify each finding',
          phases: [{ title: 'Review' }, { title: 'Verify', detail: 'one agent per finding' }],
        }
        const DIMENSIONS = [{ key: 'bugs', prompt: 'JSON bugs' }, { key: 'perf', prompt: 'JSON perf' }]
        const FINDINGS = { type: 'object', properties: { of: { type: 'string' } }, required: ['of'] }
        phase('Review')
        const results = await pipeline(
          DIMENSIONS,
          d => agent(d.prompt, { label: `review:${d.key}`, phase: 'Review', schema: FINDINGS, model: 'haiku', effort: 'low' }),
          review => parallel([review].map(f => () =>
            agent(`Adversarially verify: ${f.of} JSON`, { label: 'verify', phase: 'Verify', schema: FINDINGS, isolation: 'worktree' })
              .then(v => ({ ...f, verdict: v }))
          ))
        )
        const confirmed = results.flat().filter(Boolean).filter(f => f.verdict)
        log(`${confirmed.length} confirmed, ${budget.total === null ? 'no target' : budget.remaining()}`)
        return { confirmed }";
    let ran = runs(code, json!({ "models": { "haiku": "other" } }), json!(null));
    assert_eq!(ran.report.error, None);
    assert_eq!(ran.report.output["confirmed"].as_array().map(Vec::len), Some(2));
    assert!(
        notes(&ran).contains(&"info: 2 confirmed, no target".to_owned()),
        "{:?}",
        notes(&ran)
    );
}

#[test]
fn an_input_of_the_node_is_the_arguments_of_the_script() {
    let bundle = line(
        "main",
        &[
            say("s", "x"),
            node(
                "plan",
                "SCRIPT",
                json!({ "code": "return args", "input": { "n": "{{input.n}}" } }),
            ),
        ],
    );
    let ran = run_in(engine(&Echo::default()), &bundle, json!({ "n": 7 }), Vec::new());
    assert_eq!(ran.report.output, json!({ "n": 7 }));
    assert_eq!(output("return args"), json!({ "n": 3 }));
}

#[test]
fn a_script_file_is_a_workflow_with_the_name_and_the_schema_of_its_meta() {
    let text = "export const meta = { name: 'greets', description: 'Says hello',\n  inputSchema: { type: 'object', required: ['who'] } }
return await agent(`hello ${args.who}`)";
    let engine = engine(&Echo::default())
        .file("flows/plan.js", text)
        .build()
        .expect("builds");
    let run = engine
        .run("greets")
        .input(json!({ "who": "you" }))
        .start()
        .expect("starts");
    assert_eq!(run.outcome_blocking().output, json!("re: hello you"));
    let refused = engine.run("greets").input(json!({})).start().expect_err("no name");
    assert!(refused.to_string().contains("who"), "{refused}");
    let unnamed = super::engine(&Echo::default())
        .file("flows/plan.js", "return 1")
        .build()
        .expect("builds");
    assert_eq!(
        unnamed.run("plan").start().expect("starts").outcome_blocking().output,
        json!(1)
    );
}

#[test]
fn a_script_node_reads_its_code_from_a_file_next_to_the_workflow_file() {
    let folder = std::env::temp_dir().join(format!("pirn-script-files-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("plans")).expect("a folder");
    let built = |config: Value| {
        let mut bundle = script("", config);
        bundle["nodes"][1]["config"]
            .as_object_mut()
            .unwrap()
            .retain(|_, value| *value != "");
        std::fs::write(folder.join("main.json"), bundle.to_string()).expect("a file");
        engine(&Echo::default()).path(folder.join("main.json")).build()
    };
    let write = |name: &str, text: &str| std::fs::write(folder.join("plans").join(name), text).expect("a file");
    write(
        "plan.js",
        "export const meta = { name: 'plan' }\nreturn await agent('from a file')",
    );
    write("wrong.js", "const a = 1\nreturn agnet(a)");
    write("large.js", &" ".repeat((1 << 20) + 1));
    let whole = built(json!({ "file": "plans/plan.js" })).expect("builds");
    let run = whole.run("main").start().expect("starts");
    assert_eq!(run.outcome_blocking().output, json!("re: from a file"));
    let cases = [
        (
            json!({ "file": "plans/none.js" }),
            "/nodes/1/config/file",
            "cannot read",
        ),
        (
            json!({ "file": "plans/large.js" }),
            "/nodes/1/config/file",
            "more than 1048576",
        ),
        (
            json!({ "file": "plans/plan.js", "code": "return 1" }),
            "/nodes/1/config/file",
            "not both",
        ),
        (json!({ "file": "plans/wrong.js" }), "/nodes/1/config/file", "agnet"),
        (json!({}), "/nodes/1/config", "`code` or `file`"),
    ];
    for (config, pointer, why) in cases {
        let Err(pirn::BuildError::Workflows(faults)) = built(config.clone()) else {
            panic!("{config}: no fault");
        };
        assert_eq!((faults.len(), &*faults[0].pointer), (1, pointer), "{faults:?}");
        assert!(faults[0].message.contains(why), "{faults:?}");
        let in_code = why == "agnet";
        assert_eq!(faults[0].message.contains("(line 2, column 8)"), in_code, "{faults:?}");
    }
    let text = script("", json!({ "file": "plan.js" }))
        .to_string()
        .replace("\"code\":\"\",", "");
    let error = engine(&Echo::default())
        .workflows(text)
        .build()
        .map(drop)
        .expect_err("is not on disk");
    assert!(error.to_string().contains("load the file by its path"), "{error}");
    std::fs::remove_dir_all(folder).expect("is removed");
}

#[test]
fn the_faults_of_a_script_file_have_their_positions_in_the_file() {
    for (text, line, column, word) in [
        ("const a = 1\nreturn agnet('x')", 2, 8, "agnet"),
        ("const a = 1\n\nreturn (a", 3, 10, "ends too early"),
        (
            "// plan\nexport const meta = { name: name() }\nreturn 1",
            2,
            29,
            "literal",
        ),
        ("import fs from 'fs'\nreturn 1", 1, 0, ""),
        (
            "export const meta = { limits: { agents: 'many' } }\nreturn 1",
            1,
            1,
            "agents",
        ),
    ] {
        let Err(error) = engine(&Echo::default()).file("plan.js", text).build() else {
            panic!("{text}: no fault");
        };
        let pirn::BuildError::Workflows(faults) = error else {
            panic!("{text}: {error}");
        };
        let (fault, position) = (&faults[0], faults[0].position.expect("a position"));
        assert_eq!(fault.file.as_deref(), Some("plan.js"), "{text}");
        assert!(fault.message.contains(word), "{text}: {}", fault.message);
        assert_eq!(position.line, line, "{text}: {}", fault.message);
        assert!(
            column == 0 || position.column == column,
            "{text}: {position:?} {}",
            fault.message
        );
    }
}

#[test]
fn a_script_reads_the_tokens_that_its_budget_leaves() {
    let code = "const seen = [budget.spent()]
        while (budget.remaining() >= 200) {
            const replies = await parallel([1, 2].map(n => () => agent('a' + n)))
            if (replies.includes(null)) throw new Error('a call was refused')
            await sleep(1)
            seen.push(budget.spent())
        }
        return { total: budget.total, seen, left: budget.remaining() }";
    let mut bundle = script(code, json!({ "profileId": "cheap" }));
    bundle["config"] = json!({ "budget": { "tokens": 400 } });
    let cheap = json!({ "id": "cheap", "provider": "scripted", "responses": [{ "content": "yes" }] });
    let bundle = json!({ "workflows": [bundle], "profiles": [cheap] });
    let ran = run_in(engine(&Echo::default()), &bundle, Value::Null, Vec::new());
    assert_eq!(ran.report.error, None);
    let output_of = |field: &str| ran.report.output[field].clone();
    let seen: Vec<u64> = serde_json::from_value(output_of("seen")).expect("numbers");
    assert_eq!((output_of("total"), seen[0]), (json!(400), 0));
    assert!(seen.len() > 2 && seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    let spent = ran.report.tokens.spent.total;
    assert_eq!((seen.last(), output_of("left")), (Some(&spent), json!(400 - spent)));
    assert_eq!(
        output("return [budget.total, budget.spent(), budget.remaining() === Infinity]"),
        json!([null, 0, true])
    );
}

#[test]
fn exploration_finds_each_function_that_can_be_first() {
    let code = "return await any([1, 2].map(n => async () => { await agent('x'); return n }))";
    let bundle = script(code, json!({}));
    let explored = explore(Engine::builder().workflows(bundle.to_string()))
        .run()
        .expect("is explored");
    let outputs: Vec<Value> = explored.outcomes.iter().map(|outcome| outcome.output.clone()).collect();
    assert!(explored.complete, "{explored}");
    assert_eq!(outputs, [json!(1), json!(2)], "{explored}");
}
