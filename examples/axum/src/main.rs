//! A web service that starts a run for each request, streams its events, and cancels the run when the client disconnects.
//!
//! Start it with `cargo run -p pirn-example-axum`, and send a request with `curl -N 'http://127.0.0.1:7475/ask?question=Why'`.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use futures::StreamExt;
use pirn::{Engine, RunError, RunErrorCode, SubscriptionItem};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Ask {
    question: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder()
        .workflows(
            r#"{"id": "ask", "nodes": [{"id": "start", "type": "START"},
                {"id": "answer", "type": "LLM", "config": {"prompt": "{{input}}"}}, {"id": "end", "type": "END"}],
                "edges": [{"from": "start", "to": "answer"}, {"from": "answer", "to": "end"}]}"#,
        )
        .max_runs(1_000)
        .build()?;
    let app = Router::new().route("/ask", get(ask)).with_state(engine.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:7475").await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    engine.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

async fn ask(
    State(engine): State<Engine>,
    Query(query): Query<Ask>,
) -> Result<impl IntoResponse, (StatusCode, String)> {
    let mut prepared = engine
        .run("ask")
        .input(json!(query.question))
        .deadline(Duration::from_mins(1));
    let events = prepared.events(&[], 1_000);
    let run = prepared.start().map_err(|error| refused(&error))?;
    // axum drops the stream, and with it the guard, when the client disconnects. The guard then cancels the run.
    let guard = run.cancel_on_drop("the client went away");
    let stream = events.map(move |heard| {
        let _kept = &guard;
        Ok::<_, Infallible>(as_sse(&heard))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

fn as_sse(heard: &SubscriptionItem) -> Event {
    match heard {
        SubscriptionItem::Event(event) => Event::default()
            .id(event.sequence.to_string())
            .event(event.raised.event_type.as_str())
            .data(event.to_json().to_string()),
        SubscriptionItem::Lagged(count) => Event::default().event("MISSED").data(count.to_string()),
    }
}

/// Returns the HTTP status and text of a refused start: 503 if the engine is full, so that the client retries.
fn refused(error: &RunError) -> (StatusCode, String) {
    let status = match error.code {
        RunErrorCode::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        RunErrorCode::WorkflowNotFound => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, error.to_string())
}
