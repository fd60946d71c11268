//! What a run is given on the command line.

use std::fs;
use std::path::{Path, PathBuf};

use pirn::profiles::{beside, load_profiles};
use pirn::tools::{ToolsConfig, load_tools};
use pirn::{Message, Pinned, Profile};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Args;
use crate::files::read_stdin;

/// Input, conversation, pinned context, profiles, tools.
pub(super) struct Inputs {
    pub(super) input: Value,
    pub(super) conversation: Vec<Message>,
    pub(super) pinned: Pinned,
    pub(super) profiles: Vec<Profile>,
    pub(super) tools: ToolsConfig,
}

/// Reads all of them; one sentence where one cannot be read.
pub(super) fn read(args: &Args) -> Result<Inputs, String> {
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
    let (profiles, tools) = match config {
        Some(path) => (
            load_profiles(&path).map_err(|error| error.to_string())?,
            load_tools(&path).map_err(|error| error.to_string())?,
        ),
        None => (Vec::new(), ToolsConfig::default()),
    };
    Ok(Inputs {
        input,
        conversation,
        pinned,
        profiles,
        tools,
    })
}

fn file(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
}

fn parsed<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{name} is not what it should be: {error}"))
}
