//! `pirn graph FILE...`: draws the graphs of workflow files, including invalid ones.

use std::process::ExitCode;

use clap::ValueEnum;
use pirn::check::{World, check};
use pirn_definition::definition::{Loaded, nearest};
use pirn_definition::graph::draw::{self, Drawing};

use crate::files;
use crate::output::failure::Failure;
use crate::output::terminal::answer;

/// Arguments of `pirn graph`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn graph workflow.json
  pirn graph workflow.json trigger.json --format svg > workflow.svg
  pirn graph workflow.json --format html > workflow.html
  pirn graph workflow.json --format dot | dot -Tpdf > workflow.pdf

All workflows of the files are one drawing, with the triggers between them; a JOIN shows its strategy. SVG and HTML show each path
of a FORK as a lane; HTML is one page with the errors and warnings too.

Exit codes: 0, 1 nothing to draw, 2 wrong usage or an unreadable file.")]
pub(crate) struct Args {
    /// Workflow files, or - for stdin
    #[arg(default_value = files::DEFAULT, value_name = "FILE")]
    files: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    format: Format,
    /// Draw only this workflow
    #[arg(long, value_name = "ID")]
    workflow: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Mermaid,
    Dot,
    Svg,
    Html,
}

/// Draws every workflow of the files.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let files = files::read(&args.files)?;
    let loaded = Loaded::of(&files);
    let wanted = |id: &str| args.workflow.as_deref().is_none_or(|wanted| wanted == id);
    let workflows: Vec<_> = loaded
        .workflows
        .iter()
        .map(|workflow| &workflow.value)
        .filter(|workflow| wanted(&workflow.id))
        .collect();
    if workflows.is_empty() {
        return Err(nothing_to_draw(args, &loaded));
    }
    let triggers: Vec<_> = loaded.triggers.iter().map(|trigger| &trigger.value).collect();
    let text = match args.format {
        Format::Mermaid => draw::mermaid(&Drawing::of(&workflows, &triggers)),
        Format::Dot => draw::dot(&Drawing::of(&workflows, &triggers)),
        Format::Svg => pirn_drawing::svg(&pirn_drawing::draw(&workflows, &triggers)),
        Format::Html => {
            let checked = check(&files, &World::default());
            let faults = checked.faults().iter().map(|fault| format!("error: {fault}"));
            let warnings = checked.warnings().iter().map(|fault| format!("warning: {fault}"));
            let notes: Vec<String> = faults.chain(warnings).collect();
            let titles: Vec<&str> = workflows.iter().map(|workflow| &*workflow.id).collect();
            pirn_drawing::html(&titles.join(", "), &pirn_drawing::draw(&workflows, &triggers), &notes)
        }
    };
    Ok(answer(&text, 0))
}

fn nothing_to_draw(args: &Args, loaded: &Loaded) -> Failure {
    let names = args.files.join(", ");
    if let Some(id) = &args.workflow
        && !loaded.workflows.is_empty()
    {
        let ids: Vec<&str> = loaded.workflows.iter().map(|workflow| &*workflow.value.id).collect();
        let message = format!("there is no workflow {id}; {names} has {}", ids.join(", "));
        let failure = Failure::failed("WORKFLOW_NOT_FOUND", message);
        return match nearest(id, ids.iter().copied()) {
            Some(near) => failure.with_help(format!("did you mean {near}?")),
            None => failure,
        };
    }
    match loaded.faults.first() {
        Some(fault) => Failure::failed(fault.code.as_str(), fault.to_string()),
        None => Failure::failed("WORKFLOW_NOT_FOUND", format!("{names} has no workflow")),
    }
}
