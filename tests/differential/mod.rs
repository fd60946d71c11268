//! Equivalent workflows on Pirn and on LangGraph, with one scripted model, must end in the state that `cases.json` defines.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::executor::block_on;
use pirn::store::MemoryStore;
use pirn::workflow::{
    Ask, Assign, Code, ConversationMode, Join, JoinWhen, Llm, Loop, MapItems, MergeVariables, ReducerWord, RetryPolicy,
    Subgraph, workflow,
};
use pirn::{Engine, EngineBuilder, EventType, Profile, RunReport, SubscriptionItem, WorkflowDefinition};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    name: String,
    input: Value,
    #[serde(default)]
    responses: Vec<Value>,
    /// Answers by node, in order.
    #[serde(default)]
    answers: Vec<(String, Value)>,
    output: Value,
    #[serde(default)]
    messages: Vec<(String, String)>,
}

impl Case {
    fn end(&self) -> Value {
        json!({ "output": self.output, "messages": self.messages })
    }
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("cases.json")).expect("cases")
}

#[test]
fn every_workflow_ends_on_pirn_as_the_cases_define() {
    for case in cases() {
        assert_eq!(played(&case), case.end(), "{}", case.name);
    }
}

#[test]
fn every_workflow_ends_on_langgraph_as_the_cases_define() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("differential");
    let into = here.join("../../target/langgraph");
    if !into.join(".installed").is_file() {
        println!("skipped: LangGraph is not installed (tests/differential/setup)");
        return;
    }
    let played = Command::new(into.join("bin/python"))
        .arg(here.join("langgraph_cases.py"))
        .env("LANGSMITH_TRACING", "false")
        .output()
        .expect("python starts");
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
    let ends: BTreeMap<String, Value> = serde_json::from_slice(&played.stdout).expect("JSON");
    for case in cases() {
        assert_eq!(ends[&case.name], case.end(), "{}", case.name);
    }
}

/// The final state of a case on Pirn.
fn played(case: &Case) -> Value {
    let profile: Profile = serde_json::from_value(json!({
        "id": "model", "provider": "scripted", "responses": case.responses
    }))
    .expect("a profile");
    let calls = AtomicU32::new(0);
    let builder = Engine::builder().profiles([profile]).function("flaky", move |_| {
        if calls.fetch_add(1, Ordering::SeqCst) < 2 {
            return Err("not yet".to_owned());
        }
        Ok(json!("third time"))
    });
    let builder = written(&case.name).iter().fold(builder, EngineBuilder::workflow);
    if case.name == "time-travel" {
        return outputs_of_run_and_fork(case, builder);
    }
    let engine = builder.build().expect("valid");
    let mut prepared = engine.run(&case.name).input(&case.input);
    let asked = prepared.blocking_events(&[EventType::InteractionRequested], 10);
    let run = prepared.start().expect("admitted");
    let mut ids = BTreeMap::new();
    for heard in asked.take(case.answers.len()) {
        let SubscriptionItem::Event(event) = heard else {
            panic!("more questions than the buffer holds")
        };
        let event = event.to_json();
        ids.insert(
            event["nodeId"].as_str().unwrap_or_default().to_owned(),
            event["interactionId"].as_str().unwrap_or_default().to_owned(),
        );
    }
    for (node, answer) in &case.answers {
        block_on(run.answer(&ids[node], answer.clone())).expect("it is open");
    }
    let report = run.outcome_blocking();
    let output = output(&report);
    let messages: Vec<(&str, &str)> = report
        .conversation
        .messages
        .iter()
        .map(|message| (message.role.as_str(), message.content.as_str()))
        .collect();
    json!({ "output": output, "messages": messages })
}

fn output(report: &RunReport) -> Value {
    report
        .output_as()
        .unwrap_or_else(|error| panic!("{}: {error}", report.workflow_id))
}

/// The outputs of a run, and of a fork of it from its wait for the model with another `n`.
fn outputs_of_run_and_fork(case: &Case, builder: EngineBuilder) -> Value {
    let engine = builder.store(MemoryStore::new()).build().expect("valid");
    let run = engine.run(&case.name).run_id("first").input(&case.input);
    let first = run.start().expect("admitted").outcome_blocking();
    let fork = engine.fork("first", 0).set("n", json!(10));
    let again = block_on(async { fork.make("again").await?.start().await }).expect("it goes on from there");
    let ends = [output(&first), output(&again.outcome_blocking())];
    json!({ "output": ends, "messages": [] })
}

