//! A server, a folder with workflows, and the processes that share them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The server of an engine, for one test.
pub(crate) trait Server {
    /// Returns the arguments that name the server.
    fn arguments(&self) -> Vec<String>;

    /// Returns further arguments of a worker.
    fn worker_arguments(&self) -> Vec<String>;

    /// Kills the server without a clean shutdown, as a power cut does.
    fn kill(&self);

    /// Starts the server again.
    fn go(&self);
}

/// Duration of a claim.
pub(crate) const CLAIM_SECONDS: u64 = 2;

/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_mins(1);

/// A tool that appends its string and idempotency key to `lines` when it starts, and to `ended` when it ends.
const CONFIG: &str = r#"
[[tools]]
name = "append"
description = "Appends a line"
inputSchema = { type = "object", properties = { text = { type = "string" }, pause = { type = "string" } } }
command = { program = "sh", args = ["-c", "echo \"$0 $PIRN_IDEMPOTENCY_KEY\" >> lines; sleep $1; echo \"$0 $PIRN_IDEMPOTENCY_KEY\" >> ended", "{{text}}", "{{pause}}"] }
"#;

pub(crate) struct Cluster {
    pub(crate) server: Box<dyn Server>,
    folder: tempfile::TempDir,
    claim_seconds: Cell<u64>,
}

/// A worker process. Dropping it kills it.
pub(crate) struct Worker(pub(crate) Child);

impl Cluster {
    /// Returns a cluster around a running server, with a folder that has its tools.
    pub(crate) fn of(server: impl Server + 'static) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("pirn.toml"), CONFIG).expect("written");
        std::fs::write(folder.path().join("lines"), "").expect("written");
        Self {
            server: Box::new(server),
            folder,
            claim_seconds: Cell::new(CLAIM_SECONDS),
        }
    }

    /// Sets the duration of the claims of processes that are started later.
    pub(crate) fn claims_last(&self, seconds: u64) {
        self.claim_seconds.set(seconds);
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).expect("written");
    }

    /// Returns the arguments that name the server and the duration of claims.
    fn place(&self) -> Vec<String> {
        let claim = ["--claim".to_owned(), self.claim_seconds.get().to_string()];
        self.server.arguments().into_iter().chain(claim).collect()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
        command
            .args(arguments)
            .args(self.place())
            .current_dir(self.folder.path());
        command
    }

    /// Executes a command and waits for its exit.
    pub(crate) fn pirn(&self, arguments: &[&str]) -> Output {
        self.command(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("the binary is built")
    }

    /// Executes a command and parses its output as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.pirn(&[arguments, &["--output", "json"]].concat());
        serde_json::from_slice(&ended.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&ended.stderr)))
    }

    /// Starts a process whose output is appended to the file `log`.
    pub(crate) fn spawn(&self, arguments: &[&str], log: &str) -> Child {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.file(log));
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file.expect("a log"));
        command.spawn().expect("the binary is built")
    }

    pub(crate) fn worker(&self, name: &str) -> Worker {
        let own = self.server.worker_arguments();
        let own = own.iter().map(String::as_str);
        let arguments = ["worker", "--profiles", "pirn.toml", "--grace", "0"]
            .into_iter()
            .chain(own);
        Worker(self.spawn(&arguments.collect::<Vec<_>>(), &format!("{name}.log")))
    }

    /// Starts a run, waits until it is stored and kills the process that started it.
    pub(crate) fn leave_run(&self, id: &str, arguments: &[&str]) {
        self.leave_runs(&[(
            id.to_owned(),
            arguments.iter().map(|&argument| argument.to_owned()).collect(),
        )]);
    }

    /// Like `leave_run`, for several concurrent runs with their ids and arguments.
    pub(crate) fn leave_runs(&self, runs: &[(String, Vec<String>)]) {
        let spawned = |(id, arguments): &(String, Vec<String>)| {
            let own = ["run", "--run-id", id, "--approve", "none"].into_iter();
            let arguments: Vec<&str> = own.chain(arguments.iter().map(String::as_str)).collect();
            (id.clone(), self.spawn(&arguments, "begun.log"))
        };
        let mut begun: BTreeMap<String, Child> = runs.iter().map(spawned).collect();
        self.wait("the runs have begun", || {
            for (id, _) in self.statuses() {
                if let Some(mut process) = begun.remove(&id) {
                    process.kill().expect("killed");
                    process.wait().expect("it ends");
                }
            }
            begun.is_empty()
        });
    }

    /// Waits until the condition is true.
    pub(crate) fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so() {
            if Instant::now() > until {
                let logs = self.logs();
                panic!("waited for ever: {what}\n{}\n{logs}", self.json(&["runs", "list"]));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn logs(&self) -> String {
        let entries = std::fs::read_dir(self.folder.path()).expect("a folder").flatten();
        let logs = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log"));
        let texts: Vec<String> = logs
            .map(|log| format!("{}\n{}", log.path().display(), read(&log.path())))
            .collect();
        texts.join("\n")
    }

    /// Returns the status of every run, by id.
    pub(crate) fn statuses(&self) -> Vec<(String, String)> {
        let listed = self.json(&["runs", "list"]);
        let runs = listed["runs"].as_array().expect("a list").iter();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        runs.map(|run| (text(&run["runId"]), text(&run["status"]))).collect()
    }

    pub(crate) fn status(&self, id: &str) -> String {
        let statuses = self.statuses();
        let found = statuses.into_iter().find(|(run, _)| run == id);
        found.map(|(_, status)| status).unwrap_or_default()
    }

    /// Returns the lines of a file in the folder.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        read(&self.file(name)).lines().map(str::to_owned).collect()
    }

    pub(crate) fn log(&self, name: &str) -> String {
        read(&self.file(&format!("{name}.log")))
    }
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

impl Worker {
    /// Sends the process a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.0.id().to_string())
            .status();
        assert!(sent.expect("kill is there").success());
    }

    /// Kills the process without a shutdown.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process may already have exited, in which case these calls fail.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
