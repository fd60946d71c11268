//! MCP servers: listed, called, killed during a call, restarted, and never left running.
#![cfg(unix)]
#![allow(clippy::needless_pass_by_value)] // `json!` makes values, a borrow at every call says nothing

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::tools::{ConfigFault, McpServers, ToolRegistry, tools_of};
use pirn::{
    Engine, EventType, FinishReason, Model, ModelCall, ModelReply, Role, RunError, RunHandle, SubscriptionItem,
    ThreadStatus, TokenUsage,
};
use pirn_conversation::model_call::{FailureKind, ModelFailure};
use pirn_tests::servers::everything;
use pirn_tests::world::{line, node};
use serde_json::{Value, json};

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pirn-mcp-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("writable");
        Self(path)
    }

    fn pipe(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or(());
    }
}

fn start(server: Value) -> Result<McpServers, Vec<ConfigFault>> {
    let config = tools_of(json!({ "mcpServers": [server] }), Path::new("")).expect("the test's config is right");
    McpServers::start_blocking(config.mcp_servers)
}

fn registry(server: Value) -> ToolRegistry {
    let mut tools = ToolRegistry::new();
    tools.add_servers(start(server).unwrap_or_else(|faults| panic!("{faults:?}")));
    tools
}

/// The server over stdio, with `more` fields.
fn stdio(file: &Path, more: Value) -> Value {
    let mut server = json!({"id": "ev", "command": "node", "args": [file, "stdio"]});
    for (name, value) in more.as_object().into_iter().flatten() {
        server[name] = value.clone();
    }
    server
}

/// Returns a server that runs in a shell, which writes its process group to `pid` and copies the server's input to the pipe `told`.
fn watched(file: &Path, folder: &Folder, more: Value) -> Value {
    let (told, pid) = (folder.pipe("told"), folder.0.join("pid"));
    let script = format!(
        "echo $$ > '{}'; tee -p '{}' | node '{}' stdio",
        pid.display(),
        told.display(),
        file.display()
    );
    let mut server = stdio(file, more);
    server["command"] = json!("sh");
    server["args"] = json!(["-c", script]);
    server
}

/// Kills the group of [`watched`] each time the server receives a call of its long-running tool.
fn kill_at_calls(folder: &Folder) {
    let (told, pid) = (folder.0.join("told"), folder.0.join("pid"));
    std::thread::spawn(move || {
        while let Ok(pipe) = std::fs::File::open(&told) {
            let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
            if lines.any(|line| line.contains("trigger-long-running-operation")) {
                let group = std::fs::read_to_string(&pid).expect("written");
                kill("-KILL", group.trim());
            }
        }
    });
}

/// Signals a process group.
fn kill(signal: &str, group: &str) -> bool {
    let killed = Command::new("kill")
        .args([signal, "--", &format!("-{group}")])
        .stderr(Stdio::null())
        .status();
    killed.expect("kill runs").success()
}

/// An engine with a model that makes one of these calls per reply, then replies `done`.
fn engine(tools: ToolRegistry, calls: &[(&str, Value)]) -> Engine {
    let calls = calls
        .iter()
        .map(|(name, arguments)| json!({"toolCalls": [{"id": name, "name": name, "arguments": arguments}]}));
    let responses: Vec<Value> = calls.chain([json!({"content": "done"})]).collect();
    let profile = json!({"id": "script", "provider": "scripted", "responses": responses});
    let ask = node(
        "ask",
        "LLM",
        json!({"profileId": "script", "prompt": "go", "tools": ["*"]}),
    );
    let bundle = json!({"workflows": [line("main", &[ask])], "profiles": [profile]});
    Engine::builder()
        .tools(tools)
        .workflows(bundle.to_string())
        .build()
        .expect("valid")
}

/// The answer to each call; the run must complete.
fn answers(run: &RunHandle) -> Vec<String> {
    let report = run.outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    assert_eq!(report.output["content"], "done");
    let results = report
        .conversation
        .messages
        .iter()
        .filter(|message| message.role == Role::Tool);
    results.map(|message| message.content.clone()).collect()
}

