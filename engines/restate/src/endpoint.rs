//! HTTP listener through which the server calls the objects.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use restate_sdk::hyper::HyperEndpoint;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// Concurrent calls on one connection. For more calls the server opens more connections, which spreads them over workers.
const CALLS: u32 = 16;
/// Concurrent connections; more wait to be accepted.
const CONNECTIONS: usize = 1_024;
/// Timeout for the first bytes of a connection (they decide the HTTP version) and for the headers of a request.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Interval of HTTP/2 keep-alive pings.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Length of the listen backlog.
const BACKLOG: u32 = 1_024;

/// Listens with `SO_REUSEPORT`, so that several workers can share the address.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A restarted worker can bind while connections of the one before are still closing.
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts the next connection, with Nagle's algorithm off: each object call is an exchange of several small messages.
async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Waits for the bytes that decide the HTTP version of a connection: hyper-util has no timeout for them.
async fn has_spoken(stream: &TcpStream) {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut seen = [0; PREFACE.len()];
    loop {
        match stream.peek(&mut seen).await {
            Ok(len) if len > 0 && len < PREFACE.len() && PREFACE.starts_with(&seen[..len]) => {
                // Peeked bytes stay in the socket, which is therefore ready at once: polling without a pause would spin.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // The connection was closed, failed, or has sent enough: serving it shows which.
            Ok(_) | Err(_) => return,
        }
    }
}

/// Serves calls of the server until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, endpoint: restate_sdk::endpoint::Endpoint, tasks: TaskTracker) {
    let service = HyperEndpoint::new(endpoint);
    // Bounds the memory of connections that send nothing.
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // Acquired before the accept, so that excess connections wait in the backlog. The semaphore is never closed.
        let Ok(place) = Arc::clone(&free).acquire_owned().await else {
            return;
        };
        let stream = match accept(&listener).await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                // For example too many open files: without a pause the loop would spin until one is closed.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let service = service.clone();
        tasks.spawn(async move {
            // Held until the connection ends.
            let _place = place;
            if tokio::time::timeout(HEADER_TIME, has_spoken(&stream)).await.is_err() {
                tracing::debug!("a connection is closed: it sent no bytes in time");
                return;
            }
            let mut builder = Builder::new(TokioExecutor::new());
            builder
                .http1()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIME);
            builder
                .http2()
                .timer(TokioTimer::new())
                .keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(HEADER_TIME)
                .max_concurrent_streams(CALLS);
            let served = builder.serve_connection(TokioIo::new(stream), service).await;
            // The server repeats the calls of a failed connection, so this is no error of the store.
            if let Err(error) = served {
                tracing::debug!(error = &*error, "a connection of the server failed");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_connection_has_nodelay_set() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = listen(([127, 0, 0, 1], 0).into()).expect("listens");
            let address = listener.local_addr().expect("an address");
            let (accepted, called) = tokio::join!(accept(&listener), TcpStream::connect(address));
            called.expect("connects");
            assert!(accepted.expect("is accepted").nodelay().expect("is told"));
        });
    }

    #[test]
    fn several_workers_listen_on_one_address() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let first = listen(([127, 0, 0, 1], 0).into()).expect("listens");
            listen(first.local_addr().expect("an address")).expect("beside it");
        });
    }
}
