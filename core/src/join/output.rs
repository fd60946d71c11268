//! What a JOIN gives its parent: the output, or the error.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::path::PathStatus;
use super::rule::Verdict;
use crate::definition::JoinStrategy;
use crate::error::{RunError, RunErrorCode};
use crate::graph::{Fork, ForkIx, Graph, JoinRule};
use crate::thread::{Output, ThreadId};
use crate::value::{MAX_LEVELS, levels, too_deep};

/// How many paths an error's sentence names; its details always list every one.
const NAMED_IN_MESSAGE: usize = 8;

/// One path as its join found it. Lists of reports are in path order, and hold every path of the fork.
#[derive(Clone, Copy, Debug)]
pub struct PathReport<'a> {
    /// The user's id.
    pub path_id: &'a str,
    /// Its status, from [`ForkJoinMachine::paths`](super::ForkJoinMachine::paths).
    pub status: PathStatus,
    /// The thread that ran it; none if it was never started.
    pub thread_id: Option<&'a str>,
    /// Its last node's output, where it completed.
    pub output: Option<&'a Value>,
    /// Why it failed, where it did.
    pub error: Option<&'a RunError>,
}

/// The output of a JOIN, of the same shape whatever the number of paths:
/// `{strategy, outputs:{pathId: output}, completed:[pathId], failed:[{pathId,error}], cancelled:[pathId],
/// childThreadIds:{pathId:id}}`.
///
/// `failed` holds what counts as failed, so also paths that someone else cancelled; `cancelled` holds what the join
/// itself cancelled or never started. A detached path is in none of the lists, only in `childThreadIds`.
pub fn join_output(strategy: JoinStrategy, paths: &[PathReport<'_>]) -> Value {
    Value::Object(output_fields(strategy, paths.iter().copied(), None))
}

/// What a JOIN's output says of its paths whatever comes of them: their ids, and `childThreadIds`. That is known once all
/// paths have been started: where what follows the JOIN is sure to read its output, it need not be written when it is
/// decided.
#[derive(Clone, Debug)]
pub struct PathTexts(Texts);

#[derive(Clone, Debug)]
enum Texts {
    Written(Written),
    /// By path, in a run.
    Numbered {
        run_id: Arc<str>,
        threads: Vec<Option<u32>>,
    },
}

#[derive(Clone, Debug)]
struct Written {
    /// In path order; none where they are still to be written.
    ids: Option<Vec<Value>>,
    thread_ids: Map<String, Value>,
}

impl PathTexts {
    /// The paths of `fork`, run by these threads, in path order.
    pub fn of(fork: &Fork, thread_ids: impl IntoIterator<Item = impl Into<Value>>) -> Self {
        Self(Texts::Written(Written {
            ids: Some(fork.paths.iter().map(|path| Value::from(&*path.id)).collect()),
            thread_ids: named(fork, thread_ids.into_iter().map(Some)),
        }))
    }

    /// The same for the threads of these numbers in one run, where they have been started: written when somebody looks.
    pub fn later(run_id: Arc<str>, threads: Vec<Option<u32>>) -> Self {
        Self(Texts::Numbered { run_id, threads })
    }

    fn written(self, fork: &Fork) -> Written {
        match self.0 {
            Texts::Written(written) => written,
            Texts::Numbered { run_id, threads } => {
                let id = |no: u32| Value::from(&*ThreadId::written(&run_id, no as usize));
                Written {
                    ids: None,
                    thread_ids: named(fork, threads.into_iter().map(|thread| thread.map(id))),
                }
            }
        }
    }
}

/// What each path has, by its id.
fn named(fork: &Fork, values: impl IntoIterator<Item = Option<impl Into<Value>>>) -> Map<String, Value> {
    let both = fork.paths.iter().zip(values);
    // Gathered first, as in `output_fields`.
    let fields: Vec<(String, Value)> = both
        .filter_map(|(path, value)| Some(((*path.id).to_owned(), value?.into())))
        .collect();
    fields.into_iter().collect()
}

/// What a join keeps of one path until somebody looks at its output.
#[derive(Clone, Debug)]
pub struct JoinedPath {
    /// As in [`PathReport`].
    pub status: PathStatus,
    /// As in [`PathReport`]; not asked where [`PathTexts`] are known.
    pub thread_id: Option<Arc<str>>,
    /// As in [`PathReport`].
    pub output: Option<Output>,
    /// As in [`PathReport`].
    pub error: Option<RunError>,
}

/// As [`join_output`], made when somebody looks at it: until then it costs a few counts a path. `paths` are those of
/// the graph's fork `ix`; with `texts` of all of them, their own `thread_id` is not asked.
///
/// # Errors
/// As [`within_limits`].
pub fn late_join_output(
    graph: Arc<Graph>,
    ix: ForkIx,
    paths: Vec<JoinedPath>,
    texts: PathTexts,
) -> Result<Output, RunError> {
    let levels = within_limits(&paths)?;
    Ok(Output::later(levels, move || {
        let fork = graph.fork(ix);
        let texts = texts.written(fork);
        Value::Object(output_fields(fork.join.strategy, reports(fork, &paths), Some(texts)))
    }))
}

/// How many lists and objects stand inside each other in the output of a JOIN of these paths, or in its error's details.
///
/// # Errors
/// `SCRIPT_LIMIT_EXCEEDED` beyond [`MAX_LEVELS`]: each JOIN nests what its branches leave, so a loop that hands them the
/// last JOIN's output would nest without end.
pub fn within_limits(paths: &[JoinedPath]) -> Result<usize, RunError> {
    // `{outputs: {path: output}, failed: [{error}]}`
    let output = |path: &JoinedPath| 2 + path.output.as_ref().map_or(0, Output::levels);
    let error = |path: &JoinedPath| 3 + path.error.as_ref().map_or(0, error_levels);
    let levels = paths.iter().map(|path| output(path).max(error(path))).max();
    match levels.unwrap_or(3) {
        levels if levels > MAX_LEVELS => Err(too_deep().into()),
        levels => Ok(levels),
    }
}

fn error_levels(error: &RunError) -> usize {
    let causes = std::iter::successors(Some(error), |error| error.cause.as_ref());
    let details = |error: &RunError| error.details.as_ref().map_or(0, levels);
    causes
        .enumerate()
        .map(|(inside, error)| inside + 1 + details(error))
        .max()
        .unwrap_or(0)
}

/// The reports of a fork's paths.
pub fn path_reports<'a>(fork: &'a Fork, paths: &'a [JoinedPath]) -> Vec<PathReport<'a>> {
    reports(fork, paths).collect()
}

fn reports<'a>(fork: &'a Fork, paths: &'a [JoinedPath]) -> impl Iterator<Item = PathReport<'a>> + Clone {
    reports_of(fork.paths.iter().map(|path| &*path.id), paths)
}

/// The reports of paths under these ids.
pub(super) fn reports_of<'a>(
    ids: impl Iterator<Item = &'a str> + Clone,
    paths: &'a [JoinedPath],
) -> impl Iterator<Item = PathReport<'a>> + Clone {
    ids.zip(paths).map(|(path_id, joined)| PathReport {
        path_id,
        status: joined.status,
        thread_id: joined.thread_id.as_deref(),
        output: joined.output.as_ref().map(|output| &**output.value()),
        error: joined.error.as_ref(),
    })
}

