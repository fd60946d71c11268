//! The text and the size of each box.

use crate::drawing::Line;
use crate::font::{ASCENT, LINE_HEIGHT, clean, width, wrap};
use crate::sketch::SketchBox;

/// Maximum width of a line in a box.
const WIDEST_LINE: i32 = 240;
/// Maximum width of a line of an edge's label.
const WIDEST_LABEL: i32 = 170;
/// Maximum number of lines of a text.
const LINES: usize = 3;
/// Space between the text and the sides of its box.
const PADDING: [i32; 2] = [12, 8];
const NARROWEST: i32 = 72;
/// Maximum length of a tooltip in characters.
const LONGEST_TITLE: usize = 2000;

/// A text with the size of its lines, not yet at a position.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    /// The lines with their widths, and whether they are bold.
    lines: Vec<(String, i32, bool)>,
    /// Width of the longest line.
    pub(crate) width: i32,
    /// Height of all lines.
    pub(crate) height: i32,
    /// The whole text.
    pub(crate) whole: String,
}

impl Text {
    /// Returns the text of an edge's label.
    pub(crate) fn label(text: &str) -> Self {
        let text = clean(&start(text));
        let lines = wrap(&text, WIDEST_LABEL, LINES, false);
        Self::of(text, lines.into_iter().map(|line| (line, false)))
    }

    /// Returns the title of an area.
    pub(crate) fn heading(text: &str, widest: i32, count: usize) -> Self {
        let text = clean(&start(text));
        let lines = wrap(&text, widest, count, true);
        Self::of(text, lines.into_iter().map(|line| (line, true)))
    }

    fn of(whole: String, lines: impl Iterator<Item = (String, bool)>) -> Self {
        let lines: Vec<_> = lines
            .map(|(line, bold)| (width(&line, bold), line, bold))
            .map(|(width, line, bold)| (line, width, bold))
            .collect();
        Self {
            width: lines.iter().map(|(_, width, _)| *width).max().unwrap_or_default(),
            height: LINE_HEIGHT * i32::try_from(lines.len()).unwrap_or(i32::MAX),
            lines,
            whole,
        }
    }

    /// Returns the lines below this point, aligned to the left.
    pub(crate) fn at(&self, x: i32, y: i32) -> Vec<Line> {
        self.lines_from(y, |_| x)
    }

    /// Returns the lines below this point, centred.
    pub(crate) fn around(&self, middle: i32, y: i32) -> Vec<Line> {
        self.lines_from(y, |width| middle - width / 2)
    }

    fn lines_from(&self, y: i32, x: impl Fn(i32) -> i32) -> Vec<Line> {
        let baselines = (0..).map(|line| y + ASCENT + line * LINE_HEIGHT);
        let placed = self
            .lines
            .iter()
            .zip(baselines)
            .map(|((text, width, bold), baseline)| Line {
                text: text.clone(),
                x: x(*width),
                y: baseline,
                width: *width,
                bold: *bold,
            });
        placed.collect()
    }
}

/// A box with its text.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) text: Text,
    pub(crate) width: i32,
    pub(crate) height: i32,
}

impl Measured {
    /// Measures a box: its title, then its type and its settings.
    pub(crate) fn of(node: &SketchBox) -> Self {
        let title = clean(&start(&node.title));
        let mut lines: Vec<(String, bool)> = wrap(&title, WIDEST_LINE, LINES - 1, true)
            .into_iter()
            .map(|line| (line, true))
            .collect();
        let settings = clean(&start(&format!("{} {}", node.node_type, node.settings)));
        let left = LINES - lines.len();
        lines.extend(
            wrap(&settings, WIDEST_LINE, left, false)
                .into_iter()
                .map(|line| (line, false)),
        );
        let whole = format!("{title}\n{settings}");
        let text = Text::of(whole, lines.into_iter());
        Self {
            width: (text.width + 2 * PADDING[0]).max(NARROWEST),
            height: text.height + 2 * PADDING[1],
            text,
        }
    }

    /// Returns the lines in a box at this position.
    pub(crate) fn lines(&self, x: i32, y: i32) -> Vec<Line> {
        self.text.around(x + self.width / 2, y + PADDING[1])
    }
}

/// Returns the part of a text that a picture uses.
fn start(text: &str) -> String {
    let mut start: String = text.chars().take(LONGEST_TITLE).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}
