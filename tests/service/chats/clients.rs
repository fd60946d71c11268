//! Third-party clients, installed from npm, against a service.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::command::{Served, root};
use crate::servers;
use crate::world::{World, answer};

/// The JSON that a client of `clients.mjs` printed; `None` if it cannot be installed.
pub(crate) async fn client(arguments: Vec<String>) -> Option<Value> {
    tokio::task::spawn_blocking(move || {
        let modules = servers::modules()?;
        let script = root().join("tests/servers/clients/clients.mjs");
        let output = Command::new("node")
            .arg(script)
            .arg(modules.parent().expect("a folder"))
            .args(&arguments)
            .stderr(Stdio::inherit())
            .output()
            .expect("node runs");
        assert!(output.status.success(), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stdout);
        Some(serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}")))
    })
    .await
    .expect("it does not panic")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ag_ui_client_library_accepts_every_event_and_has_the_conversation() {
    let world = World::new().await;
    let Some(heard) = client(vec!["agui".into(), world.url("/v1/agui/chat")]).await else {
        return;
    };
    assert_eq!(heard["failure"], Value::Null);
    assert_eq!(heard["result"], "it is noon");
    assert_eq!(heard["state"], json!({"mood": "good"}));
    let messages = heard["messages"].as_array().expect("messages");
    let texts: Vec<&str> = messages
        .iter()
        .filter_map(|message| message["content"].as_str())
        .collect();
    assert!(
        texts.contains(&"let me see") && texts.contains(&"it is noon"),
        "{messages:?}"
    );
    assert!(messages.iter().any(|message| message["role"] == "tool"));
    let forked = client(vec!["agui".into(), world.url("/v1/agui/two-voices")])
        .await
        .expect("it is installed");
    assert_eq!(forked["failure"], Value::Null);
    assert_eq!(
        forked["types"].as_array().and_then(|types| types.last()),
        Some(&json!("RUN_FINISHED"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ag_ui_client_library_answers_an_interrupt_and_the_run_continues() {
    let world = World::new().await;
    let answer = json!({"approved": true, "editedArgs": {"amount": 3}}).to_string();
    let Some(heard) = client(vec!["agui-resume".into(), world.url("/v1/agui/careful"), answer]).await else {
        return;
    };
    assert_eq!(
        (&heard["failure"], &heard["result"]),
        (&Value::Null, &json!("done")),
        "{heard}"
    );
    let outcomes = |place: usize| heard["finished"][place]["outcome"]["type"].clone();
    assert_eq!((outcomes(0), outcomes(1)), (json!("interrupt"), json!("success")));
    let messages = heard["messages"].as_array().expect("messages");
    let result = messages
        .iter()
        .find(|message| message["role"] == "tool")
        .expect("the result of the tool");
    assert!(
        result["content"].as_str().is_some_and(|text| text.contains("paid 3")),
        "{result}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_transport_of_the_ai_sdk_reads_the_message() {
    let world = World::new().await;
    let Some(read) = client(vec!["chat".into(), world.url("/v1/chat/chat")]).await else {
        return;
    };
    assert_eq!(read["failures"], json!([]));
    let parts = read["message"]["parts"].as_array().expect("parts");
    let texts: Vec<&str> = parts
        .iter()
        .filter(|part| part["type"] == "text")
        .filter_map(|part| part["text"].as_str())
        .collect();
    assert_eq!(texts, ["let me see", "it is noon"]);
    let tool = parts
        .iter()
        .find(|part| part["type"] == "dynamic-tool")
        .expect("the call");
    assert_eq!(
        (&tool["toolName"], &tool["state"]),
        (&json!("clock"), &json!("output-error"))
    );
}

fn check_mcp(heard: &Value) {
    let tools = heard["tools"].as_array().expect("tools");
    let greet = tools.iter().find(|tool| tool["name"] == "greet").expect("the tool");
    assert_eq!(greet["description"], "Greets whoever is named.");
    assert_eq!(greet["inputSchema"]["required"], json!(["name"]));
    assert_eq!(heard["called"]["content"][0]["text"], "Hello, Ada!");
    assert_ne!(heard["called"]["isError"], true);
    let told = |list: &str| -> Vec<f64> {
        let list = heard[list].as_array().expect("progress").iter();
        list.filter_map(|told| told["progress"].as_f64()).collect()
    };
    // The client drops progress that it reads together with the answer; a call that waits must report some.
    let (answered, waiting) = (told("progress"), told("toldWhileWaiting"));
    assert!(answered.is_sorted_by(|a, b| a < b), "{answered:?}");
    assert!(!waiting.is_empty() && waiting.is_sorted_by(|a, b| a < b), "{waiting:?}");
    assert_eq!(heard["refused"]["isError"], true);
    assert!(
        heard["refused"]["content"][0]["text"]
            .as_str()
            .expect("a text")
            .contains("INVALID_INPUT")
    );
    assert_eq!(heard["unknown"]["code"], -32602);
    assert_eq!(heard["cancelled"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mcp_sdk_client_calls_workflows_over_http_and_cancels_one() {
    let served = Served::start(root(), &["examples/service/workflows.json"]);
    let url = served.url.trim().to_owned();
    let Some(heard) = client(vec!["mcp-http".into(), format!("{url}/mcp")]).await else {
        return;
    };
    check_mcp(&heard);
    // The run of the cancelled call is cancelled.
    let plain = reqwest::Client::builder().no_proxy().build().expect("a client");
    let ended = async {
        loop {
            let runs = answer(plain.get(format!("{url}/v1/runs?workflow=order"))).await.body;
            match runs["runs"][0]["status"].as_str().expect("a run") {
                "RUNNING" => tokio::task::yield_now().await,
                status => break assert_eq!(status, "CANCELLED"),
            }
        }
    };
    let limit = std::time::Duration::from_secs(30);
    tokio::time::timeout(limit, ended)
        .await
        .expect("the cancelled call's run ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mcp_sdk_client_calls_workflows_over_stdio() {
    let file = root().join("examples/service/workflows.json").display().to_string();
    let pirn = env!("CARGO_BIN_EXE_pirn").to_owned();
    if let Some(heard) = client(vec!["mcp-stdio".into(), pirn, file]).await {
        check_mcp(&heard);
    }
}
