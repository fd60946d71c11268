//! Executes scripts on one level, and checks times, answers and the effect on other runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use pirn::RunErrorCode;
use pirn::script::{CodeLimits, ExpressionLimits, ScriptLevel, ScriptPort, ScriptSettings};
use pirn_actors::ports::{ExpectedKind, ScriptJob, Scripts, TextJob, Texts};
use pirn_core::thread::Outcome;
use pirn_definition::definition::{Loaded, SourceFile};
use pirn_definition::graph::{CompileContext, Graph, compile_loaded};
use pirn_definition::script::ScopeValues;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::grammar::{Dice, code, expression};
use crate::known_scripts::{BY_OPERATORS, STUCK};

/// Time limit of a script.
const LIMIT: Duration = Duration::from_millis(100);

/// Bound on the delay of an answer after its time limit.
pub(crate) struct Bounds {
    late: Duration,
}

impl Bounds {
    /// The documented bound.
    pub(crate) const STRICT: Self = Self {
        late: Duration::from_millis(200),
    };
    /// Bound on a machine with other load.
    pub(crate) const BUSY: Self = Self {
        late: Duration::from_secs(10),
    };
}

/// The result.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Report {
    scripts: u64,
    by_code: BTreeMap<String, u64>,
    latest: Duration,
    given_up: u64,
    /// The scripts that did not release their threads.
    stuck: Vec<String>,
    neighbours: Vec<Duration>,
    pub(crate) failures: Vec<String>,
    /// Number of the next script; `None` if all were executed.
    pub(crate) next: Option<u64>,
}

impl Report {
    /// A report before the first script.
    pub(crate) fn of_none() -> Self {
        Self {
            next: Some(0),
            ..Self::default()
        }
    }

    /// Adds the report of the scripts that follow.
    pub(crate) fn and(&mut self, other: Self) {
        self.scripts += other.scripts;
        for (code, count) in other.by_code {
            *self.by_code.entry(code).or_default() += count;
        }
        self.latest = self.latest.max(other.latest);
        self.given_up += other.given_up;
        self.stuck.extend(other.stuck);
        self.neighbours.extend(other.neighbours);
        self.failures.extend(other.failures);
        self.next = other.next;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut neighbours = self.neighbours.clone();
        neighbours.sort_unstable();
        let at = |part: usize| {
            neighbours
                .get(neighbours.len() * part / 100)
                .copied()
                .unwrap_or_default()
        };
        write!(
            f,
            "{} scripts {:?}, {} threads given up for {:?}; the latest answer came {:?} after its limit; {} neighbours' scripts took {:?} (half), {:?} (99 %)",
            self.scripts,
            self.by_code,
            self.given_up,
            self.stuck,
            self.latest.saturating_sub(LIMIT),
            neighbours.len(),
            at(50),
            at(99),
        )
    }
}

/// Executes the known scripts and `count` generated ones, starting at number `from`, until the port has reached its limit of stuck
/// threads, after which it refuses every script.
pub(crate) fn play(level: &ScriptLevel, seed: u64, (from, count): (u64, u64), bounds: &Bounds) -> Report {
    let settings = ScriptSettings::default();
    let most_stuck = settings.max_stuck;
    let port = Arc::new(ScriptPort::new(ScriptSettings {
        level: level.clone(),
        code: CodeLimits {
            time: LIMIT,
            ..CodeLimits::default()
        },
        expressions: ExpressionLimits {
            time: LIMIT,
            ..ExpressionLimits::default()
        },
        ..settings
    }));
    let neighbour = Neighbour::start(&port);
    let mut report = Report::default();
    let mut dice = Dice::new(seed);
    let known: Vec<&str> = STUCK.iter().chain(BY_OPERATORS).copied().collect();
    for n in 0..known.len() as u64 + count {
        let (text, body) = if let Some(known) = known.get(n as usize) {
            ((*known).to_owned(), None)
        } else {
            let made = expression(&mut dice, 1 + n as usize % 3);
            let body = (n % 2 == 1).then(|| code(&mut dice, &made));
            (made, body)
        };
        if n < from {
            continue;
        }
        let before = port.stats();
        if before.stuck >= most_stuck {
            report.next = Some(n);
            break;
        }
        let code = script(&port, n, &text, body.as_deref(), bounds, &mut report);
        if BY_OPERATORS.contains(&&*text) && code != Some(RunErrorCode::ScriptLimitExceeded) {
            report.failures.push(format!("it ended with {code:?}: {text}"));
        }
        if port.stats().given_up > before.given_up {
            report.stuck.push(body.unwrap_or(text));
        }
    }
    report.given_up = port.stats().given_up;
    report.neighbours = neighbour.stop(&mut report.failures);
    report
}

const CANARY: &str = "canary-";

