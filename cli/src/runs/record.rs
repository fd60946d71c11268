//! `pirn runs record`: writes a run as a case for `pirn test`.

use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use futures::executor::block_on;
use pirn::cases::{Case, CaseFile, RecordError, Tested};
use pirn::check::SourceFile;
use pirn::store::ContentHash;
use pirn::{Engine, EngineBuilder};
use serde_json::json;

use crate::config::ConfigFile;
use crate::files::{self, unwritable};
use crate::output::failure::Failure;
use crate::output::terminal::{Output, answer, counted, json_text, say};
use crate::process::scripts::Level;
use crate::store::place::StoreArgs;
use crate::store::{close, config_of, not_resumed, spare};
use crate::tools;

/// Arguments of `pirn runs record`.
#[derive(clap::Args)]
pub(super) struct Record {
    /// A run that has ended
    #[arg(value_name = "ID")]
    id: String,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    to: String,
    /// Name this workflow file in the case instead of writing the definition into it: the case then tests the current file
    /// (repeatable)
    #[arg(long, value_name = "FILE")]
    definition: Vec<String>,
    /// Seed of the case [default: the seed with which the run was started]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    config: ConfigFile,
}

impl Record {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        spare(store.place()?.file().as_deref(), &self.to)?;
        let mut case = self.case(store)?;
        case.recording.seed = self.seed.or(case.recording.seed);
        if let Some(why) = failure_of(&mut case) {
            say(&format!("warning: `pirn test` fails for this recording: {why}"));
        }
        if !self.definition.is_empty() {
            case.definition = None;
            case.files = files_of(&self.to, &files::read(&self.definition)?);
        }
        std::fs::write(&self.to, text_of(&case)).map_err(|error| unwritable(&self.to, &error))?;
        let recording = &case.recording;
        let counts = [
            recording.requests.len(),
            recording.tool_calls.len(),
            recording.answers.len(),
            recording.inputs.len(),
        ];
        let [requests, tool_calls, answers, inputs] = counts;
        Ok(match output {
            Output::Json => {
                let written = json!({
                    "file": self.to, "requests": requests, "toolCalls": tool_calls, "answers": answers, "inputs": inputs,
                });
                answer(&json_text(written), 0)
            }
            Output::Text => {
                let nouns = ["request", "tool call", "answer", "input"];
                let counts = counts.into_iter().zip(nouns).map(|(count, noun)| counted(count, noun));
                let text = format!("{}: {}\n", self.to, counts.collect::<Vec<_>>().join(", "));
                answer(&text, 0)
            }
        })
    }

    fn case(&self, store: &StoreArgs) -> Result<Case, Failure> {
        let opened = store.open()?;
        let config = self.config.read_or(config_of(&*opened, &self.id)?);
        let config = config.map_err(|failure| failure.with_help("name the config of the run: --profiles FILE"))?;
        let config = config.unwrap_or_default();
        let engine = Engine::builder()
            .profiles(config.profiles)
            .tools(tools::registry(config.tools)?)
            .shared_store(opened)
            .arbiters(1)
            .build()
            .map_err(|error| Failure::failed("ENGINE_NOT_BUILT", error.to_string()))?;
        let case = block_on(Case::record(&engine, &self.id));
        close(&engine);
        case.map_err(|error| match &error {
            RecordError::Unreadable(error) => not_resumed(error),
            _other => Failure::failed("RUN_NOT_RECORDABLE", error.to_string())
                .with_help("docs/guides/testing.md lists the runs that a case can repeat"),
        })
    }
}

/// Sets the order in which a case of its own definition passes. If there is none, returns the first reason why it fails.
fn failure_of(case: &mut Case) -> Option<String> {
    match case.find_order(|| engine_with(&[])) {
        Ok(Tested { failures, .. }) => Some(failures.into_iter().next()?.message),
        Err(error) => Some(error.to_string()),
    }
}

/// Returns the workflow files of a case, with their paths from its folder.
pub(crate) fn files_of(case: &str, files: &[SourceFile]) -> Vec<CaseFile> {
    let folder = folder_of(case);
    let named = files.iter().map(|file| CaseFile {
        path: from_folder(&folder, Path::new(&file.name)),
        sha256: ContentHash::of(&file.text).to_string(),
    });
    named.collect()
}

/// Returns a builder with the workflows of these files.
pub(crate) fn engine_with(sources: &[SourceFile]) -> EngineBuilder {
    Engine::builder()
        .scripts(Level::default().port())
        .files(sources.iter().cloned())
}

/// Formats a case as it is written into a file.
pub(crate) fn text_of(case: &Case) -> String {
    format!("{:#}\n", json!(case))
}

/// Returns the folder of a file.
pub(crate) fn folder_of(file: &str) -> PathBuf {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    if folder.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        folder.to_owned()
    }
}

/// Returns a path that names `file` from `folder`; the path of the file if one of them cannot be resolved.
fn from_folder(folder: &Path, file: &Path) -> String {
    let (Ok(folder), Ok(found)) = (folder.canonicalize(), file.canonicalize()) else {
        return file.display().to_string();
    };
    let common = folder.components().zip(found.components());
    let common = common.take_while(|(one, other)| one == other).count();
    let up = folder.components().skip(common).map(|_| Component::ParentDir);
    let path: PathBuf = up.chain(found.components().skip(common)).collect();
    path.display().to_string()
}
