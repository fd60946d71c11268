//! Scripts with thousands of calls in worker processes: they end within their limits, in proportional time and with bounded memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pirn::script::{ScriptLevel, ScriptPort, ScriptSettings, WorkerProgram};
use pirn::tools::tool_fn;
use pirn::{Engine, Role, RunReport};
use pirn_actors::ports::Scripts;
use serde_json::{Value, json};

use crate::scripts::now;

pub(crate) const TESTS: &[(&str, fn())] = &[
    (
        "scripts with 10,000 calls complete in proportional time and bounded memory",
        complete,
    ),
    (
        "scripts with 10,000 calls end at their limits with a clear error",
        limited,
    ),
];

/// Calls of a script: all at once, or one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Parallel,
    Sequential,
}

fn code(call: &str, order: Order, count: usize) -> String {
    match order {
        Order::Parallel => {
            format!(
                "return (await parallel(Array.from({{ length: {count} }}, () => () => {call}))).filter(Boolean).length"
            )
        }
        Order::Sequential => {
            format!("let n = 0; for (let i = 0; i < {count}; i++) if (await {call}) n++\nreturn n")
        }
    }
}

fn line(id: &str, node: &Value) -> Value {
    json!({
        "id": id,
        "nodes": [{"id": "s", "type": "START"}, node, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": node["id"]}, {"from": node["id"], "to": "e"}],
    })
}

/// A SCRIPT node.
fn script(code: &str, limits: &Value) -> Value {
    let config = json!({"code": code, "profileId": "echo", "tools": ["count"], "limits": limits});
    bundle(&json!({"id": "n", "type": "SCRIPT", "config": config}), &json!([]))
}

/// An LLM node with a model that runs a script by a built-in tool.
fn submitted(tool: &str, argument: &str, code: &str, limits: &Value) -> Value {
    let config = json!({"profileId": "model", "prompt": "go", "tools": [tool, "count"],
        "dynamic": {"profiles": ["echo"], "consent": "auto"}});
    let mut node = json!({"id": "n", "type": "LLM", "config": config});
    if tool == "run_code" {
        node["config"].as_object_mut().expect("an object").remove("dynamic");
        node["config"]["codeLimits"] = limits.clone();
    }
    let call = json!({"id": "c", "name": tool, "arguments": {argument: code}});
    bundle(&node, &json!([{"toolCalls": [call]}, {"content": "done"}]))
}

fn bundle(node: &Value, responses: &Value) -> Value {
    json!({
        "workflows": [line("main", node)],
        "profiles": [
            {"id": "echo", "provider": "echo"},
            {"id": "model", "provider": "scripted", "responses": responses},
        ],
    })
}

/// Resources of a run.
#[derive(Clone, Copy, Debug)]
struct Used {
    time: Duration,
    /// Growth of this process.
    own_kib: u64,
    /// Largest worker process.
    worker_kib: u64,
    threads: usize,
}

/// Executes a run with its scripts in worker processes, and waits until they have ended.
fn play(bundle: &Value) -> (RunReport, Used) {
    let program = WorkerProgram::this_program().expect("a program knows its path");
    let port = Arc::new(ScriptPort::new(ScriptSettings {
        level: ScriptLevel::Process(program),
        ..ScriptSettings::default()
    }));
    let count = tool_fn("count", "Counts.", json!({"type": "object"}), |_: Value| {
        std::future::ready(Ok::<_, String>("1".to_owned()))
    });
    let engine = Engine::builder()
        .virtual_time(Some(7))
        .workflows(bundle.to_string())
        .scripts(Arc::clone(&port))
        .tool(count)
        .build();
    let engine = engine.unwrap_or_else(|error| panic!("{error}"));
    let before = resident_kib("self");
    let memory = Memory::watch();
    let begin = now();
    let run = engine.run("main").start().expect("starts");
    let report = (*run.outcome_blocking()).clone();
    let time = begin.elapsed();
    let (own, worker_kib) = memory.stop();
    run.wait_all_ended_blocking();
    assert_eq!(port.stats().live_scripts, 0, "the script is released");
    let ended = engine.shutdown_blocking(Duration::from_secs(5));
    assert_eq!((ended.runs_cancelled, ended.runs_left), (0, 0));
    drop((engine, run, port));
    let used = Used {
        time,
        own_kib: own.saturating_sub(before),
        worker_kib,
        threads: report.threads.len(),
    };
    let patience = now();
    while !workers().is_empty() {
        assert!(patience.elapsed() < Duration::from_secs(10), "the workers are stopped");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    (report, used)
}

/// Samples the memory of this process and of its workers until it is stopped.
struct Memory {
    is_over: Arc<AtomicBool>,
    peaks: Arc<[AtomicU64; 2]>,
    thread: std::thread::JoinHandle<()>,
}

impl Memory {
    fn watch() -> Self {
        let (is_over, peaks) = <(Arc<AtomicBool>, Arc<[AtomicU64; 2]>)>::default();
        let (over, largest) = (Arc::clone(&is_over), Arc::clone(&peaks));
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                largest[0].fetch_max(resident_kib("self"), Ordering::Relaxed);
                let workers = workers().into_iter().map(|id| resident_kib(&id));
                largest[1].fetch_max(workers.max().unwrap_or_default(), Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(20));
            }
        });
        Self { is_over, peaks, thread }
    }

    fn stop(self) -> (u64, u64) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().expect("no panic");
        let peak = |at: usize| self.peaks[at].load(Ordering::Relaxed);
        (peak(0), peak(1))
    }
}

