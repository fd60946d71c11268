//! A provider that counts: its cached tokens are those of the longest prefix that a request shares with an earlier one.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{Compression, Message, Role, ThreadStatus, Tool, ToolCall, ToolSpec};
use pirn_tests::wire::{Answer, Request, Server};
use pirn_tests::world::{Ran, line, node, run_in};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::caching::blocks;
use crate::models::{Weather, engine, profile};

/// The beginning of the order to summarize.
const ORDER: &str = "Stop here: ";

/// The beginning of the pinned context.
const PINNED: &str = "## Agent Role Definition";

/// A request in the order that a provider reads it in: tools, system text, messages.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) text: String,
    /// Offset of the pinned context, or the length of the text without one.
    pinned: usize,
    pub(crate) is_summary: bool,
    /// True if the last message is the result of a tool.
    answers: bool,
    /// Length of the longest prefix shared with an earlier request, in bytes.
    pub(crate) cached: usize,
}

/// Requests received so far, in order.
pub(crate) type Log = Arc<Mutex<Vec<Read>>>;

fn common(one: &str, other: &str) -> usize {
    const PIECE: usize = 1_024;
    let (one, other) = (one.as_bytes(), other.as_bytes());
    // Whole pieces first, for speed: a request shares thousands of bytes with each of many others.
    let pieces = one.chunks(PIECE).zip(other.chunks(PIECE));
    let same = PIECE * pieces.take_while(|(one, other)| one == other).count();
    let same = same.min(one.len()).min(other.len());
    let rest = one[same..].iter().zip(&other[same..]);
    same + rest.take_while(|(one, other)| one == other).count()
}

pub(crate) fn read(request: &Request, log: &Log) -> Read {
    let body = &request.body;
    let pieces: Vec<String> = if is_anthropic(request) {
        blocks(body).0
    } else {
        let lists = [&body["tools"], &body["messages"]];
        let all = lists.into_iter().filter_map(Value::as_array).flatten();
        all.map(Value::to_string).collect()
    };
    let before_pinned = pieces.iter().take_while(|piece| !piece.contains(PINNED));
    let pinned = before_pinned.map(|piece| piece.len() + 1).sum();
    let text: String = pieces.iter().flat_map(|piece| [piece, "\n"]).collect();
    let mut log = log.lock().expect("no panic");
    let read = Read {
        pinned,
        answers: pieces.last().is_some_and(|piece| piece.contains("tool_call_id")),
        is_summary: pieces.last().is_some_and(|piece| piece.contains(ORDER)),
        cached: log
            .iter()
            .map(|earlier| common(&earlier.text, &text))
            .max()
            .unwrap_or(0),
        text,
    };
    log.push(read.clone());
    read
}

fn is_anthropic(request: &Request) -> bool {
    request.path.ends_with("/messages")
}

/// Starts a provider that replies to request n with `says[n]` tool calls, or a text for 0, and to a summary request with a summary.
fn counting(says: Vec<usize>) -> (Server, Log) {
    let log = Log::default();
    let (known, next) = (Arc::clone(&log), Mutex::new(says.into_iter().enumerate()));
    let server = Server::deciding(move |request| {
        let read = read(request, &known);
        let (round, calls) = if read.is_summary {
            (0, 0)
        } else {
            next.lock().expect("no panic").next().unwrap_or_default()
        };
        let text = if read.is_summary {
            "They spoke of the weather."
        } else {
            "It is fine."
        };
        let (sent, cached) = (read.text.len() / 4, read.cached / 4);
        let call = |at: usize| (format!("r{round}-{at}"), json!({"city": format!("city {at}")}));
        let body = if is_anthropic(request) {
            let mut content: Vec<Value> = (0..calls)
                .map(call)
                .map(|(id, input)| json!({"type": "tool_use", "id": id, "name": "weather", "input": input}))
                .collect();
            if calls == 0 {
                content.push(json!({"type": "text", "text": text}));
            }
            let usage = json!({"input_tokens": sent - cached, "cache_read_input_tokens": cached, "output_tokens": 5});
            let reason = if calls > 0 { "tool_use" } else { "end_turn" };
            json!({"content": content, "stop_reason": reason, "usage": usage})
        } else {
            let mut message = json!({"role": "assistant", "content": text});
            if calls > 0 {
                message["tool_calls"] = (0..calls)
                    .map(call)
                    .map(|(id, input)| {
                        json!({"id": id, "type": "function", "function": {"name": "weather", "arguments": input.to_string()}})
                    })
                    .collect();
            }
            let reason = if calls > 0 { "tool_calls" } else { "stop" };
            json!({"choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": {
                "prompt_tokens": sent, "completion_tokens": 5, "total_tokens": sent + 5,
                "prompt_tokens_details": {"cached_tokens": cached}}})
        };
        Answer::Whole {
            status: 200,
            headers: Vec::new(),
            body: body.to_string(),
        }
    });
    (server, log)
}

