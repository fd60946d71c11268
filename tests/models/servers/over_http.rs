//! The MCP project's servers over streamable HTTP, through `tests/servers/bridge.mjs`: killed during a session and restarted at
//! one address.
#![cfg(unix)]

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pirn::tools::{McpServers, ToolRegistry, tools_of};
use pirn::{Engine, ThreadStatus};
use pirn_tests::servers::{modules, python};
use pirn_tests::world::{line, node};
use serde_json::{Value, json};

/// A listening server; its process group is killed on drop.
struct Listening(Child);

impl Listening {
    fn start(program: &[String]) -> Self {
        let mut child = Command::new(&program[0])
            .args(&program[1..])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut said = BufReader::new(child.stderr.take().expect("piped"))
            .lines()
            .map_while(Result::ok);
        assert!(said.any(|line| line.contains("listening")), "it never listened");
        std::thread::spawn(move || said.for_each(drop));
        Self(child)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let killed = Command::new("kill").args(["-KILL", "--", &group]).status();
        assert!(killed.expect("kill runs").success());
        self.0.wait().expect("it ends");
    }
}

fn port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Answers to each call; after the first one the server is killed and restarted at its address.
fn restarted_in_between(program: &[String], port: u16, calls: &[(&str, Value)]) -> Vec<String> {
    let start = {
        let program = program.to_vec();
        move || Listening::start(&program)
    };
    let server = Arc::new(Mutex::new(Some(start())));
    let config = json!({"id": "s", "url": format!("http://127.0.0.1:{port}/mcp"), "restarts": 3, "timeoutMs": 20_000});
    let config = tools_of(json!({ "mcpServers": [config] }), Path::new("")).expect("the test's config is right");
    let mut tools = ToolRegistry::new();
    tools.add_servers(McpServers::start_blocking(config.mcp_servers).unwrap_or_else(|faults| panic!("{faults:?}")));
    let restart = move |_: &pirn::Input<'_>| {
        let mut server = server.lock().map_err(|error| error.to_string())?;
        *server = None;
        *server = Some(start());
        Ok(Value::Null)
    };
    let mut nodes = Vec::new();
    for (place, (tool, arguments)) in calls.iter().enumerate() {
        if place == 1 {
            nodes.push(node("restart", "CODE", json!({"function": "restart"})));
        }
        let config = json!({"tool": tool, "arguments": arguments, "assignTo": format!("said{place}")});
        let mut call = node(&format!("call{place}"), "TOOL", config);
        // A call directly after the kill may hit the broken connection; its retry connects again.
        call["retry"] = json!({"maxAttempts": 4, "initialDelayMs": 50});
        nodes.push(call);
    }
    let engine = Engine::builder()
        .tools(tools)
        .function("restart", restart)
        .workflows(line("main", &nodes).to_string())
        .build()
        .expect("valid");
    let report = engine.start("main", json!(null)).expect("admitted").outcome_blocking();
    assert_eq!(
        report.status,
        ThreadStatus::Completed,
        "{program:?}: {:?}",
        report.error
    );
    let said = (0..calls.len()).map(|place| report.variables[&format!("said{place}")].to_string());
    let said = said.collect();
    engine.shutdown_blocking(Duration::from_secs(5));
    said
}

/// A new folder, by its resolved path.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pirn-http-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("writable");
    path.canonicalize().expect("it is there")
}

/// The file of one of the MCP project's servers.
fn at(modules: &Path, file: &str) -> String {
    modules.join("@modelcontextprotocol").join(file).display().to_string()
}

/// The command of a server behind the bridge.
fn bridged(modules: &Path, port: u16, program: &[&str]) -> Vec<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scripts = ["servers/bridge.mjs", "tests/servers/bridge.mjs"].map(|script| here.join(script));
    let script = scripts.iter().find(|script| script.is_file()).expect("it is there");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let installed = modules.parent().expect("a folder");
    let mut all = vec!["node".to_owned(), text(script), text(installed), port.to_string()];
    all.extend(program.iter().map(|word| (*word).to_owned()));
    all
}

