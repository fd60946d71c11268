//! Pirn inside an ordinary async program: `cargo run --example embed`.

use std::time::Duration;

use pirn::Engine;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder()
        .function("shout", |input| Ok(json!(input.as_str().unwrap_or_default().to_uppercase())))
        .workflows(
            r#"{"id": "greet",
                "nodes": [{"id": "start", "type": "START"}, {"id": "shout", "type": "CODE", "config": {"function": "shout"}}, {"id": "end", "type": "END"}],
                "edges": [{"from": "start", "to": "shout"}, {"from": "shout", "to": "end"}]}"#,
        )
        .build()?;
    let report = engine.start("greet", json!("hello"))?.outcome().await;
    println!("{} {}", report.status.as_str(), report.output);
    engine.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
