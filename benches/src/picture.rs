//! Bar chart of the results: for each workload one bar for each side, as multiples of raw tokio on a logarithmic scale.

use std::fmt::Write as _;

use crate::limit::Limit;
use crate::processes::Measured;

const LEFT: f64 = 270.0;
const WIDTH: f64 = 420.0;
const BAR: f64 = 13.0;
const COLOURS: [&str; 5] = ["#9aa0a6", "#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e"];

/// Returns an SVG of the median ratios.
pub fn svg(rows: &[Measured]) -> String {
    let mut sides: Vec<&str> = Vec::new();
    for side in rows.iter().flat_map(Measured::sides) {
        if !sides.contains(&side) {
            sides.push(side);
        }
    }
    let ratios = rows.iter().flat_map(|row| row.sides().map(|side| ratio(row, side)));
    let widest = ratios.fold(10.0, f64::max).log10();
    let mut body = String::new();
    let mut y = 54.0;
    for row in rows {
        let label = row.label();
        let height = BAR * row.sides().count() as f64;
        let middle = y + height / 2.0 + 4.0;
        push(
            &mut body,
            format_args!(
                "<text x=\"{:.0}\" y=\"{middle:.0}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                label
            ),
        );
        for of in row.sides() {
            let ratio = ratio(row, of);
            let length = length_of(ratio, widest);
            let colour = sides.iter().position(|side| *side == of).unwrap_or(0) % COLOURS.len();
            push(
                &mut body,
                format_args!(
                    "<rect x=\"{LEFT:.0}\" y=\"{y:.0}\" width=\"{length:.1}\" height=\"{:.0}\" fill=\"{}\"/><text x=\"{:.0}\" y=\"{:.0}\">{ratio:.2}</text>",
                    BAR - 2.0,
                    COLOURS[colour],
                    LEFT + length + 4.0,
                    y + 10.0,
                ),
            );
            y += BAR;
        }
        if let Some(most) = times_raw(row) {
            let x = LEFT + length_of(most, widest);
            push(
                &mut body,
                format_args!(
                    "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.0}\" y2=\"{:.0}\" stroke=\"#c92a2a\" stroke-width=\"2\"/>",
                    y - height - 2.0,
                    y,
                ),
            );
        }
        y += 8.0;
    }
    let mut legend = String::new();
    for (place, side) in sides.iter().enumerate() {
        let x = 10 + place * 150;
        push(
            &mut legend,
            format_args!(
                "<rect x=\"{x}\" y=\"10\" width=\"11\" height=\"11\" fill=\"{}\"/><text x=\"{}\" y=\"20\">{side}</text>",
                COLOURS[place % COLOURS.len()],
                x + 16,
            ),
        );
    }
    push(
        &mut legend,
        format_args!(
            "<text x=\"10\" y=\"40\" fill=\"#495057\">times raw tokio, the median of several processes, logarithmic; red: the most that Pirn may take</text>"
        ),
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"{y:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{legend}{body}</svg>\n"
    )
}

/// Returns the length of a bar in pixels. Raw tokio is the line at 1.
fn length_of(ratio: f64, widest: f64) -> f64 {
    let shortest = 0.2_f64;
    (ratio.max(shortest).log10() - shortest.log10()) / (widest - shortest.log10()) * WIDTH
}

/// Returns the limit of Pirn, if it is a multiple of raw tokio.
fn times_raw(row: &Measured) -> Option<f64> {
    Limit::of(row.workload(), row.part(), crate::sides::LOCAL)
        .iter()
        .find_map(|limit| match limit {
            Limit::TimesRaw(times) => Some(*times),
            Limit::GraphFlow | Limit::TimesUnheard(_) | Limit::Us(_) => None,
        })
}

fn ratio(row: &Measured, side: &str) -> f64 {
    row.ratios_to_raw(side).map_or(f64::NAN, |ratios| ratios.median)
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _: std::fmt::Result = writeln!(text, "{line}");
}
