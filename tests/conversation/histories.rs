//! A history that is prepared once, and the runs that start from it.

use std::sync::Arc;

use pirn::{Engine, History, Message, Role, RunReport, ThreadStatus, Tokenizer};
use pirn_tests::world::{line, node};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A tokenizer with a fixed cost per character.
struct Each(&'static str, u64);

impl Tokenizer for Each {
    fn name(&self) -> &str {
        self.0
    }

    fn count(&self, text: &str) -> u64 {
        self.1 * text.chars().count() as u64
    }
}

/// A workflow with one node per message that appends it.
fn adding(id: &str, texts: &[String], config: &Value) -> Value {
    let adds = texts.iter().enumerate().map(|(n, text)| {
        let messages = json!([{"role": "user", "content": text}]);
        node(
            &format!("add{n}"),
            "CONTEXT_PROCESSOR",
            json!({"operation": "insert", "messages": messages}),
        )
    });
    let mut workflow = line(id, &adds.collect::<Vec<_>>());
    workflow["config"] = config.clone();
    workflow
}

fn user_messages(texts: &[String]) -> Vec<Message> {
    texts
        .iter()
        .map(|text| Message::new(Role::User, text.as_str()))
        .collect()
}

/// The messages of the conversation at the end of the run.
fn contents(report: &RunReport) -> Vec<String> {
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    let messages = report.conversation.messages.iter();
    messages.map(|message| message.content.clone()).collect()
}

fn texts(at_most: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-z ]{0,9}", 0..at_most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn runs_that_start_from_one_history_are_isolated(
        base in texts(150),
        adds in prop::collection::vec(texts(4), 1..6),
        is_local in any::<bool>(),
    ) {
        let mut builder = Engine::builder().arbiters(2);
        if is_local {
            builder = Engine::builder().local();
        }
        for (n, adds) in adds.iter().enumerate() {
            builder = builder.workflows(adding(&format!("run{n}"), adds, &json!({})).to_string());
        }
        on_a_local_thread(async move {
            let engine = builder.build().expect("valid");
            let history = engine.history("run0", user_messages(&base));
            let runs: Vec<_> = (0..adds.len())
                .map(|n| engine.run(format!("run{n}")).conversation(history.clone()).start().expect("admitted"))
                .collect();
            for (run, adds) in runs.into_iter().zip(&adds) {
                let report = run.outcome().await;
                let alone: Vec<String> = base.iter().chain(adds).cloned().collect();
                assert_eq!(contents(&report), alone);
            }
            // The shared history is unchanged for the next run.
            assert_eq!(history.len(), base.len());
            for n in 0..adds.len() {
                let id = format!("run{n}");
                let (ready, plain) = (engine.run(&id).conversation(history.clone()), engine.run(&id).conversation(user_messages(&base)));
                let ready = ready.start().expect("admitted").outcome().await;
                let plain = plain.start().expect("admitted").outcome().await;
                assert_eq!(contents(&ready), contents(&plain));
                assert_eq!(ready.tokens, plain.tokens);
            }
        });
    }
}

fn on_a_local_thread(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work);
}

/// An engine with a workflow `count`, which uses a tokenizer `mine` with `a_character` tokens per character.
fn counting(a_character: u64) -> Engine {
    Engine::builder()
        .tokenizer("mine", Arc::new(Each("mine", a_character)))
        .workflows(adding("count", &["mine".to_owned()], &json!({"tokenizer": "mine"})).to_string())
        .workflows(adding("estimate", &[], &json!({})).to_string())
        .build()
        .expect("valid")
}

fn context(engine: &Engine, id: &str, history: impl Into<History>) -> u64 {
    let run = engine.run(id).conversation(history).start().expect("admitted");
    run.outcome_blocking().tokens.context
}

#[test]
fn tokens_of_a_history_are_counted_by_the_engine_of_the_run() {
    let (dear, cheap) = (counting(100), counting(1));
    let base = ["one".to_owned(), "seven77".to_owned()];
    // Each message costs four more tokens; the run adds one of four characters.
    let (costs_dear, costs_cheap) = (3 * 4 + 1_400, 3 * 4 + 14);
    let of_dear = dear.history("count", user_messages(&base));
    let of_estimate = dear.history("estimate", user_messages(&base));
    let of_nobody = dear.history("no such workflow", user_messages(&base));
    for history in [
        &of_dear,
        &of_estimate,
        &of_nobody,
        &cheap.history("count", of_dear.clone()),
    ] {
        assert_eq!(context(&dear, "count", history.clone()), costs_dear, "{history:?}");
        assert_eq!(context(&cheap, "count", history.clone()), costs_cheap, "{history:?}");
        let plain = context(&dear, "estimate", user_messages(&base));
        assert_eq!(context(&dear, "estimate", history.clone()), plain, "{history:?}");
    }
}

#[test]
fn a_history_is_shared_by_threads_and_outlives_its_engine() {
    let base = ["shared".to_owned()];
    let history = counting(1).history("count", user_messages(&base));
    let engine = counting(1);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            let (history, engine) = (history.clone(), engine.clone());
            threads.spawn(move || assert_eq!(context(&engine, "count", history), 2 * 4 + 10));
        }
    });
    drop(engine);
    assert_eq!(history.len(), 1);
}