/// The error of a JOIN that did not succeed; none for [`Verdict::Succeeded`]. Its details are the fields of
/// [`join_output`] and `paths: [{pathId, status, threadId?, error?}]`, with `timeoutMs`, `threshold` or
/// `mainPathId` where that is what failed. Its cause is the first failed path's error.
pub fn join_error(rule: &JoinRule, verdict: &Verdict, paths: &[PathReport<'_>]) -> Option<RunError> {
    let strategy = rule.strategy.as_str();
    let (code, message, fact) = match verdict {
        Verdict::Succeeded { .. } => return None,
        Verdict::ConditionNotMet => {
            let message = format!("{strategy} can no longer hold: {}", sentence(paths));
            let threshold = match rule.strategy {
                JoinStrategy::SuccessCountThreshold => Some(("threshold", json!(rule.threshold))),
                JoinStrategy::AllCompleted
                | JoinStrategy::AnyCompleted
                | JoinStrategy::AllFailed
                | JoinStrategy::AnyFailed => None,
            };
            (RunErrorCode::JoinConditionNotMet, message, threshold)
        }
        Verdict::TimedOut => {
            let after_ms = rule.timeout_ms.unwrap_or_default();
            let message = format!(
                "TimeoutError: {strategy} was not decided within {after_ms} ms: {}",
                sentence(paths)
            );
            (RunErrorCode::JoinTimeout, message, Some(("timeoutMs", json!(after_ms))))
        }
        Verdict::MainThreadNotFound => {
            let main = paths.get(rule.main_path);
            let message = main.map_or_else(
                || "Main thread not found for mainPathId: the fork has no such path".to_owned(),
                |main| {
                    let status = main.status.thread_status().as_str();
                    format!(
                        "Main thread not found for mainPathId {}: it is {status}, not COMPLETED",
                        main.path_id
                    )
                },
            );
            let main = main.map(|main| ("mainPathId", json!(main.path_id)));
            (RunErrorCode::MainThreadNotFound, message, main)
        }
        Verdict::Cancelled => {
            let message = format!("cancelled before {strategy} was decided: {}", sentence(paths));
            (RunErrorCode::Cancelled, message, None)
        }
    };
    let mut details = output_fields(rule.strategy, paths.iter().copied(), None);
    details.insert("paths".to_owned(), paths.iter().map(listing).collect());
    if let Some((name, value)) = fact {
        details.insert(name.to_owned(), value);
    }
    let error = RunError::new(code, message).with_details(Value::Object(details));
    let cause = paths
        .iter()
        .filter(|path| path.status.counts_as_failed())
        .find_map(|path| path.error);
    Some(match cause {
        Some(cause) => error.caused_by(cause.clone()),
        None => error,
    })
}

fn output_fields<'a>(
    strategy: JoinStrategy,
    paths: impl Iterator<Item = PathReport<'a>> + Clone,
    texts: Option<Written>,
) -> Map<String, Value> {
    let (ids, thread_ids) = texts.map(|texts| (texts.ids, texts.thread_ids)).unzip();
    let mut ids = ids.flatten().into_iter().flatten();
    // Gathered first and made objects at once: that is built bottom-up, not by a search for each path.
    let count = |is: fn(PathStatus) -> bool| paths.clone().filter(|path| is(path.status)).count();
    let completions = count(|status| status == PathStatus::Completed);
    let (mut outputs, mut completed) = (Vec::with_capacity(completions), Vec::with_capacity(completions));
    let mut threads = Vec::with_capacity(if thread_ids.is_some() { 0 } else { count(|_| true) });
    let mut cancelled = Vec::with_capacity(count(PathStatus::cancelled_by_join));
    let mut failed = Vec::new();
    for path in paths {
        let id = ids.next();
        let id = || id.unwrap_or_else(|| Value::from(path.path_id));
        if let (Some(thread), None) = (path.thread_id, &thread_ids) {
            threads.push((path.path_id.to_owned(), Value::from(thread)));
        }
        if path.status == PathStatus::Completed {
            completed.push(id());
            outputs.push((path.path_id.to_owned(), path.output.cloned().unwrap_or_default()));
        } else if path.status.counts_as_failed() {
            failed.push(json!({ "pathId": id(), "error": error_of(path.error, path.status) }));
        } else if path.status.cancelled_by_join() {
            cancelled.push(id());
        }
    }
    Map::from_iter([
        ("strategy".to_owned(), json!(strategy)),
        ("outputs".to_owned(), Value::Object(outputs.into_iter().collect())),
        ("completed".to_owned(), Value::Array(completed)),
        ("failed".to_owned(), Value::Array(failed)),
        ("cancelled".to_owned(), Value::Array(cancelled)),
        (
            "childThreadIds".to_owned(),
            Value::Object(thread_ids.unwrap_or_else(|| threads.into_iter().collect())),
        ),
    ])
}

