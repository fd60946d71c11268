//! The README's first command has the effects that the README describes.

use serde_json::Value;

use crate::command::{pirn_in, root};

/// Returns the arguments of the README's first call of `pirn`.
fn command() -> Vec<String> {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("it is there");
    let console = readme.split("```console").nth(1).expect("it has a command");
    let command = console.split("```").next().expect("it ends").replace("\\\n", " ");
    let (_, arguments) = command.split_once(" -- ").expect("it calls pirn");
    arguments.split_whitespace().map(str::to_owned).collect()
}

fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array().expect("a list").iter();
    list.map(|message| format!("{}: {}", message["role"], message["content"]))
        .collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn the_first_command_forks_joins_and_compresses_without_losing_messages() {
    let events = std::env::temp_dir().join(format!("pirn-support-desk-{}.jsonl", std::process::id()));
    let mut arguments = command();
    arguments.extend(["--output", "json", "--events"].map(str::to_owned));
    arguments.push(events.to_str().expect("UTF-8").to_owned());
    let ended = pirn_in(&root(), &arguments.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    let heard: Vec<Value> = std::fs::read_to_string(&events)
        .expect("written")
        .lines()
        .map(json)
        .collect();
    std::fs::remove_file(&events).unwrap_or(());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = ended.json();
    assert_eq!(report["status"], "COMPLETED");

    // The main thread was compressed once, to a smaller size.
    let compressed: Vec<&Value> = heard
        .iter()
        .filter(|event| event["type"] == "COMPRESSION_COMPLETED" && event["threadId"] == report["threadId"])
        .collect();
    assert_eq!(compressed.len(), 1);
    assert_eq!(report["firings"].as_array().map(Vec::len), Some(1));
    for (before, after) in [("tokensBefore", "tokensAfter"), ("messagesBefore", "messagesAfter")] {
        let [before, after] = [before, after].map(|field| compressed[0][field].as_u64().expect("a number"));
        assert!(before > 2 * after, "{before} {after}");
    }
    let asked: Vec<u64> = heard
        .iter()
        .filter(|event| event["type"] == "REQUEST_PREPARED" && event["threadId"] == report["threadId"])
        .map(|event| event["tokensUsed"].as_u64().expect("a number"))
        .collect();
    let limit = compressed_limit(&heard);
    assert!(asked[2] > limit && asked[3] < limit, "{asked:?} {limit}");

    // The main thread continued at its node.
    let nodes: Vec<&Value> = report["nodes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|node| &node["nodeId"])
        .collect();
    assert_eq!(
        nodes,
        [
            "start",
            "read",
            "look-into-it",
            "looked",
            "write",
            "review",
            "reviewed",
            "end"
        ]
    );

    // Both joins have the expected outputs.
    let output = &report["output"];
    for path in ["policies", "customer"] {
        assert!(output["found"][path]["content"].is_string(), "{path}: {output:#}");
    }
    assert_eq!(output["found"]["amounts"]["voucher"], "48.30 EUR");
    assert_eq!(output["reviews"].as_object().map(serde_json::Map::len), Some(2));
    assert_eq!(output["notAwaited"], serde_json::json!(["lawyer"]));
    assert!(
        output["answer"]
            .as_str()
            .is_some_and(|text| text.contains("412 kroner"))
    );

    // No message is lost, and the system message is the first one that the model sees.
    let all = texts(&report["conversation"]["messages"]);
    let before = texts(&json(
        &std::fs::read_to_string(root().join("examples/support-desk/conversation.json")).expect("it is there"),
    ));
    assert!(before.len() > 300);
    assert_eq!(all[..before.len()], before[..]);
    let boundaries = &report["conversation"]["markMap"]["batchBoundaries"];
    let boundary = usize::try_from(boundaries[1].as_u64().expect("a second batch")).expect("small");
    assert_eq!(boundaries.as_array().map(Vec::len), Some(2));
    let (archived, visible) = all.split_at(boundary);
    assert_eq!(visible[0], before[0]);
    assert!(visible[1].contains("Petra"), "the summary: {}", visible[1]);
    let kept = visible.iter().filter(|text| archived.contains(text)).count();
    assert_eq!(kept, 13, "the system message and the last twelve stay: {visible:#?}");
}

/// Compares the output line by line, except that branches may act in any order between a fork and its join.
#[test]
fn the_first_command_shows_forks_joins_losers_and_the_compression_line_by_line() {
    let mut arguments = command();
    arguments.extend(["--virtual-time", "--seed", "1"].map(str::to_owned));
    let ended = pirn_in(&root(), &arguments.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let mut lines: Vec<String> = ended.stderr.lines().map(without_times).collect();
    let last = lines.pop().expect("lines");
    assert!(last.contains("support-desk completed in "), "{last}");
    let is_turn = |line: &str| TURNS.iter().any(|turn| line.contains(turn));
    for together in lines.chunk_by_mut(|one, next| is_turn(one) == is_turn(next)) {
        if !is_turn(&together[0]) {
            together.sort_unstable();
        }
    }
    insta::assert_snapshot!("support_desk_progress", lines.join("\n"));
}

fn compressed_limit(heard: &[Value]) -> u64 {
    let crossed = heard.iter().find(|event| event["type"] == "TOKEN_LIMIT_EXCEEDED");
    crossed.expect("it was crossed")["tokenLimit"]
        .as_u64()
        .expect("a number")
}

/// Phrases of the lines whose order is fixed.
const TURNS: &[&str] = &[
    "forks into",
    "joined by",
    "the next request",
    "compressed from",
    "trigger ",
];

/// Replaces times, because the duration of the demo's child processes varies.
fn without_times(line: &str) -> String {
    let words = line.split(' ').collect::<Vec<_>>();
    let mut shown: Vec<&str> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let unit = words
            .get(at + 1)
            .is_some_and(|next| next.trim_end_matches([',', ')', ':']) == "s");
        let is_number = word.trim_start_matches('(').parse::<f64>().is_ok();
        shown.push(if unit && is_number { "T" } else { word });
    }
    shown.join(" ").trim_start().to_owned()
}
