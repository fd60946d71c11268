//! The running threads, redrawn below the lines.

use std::time::Duration;

use console::{Term, truncate_str};
use indicatif::{ProgressBar, ProgressStyle};

use super::view::View;
use crate::output::sanitize::sanitize_line;

/// Maximum number of threads that are shown.
const MAX_THREADS: usize = 8;

/// The redrawn part of the terminal.
pub(super) struct Live {
    bar: ProgressBar,
}

impl Live {
    /// Starts the display.
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar }
    }

    /// Prints lines above, and redraws the running threads below.
    pub(super) fn show(&self, lines: &[String], view: &View) {
        let (rows, columns) = Term::stderr().size();
        let columns = usize::from(columns).max(20);
        for line in lines {
            self.bar.println(line);
        }
        // A line wider than the terminal would wrap, and would not be cleared. Three columns are reserved for the spinner.
        let most = MAX_THREADS.min(usize::from(rows) / 3).max(1);
        let now = view.now(most).into_iter().enumerate().map(|(place, line)| {
            let indent = if place == 0 { "" } else { "  " };
            let width = columns - 3 - indent.len();
            format!("{indent}{}", truncate_str(&sanitize_line(&line), width, "…"))
        });
        self.bar.set_message(now.collect::<Vec<_>>().join("\n"));
    }

    /// Returns a function that prints a line above.
    pub(super) fn printing(&self) -> Box<dyn Fn(String) + Send> {
        let bar = self.bar.clone();
        Box::new(move |line: String| bar.println(line))
    }

    /// Clears the display.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
