//! Clients that read the events of one run.

use futures::{StreamExt, TryStreamExt, stream};
use reqwest::Response;
use serde_json::json;

use crate::Failure;
use crate::server::{Server, answer};

/// Number of connections that are opened concurrently.
const AT_ONCE: usize = 64;

/// Open event streams of a waiting run.
pub(crate) struct Readers {
    run: String,
    streams: Vec<Response>,
}

/// Starts a waiting run and opens `readers` streams of its events.
pub(crate) async fn open(server: &Server, readers: usize) -> Result<Readers, Failure> {
    if readers > 0 && !server.has_readers() {
        return Err(format!("{} has no run for readers", server.name()).into());
    }
    if readers == 0 {
        return Ok(Readers {
            run: String::new(),
            streams: Vec::new(),
        });
    }
    let run = answer(server.post("/v1/runs", &json!({"workflow": "gated"}))).await?;
    let run = run["runId"].as_str().ok_or("no run was started")?.to_owned();
    let path = format!("/v1/runs/{run}/events");
    let streams = stream::iter(0..readers)
        .map(|_| async { server.get(&path).send().await?.error_for_status() })
        .buffer_unordered(AT_ONCE);
    Ok(Readers {
        streams: streams.try_collect().await?,
        run,
    })
}

impl Readers {
    /// Ends the run and reads every stream to its end. Returns the number of streams.
    pub(crate) async fn end(self, server: &Server) -> Result<usize, Failure> {
        let readers = self.streams.len();
        if readers == 0 {
            return Ok(0);
        }
        let path = format!("/v1/runs/{}/emit", self.run);
        answer(server.post(&path, &json!({"name": "go"}))).await?;
        let read = stream::iter(self.streams).map(Response::text);
        let read: Vec<String> = read.buffer_unordered(readers).try_collect().await?;
        let is_whole = |text: &String| text.contains("event: end\n") && *text == read[0];
        if !read.iter().all(is_whole) {
            return Err("a reader has missed events".into());
        }
        Ok(readers)
    }
}
