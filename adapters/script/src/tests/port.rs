//! Tests of the port through which engines run CODE.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use pirn_actors::ports::{ScriptAnswer, ScriptEnd, ScriptHandle, ScriptJob, Scripts};
use pirn_definition::definition::WorkflowConfig;
use pirn_definition::error::RunError;
use pirn_definition::graph::{Graph, Snippet, SnippetKind};

use super::*;
use crate::{CodeLimits, HostFunctions, ScriptPort, ScriptSettings, evaluator};

type Answers = Receiver<Result<Arc<Value>, RunError>>;

fn graph(code: &str) -> Arc<Graph> {
    Arc::new(Graph {
        workflow_id: "w".into(),
        about: pirn_definition::graph::About::default(),
        source: None,
        uid: u64::MAX,
        nodes: Vec::new(),
        start: 0,
        triggered: false,
        snippets: vec![Snippet {
            kind: SnippetKind::Code,
            source: code.into(),
        }],
        forks: Vec::new(),
        variables: Vec::new(),
        reducers: std::collections::BTreeMap::new(),
        awaited_events: Vec::new(),
        variable_names: Arc::default(),
        triggers: Vec::new(),
        config: WorkflowConfig::default(),
        by_id: std::collections::BTreeMap::new(),
    })
}

/// A port with a time limit that a busy machine does not reach.
fn port() -> ScriptPort {
    ScriptPort::new(patient_settings())
}

fn patient_settings() -> ScriptSettings {
    ScriptSettings {
        code: CodeLimits {
            time: Duration::from_mins(1),
            ..CodeLimits::default()
        },
        ..ScriptSettings::default()
    }
}

fn start(port: &ScriptPort, code: &str, scope: &ScopeValues) -> (ScriptHandle, Answers) {
    start_of(port, "run", code, scope)
}

fn start_of(port: &ScriptPort, run_id: &str, code: &str, scope: &ScopeValues) -> (ScriptHandle, Answers) {
    let (told, heard) = channel();
    let answer: ScriptAnswer = Box::new(move |end: ScriptEnd| told.send(end.result).unwrap_or(()));
    let job = ScriptJob {
        graph: &graph(code),
        code: 0,
        input: Arc::new(json!({"of": "the node"})),
        scope,
        run_id: &Arc::from(run_id),
        seed: None,
        state: None,
    };
    (port.run(job, answer), heard)
}

fn answered(port: &ScriptPort, code: &str, variables: &Value) -> Result<Value, RunError> {
    let scope = scope(variables, &json!("of the thread"));
    let (_handle, heard) = start(port, code, &scope);
    let answer = heard.recv().expect("it is answered");
    assert!(heard.recv().is_err(), "answered once");
    answer.map(|value| value.as_ref().clone())
}

#[test]
fn a_job_sees_the_input_of_the_node_and_the_scope() {
    let variables = json!({"n": 2});
    let code = "return [input.of, n]";
    let expected = json!(["the node", 2]);
    assert_eq!(answered(&port(), code, &variables), Ok(expected.clone()));

    let port = port();
    let (_handle, heard) = start(&port, code, &scope(&variables, &json!(0)));
    assert_eq!(heard.recv().unwrap(), Ok(Arc::new(expected)));
}

#[test]
fn an_error_from_a_job_has_its_original_code() {
    let error = answered(&port(), "throw new Error('no')", &json!({})).unwrap_err();
    assert_eq!(error.code, RunErrorCode::ScriptError);
}

#[test]
fn dropping_the_handle_stops_the_script() {
    let port = port();
    let (handle, heard) = start(&port, "for (;;) {}", &ScopeValues::default());
    drop(handle);
    assert_eq!(heard.recv().unwrap().unwrap_err().code, RunErrorCode::Cancelled);
}

/// A function that blocks its script until the gate is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn functions(&self) -> HostFunctions {
        let gate = Arc::clone(&self.0);
        HostFunctions::default().with("hold", move |_| {
            let open = gate.0.lock().unwrap();
            drop(gate.1.wait_while(open, |open| !*open).unwrap());
            Ok(json!("held"))
        })
    }
}

fn code_of(error: &Result<Arc<Value>, RunError>) -> Option<RunErrorCode> {
    error.as_ref().err().map(|error| error.code)
}

#[test]
fn too_many_waiting_jobs_are_refused_and_every_job_is_answered_once() {
    let gate = Gate::default();
    let settings = ScriptSettings {
        threads: 3,
        max_waiting: 1,
        ..patient_settings()
    };
    let port = ScriptPort::new(settings).with_functions(gate.functions());
    // The run may use all threads but one, and one job may wait: of two further jobs, one must be refused.
    let jobs: Vec<_> = (0..5)
        .map(|_| start(&port, "return hold()", &ScopeValues::default()))
        .collect();
    gate.open();
    let ended: Vec<_> = jobs.iter().map(|(_, heard)| heard.recv().unwrap()).collect();
    let refused = ended.iter().filter_map(code_of).collect::<Vec<_>>();
    assert!(
        !refused.is_empty() && refused.iter().all(|code| *code == RunErrorCode::Overloaded),
        "{refused:?}"
    );
    assert!(jobs.iter().all(|(_, heard)| heard.recv().is_err()), "answered once");
    assert_eq!(port.stats().refused, refused.len() as u64);
}

