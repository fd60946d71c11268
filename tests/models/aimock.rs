//! The four protocols against aimock (`tests/servers/`), with a recording proxy between: chat, streams, parallel tool
//! calls and their results, refusals. Every request body is checked against the pair rule.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use pirn::{EventType, Role, ThreadStatus};
use pirn_conversation::model_call::{FailureKind, ModelFailure};
use pirn_tests::wire::Server;
use pirn_tests::world::Ran;
use serde_json::{Value, json};

use super::ask;

/// Provider, path of its endpoint, a model.
const PROTOCOLS: [(&str, &str, &str); 4] = [
    ("openai", "/v1", "gpt-4o"),
    ("anthropic", "/v1", "claude-sonnet-4-5"),
    ("gemini", "/v1beta", "gemini-2.0-flash"),
    ("ollama", "", "llama3.2"),
];

/// Starts aimock once per process; returns its address. Without npm, prints the reason and returns `None`.
fn aimock() -> Option<SocketAddr> {
    static RUNNING: OnceLock<Option<(SocketAddr, Child)>> = OnceLock::new();
    let running = RUNNING.get_or_init(|| {
        let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers");
        let into = target().join("servers");
        let setup = Command::new(servers.join("setup")).arg(&into).output().expect("bash");
        let said = String::from_utf8_lossy(&setup.stderr);
        if setup.status.code() == Some(3) {
            println!("skipped: {}", said.trim());
            return None;
        }
        assert!(setup.status.success(), "aimock can not be installed: {said}");
        // aimock ends when its stdin is closed, so the pipe is held until this process ends.
        let mut child = Command::new("node")
            .arg(servers.join("aimock.mjs"))
            .arg(&into)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node");
        let mut port = String::new();
        let out = child.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut port).expect("a port");
        let port: u16 = port.trim().parse().expect("a port");
        Some((SocketAddr::from(([127, 0, 0, 1], port)), child))
    });
    running.as_ref().map(|(address, _)| *address)
}

/// The workspace's `target`, where this test was built to.
pub(crate) fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let target = test.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    target.map_or_else(|| std::env::temp_dir().join("pirn-target"), Path::to_path_buf)
}

/// Runs an LLM node with a protocol's model, through a new proxy.
fn through(protocol: (&str, &str, &str), more: &Value, node: Value) -> Option<(Server, Ran)> {
    let (provider, path, model) = protocol;
    let server = Server::before(aimock()?);
    let mut fields = json!({
        "provider": provider, "model": model, "endpoint": server.url(path),
        "retry": {"maxAttempts": 3, "initialDelayMs": 1},
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        fields[name] = value.clone();
    }
    let ran = ask(&server, &fields, node);
    Some((server, ran))
}

#[track_caller]
fn completed(ran: &Ran, protocol: (&str, &str, &str), content: &str) {
    assert_eq!(
        ran.report.status,
        ThreadStatus::Completed,
        "{protocol:?}: {:?}",
        ran.report.error
    );
    assert_eq!(ran.report.output["content"], content, "{protocol:?}");
}

#[test]
fn every_protocol_chats_with_and_without_streaming() {
    for protocol in PROTOCOLS {
        for stream in [true, false] {
            let node = json!({"prompt": "say hello", "system": "be kind", "parameters": {"temperature": 0.5, "maxTokens": 50}});
            let Some((server, ran)) = through(protocol, &json!({"stream": stream}), node) else {
                return;
            };
            completed(&ran, protocol, "Hello there, how are you today?");
            let pieces = ran.of(EventType::LlmToken).len();
            assert_eq!(pieces > 1, stream, "{protocol:?}: {pieces} pieces");
            // aimock reports zero usage for Ollama.
            let spent = if protocol.0 == "ollama" { 0 } else { 12 };
            assert_eq!(ran.report.tokens.spent.total, spent, "{protocol:?}");
            assert_eq!(server.requests().len(), 1);
        }
    }
}

#[test]
fn every_protocol_supports_parallel_tool_calls_and_their_results() {
    for protocol in PROTOCOLS {
        for stream in [true, false] {
            let node = json!({"prompt": "weather of two cities", "tools": ["weather"]});
            let Some((server, ran)) = through(protocol, &json!({"stream": stream}), node) else {
                return;
            };
            completed(&ran, protocol, "Fine in both cities.");
            let messages = &ran.report.conversation.messages;
            assert_eq!(
                ran.roles(),
                [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::Assistant]
            );
            let results: Vec<&str> = messages[2..4].iter().map(|message| message.content.as_str()).collect();
            assert_eq!(results, ["fine in Bern", "fine in Rome"], "{protocol:?}");
            assert_ne!(messages[2].tool_call_id, messages[3].tool_call_id);
            let requests = server.requests();
            assert_eq!(requests.len(), 2);
            let sent = requests[1].body.to_string();
            assert!(
                sent.contains("fine in Bern") && sent.contains("fine in Rome"),
                "{protocol:?}: {sent}"
            );
        }
    }
}

#[test]
fn every_protocol_retries_transient_failures() {
    for protocol in PROTOCOLS {
        for word in ["slow down", "stumble"] {
            let node = json!({"prompt": format!("{word}, {}", protocol.0)});
            let Some((server, ran)) = through(protocol, &json!({}), node) else {
                return;
            };
            completed(&ran, protocol, "Here you are.");
            assert_eq!(server.requests().len(), 2, "{protocol:?}: {word}");
        }
    }
}

#[test]
fn every_protocols_refusal_includes_the_providers_message() {
    for protocol in PROTOCOLS {
        let Some((server, ran)) = through(protocol, &json!({}), json!({"prompt": "refuse"})) else {
            return;
        };
        assert_eq!(ran.report.status, ThreadStatus::Failed);
        let mut error = ran.report.error.as_ref().expect("an error");
        while let Some(cause) = error.cause.as_ref() {
            error = cause;
        }
        assert_eq!(
            ModelFailure::of(error).kind,
            FailureKind::Rejected,
            "{protocol:?}: {error}"
        );
        assert!(error.message.contains("Not like this."), "{protocol:?}: {error}");
        assert_eq!(server.requests().len(), 1);
    }
}
