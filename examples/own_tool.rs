//! A custom tool, called by a (scripted) model: `cargo run --example own_tool`.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use pirn::{Engine, Tool, ToolSpec, WorkClock};
use serde_json::{Value, json};

/// Counts the letters of a word.
struct CountLetters;

impl Tool for CountLetters {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "count_letters".to_owned(),
            description: "How many letters a word has".to_owned(),
            parameters: json!({"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}),
        }
    }

    // An error is returned to the model and never ends the run. The clock is the engine's, so virtual time skips the pause.
    fn call(&self, arguments: Value, clock: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        async move {
            clock.sleep(100).await;
            let word = arguments["word"].as_str().ok_or("`word` is missing")?;
            Ok(word.chars().count().to_string())
        }
        .boxed()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder()
        .tool(Arc::new(CountLetters))
        .workflows(
            r#"{"workflows": [{"id": "count", "nodes": [{"id": "start", "type": "START"},
                {"id": "ask", "type": "LLM", "config": {"prompt": "How long is {{input}}?", "tools": ["count_letters"]}},
                {"id": "end", "type": "END", "config": {"output": "nodes.ask.content"}}],
                "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}]}],
              "profiles": [{"id": "script", "provider": "scripted", "responses": [
                {"toolCalls": [{"name": "count_letters", "arguments": {"word": "bobbin"}}]}, {"content": "Six letters."}]}]}"#,
        )
        .build()?;
    let report = engine.start("count", json!("bobbin"))?.outcome_blocking();
    for message in &report.conversation.messages {
        println!("{:?}: {}", message.role, message.content);
    }
    println!("{}", report.output);
    Ok(())
}
