//! Scripts in Node and in the script engine: equal programs have equal results and log lines.
//!
//! Messages of built-in errors are not compared: each engine has its own.

use std::io::Write;
use std::process::{Command, Stdio};

use pirn_core::thread::{CallLimits, ScriptState};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;
use crate::CodeJob;

/// The end of a script, and its log lines.
fn run(code: &str) -> Value {
    let calls = CallLimits {
        calls: 1_000,
        agents: 1_000,
    };
    let mut state = ScriptState {
        limits: calls,
        now: Some(0),
        seed: 7,
        ..ScriptState::default()
    };
    let (mut open, mut logs) = (Vec::new(), Vec::new());
    loop {
        let mut job = CodeJob::new(code, &ScopeValues::default());
        job.limits.time = std::time::Duration::from_mins(1);
        job.state = Some(Arc::new(state.clone()));
        let answer = match job.run_inline().result {
            Ok(answer) => answer,
            Err(fault) => return json!({"end": {"failed": fault.message}, "logs": logs}),
        };
        for note in answer["notes"].as_array().into_iter().flatten() {
            state.notes += 1;
            logs.extend((note[0] == "info").then(|| note[1].clone()));
        }
        if let Some(message) = answer["end"]["failed"]["message"].as_str() {
            return json!({"end": {"failed": message}, "logs": logs});
        }
        if !answer["end"].is_null() {
            return json!({"end": answer["end"], "logs": logs});
        }
        for call in answer["calls"].as_array().into_iter().flatten() {
            let number = state.known.len();
            let kind = serde_json::from_value(call["kind"].clone()).expect("a kind");
            state
                .known
                .push_back((kind, call["digest"].as_str().expect("a digest").into()));
            if call["kind"] == "cancel" {
                open.retain(|(number, _)| {
                    !call["args"]
                        .as_array()
                        .is_some_and(|lost| lost.contains(&json!(number)))
                });
            } else {
                open.push((number, call["args"]["prompt"].as_str().unwrap_or_default().to_owned()));
            }
        }
        if open.is_empty() {
            return json!({"end": {"failed": "stuck"}, "logs": logs});
        }
        state.from = state.results.len() + 1;
        let (number, prompt) = open.remove(0);
        let result = if prompt.contains("FAIL") {
            json!({"call": number, "error": {"code": "MODEL_ERROR", "message": format!("no answer to {prompt}")}})
        } else {
            json!({"call": number, "value": format!("re: {prompt}")})
        };
        state.results.push_back(Arc::new(result));
    }
}

/// Returns the ends of the scripts in Node; `None` if it is not installed.
fn in_node(scripts: &[String]) -> Option<Vec<Value>> {
    let program = ["-e", include_str!("node.js")];
    let pipes = || Stdio::piped();
    let node = Command::new("node")
        .args(program)
        .env("TZ", "UTC")
        .stdin(pipes())
        .stdout(pipes())
        .spawn();
    let Ok(mut node) = node else {
        println!("skipped: Node is not installed");
        return None;
    };
    let mut input = node.stdin.take().expect("a pipe");
    input
        .write_all(json!(scripts).to_string().as_bytes())
        .expect("is written");
    drop(input);
    let output = node.wait_with_output().expect("ends");
    Some(serde_json::from_slice(&output.stdout).expect("a list"))
}