/// A conversation with several questions.
#[derive(Clone, Debug)]
struct Talk {
    is_anthropic: bool,
    has_pinned: bool,
    from_end: usize,
    keep_recent: u32,
    /// Number of words of each message of the initial conversation.
    history: Vec<usize>,
    /// Number of tool calls in each round of each question.
    questions: Vec<Vec<usize>>,
    /// Difference between the token limit and the estimated tokens of the initial conversation.
    room: u64,
}

fn talks() -> impl Strategy<Value = Talk> {
    (
        any::<bool>(),
        any::<bool>(),
        1_usize..7,
        2_u32..8,
        prop::collection::vec(20_usize..60, 40..70),
        prop::collection::vec(prop::collection::vec(1_usize..4, 0..3), 2..6),
        30_u64..200,
    )
        .prop_map(
            |(is_anthropic, has_pinned, from_end, keep_recent, history, questions, room)| Talk {
                is_anthropic,
                has_pinned,
                from_end,
                keep_recent,
                history,
                questions,
                room,
            },
        )
}

fn history(words: &[usize]) -> Vec<Message> {
    let said = |place: usize, count: usize| {
        let words: Vec<String> = (0..count).map(|word| format!("word{}", place * word % 97)).collect();
        words.join(" ")
    };
    let mut messages = Vec::new();
    for (place, count) in words.iter().enumerate() {
        let id = format!("h{place}");
        messages.push(Message::new(
            Role::User,
            format!("Question {place}: {}", said(place, *count)),
        ));
        if place % 3 == 0 {
            messages.push(Message {
                tool_calls: vec![ToolCall {
                    id: id.clone(),
                    name: "weather".into(),
                    arguments: json!({"city": place}),
                }],
                ..Message::new(Role::Assistant, "")
            });
            messages.push(Message::tool_result(id, "fine"));
        }
        messages.push(Message::new(Role::Assistant, format!("Answer {place}.")));
    }
    messages
}

fn play(talk: &Talk) -> (Ran, Vec<Read>) {
    let says = talk
        .questions
        .iter()
        .flat_map(|rounds| rounds.iter().copied().chain([0]))
        .collect();
    let (server, log) = counting(says);
    let asks: Vec<Value> = (0..talk.questions.len())
        .map(|place| {
            let config = json!({"profileId": "m", "system": "You know the weather.", "tools": ["weather"],
                "prompt": format!("And where is it fine now, for the {place}. time?")});
            node(&format!("ask{place}"), "LLM", config)
        })
        .collect();
    let history = history(&talk.history);
    let tokens: usize = history.iter().map(|message| message.content.len() / 4 + 6).sum();
    let mut bundle = line("talks", &asks);
    bundle["config"] = json!({"tokenLimit": tokens as u64 + talk.room, "fromEnd": talk.from_end});
    if talk.has_pinned {
        bundle["config"]["pinned"] = json!({"role": "A weatherman", "todo": "Say where it is fine."});
    }
    let provider = if talk.is_anthropic { "anthropic" } else { "openai" };
    let more = json!({"provider": provider, "stream": false, "promptCache": true});
    let builder = engine([profile(&server, &more)])
        .tool(Arc::new(Weather))
        .compression(&Compression::summarize().profile("m").keep_recent(talk.keep_recent));
    let ran = run_in(builder, &bundle, Value::Null, history);
    // The rules of the provider hold for each of them.
    assert!(!server.requests().is_empty());
    let log = log.lock().expect("no panic").clone();
    (ran, log)
}

