//! Deferred tools: `tool_search` reveals them, and the requests of a conversation list them in the order of their revelation.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use pirn::store::MemoryStore;
use pirn::tools::tool_fn;
use pirn::{Engine, Message, Model, ModelCall, ModelReply, Role, RunError, RunReport, ToolCall, ToolSpec};
use pirn_tests::world::{line, node};
use proptest::prelude::*;
use serde_json::{Value, json};

const RUN: &str = "run-1";

/// Deferred tools. No word occurs in two names or descriptions, so that each word of a query finds one tool.
const WORDS: [&str; 6] = ["alpha", "beta", "delta", "gamma", "kappa", "omega"];

/// One reply with calls.
#[derive(Clone, Debug)]
enum Plan {
    /// Searches for these words.
    Search(Vec<usize>),
    /// Calls this tool.
    Call(usize),
}

/// Calls the tools of its plan, one in each reply. Decides by the results in the request, so that it continues equally after a fork.
struct Planned {
    plan: Vec<Plan>,
    requests: Mutex<Vec<Vec<ToolSpec>>>,
}

impl Model for Planned {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        self.requests.lock().expect("a lock").push(call.tools);
        let replies = call
            .request
            .messages
            .iter()
            .filter(|message| message.role == Role::Assistant);
        let at = replies.count();
        let tool_call = self.plan.get(at).map(|plan| {
            let (name, arguments) = match plan {
                Plan::Search(words) => {
                    let words: Vec<&str> = words.iter().map(|word| WORDS[*word]).collect();
                    ("tool_search".to_owned(), json!({"query": words.join(" ")}))
                }
                Plan::Call(word) => (format!("{}_tool", WORDS[*word]), json!({})),
            };
            ToolCall {
                id: format!("c{at}"),
                name,
                arguments,
            }
        });
        let reply = ModelReply {
            content: "done".to_owned(),
            tool_calls: tool_call.into_iter().collect(),
            ..ModelReply::default()
        };
        std::future::ready(Ok(reply)).boxed()
    }
}

fn tools() -> Value {
    let deferred = WORDS.map(|word| json!({"name": format!("{word}_tool"), "deferred": true}));
    let all: Vec<Value> = [json!("plain")].into_iter().chain(deferred).collect();
    json!(all)
}

fn ask(id: &str) -> Value {
    node(
        id,
        "LLM",
        json!({"profileId": "planned", "prompt": "go", "tools": tools(), "maxToolRounds": 100}),
    )
}

fn engine(model: &Arc<Planned>, store: MemoryStore, workflow: &Value) -> Engine {
    let mut builder = Engine::builder()
        .virtual_time(None)
        .store(store)
        .workflows(workflow.to_string())
        .model("planned", Arc::clone(model) as Arc<dyn Model>)
        .profiles([serde_json::from_value(json!({"id": "planned", "provider": "planned"})).expect("a profile")]);
    for name in WORDS
        .iter()
        .map(|word| format!("{word}_tool"))
        .chain(["plain".to_owned()])
    {
        let result = format!("result of {name}");
        builder = builder.tool(tool_fn(
            &name,
            format!("Does {name}"),
            json!({"type": "object"}),
            move |_: Value| std::future::ready(Ok::<_, String>(result.clone())),
        ));
    }
    builder.build().expect("an engine")
}

fn planned(plan: Vec<Plan>) -> Arc<Planned> {
    let requests = Mutex::default();
    Arc::new(Planned { plan, requests })
}

fn requests(model: &Planned) -> Vec<Vec<ToolSpec>> {
    std::mem::take(&mut *model.requests.lock().expect("a lock"))
}

fn run(engine: &Engine) -> Arc<RunReport> {
    let run = engine.run("main").run_id(RUN).start().expect("starts");
    let report = run.outcome_blocking();
    run.wait_all_ended_blocking();
    report
}

fn names(specs: &[ToolSpec]) -> Vec<&str> {
    specs.iter().map(|spec| &*spec.name).collect()
}

