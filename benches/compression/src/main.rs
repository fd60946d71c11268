//! What each strategy retains of generated conversations after five compressions, and the time of one compression.
//!
//! `cargo run --release -p pirn-benches-compression` prints a Markdown table; `-- time` prints the time of one compression of 10,000
//! messages. No model is called: `summarize` without a model is `checklist`.

mod generated;

use std::sync::Arc;
use std::time::Instant;

use pirn_conversation::conversation::compression::{Compression, CompressionContext, compress, finish_with_checklist};
use pirn_conversation::conversation::{Estimator, message_cost};
use pirn_definition::message::{Message, Role};
use serde_json::{Value, json};

use generated::{Conversation, Kind, Planted, conversation};

/// Number of conversations of the study.
const CONVERSATIONS: u64 = 200;

/// Number of messages and of measurements of `time`.
const MESSAGES: usize = 10_000;
const MEASUREMENTS: usize = 11;

/// Dollars for a million tokens, not cached and cached.
const PRICES: (f64, f64) = (3.0, 0.3);

fn main() {
    if std::env::args().nth(1).is_some_and(|word| word == "time") {
        time();
    } else {
        study();
    }
}

fn compressed(messages: &[Arc<Message>], config: &Value) -> Vec<Arc<Message>> {
    let context = CompressionContext {
        messages: messages.to_vec(),
        compression_config: serde_json::from_value(config.clone()).ok(),
        ..CompressionContext::default()
    };
    match compress(&context, &Estimator).expect("the parameters are valid") {
        Compression::Done(result) => result.messages,
        Compression::Summarize(plan) => finish_with_checklist(&plan, None, &Estimator).result.messages,
    }
}

#[allow(clippy::disallowed_methods)] // a benchmark measures real time
fn time() {
    let mut messages: Vec<Arc<Message>> = Vec::new();
    for seed in 0.. {
        let rounds = conversation(seed).rounds.into_iter().flatten();
        messages.extend(rounds.filter(|message| seed == 0 || message.role != Role::System));
        if messages.len() >= MESSAGES {
            break;
        }
    }
    messages.truncate(MESSAGES);
    let tokens: u64 = messages.iter().map(|message| message_cost(message, &Estimator)).sum();
    for (strategy, parameters) in [("checklist", json!({})), ("checklist", json!({"keepFacts": 0.9}))] {
        let config = json!({"strategy": strategy, "parameters": parameters});
        let mut times: Vec<f64> = (0..MEASUREMENTS)
            .map(|_| {
                let start = Instant::now();
                let result = compressed(&messages, &config);
                assert!(result.len() < messages.len());
                start.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!(
            "{strategy} {parameters}, {MESSAGES} messages of {tokens} tokens: median {:.1} ms, from {:.1} to {:.1} ms",
            times[MEASUREMENTS / 2],
            times[0],
            times[MEASUREMENTS - 1]
        );
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

fn study() {
    let strategies = [
        ("none", Value::Null),
        (
            "`keep_recent`",
            json!({"strategy": "keep_recent", "parameters": {"count": 10}}),
        ),
        (
            "`keep_system_recent`",
            json!({"strategy": "keep_system_recent", "parameters": {"count": 10}}),
        ),
        (
            "`sliding_window`",
            json!({"strategy": "sliding_window", "parameters": {"maxTokens": 500}}),
        ),
        (
            "`checklist`",
            json!({"strategy": "checklist", "parameters": {"keepRecent": 4}}),
        ),
        (
            "`checklist`, `keepFacts` 0.9",
            json!({"strategy": "checklist", "parameters": {"keepRecent": 4, "keepFacts": 0.9}}),
        ),
    ];
    println!(
        "| strategy | rules | facts | negations | corrections | claims | stale | misattributed | tokens | cached | cost |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for (name, config) in strategies {
        let mut sums = Sums::default();
        for seed in 0..CONVERSATIONS {
            play(&conversation(seed), &config, &mut sums);
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

/// Sends a request for each question of a conversation, compresses after each round, and looks for the planted statements at the end.
fn play(conversation: &Conversation, config: &Value, sums: &mut Sums) {
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
        messages = compressed(&messages, config);
    }
    let lines: Vec<(Role, &str)> = messages
        .iter()
        .flat_map(|message| message.content.lines().map(|line| (message.role, line)))
        .collect();
    for one in &conversation.planted {
        count(one, &lines, sums);
    }
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