fn compare(scripts: &[String]) {
    let Some(ends) = in_node(scripts) else { return };
    assert_eq!(ends.len(), scripts.len());
    let mut differences = Vec::new();
    for (script, expected) in scripts.iter().zip(ends) {
        let actual = run(script);
        if actual != expected {
            differences.push(format!("{script}\n  node: {expected}\n  here: {actual}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn scripts_have_the_results_that_they_have_in_node() {
    let lines = include_str!("node-cases.txt").lines().map(str::trim);
    let scripts: Vec<String> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
    assert!(scripts.len() > 100);
    compare(&scripts);
}

/// Part of a random script.
#[derive(Clone, Debug)]
enum Part {
    Agent(bool),
    Log,
    Throw,
    Later,
    /// A function of the host or of `Promise`, by index, with functions.
    Join(usize, Vec<Vec<Part>>),
    Caught(Vec<Part>),
    Twice(Vec<Part>),
}

const JOINS: [&str; 7] = [
    "parallel",
    "pipeline",
    "any",
    "all",
    "allSettled",
    "race",
    "Promise.any",
];

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let leaf = prop_oneof![
        4 => any::<bool>().prop_map(Part::Agent),
        3 => Just(Part::Log),
        1 => Just(Part::Throw),
        1 => Just(Part::Later),
    ];
    let part = leaf.prop_recursive(4, 24, 3, |inner| {
        let list = prop::collection::vec(inner, 1..4);
        prop_oneof![
            4 => (0..JOINS.len(), prop::collection::vec(list.clone(), 1..4)).prop_map(|(join, all)| Part::Join(join, all)),
            1 => list.clone().prop_map(Part::Caught),
            1 => list.prop_map(Part::Twice),
        ]
    });
    prop::collection::vec(part, 1..5)
}

/// Returns the body of an async function. `next` numbers the prompts and log lines.
fn body(parts: &[Part], next: &mut usize) -> String {
    let line = |part: &Part| {
        *next += 1;
        let number = *next;
        match part {
            Part::Agent(fails) => {
                let fail = if *fails && number.is_multiple_of(3) {
                    "FAIL "
                } else {
                    ""
                };
                format!("all.push(await agent('{fail}a{number}')); ")
            }
            Part::Log => format!("log('l{number}', all.length); "),
            Part::Throw => format!("if (all.length > 1) throw new Error('t{number}'); "),
            Part::Later => format!("await null; log('n{number}'); "),
            Part::Caught(inner) => {
                let inner = body(inner, next);
                format!(
                    "try {{ all.push(await (async () => {{ {inner} }})()); }} catch (error) {{ log('c{number}', error.message); }} finally {{ log('f{number}'); }} "
                )
            }
            Part::Twice(inner) => {
                let inner = body(inner, next);
                format!("for (const one of [1, 2]) all.push(one, await (async () => {{ {inner} }})()); ")
            }
            Part::Join(join, functions) => {
                let functions: Vec<String> = functions.iter().map(|inner| body(inner, next)).collect();
                let list = |call: &str| {
                    let each: Vec<String> = functions
                        .iter()
                        .map(|inner| format!("(async () => {{ {inner} }}){call}"))
                        .collect();
                    format!("[{}]", each.join(", "))
                };
                let settled =
                    "one => one.status + (one.status === 'rejected' ? one.reason.message : JSON.stringify(one.value))";
                let joined = match JOINS[*join] {
                    name @ ("parallel" | "any") => format!("await {name}({})", list("")),
                    "pipeline" => format!("await pipeline([1, 2], ...{})", list("")),
                    "allSettled" => format!("(await Promise.allSettled({})).map({settled})", list("()")),
                    "Promise.any" => {
                        let own = "error => { throw error.errors ? new Error('all') : error }";
                        format!("await Promise.any({}).catch({own})", list("()"))
                    }
                    name => format!("await Promise.{name}({})", list("()")),
                };
                format!("all.push({joined}); log('j{number}'); ")
            }
        }
    };
    let lines: Vec<String> = parts.iter().map(line).collect();
    format!("const all = []; {}return all;", lines.concat())
}

#[test]
fn random_scripts_have_the_results_and_the_order_that_they_have_in_node() {
    let mut runner = TestRunner::deterministic();
    let script = |runner: &mut TestRunner| {
        let parts = parts().new_tree(runner).expect("is generated").current();
        format!(
            "try {{ return await (async () => {{ {} }})() }} catch (error) {{ return error.name + error.message }}",
            body(&parts, &mut 0)
        )
    };
    let scripts: Vec<String> = (0..300).map(|_| script(&mut runner)).collect();
    compare(&scripts);
}
