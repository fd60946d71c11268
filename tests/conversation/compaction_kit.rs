//! Statements that survive five compressions in the sessions of compaction-conformance-kit (PyPI). The property with generated statements
//! is in `random/checklists.rs` of the crate `pirn-conversation`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use pirn::{Message, Role};
use pirn_conversation::conversation::compression::{
    Compression, CompressionContext, compress, finish_with_checklist, is_summary,
};
use pirn_conversation::conversation::{Estimator, MarkMap, Tokenizer, message_cost};
use serde::Deserialize;
use serde_json::{Value, json};

use pirn_tests::servers;

/// Number of compressions of a session.
const ROUNDS: usize = 5;

#[derive(Clone, Deserialize)]
struct Session {
    name: String,
    messages: Vec<Arc<Message>>,
    /// Rules and constraints of the user, and the other statements that no later one replaces.
    current: Vec<String>,
}

#[derive(Deserialize)]
struct Score {
    name: String,
    rounds: Vec<BTreeMap<String, f64>>,
    lost: Vec<String>,
}

fn python(python: &PathBuf, command: &str, input: &str) -> Vec<u8> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("conversation/kit_sessions.py");
    let child = Command::new(python)
        .arg(script)
        .arg(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.expect("python starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("is read");
    drop(stdin);
    let output = child.wait_with_output().expect("python ends");
    assert!(output.status.success());
    output.stdout
}

/// Returns the visible text after each of five compressions, with new messages in between.
fn rounds(session: &Session, (strategy, summary): (&str, Option<&str>), budget: f64) -> Vec<String> {
    let mut messages = session.messages.clone();
    let total = tokens(&messages);
    let config = json!({"strategy": strategy, "parameters": {"budget": budget, "keepRecent": 2}});
    let mut texts = Vec::new();
    for round in 0..ROUNDS {
        let context = CompressionContext {
            messages,
            mark_map: MarkMap::default(),
            compression_config: Some(serde_json::from_value(config.clone()).expect("a config")),
            ..CompressionContext::default()
        };
        let result = match compress(&context, &Estimator).expect("good parameters") {
            Compression::Done(result) => *result,
            Compression::Summarize(plan) => finish_with_checklist(&plan, summary, &Estimator).result,
        };
        assert!(result.stats.tokens_saved > 0, "{} round {round}", session.name);
        messages = result.messages;
        let size: u64 = (messages.iter().filter(|one| is_summary(one)))
            .map(|one| Estimator.count(&one.content))
            .sum();
        // A summary by a model has at least 48 tokens.
        let most = (total as f64 * budget) as u64 + summary.map_or(0, |_| 48);
        assert!(size <= most, "{} round {round}: {size} of {most}", session.name);
        let text: Vec<&str> = messages.iter().map(|one| one.content.as_str()).collect();
        texts.push(text.join("\n"));
        for part in ["pages", "headers", "tests", "queues"] {
            let text = format!("Let us continue with the layout of the {part}.");
            messages.push(Arc::new(Message::new(Role::User, text)));
            messages.push(Arc::new(Message::new(
                Role::Assistant,
                "Acknowledged. Continuing with the plan.",
            )));
        }
    }
    texts
}

/// Returns the tokens of a session.
fn tokens(messages: &[Arc<Message>]) -> u64 {
    messages.iter().map(|one| message_cost(one, &Estimator)).sum()
}

/// Returns the tokens of a checklist that has the current statements of a session and no others.
fn needed(session: &Session) -> u64 {
    let filler = Arc::new(Message::new(Role::Assistant, "Acknowledged. Continuing with the plan."));
    let said = session
        .current
        .iter()
        .map(|text| Arc::new(Message::new(Role::User, text.as_str())));
    // At most half of the tokens are quoted, so that the fillers leave room for all statements.
    let messages = said.chain(std::iter::repeat_n(filler, 200)).collect();
    let config = json!({"strategy": "checklist", "parameters": {"budget": 10_000, "keepRecent": 0}});
    let context = CompressionContext {
        messages,
        compression_config: Some(serde_json::from_value(config).expect("a config")),
        ..CompressionContext::default()
    };
    match compress(&context, &Estimator).expect("good parameters") {
        Compression::Done(result) => Estimator.count(&result.messages[0].content),
        Compression::Summarize(_) => unreachable!("a checklist needs no model"),
    }
}

/// Prints the shares, and how many lost statements are in generated sessions with more current statements than the budget holds.
fn report(sessions: &[Session], scores: &[Score], budget: f64, shares: &BTreeMap<&str, f64>) {
    let is_short = |session: &Session| needed(session) > (tokens(&session.messages) as f64 * budget) as u64;
    let generated = sessions
        .iter()
        .zip(scores)
        .filter(|(session, _)| session.name.starts_with("generated"));
    let (short, others): (Vec<_>, Vec<_>) = generated.partition(|(session, _)| is_short(session));
    let lost = |of: &[(&Session, &Score)]| of.iter().map(|(_, score)| score.lost.len()).sum::<usize>();
    println!(
        "budget {budget}, generated: {shares:?}; {} lost in {} sessions that need more tokens, {} in {} others",
        lost(&short),
        short.len(),
        lost(&others),
        others.len()
    );
}

/// Returns the lowest share of each type over all rounds of the sessions with names that start with `kind`.
fn lowest<'s>(scores: &'s [Score], kind: &str) -> BTreeMap<&'s str, f64> {
    let mut lowest = BTreeMap::new();
    let shares = scores.iter().filter(|one| one.name.starts_with(kind));
    for (name, share) in shares.flat_map(|one| one.rounds.iter().flatten()) {
        let least: &mut f64 = lowest.entry(name.as_str()).or_insert(1.0);
        *least = least.min(*share);
    }
    assert_eq!(lowest.len(), 5, "{kind}");
    lowest
}

