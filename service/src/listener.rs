//! The listening socket. The number of connections is limited. Each connection has limits on the time and size of its request head,
//! and on the time in which the client must read some of the data that is sent.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::Limits;
use crate::write_timeout::WriteTimeoutStream;

/// Minimum size of hyper's header buffer.
const MIN_HEADER_BYTES: usize = 8 << 10;

/// Delay after a failed `accept`: the usual reason is a lack of file descriptors, which are free again when connections end.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// Time for unfinished answers when the service stops.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Answers connections over HTTP/1.1 until `stop` is ready. Then accepts no more connections, and waits up to five seconds for
/// unfinished answers. HTTP/2 and TLS are the task of a proxy in front of the service.
pub async fn serve(listener: TcpListener, router: axum::Router, limits: &Limits, stop: impl Future<Output = ()>) {
    let free = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let service = TowerToHyperService::new(router);
    let (connections, graceful) = (TaskTracker::new(), GracefulShutdown::new());
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_headers(limits.headers)
        .max_buf_size(limits.header_bytes.max(MIN_HEADER_BYTES));
    let mut stop = pin!(stop);
    loop {
        let next = async {
            // Acquire the permit first: connections beyond the limit wait in the kernel's accept queue.
            let place = Arc::clone(&free).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(AFTER_REFUSAL).await;
                continue;
            }
        };
        // Events are small writes, which Nagle's algorithm would delay.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "setting TCP_NODELAY failed");
        }
        let connection = builder.serve_connection(
            TokioIo::new(WriteTimeoutStream::new(stream, limits.write_time)),
            service.clone(),
        );
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            let _place = place;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection failed");
            }
        });
    }
    // Refuse new connections at once, while unfinished answers are completed.
    drop(listener);
    if tokio::time::timeout(LAST_ANSWERS, graceful.shutdown()).await.is_err() {
        tracing::warn!("some answers were not sent completely");
    }
}