#[test]
fn the_file_server_over_http_answers_before_and_after_a_restart() {
    let Some(modules) = modules() else { return };
    let folder = folder("files");
    std::fs::write(folder.join("note.txt"), "a note").expect("writable");
    let (own, root) = (port(), folder.display().to_string());
    let program = at(&modules, "server-filesystem/dist/index.js");
    let files = bridged(&modules, own, &["node", &program, &root]);
    let read = ("s_read_text_file", json!({"path": folder.join("note.txt")}));
    let said = restarted_in_between(&files, own, &[read.clone(), read]);
    std::fs::remove_dir_all(&folder).unwrap_or(());
    assert!(said.iter().all(|text| text.contains("a note")), "{said:?}");
}

#[test]
fn the_time_server_over_http_answers_before_and_after_a_restart() {
    let (Some(python), Some(modules)) = (python(), modules()) else {
        return;
    };
    let own = port();
    let python = python.join("bin/python").display().to_string();
    let time = bridged(&modules, own, &[&python, "-m", "mcp_server_time"]);
    let now = ("s_get_current_time", json!({"timezone": "Europe/Rome"}));
    let said = restarted_in_between(&time, own, &[now.clone(), now]);
    assert!(said.iter().all(|text| text.contains("Europe/Rome")), "{said:?}");
}

#[test]
fn the_memory_server_over_http_answers_before_and_after_a_restart() {
    let Some(modules) = modules() else { return };
    let (own, folder) = (port(), folder("memory"));
    let file = format!("MEMORY_FILE_PATH={}", folder.join("memory.jsonl").display());
    let program = at(&modules, "server-memory/dist/index.js");
    let memory = bridged(&modules, own, &["env", &file, "node", &program]);
    let said = json!({"name": "Pirn", "entityType": "program", "observations": ["it runs"]});
    let write = ("s_create_entities", json!({ "entities": [said] }));
    let said = restarted_in_between(&memory, own, &[write, ("s_read_graph", json!({}))]);
    std::fs::remove_dir_all(&folder).unwrap_or(());
    assert!(said.iter().all(|text| text.contains("it runs")), "{said:?}");
}

#[test]
fn the_git_server_over_http_answers_before_and_after_a_restart() {
    let (Some(python), Some(modules)) = (python(), modules()) else {
        return;
    };
    let (own, folder) = (port(), folder("git"));
    let git = Command::new("git").arg("init").arg("-q").arg(&folder).status();
    assert!(git.expect("git runs").success());
    std::fs::write(folder.join("new.txt"), "new").expect("writable");
    let python = python.join("bin/python").display().to_string();
    let git = bridged(&modules, own, &[&python, "-m", "mcp_server_git"]);
    let status = ("s_git_status", json!({"repo_path": folder}));
    let said = restarted_in_between(&git, own, &[status.clone(), status]);
    std::fs::remove_dir_all(&folder).unwrap_or(());
    assert!(said.iter().all(|text| text.contains("new.txt")), "{said:?}");
}

/// This server speaks HTTP without the bridge, and answers an unknown session with status 400.
#[test]
fn the_everything_server_over_http_answers_before_and_after_a_restart() {
    let Some(modules) = modules() else { return };
    let own = port();
    let listens = format!("PORT={own}");
    let program = at(&modules, "server-everything/dist/index.js");
    let everything: Vec<String> = ["env", &listens, "node", &program, "streamableHttp"]
        .map(str::to_owned)
        .into();
    let said = |text: &str| ("s_echo", json!({"message": text}));
    let calls = [said("one"), said("two"), said("three")];
    let said = restarted_in_between(&everything, own, &calls);
    for (answer, word) in said.iter().zip(["one", "two", "three"]) {
        assert!(answer.contains(word), "{said:?}");
    }
}