fn run(tools: ToolRegistry, calls: &[(&str, Value)]) -> Vec<String> {
    let engine = engine(tools, calls);
    let said = answers(&engine.start("main", json!(null)).expect("admitted"));
    engine.shutdown_blocking(Duration::from_secs(5));
    said
}

const LONG: (&str, &str) = (
    "ev_trigger-long-running-operation",
    r#"{"duration": 600, "steps": 600}"#,
);

fn long() -> (&'static str, Value) {
    (LONG.0, serde_json::from_str(LONG.1).expect("JSON"))
}

#[test]
fn a_servers_tools_are_listed_and_called() {
    let Some(file) = everything() else { return };
    let tools = registry(stdio(&file, json!({"env": {"MINE": "1"}})));
    let echo = tools
        .list()
        .find(|tool| tool.spec.name == "ev_echo")
        .expect("it is listed");
    assert_eq!(echo.spec.parameters["required"], json!(["message"]));
    assert_eq!(echo.options.source, "mcp ev");
    let said = run(
        tools,
        &[
            ("ev_echo", json!({"message": "é; rm"})),
            ("ev_get-sum", json!({"a": 2, "b": 3})),
            ("ev_get-sum", json!({"a": "two", "b": 3})),
            ("ev_get-tiny-image", json!({})),
            ("ev_get-env", json!({})),
        ],
    );
    assert_eq!(said[0], "Echo: é; rm");
    assert_eq!(said[1], "The sum of 2 and 3 is 5.");
    assert!(said[2].contains("arguments.a must be of type number"), "{}", said[2]);
    assert!(
        said[3].contains("image") && !said[3].contains("[image"),
        "the image is a part of its own: {}",
        said[3]
    );
    assert!(
        said[4].contains(r#""MINE": "1""#) && !said[4].contains("CARGO"),
        "{}",
        said[4]
    );
}

#[test]
fn resources_and_prompts_of_a_server_are_available_as_tools() {
    let Some(file) = everything() else { return };
    let tools = registry(stdio(&file, json!({})));
    let names: Vec<&str> = tools.names().collect();
    assert!(
        names.contains(&"ev_echo") && names.contains(&"ev_read_resource"),
        "{names:?}"
    );
    assert!(!names.contains(&"ev_simulate-research-query"), "it runs as a task only");
    let resource = tools.resources().next().expect("it lists some").clone();
    assert_eq!(resource.server, "ev");
    let prompts: Vec<(String, usize)> = tools
        .prompts()
        .map(|one| {
            (
                one.name.clone(),
                one.arguments.iter().filter(|(_, required)| *required).count(),
            )
        })
        .collect();
    assert!(prompts.contains(&("simple-prompt".to_owned(), 0)), "{prompts:?}");
    let said = run(
        tools,
        &[
            ("ev_get-structured-content", json!({"location": "Chicago"})),
            ("ev_read_resource", json!({"uri": resource.uri})),
            ("ev_read_resource", json!({"uri": "demo://nothing"})),
            ("ev_get_prompt", json!({"name": "simple-prompt"})),
            (
                "ev_get_prompt",
                json!({"name": "args-prompt", "arguments": {"city": "Rome"}}),
            ),
        ],
    );
    assert_eq!(said[0].matches("humidity").count(), 1, "{}", said[0]);
    assert!(said[1].len() > 20, "{}", said[1]);
    assert!(said[2].contains("not found"), "{}", said[2]);
    assert!(said[3].contains("prompt"), "{}", said[3]);
    assert!(said[4].contains("Rome"), "{}", said[4]);
}

#[test]
fn an_elicitation_is_answered_by_its_handler_and_declined_without_one() {
    let Some(file) = everything() else { return };
    let call = [("ev_trigger-elicitation-request", json!({}))];
    let nobody = run(registry(stdio(&file, json!({}))), &call);
    assert!(nobody[0].contains("declined"), "{}", nobody[0]);
    let asking = |answer: Value| {
        let mut tools = registry(stdio(&file, json!({})));
        tools.on_elicitation(move |elicitation| {
            assert_eq!(elicitation.tool, "ev_trigger-elicitation-request");
            assert!(elicitation.caller.is_some() && elicitation.question.schema["properties"]["name"].is_object());
            std::future::ready(Some(answer.clone())).boxed()
        });
        run(tools, &call).remove(0)
    };
    let said = asking(json!({"name": "Ada"}));
    assert!(said.contains("Ada"), "{said}");
    let said = asking(json!({"name": 7}));
    assert!(said.contains("declined"), "an answer that does not fit is none: {said}");
}

/// Answers `three words here`, or fails; each costs 42 tokens.
struct Sampled {
    fails: bool,
    asked: Arc<Mutex<Vec<ModelCall>>>,
}

impl Model for Sampled {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        self.asked.lock().expect("no panic").push(call);
        let usage = TokenUsage::new(30, 12, 42);
        std::future::ready(if self.fails {
            let mut failure = ModelFailure::new(FailureKind::Rejected);
            failure.spent = usage;
            Err(failure.into_error("not today"))
        } else {
            Ok(ModelReply {
                content: "three words here".to_owned(),
                finish_reason: FinishReason::Length,
                usage,
                ..ModelReply::default()
            })
        })
        .boxed()
    }
}

