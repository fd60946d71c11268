//! The part that moves: what runs now, redrawn below the lines.

use std::time::Duration;

use console::{Style, Term, truncate_str};
use indicatif::{ProgressBar, ProgressStyle};

use super::view::View;

/// Threads that are shown at once.
const MOST: usize = 8;

/// The lower part of the terminal.
pub(super) struct Live {
    bar: ProgressBar,
}

impl Live {
    /// Starts to redraw.
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar }
    }

    /// Lines above, and what runs now below.
    pub(super) fn show(&self, lines: &[String], view: &View) {
        let (rows, columns) = Term::stderr().size();
        let columns = usize::from(columns).max(20);
        for line in lines {
            self.bar.println(coloured(line));
        }
        // What is wider than the terminal would wrap and not be cleared; the spinner and its space stand before it.
        let most = MOST.min(usize::from(rows) / 3).max(1);
        let now = view.now(most).into_iter().enumerate().map(|(place, line)| {
            let indent = if place == 0 { "" } else { "  " };
            let width = columns - 3 - indent.len();
            format!("{indent}{}", truncate_str(&line, width, "…"))
        });
        self.bar.set_message(now.collect::<Vec<_>>().join("\n"));
    }

    /// Clears it.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn coloured(line: &str) -> String {
    let style = Style::new().for_stderr();
    let style = match line.chars().next() {
        Some('<') => style.green(),
        Some('!') => style.red(),
        Some('x') => style.yellow(),
        Some('=') => style.green().bold(),
        Some('#') => style.cyan(),
        Some('*') => style.magenta(),
        Some('Y') => style.blue(),
        Some(_) | None => return line.to_owned(),
    };
    style.apply_to(line).to_string()
}
