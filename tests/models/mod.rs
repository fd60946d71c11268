//! Models over the network, against a provider on loopback.

mod aimock;
mod artifacts;
mod failures;
mod prompt_cache;
mod recorded;
mod replies;
mod request;
mod servers;
mod structured;
mod tool_rounds;
mod tools;
mod usage;

use std::sync::Arc;

use futures::FutureExt;
use pirn::{Engine, EngineBuilder, Profile, Tool, ToolSpec};
use pirn_tests::wire::Server;
use pirn_tests::world::{Ran, line, node, run_in};
use serde_json::{Value, json};

/// A profile of OpenAI's protocol at `server`, with `more` fields; retries wait a millisecond.
fn profile(server: &Server, more: &Value) -> Profile {
    let mut profile = json!({
        "id": "m", "provider": "openai", "model": "some-model", "endpoint": server.url("/v1"),
        "retry": {"maxAttempts": 3, "initialDelayMs": 1},
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        profile[name] = value.clone();
    }
    serde_json::from_value(profile).expect("a profile")
}

fn engine(profiles: impl IntoIterator<Item = Profile>) -> EngineBuilder {
    Engine::builder().virtual_time(Some(7)).profiles(profiles)
}

/// Returns a workflow with one LLM node with `config`.
fn asking(config: Value) -> Value {
    line("asks", &[node("ask", "LLM", config)])
}

/// Runs one LLM node with `config` against `server`.
#[track_caller]
fn ask(server: &Server, more: &Value, config: Value) -> Ran {
    let builder = engine([profile(server, more)]).tool(Arc::new(Weather));
    run_in(builder, &asking(config), Value::Null, Vec::new())
}

/// Returns a tool that reports fine weather for every place.
struct Weather;

impl Tool for Weather {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "weather".to_owned(),
            description: "The weather of a city".to_owned(),
            parameters: json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
        }
    }

    fn call(
        &self,
        arguments: Value,
        _clock: pirn_actors::host::WorkClock,
    ) -> futures::future::BoxFuture<'static, Result<String, String>> {
        async move { Ok(format!("fine in {}", arguments["city"].as_str().unwrap_or_default())) }.boxed()
    }
}
