//! A custom model that streams its reply: `cargo run --example own_model`.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use pirn::{Engine, EventType, Model, ModelCall, ModelReply, RunError, RunErrorCode, SubscriptionItem, TokenUsage};
use serde_json::json;

/// Replies with the words of the last message in reverse order.
struct Backwards;

impl Model for Backwards {
    // Dropping the future cancels the call, for example if its branch loses a join.
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        async move {
            let last = call.request.messages.last();
            let last = last.ok_or_else(|| RunError::new(RunErrorCode::ModelError, "there is nothing to answer"))?;
            let words: Vec<&str> = last.content.split_whitespace().rev().collect();
            for word in &words {
                call.clock.sleep(50).await;
                call.tokens.put(&format!("{word} "));
            }
            let count = words.len() as u64;
            Ok(ModelReply {
                content: words.join(" "),
                usage: TokenUsage::new(count, count, 2 * count),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder()
        .model("backwards", Arc::new(Backwards))
        .workflows(
            r#"{"id": "turn", "nodes": [{"id": "start", "type": "START"},
                {"id": "ask", "type": "LLM", "config": {"profileId": "backwards", "prompt": "{{input}}"}},
                {"id": "end", "type": "END", "config": {"output": "nodes.ask.content"}}],
                "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}]}"#,
        )
        .build()?;
    let mut prepared = engine.run("turn").input(json!("to be or not"));
    let pieces = prepared.blocking_events(&[EventType::LlmToken], 100);
    let run = prepared.start()?;
    let report = run.outcome_blocking();
    engine.shutdown_blocking(std::time::Duration::from_secs(1));
    for heard in pieces {
        if let SubscriptionItem::Event(event) = heard {
            println!("piece: {}", event.to_json()["text"]);
        }
    }
    println!("{} ({} tokens)", report.output, report.tokens.spent.total);
    Ok(())
}
