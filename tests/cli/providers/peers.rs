//! Peers that repeat keys in their answers, and processes left by programs.

use serde_json::json;

use crate::command::pirn_in;
use crate::folder::Folder;
use crate::wire::{Answer, Server};

const KEYS: [(&str, &str); 2] = [
    ("HOSTILE_KEY", "sk-hostile-0123456789abcdef"),
    ("GATEWAY_KEY", "gw-hostile-fedcba9876543210"),
];

#[test]
fn a_key_repeated_by_a_peer_is_never_shown() {
    let [(_, key), (_, other)] = KEYS;
    let quoted = format!("{key} and {other} are no keys");
    let provider = Server::answering([Answer::error(500, &quoted), Answer::error(401, &quoted)]);
    let server = Server::answering((0..4).map(|_| Answer::error(401, &quoted)));
    let workflow = json!({
        "workflows": [{"id": "main", "nodes": [
            {"id": "s", "type": "START"}, {"id": "ask", "type": "LLM", "config": {"profileId": "m", "prompt": "go"}}, {"id": "e", "type": "END"}],
            "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]}],
        "profiles": [{"id": "m", "provider": "openai", "model": "some-model", "endpoint": provider.url("/v1"), "apiKeyEnv": "HOSTILE_KEY",
            "headersEnv": {"X-Gateway": "Bearer ${GATEWAY_KEY}"}, "retry": {"maxAttempts": 2, "initialDelayMs": 1}}],
    });
    let config = format!(
        "[[mcpServers]]\nid = \"h\"\nurl = \"{}\"\nheadersEnv = {{ Authorization = \"Bearer ${{GATEWAY_KEY}}\" }}\n",
        server.url("/mcp")
    );
    let folder = Folder::new("peers-keys").with("main.json", &workflow.to_string());
    let ran = pirn_in(
        folder.path(),
        &["run", "main.json", "--events", "events.jsonl", "--output", "json"],
        &KEYS,
    );
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    let folder = folder.with("pirn.toml", &config);
    let listed = pirn_in(folder.path(), &["tools", "list", "--config", "pirn.toml"], &KEYS);
    assert_ne!(listed.code, Some(0), "{}", listed.stdout);
    let requests = provider.requests();
    assert_eq!(requests.len(), 2);
    assert!(
        requests
            .iter()
            .all(|request| request.headers["authorization"].contains(key)
                && request.headers["x-gateway"].contains(other))
    );
    for said in [
        ran.stdout,
        ran.stderr,
        folder.read("events.jsonl"),
        listed.stdout,
        listed.stderr,
    ] {
        let place = [key, other].iter().find_map(|key| said.find(&key[3..]));
        assert_eq!(place.map(|at| &said[at.saturating_sub(200)..at]), None, "a key follows");
    }
}

/// The process is reparented, in a separate session and without Pirn's mark in its environment.
#[cfg(target_os = "linux")]
#[test]
fn detached_processes_of_a_tool_end_with_pirn() {
    let folder = Folder::new("peers-orphans");
    let pipe = folder.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .expect("mkfifo")
            .success()
    );
    let script = "exec 3>pipe; echo up >&3; env -i setsid sh -c 'setsid sleep 600 >/dev/null 2>&1 &'; echo done";
    let workflow = json!({"id": "leaves",
        "nodes": [{"id": "s", "type": "START"}, {"id": "n", "type": "TOOL", "config": {"tool": "leave"}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "n"}, {"from": "n", "to": "e"}]});
    let config = format!(
        "[[tools]]\nname = \"leave\"\ndescription = \"leaves\"\ninputSchema = {{ type = \"object\" }}\ncommand = {{ program = \"sh\", args = [\"-c\", {}] }}\n",
        json!(script)
    );
    let folder = folder
        .with("main.json", &workflow.to_string())
        .with("pirn.toml", &config);
    let (gone, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || gone.send(std::fs::read_to_string(pipe)).unwrap_or(()));
    let ran = pirn_in(folder.path(), &["run", "main.json", "--output", "json"], &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.json()["output"], "done\n");
    let left = heard
        .recv_timeout(std::time::Duration::from_secs(20))
        .expect("nobody is left");
    assert_eq!(left.expect("readable"), "up\n");
}
