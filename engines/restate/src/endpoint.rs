//! The place where the server calls the objects.

use std::io;
use std::net::SocketAddr;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use restate_sdk::hyper::HyperEndpoint;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::task::TaskTracker;

use crate::objects;

/// Calls at once on one connection. The server opens another for more, and so workers that share an address share the calls.
const CALLS: u32 = 16;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// Listens, beside others that listen at the same address.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The next connection. A small answer does not wait for more to be sent with it: each call of an object is several of them.
async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Answers the server until it is dropped.
pub(crate) async fn serve(listener: TcpListener, tasks: TaskTracker) {
    let service = HyperEndpoint::new(objects::endpoint());
    loop {
        let stream = match accept(&listener).await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let service = service.clone();
        tasks.spawn(async move {
            let mut builder = Builder::new(TokioExecutor::new());
            builder.http2().max_concurrent_streams(CALLS);
            let served = builder.serve_connection(TokioIo::new(stream), service).await;
            if let Err(error) = served {
                tracing::debug!(error = &*error, "a connection of the server's ended");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_answers_do_not_wait_on_an_accepted_connection() {
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
    fn workers_share_an_address() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let first = listen(([127, 0, 0, 1], 0).into()).expect("listens");
            listen(first.local_addr().expect("an address")).expect("beside it");
        });
    }
}
