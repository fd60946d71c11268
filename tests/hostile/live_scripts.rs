//! Script workflows that are cached in worker processes between their steps.

use std::time::Duration;

use pirn::script::{CodeLimits, ScriptLevel, ScriptPort, ScriptSettings, WorkerProgram};
use pirn_actors::ports::Scripts;
use pirn_tests::recorded_script::RecordedScript;
use serde_json::Value;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a script is kept in its worker process between steps", kept),
    ("a script whose worker process is killed is evaluated again", killed),
    ("scripts that take turns in fewer processes have equal answers", crowded),
    ("the time limit applies to all steps of a script in a process", limited),
];

const CODE: &str = "const drawn = []
    for (let i = 0; i < 12; i++) { drawn.push(await agent(`a${i}`), Math.random(), Date.now()); log(i) }
    return drawn";

fn port(live_scripts: usize, time: Duration) -> ScriptPort {
    let program = WorkerProgram::this_program().expect("a program knows its path");
    let code = CodeLimits {
        time,
        ..CodeLimits::default()
    };
    ScriptPort::new(ScriptSettings {
        level: ScriptLevel::Process(program),
        threads: 2,
        code,
        live_scripts,
        ..ScriptSettings::default()
    })
}

const PATIENT: Duration = Duration::from_mins(2);

fn script() -> RecordedScript {
    let limits = CodeLimits {
        time: PATIENT,
        ..CodeLimits::default()
    };
    RecordedScript::new(CODE, limits)
}

/// Makes one step, and checks its answer. Returns the end of the script.
fn step(recorded: &mut RecordedScript, port: &ScriptPort) -> Option<Value> {
    let answer = recorded.step(port);
    assert_eq!(answer, recorded.evaluated());
    let end = recorded.record(&answer.expect("no limit is exceeded"));
    recorded.end_call(0, 1);
    end
}

fn kept() {
    let (port, mut recorded) = (port(4, PATIENT), script());
    while step(&mut recorded, &port).is_none() {}
    let stats = port.stats();
    assert_eq!((stats.evaluated_steps, stats.resumed_steps), (1, 12));
    assert_eq!((stats.delivered_results, stats.live_scripts), (12, 0));
}

fn killed() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let (port, mut recorded) = (port(4, PATIENT), script());
    for at in 0.. {
        if at == 4 || at == 7 {
            assert!(kill_children() > 0, "a process has the script");
        }
        if step(&mut recorded, &port).is_some() {
            break;
        }
    }
    let stats = port.stats();
    assert_eq!((stats.evaluated_steps, stats.resumed_steps), (3, 10));
}

/// Kills the processes that this one has started. Returns their number.
fn kill_children() -> usize {
    let own = std::process::id().to_string();
    let mut killed = 0;
    for entry in std::fs::read_dir("/proc").expect("Linux").flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name of the program is in parentheses; state and parent follow it.
        let Some((_, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let mut fields = rest.split(' ');
        if fields.next() == Some("Z") || fields.next() != Some(&own) {
            continue;
        }
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let child = number.and_then(rustix::process::Pid::from_raw).expect("a process");
        rustix::process::kill_process(child, rustix::process::Signal::KILL).expect("is a child");
        killed += 1;
    }
    killed
}

fn crowded() {
    let port = port(1, PATIENT);
    let mut all = [script(), script(), script()];
    while !all
        .iter_mut()
        .map(|recorded| step(recorded, &port))
        .any(|end| end.is_some())
    {}
    let stats = port.stats();
    assert!(stats.evaluated_steps > 30, "{stats:?}");
    assert!(stats.live_scripts <= 1, "{stats:?}");
}

fn limited() {
    let time = Duration::from_millis(300);
    let limits = CodeLimits {
        time,
        ..CodeLimits::default()
    };
    let port = port(4, time);
    for code in [
        "let n = 0; for (;;) { for (let i = 0; i < 3e5; i++) n += i; await sleep(1) }",
        "await sleep(1); for (;;) {}",
    ] {
        let mut recorded = RecordedScript::new(code, limits);
        let error = loop {
            match recorded.step(&port) {
                Ok(answer) => assert_eq!(recorded.record(&answer), None),
                Err((error, _)) => break error,
            }
            recorded.end_call(0, 1);
            assert!(recorded.state.results.len() < 5_000, "it did not end: {code}");
        };
        assert_eq!(error, pirn::RunErrorCode::ScriptLimitExceeded, "{code}");
    }
}