/// Length of the prefix that two consecutive requests share, and its maximum: the part before the pinned context. In a short
/// conversation the pinned context is at the end, so it can be earlier in the second request.
fn again(pair: &[Read]) -> (usize, usize) {
    let most = pair[0].pinned.min(pair[1].pinned);
    (common(&pair[0].text, &pair[1].text).min(most), most)
}

#[test]
fn nearly_all_of_a_request_is_a_prefix_of_the_next_one_or_of_its_compression() {
    let mut runner = TestRunner::deterministic();
    let (mut summaries, mut plain) = (Vec::new(), 0);
    for _ in 0..200 {
        let talk = talks().new_tree(&mut runner).expect("a talk").current();
        let (ran, log) = play(&talk);
        assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
        let cached: usize = log.iter().map(|read| read.cached / 4).sum();
        assert_eq!(
            ran.report.tokens.spent.cached_read, cached as u64,
            "every figure of the provider is told"
        );
        for pair in log.windows(2) {
            let (same, most) = again(pair);
            if pair[0].is_summary {
                continue;
            }
            if pair[1].is_summary {
                assert!(same * 100 >= most * 95, "{same} of {most}: {talk:?}");
                summaries.push(same * 100 / pair[1].pinned);
            } else {
                assert!(same * 100 >= most * 98, "{same} of {most}: {talk:?}");
                plain += 1;
            }
        }
    }
    assert!(plain > 500 && summaries.len() > 50, "{plain} {}", summaries.len());
    let served = summaries.iter().sum::<usize>() / summaries.len();
    assert!(
        served >= 95,
        "{served} % of a request for a summary is the prefix of the one before"
    );
}

/// Answers every question.
struct Knows(&'static str);

impl Tool for Knows {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.0.to_owned(),
            description: format!("Gives what there is of {}", self.0),
            parameters: json!({"type": "object"}),
        }
    }

    fn call(&self, _: Value, _: pirn_actors::host::WorkClock) -> BoxFuture<'static, Result<String, String>> {
        let known = format!("All there is of {}. ", self.0).repeat(20);
        async move { Ok(known) }.boxed()
    }
}

#[test]
fn requests_after_tool_results_of_the_support_desk_are_served_from_the_cache() {
    let known = Log::default();
    let log = Arc::clone(&known);
    let server = Server::deciding(move |request| {
        read(request, &log);
        let tools = request.body["tools"].as_array().cloned().unwrap_or_default();
        let messages = request.body["messages"].as_array().cloned().unwrap_or_default();
        let answered = messages.last().is_some_and(|last| last["role"] == "tool");
        let mut message = json!({"role": "assistant", "content": "It was opened by customs."});
        if !answered && !tools.is_empty() {
            let call = |tool: &Value| {
                json!({"id": tool["function"]["name"], "type": "function",
                "function": {"name": tool["function"]["name"], "arguments": "{}"}})
            };
            message["tool_calls"] = tools.iter().map(call).collect();
        }
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        Answer::Whole {
            status: 200,
            headers: Vec::new(),
            body: json!({"choices": [choice]}).to_string(),
        }
    });
    let file = |name: &str| -> Value {
        let path = format!("{}/../examples/support-desk/{name}", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_str(&std::fs::read_to_string(path).expect("it is there")).expect("JSON")
    };
    let mut bundle = file("workflow.json");
    bundle["workflows"][0]["config"]["pinned"] = file("pinned.json");
    let profiles =
        ["assistant", "writer", "summarizer"].map(|id| profile(&server, &json!({"id": id, "stream": false})));
    let mut builder = engine(profiles);
    for name in ["get_order", "track_parcel", "read_policy"] {
        builder = builder.tool(Arc::new(Knows(name)));
    }
    let conversation = serde_json::from_value(file("conversation.json")).expect("messages");
    let ran = run_in(builder, &bundle, file("ticket.json"), conversation);
    assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
    let all = known.lock().expect("no panic").clone();
    let answered: Vec<usize> = (0..all.len()).filter(|at| all[*at].answers).collect();
    assert_eq!(answered.len(), 2, "of the ticket, and of the policies");
    for at in answered {
        let shares = all[..at]
            .iter()
            .map(|earlier| again(&[earlier.clone(), all[at].clone()]));
        let best = shares.max_by_key(|(same, most)| same * 1_000 / most);
        assert!(best.is_some_and(|(same, most)| same * 100 >= most * 98), "{best:?}");
    }
}
