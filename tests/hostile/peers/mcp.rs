//! An MCP server over stdio: this program, started again.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use pirn::tools::{McpServers, ToolRegistry, tools_of};
use pirn::{Engine, ThreadStatus};
use serde_json::{Value, json};

use crate::scripts::now;

const SOON: Duration = Duration::from_mins(1);

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("lists, lines and schemas of an MCP server are bounded", lists),
    ("results of an MCP server are truncated or refused", results),
];

/// Kinds with calls that exceed their time limit.
const LATE: [&str; 2] = ["long line", "asks without end"];

/// Serves with the faults of `kind` until stdin ends.
pub(crate) fn serve(kind: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let Ok(asked) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        let result = match asked["method"].as_str().unwrap_or_default() {
            "initialize" if kind == "silent" => continue,
            "initialize" if kind == "endless line" => loop {
                out.write_all("x".repeat(1 << 16).as_bytes())?;
            },
            "initialize" => {
                json!({"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "hostile", "version": "1"}})
            }
            "tools/list" => list(kind),
            // No answer is read in this loop.
            "tools/call" if kind == "asks without end" => {
                for n in 0_u64.. {
                    writeln!(out, "{}", json!({"jsonrpc": "2.0", "id": n, "method": "ping"}))?;
                }
                continue;
            }
            "tools/call" => call(kind),
            _ => continue,
        };
        if kind == "noise" && asked["method"] != "initialize" {
            // An empty line, half a message, an unsolicited answer, invalid UTF-8 and an empty batch.
            out.write_all(
                b"\n{\"jsonrpc\": \"2.0\", \"id\": 1\n{\"jsonrpc\":\"2.0\",\"id\":777,\"result\":{}}\n\xff\xfe\n[]\n",
            )?;
        }
        writeln!(
            out,
            "{}",
            json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        )?;
        out.flush()?;
    }
    Ok(())
}

fn tool(name: &str, schema: &Value) -> Value {
    json!({"name": name, "description": "looks", "inputSchema": schema})
}

fn list(kind: &str) -> Value {
    let plain = json!({"type": "object"});
    match kind {
        "endless pages" => json!({"tools": [], "nextCursor": "more"}),
        "many tools" => {
            let tools: Vec<Value> = (0..2_000).map(|n| tool(&format!("t{n}"), &plain)).collect();
            json!({"tools": tools, "nextCursor": "more"})
        }
        "large schemas" => {
            let schema = json!({"type": "object", "description": "x".repeat(8 << 20)});
            json!({"tools": [tool("look", &schema)], "nextCursor": "more"})
        }
        "doubling schema" => {
            let both = |next: usize| json!({"allOf": [{"$ref": format!("#/$defs/{next}")}, {"$ref": format!("#/$defs/{next}")}]});
            let mut definitions: serde_json::Map<String, Value> =
                (0..60).map(|n| (n.to_string(), both(n + 1))).collect();
            definitions.insert("60".to_owned(), plain);
            json!({"tools": [tool("look", &json!({"type": "object", "$defs": definitions, "$ref": "#/$defs/0"}))]})
        }
        _ => json!({"tools": [tool("look", &plain)]}),
    }
}

fn call(kind: &str) -> Value {
    let text = match kind {
        "long result" => "x".repeat(10 << 20),
        "long line" => "x".repeat(20 << 20),
        _ => "seen".to_owned(),
    };
    json!({"content": [{"type": "text", "text": text}]})
}

fn start(kind: &str) -> Result<McpServers, String> {
    let program = std::env::current_exe().expect("a program knows its path");
    let config = json!({"mcpServers": [{"id": "h", "command": program, "args": ["--mcp", kind], "prefix": "", "startTimeoutMs": 20_000, "timeoutMs": if LATE.contains(&kind) { 2_000 } else { 60_000 }}]});
    let config = tools_of(config, Path::new("")).unwrap_or_else(|faults| panic!("{faults:?}"));
    let started = McpServers::start_blocking(config.mcp_servers);
    started.map_err(|faults| faults.iter().map(|fault| fault.message.clone()).collect())
}

fn lists() {
    for (kind, part) in [
        ("endless pages", "does not end"),
        ("many tools", "too long"),
        ("large schemas", "too long"),
        ("endless line", ""),
    ] {
        let begin = now();
        let error = start(kind).expect_err(kind);
        assert!(error.contains(part), "{kind}: {error}");
        assert!(begin.elapsed() < SOON, "{kind}: {:?}", begin.elapsed());
        println!("  {kind}: {error:.120}");
    }
}

fn results() {
    for (kind, status) in [
        ("noise", ThreadStatus::Completed),
        ("doubling schema", ThreadStatus::Completed),
        ("long result", ThreadStatus::Completed),
        ("long line", ThreadStatus::Failed),
        ("asks without end", ThreadStatus::Failed),
    ] {
        let mut tools = ToolRegistry::new();
        tools.add_servers(start(kind).unwrap_or_else(|error| panic!("{kind}: {error}")));
        let workflow = json!({"id": "looks",
            "nodes": [{"id": "s", "type": "START"}, {"id": "look", "type": "TOOL", "config": {"tool": "look", "arguments": {"a": [1]}}},
                {"id": "e", "type": "END"}],
            "edges": [{"from": "s", "to": "look"}, {"from": "look", "to": "e"}]});
        let engine = Engine::builder().tools(tools).workflows(workflow.to_string()).build();
        let engine = engine.unwrap_or_else(|error| panic!("{error}"));
        let begin = now();
        let report = engine.run("looks").start().expect("it starts").outcome_blocking();
        assert_eq!(report.status, status, "{kind}: {:?}", report.error);
        assert!(begin.elapsed() < SOON, "{kind}: {:?}", begin.elapsed());
        assert!(json!(*report).to_string().len() < 4 << 20, "{kind}");
        engine.shutdown_blocking(Duration::from_secs(5));
    }
}