#[test]
fn a_sampling_request_is_answered_by_the_configured_profile_and_charged_to_the_run() {
    let Some(file) = everything() else { return };
    let nobody = registry(stdio(&file, json!({})));
    assert!(!nobody.has("ev_trigger-sampling-request"), "nobody would answer");
    let (name, arguments) = (
        "ev_trigger-sampling-request",
        json!({"prompt": "hello", "maxTokens": 9}),
    );
    for fails in [false, true] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let model = Sampled {
            fails,
            asked: Arc::clone(&asked),
        };
        let call = json!({"id": "c", "name": name, "arguments": arguments});
        let script = json!({"id": "script", "provider": "scripted",
            "responses": [{"toolCalls": [call]}, {"content": "done"}]});
        let mut tool = node("call", "TOOL", json!({"tool": name, "arguments": arguments}));
        tool["onError"] = json!({"targetNodeId": "ask"});
        let ask = node(
            "ask",
            "LLM",
            json!({"profileId": "script", "prompt": "go", "tools": ["*"]}),
        );
        let bundle = json!({"workflows": [line("main", &[tool, ask])], "profiles": [script]});
        let engine = Engine::builder()
            .tools(registry(stdio(&file, json!({"sampling": "helper"}))))
            .model("helper", Arc::new(model))
            .workflows(bundle.to_string())
            .build()
            .expect("valid");
        let run = engine
            .run("main")
            .metadata([("tenant", "acme")])
            .start()
            .expect("admitted");
        let report = run.outcome_blocking();
        assert_eq!(report.output["content"], "done", "{:?}", report.error);
        let said = answers(&run).remove(0);
        let expected = if fails { "not today" } else { "three words here" };
        assert!(said.contains(expected), "{said}");
        assert!(fails || said.contains("maxTokens"), "why it ended: {said}");
        let own = report.output["usage"]["total"].as_u64().expect("a number");
        assert_eq!(
            report.tokens.spent.total,
            own + 2 * 42,
            "once by TOOL, once by the model's call"
        );
        let asked = asked.lock().expect("no panic");
        let messages = asked[1].request.messages.iter();
        let messages: Vec<(Role, &str)> = messages.map(|one| (one.role, one.content.as_str())).collect();
        assert_eq!(messages[0], (Role::System, "You are a helpful test server."));
        assert!(
            messages[1].0 == Role::User && messages[1].1.ends_with("hello"),
            "{messages:?}"
        );
        assert_eq!(json!(asked[1].parameters), json!({"maxTokens": 9, "temperature": 0.7}));
        assert_eq!(asked[1].context.metadata["tenant"], "acme");
        engine.shutdown_blocking(Duration::from_secs(5));
    }
}