/// Resident memory of a process; 0 if it has ended.
fn resident_kib(id: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_default()
}

/// The ids of the processes that this one has started and that have not ended.
fn workers() -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name of the program is in parentheses; state and parent follow it.
        let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
        if fields.next().is_some_and(|state| state != "Z") && fields.next() == Some(&own) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

/// Returns the result of a script: the output of the run, or the result that the model received.
fn result(report: &RunReport) -> String {
    let mut messages = report.conversation.messages.iter();
    let of_tool = messages.find(|message| message.role == Role::Tool);
    match (of_tool, &report.error) {
        (Some(message), _) => message.content.as_str().to_owned(),
        (None, Some(error)) => error.to_string(),
        (None, None) => report.output.to_string(),
    }
}

fn complete() {
    let many = 30_000;
    let limits = json!({"agents": many, "calls": many, "resultBytes": 1 << 30});
    let code_limits = json!({"calls": many, "resultBytes": 1 << 30});
    for order in [Order::Sequential, Order::Parallel] {
        for kind in ["agents", "tools", "run_code"] {
            let measured = [1_000, 10_000].map(|count| {
                let bundle = match kind {
                    "agents" => script(&code("agent('a')", order, count), &limits),
                    "tools" => script(&code("tool('count', {})", order, count), &limits),
                    _ => submitted("run_code", "code", &code("tools.count({})", order, count), &code_limits),
                };
                let (report, used) = play(&bundle);
                assert_eq!(result(&report), count.to_string(), "{kind} {order:?}");
                assert_eq!(used.threads > count, kind == "agents");
                used
            });
            println!("{kind}, {order:?}: {measured:?}");
            let [few, many] = measured;
            let most = few.time * 30 + Duration::from_secs(1);
            assert!(many.time < most, "{kind} {order:?}: {measured:?}");
            assert!(many.worker_kib < 128 << 10, "{kind} {order:?}: {measured:?}");
            assert!(many.own_kib < 64 << 10, "{kind} {order:?}: {measured:?}");
        }
    }
}

fn limited() {
    let count = 10_000;
    for order in [Order::Sequential, Order::Parallel] {
        let agents = code("agent('a')", order, count);
        let sleeps = code("sleep(1)", order, 20_000);
        let tools = code("tools.count({})", order, count);
        // The worker process refuses more calls than the limit in one step, before they are counted as agents.
        let of_submitted = match order {
            Order::Sequential => "more than 100 agents",
            Order::Parallel => "more than 1000 calls",
        };
        let cases = [
            (script(&agents, &json!({})), "more than 100 agents"),
            (script(&sleeps, &json!({"calls": 5_000})), "more than 5000 calls"),
            (
                script(&code("tool('count', {})", order, 20_000), &json!({"calls": 5_000})),
                "more than 5000 calls",
            ),
            (
                submitted("run_code", "code", &tools, &json!({})),
                "more than 1000 calls",
            ),
            (submitted("run_workflow", "script", &agents, &json!({})), of_submitted),
            (
                submitted("run_workflow", "script", &sleeps, &json!({})),
                "more than 1000 calls",
            ),
        ];
        for (bundle, expected) in cases {
            let (report, used) = play(&bundle);
            let result = result(&report);
            println!("{order:?}: {used:?}: {result}");
            assert!(result.contains(expected), "{result}");
            assert!(report.threads.iter().all(|thread| thread.status.is_final()));
            assert!(used.threads <= 102, "{used:?}");
            assert!(used.time < Duration::from_mins(1), "{used:?}");
            assert!(used.worker_kib < 128 << 10 && used.own_kib < 64 << 10, "{used:?}");
        }
    }
}
