//! `pirn validate FILE...`: prints every error and warning of a set of files, as JSON or with source excerpts.

use std::mem::ManuallyDrop;
use std::process::ExitCode;

use pirn::check::{CheckedFiles, World, check};
use serde_json::json;

use crate::config::{Config, ConfigFile};
use crate::files;
use crate::output::failure::Failure;
use crate::output::faults;
use crate::output::sanitize::sanitize_line;
use crate::output::terminal::{self, FAILED, Output, answer, answer_as_it_is, counted, json_text};

/// Arguments of `pirn validate`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn validate workflow.json
  pirn validate workflow.json trigger.json --profiles models.toml
  pirn validate - --output json < workflow.json

JSON: {valid, errors[{code, message, pointer, line?, column?, file?, help?}], warnings[], checked}.

Exit codes: 0 valid, 1 invalid, 2 wrong usage or an unreadable file.")]
pub(crate) struct Args {
    /// Workflow files, checked together; - for stdin
    #[arg(default_value = files::DEFAULT, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    config: ConfigFile,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Validates the files as one set.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let files = files::read(&args.files)?;
    let config = args.config.read(&args.files)?;
    let text = config.as_ref().and_then(|config| config.text.as_ref());
    let world = World {
        config: text,
        ..World::default()
    };
    // Leak the result: the process ends next, and freeing a large workflow piece by piece takes time.
    let checked = ManuallyDrop::new(check(&files, &world));
    let code = if checked.faults().is_empty() { 0 } else { FAILED };
    let counts = Counts::of(&checked, config.as_ref());
    let report = match args.output {
        Output::Json => {
            let report = json!({
                "valid": checked.faults().is_empty(),
                "errors": checked.faults(),
                "warnings": checked.warnings(),
                "checked": counts.json(),
            });
            json_text(report)
        }
        Output::Text => {
            let in_order: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
            let config = text.map(|text| text.source().name.clone());
            let sources: Vec<String> = in_order.into_iter().chain(config).collect();
            let shown = faults::texts(files, text);
            let verdict = faults::text(&shown, &checked, terminal::on_stdout());
            format!(
                "{verdict}checked: {} ({})\n",
                counts.text(),
                sanitize_line(&sources.join(", "))
            )
        }
    };
    Ok(match args.output {
        Output::Json => answer(&report, code),
        Output::Text => answer_as_it_is(&report, code),
    })
}

/// Numbers of the checked things.
struct Counts([(&'static str, usize); 5]);

impl Counts {
    fn of(checked: &CheckedFiles, config: Option<&Config>) -> Self {
        let loaded = checked.loaded();
        let workflows = || loaded.workflows.iter().map(|workflow| &workflow.value);
        let in_config = config.map_or((0, 0), |config| (config.profiles.len(), config.tools.names().len()));
        Self([
            ("workflows", loaded.workflows.len()),
            ("nodes", workflows().map(|workflow| workflow.nodes.len()).sum()),
            (
                "triggers",
                loaded.triggers.len() + workflows().map(|workflow| workflow.triggers.len()).sum::<usize>(),
            ),
            ("profiles", loaded.profiles.len() + in_config.0),
            ("tools", in_config.1),
        ])
    }

    fn json(&self) -> serde_json::Value {
        self.0
            .iter()
            .map(|(name, count)| ((*name).to_owned(), json!(count)))
            .collect()
    }

    /// Formats the counts, such as `1 workflow, 5 nodes`, without zero counts.
    fn text(&self) -> String {
        let there = self.0.iter().filter(|(_, count)| *count > 0);
        let words: Vec<String> = there
            .map(|(name, count)| counted(*count, name.trim_end_matches('s')))
            .collect();
        if words.is_empty() {
            "nothing".to_owned()
        } else {
            words.join(", ")
        }
    }
}
