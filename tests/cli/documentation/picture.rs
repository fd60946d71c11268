//! The picture of the demo in the README equals a terminal's screen: it is generated from one and compared with one.
//!
//! `PIRN_WRITE_PICTURE=1 cargo test -p pirn-cli --test cli picture` generates it again.

use std::fmt::Write;
use std::fs;

use vt100::Color;

use crate::command::root;
use crate::output::terminal::Terminal;

const COLUMNS: u16 = 104;
/// Width and height of a cell in pixels.
const CELL: (f64, f64) = (7.8, 18.0);

/// A run of text in one colour.
struct Piece {
    column: u16,
    text: String,
    class: &'static str,
}

fn pieces(screen: &vt100::Screen, row: u16) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for column in 0..COLUMNS {
        let Some(cell) = screen.cell(row, column) else { continue };
        let class = match cell.fgcolor() {
            Color::Idx(1 | 9) => "bad",
            Color::Idx(2 | 10) => "good",
            Color::Idx(5 | 13) => "turn",
            _ if cell.dim() => "dim",
            _ => "plain",
        };
        let text = if cell.contents().is_empty() {
            " "
        } else {
            cell.contents()
        };
        match pieces.last_mut().filter(|last| last.class == class) {
            Some(last) => last.text.push_str(text),
            None => pieces.push(Piece {
                column,
                text: text.to_owned(),
                class,
            }),
        }
    }
    pieces
}

fn drawn(screen: &vt100::Screen, rows: u16) -> String {
    let (width, height) = (f64::from(COLUMNS) * CELL.0 + 24.0, f64::from(rows) * CELL.1 + 28.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <style>text {{ font: 13px ui-monospace, Menlo, Consolas, monospace; white-space: pre; }} .plain {{ fill: #e6e6e6; }} \
         .dim {{ fill: #8b949e; }} .good {{ fill: #56d364; }} .bad {{ fill: #ff7b72; }} .turn {{ fill: #d2a8ff; }}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#161b22\"/>\n"
    );
    for row in 0..rows {
        let y = f64::from(row) * CELL.1 + 26.0;
        for piece in pieces(screen, row) {
            for (start, text) in columns(&piece.text) {
                let x = (f64::from(piece.column) + start as f64) * CELL.0 + 12.0;
                let text = text.replace('&', "&amp;").replace('<', "&lt;");
                // Writing to a String is infallible.
                let _ = writeln!(
                    svg,
                    "<text class=\"{}\" x=\"{x:.1}\" y=\"{y}\">{text}</text>",
                    piece.class
                );
            }
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns the parts between several spaces, with their positions: many programs show one space for several, which would move the
/// text after an indentation.
fn columns(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut start = 0;
    for part in text.split("  ") {
        let indent = part.len() - part.trim_start().len();
        if !part.trim().is_empty() {
            found.push((text[..start + indent].chars().count(), part.trim()));
        }
        start += part.len() + "  ".len();
    }
    found
}

#[test]
fn an_indented_text_is_placed_at_its_column() {
    assert_eq!(
        columns("  2.2 s    branch: é  end "),
        [(2, "2.2 s"), (11, "branch: é"), (22, "end")]
    );
}

/// Returns the words of a picture line by line, without durations and independent of the order in which branches ended.
fn words(svg: &str) -> Vec<String> {
    let mut words: Vec<String> = svg
        .lines()
        .filter_map(|line| line.strip_prefix("<text ")?.split_once('>')?.1.strip_suffix("</text>"))
        .map(|text| text.chars().filter(|c| !c.is_ascii_digit()).collect())
        .filter(|text: &String| !text.trim_matches([' ', '.', 's']).is_empty())
        .collect();
    words.sort();
    words
}

#[test]
fn the_picture_in_the_readme_equals_the_terminals_screen() {
    let mut terminal = Terminal::demo(COLUMNS, &["--no-stream"]);
    assert_eq!(terminal.ends(|_| {}), 0, "{:#?}", terminal.lines());
    let lines = terminal.lines();
    let rows = lines.iter().position(|line| line == "{").expect("the result");
    let svg = drawn(terminal.screen(), u16::try_from(rows).expect("a few"));
    let path = root().join("docs/demo.svg");
    if std::env::var_os("PIRN_WRITE_PICTURE").is_some() {
        fs::write(&path, &svg).expect("writable");
    }
    let kept = fs::read_to_string(&path).expect("the picture is there");
    assert_eq!(words(&kept), words(&svg), "PIRN_WRITE_PICTURE=1 makes it anew");
}