/// Returns the lowest mean share of each type over the generated sessions in any round.
fn lowest_mean(scores: &[Score]) -> BTreeMap<&str, f64> {
    let generated: Vec<&Score> = scores.iter().filter(|one| one.name.starts_with("generated")).collect();
    let mut lowest = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut sums = BTreeMap::<&str, f64>::new();
        for (name, share) in generated.iter().flat_map(|one| &one.rounds[round]) {
            *sums.entry(name.as_str()).or_default() += share;
        }
        for (name, sum) in sums {
            let least: &mut f64 = lowest.entry(name).or_insert(1.0);
            *least = least.min(sum / generated.len() as f64);
        }
    }
    assert_eq!(lowest.len(), 5);
    lowest
}

#[test]
fn in_the_sessions_of_the_kit_rules_and_nine_tenths_of_the_others_survive_five_rounds() {
    let Some(kit) = servers::compaction_kit() else { return };
    let sessions: Vec<Session> = serde_json::from_slice(&python(&kit, "sessions", "")).expect("sessions");
    let vague = "The user and the assistant worked on a project. They discussed the layout of its modules.";
    let ways = [("checklist", None), ("summarize", None), ("summarize", Some(vague))];
    for way in ways {
        for budget in [0.2, 0.25] {
            let texts: Vec<Value> = (sessions.iter())
                .map(|session| json!({"name": session.name, "texts": rounds(session, way, budget)}))
                .collect();
            let scores = python(&kit, "score", &json!(texts).to_string());
            let scores: Vec<Score> = serde_json::from_slice(&scores).expect("scores");
            let lost: Vec<&str> = scores.iter().flat_map(|one| &one.lost).map(String::as_str).collect();
            // 20 % is less than the statements of a third of the generated sessions.
            let generated = if budget < 0.25 {
                lowest_mean(&scores)
            } else {
                lowest(&scores, "generated")
            };
            report(&sessions, &scores, budget, &generated);
            for (kind, shares) in [
                ("seeded", lowest(&scores, "seeded")),
                ("random", lowest(&scores, "random")),
                ("generated", generated),
            ] {
                for (name, share) in shares {
                    let least = match name {
                        "safety_rule" | "hard_constraint" => 1.0,
                        _ => 0.9,
                    };
                    assert!(share >= least, "{way:?} at {budget}, {kind} {name}: {share}: {lost:?}");
                }
            }
        }
    }
}