#[test]
fn no_run_occupies_all_threads() {
    let gate = Gate::default();
    let settings = ScriptSettings {
        threads: 3,
        ..patient_settings()
    };
    let port = ScriptPort::new(settings).with_functions(gate.functions());
    let greedy: Vec<_> = (0..1000)
        .map(|_| start_of(&port, "greedy", "return hold()", &ScopeValues::default()))
        .collect();
    // Scripts of other runs are answered while the greedy run uses its maximum and has hundreds waiting.
    for n in 0..20 {
        let (_handle, heard) = start_of(&port, "modest", &format!("return {n}"), &ScopeValues::default());
        assert_eq!(heard.recv().unwrap(), Ok(Arc::new(json!(n))));
    }
    assert_eq!(port.stats().running, 2);
    gate.open();
    assert!(
        greedy.iter().all(|(_, heard)| heard.recv().unwrap().is_ok()),
        "each had its turn"
    );
}

#[test]
fn a_job_cancelled_while_queued_never_runs() {
    let gate = Gate::default();
    let settings = ScriptSettings {
        threads: 1,
        ..patient_settings()
    };
    let port = ScriptPort::new(settings).with_functions(gate.functions());
    let (_first, first) = start(&port, "return hold()", &ScopeValues::default());
    let (second, told) = start(&port, "return 2", &ScopeValues::default());
    drop(second);
    assert_eq!(code_of(&told.recv().unwrap()), Some(RunErrorCode::Cancelled));
    gate.open();
    assert!(first.recv().unwrap().is_ok());
}

/// A port with short limits. Its `stick()` does not return until the gate opens: a built-in function that never polls the time
/// limit.
fn port_with_short_time_limit(gate: &Gate, max_stuck: usize) -> ScriptPort {
    let settings = ScriptSettings {
        threads: 2,
        max_stuck,
        code: CodeLimits {
            time: Duration::from_millis(50),
            ..CodeLimits::default()
        },
        ..ScriptSettings::default()
    };
    ScriptPort::new(settings).with_functions(gate.functions())
}

#[test]
fn a_stuck_script_times_out_and_its_thread_is_replaced() {
    let gate = Gate::default();
    let port = port_with_short_time_limit(&gate, 2);
    for run in ["a", "b"] {
        let (_handle, heard) = start_of(&port, run, "return hold()", &ScopeValues::default());
        assert_eq!(code_of(&heard.recv().unwrap()), Some(RunErrorCode::ScriptLimitExceeded));
    }
    // Answered by a thread other than the two.
    let (_handle, heard) = start_of(&port, "c", "return 1", &ScopeValues::default());
    assert_eq!(heard.recv().unwrap(), Ok(Arc::new(json!(1))));
    while port.stats().stuck < 2 {
        std::thread::yield_now();
    }
    let stats = port.stats();
    assert_eq!((stats.stuck, stats.given_up, stats.refused), (2, 2, 0));
    gate.open();
}

#[test]
fn too_many_stuck_scripts_refuse_all_jobs_until_one_returns() {
    let gate = Gate::default();
    let port = port_with_short_time_limit(&gate, 0);
    let (_stuck, heard) = start_of(&port, "a", "return hold()", &ScopeValues::default());
    assert_eq!(code_of(&heard.recv().unwrap()), Some(RunErrorCode::ScriptLimitExceeded));
    // Jobs that wait when the thread is abandoned, and later jobs.
    while port.stats().stuck == 0 {
        std::thread::yield_now();
    }
    let (_handle, heard) = start_of(&port, "b", "return 1", &ScopeValues::default());
    assert_eq!(code_of(&heard.recv().unwrap()), Some(RunErrorCode::Overloaded));
    gate.open();
    while port.stats().stuck > 0 {
        std::thread::yield_now();
    }
    let (_handle, heard) = start_of(&port, "b", "return 1", &ScopeValues::default());
    assert_eq!(heard.recv().unwrap(), Ok(Arc::new(json!(1))));
}

#[test]
fn dropping_the_port_does_not_wait_for_a_stuck_script() {
    let gate = Gate::default();
    let port = port_with_short_time_limit(&gate, 2);
    let (_stuck, heard) = start(&port, "return hold()", &ScopeValues::default());
    let (_waiting, told) = start(&port, "return hold()", &ScopeValues::default());
    assert!(heard.recv().unwrap().is_err());
    drop(port);
    assert!(told.recv().unwrap().is_err(), "whoever waits is told");
    gate.open();
}

