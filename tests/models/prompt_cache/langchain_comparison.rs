//! One conversation by Pirn and by a LangChain agent with its summarization middleware, against a provider that counts: the tokens
//! that each sends, and the share of them that a cache of the longest common prefix serves.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{Compression, EventType, ThreadStatus, Tool, ToolSpec};
use pirn_tests::wire::{Answer, Request, Server};
use pirn_tests::world::{line, node, run_in};
use serde_json::{Value, json};

use super::counted_cache::{Log, read};
use crate::models::{Weather, aimock, engine, profile};

/// Questions of the conversation.
const QUESTIONS: usize = 80;

/// Token count at which each side compresses, by that side's counter.
const LIMIT: u64 = 6_000;

/// Messages that a summary retains.
const KEEP: u32 = 4;

/// A text of `count` words.
fn words(seed: usize, count: usize) -> String {
    let words: Vec<String> = (0..count)
        .map(|at| format!("word{}", (seed + 3) * (at + 7) % 997))
        .collect();
    words.join(" ")
}

fn question(no: usize) -> String {
    format!("Question {no}: {}", words(no, 30))
}

fn system() -> String {
    format!("You know the weather everywhere. {}", words(1, 200))
}

fn result() -> String {
    format!("fine in CITY; {}", words(2, 60))
}

/// A weather tool with long results.
struct AtLength;

impl Tool for AtLength {
    fn spec(&self) -> ToolSpec {
        Weather.spec()
    }

    fn call(&self, arguments: Value, _: pirn_actors::host::WorkClock) -> BoxFuture<'static, Result<String, String>> {
        let city = arguments["city"].as_str().unwrap_or_default().to_owned();
        async move { Ok(result().replace("CITY", &city)) }.boxed()
    }
}

/// A provider that answers by the last message alone: a tool call for each third question, a text for other questions and for
/// results. A request without tools, or with an order at its end, is answered with a summary.
fn provider() -> (Server, Log) {
    let log = Log::default();
    let known = Arc::clone(&log);
    let server = Server::deciding(move |request: &Request| {
        let read = read(request, &known);
        let is_summary = read.is_summary || request.body["tools"].is_null();
        let last = request.body["messages"]
            .as_array()
            .and_then(|messages| messages.last())
            .cloned();
        let last = last.unwrap_or_default();
        let asked = last["content"].as_str().and_then(|text| text.strip_prefix("Question "));
        let no = asked.and_then(|text| text.split(':').next()?.parse::<usize>().ok());
        let mut message = json!({"role": "assistant", "content": words(4, 60)});
        match no {
            _ if is_summary => message["content"] = json!(words(5, 150)),
            Some(no) if no % 3 == 0 => {
                message["tool_calls"] = json!([{"id": format!("call-{no}"), "type": "function",
                    "function": {"name": "weather", "arguments": json!({"city": format!("city {no}")}).to_string()}}]);
            }
            Some(_) | None => {}
        }
        let (sent, cached) = (read.text.len() / 4, read.cached / 4);
        let reason = if message["tool_calls"].is_null() {
            "stop"
        } else {
            "tool_calls"
        };
        let body = json!({"id": "c", "object": "chat.completion", "created": 0, "model": "some-model",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": sent, "completion_tokens": 5, "total_tokens": sent + 5,
                "prompt_tokens_details": {"cached_tokens": cached}}});
        Answer::Whole {
            status: 200,
            headers: Vec::new(),
            body: body.to_string(),
        }
    });
    (server, log)
}

/// The figures of one side.
#[derive(Clone, Copy, Debug)]
struct Figures {
    requests: usize,
    sent: usize,
    cached: usize,
}

