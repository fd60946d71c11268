//! A connection with a write timeout: its client has to read the data that is sent.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection that fails if no written byte is accepted for some time.
pub(super) struct WriteTimeoutStream<S> {
    stream: S,
    at_most: Duration,
    /// Deadline of a pending write.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeoutStream<S> {
    pub(super) fn new(stream: S, at_most: Duration) -> Self {
        Self {
            stream,
            at_most,
            waits: None,
        }
    }

    fn bounded<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            // Progress resets the deadline.
            self.waits = None;
            return polled;
        }
        let at_most = self.at_most;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(at_most)));
        match waits.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Reads have no deadline here: the client of a stream sends nothing while it reads.
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(polled, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_disconnected_and_a_slow_client_is_not() {
        let at_most = Duration::from_secs(30);
        let (mut slow, stream) = duplex(4);
        let mut connection = WriteTimeoutStream::new(stream, at_most);
        let reads = tokio::spawn(async move {
            let mut read = [0; 4];
            for _ in 0..4 {
                sleep(Duration::from_secs(29)).await;
                slow.read_exact(&mut read).await.expect("four bytes");
            }
            slow
        });
        connection.write_all(&[7; 20]).await.expect("it is slow, not stuck");
        let _stuck = reads.await.expect("a task");
        let cut = connection.write_all(&[7; 20]).await;
        assert_eq!(cut.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
    }
}
