//! The MCP project's servers over stdio, killed between calls and restarted, and LiteLLM as a real gateway. The servers from PyPI
//! are tested if `tests/servers/setup-python` has installed them.
#![cfg(unix)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pirn::tools::{McpServers, ToolRegistry, tools_of};
use pirn::{Engine, ThreadStatus};
use pirn_tests::servers::{modules, python};
use pirn_tests::wire::Server;
use pirn_tests::world::{line, node};
use serde_json::{Value, json};

use crate::models::ask;

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pirn-real-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("writable");
        // Servers report the resolved path if the temporary folder is behind a symbolic link.
        Self(path.canonicalize().expect("it is there"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or(());
    }
}

/// A shell around a server that writes its process group to `pid`.
fn server(id: &str, program: &[&str], folder: &Folder) -> Value {
    let script = format!("echo $$ > '{}/pid'; \"$@\"", folder.0.display());
    let args: Vec<&str> = ["-c", &script, "server"]
        .into_iter()
        .chain(program.iter().copied())
        .collect();
    json!({"id": id, "command": "sh", "args": args, "cwd": folder.0, "restarts": 1})
}

/// The answer to each call. The server is killed after the first one.
fn killed_in_between(server: &Value, calls: &[(&str, Value)], folder: &Folder) -> Vec<String> {
    let config = tools_of(json!({ "mcpServers": [server] }), Path::new("")).expect("the test's config is right");
    let mut tools = ToolRegistry::new();
    let servers = McpServers::start_blocking(config.mcp_servers);
    tools.add_servers(servers.unwrap_or_else(|faults| panic!("{faults:?}")));
    let pid = folder.0.join("pid");
    let kill = move |_: &pirn::Input<'_>| {
        let group = std::fs::read_to_string(&pid).map_err(|error| error.to_string())?;
        let killed = Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", group.trim())])
            .status();
        Ok(json!(killed.is_ok_and(|status| status.success())))
    };
    let mut nodes = Vec::new();
    for (place, (tool, arguments)) in calls.iter().enumerate() {
        if place == 1 {
            nodes.push(node("kill", "CODE", json!({"function": "kill"})));
        }
        let config = json!({"tool": tool, "arguments": arguments, "assignTo": format!("said{place}")});
        let mut call = node(&format!("call{place}"), "TOOL", config);
        // A call directly after the kill may hit the broken connection; its retry restarts the server.
        call["retry"] = json!({"maxAttempts": 3, "initialDelayMs": 1});
        nodes.push(call);
    }
    let engine = Engine::builder()
        .tools(tools)
        .function("kill", kill)
        .workflows(line("main", &nodes).to_string())
        .build()
        .expect("valid");
    let report = engine.start("main", json!(null)).expect("admitted").outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    let said = (0..calls.len()).map(|place| report.variables[&format!("said{place}")].to_string());
    let said = said.collect();
    engine.shutdown_blocking(Duration::from_secs(5));
    said
}

#[test]
fn the_file_server_answers_before_and_after_a_restart() {
    let Some(modules) = modules() else { return };
    let folder = Folder::new("files");
    std::fs::write(folder.0.join("note.txt"), "a note").expect("writable");
    let file = modules.join("@modelcontextprotocol/server-filesystem/dist/index.js");
    let (file, root) = (file.to_str().expect("UTF-8"), folder.0.to_str().expect("UTF-8"));
    let read = ("files_read_text_file", json!({"path": folder.0.join("note.txt")}));
    let said = killed_in_between(
        &server("files", &["node", file, root], &folder),
        &[read.clone(), read],
        &folder,
    );
    assert!(
        said.len() == 2 && said.iter().all(|text| text.contains("a note")),
        "{said:?}"
    );
}

#[test]
fn the_memory_server_returns_stored_facts_after_a_restart() {
    let Some(modules) = modules() else { return };
    let folder = Folder::new("memory");
    let file = modules.join("@modelcontextprotocol/server-memory/dist/index.js");
    let mut server = server("memory", &["node", file.to_str().expect("UTF-8")], &folder);
    server["env"] = json!({"MEMORY_FILE_PATH": folder.0.join("memory.jsonl")});
    let ada = json!({"entities": [{"name": "Ada", "entityType": "person", "observations": ["likes ferns"]}]});
    let calls = [("memory_create_entities", ada), ("memory_read_graph", json!({}))];
    let said = killed_in_between(&server, &calls, &folder);
    assert!(said.len() == 2 && said[1].contains("likes ferns"), "{said:?}");
}

#[test]
fn the_time_and_git_servers_answer_before_and_after_a_restart() {
    let Some(python) = python() else { return };
    let python = python.join("bin/python");
    let python = python.to_str().expect("UTF-8");
    let folder = Folder::new("time");
    let now = ("time_get_current_time", json!({"timezone": "Europe/Rome"}));
    let said = killed_in_between(
        &server("time", &[python, "-m", "mcp_server_time"], &folder),
        &[now.clone(), now],
        &folder,
    );
    assert!(
        said.len() == 2 && said.iter().all(|text| text.contains("Europe/Rome")),
        "{said:?}"
    );

    let folder = Folder::new("git");
    let made = Command::new("git").args(["init", "-q"]).arg(&folder.0).status();
    assert!(made.expect("git runs").success());
    let status = ("git_git_status", json!({"repo_path": folder.0}));
    let said = killed_in_between(
        &server("git", &[python, "-m", "mcp_server_git"], &folder),
        &[status.clone(), status],
        &folder,
    );
    assert!(
        said.len() == 2 && said.iter().all(|text| text.contains("commit")),
        "{said:?}"
    );
}

/// LiteLLM's gateway with mocked replies; killed on drop.
struct Gateway {
    child: Child,
    address: std::net::SocketAddr,
    _folder: Folder,
}

impl Gateway {
    fn start(python: &Path) -> Self {
        let folder = Folder::new("litellm");
        let config = "model_list:\n  - model_name: small\n    litellm_params:\n      model: openai/gpt-4o-mini\n      api_key: none\n      \
            mock_response: \"The gateway says hello.\"\n";
        std::fs::write(folder.0.join("config.yaml"), config).expect("writable");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let mut child = Command::new(python.join("bin/litellm"))
            .args(["--config", "config.yaml", "--host", "127.0.0.1", "--port"])
            .arg(address.port().to_string())
            .current_dir(&folder.0)
            // The gateway listens on loopback only, so it needs no key; the cost map is read locally, not downloaded.
            .env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true")
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut said = BufReader::new(child.stderr.take().expect("piped"))
            .lines()
            .map_while(Result::ok);
        assert!(said.any(|line| line.contains("running on")), "it never listened");
        std::thread::spawn(move || said.for_each(drop));
        Self {
            child,
            address,
            _folder: folder,
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

#[test]
fn a_real_gateway_streams_and_its_tokens_are_counted() {
    let Some(python) = python() else { return };
    let gateway = Gateway::start(&python);
    for stream in [true, false] {
        let server = Server::before(gateway.address);
        let ran = ask(
            &server,
            &json!({"model": "small", "stream": stream}),
            json!({"prompt": "hello?"}),
        );
        assert_eq!(
            ran.report.output["content"], "The gateway says hello.",
            "{:?}",
            ran.report.error
        );
        assert_eq!(ran.report.output["finishReason"], "stop");
        let spent = ran.report.tokens.spent;
        assert!(spent.input > 0 && spent.output > 0, "stream {stream}: {spent:?}");
    }
}
