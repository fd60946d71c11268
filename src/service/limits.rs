//! Limits on everything that a client can make grow.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{Problem, ProblemCode};

/// Limits on everything that a client can make grow.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's body (default 4 MiB); more is 413.
    pub body_bytes: usize,
    /// Time for a body to arrive (default 30 s); longer is 408.
    pub body_time: Duration,
    /// Time for a request's headers to arrive (default 10 s); then the connection is closed.
    pub header_time: Duration,
    /// Headers of a request (default 100); more is 431.
    pub headers: usize,
    /// Bytes of a request's line and headers (default 32 KiB, at least 8 KiB); more is 431.
    pub header_bytes: usize,
    /// Connections at once (default 16,384); more wait to be accepted.
    pub connections: usize,
    /// Streams at once, of all runs (default 10,000); more is 503.
    pub streams: usize,
    /// Streams of one run at once (default 4,096); more is 503.
    pub streams_per_run: usize,
    /// Events that a run retains for streams to read (default 10,000); the oldest are dropped first.
    pub events_per_run: usize,
    /// Memory of a run's retained events (default 16 MiB).
    pub event_bytes_per_run: usize,
    /// Ended runs that are remembered (default 1,000); the one that ended first is dropped first.
    pub ended_runs: usize,
    /// Memory of ended runs that are remembered, their reports and events (default 128 MiB).
    pub ended_bytes: usize,
    /// Memory of the retained events of all runs (default 256 MiB): those of ended runs are dropped first, then the oldest of the
    /// run that raises more.
    pub event_bytes: usize,
    /// Memory of request bodies and of the inputs of unfinished runs (default 256 MiB); more is 429, and 413 if one body alone
    /// needs more.
    pub input_bytes: usize,
    /// Memory of events that streams are sending (default 128 MiB): a stream misses events that exceed it.
    pub stream_bytes: usize,
    /// Time in which a client must read some of the data that is sent to it (default 30 s); then the connection is closed.
    pub write_time: Duration,
    /// Memory of events and reports that were read from a store (default 128 MiB).
    pub stored_bytes: usize,
    /// Maximum number of concurrent replays of stored runs (default 2).
    pub replays: usize,
    /// Requests that wait for a stored run to be replayed (default 64); more is 503.
    pub replays_waiting: usize,
    /// Sessions of MCP clients (default 1,000); more is 503.
    pub mcp_sessions: usize,
    /// Idempotency keys that are remembered (default 10,000).
    pub idempotency_keys: usize,
    /// The longest `?wait=` (default 600 s).
    pub wait: Duration,
    /// Time between comments on a stream without events (default 15 s).
    pub keep_alive: Duration,
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
            replays: 2,
            replays_waiting: 64,
            mcp_sessions: 1_000,
            idempotency_keys: 10_000,
            wait: Duration::from_mins(10),
            keep_alive: Duration::from_secs(15),
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
