//! `pirn graph FILE [--format mermaid|dot]`: draws what a file says, also where it is not valid yet.

use std::process::ExitCode;

use clap::ValueEnum;
use pirn_core::definition::{Loaded, WorkflowDefinition};
use pirn_core::graph::draw;

use crate::files;
use crate::terminal::{FAILED, USAGE, answer, complain};

/// Arguments of `pirn graph`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Workflow file, or - for stdin
    file: String,
    /// How to draw
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    format: Format,
    /// Only this workflow of the file
    #[arg(long, value_name = "ID")]
    workflow: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Mermaid,
    Dot,
}

/// Draws every workflow of the file, one after another.
pub(crate) fn run(args: &Args) -> ExitCode {
    let files = match files::read(std::slice::from_ref(&args.file)) {
        Ok(files) => files,
        Err(message) => return complain(&message, USAGE),
    };
    let loaded = Loaded::of(&files);
    let wanted = |id: &str| args.workflow.as_deref().is_none_or(|wanted| wanted == id);
    let drawings: Vec<String> = loaded
        .workflows
        .iter()
        .filter(|workflow| wanted(&workflow.value.id))
        .map(|workflow| drawing(&workflow.value, args.format))
        .collect();
    if !drawings.is_empty() {
        return answer(&drawings.join("\n"), 0);
    }
    match loaded.faults.first() {
        Some(fault) => complain(&fault.to_string(), FAILED),
        None => complain(&nothing_to_draw(args, &loaded), FAILED),
    }
}

fn nothing_to_draw(args: &Args, loaded: &Loaded) -> String {
    let ids: Vec<&str> = loaded.workflows.iter().map(|workflow| &*workflow.value.id).collect();
    match &args.workflow {
        Some(wanted) if !ids.is_empty() => {
            format!("there is no workflow {wanted}; {} has {}", args.file, ids.join(", "))
        }
        Some(_) | None => format!("{} has no workflow", args.file),
    }
}

fn drawing(definition: &WorkflowDefinition, format: Format) -> String {
    match format {
        Format::Mermaid => draw::mermaid(definition),
        Format::Dot => draw::dot(definition),
    }
}
