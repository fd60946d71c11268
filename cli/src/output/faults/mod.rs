//! Formats faults of files as text: causes first, each with an excerpt of its source; consequences are only counted.

mod group;
mod snippet;

use std::fmt::Write;

use pirn::check::{CheckedFiles, Fault, SourceFile};
use pirn::config::ConfigText;

use super::redact::masked;
use super::terminal::{Screen, counted};
use group::GroupedFaults;

/// Maximum number of faults that are shown; further ones are counted.
const MAX_SHOWN: usize = 20;

/// Returns every text that a fault can refer to.
pub(crate) fn texts(mut files: Vec<SourceFile>, config: Option<&ConfigText>) -> Vec<SourceFile> {
    files.extend(config.map(|text| text.source().clone()));
    files
}

/// Formats the faults and warnings with their source lines, and the verdict.
pub(crate) fn text(files: &[SourceFile], checked: &CheckedFiles, screen: Screen) -> String {
    let mut out = String::new();
    let grouped = GroupedFaults::of(checked.faults());
    show(files, &grouped.causes, "error", screen, &mut out);
    if let Some(line) = grouped.following() {
        put(&mut out, format_args!("{line}\n\n"));
    }
    let warnings: Vec<&Fault> = checked.warnings().iter().collect();
    show(files, &warnings, "warning", screen, &mut out);
    put(&mut out, format_args!("{}\n", verdict(checked)));
    masked(&out).into_owned()
}

/// Formats the location of a fault, without its message.
pub(crate) fn place(files: &[SourceFile], fault: &Fault, screen: Screen) -> String {
    let mut out = String::new();
    snippet::draw_place(files, fault, screen, &mut out);
    out
}

fn show(files: &[SourceFile], faults: &[&Fault], level: &str, screen: Screen, out: &mut String) {
    for fault in faults.iter().take(MAX_SHOWN) {
        snippet::draw(files, fault, level, screen, out);
    }
    if let Some(more @ 1..) = faults.len().checked_sub(MAX_SHOWN) {
        put(
            out,
            format_args!(
                "and {}; --output json lists all\n\n",
                counted(more, &format!("more {level}"))
            ),
        );
    }
}

/// Formats `invalid: 2 errors, 0 warnings`.
fn verdict(checked: &CheckedFiles) -> String {
    let word = if checked.faults().is_empty() {
        "valid"
    } else {
        "invalid"
    };
    let (errors, warnings) = (checked.faults().len(), checked.warnings().len());
    format!("{word}: {}, {}", counted(errors, "error"), counted(warnings, "warning"))
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = out.write_fmt(text);
}
