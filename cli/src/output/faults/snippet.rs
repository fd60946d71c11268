//! Excerpt of one fault, cut to the width of the screen around the mark.

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};
use pirn::check::{Fault, SourceFile};

use super::put;
use crate::output::sanitize::{sanitize, sanitize_line};
use crate::output::terminal::Screen;

/// Bytes around a location that are examined: a file of one line may have millions.
const WINDOW: usize = 2000;

pub(super) fn draw(files: &[SourceFile], fault: &Fault, level: &str, screen: Screen, out: &mut String) {
    let level = if level == "error" { Level::ERROR } else { Level::WARNING };
    let title = level.primary_title(sanitize(&fault.message)).id(fault.code.as_str());
    let group = match marked(files, fault) {
        Some(snippet) => title.element(snippet),
        None => Group::with_title(title),
    };
    let group = match &fault.help {
        Some(help) => group.element(Level::HELP.message(sanitize(help))),
        None => group,
    };
    render(group, screen, out);
}

/// Draws the location of a fault, without its message.
pub(super) fn draw_place(files: &[SourceFile], fault: &Fault, screen: Screen, out: &mut String) {
    if let Some(snippet) = marked(files, fault) {
        render(Group::with_level(Level::ERROR).element(snippet), screen, out);
    }
}

fn marked<'t>(files: &'t [SourceFile], fault: &Fault) -> Option<Snippet<'t, Annotation<'t>>> {
    let file = fault
        .file
        .as_ref()
        .and_then(|name| files.iter().find(|file| file.name == *name));
    file.zip(fault.position).map(|(file, position)| {
        let place = Place::of(&file.text, position.offset, position.length);
        let (line, mark) = place.visible();
        // The renderer counts the characters of the shown line, which may start within the line, or show a character as its code.
        let is_elsewhere = line[..mark.start].chars().count() + 1 != position.column as usize;
        let label = match (fault.pointer.as_str(), is_elsewhere) {
            ("", false) => None,
            (pointer, false) => Some(sanitize_line(pointer)),
            (pointer, true) => Some(format!(
                "{} (column {} of the file)",
                sanitize_line(pointer),
                position.column
            )),
        };
        Snippet::source(line)
            .path(sanitize_line(&file.name))
            .line_start(position.line as usize)
            .annotation(AnnotationKind::Primary.span(mark).label(label))
    })
}

fn render(group: Group<'_>, screen: Screen, out: &mut String) {
    let renderer = if screen.has_colour {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    put(
        out,
        format_args!("{}\n\n", renderer.term_width(screen.columns).render(&[group])),
    );
}

/// The line of a fault, and its marked range.
struct Place<'t> {
    line: &'t str,
    mark: std::ops::Range<usize>,
}

impl<'t> Place<'t> {
    /// Ends the mark at its first line: marking a whole object would hide the message.
    fn of(text: &'t str, offset: usize, length: usize) -> Self {
        let offset = floor(text, offset);
        let from = floor(text, offset.saturating_sub(WINDOW));
        let to = floor(text, offset.saturating_add(WINDOW));
        let start = text[from..offset].rfind('\n').map_or(from, |at| from + at + 1);
        // A byte order mark is no column of the first line.
        let has_mark = start == 0 && offset > 0 && text.starts_with('\u{feff}');
        let start = if has_mark { '\u{feff}'.len_utf8() } else { start };
        let end = text[offset..to].find('\n').map_or(to, |at| offset + at);
        let line = text[start..end].trim_end_matches('\r');
        let begin = (offset - start).min(line.len());
        let stop = floor(line, (begin + length.max(1)).min(line.len()));
        Self {
            line,
            mark: begin..stop.max(begin),
        }
    }

    /// Returns the line with control characters made visible, and the range of the mark in it.
    fn visible(&self) -> (String, std::ops::Range<usize>) {
        let Self { line, mark, .. } = self;
        let mut shown = sanitize(&line[..mark.start]).into_owned();
        let start = shown.len();
        shown.push_str(&sanitize(&line[mark.clone()]));
        let end = shown.len();
        shown.push_str(&sanitize(&line[mark.end..]));
        (shown, start..end)
    }
}

/// Returns the nearest character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn the_marker_stays_on_its_line() {
        let text = "{\n  \"ä\": {\n  }\n}";
        for offset in 0..=text.len() {
            for length in 0..6 {
                let place = Place::of(text, offset, length);
                assert!(place.line.get(place.mark.clone()).is_some(), "{offset} {length}");
                assert!(!place.line.contains('\n'));
            }
        }
        let place = Place::of("\u{feff}{\"id\": 5}", 3, 1);
        assert_eq!((place.line, place.mark), ("{\"id\": 5}", 0..1));
        let long = "x".repeat(100_000);
        assert!(Place::of(&long, 50_000, 3).line.len() <= 4_000);
    }
}
