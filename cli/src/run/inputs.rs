//! Inputs of a run from the command line.

use std::collections::BTreeSet;
use std::path::Path;

use pirn::check::{CheckedFiles, SourceFile, World, check};
use pirn::{History, Pinned, RunErrorCode, formats};
use pirn_definition::definition::{TriggerAction, json_from_str, nearest};
use pirn_definition::graph::Compiled;
use pirn_service::{MAX_RUN_ID, is_run_id};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::{Config, ConfigFile};
use crate::files::{self, read_stdin};
use crate::output::failure::Failure;

/// The arguments that define a run.
#[derive(clap::Args)]
pub(crate) struct Given {
    /// Workflow files, loaded together; - for stdin
    #[arg(default_value = files::DEFAULT, value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// The workflow to run (default: the first one that is neither triggered nor called by another)
    #[arg(long, value_name = "ID")]
    pub(crate) workflow: Option<String>,
    /// The run's input: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON", default_value = "null", allow_hyphen_values = true)]
    input: String,
    /// Starting conversation: messages, a report's conversation, or one in OpenAI's, Anthropic's or Gemini's form
    #[arg(long, value_name = "FILE")]
    conversation: Option<String>,
    #[command(flatten)]
    pub(crate) config: ConfigFile,
    /// Pinned context, JSON: {role?, todo?, usefulInfo?, folderNotes?}
    #[arg(long, value_name = "FILE")]
    pinned: Option<String>,
}

impl Given {
    /// Refuses arguments that both name stdin, which can be read once.
    fn read_stdin_once(&self) -> Result<(), Failure> {
        let files = self.files.iter().map(|file| ("FILE", Some(file)));
        let options = [
            ("--input", Some(&self.input)),
            ("--conversation", self.conversation.as_ref()),
            ("--pinned", self.pinned.as_ref()),
        ];
        let named: Vec<&str> = files
            .chain(options)
            .filter(|(_, value)| value.is_some_and(|value| value == "-"))
            .map(|(name, _)| name)
            .collect();
        match named[..] {
            [first, second, ..] => {
                let message = format!("{first} and {second} both name stdin (-), which can be read only once");
                Err(Failure::usage("USAGE", message).with_help("name a file for one of them"))
            }
            [_] | [] => Ok(()),
        }
    }
}

/// The checked files, the inputs and the chosen workflow.
pub(crate) struct PreparedRun {
    pub(crate) checked: CheckedFiles,
    pub(crate) workflow: String,
    pub(crate) inputs: Inputs,
}

/// Input, conversation, pinned context and config.
pub(crate) struct Inputs {
    pub(crate) input: Value,
    pub(crate) conversation: History,
    pub(crate) pinned: Pinned,
    pub(crate) config: Config,
    pub(crate) missing_input: MissingInput,
    /// The workflow files.
    pub(crate) sources: Vec<SourceFile>,
}

/// Reads and checks the files, and chooses the workflow to run.
///
/// # Errors
/// Fails if a file is unreadable or invalid.
pub(crate) fn open(given: &Given) -> Result<PreparedRun, Failure> {
    given.read_stdin_once()?;
    let files = files::read(&given.files)?;
    let config = given.config.read(&given.files)?;
    let functions = BTreeSet::new();
    let text = config.as_ref().and_then(|config| config.text.as_ref());
    let world = World {
        config: text,
        functions: Some(&functions),
        ..World::default()
    };
    let checked = check(&files, &world);
    if !checked.faults().is_empty() {
        return Err(Failure::invalid(files, text, checked));
    }
    let mut inputs = read(given, config.unwrap_or_default())?;
    let workflow = chosen(given.workflow.as_deref(), &checked)?;
    inputs.missing_input = MissingInput::of(checked.compiled(), &workflow, &inputs.input);
    inputs.sources = files;
    Ok(PreparedRun {
        checked,
        workflow,
        inputs,
    })
}

fn read(args: &Given, config: Config) -> Result<Inputs, Failure> {
    let input = match args.input.as_str() {
        "-" => {
            let text = read_stdin("the run's input (JSON)")
                .map_err(|error| Failure::usage("UNREADABLE_FILE", format!("cannot read stdin: {error}")))?;
            parsed("input on stdin", &text)?
        }
        text => match text.strip_prefix('@') {
            Some(path) => parsed(path, &files::read_named(path)?)?,
            None => parsed("--input", text).map_err(|failure| failure.with_help(input_hint(text)))?,
        },
    };
    Ok(Inputs {
        input,
        conversation: args
            .conversation
            .as_deref()
            .map(conversation)
            .transpose()?
            .unwrap_or_default(),
        pinned: from_file(args.pinned.as_deref())?.unwrap_or_default(),
        config,
        missing_input: MissingInput::default(),
        sources: Vec::new(),
    })
}

fn from_file<T: DeserializeOwned>(path: Option<&str>) -> Result<Option<T>, Failure> {
    path.map(|path| parsed(path, &files::read_named(path)?)).transpose()
}

fn conversation(path: &str) -> Result<History, Failure> {
    let written = parsed(path, &files::read_named(path)?)?;
    let read = formats::read(&written, None).and_then(formats::Read::history);
    read.map_err(|error| {
        let message = format!("{path} holds no conversation that can be read: {error}");
        Failure::usage("INVALID_INPUT", message)
    })
}