#[test]
fn a_server_receives_its_configured_roots() {
    let Some(file) = everything() else { return };
    let folder = Folder::new("roots");
    let tools = registry(stdio(&file, json!({"roots": [folder.0.to_str().expect("UTF-8")]})));
    let said = run(tools, &[("ev_get-roots-list", json!({}))]);
    assert!(
        said[0].contains(&format!("file://{}", folder.0.display())),
        "{}",
        said[0]
    );
}

#[test]
fn the_config_selects_the_tools_and_their_prefix() {
    let Some(file) = everything() else { return };
    let some = registry(stdio(&file, json!({"tools": ["echo", "get-sum"], "prefix": ""})));
    assert_eq!(some.names().collect::<Vec<_>>(), ["echo", "get-sum"]);
    let faults = start(stdio(&file, json!({"tools": ["ecko"]}))).expect_err("no such tool");
    assert!(faults[0].message.contains("no tool `ecko`; it has echo"), "{faults:?}");
}

#[test]
fn a_server_that_does_not_start_is_a_fault_with_its_stderr() {
    let fault = |server: Value| start(server).expect_err("it does not start").remove(0);
    let absent = fault(json!({"id": "x", "command": "pirn-no-such-program"}));
    assert!(
        absent.entry == "x" && absent.message.contains("does not start"),
        "{absent}"
    );
    let ends = fault(json!({"id": "x", "command": "sh", "args": ["-c", "echo no licence >&2; exit 4"]}));
    assert!(ends.message.contains("exit status: 4; stderr: no licence"), "{ends}");
    let silent = fault(json!({"id": "x", "command": "sleep", "args": ["600"], "startTimeoutMs": 100}));
    assert!(silent.message.contains("did not answer within 100 ms"), "{silent}");
}

#[test]
fn a_server_killed_during_a_call_fails_the_call_and_is_restarted() {
    let Some(file) = everything() else { return };
    let folder = Folder::new("restart");
    let server = watched(&file, &folder, json!({"restarts": 1}));
    kill_at_calls(&folder);
    let echo = |text: &str| ("ev_echo", json!({ "message": text }));
    let said = run(
        registry(server),
        &[echo("one"), long(), echo("two"), long(), echo("three")],
    );
    assert_eq!((said[0].as_str(), said[2].as_str()), ("Echo: one", "Echo: two"));
    assert!(
        said[1].contains("the MCP server `ev` ended during the call")
            && said[1].contains("signal: 9")
            && said[1].ends_with("it is restarted at the next call"),
        "{}",
        said[1]
    );
    assert!(said[3].ends_with("it is not restarted"), "{}", said[3]);
    assert_eq!(
        said[4],
        "the MCP server `ev` is not available: it has ended and is not restarted"
    );
}

#[test]
fn a_cancelled_run_cancels_its_running_call_at_the_server() {
    let Some(file) = everything() else { return };
    let folder = Folder::new("cancel");
    let server = watched(&file, &folder, json!({}));
    let told = folder.0.join("told");
    let (heard, hear) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(std::fs::File::open(told).expect("opened")).lines();
        for line in lines.map_while(Result::ok) {
            for method in ["trigger-long-running-operation", "notifications/cancelled"] {
                if line.contains(method) {
                    heard.send(method).unwrap_or(());
                }
            }
        }
    });
    let engine = engine(registry(server), &[long()]);
    let run = engine.start("main", json!(null)).expect("admitted");
    assert_eq!(hear.recv(), Ok("trigger-long-running-operation"));
    run.cancel("enough");
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Cancelled);
    assert_eq!(hear.recv(), Ok("notifications/cancelled"));
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn no_server_process_survives_a_shutdown_or_a_drop() {
    let Some(file) = everything() else { return };
    // The server ignores a closed stdin and SIGTERM. Its processes hold a pipe open, which is at its end when the last one is gone.
    let stubborn = |folder: &Folder| {
        let pipe = folder.pipe("pipe");
        let script = format!(
            "trap '' TERM; exec 3>'{}'; node '{}' stdio; sleep 600",
            pipe.display(),
            file.display()
        );
        let (gone, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            gone.send(std::fs::read_to_string(pipe).expect("readable"))
                .unwrap_or(());
        });
        (
            registry(stdio(&file, json!({"command": "sh", "args": ["-c", script]}))),
            heard,
        )
    };
    for shuts_down in [true, false] {
        let folder = Folder::new(if shuts_down { "shutdown" } else { "drop" });
        let (tools, gone) = stubborn(&folder);
        let engine = engine(tools, &[]);
        assert!(gone.try_recv().is_err(), "it runs");
        if shuts_down {
            engine.shutdown_blocking(Duration::from_secs(5));
        }
        drop(engine);
        assert_eq!(
            gone.recv_timeout(Duration::from_secs(20)),
            Ok(String::new()),
            "it is gone"
        );
    }
}

