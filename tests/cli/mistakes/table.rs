//! The mistakes of a newcomer, `mistakes.json`: each is made as a person would make it, and its message is scored.
//!
//! 0: the mistake is accepted, its exit code or its code is wrong, or the text suggests something misleading (`never`); 1: it is
//! reported; 2: also with its place (`where`); 3: also with its remedy (`fix`).

use std::fs;
use std::net::TcpListener;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{flow, forked, with};
use crate::command::{Ended, pirn_in};
use crate::folder::Folder;
use crate::store::durable_inputs;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mistake {
    number: u32,
    #[serde(rename = "mistake")]
    title: String,
    /// True if the command accepts the input and performs the intended action.
    #[serde(default)]
    accepted: bool,
    /// The workflow that is changed: a valid one, or one with a fork.
    #[serde(default)]
    base: String,
    /// The node `work` without its id.
    node: Option<Map<String, Value>>,
    /// Values by pointer into the workflow.
    #[serde(default)]
    set: Map<String, Value>,
    #[serde(default)]
    bom: bool,
    /// Further files, or another text of `flow.json`.
    #[serde(default)]
    files: Map<String, Value>,
    /// Another process holds the store `runs.db`, and its run `r` waits for an answer at the node `first`.
    #[serde(default)]
    held: bool,
    /// Another process listens on the port `{port}`.
    #[serde(default)]
    port: bool,
    /// Commands that succeed first.
    #[serde(default)]
    before: Vec<Vec<String>>,
    run: Option<Vec<String>>,
    exit: Option<i32>,
    prints: Option<String>,
    code: Option<String>,
    #[serde(rename = "where", default)]
    place: String,
    #[serde(default)]
    fix: String,
    #[serde(default)]
    never: Vec<String>,
}

/// Commands that report failures as text only.
const TEXT_ONLY: [&str; 1] = ["serve"];

impl Mistake {
    /// Makes the mistake in a new folder.
    fn make(&self, more: &[&str]) -> Ended {
        let name = format!("mistake-{}-{}", self.number, more.len());
        let folder = if self.held {
            durable_inputs::folder(&name)
        } else {
            Folder::new(&name)
        };
        let mut flow = if self.base == "forked" { forked() } else { flow() };
        if let Some(node) = &self.node {
            flow["nodes"][1] = json!(node);
            flow["nodes"][1]["id"] = json!("work");
        }
        for (pointer, value) in &self.set {
            flow = with(flow, pointer, value.clone());
        }
        let mark = if self.bom { "\u{feff}" } else { "" };
        let mut folder = folder.with("flow.json", &format!("{mark}{flow:#}"));
        for (name, text) in &self.files {
            folder = folder.with(name, text.as_str().expect("a text"));
        }
        let listener = self
            .port
            .then(|| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let port = listener.map(|listener| (listener.local_addr().expect("bound").port().to_string(), listener));
        let mut owner = self.held.then(|| durable_inputs::holding(&folder));
        for command in &self.before {
            let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
            let ended = pirn_in(folder.path(), &arguments, &[]);
            assert_eq!(ended.code, Some(0), "{}: {}", self.title, ended.stderr);
        }
        let default = ["validate", "flow.json"].map(str::to_owned).to_vec();
        let run = self.run.as_ref().unwrap_or(&default);
        let run: Vec<String> = match &port {
            Some((port, _)) => run.iter().map(|word| word.replace("{port}", port)).collect(),
            None => run.clone(),
        };
        let arguments: Vec<&str> = run.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let ended = pirn_in(folder.path(), &arguments, &[]);
        if let Some((child, _)) = &mut owner {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
        Ended {
            stderr: match &port {
                Some((port, _)) => ended.stderr.replace(port, "{port}"),
                None => ended.stderr,
            },
            ..ended
        }
    }

    /// Returns the score, and the missing parts of the message.
    fn score(&self) -> (u32, String) {
        let ended = self.make(&[]);
        let text = format!("{}{}", ended.stdout, ended.stderr);
        let expected = self.exit.unwrap_or(i32::from(!self.accepted));
        let wrong = |what: &str| (0, format!("{what}\n{text}"));
        if ended.code != Some(expected) || text.contains("panicked") {
            return wrong(&format!("exit code {:?} instead of {expected}", ended.code));
        }
        if let Some(prints) = self.prints.as_ref().filter(|prints| ended.stdout != **prints) {
            return wrong(&format!("printed {:?} instead of {prints:?}", ended.stdout));
        }
        if let Some(word) = self.never.iter().find(|word| text.contains(&**word)) {
            return wrong(&format!("misleading: {word}"));
        }
        if self.accepted {
            return (3, String::new());
        }
        let is_json = !TEXT_ONLY.contains(&self.run.as_ref().map_or("validate", |run| run[0].as_str()));
        if let Some(code) = self.code.as_ref().filter(|_| is_json) {
            let report = self.make(&["--output", "json"]).stdout;
            if !report.contains(&format!("\"code\": \"{code}\"")) {
                return wrong(&format!("the code {code} is not in {report}"));
            }
        }
        match (
            text.contains(&self.place),
            !self.fix.is_empty() && text.contains(&self.fix),
        ) {
            (false, _) => (1, format!("the place {:?} is not in\n{text}", self.place)),
            (true, false) => (2, format!("the remedy {:?} is not in\n{text}", self.fix)),
            (true, true) => (3, String::new()),
        }
    }
}

/// Mistakes that are accepted as meant have no message, and no score.
#[test]
fn every_mistake_of_a_newcomer_is_reported_with_its_place_and_remedy() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cli/mistakes.json");
    let mistakes: Vec<Mistake> = serde_json::from_str(&fs::read_to_string(path).expect("readable")).expect("mistakes");
    let numbers: Vec<u32> = mistakes.iter().map(|mistake| mistake.number).collect();
    assert_eq!(numbers, (1..=135).collect::<Vec<_>>());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut scores = Vec::new();
        while let Some(mistake) = mistakes.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            scores.push((mistake, mistake.score()));
        }
        scores
    };
    let scores: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    let low: Vec<String> = scores
        .iter()
        .filter(|(_, (score, _))| *score < 3)
        .map(|(mistake, (score, why))| format!("{} {}: {score}: {why}", mistake.number, mistake.title))
        .collect();
    assert!(
        low.is_empty(),
        "{} of {} are below 3:\n{}",
        low.len(),
        scores.len(),
        low.join("\n")
    );
}
