//! Concurrent runs that call one MCP server: each receives the question of its call.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::join_all;
use pirn::Engine;
use pirn::tools::{McpServers, ToolRegistry, tools_of};
use pirn_service::Options;
use serde_json::{Value, json};

use crate::command::folder;
use crate::world::World;

/// A workflow of the server that questions a person after a delay, so that concurrent calls are all pending at that moment.
fn asks() -> Value {
    json!({"id": "hello", "inputSchema": {"type": "object", "properties": {"who": {"type": "string"}}},
        "nodes": [{"id": "start", "type": "START"}, {"id": "nap", "type": "WAIT", "config": {"seconds": 0.2}},
                  {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Is it {{input.who}}?"}},
                  {"id": "end", "type": "END", "config": {"output": "output.answer"}}],
        "edges": [{"from": "start", "to": "nap"}, {"from": "nap", "to": "ask"}, {"from": "ask", "to": "end"}]})
}

/// An engine with runs that call the server for their tenants, and the questions that each tenant received.
async fn client(server: Value) -> (Engine, Arc<Mutex<BTreeMap<String, Vec<String>>>>) {
    let config = tools_of(json!({ "mcpServers": [server] }), Path::new("")).expect("a config");
    let servers = McpServers::start(config.mcp_servers).await.expect("a server");
    let mut tools = ToolRegistry::new();
    tools.add_servers(servers);
    let asked: Arc<Mutex<BTreeMap<String, Vec<String>>>> = Arc::default();
    let heard = Arc::clone(&asked);
    tools.on_elicitation(move |elicitation| {
        let caller = elicitation.caller.expect("a run calls");
        let tenant = caller.metadata["tenant"].as_str().expect("a tenant").to_owned();
        let mut heard = heard.lock().expect("no panic");
        heard
            .entry(tenant.clone())
            .or_default()
            .push(elicitation.question.message);
        std::future::ready(Some(json!({ "answer": tenant }))).boxed()
    });
    let call = json!({"tool": "peer_hello", "arguments": {"who": "{{input}}"}});
    let workflow = json!({"id": "call",
        "nodes": [{"id": "start", "type": "START"}, {"id": "call", "type": "TOOL", "config": call},
                  {"id": "end", "type": "END", "config": {"output": "nodes['call']"}}],
        "edges": [{"from": "start", "to": "call"}, {"from": "call", "to": "end"}]});
    let engine = Engine::builder().tools(tools).workflows(workflow.to_string());
    (engine.build().expect("an engine"), asked)
}

const TENANTS: [&str; 4] = ["ada", "bob", "cyd", "dan"];

/// Starts concurrent runs of every tenant that call the server.
async fn assert_each_tenant_gets_its_question(server: Value) {
    let (engine, asked) = client(server).await;
    let runs = TENANTS.map(|tenant| {
        let run = engine.run("call").input(tenant).metadata([("tenant", tenant)]);
        run.start().expect("it starts")
    });
    let reports = join_all(runs.iter().map(pirn::RunHandle::outcome)).await;
    let asked = asked.lock().expect("no panic").clone();
    for (tenant, report) in TENANTS.iter().zip(reports) {
        assert_eq!(
            asked.get(*tenant),
            Some(&vec![format!("Is it {tenant}?")]),
            "{:?}",
            report.error
        );
        assert_eq!(report.output, *tenant, "{:?}", report.error);
    }
    engine.shutdown(std::time::Duration::ZERO).await;
}

#[tokio::test]
async fn over_http_each_run_receives_the_question_of_its_call() {
    let world = World::of(Engine::builder().workflows(asks().to_string()), Options::default()).await;
    assert_each_tenant_gets_its_question(json!({"id": "peer", "url": world.url("/mcp")})).await;
}

#[tokio::test]
async fn over_stdio_each_run_receives_the_question_of_its_call() {
    let folder = folder("mcp-asks");
    std::fs::write(folder.join("asks.json"), asks().to_string()).expect("a file");
    let args = json!(["mcp", folder.join("asks.json")]);
    assert_each_tenant_gets_its_question(json!({"id": "peer", "command": env!("CARGO_BIN_EXE_pirn"), "args": args}))
        .await;
}

#[tokio::test]
async fn the_error_of_an_unreachable_server_does_not_mention_a_key() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let server = json!({"id": "peer", "url": format!("http://{address}/401")});
    let config = tools_of(json!({ "mcpServers": [server] }), Path::new("")).expect("a config");
    let faults = McpServers::start(config.mcp_servers).await.expect_err("nobody listens");
    let said = format!("{faults:?}");
    assert!(!said.contains("key") && said.contains("/401"), "{said}");
}