impl Figures {
    fn of(server: &Server, log: &Log) -> Self {
        let requests = server.requests();
        let asked = requests
            .iter()
            .filter_map(|request| request.body["messages"].as_array()?.last().cloned());
        let last = asked.filter_map(|last| last["content"].as_str().map(str::to_owned));
        let questions = last.filter(|text| text.starts_with("Question ")).count();
        assert_eq!(questions, QUESTIONS, "each question was asked once");
        let log = log.lock().expect("no panic");
        Self {
            requests: log.len(),
            sent: log.iter().map(|read| read.text.len() / 4).sum(),
            cached: log.iter().map(|read| read.cached / 4).sum(),
        }
    }

    fn fresh(self) -> usize {
        self.sent - self.cached
    }

    fn row(self, name: &str) -> String {
        let Self { requests, sent, cached } = self;
        let share = cached as f64 * 100.0 / sent as f64;
        format!(
            "| {name} | {requests} | {sent} | {cached} | {share:.1} % | {} |",
            self.fresh()
        )
    }
}

fn by_pirn() -> (Figures, usize) {
    let (server, log) = provider();
    let asks: Vec<Value> = (0..QUESTIONS)
        .map(|no| {
            let config = json!({"profileId": "m", "system": system(), "prompt": question(no), "tools": ["weather"]});
            node(&format!("ask{no}"), "LLM", config)
        })
        .collect();
    let mut bundle = line("talks", &asks);
    bundle["config"] = json!({"tokenLimit": LIMIT, "tokenizer": "estimate"});
    let builder = engine([profile(&server, &json!({"stream": false}))])
        .tool(Arc::new(AtLength))
        .compression(&Compression::summarize().profile("m").keep_recent(KEEP));
    let ran = run_in(builder, &bundle, Value::Null, Vec::new());
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
    let compressions = ran.of(EventType::CompressionCompleted).into_iter();
    let compressions = compressions
        .filter(|event| *event.thread_id == *ran.report.thread_id)
        .count();
    (Figures::of(&server, &log), compressions)
}

/// The figures of the LangChain agent. Without LangChain, prints the reason and returns `None`.
fn by_langchain() -> Option<Figures> {
    let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers");
    let into = aimock::target().join("langchain");
    let setup = Command::new(servers.join("langchain-setup"))
        .arg(&into)
        .output()
        .expect("bash");
    if !setup.status.success() {
        println!("skipped: {}", String::from_utf8_lossy(&setup.stderr).trim());
        return None;
    }
    let (server, log) = provider();
    let questions: Vec<String> = (0..QUESTIONS).map(question).collect();
    let asked = json!({"questions": questions, "system": system(), "result": result(), "limit": LIMIT, "keep": KEEP});
    let mut child = Command::new(into.join("bin/python"))
        .arg(servers.join("clients/langchain_agent.py"))
        .arg(server.url("/v1"))
        .env("LANGSMITH_TRACING", "false")
        .stdin(Stdio::piped())
        .spawn()
        .expect("the python of the environment");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(asked.to_string().as_bytes()).expect("it reads");
    drop(stdin);
    let ended = child.wait().expect("it ends");
    assert!(ended.success(), "{ended}");
    Some(Figures::of(&server, &log))
}

#[test]
#[ignore = "installs LangChain from PyPI: benches/beside-langchain"]
fn fewer_tokens_miss_the_cache_than_with_langchains_summaries() {
    let (pirn, compressions) = by_pirn();
    assert!(compressions > 1, "{compressions} compressions");
    println!("| | requests | tokens sent | cached | share | not cached |\n|---|---|---|---|---|---|");
    println!("{}", pirn.row("Pirn"));
    let Some(langchain) = by_langchain() else { return };
    println!("{}", langchain.row("LangChain"));
    let ratio = |of: fn(Figures) -> usize| of(langchain) as f64 / of(pirn) as f64;
    println!(
        "LangChain sends {:.2} x the tokens, {:.2} x of those that no cache serves",
        ratio(|side| side.sent),
        ratio(Figures::fresh)
    );
    assert!(pirn.fresh() < langchain.fresh(), "{pirn:?} {langchain:?}");
}
