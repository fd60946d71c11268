//! Output or error of a JOIN.

use std::sync::Arc;

use pirn_definition::definition::JoinStrategy;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{Fork, ForkIx, Graph, JoinRule};
use pirn_definition::value::{MAX_LEVELS, levels, too_deep};
use serde_json::{Map, Value, json};

use super::path::PathStatus;
use super::rule::Verdict;
use crate::thread::{Output, ThreadId};

/// Maximum number of paths named in an error's sentence; its details always list all of them.
const NAMED_IN_MESSAGE: usize = 8;

/// State of one path at its join. Lists of reports are in path order, and contain every path of the fork.
#[derive(Clone, Debug)]
pub struct PathReport<'a> {
    /// Id from the definition.
    pub path_id: &'a str,
    /// Status of the path, from [`ForkJoinMachine::paths`](super::ForkJoinMachine::paths).
    pub status: PathStatus,
    /// The thread of the path; `None` if it was never started.
    pub thread_id: Option<Arc<str>>,
    /// Output of its last node, if the path completed.
    pub output: Option<&'a Value>,
    /// Error of the path, if it failed.
    pub error: Option<&'a RunError>,
}

/// State of a path, stored by its join until the output is read.
#[derive(Clone, Debug)]
pub struct JoinedPath {
    /// See [`PathReport`].
    pub status: PathStatus,
    /// Number of the path's thread in the run; `None` if it was never started.
    pub thread: Option<u32>,
    /// See [`PathReport`].
    pub output: Option<Output>,
    /// See [`PathReport`].
    pub error: Option<RunError>,
}

/// The output of the JOIN of a graph's fork `ix`, in this form for any number of paths:
/// `{strategy, outputs:{pathId: output}, completed:[pathId], failed:[{pathId,error}], cancelled:[pathId],
/// childThreadIds:{pathId:id}}`.
///
/// `failed` lists the paths that count as failed, including those that were cancelled from outside; `cancelled` lists the paths
/// that the join itself cancelled or never started. A detached path is only in `childThreadIds`. The output is built on first
/// read; until then it costs a few counters for each path.
///
/// # Errors
/// As [`within_limits`].
pub fn join_output(
    graph: Arc<Graph>,
    ix: ForkIx,
    run_id: Arc<str>,
    paths: Vec<JoinedPath>,
) -> Result<Output, RunError> {
    // Checked before the value is built: the parent must fail at the JOIN, not at a later read.
    let levels = within_limits(&paths)?;
    Ok(Output::later_of((levels, memory(&paths)), move || {
        let fork = graph.fork(ix);
        Value::Object(output_fields(fork.join.strategy, &path_reports(fork, &run_id, &paths)))
    }))
}

/// Returns the nesting depth of lists and objects in the output of a JOIN of these paths, or in its error's details.
///
/// # Errors
/// `SCRIPT_LIMIT_EXCEEDED` beyond [`MAX_LEVELS`]: each JOIN nests the outputs of its branches, so a loop that passes them the
/// output of the last JOIN would nest without end.
pub fn within_limits(paths: &[JoinedPath]) -> Result<usize, RunError> {
    // `{outputs: {path: output}, failed: [{error}]}`
    let output = |path: &JoinedPath| 2 + path.output.as_ref().map_or(0, Output::levels);
    let error = |path: &JoinedPath| 3 + path.error.as_ref().map_or(0, error_levels);
    let levels = paths.iter().map(|path| output(path).max(error(path))).max();
    // Without paths, the bound for the empty fields of the output.
    match levels.unwrap_or(3) {
        levels if levels > MAX_LEVELS => Err(too_deep().into()),
        levels => Ok(levels),
    }
}

/// Returns the memory of the output of a join of these paths, in bytes.
pub(super) fn memory(paths: &[JoinedPath]) -> u64 {
    /// A path's id, its thread's id, and its entries in the lists.
    const PATH: u64 = 256;
    // An estimate, because the output may never be built.
    let of = |path: &JoinedPath| PATH + path.output.as_ref().map_or(0, Output::memory);
    paths.iter().map(of).sum()
}

