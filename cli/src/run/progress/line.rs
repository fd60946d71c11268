//! One line of progress: time, thread and text; wrapped at words, with colours.

use std::borrow::Cow;

use console::Style;
use textwrap::{Options, WordSplitter, wrap};

use crate::output::sanitize::sanitize_line;

/// Width of the time at the start of a line.
const TIME: usize = 9;

/// Kind of a line, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// A step.
    Plain,
    /// A success.
    Good,
    /// A failure.
    Bad,
    /// A fork, a join, a compression, a trigger.
    Turn,
    /// A model's words, or a note on omitted text.
    Quiet,
}

/// A line about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Milliseconds since the run's first event; `None` for a continuation of the previous line.
    pub(super) at: Option<u64>,
    /// Nesting depth: branches and sub-workflows are indented below the thread that started them.
    pub(super) depth: usize,
    pub(super) tone: Tone,
    pub(super) text: String,
}

impl Line {
    /// Wraps the line to a terminal of this width; without a width, one line of any length.
    pub(super) fn render(&self, columns: Option<usize>) -> Vec<String> {
        let time = self.at.map_or_else(String::new, seconds);
        let head = format!("{time:>width$}  {}", "  ".repeat(self.depth), width = TIME - 2);
        let text = sanitize_line(&self.text);
        let texts = match columns {
            None => vec![text],
            Some(columns) => {
                // Minimum width, so that words have room.
                let width = columns.saturating_sub(head.len() + 1).max(20);
                let options = Options::new(width)
                    .subsequent_indent("  ")
                    .word_splitter(WordSplitter::NoHyphenation);
                wrap(&text, options).into_iter().map(Cow::into_owned).collect()
            }
        };
        let blank = " ".repeat(head.len());
        let heads = std::iter::once(head.as_str()).chain(std::iter::repeat(blank.as_str()));
        let dim = Style::new().for_stderr().dim();
        texts
            .iter()
            .zip(heads)
            .map(|(text, head)| format!("{}{}", dim.apply_to(head), self.tone.style().apply_to(text)))
            .collect()
    }
}

impl Tone {
    /// Uses the terminal's sixteen colours only, which are readable on light and dark backgrounds.
    fn style(self) -> Style {
        let style = Style::new().for_stderr();
        match self {
            Self::Plain => style,
            Self::Good => style.green(),
            Self::Bad => style.red(),
            Self::Turn => style.magenta(),
            Self::Quiet => style.dim(),
        }
    }
}

/// Formats milliseconds as `1.5 s`.
pub(super) fn seconds(ms: u64) -> String {
    format!("{}.{} s", super::meter::grouped(ms / 1000), ms % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line {
            at: Some(1_250),
            depth: 1,
            tone: Tone::Plain,
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_line_is_wrapped_at_words_with_a_hanging_indent() {
        console::set_colors_enabled_stderr(false);
        assert_eq!(line("one two").render(None), ["  1.2 s    one two"]);
        let text = "a long text that does not fit in forty columns";
        assert_eq!(
            line(text).render(Some(40)),
            [
                "  1.2 s    a long text that does not",
                "             fit in forty columns"
            ]
        );
    }

    #[test]
    fn line_breaks_and_control_characters_do_not_split_a_line() {
        console::set_colors_enabled_stderr(false);
        assert_eq!(line("a\nb\u{1b}[2J").render(None), ["  1.2 s    a b␛[2J"]);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        console::set_colors_enabled_stderr(false);
        let long = format!("{} {}", "界".repeat(100), "x".repeat(300));
        for columns in 40..130 {
            for shown in line(&long).render(Some(columns)) {
                assert!(console::measure_text_width(&shown) < columns, "{columns}: {shown}");
            }
        }
    }
}
