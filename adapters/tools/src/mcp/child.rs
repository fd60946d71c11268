//! An MCP server that is a child process.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::within;
use crate::config::StdioConfig;
use crate::environment;
use crate::process::{Group, Process};

/// Time that a server has to exit after its stdin is closed, and again after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time to wait for the rest of stderr after the server has exited.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Maximum number of retained bytes from the end of stderr.
const KEPT: usize = 4 * 1024;

/// Maximum number of stderr characters in an error.
const SHOWN: usize = 500;

/// A server process. Dropping it kills its process group.
pub(super) struct Child {
    group: Group,
    exit: watch::Receiver<Option<String>>,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Child {
    /// Starts the process. Returns it with its stdout and stdin for the transport.
    pub(super) fn start(config: &StdioConfig, runtime: &Handle) -> Result<(Self, ChildStdout, ChildStdin), String> {
        let program = config.program.display();
        let mut command = Command::new(&config.program);
        command
            .args(&config.args)
            .env_clear()
            .envs(environment::child_env(&config.env, &config.env_from))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(folder) = &config.cwd {
            command.current_dir(folder);
        }
        let mut process =
            Process::start(&mut command).map_err(|error| format!("`{program}` does not start: {error}"))?;
        let ((Some(into), Some(out), Some(err)), Some(group)) = (process.pipes(), process.group()) else {
            return Err(format!("`{program}` has no pipes"));
        };
        let (told, exit) = watch::channel(None);
        let said = Arc::new(Mutex::new(Vec::new()));
        let child = Self {
            group,
            exit,
            said: Arc::clone(&said),
        };
        let listening = runtime.spawn(listen(err, said));
        runtime.spawn(async move {
            let how = match process.ended().await {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            // The rest of stderr is read before the exit is reported. The wait is limited, because a descendant may hold stderr
            // open.
            if within(LAST_WORDS, listening).await.is_none() {
                tracing::debug!("the stderr of an MCP server outlives it");
            }
            told.send_replace(Some(how));
        });
        Ok((child, out, into))
    }

    /// Returns the exit status, or `otherwise` if the server does not exit within [`PATIENCE`], followed by the end of stderr.
    pub(super) async fn why(&self, otherwise: impl FnOnce() -> String) -> String {
        self.after(self.ended().await.unwrap_or_else(otherwise))
    }

    /// Returns `how`, followed by the end of stderr.
    pub(super) fn after(&self, how: String) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let said = String::from_utf8_lossy(&said);
        let said = said.trim();
        if said.is_empty() {
            return how;
        }
        let skipped = said.chars().count().saturating_sub(SHOWN);
        format!("{how}; stderr: {}", said.chars().skip(skipped).collect::<String>())
    }

    /// Waits until the server exits; its stdin must be closed. Sends SIGTERM and then kills it if it does not exit in time.
    pub(super) async fn end(&self) {
        if self.ended().await.is_none() {
            self.group.ask_to_end();
            if self.ended().await.is_none() {
                self.kill();
                self.ended().await;
            }
        }
    }

    /// Kills the process group.
    pub(super) fn kill(&self) {
        self.group.kill();
    }

    async fn ended(&self) -> Option<String> {
        let mut exit = self.exit.clone();
        let ended = within(PATIENCE, exit.wait_for(Option::is_some)).await?;
        // The sender is dropped without a status only if the runtime shuts down. The program was then killed.
        ended.map_or_else(|_| Some("it was stopped".to_owned()), |how| how.clone())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads stderr and retains its last [`KEPT`] bytes.
async fn listen(mut err: ChildStderr, said: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = vec![0; KEPT];
    while let Ok(count @ 1..) = err.read(&mut chunk).await {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(&chunk[..count]);
        let over = said.len().saturating_sub(KEPT);
        said.drain(..over);
    }
}
