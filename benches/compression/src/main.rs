//! What each strategy retains of generated conversations after five compressions, and the time of one compression.
//!
//! `cargo run --profile dist -p pirn-benches-compression` prints a Markdown table; `-- time` prints the time of one compression of
//! 10,000 messages. No model is called: the summaries are extractive, or one that mentions no statement.
//!
//! `-- contexts N` prints what the strategies retain of N conversations, with questions about it, as JSON lines for
//! `examples/real-model/questions`, which lets a model answer them.

mod generated;

use std::sync::Arc;
use std::time::Instant;

use pirn_conversation::conversation::compression::{
    Compression, CompressionContext, compress, finish_summary, finish_with_checklist,
};
use pirn_conversation::conversation::{Estimator, extractive, message_cost};
use pirn_definition::message::{Message, Role};
use serde_json::{Value, json};

use generated::{Conversation, Kind, Planted, conversation};

/// Number of conversations of the study.
const CONVERSATIONS: u64 = 200;

/// Maximum number of sentences of an answer in the study.
const SENTENCES: u64 = 12;

/// Number of questions about the statements of a kind.
const QUESTIONS: usize = 2;

/// Number of messages and of measurements of `time`.
const MESSAGES: usize = 10_000;
const MEASUREMENTS: usize = 31;

/// Dollars for a million tokens, not cached and cached.
const PRICES: (f64, f64) = (3.0, 0.3);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => study(),
        ["time"] => time(),
        ["contexts", count] => contexts(count.parse().expect("a number of conversations")),
        _ => panic!("unknown arguments: expected none, `time`, or `contexts N`"),
    }
}

/// Source of the summaries of `summarize`.
#[derive(Clone, Copy, Debug)]
enum Summary {
    /// No model: the checklist alone.
    None,
    /// A model that mentions none of the statements, with the checklist.
    Vague,
    /// The most central sentences, without a checklist.
    Extractive,
}

const VAGUE: &str = "The user and the assistant talked about parcels. They went through the carriers.";

fn compressed(messages: &[Arc<Message>], config: &Value, summary: Summary) -> Vec<Arc<Message>> {
    let context = CompressionContext {
        messages: messages.to_vec(),
        compression_config: serde_json::from_value(config.clone()).ok(),
        ..CompressionContext::default()
    };
    match compress(&context, &Estimator).expect("the parameters are valid") {
        Compression::Done(result) => result.messages,
        Compression::Summarize(plan) => match summary {
            Summary::None => finish_with_checklist(&plan, None, &Estimator).result.messages,
            Summary::Vague => finish_with_checklist(&plan, Some(VAGUE), &Estimator).result.messages,
            Summary::Extractive => {
                let texts = plan.to_summarize.iter().map(|message| message.content.as_str());
                let text = extractive::summary(texts, extractive::Budget::default());
                finish_summary(&plan, &text, &Estimator).messages
            }
        },
    }
}

