//! The listening socket. The number of connections is limited. Each connection has limits on the time and size of its request head,
//! and on the time in which the client must read some of the data that is sent.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::Limits;
#[cfg(feature = "tls")]
use crate::server::tls::Tls;
use crate::server::write_timeout::WriteTimeoutStream;

/// Minimum size of hyper's header buffer.
const MIN_HEADER_BYTES: usize = 8 << 10;

/// Delay after a failed `accept`: the usual reason is a lack of file descriptors, which are free again when connections end.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// Time for unfinished answers when the service stops.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// The socket of a service.
#[derive(Debug)]
pub enum Listener {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A TCP socket with TLS.
    #[cfg(feature = "tls")]
    Tls(TcpListener, Tls),
    /// A unix socket. The rights of its file and folder determine who may connect.
    #[cfg(unix)]
    Unix(UnixListener),
}

/// A connection that was accepted, before the handshake of TLS.
enum Accepted {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(TcpStream, Tls),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// Bytes of a connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Listener {
    async fn accept(&self) -> std::io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => Ok(Accepted::Tcp(prompt(listener.accept().await?.0))),
            #[cfg(feature = "tls")]
            Self::Tls(listener, tls) => Ok(Accepted::Tls(prompt(listener.accept().await?.0), tls.clone())),
            #[cfg(unix)]
            Self::Unix(listener) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }
}

impl Accepted {
    /// Completes the handshake.
    async fn opened(self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(stream) => Box::new(stream),
            #[cfg(feature = "tls")]
            Self::Tls(stream, tls) => Box::new(tls.accept(stream).await?),
            #[cfg(unix)]
            Self::Unix(stream) => Box::new(stream),
        })
    }
}

/// Makes small writes prompt: events are small writes, which Nagle's algorithm would delay.
fn prompt(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY failed");
    }
    stream
}

/// Answers connections of a TCP socket; see [`serve_on`].
pub async fn serve(listener: TcpListener, router: axum::Router, limits: &Limits, stop: impl Future<Output = ()>) {
    serve_on(Listener::Tcp(listener), router, limits, stop).await;
}

/// Answers connections over HTTP/1.1 until `stop` is ready. Then accepts no more connections, and waits up to five seconds for
/// unfinished answers. HTTP/2 is the task of a proxy in front of the service.
pub async fn serve_on(listener: Listener, router: axum::Router, limits: &Limits, stop: impl Future<Output = ()>) {
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
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(AFTER_REFUSAL).await;
                continue;
            }
        };
        let (builder, service, watcher) = (builder.clone(), service.clone(), graceful.watcher());
        let (header_time, write_time) = (limits.header_time, limits.write_time);
        connections.spawn(async move {
            let _place = place;
            // A separate task for the handshake: a slow client must not delay others.
            let stream = match tokio::time::timeout(header_time, accepted.opened()).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%error, "a handshake failed"),
                Err(_elapsed) => return tracing::debug!("a handshake took too long"),
            };
            let stream = TokioIo::new(WriteTimeoutStream::new(stream, write_time));
            if let Err(error) = watcher.watch(builder.serve_connection(stream, service)).await {
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
