//! Sessions of MCP clients.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::world::{World, answer};

#[tokio::test]
async fn a_session_that_ends_while_requests_are_sent_is_reported_as_unknown() {
    let world = World::new().await;
    let post = |body: &Value| {
        let request = world.post("/mcp", body);
        request.header("accept", "application/json, text/event-stream")
    };
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}});
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    for _ in 0..50 {
        let initialized = answer(post(&initialize)).await;
        let session = &initialized.headers["mcp-session-id"];
        let pings = join_all((0..8).map(|_| post(&ping).header("mcp-session-id", session).send()));
        let delete = world.client.delete(world.url("/mcp")).header("mcp-session-id", session);
        let (pings, deleted) = tokio::join!(pings, delete.send());
        assert!(deleted.expect("an answer").status().is_success());
        for response in pings {
            let status = response.expect("an answer").status().as_u16();
            assert!([200, 404].contains(&status), "{status}");
        }
        let late = answer(post(&ping).header("mcp-session-id", session)).await;
        assert_eq!(late.status.as_u16(), 404, "the session has ended");
    }
}
