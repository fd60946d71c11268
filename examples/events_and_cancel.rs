//! The events of a run as an async stream, and a run that is stopped: `cargo run --example events_and_cancel`.

use std::time::Duration;

use pirn::{Engine, EventType, SubscriptionItem};
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder()
        .workflows(
            r#"{"id": "patient", "nodes": [{"id": "start", "type": "START"},
                {"id": "wait", "type": "WAIT", "config": {"event": "go"}},
                {"id": "rest", "type": "WAIT", "config": {"seconds": 3600}}, {"id": "end", "type": "END"}],
                "edges": [{"from": "start", "to": "wait"}, {"from": "wait", "to": "rest"}, {"from": "rest", "to": "end"}]}"#,
        )
        .build()?;
    let mut prepared = engine.run("patient");
    let mut events = prepared.events(&[EventType::NodeStarted, EventType::ThreadCancelled], 100);
    let run = prepared.start()?;
    while let Some(heard) = events.next().await {
        let SubscriptionItem::Event(event) = heard else {
            continue;
        };
        println!("{} {}", event.raised.event_type.as_str(), event.to_json()["nodeId"]);
        match event.to_json()["nodeId"].as_str() {
            // The event that the WAIT node waits for.
            Some("wait") => run.emit("go", [("by", Value::from("the example"))]),
            Some("rest") => run.cancel("enough"),
            _ => {}
        }
        if event.raised.event_type == EventType::ThreadCancelled {
            break;
        }
    }
    let report = run.outcome().await;
    println!(
        "{}: {}",
        report.status.as_str(),
        report.error.as_ref().map_or("", |error| &error.message)
    );
    engine.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
