//! Tools that are programs. No shell stands between: each argument reaches the program as it is.

use std::path::Path;
use std::process::Stdio;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::cause::idempotency_key;
use pirn_actors::host::WorkClock;
use pirn_actors::ports::{Tool, ToolSpec};
use pirn_core::script::text_of;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, Command};

use super::config::{Argument, CommandConfig};
use super::environment;
use super::output::{Head, tail};
use super::process::Process;

/// Bytes of stderr's end, and of stdout's beginning, that a failure shows.
const SHOWN: usize = 4 * 1024;

/// The answer of a program that says nothing: providers refuse empty results.
const SILENT: &str = "(no output)";

/// A program behind a tool.
pub(super) struct CommandTool {
    spec: ToolSpec,
    config: CommandConfig,
    limit: usize,
}

/// The inputs of one call.
struct Call {
    arguments: Vec<String>,
    stdin: Option<String>,
}

impl CommandTool {
    /// The tool `spec`, whose result has at most `limit` bytes.
    pub(super) fn new(spec: ToolSpec, config: CommandConfig, limit: usize) -> Self {
        Self { spec, config, limit }
    }

    fn command(&self, arguments: &[String], has_input: bool) -> Command {
        let mut command = Command::new(&self.config.program);
        command
            .args(arguments)
            .env_clear()
            .envs(environment::of_program(&self.config.env, &self.config.env_from))
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
        let call = Call {
            arguments: written(&self.config.args, &arguments),
            stdin: self.config.stdin.as_ref().and_then(|text| text.render(&arguments)),
        };
        let command = self.command(&call.arguments, call.stdin.is_some());
        let program = self.config.program.clone();
        let good = self.config.ok_exit_codes.clone();
        let limit = self.limit;
        async move { run(command, call.stdin, &program, &good, limit).await }.boxed()
    }
}

/// The arguments of one call: what names an absent argument is left out, a list alone becomes several.
fn written(templates: &[Argument], given: &Value) -> Vec<String> {
    let mut arguments = Vec::with_capacity(templates.len());
    for template in templates {
        match template {
            Argument::One(template) => match template.value(given) {
                Some(Value::Array(items)) => {
                    arguments.extend(items.iter().map(|item| text_of(item).into_owned()));
                }
                Some(value) => arguments.push(text_of(&value).into_owned()),
                None => {}
            },
            Argument::Together(templates) => {
                let texts: Option<Vec<String>> = templates.iter().map(|template| template.render(given)).collect();
                arguments.extend(texts.unwrap_or_default());
            }
        }
    }
    arguments
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
        Head::new(limit).read(out),
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

/// Writes the input and closes it. A program that does not read it has its reasons.
async fn feed(into: Option<ChildStdin>, text: String) {
    if let Some(mut into) = into
        && let Err(error) = into.write_all(text.as_bytes()).await
    {
        tracing::debug!(%error, "a program did not read its input");
    }
}
