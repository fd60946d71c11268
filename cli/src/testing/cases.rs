//! `pirn test FILE...`: runs cases that `pirn runs record` wrote, under virtual time.

use std::fmt::Write;
use std::process::ExitCode;

use pirn::cases::{Case, GradeFailure, Tested};
use pirn::check::SourceFile;
use pirn::store::ContentHash;
use pirn_definition::definition::json_from_str;
use serde_json::{Value, json};

use crate::config::ConfigFile;
use crate::files::{self, unwritable};
use crate::output::failure::Failure;
use crate::output::terminal::{FAILED, Output, answer, counted, json_text};
use crate::runs::{case_text, engine_with, files_of_case, folder_of_case};
use crate::tools;

/// Arguments of `pirn test`.
#[derive(clap::Args)]
#[command(after_help = "\
A case repeats a recorded run: its models reply by the digest of the request, its tools by their arguments, people by the node of the
question. Messages, events and other inputs from outside arrive after the same event as in the recorded run. Time is virtual. A request
or a call that the case does not contain fails the case, with the nearest recorded one and the first difference.

`expect` of a case lists graders: outcome {status, error?}, equal {value}, path {nodes}, cost {maxTokens?, maxAmount?},
schema {schema}, contains {text}, function {expression}.

--update runs the cases with the models and tools of the config for what is not recorded, and writes the new recording. Your own
schema, contains and function graders stay. With --definition, the case then names these files. A case that expects COMPLETED is not
updated if the run ends differently.

JSON: {cases[{file, name, passed, updated, changed[], failures[{grader, message}]}], failed}.

Examples:
  pirn runs record RUN --to case.json --store runs.db && pirn test case.json
  pirn runs record RUN --to case.json --definition workflow.json --store runs.db && pirn test case.json --junit report.xml
  pirn runs record RUN --to case.json --store runs.db && pirn test case.json --definition workflow.json --update

Exit codes: 0 every case passes or is updated, 1 one fails or is not updated, 2 wrong usage or an unreadable file.")]
pub(crate) struct Args {
    /// Cases that `pirn runs record` wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Run this workflow file instead of the workflow of the cases (repeatable)
    #[arg(long, value_name = "FILE")]
    definition: Vec<String>,
    /// Write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<String>,
    /// Record the cases again, and write them
    #[arg(long, conflicts_with = "junit")]
    update: bool,
    #[command(flatten)]
    config: ConfigFile,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// The result of one case.
struct CaseResult {
    file: String,
    name: String,
    is_updated: bool,
    /// Workflow files that differ from those of the recording.
    changed: Vec<String>,
    failures: Vec<GradeFailure>,
}

/// Runs all cases; returns 1 if one of them fails.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let replaced = files::read(&args.definition)?;
    let mut results = Vec::with_capacity(args.files.len());
    for file in &args.files {
        let case = read(file)?;
        results.push(args.result(file, case, &replaced)?);
    }
    if let Some(path) = &args.junit {
        std::fs::write(path, junit(&results)).map_err(|error| unwritable(path, &error))?;
    }
    let failed = results.iter().filter(|case| !case.failures.is_empty()).count();
    let text = match args.output {
        Output::Json => {
            let cases: Vec<Value> = results.iter().map(CaseResult::json).collect();
            json_text(json!({"cases": cases, "failed": failed}))
        }
        Output::Text => {
            let each: String = results.iter().map(CaseResult::text).collect();
            format!("{each}{}, {failed} failed\n", counted(results.len(), "case"))
        }
    };
    Ok(answer(&text, if failed == 0 { 0 } else { FAILED }))
}

fn read(file: &str) -> Result<Case, Failure> {
    let text = files::read_named(file)?;
    json_from_str(&text).map_err(|error| {
        Failure::usage("INVALID_CASE", format!("{file} is no case: {error}"))
            .with_help("write one with `pirn runs record ID --to FILE`")
    })
}