fn error_levels(error: &RunError) -> usize {
    // A cause is nested one level deeper than the error that it caused.
    let causes = std::iter::successors(Some(error), |error| error.cause.as_ref());
    let details = |error: &RunError| error.details.as_ref().map_or(0, levels);
    causes
        .enumerate()
        .map(|(inside, error)| inside + 1 + details(error))
        .max()
        .unwrap_or(0)
}

/// Returns the reports of a fork's paths.
pub fn path_reports<'a>(fork: &'a Fork, run_id: &str, paths: &'a [JoinedPath]) -> Vec<PathReport<'a>> {
    reports_of(fork.paths.iter().map(|path| &*path.id), run_id, paths)
}

/// Returns the reports of paths under these ids.
pub(super) fn reports_of<'a>(
    ids: impl Iterator<Item = &'a str>,
    run_id: &str,
    paths: &'a [JoinedPath],
) -> Vec<PathReport<'a>> {
    ids.zip(paths)
        // The lists have one order, and both contain every path.
        .map(|(path_id, joined)| PathReport {
            path_id,
            status: joined.status,
            thread_id: joined.thread.map(|thread| ThreadId::written(run_id, thread as usize)),
            output: joined.output.as_ref().map(|output| &**output.value()),
            error: joined.error.as_ref(),
        })
        .collect()
}

/// Returns the error of a JOIN that did not succeed; `None` for [`Verdict::Succeeded`]. Its details are the fields of
/// [`join_output`] and `paths: [{pathId, status, threadId?, error?}]`, with `timeoutMs`, `threshold` or `mainPathId` if that is
/// the reason. Its cause is the first failed path's error.
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
    let mut details = output_fields(rule.strategy, paths);
    details.insert("paths".to_owned(), paths.iter().map(listing).collect());
    if let Some((name, value)) = fact {
        details.insert(name.to_owned(), value);
    }
    let error = RunError::new(code, message).with_details(Value::Object(details));
    // The first in path order, not in time, so that the error is the same in every order of the ends.
    let cause = paths
        .iter()
        .filter(|path| path.status.counts_as_failed())
        .find_map(|path| path.error);
    Some(match cause {
        Some(cause) => error.caused_by(cause.clone()),
        None => error,
    })
}

fn output_fields(strategy: JoinStrategy, paths: &[PathReport<'_>]) -> Map<String, Value> {
    // Collected first and converted at once: the map is then built bottom-up, without a search for each path.
    let count = |is: fn(PathStatus) -> bool| paths.iter().filter(|path| is(path.status)).count();
    let completions = count(|status| status == PathStatus::Completed);
    let (mut outputs, mut completed) = (Vec::with_capacity(completions), Vec::with_capacity(completions));
    let mut threads = Vec::with_capacity(paths.len());
    let mut cancelled = Vec::with_capacity(count(PathStatus::cancelled_by_join));
    let mut failed = Vec::new();
    for path in paths {
        let id = || Value::from(path.path_id);
        if let Some(thread) = &path.thread_id {
            threads.push((path.path_id.to_owned(), Value::from(&**thread)));
        }
        // A detached path matches no case: it has no result.
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
            Value::Object(threads.into_iter().collect()),
        ),
    ])
}

/// Returns the error of a failed path; a thread that left no error gets a generated one.
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
    if let Some(thread) = &path.thread_id {
        fields.insert("threadId".to_owned(), json!(thread));
    }
    if path.status.counts_as_failed() {
        fields.insert("error".to_owned(), error_of(path.error, path.status));
    }
    Value::Object(fields)
}

/// Formats `a COMPLETED, b FAILED, c CANCELLED`, shortened for a fork of many paths.
fn sentence(paths: &[PathReport<'_>]) -> String {
    let mut words: Vec<String> = paths
        .iter()
        .take(NAMED_IN_MESSAGE)
        .map(|path| format!("{} {}", path.path_id, path.status.thread_status().as_str()))
        .collect();
    // `None` if all paths are named.
    if let Some(more) = paths.len().checked_sub(NAMED_IN_MESSAGE + 1) {
        words.push(format!("and {} more", more + 1));
    }
    words.join(", ")
}