/// The canary of a script; all have one length.
fn canary(n: u64) -> String {
    format!("{CANARY}{:016x}", n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Executes a script with a unique canary in its input, output and variables.
fn script(
    port: &ScriptPort,
    n: u64,
    expression: &str,
    code: Option<&str>,
    bounds: &Bounds,
    report: &mut Report,
) -> Option<RunErrorCode> {
    // A script may change its canary, but not into that of another script.
    let canary = canary(n);
    let own = Arc::new(json!({ "secret": canary }));
    let scope = ScopeValues {
        input: Arc::clone(&own),
        output: Arc::new(json!(canary)),
        variables: [("own".into(), Arc::new(json!(canary)))].into(),
        ..ScopeValues::default()
    };
    let (tell, told) = mpsc::channel();
    let begin = now();
    let run_id = Arc::<str>::from("hostile");
    let _handle = match code {
        Some(code) => port.run(
            ScriptJob {
                graph: &graph(code),
                code: 0,
                input: own,
                scope: &scope,
                run_id: &run_id,
                seed: None,
                state: None,
            },
            Box::new(move |end| tell.send(end.result).unwrap_or(())),
        ),
        None => port.evaluate(
            job(&run_id, expression, scope),
            Box::new(move |outcome| tell.send(value(outcome)).unwrap_or(())),
        ),
    };
    let shown = code.unwrap_or(expression);
    report.scripts += 1;
    let Ok(result) = told.recv_timeout(LIMIT + Duration::from_mins(1)) else {
        report.failures.push(format!("no answer: {shown}"));
        return None;
    };
    let took = begin.elapsed();
    report.latest = report.latest.max(took);
    if took > LIMIT + bounds.late {
        report.failures.push(format!("answered after {took:?}: {shown}"));
    }
    let code = result.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok");
    *report.by_code.entry(code.to_owned()).or_default() += 1;
    let known = [
        RunErrorCode::ScriptError,
        RunErrorCode::UnknownName,
        RunErrorCode::ScriptLimitExceeded,
        RunErrorCode::Overloaded,
    ];
    if result.as_ref().is_err_and(|error| !known.contains(&error.code)) {
        report
            .failures
            .push(format!("an unexpected error, {result:?}: {shown}"));
    }
    let seen = format!("{result:?}");
    let is_issued = |text: &str| text != canary && (0..n).any(|other| text == self::canary(other));
    let mut others = seen
        .match_indices(CANARY)
        .filter_map(|(at, _)| seen.get(at..at + canary.len()));
    if others.any(is_issued) {
        report.failures.push(format!("it saw what another was given: {shown}"));
    }
    result.err().map(|error| error.code)
}

pub(crate) fn job(run_id: &Arc<str>, source: &str, scope: ScopeValues) -> TextJob {
    TextJob {
        run_id: Arc::clone(run_id),
        texts: Texts::OfEvent {
            source: source.into(),
            want: ExpectedKind::Value,
            scope: Box::new(scope),
        },
    }
}

pub(crate) fn value(outcome: Outcome) -> Result<Arc<Value>, pirn::RunError> {
    match outcome {
        Outcome::Value(value) => Ok(value),
        Outcome::Failed(error) => Err(error),
        other => panic!("not the outcome of an expression: {other:?}"),
    }
}

/// Returns the graph of one CODE node, without checking its text.
fn graph(code: &str) -> Arc<Graph> {
    let text = json!({
        "id": "w",
        "nodes": [{"id": "s", "type": "START"}, {"id": "c", "type": "CODE", "config": {"code": code}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "c"}, {"from": "c", "to": "e"}],
    });
    let loaded = Loaded::of(&[SourceFile::new("w".to_owned(), text.to_string())]);
    let compiled = compile_loaded(&loaded, &CompileContext::default());
    Arc::clone(
        compiled
            .graphs
            .first()
            .unwrap_or_else(|| panic!("{:?}: {code}", compiled.faults)),
    )
}

/// A concurrent run with short and harmless scripts.
struct Neighbour {
    is_over: Arc<AtomicBool>,
    took: Arc<Mutex<(Vec<Duration>, Vec<String>)>>,
    thread: std::thread::JoinHandle<()>,
}

impl Neighbour {
    fn start(port: &Arc<ScriptPort>) -> Self {
        let (is_over, took) = <(Arc<AtomicBool>, Arc<Mutex<(Vec<Duration>, Vec<String>)>>)>::default();
        let (port, over, times) = (Arc::clone(port), Arc::clone(&is_over), Arc::clone(&took));
        let thread = std::thread::spawn(move || {
            let run_id = Arc::<str>::from("neighbour");
            for n in 0_u64.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let begin = now();
                let outcome = port.evaluate_here(job(
                    &run_id,
                    &format!("[{n}].map(x => x + 1)[0]"),
                    ScopeValues::default(),
                ));
                let took = begin.elapsed();
                let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
                times.0.push(took);
                let result = value(outcome);
                let is_refused = result
                    .as_ref()
                    .is_err_and(|error| error.code == RunErrorCode::Overloaded);
                if !is_refused && result.as_ref().ok().map(|value| (**value).clone()) != Some(json!(n + 1)) {
                    times.1.push(format!("the neighbour's script {n} gave {result:?}"));
                }
                drop(times);
                std::thread::park_timeout(Duration::from_millis(2));
            }
        });
        Self { is_over, took, thread }
    }

    fn stop(self, failures: &mut Vec<String>) -> Vec<Duration> {
        self.is_over.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            failures.push("the neighbour panicked".to_owned());
        }
        let mut took = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        failures.append(&mut took.1);
        std::mem::take(&mut took.0)
    }
}

#[allow(clippy::disallowed_methods)] // the promise is about real time
pub(crate) fn now() -> Instant {
    Instant::now()
}
