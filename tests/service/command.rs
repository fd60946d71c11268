//! The `pirn serve` process.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use reqwest::Client;
use serde_json::json;

const ONE: &str = r#"{"id": "one", "nodes": [{"id": "s", "type": "START"}, {"id": "w", "type": "WAIT", "config": {"event": "go"}}, {"id": "e", "type": "END"}],
    "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]}"#;

pub(crate) const ECHO: &str = r#"{"id": "echo", "edges": [{"from": "s", "to": "e"}],
    "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END", "config": {"output": "input"}}]}"#;

/// Returns the repository's root.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("a folder of the repository")
}

/// A serving process, killed on drop.
pub(crate) struct Served {
    child: Child,
    lines: Option<std::io::Lines<BufReader<std::process::ChildStderr>>>,
    pub(crate) url: String,
}

impl Served {
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::with("serve", folder, &[&["--listen", "127.0.0.1:0"], arguments].concat())
    }

    /// Starts a subcommand with exactly these arguments.
    pub(crate) fn with(subcommand: &str, folder: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
        Self::by(command.arg(subcommand), folder, arguments)
    }

    /// Starts the service with its address space limited to `memory` bytes.
    pub(crate) fn within(memory: u64, folder: &Path, arguments: &[&str]) -> Self {
        let limited = format!("ulimit -v {}; exec \"$0\" serve \"$@\"", memory >> 10);
        let mut command = Command::new("sh");
        let command = command.args(["-c", &limited, env!("CARGO_BIN_EXE_pirn")]);
        let mut served = Self::by(command, folder, &[&["--listen", "127.0.0.1:0"], arguments].concat());
        // Forward the process's log to the output of the test.
        if let Some(lines) = served.lines.take() {
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        }
        served
    }

    fn by(command: &mut Command, folder: &Path, arguments: &[&str]) -> Self {
        let mut child = command
            .args(arguments)
            .current_dir(folder)
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut served = Self {
            child,
            lines: Some(lines),
            url: String::new(),
        };
        served.url = served.line("listening on ").expect("it listens");
        served
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Reads up to the next line that contains `text`; returns the rest of the line after it.
    pub(crate) fn line(&mut self, text: &str) -> Option<String> {
        self.lines
            .as_mut()?
            .find_map(|line| line.ok()?.split_once(text).map(|(_, rest)| rest.to_owned()))
    }

    /// Closes the pipe that the process writes its log to.
    pub(crate) fn close_log(&mut self) {
        self.lines = None;
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Waits for the process to end; returns its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }

    pub(crate) fn signal(&self, name: &str) {
        let told = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status();
        assert!(told.expect("kill runs").success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("pirn-serve-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[cfg(unix)]
#[tokio::test]
async fn a_terminated_process_ends_its_runs_and_streams_before_it_exits() {
    let folder = folder("drain");
    std::fs::write(folder.join("one.json"), ONE).expect("a file");
    let mut served = Served::start(&folder, &["one.json", "--grace", "0"]);
    let client = Client::builder().no_proxy().build().expect("a client");
    let body = json!({"workflow": "one"}).to_string();
    let request = client
        .post(format!("{}/v1/runs", served.url))
        .header("content-type", "application/json")
        .body(body);
    let mut events = client_events(request).await;
    assert_eq!(events.next().await.expect("an event").json["type"], "THREAD_STARTED");
    served.signal("TERM");
    let last = events.all().await.pop().expect("a last event");
    assert_eq!(
        (last.name.as_deref(), &last.json["status"]),
        (Some("end"), &json!("CANCELLED"))
    );
    assert_eq!(served.child.wait().expect("it ends").code(), Some(0));
}

async fn client_events(request: reqwest::RequestBuilder) -> crate::world::Events {
    crate::world::Events::of(
        request
            .header("accept", "text/event-stream")
            .send()
            .await
            .expect("a stream"),
    )
}

#[cfg(unix)]
#[tokio::test]
async fn sighup_reloads_workflows_and_tokens_unless_the_files_are_invalid() {
    let folder = folder("reload");
    std::fs::write(folder.join("one.json"), ONE).expect("a file");
    std::fs::write(folder.join("tokens"), "# operators\n#revoked roles=read\nfirst\n").expect("a file");
    let mut served = Served::start(&folder, &["one.json", "--token-file", "tokens"]);
    let client = Client::builder().no_proxy().build().expect("a client");
    let url = served.url.trim().to_owned();
    let ids = async |token: &str| {
        let request = client
            .get(format!("{url}/v1/workflows"))
            .header("authorization", format!("Bearer {token}"));
        let answer = crate::world::answer(request).await;
        (
            answer.status.as_u16(),
            answer.body["workflows"][0]["id"].as_str().map(str::to_owned),
        )
    };
    assert_eq!(ids("first").await, (200, Some("one".to_owned())));
    assert_eq!(ids("#revoked").await, (401, None), "a comment is no token");
    std::fs::write(folder.join("one.json"), ONE.replace("\"one\"", "\"two\"")).expect("a file");
    std::fs::write(folder.join("tokens"), "second\n").expect("a file");
    served.signal("HUP");
    served.line("the workflows were reloaded").expect("it says so");
    while ids("second").await.0 != 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(ids("second").await, (200, Some("two".to_owned())));
    assert_eq!(ids("first").await, (401, None));
    std::fs::write(
        folder.join("one.json"),
        ONE.replace("\"one\"", "\"two\", \"name\": \"Two\""),
    )
    .expect("a file");
    served.signal("HUP");
    served.line("the workflows were reloaded").expect("an edited one, too");
    std::fs::write(folder.join("one.json"), "{").expect("a file");
    served.signal("HUP");
    served
        .line("reloading failed: the workflows are unchanged")
        .expect("it says so");
    assert_eq!(ids("second").await, (200, Some("two".to_owned())));
}

#[cfg(unix)]
#[test]
fn each_line_of_a_json_log_is_an_object_also_after_a_failed_reload() {
    let folder = folder("json-log");
    std::fs::write(folder.join("one.json"), ONE).expect("a file");
    std::fs::write(folder.join("tokens"), "first\n").expect("a file");
    let mut served = Served::start(&folder, &["one.json", "--token-file", "tokens", "--log-format", "json"]);
    std::fs::write(folder.join("one.json"), "{").expect("a file");
    std::fs::write(folder.join("tokens"), "first roles=reader\n").expect("a file");
    served.signal("HUP");
    for (effect, reason) in [
        ("the workflows are unchanged", "one.json"),
        ("the tokens are unchanged", "tokens, line 1: "),
    ] {
        let fields = loop {
            let line = served.lines.as_mut().expect("piped").next();
            let line = line.expect("a line").expect("text");
            let logged: serde_json::Value = serde_json::from_str(&line).expect(&line);
            let message = logged["fields"]["message"].as_str().expect("a message");
            if message.contains(effect) {
                break logged["fields"].clone();
            }
        };
        assert!(
            fields["failure"].as_str().is_some_and(|why| why.contains(reason)),
            "{fields}"
        );
    }
}

#[test]
fn a_non_loopback_address_needs_a_token() {
    let folder = folder("open");
    std::fs::write(folder.join("one.json"), ONE).expect("a file");
    let serve = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_pirn"))
            .arg("serve")
            .args(arguments)
            .current_dir(&folder)
            .output();
        let output = output.expect("it ends");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, said) = serve(&["one.json", "--listen", "0.0.0.0:0"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("--token-file"), "{said}");
    for (option, value) in [
        ("--allow-origin", "*"),
        ("--allow-origin", "https://app.example.com/"),
        ("--allow-host", "pirn.example.com:7474"),
        ("--allow-host", "*"),
    ] {
        let (code, said) = serve(&["one.json", option, value]);
        assert_eq!(code, Some(2), "{option} {value}: {said}");
        assert!(
            !said.contains("listening")
                && said.contains("write `") | said.contains("list each") | said.contains("must not have a port"),
            "{said}"
        );
    }
    let (code, said) = serve(&["none.json"]);
    assert_eq!(code, Some(2), "{said}");
    std::fs::write(folder.join("bad.json"), ONE.replace("WAIT", "WEIGHT")).expect("a file");
    let (code, said) = serve(&["bad.json"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("WEIGHT"), "{said}");
}

#[test]
fn an_advertised_url_is_checked_and_needs_a_server_that_services_share() {
    let folder = folder("advertised");
    std::fs::write(folder.join("one.json"), ONE).expect("a file");
    let serve = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
        let command = command
            .args(["serve", "one.json", "--store", "runs.db"])
            .args(arguments);
        let output = command.current_dir(&folder).output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    };
    let said = serve(&["--advertise", "svc-a:7474"]);
    assert!(said.contains("such as `http://svc-a:7474`"), "{said}");
    let said = serve(&["--advertise", "http://svc-a:7474"]);
    assert!(
        said.contains("--advertise needs") && said.contains("--engine"),
        "{said}"
    );
    std::fs::write(
        folder.join("pirn.toml"),
        "[service]\nadvertise = \"http://svc-a:7474\"\n",
    )
    .expect("a file");
    let said = serve(&[]);
    assert!(said.contains("--advertise needs"), "{said}");
    std::fs::write(folder.join("pirn.toml"), "[service]\nadvertise = \"ftp://svc-a\"\n").expect("a file");
    let said = serve(&[]);
    assert!(
        said.contains("[service]") && said.contains("http://svc-a:7474"),
        "{said}"
    );
}

#[test]
fn messages_of_mcp_clients_are_logged_at_trace_level_only() {
    let folder = folder("quiet");
    std::fs::write(folder.join("echo.json"), ECHO).expect("a file");
    let mut child = Command::new(env!("CARGO_BIN_EXE_pirn"))
        .args(["mcp", "echo.json", "--log", "debug"])
        .current_dir(&folder)
        .env_remove("RUST_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    let client =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": "echo", "arguments": {"card": "4111"}}}),
    ] {
        writeln!(stdin, "{message}").expect("it reads");
    }
    let mut answers = BufReader::new(child.stdout.take().expect("piped")).lines();
    let answered = answers.any(|line| line.is_ok_and(|line| line.contains("4111")));
    assert!(answered, "the tool gives its input back");
    drop(stdin);
    let log = std::io::read_to_string(child.stderr.take().expect("piped")).expect("text");
    assert!(child.wait().expect("it ends").success());
    assert!(!log.contains("4111"), "{log}");
}
