//! `pirn validate FILE...`: every error and warning of a set of files, as JSON or with the source line shown.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::{IsTerminal, stdout};
use std::mem::ManuallyDrop;
use std::process::ExitCode;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report, Severity};
use pirn::config::profile_faults;
use pirn::script::TextSyntax;
use pirn_core::analysis::analyse;
use pirn_core::definition::{Fault, FaultCode, Loaded, SourceFile};
use pirn_core::graph::{CompileContext, Compiled, compile_loaded};
use serde_json::json;

use crate::config::{Config, ConfigFile};
use crate::files;
use crate::terminal::{FAILED, Output, USAGE, answer, complain};

/// Faults that are shown with their source; the rest is a line each.
const PICTURES: usize = 20;

/// Bytes of a line that is shown whole.
const LONGEST: usize = 600;

/// Arguments of `pirn validate`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Workflow files, checked together; - for stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    config: ConfigFile,
    /// How to report
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Checks the files as one set.
pub(crate) fn run(args: &Args) -> ExitCode {
    let files = match files::read(&args.files) {
        Ok(files) => files,
        Err(message) => return complain(&message, USAGE),
    };
    let config = match args.config.read(&args.files) {
        Ok(config) => config,
        Err(message) => return complain(&message, USAGE),
    };
    // The process ends next, and gives back at once what taking a large workflow apart would give back piece by piece.
    let loaded = ManuallyDrop::new(Loaded::of(&files));
    let compiled = ManuallyDrop::new(check(&files, &loaded, config.as_ref()));
    let files = shown(files, config.as_ref());
    let code = if compiled.faults.is_empty() { 0 } else { FAILED };
    let text = match args.output {
        Output::Json => as_json(&compiled),
        Output::Text => as_text(&files, &compiled),
    };
    answer(&text, code)
}

/// Checks, as one set, what was loaded from the files. Profiles are known beside those in the files; tools where there is a
/// config.
pub(crate) fn check(files: &[SourceFile], loaded: &Loaded, config: Option<&Config>) -> Compiled {
    let configured = config.into_iter().flat_map(|config| &config.profiles);
    let configured = configured.map(|profile| profile.id.clone());
    let in_files = loaded.profiles.iter().map(|profile| profile.value.id.clone());
    let built_in = ["echo", "extractive"].map(str::to_owned);
    let profiles: BTreeSet<String> = in_files.chain(built_in).chain(configured).collect();
    let tools = config.map(|config| config.tools.names());
    let syntax = TextSyntax::default();
    let context = CompileContext {
        syntax: &syntax,
        profiles: Some(&profiles),
        tools: tools.as_ref(),
        ..CompileContext::default()
    };
    let mut compiled = compile_loaded(loaded, &context);
    let text = config.and_then(|config| config.text.as_ref());
    let wrong = profile_faults(loaded, text);
    compiled.warnings.extend(analyse(loaded, &compiled).warnings);
    if !wrong.is_empty() {
        // Which profiles there are is not known before they are right.
        compiled
            .warnings
            .retain(|warning| warning.code != FaultCode::UnknownProfile);
        compiled.faults.extend(wrong);
    }
    let by_place = |fault: &Fault| {
        let file = fault
            .file
            .as_ref()
            .and_then(|name| files.iter().position(|file| file.name == *name));
        (file, fault.position.map(|position| position.offset))
    };
    compiled.faults.sort_by_key(by_place);
    compiled.warnings.sort_by_key(by_place);
    compiled
}

/// Every text that a fault may be shown in.
pub(crate) fn shown(mut files: Vec<SourceFile>, config: Option<&Config>) -> Vec<SourceFile> {
    let config = config.and_then(|config| config.text.as_ref());
    files.extend(config.map(|text| text.source().clone()));
    files
}

fn as_json(compiled: &Compiled) -> String {
    let report = json!({
        "valid": compiled.faults.is_empty(),
        "errors": compiled.faults,
        "warnings": compiled.warnings,
    });
    format!("{report:#}\n")
}

/// The faults and warnings with their source lines, and the verdict.
pub(crate) fn as_text(files: &[SourceFile], compiled: &Compiled) -> String {
    let theme = if stdout().is_terminal() {
        GraphicalTheme::unicode()
    } else {
        GraphicalTheme::unicode_nocolor()
    };
    let handler = GraphicalReportHandler::new_themed(theme);
    let mut out = String::new();
    for (faults, severity) in [
        (&compiled.faults, Severity::Error),
        (&compiled.warnings, Severity::Warning),
    ] {
        for (place, fault) in faults.iter().enumerate() {
            if place < PICTURES {
                show(&handler, files, fault, severity, &mut out);
            } else {
                put(&mut out, format_args!("{fault}\n"));
            }
        }
    }
    let (errors, warnings) = (
        counted(compiled.faults.len(), "error"),
        counted(compiled.warnings.len(), "warning"),
    );
    let verdict = if compiled.faults.is_empty() { "valid" } else { "invalid" };
    put(&mut out, format_args!("{verdict}: {errors}, {warnings}\n"));
    out
}

fn show(handler: &GraphicalReportHandler, files: &[SourceFile], fault: &Fault, severity: Severity, out: &mut String) {
    let mut diagnostic = MietteDiagnostic::new(&fault.message)
        .with_code(fault.code.as_str())
        .with_severity(severity);
    diagnostic.help.clone_from(&fault.help);
    let file = fault
        .file
        .as_ref()
        .and_then(|name| files.iter().find(|file| file.name == *name));
    let report = match (file, fault.position) {
        (Some(file), Some(position)) if line_around(&file.text, position.offset).len() > LONGEST => {
            let part = around(&file.text, position.offset);
            return put(out, format_args!("{fault}\n  {part}\n\n"));
        }
        (Some(file), Some(position)) => {
            let label = if fault.pointer.is_empty() {
                "here"
            } else {
                fault.pointer.as_str()
            };
            let shown = first_line(file, position.offset, position.length);
            let span = LabeledSpan::at(position.offset..position.offset + shown, label);
            let source = NamedSource::new(&file.name, file.text.to_string());
            Report::new(diagnostic.with_label(span)).with_source_code(source)
        }
        (None | Some(_), _) => Report::new(diagnostic),
    };
    // the handler writes to a string, which does not fail; and a fault without picture is still counted
    let _ = handler.render_report(out, report.as_ref());
    out.push('\n');
}

/// The line that holds a byte.
fn line_around(text: &str, offset: usize) -> &str {
    let (before, after) = text.split_at_checked(offset).unwrap_or((text, ""));
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let end = after.find('\n').map_or(text.len(), |at| offset + at);
    &text[start..end]
}

/// What of a long line is shown of the place that starts at a byte.
fn around(text: &str, offset: usize) -> String {
    let (before, after) = text.split_at_checked(offset).unwrap_or((text, ""));
    let mut shown: Vec<char> = before.chars().rev().take(30).take_while(|one| *one != '\n').collect();
    shown.reverse();
    let shown = shown
        .into_iter()
        .chain(after.chars().take(90).take_while(|one| *one != '\n'));
    format!("… {} …", shown.collect::<String>().trim())
}

/// Bytes of the place that stand on its first line: a whole object would bury the message.
fn first_line(file: &SourceFile, offset: usize, length: usize) -> usize {
    let shown = file.text.get(offset..offset + length).unwrap_or_default();
    shown.lines().next().unwrap_or_default().len()
}

fn counted(count: usize, word: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {word}{plural}")
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}
