//! What a run is given on the command line.

use std::process::ExitCode;

use pirn::{Message, Pinned};
use pirn_core::definition::{Loaded, SourceFile, TriggerAction};
use pirn_core::graph::{Compiled, NodeKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::{Config, ConfigFile};
use crate::files::{self, read_stdin};
use crate::run::wants::WantsInput;
use crate::terminal::{FAILED, USAGE, complain};
use crate::validate;

/// What a run is made of.
#[derive(clap::Args)]
pub(crate) struct Given {
    /// Workflow files, loaded together; - for stdin
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// The workflow to run (default: the first that is neither triggered nor called by another)
    #[arg(long, value_name = "ID")]
    pub(crate) workflow: Option<String>,
    /// The run's input: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON", default_value = "null")]
    input: String,
    /// A JSON list of messages that the main thread starts with
    #[arg(long, value_name = "FILE")]
    conversation: Option<String>,
    #[command(flatten)]
    config: ConfigFile,
    /// Pinned context, JSON: {role?, todo?, usefulInfo?, folderNotes?}
    #[arg(long, value_name = "FILE")]
    pinned: Option<String>,
}

/// Everything read, checked and chosen.
pub(crate) struct Opened {
    pub(crate) sources: Vec<SourceFile>,
    pub(crate) loaded: Loaded,
    pub(crate) compiled: Compiled,
    pub(crate) workflow: String,
    pub(crate) inputs: Inputs,
}

/// Input, conversation, pinned context, config.
pub(crate) struct Inputs {
    pub(crate) input: Value,
    pub(crate) conversation: Vec<Message>,
    pub(crate) pinned: Pinned,
    pub(crate) config: Config,
    pub(crate) wants: WantsInput,
}

/// Reads, checks and chooses what is to be run.
///
/// # Errors
/// The exit code; what is wrong stands on stderr.
pub(crate) fn open(given: &Given) -> Result<Opened, ExitCode> {
    let unusable = |message: String| complain(&message, USAGE);
    let sources = files::read(&given.files).map_err(unusable)?;
    let config = given.config.read(&given.files).map_err(unusable)?;
    let loaded = Loaded::of(&sources);
    let compiled = validate::check(&sources, &loaded, config.as_ref());
    let mut inputs = read(given, config.unwrap_or_default()).map_err(unusable)?;
    if !compiled.faults.is_empty() {
        let shown = validate::shown(sources, Some(&inputs.config));
        return Err(complain(validate::as_text(&shown, &compiled).trim_end(), FAILED));
    }
    let workflow = chosen(given.workflow.as_deref(), &compiled, &loaded).map_err(unusable)?;
    inputs.wants = WantsInput::of(&compiled, &workflow, &inputs.input);
    Ok(Opened {
        sources,
        loaded,
        compiled,
        workflow,
        inputs,
    })
}

/// One sentence where one cannot be read.
fn read(args: &Given, config: Config) -> Result<Inputs, String> {
    let input = match args.input.as_str() {
        "-" => parsed(
            "stdin",
            &read_stdin().map_err(|error| format!("cannot read stdin: {error}"))?,
        )?,
        text => match text.strip_prefix('@') {
            Some(path) => parsed(path, &file(path)?)?,
            None => parsed("--input", text)?,
        },
    };
    let conversation = match &args.conversation {
        Some(path) => parsed(path, &file(path)?)?,
        None => Vec::new(),
    };
    let pinned = match &args.pinned {
        Some(path) => parsed(path, &file(path)?)?,
        None => Pinned::default(),
    };
    Ok(Inputs {
        input,
        conversation,
        pinned,
        config,
        wants: WantsInput::default(),
    })
}

fn file(path: &str) -> Result<String, String> {
    files::read_file(path).map_err(|error| format!("cannot read {path}: {error}"))
}

fn parsed<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{name} is not what it should be: {error}"))
}

/// The workflow that is asked for, or the first that no other workflow calls and no trigger starts.
fn chosen(asked: Option<&str>, compiled: &Compiled, loaded: &Loaded) -> Result<String, String> {
    let ids: Vec<&str> = compiled.graphs.iter().map(|graph| &*graph.workflow_id).collect();
    if let Some(id) = asked {
        return if ids.contains(&id) {
            Ok(id.to_owned())
        } else {
            Err(format!("there is no workflow {id}; the files have {}", ids.join(", ")))
        };
    }
    let is_called = |id: &str| {
        let mut nodes = compiled.graphs.iter().flat_map(|graph| &graph.nodes);
        nodes.any(|node| matches!(&node.kind, NodeKind::Subgraph { workflow_id, .. } if **workflow_id == *id))
    };
    let is_triggered = |id: &str| {
        let own = compiled.graphs.iter().flat_map(|graph| &graph.triggers);
        let mut triggers = own.chain(loaded.triggers.iter().map(|trigger| &trigger.value));
        triggers.any(
            |trigger| matches!(&trigger.action, TriggerAction::StartWorkflow { workflow_id, .. } if workflow_id == id),
        )
    };
    let normal = || compiled.graphs.iter().filter(|graph| !graph.triggered);
    let first = normal()
        .find(|graph| !is_called(&graph.workflow_id) && !is_triggered(&graph.workflow_id))
        .or_else(|| normal().next());
    first
        .map(|graph| graph.workflow_id.to_string())
        .ok_or_else(|| "the files have no workflow that can be run by itself".to_owned())
}