/// The workflows of a case, its main one first.
fn written(name: &str) -> Vec<WorkflowDefinition> {
    let asks = |prompt: &str| Llm::prompt(prompt).profile_id("model");
    match name {
        "chain" => vec![workflow(name, "start", |flow, start| {
            let a = flow.then(start, "a", Code::js("return input.n + 1"));
            let b = flow.then(a, "b", Code::js("return output * 2"));
            let c = flow.then(b, "c", Code::js("return output - 3"));
            let end = flow.end("end");
            flow.edge(c, end);
        })],
        "talk" => vec![workflow(name, "start", |flow, start| {
            let hello = flow.then(start, "hello", asks("Greet {{input}}."));
            let bye = flow.then(hello, "bye", asks("Say goodbye."));
            let end = flow.end_with("end", "output.content");
            flow.edge(bye, end);
        })],
        "route" | "route-default" => vec![workflow(name, "start", |flow, start| {
            let which = flow.route("which");
            flow.edge(start, which);
            let sorry = flow.end_with("sorry", "'sorry'");
            let thanks = flow.end_with("thanks", "'thanks'");
            flow.when(which, "input.mood == 'angry'", sorry);
            flow.otherwise(which, thanks);
        })],
        "route-model" => vec![workflow(name, "start", |flow, start| {
            let mood = flow.then(start, "mood", asks("Happy or angry: {{input}}"));
            let which = flow.route("which");
            flow.edge(mood, which);
            let sorry = flow.node("sorry", asks("Apologize."));
            let thanks = flow.node("thanks", asks("Thank them."));
            flow.when(which, "output.content == 'angry'", sorry);
            flow.otherwise(which, thanks);
            let end = flow.end_with("end", "output.content");
            flow.edge(sorry, end);
            flow.edge(thanks, end);
        })],
        "fork" => vec![workflow(name, "start", |flow, start| {
            let mut fork = flow.fork("fork");
            flow.edge(start, &fork);
            let more = flow.node("more", Code::js("return input.n + 1"));
            let twice = flow.node("twice", Code::js("return input.n * 2"));
            flow.path(&mut fork, "more", more);
            flow.path(&mut fork, "twice", twice);
            let join = flow.join("join", fork, JoinWhen::AllCompleted);
            flow.edge(more, join);
            flow.edge(twice, join);
            let end = flow.end_with("end", "output.outputs");
            flow.edge(join, end);
        })],
        "fork-models" => vec![workflow(name, "start", |flow, start| {
            let mut fork = flow.fork("fork");
            flow.edge(start, &fork);
            let words = [("what", "What is"), ("why", "Why"), ("where", "Where is")];
            let paths = words.map(|(id, word)| {
                let node = flow.node(id, asks(&format!("{word} {{{{input}}}}?")));
                flow.path(&mut fork, id, node);
                node
            });
            let join = flow.join("join", fork, JoinWhen::AllCompleted);
            for path in paths {
                flow.edge(path, join);
            }
            let output = "['what', 'why', 'where'].map(id => output.outputs[id].content)";
            let end = flow.end_with("end", output);
            flow.edge(join, end);
        })],
        "nested" => vec![workflow(name, "start", |flow, start| {
            let mut fork = flow.fork("fork");
            flow.edge(start, &fork);
            let outer = flow.node("outer", Code::js("return input.n * 5"));
            flow.path(&mut fork, "outer", outer);
            let mut inside = flow.fork("inside");
            flow.path(&mut fork, "inner", &inside);
            let one = flow.node("one", Code::js("return input.n + 1"));
            let two = flow.node("two", Code::js("return input.n"));
            flow.path(&mut inside, "one", one);
            flow.path(&mut inside, "two", two);
            let inner = flow.join("inner", inside, JoinWhen::AllCompleted);
            flow.edge(one, inner);
            flow.edge(two, inner);
            let sum = flow.then(inner, "sum", Code::js("return output.outputs.one + output.outputs.two"));
            let join = flow.join("join", fork, JoinWhen::AllCompleted);
            flow.edge(outer, join);
            flow.edge(sum, join);
            let end = flow.end_with("end", "output.outputs.outer + output.outputs.inner");
            flow.edge(join, end);
        })],
        "map" | "map-empty" | "map-models" => vec![
            workflow(name, "start", |flow, start| {
                let each = if name == "map-models" { "asks" } else { "squares" };
                let map = flow.then(start, "map", MapItems::of("input", each));
                let end = flow.end_with("end", "output.results");
                flow.edge(map, end);
            }),
            workflow("squares", "start", |flow, start| {
                let end = flow.end_with("end", "input * input");
                flow.edge(start, end);
            }),
            workflow("asks", "start", |flow, start| {
                let ask = flow.then(start, "ask", asks("Which way does the {{input}} run?"));
                let end = flow.end_with("end", "output.content");
                flow.edge(ask, end);
            }),
        ],
        "count" => vec![workflow(name, "start", |flow, start| {
            flow.variable("n", 0);
            let more = flow.then(start, "more", Assign::to("n", "n + 1"));
            let which = flow.route("which");
            flow.edge(more, which);
            let end = flow.end_with("end", "n");
            flow.when(which, "n < input.limit", more);
            flow.otherwise(which, end);
        })],
        "sum" => vec![workflow(name, "start", |flow, start| {
            flow.variable("n", 0);
            let each = flow.loop_start("each", Loop::over_as("items", "input", "item"));
            flow.edge(start, &each);
            let add = flow.then(&each, "add", Assign::to("n", "n + item"));
            let next = flow.loop_end("next", each);
            flow.edge(add, next);
            let end = flow.end_with("end", "n");
            flow.edge(next, end);
        })],
        "refine" => vec![workflow(name, "start", |flow, start| {
            for (variable, value) in [("draft", json!("")), ("verdict", json!("")), ("rounds", json!(0))] {
                flow.variable(variable, value);
            }
            let again = flow.loop_start("again", Loop::counting("drafts"));
            flow.edge(start, &again);
            let write = "{{#if loop.first}}Write a notice: {{input}}{{else}}Again: {{verdict}}{{/if}}";
            let write = flow.then(&again, "write", asks(write));
            let keep = flow.then(write, "keep", Assign::to("draft", "output.content"));
            let round = flow.then(keep, "round", Assign::to("rounds", "loop.index + 1"));
            let judge = flow.then(round, "judge", asks("Judge: {{draft}}"));
            let say = flow.then(judge, "say", Assign::to("verdict", "output.content"));
            let content = flow.loop_until("content", again, "verdict == 'OK'");
            flow.edge(say, content);
            let end = flow.end_with("end", "({ draft, rounds })");
            flow.edge(content, end);
        })],
        "subgraph" => vec![
            workflow(name, "start", |flow, start| {
                let double = flow.then(start, "double", Subgraph::of("doubles").input("input"));
                let end = flow.end_with("end", "output + 1");
                flow.edge(double, end);
            }),
            workflow("doubles", "start", |flow, start| {
                let end = flow.end_with("end", "input.n * 2");
                flow.edge(start, end);
            }),
        ],
        "subgraph-models" => vec![
            workflow(name, "start", |flow, start| {
                let explains = Subgraph::of("explains").conversation(ConversationMode::None);
                let explain = flow.then(start, "explain", explains);
                let shorten = flow.then(explain, "shorten", asks("Shorten: {{output}}"));
                let end = flow.end_with("end", "output.content");
                flow.edge(shorten, end);
            }),
            workflow("explains", "start", |flow, start| {
                let ask = flow.then(start, "ask", asks("Explain {{input}}."));
                let end = flow.end_with("end", "output.content");
                flow.edge(ask, end);
            }),
        ],
        "interrupt" => vec![workflow(name, "start", |flow, start| {
            let approve = flow.ask("approve", Ask::question("Pay {{input.amount}}?"));
            flow.edge(start, approve);
            let end = flow.end_with("end", "({ amount: input.amount, answer: output.answer })");
            flow.edge(approve, end);
        })],
        "two-people" => vec![workflow(name, "start", |flow, start| {
            let mut fork = flow.fork("fork");
            flow.edge(start, &fork);
            let finance = flow.ask("finance", Ask::question("Pay?"));
            let legal = flow.ask("legal", Ask::question("Sign?"));
            flow.path(&mut fork, "finance", finance);
            flow.path(&mut fork, "legal", legal);
            let join = flow.join("join", fork, JoinWhen::AllCompleted);
            flow.edge(finance, join);
            flow.edge(legal, join);
            let output = "({ finance: output.outputs.finance.answer, legal: output.outputs.legal.answer })";
            let end = flow.end_with("end", output);
            flow.edge(join, end);
        })],
        "append" => vec![reduced(name, json!([]), ReducerWord::Append)],
        "total" => vec![reduced(name, json!(0), ReducerWord::Sum)],
        "retry" => vec![workflow(name, "start", |flow, start| {
            let flaky = flow.then(start, "flaky", Code::function("flaky"));
            let policy = RetryPolicy {
                initial_delay_ms: 1,
                ..RetryPolicy::attempts(3)
            };
            flow.at(flaky).retry(policy);
            let end = flow.end("end");
            flow.edge(flaky, end);
        })],
        "time-travel" => vec![workflow(name, "start", |flow, start| {
            flow.variable("n", 0);
            let a = flow.then(start, "a", Assign::to("n", "input.n"));
            let ask = flow.then(a, "ask", asks("Go on."));
            let b = flow.then(ask, "b", Assign::to("m", "n + 1"));
            let end = flow.end_with("end", "({ n, m })");
            flow.edge(b, end);
        })],
        other => panic!("no workflow for the case {other}"),
    }
}

/// Two paths that assign one variable, which combines both values.
fn reduced(name: &str, begin: Value, reducer: ReducerWord) -> WorkflowDefinition {
    workflow(name, "start", |flow, start| {
        flow.variable("all", begin).reduce = Some(reducer.into());
        let mut fork = flow.fork("fork");
        flow.edge(start, &fork);
        let first = flow.node("first", Assign::to("all", "input[0]"));
        let second = flow.node("second", Assign::to("all", "input[1]"));
        flow.path(&mut fork, "first", first);
        flow.path(&mut fork, "second", second);
        let all = Join::when(JoinWhen::AllCompleted).merge_variables(MergeVariables::All);
        let join = flow.join("join", fork, all.timeout(Duration::from_secs(10)));
        flow.edge(first, join);
        flow.edge(second, join);
        let end = flow.end_with("end", "all");
        flow.edge(join, end);
    })
}