/// Returns the fastest times of two works that alternate, in milliseconds.
#[allow(clippy::disallowed_methods)] // a benchmark measures real time
fn fastest(works: [&dyn Fn(); 2]) -> [f64; 2] {
    let mut fastest = [f64::INFINITY; 2];
    for _ in 0..MEASUREMENTS {
        for (work, fastest) in works.iter().zip(&mut fastest) {
            let start = Instant::now();
            work();
            *fastest = fastest.min(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    fastest
}

fn time() {
    let mut messages: Vec<Arc<Message>> = Vec::new();
    for seed in 0.. {
        let rounds = conversation(seed, 1).rounds.into_iter().flatten();
        messages.extend(rounds.filter(|message| seed == 0 || message.role != Role::System));
        if messages.len() >= MESSAGES {
            break;
        }
    }
    messages.truncate(MESSAGES);
    let tokens: u64 = messages.iter().map(|message| message_cost(message, &Estimator)).sum();
    println!("{MESSAGES} messages of {tokens} tokens\n");
    println!("| strategy | ms | x JSON |\n|---|---|---|");
    for parameters in [json!({}), json!({"keepFacts": 0.9})] {
        let config = json!({"strategy": "checklist", "parameters": parameters});
        let work = || assert!(compressed(&messages, &config, Summary::None).len() < messages.len());
        // The same messages through JSON and back, as a request or a store does.
        let json = || {
            let text = serde_json::to_string(&messages).expect("messages are JSON");
            let read: Vec<Message> = serde_json::from_str(&text).expect("valid");
            assert_eq!(read.len(), messages.len());
        };
        let [time, base] = fastest([&work, &json]);
        println!("| `checklist` {parameters} | {time:.1} | {:.1} |", time / base);
    }
}

/// Sums over all conversations.
#[derive(Default)]
struct Sums {
    /// Retained and planted statements, in the order of [`Kind::ALL`].
    kept: [(u64, u64); 5],
    /// Corrected values that are shown without their correction.
    stale: u64,
    /// Claims of the model that are shown as statements of the user.
    misattributed: u64,
    sent: u64,
    cached: u64,
    requests: u64,
}

/// Returns the strategies with their names.
fn strategies() -> Vec<(&'static str, Value, Summary)> {
    let of = |strategy: &str, parameters: Value| json!({"strategy": strategy, "parameters": parameters});
    let count = || json!({"count": 10});
    vec![
        ("none", Value::Null, Summary::None),
        ("`keep_recent`", of("keep_recent", count()), Summary::None),
        ("`keep_system_recent`", of("keep_system_recent", count()), Summary::None),
        (
            "`sliding_window`",
            of("sliding_window", json!({"maxTokens": 1_000})),
            Summary::None,
        ),
        (
            "an extractive summary alone",
            of("summarize", json!({})),
            Summary::Extractive,
        ),
        (
            "the same, `keepFacts` 0.9",
            of("summarize", json!({"keepFacts": 0.9})),
            Summary::Extractive,
        ),
        ("`checklist`", of("checklist", json!({})), Summary::None),
        (
            "`checklist`, `keepFacts` 0.9",
            of("checklist", json!({"keepFacts": 0.9})),
            Summary::None,
        ),
        (
            "`summarize`, a summary without statements",
            of("summarize", json!({})),
            Summary::Vague,
        ),
    ]
}

fn study() {
    println!(
        "| strategy | rules | facts | negations | corrections | claims | stale | misattributed | tokens | cached | cost |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for (name, config, summary) in strategies() {
        let mut sums = Sums::default();
        for seed in 0..CONVERSATIONS {
            play(&conversation(seed, SENTENCES), (&config, summary), &mut sums);
        }
        let shares: Vec<String> = sums
            .kept
            .iter()
            .map(|(kept, all)| format!("{:.0} %", *kept as f64 * 100.0 / *all as f64))
            .collect();
        let (full, cached) = PRICES;
        let cost = ((sums.sent - sums.cached) as f64 * full + sums.cached as f64 * cached) / 1e6;
        println!(
            "| {name} | {} | {} | {} | {} | {:.0} % | {:.4} |",
            shares.join(" | "),
            sums.stale,
            sums.misattributed,
            sums.sent / sums.requests,
            sums.cached as f64 * 100.0 / sums.sent as f64,
            cost / CONVERSATIONS as f64,
        );
    }
}

/// Prints the messages that each strategy retains of each conversation, and questions about them.
fn contexts(count: u64) {
    for seed in 0..count {
        let conversation = conversation(seed, SENTENCES);
        let questions: Vec<Value> = Kind::ALL
            .iter()
            .flat_map(|kind| {
                // A value that was not corrected is a fact.
                let is_asked = |one: &&Planted| one.kind == *kind && (*kind != Kind::Correction || one.stale.is_some());
                let of_kind: Vec<&Planted> = conversation.planted.iter().filter(is_asked).collect();
                // The conversations ask about different rounds.
                let first = usize::try_from(seed).unwrap_or_default() % of_kind.len();
                let asked = of_kind.into_iter().cycle().skip(first).take(QUESTIONS);
                asked.map(|one| json!({"kind": format!("{:?}", one.kind), "start": one.question, "answer": one.answer}))
            })
            .collect();
        for (name, config, summary) in strategies() {
            let messages = play(&conversation, (&config, summary), &mut Sums::default());
            let messages: Vec<Value> = messages
                .iter()
                .map(|message| json!({"role": message.role, "content": message.content}))
                .collect();
            println!(
                "{}",
                json!({"strategy": name, "messages": messages, "questions": questions})
            );
        }
    }
}

/// Sends a request for each question of a conversation, compresses after each round, and looks for the planted statements at the end.
/// Returns the remaining messages.
fn play(conversation: &Conversation, (config, summary): (&Value, Summary), sums: &mut Sums) -> Vec<Arc<Message>> {
    let mut messages: Vec<Arc<Message>> = Vec::new();
    let mut before: Vec<Arc<Message>> = Vec::new();
    for round in &conversation.rounds {
        for message in round {
            messages.push(Arc::clone(message));
            if message.role == Role::User {
                let same = messages
                    .iter()
                    .zip(&before)
                    .take_while(|(one, other)| one == other)
                    .count();
                let tokens = |part: &[Arc<Message>]| part.iter().map(|one| message_cost(one, &Estimator)).sum::<u64>();
                sums.sent += tokens(&messages);
                sums.cached += tokens(&messages[..same]);
                sums.requests += 1;
                before.clone_from(&messages);
            }
        }
        messages = compressed(&messages, config, summary);
    }
    let lines: Vec<(Role, &str)> = messages
        .iter()
        .flat_map(|message| message.content.lines().map(|line| (message.role, line)))
        .collect();
    for one in &conversation.planted {
        count(one, &lines, sums);
    }
    messages
}

fn count(one: &Planted, lines: &[(Role, &str)], sums: &mut Sums) {
    let mut shown = lines.iter().filter(|(_, line)| line.contains(&one.text));
    let first = shown.next();
    let at = Kind::ALL.iter().position(|kind| *kind == one.kind).unwrap_or_default();
    let is_stale = |(_, line): &(Role, &str)| one.stale.as_ref().is_some_and(|stale| line.contains(stale.as_str()));
    let (kept, all) = &mut sums.kept[at];
    *all += 1;
    *kept += u64::from(first.is_some());
    sums.stale += u64::from(first.is_none() && lines.iter().any(is_stale));
    let is_of_user = |(role, line): &(Role, &str)| *role == Role::User && !line.contains("(assistant)");
    sums.misattributed += u64::from(one.kind == Kind::Claim && first.is_some_and(is_of_user));
}