/// The revealed tools after each reply of the plan, and the text that the model receives for it.
fn oracle(plan: &[Plan]) -> Vec<(Vec<String>, String)> {
    let mut revealed: Vec<usize> = Vec::new();
    let tool = |word: &usize| format!("{}_tool", WORDS[*word]);
    let mut all = Vec::new();
    for reply in plan {
        let text = match reply {
            Plan::Search(words) => {
                let mut found = words.clone();
                found.sort_unstable();
                found.dedup();
                found.truncate(5);
                revealed.extend(
                    found
                        .iter()
                        .filter(|word| !revealed.contains(word))
                        .copied()
                        .collect::<Vec<_>>(),
                );
                "can be called from now on".to_owned()
            }
            Plan::Call(word) if revealed.contains(word) => format!("result of {}", tool(word)),
            Plan::Call(_) => "reveal it with `tool_search`".to_owned(),
        };
        all.push((revealed.iter().map(tool).collect(), text));
    }
    all
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let word = || 0..WORDS.len();
    let search = prop::collection::vec(word(), 1..7).prop_map(Plan::Search);
    prop::collection::vec(prop_oneof![search, word().prop_map(Plan::Call)], 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_tools_of_each_request_start_with_those_of_the_request_before(plan in plans()) {
        let model = planned(plan.clone());
        let engine = engine(&model, MemoryStore::new(), &line("main", &[ask("a")]));
        let report = run(&engine);
        let requests = requests(&model);
        prop_assert_eq!(requests.len(), plan.len() + 1);
        prop_assert_eq!(names(&requests[0]), ["plain", "tool_search"]);
        let listed: Vec<&str> = requests[0][1].description.lines().filter_map(|line| line.strip_prefix("- ")).collect();
        let all: Vec<String> = WORDS.iter().map(|word| format!("{word}_tool")).collect();
        prop_assert_eq!(listed, all, "the names only");
        let results = report.conversation.messages.iter().filter(|message| message.role == Role::Tool);
        let results: Vec<&Message> = results.map(|message| &**message).collect();
        for (at, (revealed, text)) in oracle(&plan).into_iter().enumerate() {
            // Equal specifications in equal order are equal bytes in the request.
            let (before, after) = (&requests[at], &requests[at + 1]);
            prop_assert_eq!(&after[..before.len()], &before[..]);
            prop_assert_eq!(&names(after)[2..], &revealed[..]);
            prop_assert!(results[at].content.as_str().contains(&text), "{}: {:?}", text, results[at].content);
        }
    }
}

#[test]
fn revealed_tools_survive_compression_recovery_forks_and_the_session() {
    let plan = vec![Plan::Search(vec![3]), Plan::Search(vec![0]), Plan::Call(3)];
    let compress = json!({"operation": "compress", "strategy": "keep_recent", "parameters": {"count": 1}});
    let workflow = line(
        "main",
        &[ask("a"), node("compress", "CONTEXT_PROCESSOR", compress), ask("b")],
    );
    let (model, store) = (planned(plan), MemoryStore::new());
    let first = engine(&model, store.clone(), &workflow);
    let run = |engine: &Engine, id: &str| {
        let run = engine
            .run("main")
            .run_id(id.to_owned())
            .session("s")
            .start()
            .expect("starts");
        let report = run.outcome_blocking();
        run.wait_all_ended_blocking();
        report
    };
    run(&first, RUN);
    let seen = requests(&model);
    let expected = ["plain", "tool_search", "gamma_tool", "alpha_tool"];
    assert_eq!(
        names(seen.last().expect("a request")),
        expected,
        "after the compression"
    );
    let steps = block_on(first.view(RUN, None)).expect("is read").step;
    drop(first);

    // Each fork is rebuilt from the journal by another engine, and continues.
    let second = engine(&model, store.clone(), &workflow);
    for step in 0..=steps {
        let fork = block_on(second.fork(RUN, step).make(format!("fork-{step}"))).expect("forks");
        let fork = block_on(fork.start()).expect("continues");
        fork.outcome_blocking();
        fork.wait_all_ended_blocking();
        let view = block_on(second.view(&format!("fork-{step}"), None)).expect("is read");
        let last = view.requests.last().expect("a request");
        let shown = block_on(second.model_request(&format!("fork-{step}"), &last.effect_id)).expect("is read");
        let names: Vec<&str> = shown
            .request
            .tools
            .iter()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        assert_eq!(names, expected, "forked at step {step}");
    }
    requests(&model);
    run(&second, "run-2");
    let next = requests(&model);
    assert_eq!(names(&next[0]), expected, "the first request of the session's next run");
}
