//! The last line: how the run ended, and what it took; the parts add up.

use pirn::{RunReport, ThreadStatus};
use pirn_core::thread::ThreadKind;

use super::line::{Line, Tone, seconds};
use super::meter::grouped;
use super::view::Compressions;

pub(super) fn line(report: &RunReport, compressions: Compressions, was_interrupted: bool) -> Line {
    let (word, tone) = match (was_interrupted, report.status) {
        (true, _) => ("interrupted".to_owned(), Tone::Bad),
        (false, ThreadStatus::Completed) => ("completed".to_owned(), Tone::Good),
        (false, status) => (status.as_str().to_lowercase(), Tone::Bad),
    };
    let mut parts = vec![threads(report)];
    let spent = report.tokens.spent;
    parts.push(match spent.total {
        0 => "no tokens".to_owned(),
        total if total == spent.input + spent.output => format!(
            "{} tokens ({} in, {} out)",
            grouped(total),
            grouped(spent.input),
            grouped(spent.output)
        ),
        total => format!("{} tokens", grouped(total)),
    });
    if compressions.count > 0 {
        let plural = if compressions.count == 1 { "" } else { "s" };
        let (count, saved) = (grouped(compressions.count), grouped(compressions.saved));
        parts.push(format!("{count} compression{plural} saved {saved} tokens"));
    }
    Line {
        at: Some(report.elapsed_ms),
        depth: 0,
        tone,
        text: format!(
            "{} {word} in {}: {}",
            report.workflow_id,
            seconds(report.elapsed_ms),
            parts.join("; ")
        ),
    }
}

/// `8 threads: 1 main, 6 branches, 1 triggered; 7 completed, 1 cancelled`: by kind, then by end, each adding up.
fn threads(report: &RunReport) -> String {
    let of_kind = |kind| report.threads.iter().filter(|thread| thread.kind == kind).count() as u64;
    let of_status = |status| report.threads.iter().filter(|thread| thread.status == status).count() as u64;
    let total = report.threads.len() as u64;
    if total <= 1 {
        return format!("{total} thread");
    }
    let kinds = [
        (of_kind(ThreadKind::Main), "main", "main"),
        (of_kind(ThreadKind::Branch), "branch", "branches"),
        (of_kind(ThreadKind::Subgraph), "called", "called"),
        (of_kind(ThreadKind::Triggered), "triggered", "triggered"),
    ];
    let ends = [
        (of_status(ThreadStatus::Completed), "completed"),
        (of_status(ThreadStatus::Failed), "failed"),
        (of_status(ThreadStatus::Timeout), "timed out"),
        (of_status(ThreadStatus::Cancelled), "cancelled"),
        (of_status(ThreadStatus::Paused), "paused"),
        (
            of_status(ThreadStatus::Running) + of_status(ThreadStatus::Created),
            "running",
        ),
    ];
    let kinds = kinds
        .into_iter()
        .map(|(count, one, many)| (count, if count == 1 { one } else { many }));
    format!("{} threads ({}; {})", grouped(total), listed(kinds), listed(ends))
}

fn listed<'w>(counts: impl IntoIterator<Item = (u64, &'w str)>) -> String {
    let there = counts.into_iter().filter(|(count, _)| *count > 0);
    there
        .map(|(count, word)| format!("{} {word}", grouped(count)))
        .collect::<Vec<_>>()
        .join(", ")
}
