//! The forks of a run, and the choice of branches that are shown on separate lines.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::meter::grouped;

/// Maximum number of paths of a fork that is not summed up.
const MAX_SHOWN_PATHS: usize = 12;
/// Maximum width of the list of a fork's paths, in characters.
const NAMES_WIDTH: usize = 60;
/// Maximum number of branch lines for one FORK node in a run: beyond it, as in a loop, its forks are summed up.
const MAX_LINES: usize = 96;
/// Maximum number of failures that are shown for a summed-up fork.
const MAX_FAILURES: u64 = 3;

/// The end of a branch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Completed,
    Failed,
    Cancelled,
}

/// Progress of a fork.
#[derive(Default)]
struct Fork {
    parent: String,
    of: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
    /// True if its branches are counted instead of shown.
    quiet: bool,
    /// True once its JOIN has completed.
    joined: bool,
}

/// Progress of all forks of a run.
#[derive(Default)]
pub(super) struct Forks {
    all: Vec<Fork>,
    /// Index of the fork that a path of a workflow belongs to; path ids are unique in a workflow.
    of_path: BTreeMap<(String, String), usize>,
    /// Number of branch lines of each FORK node so far.
    lines: BTreeMap<(String, String), usize>,
}

impl Forks {
    /// Records the start of a fork, and returns its line.
    pub(super) fn start(&mut self, parent: &str, workflow: &str, node: &str, paths: &[String]) -> String {
        let lines = self.lines.entry((workflow.to_owned(), node.to_owned())).or_default();
        let quiet = paths.len() > MAX_SHOWN_PATHS || *lines + paths.len() > MAX_LINES;
        if !quiet {
            *lines += paths.len();
        }
        let place = self.all.len();
        for path in paths {
            self.of_path.insert((workflow.to_owned(), path.clone()), place);
        }
        self.all.push(Fork {
            parent: parent.to_owned(),
            of: paths.len() as u64,
            quiet,
            ..Fork::default()
        });
        let most = if paths.len() > MAX_SHOWN_PATHS { 4 } else { paths.len() };
        let mut width = 0;
        let fitting = paths.iter().take_while(|path| {
            width += path.chars().count() + 2;
            width <= NAMES_WIDTH
        });
        let shown = fitting.count().clamp(1, most.max(1)).min(paths.len());
        let more = match paths.len() - shown {
            0 => String::new(),
            more => format!(" and {} more", grouped(more as u64)),
        };
        let plural = if paths.len() == 1 { "branch" } else { "branches" };
        format!(
            "{node} forks into {} {plural}: {}{more}",
            grouped(paths.len() as u64),
            paths[..shown].join(", ")
        )
    }

    /// True if lines about this branch are omitted.
    pub(super) fn is_quiet(&self, workflow: &str, path: &str) -> bool {
        self.place(workflow, path).is_some_and(|place| self.all[place].quiet)
    }

    fn place(&self, workflow: &str, path: &str) -> Option<usize> {
        self.of_path.get(&(workflow.to_owned(), path.to_owned())).copied()
    }

    /// Records the end of a branch. Returns whether the branch gets its line, and the line of a summed-up fork if one is due.
    pub(super) fn end(&mut self, workflow: &str, path: &str, end: End) -> (bool, Option<String>) {
        let Some(place) = self.place(workflow, path) else {
            return (true, None);
        };
        let fork = &mut self.all[place];
        match end {
            End::Completed => fork.completed += 1,
            End::Failed => fork.failed += 1,
            End::Cancelled => fork.cancelled += 1,
        }
        if !fork.quiet {
            return (true, None);
        }
        let shown = end == End::Failed && fork.failed <= MAX_FAILURES;
        let ended = fork.completed + fork.failed + fork.cancelled;
        // Print the counts at every quarter; after the join, only at the end.
        let quarter = |count: u64| count * 4 / fork.of.max(1);
        let is_due = quarter(ended) > quarter(ended - 1) && (!fork.joined || ended == fork.of);
        (shown, is_due.then(|| fork.counts()))
    }

    /// Returns the counts of ended branches when the JOIN of `parent` completes.
    pub(super) fn joined(&mut self, parent: &str) -> Option<String> {
        let mut open = self.all.iter_mut().rev().filter(|fork| fork.parent == parent);
        let fork = open.find(|fork| !fork.joined)?;
        fork.joined = true;
        Some(fork.counts())
    }
}

impl Fork {
    /// Formats `2 of 3 completed, 1 failed`.
    fn counts(&self) -> String {
        let mut text = format!("{} of {} completed", grouped(self.completed), grouped(self.of));
        for (count, word) in [(self.failed, "failed"), (self.cancelled, "cancelled")] {
            if count > 0 {
                // Writing to a String does not fail.
                let _ = write!(text, ", {} {word}", grouped(count));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(count: usize) -> Vec<String> {
        (0..count).map(|place| format!("p{place}")).collect()
    }

    #[test]
    fn a_thousand_branches_print_a_few_lines() {
        let mut forks = Forks::default();
        let first = forks.start("t", "w", "fork", &paths(1000));
        assert_eq!(first, "fork forks into 1,000 branches: p0, p1, p2, p3 and 996 more");
        let mut lines = Vec::new();
        for (place, path) in paths(1000).iter().enumerate() {
            assert!(forks.is_quiet("w", path));
            let end = if place % 100 == 0 { End::Failed } else { End::Completed };
            let (shown, summed) = forks.end("w", path, end);
            lines.extend(shown.then(|| path.clone()));
            lines.extend(summed);
        }
        assert_eq!(
            lines,
            [
                "p0",
                "p100",
                "p200",
                "247 of 1,000 completed, 3 failed",
                "495 of 1,000 completed, 5 failed",
                "742 of 1,000 completed, 8 failed",
                "990 of 1,000 completed, 10 failed",
            ]
        );
        assert_eq!(forks.joined("t").as_deref(), Some("990 of 1,000 completed, 10 failed"));
    }

    #[test]
    fn a_fork_in_a_loop_is_summarized_after_the_line_limit() {
        let mut forks = Forks::default();
        let shown = (0..100).filter(|_| {
            forks.start("t", "w", "fork", &paths(3));
            !forks.is_quiet("w", "p0")
        });
        assert_eq!(shown.count(), MAX_LINES / 3);
    }

    #[test]
    fn an_inner_fork_joins_before_the_outer_fork() {
        let mut forks = Forks::default();
        forks.start("t", "w", "outer", &["a".into(), "b".into()]);
        forks.start("t.a", "w", "inner", &["c".into()]);
        forks.end("w", "c", End::Completed);
        assert_eq!(forks.joined("t.a").as_deref(), Some("1 of 1 completed"));
        forks.end("w", "a", End::Completed);
        forks.end("w", "b", End::Cancelled);
        assert_eq!(forks.joined("t").as_deref(), Some("1 of 2 completed, 1 cancelled"));
    }
}