/// Every failed path has an error to show, also one whose thread left none behind.
pub(super) fn error_of(error: Option<&RunError>, status: PathStatus) -> Value {
    let (code, message) = match (error, status) {
        (Some(error), _) => return json!(error),
        (None, PathStatus::Timeout) => (RunErrorCode::NodeTimeout, "the branch ran out of time"),
        (None, PathStatus::Cancelled | PathStatus::Stopped | PathStatus::Skipped) => {
            (RunErrorCode::Cancelled, "the branch was cancelled")
        }
        (
            None,
            PathStatus::Pending
            | PathStatus::Running
            | PathStatus::Completed
            | PathStatus::Failed
            | PathStatus::Detached,
        ) => (RunErrorCode::NodeFailed, "the branch failed"),
    };
    json!(RunError::new(code, message))
}

fn listing(path: &PathReport<'_>) -> Value {
    let mut fields = Map::from_iter([
        ("pathId".to_owned(), json!(path.path_id)),
        ("status".to_owned(), json!(path.status.thread_status())),
    ]);
    if let Some(thread) = path.thread_id {
        fields.insert("threadId".to_owned(), json!(thread));
    }
    if path.status.counts_as_failed() {
        fields.insert("error".to_owned(), error_of(path.error, path.status));
    }
    Value::Object(fields)
}

/// `a COMPLETED, b FAILED, c CANCELLED`, shortened for a fork of many paths.
fn sentence(paths: &[PathReport<'_>]) -> String {
    let mut words: Vec<String> = paths
        .iter()
        .take(NAMED_IN_MESSAGE)
        .map(|path| format!("{} {}", path.path_id, path.status.thread_status().as_str()))
        .collect();
    if let Some(more) = paths.len().checked_sub(NAMED_IN_MESSAGE + 1) {
        words.push(format!("and {} more", more + 1));
    }
    words.join(", ")
}