fn parsed<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, Failure> {
    json_from_str(text).map_err(|error| Failure::usage("INVALID_INPUT", format!("invalid {name}: {error}")))
}

/// Returns a hint at the probable meaning of an invalid input.
fn input_hint(text: &str) -> String {
    if Path::new(text).is_file() {
        return format!("to read a file: --input @{text}");
    }
    if text.trim_start().starts_with(['{', '[']) {
        return "JSON has double quotes around names and texts; in a shell, put single quotes around it: \
                --input '{\"name\": \"value\"}', or read a file: --input @FILE"
            .to_owned();
    }
    let quoted = Value::String(text.to_owned()).to_string();
    format!(
        "a text is JSON with its quotes: --input '{}'; a file: --input @FILE; stdin: --input -",
        quoted.replace('\'', r"'\''")
    )
}

/// Returns the requested workflow, or the first one that no other workflow calls and no trigger starts.
fn chosen(wanted: Option<&str>, checked: &CheckedFiles) -> Result<String, Failure> {
    let graphs = checked.graphs();
    let ids: Vec<&str> = graphs.iter().map(|graph| &*graph.workflow_id).collect();
    if let Some(id) = wanted {
        return if ids.contains(&id) {
            Ok(id.to_owned())
        } else {
            Err(no_workflow(id, &ids))
        };
    }
    let is_called = |id: &str| {
        let mut nodes = graphs.iter().flat_map(|graph| &graph.nodes);
        nodes.any(|node| node.calls().is_some_and(|called| **called == *id))
    };
    let is_triggered = |id: &str| {
        let own = graphs.iter().flat_map(|graph| &graph.triggers);
        let mut triggers = own.chain(checked.loaded().triggers.iter().map(|trigger| &trigger.value));
        triggers.any(
            |trigger| matches!(&trigger.action, TriggerAction::StartWorkflow { workflow_id, .. } if workflow_id == id),
        )
    };
    let normal = || graphs.iter().filter(|graph| !graph.triggered);
    let first = normal()
        .find(|graph| !is_called(&graph.workflow_id) && !is_triggered(&graph.workflow_id))
        .or_else(|| normal().next());
    first.map(|graph| graph.workflow_id.to_string()).ok_or_else(|| {
        Failure::usage(
            "WORKFLOW_NOT_FOUND",
            "the files contain no workflow that can be run directly",
        )
        .with_help("a workflow with a START node can be run; one with START_FROM_TRIGGER is started by a trigger")
    })
}

fn no_workflow(id: &str, ids: &[&str]) -> Failure {
    let message = format!("there is no workflow {id}; the files have {}", ids.join(", "));
    let failure = Failure::usage("WORKFLOW_NOT_FOUND", message);
    match nearest(id, ids.iter().copied()) {
        Some(near) => failure.with_help(format!("did you mean {near}?")),
        None => failure,
    }
}

/// Refuses a run id that the HTTP API would refuse.
pub(crate) fn check_run_id(id: &str) -> Result<(), Failure> {
    if is_run_id(id) {
        return Ok(());
    }
    let message = format!("--run-id {id}: this is not the id of a run");
    Err(Failure::usage("USAGE", message).with_help(format!(
        "an id has 1 to {MAX_RUN_ID} letters, digits, hyphens, dots and underscores, such as order-17"
    )))
}

/// True if a workflow that reads an input was started without one.
#[derive(Clone, Copy, Default)]
pub(crate) struct MissingInput(bool);

impl MissingInput {
    /// Checks the workflow with this id.
    pub(crate) fn of(compiled: &Compiled, workflow: &str, input: &Value) -> Self {
        let mut graphs = compiled.graphs.iter();
        let graph = graphs.find(|graph| *graph.workflow_id == *workflow);
        let reads = graph.is_some_and(|graph| graph.snippets.iter().any(|snippet| names_input(&snippet.source)));
        Self(reads && input.is_null())
    }

    /// Returns the hint if an error with one of these codes may be caused by the missing input.
    pub(crate) fn hint(self, mut codes: impl Iterator<Item = RunErrorCode>) -> Option<&'static str> {
        let is_of_a_text = |code| matches!(code, RunErrorCode::ScriptError | RunErrorCode::TemplateError);
        (self.0 && codes.any(is_of_a_text))
            .then_some("the workflow reads `input`, and there is none: pass --input JSON, @FILE or - for stdin")
    }
}

/// True if a text contains the word `input`, not as a field of an object.
fn names_input(text: &str) -> bool {
    let is_of_a_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$');
    text.match_indices("input").any(|(at, word)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(|letter| is_of_a_word(letter) || letter == '.') && !after.is_some_and(is_of_a_word)
    })
}

#[cfg(test)]
mod tests {
    use super::names_input;

    #[test]
    fn input_is_found_only_as_a_whole_identifier() {
        for text in ["input", "(input.a || 0)", "{{input.topic}}", "a+input", "!input[0]"] {
            assert!(names_input(text), "{text}");
        }
        for text in ["", "inputs", "my_input", "event.input", "inputé", "putin"] {
            assert!(!names_input(text), "{text}");
        }
    }
}
