//! Limits on everything that a client can make grow.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::problem::{Problem, ProblemCode};

/// Limits on everything that a client can make grow.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum size of a request's body (default 4 MiB); a larger one gets 413.
    pub body_bytes: usize,
    /// Time limit for a body to arrive (default 30 s); a slower one gets 408.
    pub body_time: Duration,
    /// Time limit for a request's headers to arrive (default 10 s); then the connection is closed.
    pub header_time: Duration,
    /// Maximum number of headers of a request (default 100); more get 431.
    pub headers: usize,
    /// Maximum size of a request's line and headers (default 32 KiB, at least 8 KiB); larger ones get 431.
    pub header_bytes: usize,
    /// Maximum number of open connections (default 16,384); further ones wait to be accepted. Choose less than the process's limit of
    /// open files: a program at that limit can neither call models and tools nor open its store.
    pub connections: usize,
    /// Maximum number of open streams of all runs (default 10,000); further ones get 503.
    pub streams: usize,
    /// Maximum number of open streams of one run (default 4,096); further ones get 503.
    pub streams_per_run: usize,
    /// Maximum number of events that a run retains for streams (default 10,000); the oldest are dropped first.
    pub events_per_run: usize,
    /// Maximum memory of a run's retained events (default 16 MiB).
    pub event_bytes_per_run: usize,
    /// Maximum number of ended runs in memory (default 1,000); the one that ended first is dropped first.
    pub ended_runs: usize,
    /// Maximum memory of ended runs, with their reports and events (default 128 MiB).
    pub ended_bytes: usize,
    /// Maximum memory of the retained events of all runs (default 256 MiB): those of ended runs are dropped first, then the oldest of the
    /// run that raises more.
    pub event_bytes: usize,
    /// Maximum memory of request bodies and of the inputs of unfinished runs (default 256 MiB). Beyond it a request gets 429, and
    /// 413 if its body alone needs more.
    pub input_bytes: usize,
    /// Maximum memory of events that streams are sending (default 128 MiB): a stream misses events beyond it.
    pub stream_bytes: usize,
    /// Time limit for a client to read some of the data that is sent to it (default 30 s); then the connection is closed.
    pub write_time: Duration,
    /// Maximum memory of cached events and reports of stored runs (default 128 MiB).
    pub stored_bytes: usize,
    /// Maximum memory of cached histories of stored runs: their steps and threads (default 64 MiB).
    pub history_bytes: usize,
    /// Maximum number of concurrent replays of stored runs (default 2).
    pub replays: usize,
    /// Maximum number of requests that wait for a replay (default 64); further ones get 503.
    pub replays_waiting: usize,
    /// Maximum number of runs of other processes whose events streams read (default 256); streams of further ones get 503. Each has
    /// its state in memory, like a run of this process.
    pub followed_runs: usize,
    /// Maximum number of concurrent explorations of orders (default 1).
    pub explorations: usize,
    /// Maximum number of requests that wait for an exploration (default 8); further ones get 503.
    pub explorations_waiting: usize,
    /// Maximum number of orders of an exploration (default 2,000); the answer states that it is not complete.
    pub exploration_orders: u64,
    /// Time limit of an exploration (default 10 s); the answer states that it is not complete.
    pub exploration_time: Duration,
    /// Maximum size of the tree of an exploration, and of the events of one order (default 4 MiB).
    pub exploration_bytes: usize,
    /// Maximum number of MCP sessions (default 1,000); further ones get 503.
    pub mcp_sessions: usize,
    /// Maximum number of retained idempotency keys (default 10,000); the oldest are dropped first.
    pub idempotency_keys: usize,
    /// Maximum value of `?wait=` (default 600 s).
    pub wait: Duration,
    /// Time between comments on a stream without events (default 15 s).
    pub keep_alive: Duration,
    /// Time between two samples of the metrics of the last 15 minutes (default 5 s, at least 10 ms); at most 900 are retained.
    pub metrics_interval: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 4 << 20,
            body_time: Duration::from_secs(30),
            header_time: Duration::from_secs(10),
            headers: 100,
            header_bytes: 32 << 10,
            connections: 16_384,
            streams: 10_000,
            streams_per_run: 4_096,
            events_per_run: 10_000,
            event_bytes_per_run: 16 << 20,
            ended_runs: 1_000,
            ended_bytes: 128 << 20,
            event_bytes: 256 << 20,
            input_bytes: 256 << 20,
            stream_bytes: 128 << 20,
            write_time: Duration::from_secs(30),
            stored_bytes: 128 << 20,
            history_bytes: 64 << 20,
            replays: 2,
            replays_waiting: 64,
            followed_runs: 256,
            explorations: 1,
            explorations_waiting: 8,
            exploration_orders: 2_000,
            exploration_time: Duration::from_secs(10),
            exploration_bytes: 4 << 20,
            mcp_sessions: 1_000,
            idempotency_keys: 10_000,
            wait: Duration::from_mins(10),
            keep_alive: Duration::from_secs(15),
            metrics_interval: Duration::from_secs(5),
        }
    }
}

/// Limits the number of open streams, of a run or of the whole service.
#[derive(Clone, Debug)]
pub(super) struct StreamGate {
    free: Arc<Semaphore>,
    limit: usize,
}

impl StreamGate {
    pub(super) fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(limit)),
            limit,
        }
    }

    /// Returns the number of open streams.
    pub(super) fn open(&self) -> usize {
        self.limit - self.free.available_permits()
    }

    /// Reserves a stream; dropping the permit releases it.
    pub(super) fn enter(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let permit = Arc::clone(&self.free).try_acquire_owned();
        permit.map_err(|_| {
            let detail = format!("{} streams are open, no more are admitted", self.limit);
            Problem::new(ProblemCode::TooManyStreams, detail).retry_after(1)
        })
    }
}