/// Starts a script with a callback that panics.
fn start_with_panicking_callback(port: &ScriptPort, code: &str) -> ScriptHandle {
    let job = ScriptJob {
        graph: &graph(code),
        code: 0,
        input: Arc::default(),
        scope: &ScopeValues::default(),
        run_id: &Arc::from("run"),
        seed: None,
        state: None,
    };
    port.run(job, Box::new(|_| panic!("a bug of the host")))
}

#[test]
fn a_panicking_callback_does_not_end_its_thread() {
    let port = port();
    let _handle = start_with_panicking_callback(&port, "return 1");
    for _ in 0..10 {
        let (_handle, heard) = start(&port, "return 1", &ScopeValues::default());
        assert!(heard.recv().unwrap().is_ok());
    }
}

#[test]
fn a_panicking_callback_does_not_end_the_watchdog() {
    let gate = Gate::default();
    let port = port_with_short_time_limit(&gate, 2);
    let _first = start_with_panicking_callback(&port, "return hold()");
    while port.stats().stuck == 0 {
        std::thread::yield_now();
    }
    let (_second, heard) = start(&port, "return hold()", &ScopeValues::default());
    assert_eq!(code_of(&heard.recv().unwrap()), Some(RunErrorCode::ScriptLimitExceeded));
    gate.open();
}

fn messages(count: usize) -> Value {
    let all = (0..count).map(|n| json!({"role": if n % 2 == 0 { "user" } else { "assistant" }, "content": format!("The storm hit bridge {n} again. Engineers came.")}));
    all.collect()
}

#[test]
fn compress_messages_accepts_a_context_or_its_parts() {
    let config = json!({"strategy": "keep_recent", "parameters": {"count": 2}});
    let context = json!({"messages": messages(6), "markMap": null, "compressionConfig": config, "tokensUsed": 9, "triggerId": "t"});
    let variables = json!({ "compressionContext": context });
    let whole = answered(&port(), "return compressMessages(compressionContext)", &variables).unwrap();
    let parts = answered(
        &port(),
        "const { messages, markMap, compressionConfig } = compressionContext;
         return await compressMessages(messages, markMap, compressionConfig);",
        &variables,
    );
    assert_eq!(parts, Ok(whole.clone()));
    assert_eq!(
        (&whole["stats"]["originalCount"], &whole["stats"]["compressedCount"]),
        (&json!(6), &json!(2))
    );
    assert_eq!(whole["messages"][1]["content"], messages(6)[5]["content"]);

    let none = answered(
        &port(),
        "return compressMessages(compressionContext.messages)",
        &variables,
    )
    .unwrap();
    assert_eq!(none["messages"].as_array().unwrap().len(), 6);
}

#[test]
fn compress_messages_summarizes_without_a_model() {
    let variables = json!({"all": messages(12)});
    let code = "return compressMessages(all, undefined, {strategy: 'summarize', parameters: {keepRecent: 2}})";
    let result = answered(&port(), code, &variables).unwrap();
    let shown = result["messages"].as_array().unwrap();
    assert_eq!(shown.len(), 3, "{result}");
    assert!(
        shown[0]["content"]
            .as_str()
            .unwrap()
            .starts_with("[Quoted from 10 earlier messages]"),
        "{result}"
    );
    assert_eq!(shown[0]["metadata"]["summaryOf"]["count"], json!(10));
    assert_eq!(answered(&port(), code, &variables), Ok(result));
}

#[test]
fn compress_messages_names_the_fault_of_its_arguments() {
    for (call, part) in [
        ("compressMessages()", "CompressionContext"),
        ("compressMessages('x')", "CompressionContext"),
        ("compressMessages({})", "no `messages`"),
        ("compressMessages([{role: 'nobody'}])", "nobody"),
        ("compressMessages([], {currentBatch: 5, batchBoundaries: [9]})", ""),
        (
            "compressMessages([], null, {strategy: 'keep_recent', parameters: {count: 'x'}})",
            "count",
        ),
    ] {
        let error = answered(&port(), &format!("return {call}"), &json!({})).expect_err(call);
        assert!(
            error.code == RunErrorCode::ScriptError && error.message.contains(part),
            "{call}: {error}"
        );
    }
}

#[test]
fn an_inline_evaluator_defers_expressions_that_may_take_long() {
    let scope = scope(&json!({"n": 20, "list": [1]}), &json!(null));
    let mut evaluator = evaluator();
    let value = evaluator.value_of("n * 2 + 2", &scope);
    assert_eq!(value.map(|value| value.as_ref().clone()), Ok(json!(42)));
    assert_eq!(evaluator.text_of("{{n}}!", &scope).as_deref(), Ok("20!"));
    for later in ["list.map(x => x)", "n ** 2", "'a'.repeat(n)", "list + 1"] {
        assert_eq!(evaluator.value_of(later, &scope), Err(Unevaluated::Later), "{later}");
        assert_eq!(evaluator.truth_of(later, &scope), Err(Unevaluated::Later), "{later}");
    }
    assert_eq!(evaluator.text_of("{{#if n}}x{{/if}}", &scope), Err(Unevaluated::Later));
}
