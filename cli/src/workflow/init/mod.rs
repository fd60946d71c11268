//! `pirn init [DIR]`: creates a folder with a workflow that runs offline.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::schema;
use crate::output::failure::Failure;
use crate::output::terminal::{answer, shell_quoted};

/// The files that are written in addition to the schema.
const FILES: [(&str, &str); 4] = [
    ("workflow.json", include_str!("files/workflow.json")),
    ("pirn.toml", include_str!("files/pirn.toml")),
    ("input.json", include_str!("files/input.json")),
    ("README.md", include_str!("files/README.md")),
];

const SCHEMA: &str = "pirn.schema.json";

/// Arguments of `pirn init`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn init hello
  pirn run hello/workflow.json --input @hello/input.json

Writes workflow.json, pirn.toml (with an offline model), input.json, README.md and pirn.schema.json, by which
editors complete workflow files. An existing file is never overwritten.

Exit codes: 0, 2 a file exists already or the folder cannot be written.")]
pub(crate) struct Args {
    /// The folder; created if it does not exist
    #[arg(default_value = ".", value_name = "DIR")]
    dir: PathBuf,
}

/// Writes all files, or none if one exists.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let dir = &args.dir;
    let schema = schema::text();
    let files: Vec<(PathBuf, &str)> = FILES
        .iter()
        .copied()
        .chain([(SCHEMA, schema.as_str())])
        .map(|(name, text)| (dir.join(name), text))
        .collect();
    let there: Vec<String> = files
        .iter()
        .filter(|(path, _)| path.exists())
        .map(|(path, _)| path.display().to_string())
        .collect();
    if !there.is_empty() {
        let message = format!("these files exist and are not overwritten: {}", there.join(", "));
        return Err(Failure::usage("FILE_EXISTS", message).with_help("name another folder: pirn init DIR"));
    }
    fs::create_dir_all(dir).map_err(|error| unwritable(dir, &error))?;
    for (path, text) in &files {
        write_new(path, text).map_err(|error| unwritable(path, &error))?;
    }
    let at = |name: &str| shell_quoted(&dir.join(name).display().to_string()).into_owned();
    Ok(answer(
        &format!(
            "wrote {}\n\nrun it:       pirn run {} --input {}\ncheck it:     pirn validate {}\nchange it:    {}\n",
            files
                .iter()
                .map(|(path, _)| path.display().to_string())
                .collect::<Vec<_>>()
                .join(", "),
            at("workflow.json"),
            shell_quoted(&format!("@{}", dir.join("input.json").display())),
            at("workflow.json"),
            dir.join("README.md").display(),
        ),
        0,
    ))
}

/// Creates a file; fails if it exists, even if it was created after the earlier check.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    File::create_new(path)?.write_all(text.as_bytes())
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage("WRITE_FAILED", format!("cannot write {}: {error}", path.display()))
}
