//! Tools that are programs. They are started without a shell: each argument is passed unchanged.

use std::path::Path;
use std::process::Stdio;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::current_call::idempotency_key;
use pirn_actors::host::WorkClock;
use pirn_actors::ports::{Tool, ToolSpec};
use pirn_definition::script::text_of;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, Command};

use super::config::{Argument, CommandConfig};
use super::environment;
use super::output::{TruncatedOutput, tail};
use super::process::Process;
use super::template::Template;

/// Maximum bytes in an error message of stderr's end and of stdout's beginning.
const SHOWN: usize = 4 * 1024;

/// Result of a program without output: providers reject empty results.
const SILENT: &str = "(no output)";

/// A tool that starts a program.
pub(super) struct CommandTool {
    spec: ToolSpec,
    config: CommandConfig,
    limit: usize,
}

/// Inputs of one call.
struct Call {
    arguments: Vec<String>,
    stdin: Option<String>,
}

impl CommandTool {
    /// Creates the tool `spec`, with results of at most `limit` bytes.
    pub(super) fn new(spec: ToolSpec, config: CommandConfig, limit: usize) -> Self {
        Self { spec, config, limit }
    }

    fn command(&self, arguments: &[String], has_input: bool) -> Command {
        let mut command = Command::new(&self.config.program);
        command
            .args(arguments)
            .env_clear()
            .envs(environment::child_env(&self.config.env, &self.config.env_from))
            .stdin(if has_input { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(key) = idempotency_key() {
            command.env("PIRN_IDEMPOTENCY_KEY", key);
        }
        if let Some(folder) = &self.config.cwd {
            command.current_dir(folder);
        }
        command
    }
}

impl Tool for CommandTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call(&self, arguments: Value, _: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        let call = match call_of(&self.config, &arguments) {
            Ok(call) => call,
            Err(why) => return std::future::ready(Err(why)).boxed(),
        };
        let command = self.command(&call.arguments, call.stdin.is_some());
        let program = self.config.program.clone();
        let good = self.config.ok_exit_codes.clone();
        let limit = self.limit;
        async move { run(command, call.stdin, &program, &good, limit).await }.boxed()
    }
}

/// Returns the inputs of one call.
///
/// # Errors
/// A sentence, if the call has an argument that is not allowed or lacks one that stdin needs.
fn call_of(config: &CommandConfig, given: &Value) -> Result<Call, String> {
    let stdin = config.stdin.as_ref();
    let stdin = stdin.map(|text| text.render_required("the program's input", given, |value| value));
    Ok(Call {
        arguments: written(config, given)?,
        stdin: stdin.transpose()?,
    })
}

/// Returns the arguments of one call. Those that refer to an absent argument are omitted; one that is only a list becomes several.
///
/// # Errors
/// A sentence, if the program would parse a value of the call as an option and the config does not allow that.
fn written(config: &CommandConfig, given: &Value) -> Result<Vec<String>, String> {
    let mut arguments = Vec::with_capacity(config.args.len());
    // After `--`, programs parse no options.
    let mut is_checked = !config.allow_dashes;
    let mut put = |value: &Value, template: &Template| {
        let text = text_of(value).into_owned();
        if template.is_plain() {
            is_checked &= text != "--";
        } else if is_checked && template.beginning().is_empty() && is_option(value) {
            let name = template.names().next().unwrap_or_default();
            return Err(format!(
                "`{name}` is `{text}`, which the program would take for an option: a value must not begin with `-`"
            ));
        }
        arguments.push(text);
        Ok(())
    };
    for template in &config.args {
        match template {
            Argument::One(template) => match template.value(given) {
                Some(Value::Array(items)) => items.iter().try_for_each(|item| put(item, template))?,
                Some(value) => put(&value, template)?,
                None => {}
            },
            Argument::Together(templates) => {
                let values: Option<Vec<Value>> = templates.iter().map(|template| template.value(given)).collect();
                for (value, template) in values.iter().flatten().zip(templates) {
                    put(value, template)?;
                }
            }
        }
    }
    Ok(arguments)
}

/// Returns whether a program would parse the value as an option. `-` alone denotes standard input, and numbers are no options.
fn is_option(value: &Value) -> bool {
    matches!(value, Value::String(text) if text.starts_with('-') && text != "-")
}

async fn run(
    mut command: Command,
    stdin: Option<String>,
    program: &Path,
    good: &[i32],
    limit: usize,
) -> Result<String, String> {
    let program = program.display();
    let mut process = Process::start(&mut command).map_err(|error| format!("`{program}` does not start: {error}"))?;
    let (into, Some(out), Some(err)) = process.pipes() else {
        return Err(format!("`{program}` has no output"));
    };
    let (stdout, stderr, (), status) = futures::join!(
        TruncatedOutput::new(limit).read(out),
        tail(err, SHOWN),
        feed(into, stdin.unwrap_or_default()),
        process.ended()
    );
    let broken = |error: std::io::Error| format!("`{program}`: {error}");
    let (stdout, stderr, status) = (
        stdout.map_err(broken)?,
        stderr.map_err(broken)?,
        status.map_err(broken)?,
    );
    let how = match status.code() {
        Some(code) if good.contains(&code) => {
            let text = stdout.into_text(true);
            return Ok(if text.is_empty() { SILENT.to_owned() } else { text });
        }
        Some(code) => format!("ended with exit code {code}"),
        None => format!("was ended: {status}"),
    };
    let mut stdout = stdout.into_text(true);
    if stdout.len() > SHOWN {
        stdout.truncate(stdout.floor_char_boundary(SHOWN));
        stdout.push_str("\n[cut]");
    }
    Err(format!(
        "`{program}` {how}{}{}",
        part("stderr", &stderr),
        part("stdout", &stdout)
    ))
}

fn part(name: &str, text: &str) -> String {
    if text.trim().is_empty() {
        return String::new();
    }
    format!("\n{name}:\n{}", text.trim_end())
}

/// Writes the input and closes it. A write error is only logged, because a program need not read its input.
async fn feed(into: Option<ChildStdin>, text: String) {
    if let Some(mut into) = into
        && let Err(error) = into.write_all(text.as_bytes()).await
    {
        tracing::debug!(%error, "a program did not read its input");
    }
}
