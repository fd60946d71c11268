//! Runs that concurrent clients start and wait for, with their durations.

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};

use crate::Failure;
use crate::server::Server;

/// Parameters of a load.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// Number of runs to start.
    pub(crate) runs: usize,
    /// Time after which no more runs are started.
    pub(crate) most: Duration,
    /// Number of concurrent clients.
    pub(crate) clients: usize,
}

/// Durations of the runs of a load.
pub(crate) struct Times {
    sorted: Vec<Duration>,
    whole: Duration,
}

impl Load {
    /// Executes the load on a server.
    pub(crate) async fn put_on(&self, server: &Server) -> Result<Times, Failure> {
        let begun = Instant::now();
        let ended = stream::iter(0..self.runs)
            .take_while(|_| std::future::ready(begun.elapsed() < self.most))
            .map(|n| async move {
                let sent = Instant::now();
                server.echo(n).await.map(|()| sent.elapsed())
            });
        let mut sorted: Vec<Duration> = ended.buffer_unordered(self.clients).try_collect().await?;
        let whole = begun.elapsed();
        sorted.sort_unstable();
        Ok(Times { sorted, whole })
    }
}

impl Times {
    pub(crate) fn count(&self) -> usize {
        self.sorted.len()
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.count() as f64 / self.whole.as_secs_f64()
    }

    /// Returns a percentile in milliseconds.
    pub(crate) fn within(&self, percent: usize) -> f64 {
        let place = (self.count() * percent / 100).min(self.count().saturating_sub(1));
        self.sorted.get(place).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}
