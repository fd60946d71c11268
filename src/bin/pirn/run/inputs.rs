//! What a run is given on the command line.

use std::fs;
use std::path::{Path, PathBuf};

use pirn::faults::{Faults, load_faults};
use pirn::profiles::{beside, load_profiles};
use pirn::tools::{ToolsConfig, load_tools};
use pirn::{Message, Pinned, Profile};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::files::read_stdin;

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
    /// Model profiles and tools, TOML or JSON (default: pirn.toml beside the first workflow file)
    #[arg(long, visible_alias = "config", value_name = "FILE")]
    profiles: Option<String>,
    /// Pinned context, JSON: {role?, todo?, usefulInfo?, folderNotes?}
    #[arg(long, value_name = "FILE")]
    pinned: Option<String>,
}

/// Input, conversation, pinned context, profiles, tools.
pub(crate) struct Inputs {
    pub(crate) input: Value,
    pub(crate) conversation: Vec<Message>,
    pub(crate) pinned: Pinned,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) tools: ToolsConfig,
    pub(crate) faults: Faults,
}

/// Reads all of them; one sentence where one cannot be read.
pub(crate) fn read(args: &Given) -> Result<Inputs, String> {
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
    let config = match (&args.profiles, args.files.first()) {
        (Some(path), _) => Some(PathBuf::from(path)),
        (None, Some(first)) => beside(Path::new(first)),
        (None, None) => None,
    };
    let (profiles, tools, faults) = match config {
        Some(path) => (
            load_profiles(&path).map_err(|error| error.to_string())?,
            load_tools(&path).map_err(|error| error.to_string())?,
            load_faults(&path).map_err(|error| error.to_string())?,
        ),
        None => (Vec::new(), ToolsConfig::default(), Faults::default()),
    };
    Ok(Inputs {
        input,
        conversation,
        pinned,
        profiles,
        tools,
        faults,
    })
}

fn file(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
}

fn parsed<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{name} is not what it should be: {error}"))
}