/// A server of a few lines that lists no tools, and writes a file when its input is closed.
fn polite(folder: &Folder) -> Value {
    let said = folder.0.join("said");
    let script = format!(
        r#"while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case "$line" in
                *'"initialize"'*) result='{{"protocolVersion":"2025-03-26","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"polite","version":"1"}}}}' ;;
                *'"tools/list"'*) result='{{"tools":[]}}' ;;
                *) continue ;;
            esac
            printf '{{"jsonrpc":"2.0","id":%s,"result":%s}}\n' "$id" "$result"
        done
        echo goodbye > '{}'"#,
        said.display()
    );
    json!({"id": "polite", "command": "sh", "args": ["-c", script]})
}

#[test]
fn a_shutdown_lets_a_server_exit_on_its_closed_stdin() {
    let folder = Folder::new("polite");
    let engine = engine(registry(polite(&folder)), &[]);
    engine.shutdown_blocking(Duration::from_secs(5));
    let said = std::fs::read_to_string(folder.0.join("said"));
    assert_eq!(
        said.ok().as_deref(),
        Some("goodbye\n"),
        "it is over, and was not killed"
    );
}

/// The server over streamable HTTP on a free port; killed on drop.
struct Http {
    child: Child,
    url: String,
}

impl Http {
    fn start(file: &Path) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .expect("a port")
            .local_addr()
            .expect("an address")
            .port();
        let mut child = Command::new("node")
            .arg(file)
            .arg("streamableHttp")
            .env("PORT", port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("node runs");
        let mut lines = BufReader::new(child.stderr.take().expect("piped"))
            .lines()
            .map_while(Result::ok);
        assert!(
            lines.any(|line| line.contains("listening on port")),
            "it never listened"
        );
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            url: format!("http://127.0.0.1:{port}/mcp"),
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

#[test]
fn a_server_over_http_is_listed_called_and_killed_during_a_call() {
    let Some(file) = everything() else { return };
    let http = Http::start(&file);
    let config = json!({"id": "ev", "url": http.url, "headers": {"x-mine": "1"}, "timeoutMs": 20_000});
    let tools = registry(config);
    let engine = engine(tools, &[("ev_echo", json!({"message": "hi"})), long()]);
    let mut prepared = engine.run("main");
    let mut events = prepared.blocking_events(&[EventType::ToolCallStarted], 16);
    let run = prepared.start().expect("admitted");
    let started = |heard: &SubscriptionItem| matches!(heard, SubscriptionItem::Event(event) if event.raised.fields["name"] == LONG.0);
    assert!(events.any(|heard| started(&heard)));
    drop(http);
    let said = answers(&run);
    assert_eq!(said[0], "Echo: hi");
    assert!(
        said[1].contains("the request to the MCP server `ev` failed"),
        "{}",
        said[1]
    );
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn an_unreachable_url_is_a_fault() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("an address")
        .port();
    let faults = start(json!({"id": "x", "url": format!("http://127.0.0.1:{port}/mcp")})).expect_err("nobody is there");
    assert_eq!((faults.len(), faults[0].entry.as_str()), (1, "x"));
}