impl Args {
    fn result(&self, file: &str, mut case: Case, replaced: &[SourceFile]) -> Result<CaseResult, Failure> {
        let folder = folder_of_case(file);
        let place = |path: &String| folder.join(path).display().to_string();
        let named: Vec<String> = case.files.iter().map(|named| place(&named.path)).collect();
        let own = if replaced.is_empty() {
            files::read(&named)?
        } else {
            Vec::new()
        };
        let recorded = case.files.iter().zip(&own);
        let is_changed = |file: &SourceFile, sha256: &str| ContentHash::of(&file.text).to_string() != sha256;
        let changed = recorded.filter(|(named, file)| is_changed(file, &named.sha256));
        let mut result = CaseResult {
            file: file.to_owned(),
            name: case.name.clone(),
            is_updated: false,
            changed: changed.map(|(named, _)| named.path.clone()).collect(),
            failures: Vec::new(),
        };
        let sources = if replaced.is_empty() { &own[..] } else { replaced };
        let definition = case.definition.clone();
        if !sources.is_empty() {
            case.definition = None;
        }
        let tested = if self.update {
            let places = if self.definition.is_empty() {
                &named
            } else {
                &self.definition
            };
            self.updated(&case, sources, places).map(|mut updated| {
                if replaced.is_empty() {
                    updated.definition = definition;
                    for (named, file) in updated.files.iter_mut().zip(&own) {
                        named.sha256 = ContentHash::of(&file.text).to_string();
                    }
                } else {
                    // The recording is one of these files, so the case names them instead of its former definition.
                    updated.files = files_of_case(file, replaced);
                }
                Some(updated)
            })
        } else {
            let tested = case.run(engine_with(sources)).map_err(|error| error.to_string());
            tested.map(|Tested { failures, .. }| {
                result.failures = failures;
                None
            })
        };
        match tested {
            Ok(None) => {}
            Ok(Some(updated)) => {
                std::fs::write(file, case_text(&updated)).map_err(|error| unwritable(file, &error))?;
                result.is_updated = true;
            }
            Err(message) => result.failures.push(GradeFailure {
                grader: if self.update { "update" } else { "start" },
                message,
            }),
        }
        Ok(result)
    }

    /// Runs the case with the models and tools of the config, and returns it with the new recording.
    fn updated(&self, case: &Case, sources: &[SourceFile], places: &[String]) -> Result<Case, String> {
        let told = |failure: Failure| failure.into_told().2;
        let config = self.config.read(places).map_err(told)?.unwrap_or_default();
        let builder = engine_with(sources)
            .profiles(config.profiles)
            .tools(tools::registry(config.tools).map_err(told)?);
        case.update(builder).map_err(|error| error.to_string())
    }
}

impl CaseResult {
    fn json(&self) -> Value {
        json!({
            "file": self.file, "name": self.name, "passed": self.failures.is_empty(), "updated": self.is_updated,
            "changed": self.changed, "failures": self.failures,
        })
    }

    fn text(&self) -> String {
        if self.failures.is_empty() {
            let word = if self.is_updated { "wrote" } else { "ok" };
            return format!("{word:5} {} ({})\n", self.name, self.file);
        }
        let mut text = format!("FAIL  {} ({})\n", self.name, self.file);
        for failure in &self.failures {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "  {}: {}",
                failure.grader,
                failure.message.replace('\n', "\n    ")
            );
        }
        if !self.changed.is_empty() {
            let _ = writeln!(text, "  changed since the recording: {}", self.changed.join(", "));
        }
        text
    }
}

/// Formats the results as JUnit XML.
fn junit(results: &[CaseResult]) -> String {
    let failed = results.iter().filter(|case| !case.failures.is_empty()).count();
    let count = results.len();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string does not fail.
    let _ = writeln!(text, "<testsuites tests=\"{count}\" failures=\"{failed}\">");
    let _ = writeln!(
        text,
        "  <testsuite name=\"pirn test\" tests=\"{count}\" failures=\"{failed}\">"
    );
    for case in results {
        let (file, name) = (escaped(&case.file), escaped(&case.name));
        let _ = writeln!(text, "    <testcase classname=\"{file}\" name=\"{name}\">");
        for GradeFailure { grader, message } in &case.failures {
            let first = escaped(message.lines().next().unwrap_or_default());
            let message = escaped(message);
            let _ = writeln!(
                text,
                "      <failure type=\"{grader}\" message=\"{first}\">{message}</failure>"
            );
        }
        text.push_str("    </testcase>\n");
    }
    text + "  </testsuite>\n</testsuites>\n"
}

/// Escapes text for XML. Characters that XML does not have become U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(letter),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other if other.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_for_xml_has_no_markup_and_no_control_characters() {
        assert_eq!(
            escaped("<a b=\"&\">\u{1b}\n"),
            "&lt;a b=&quot;&amp;&quot;&gt;\u{fffd}\n"
        );
    }
}
