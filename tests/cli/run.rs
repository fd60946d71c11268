//! `pirn run`.

use std::io::{BufRead, BufReader, Read};
use std::process::Command;

use serde_json::{Value, json};

use crate::command::{pirn, pirn_with, start};

const REVIEW: &[&str] = &["run", "../examples/support-fork.json", "../examples/topic-of.json"];

fn review(more: &[&str]) -> crate::command::Ended {
    pirn(&[REVIEW, &["--input", r#"{"ticket": "Never! My refund!"}"#], more].concat())
}

/// A workflow in a separate file, which is removed at the end of the test.
struct Workflow {
    path: std::path::PathBuf,
}

impl Workflow {
    fn new(name: &str, workflow: &Value) -> Self {
        let path = std::env::temp_dir().join(format!("pirn-run-{name}-{}.json", std::process::id()));
        std::fs::write(&path, workflow.to_string()).expect("writable");
        Self { path }
    }
    fn path(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }
}

impl Drop for Workflow {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).unwrap_or(());
    }
}

fn nap(seconds: f64) -> Value {
    json!({"id": "nap", "nodes": [
        {"id": "s", "type": "START"}, {"id": "w", "type": "WAIT", "config": {"seconds": seconds}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]})
}

#[test]
fn the_result_is_on_stdout_and_progress_on_stderr() {
    let ended = review(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.json()["topic"], "refund");
    for line in [
        "review: started",
        "forks into 2 branches: tone, topic",
        "branch tone: completed in ",
        "joined by ALL_COMPLETED: 2 of 2 completed",
        "review completed in ",
        ": 4 threads (1 main, 2 branches, 1 called; 4 completed); 28 tokens (14 in, 14 out)",
    ] {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
    assert_eq!(review(&["--quiet"]).stderr, "");
}

#[test]
fn json_output_has_every_field_of_the_contract() {
    let report = review(&["--output", "json"]).json();
    for field in [
        "runId",
        "threadId",
        "workflowId",
        "status",
        "output",
        "variables",
        "conversation",
        "tokens",
        "nodes",
        "threads",
        "elapsedMs",
    ] {
        assert!(report.get(field).is_some(), "{field}: {report:#}");
    }
    assert_eq!(report["status"], "COMPLETED");
    assert_eq!(report["variables"]["threshold"], 10);
    assert_eq!(
        report["nodes"][0],
        json!({"nodeId": "start", "status": "COMPLETED", "attempts": 1})
    );
    assert!(report["conversation"]["markMap"]["batchBoundaries"].is_array());
    let kinds: Vec<&Value> = report["threads"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|thread| &thread["kind"])
        .collect();
    assert_eq!(kinds, ["main", "branch", "branch", "subgraph"]);
}

#[test]
fn input_is_read_from_the_command_line_a_file_or_stdin() {
    let input = Workflow::new("input", &json!({"ticket": "login"}));
    let from_file = pirn(&[REVIEW, &["--input", &format!("@{}", input.path())]].concat());
    let from_stdin = pirn_with(br#"{"ticket": "login"}"#, &[REVIEW, &["--input", "-"]].concat());
    assert_eq!(from_file.json()["topic"], "login");
    assert_eq!(from_file.stdout, from_stdin.stdout);
}

#[test]
fn a_failed_run_reports_its_error_and_exits_1() {
    let text = pirn(&["run", "../examples/topic-of.json", "--input", "{}"]);
    assert_eq!((text.code, text.stdout.as_str()), (Some(1), ""));
    assert!(
        text.stderr.contains("the run ended FAILED: SCRIPT_ERROR"),
        "{}",
        text.stderr
    );
    let json = pirn(&["run", "../examples/topic-of.json", "--input", "{}", "--output", "json"]);
    assert_eq!(json.code, Some(1));
    assert_eq!(json.json()["error"]["code"], "SCRIPT_ERROR");
    assert_eq!(json.json()["error"]["nodeId"], "pick");
}

#[test]
fn the_error_of_a_run_is_shown_once_in_the_progress_and_once_at_the_end() {
    let script = json!({"code": "throw new Error(['no', 'luck'].join(' '))"});
    let inner = json!({"id": "inner", "nodes": [{"id": "s", "type": "START"}, {"id": "c", "type": "CODE", "config": script},
        {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "c"}, {"from": "c", "to": "e"}]});
    let outer = json!({"id": "outer", "nodes": [{"id": "s", "type": "START"},
        {"id": "call", "type": "SUBGRAPH", "config": {"subgraphId": "inner"}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "call"}, {"from": "call", "to": "e"}]});
    let alone = Workflow::new("fails-alone", &inner);
    let called = Workflow::new("fails-called", &json!({"workflows": [outer, inner]}));
    for workflow in [alone, called] {
        let ended = pirn(&["run", workflow.path()]);
        assert_eq!(ended.code, Some(1));
        let told = |text: &str| ended.stderr.matches(text).count();
        assert_eq!(told("no luck"), 2, "{}", ended.stderr);
        assert!(
            ended.stderr.lines().all(|line| !line.ends_with(" failed")),
            "{}",
            ended.stderr
        );
        let quiet = pirn(&["run", workflow.path(), "--quiet"]);
        assert_eq!(quiet.stderr.matches("no luck").count(), 1, "{}", quiet.stderr);
    }
}

#[test]
fn a_run_that_fails_without_input_shows_a_hint_to_give_it() {
    let ended = pirn(&["run", "../examples/topic-of.json"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("--input"), "{}", ended.stderr);
    let given = pirn(&["run", "../examples/topic-of.json", "--input", "{}"]);
    assert!(!given.stderr.contains("--input"), "{}", given.stderr);
}

#[test]
fn wrong_usage_exits_2_with_one_sentence() {
    for (arguments, words) in [
        (
            &["run", "../examples/none.json"][..],
            "cannot read ../examples/none.json",
        ),
        (
            &["run", "../examples/topic-of.json", "--input", "{"],
            "invalid --input: ",
        ),
        (
            &["run", "../examples/topic-of.json", "--workflow", "other"],
            "there is no workflow other",
        ),
        (
            &["run", "../examples/topic-of.json", "--conversation", "none.json"],
            "cannot read none.json",
        ),
        (&["run"], "FILE"),
    ] {
        let ended = pirn(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

#[test]
fn a_workflow_with_faults_does_not_run() {
    let broken = Workflow::new(
        "broken",
        &json!({"id": "x", "nodes": [{"id": "s", "type": "START"}], "edges": []}),
    );
    let ended = pirn(&["run", broken.path()]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert!(ended.stderr.contains("MISSING_END"), "{}", ended.stderr);
}

#[test]
fn virtual_time_skips_an_hour_and_equal_seeds_give_equal_bytes() {
    let hour = Workflow::new("hour", &nap(3600.0));
    let ended = pirn(&["run", hour.path(), "--virtual-time", "--output", "json"]);
    assert_eq!(ended.json()["elapsedMs"], 3_600_000);
    let once = |name: &str| {
        let events = Workflow::new(name, &Value::Null);
        let report = review(&[
            "--virtual-time",
            "--seed",
            "7",
            "--output",
            "json",
            "--events",
            events.path(),
        ])
        .stdout;
        (report, std::fs::read_to_string(events.path()).expect("written"))
    };
    let (first, second) = (once("events-1"), once("events-2"));
    assert_eq!(first, second);
    let sequences: Vec<u64> = first
        .1
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("JSON")["sequence"]
                .as_u64()
                .expect("a number")
        })
        .collect();
    assert!(sequences.len() > 20);
    assert_eq!(
        sequences,
        (1..=sequences.len() as u64).collect::<Vec<_>>(),
        "gapless from 1"
    );
}

#[test]
fn ctrl_c_cancels_the_run_and_its_report_has_the_completed_nodes() {
    let long = Workflow::new("long", &nap(600.0));
    let mut child = start(&["run", long.path(), "--output", "json"]);
    let mut progress = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    progress.read_line(&mut line).expect("a line");
    assert!(line.ends_with("nap: started\n"), "{line}");
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .expect("kill runs");
    assert!(killed.success());
    let mut text = String::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut text)
        .expect("UTF-8");
    let mut rest = String::new();
    progress.read_to_string(&mut rest).expect("UTF-8");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert_eq!(rest.matches("interrupted").count(), 1, "{rest}");
    let report: Value = serde_json::from_str(&text).expect("a report");
    assert_eq!(report["status"], "CANCELLED");
    assert_eq!(report["error"]["message"], "interrupted");
    assert_eq!(report["nodes"][0]["status"], "COMPLETED");
    assert_eq!(report["nodes"][1]["status"], "CANCELLED");
}

#[test]
fn the_compressions_of_both_design_documents_run() {
    for (folder, compressed) in [
        ("002", "long-talk: compressed from "),
        ("003", "long-talk: compressed from "),
    ] {
        let file = |name: &str| format!("../examples/compression-{folder}/{name}.json");
        let ended = pirn(&[
            "run",
            &file("main"),
            &file(&format!("{folder}-compression-workflow")),
            &file(&format!("{folder}-trigger")),
            "--virtual-time",
        ]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains(compressed), "{folder}: {}", ended.stderr);
    }
}

#[test]
fn a_failed_run_under_virtual_time_prints_its_seed_and_is_reproducible() {
    let ask = Workflow::new(
        "faults",
        &json!({"id": "ask", "nodes": [{"id": "s", "type": "START"},
            {"id": "llm", "type": "LLM", "config": {"prompt": "hello"}}, {"id": "e", "type": "END"}],
            "edges": [{"from": "s", "to": "llm"}, {"from": "llm", "to": "e"}]}),
    );
    let faults = Workflow::new("faults-of", &json!({"faults": {"models": {"*": {"fail": 1.0}}}}));
    let run = || {
        pirn(&[
            "run",
            ask.path(),
            "--virtual-time",
            "--seed",
            "5",
            "--faults",
            faults.path(),
            "--output",
            "json",
        ])
    };
    let first = run();
    assert_eq!(first.code, Some(1));
    assert!(
        first.stderr.contains("to repeat this run: --virtual-time --seed 5"),
        "{}",
        first.stderr
    );
    assert_eq!(first.json()["error"]["code"], "MODEL_ERROR");
    assert_eq!(first.stdout, run().stdout);
}

#[cfg(unix)]
#[test]
fn events_before_a_kill_are_in_the_events_file() {
    let nap = Workflow::new("killed", &nap(3.0));
    let mut child = start(&["run", nap.path(), "--quiet", "--events", "/dev/stdout"]);
    let mut events = BufReader::new(child.stdout.take().expect("piped"));
    let mut said = String::new();
    while !said.contains("NODE_STARTED") {
        assert_ne!(events.read_line(&mut said).expect("text"), 0, "{said}");
    }
    child.kill().expect("it runs");
    events.read_to_string(&mut said).expect("text");
    child.wait().expect("it ends");
    assert!(!said.contains("THREAD_COMPLETED"), "told while it went on: {said}");
}

#[test]
fn a_run_ends_at_its_time_limit() {
    let long = Workflow::new("deadline", &nap(600.0));
    let ended = pirn(&[
        "run",
        long.path(),
        "--timeout",
        "5",
        "--virtual-time",
        "--output",
        "json",
    ]);
    assert_eq!(ended.code, Some(124), "{}", ended.stderr);
    let report = ended.json();
    assert_eq!(
        (&report["status"], &report["elapsedMs"]),
        (&json!("TIMEOUT"), &json!(5000))
    );
    for wrong in ["0", "-1", "soon", "nan"] {
        let ended = pirn(&["run", long.path(), "--timeout", wrong]);
        assert_eq!(ended.code, Some(2), "{wrong}: {}", ended.stderr);
    }
}

/// The counts by kind and by outcome in the last line equal the number of threads and the counts in the report.
#[test]
fn the_counts_in_the_last_line_equal_the_report() {
    let ended = pirn(&[
        "run",
        "../examples/tutorial/3-fork.json",
        "--input",
        "1",
        "--virtual-time",
    ]);
    let last = ended.stderr.lines().last().expect("a line");
    assert!(
        last.contains("fork completed in 0.2 s: 3 threads (1 main, 2 branches; 2 completed, 1 cancelled); "),
        "{last}"
    );
}

#[test]
fn verbose_names_every_node_and_quiet_nothing() {
    let run = |word: &str| {
        pirn(&[
            "run",
            "../examples/tutorial/3-fork.json",
            "--input",
            "1",
            "--virtual-time",
            word,
        ])
        .stderr
    };
    let (verbose, quiet) = (run("--verbose"), run("--quiet"));
    for node in [
        "start (START) started",
        "ask-both (FORK) started",
        "branch fast: fast (LLM) started",
        "end (END) started",
    ] {
        assert!(verbose.contains(node), "{node}: {verbose}");
    }
    assert_eq!(quiet, "");
}

#[test]
fn replies_are_shown_with_the_stream_option() {
    let run = |more: &[&str]| {
        let base = [
            "run",
            "../examples/tutorial/4-compress.json",
            "--input",
            "1",
            "--virtual-time",
        ];
        pirn(&[&base[..], more].concat()).stderr
    };
    assert!(!run(&[]).contains("| "), "no terminal");
    let streamed = run(&["--stream"]);
    assert!(streamed.contains("| It is on its way."), "{streamed}");
    assert!(
        streamed.contains(" characters; --verbose shows them)"),
        "the summary is counted: {streamed}"
    );
    assert!(!run(&["--no-stream"]).contains("| "));
    assert_eq!(pirn(&["run", "x.json", "--stream", "--no-stream"]).code, Some(2));
}

fn asks() -> Value {
    json!({"id": "asks", "nodes": [
        {"id": "s", "type": "START"},
        {"id": "color", "type": "USER_INTERACTION", "config": {"question": "Which color?", "choices": ["red", "blue"]}},
        {"id": "why", "type": "USER_INTERACTION", "config": {"question": "Why {{output.answer}}?", "assignTo": "why"}},
        {"id": "e", "type": "END", "config": {"output": "[nodes.color.answer, why]"}}],
        "edges": [{"from": "s", "to": "color"}, {"from": "color", "to": "why"}, {"from": "why", "to": "e"}]})
}

#[test]
fn questions_are_answered_with_answers_from_the_command_line() {
    let workflow = Workflow::new("answers", &asks());
    let ended = pirn(&[
        "run",
        workflow.path(),
        "--answer",
        "color=blue",
        "--answer",
        "why=I like it",
    ]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(report, json!(["blue", "I like it"]));
    for line in ["asks: Which color?", "answered: blue", "asks: Why blue?"] {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
}

/// An answer also wins against the question's time limit, which the virtual clock could reach at once.
#[test]
fn under_virtual_time_an_answer_precedes_an_advance_of_the_clock() {
    let mut asks = asks();
    for node in asks["nodes"].as_array_mut().expect("nodes") {
        if node["type"] == "USER_INTERACTION" {
            node["config"]["timeoutMs"] = json!(50);
        }
    }
    let workflow = Workflow::new("virtual-answers", &asks);
    let given = ["--answer", "color=blue", "--answer", "why=I like it", "--virtual-time"];
    let ended = pirn(&[&["run", workflow.path(), "--output", "json"][..], &given].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = ended.json();
    assert_eq!(
        (&report["output"], &report["elapsedMs"]),
        (&json!(["blue", "I like it"]), &json!(0))
    );
    let unasked = pirn(&["run", workflow.path(), "--answer", "color=green", "--virtual-time"]);
    assert_eq!(unasked.code, Some(1));
    for line in ["--answer color: invalid answer", "NODE_TIMEOUT"] {
        assert!(unasked.stderr.contains(line), "{line}: {}", unasked.stderr);
    }
}

#[test]
fn without_a_terminal_a_run_names_its_open_question() {
    let workflow = Workflow::new("unanswered", &asks());
    for answer in [&[][..], &["--answer", "color=green"]] {
        let ended = pirn(&[&["run", workflow.path()][..], answer].concat());
        assert_eq!(ended.code, Some(1));
        let refused = "--answer color: invalid answer: expected one of \"red\", \"blue\"";
        assert_eq!(ended.stderr.contains(refused), !answer.is_empty(), "{}", ended.stderr);
        for line in [
            "pirn: node color waits for an answer (there is no terminal): ",
            "help: answer beforehand with --answer color=ANSWER, run on a terminal, or store the run with --store FILE",
        ] {
            assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
        }
        let report = pirn(&[&["run", workflow.path(), "--output", "json"][..], answer].concat());
        assert_eq!(report.code, Some(1));
        let error = &report.json()["error"]["message"];
        assert!(
            error.as_str().is_some_and(|text| text.contains("node color waits")),
            "{error}"
        );
    }
}

#[test]
fn a_schedule_that_cannot_start_its_run_is_reported() {
    let main = json!({"id": "main", "nodes": [
        {"id": "s", "type": "START"}, {"id": "w", "type": "WAIT", "config": {"seconds": 90_000}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]});
    let digest = json!({"id": "digest", "inputSchema": {"type": "object", "required": ["topic"]},
        "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "e"}]});
    let nightly = json!({"id": "nightly", "type": "SCHEDULE", "schedule": {"cron": "0 3 * * *"},
        "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "digest"}}});
    let workflow = Workflow::new(
        "unstarted",
        &json!({"workflows": [main, digest], "triggers": [nightly]}),
    );
    for more in [&[][..], &["--quiet"]] {
        let ended = pirn(&[&["run", workflow.path(), "--virtual-time"][..], more].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        for words in ["pirn: a schedule failed to start its run", "INVALID_INPUT", "nightly"] {
            assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
        }
    }
}

#[test]
fn an_answer_to_a_node_that_asks_nothing_is_refused() {
    let mut asks = asks();
    asks["nodes"][2] = json!({"id": "why", "type": "CODE", "config": {"code": "return 'so'"}});
    asks["nodes"][3]["config"]["output"] = json!("nodes.color.answer");
    let workflow = Workflow::new("answered-code", &asks);
    let ended = pirn(&["run", workflow.path(), "--answer", "why=yes"]);
    assert_eq!(ended.code, Some(2));
    for words in [
        "--answer why=...: the node `why` asks no question",
        "the nodes that ask are color",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    let twice = pirn(&[
        "run",
        workflow.path(),
        "--answer",
        "color=red",
        "--answer",
        "color=blue",
    ]);
    assert_eq!(twice.code, Some(2));
    for words in ["--answer color= is given twice", "give the option once for each node"] {
        assert!(twice.stderr.contains(words), "{words}: {}", twice.stderr);
    }
}

#[test]
fn a_question_with_a_time_limit_needs_no_answer() {
    let mut asks = asks();
    asks["nodes"][1]["config"]["timeoutMs"] = json!(10);
    asks["nodes"][1]["config"]["onTimeout"] = json!("default");
    asks["nodes"][1]["config"]["default"] = json!("red");
    let workflow = Workflow::new("unanswered-default", &asks);
    let ended = pirn(&["run", workflow.path(), "--answer", "why=so"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn an_input_that_violates_the_schema_does_not_start_the_run() {
    let flow = json!({"id": "w", "inputSchema": {"type": "object", "required": ["question"]},
        "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "e"}]});
    let workflow = Workflow::new("input-schema", &flow);
    let ended = pirn(&["run", workflow.path(), "--input", "{\"questio\": 1}"]);
    assert_eq!(ended.code, Some(1));
    for words in [
        "INVALID_INPUT",
        "does not fit `inputSchema` of w",
        "question",
        "--input",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    let fits = pirn(&["run", workflow.path(), "--input", "{\"question\": 1}"]);
    assert_eq!(fits.code, Some(0), "{}", fits.stderr);
}
