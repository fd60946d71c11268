//! Backpressure against a server that sends requests and notifications faster than they are answered.
//!
//! For each of them rmcp spawns a task, without a limit. A server that sends continuously and reads no answers would exhaust
//! the memory, even while no call is in progress. Therefore nothing is read from a server while [`MOST_OPEN`] of its requests
//! have no answer.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{JsonRpcMessage, RequestId, ServerNotification};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::Notify;

/// Maximum number of a server's requests without an answer.
const MOST_OPEN: usize = 64;

/// Maximum length of a request's id in bytes; a request with a longer one is dropped.
const LONGEST_ID: usize = 1024;

/// Transport that stops reading while too many of the server's requests have no answer.
pub(super) struct BoundedTransport<T> {
    inner: T,
    open: Arc<Open>,
    /// True after a message for which rmcp spawns a task.
    must_yield: bool,
}

/// Ids of the requests that have no answer yet.
#[derive(Default)]
struct Open {
    ids: Mutex<BTreeSet<String>>,
    freed: Notify,
}

impl<T> BoundedTransport<T> {
    pub(super) fn new(inner: T) -> Self {
        Self {
            inner,
            open: Arc::default(),
            must_yield: false,
        }
    }
}

impl Open {
    /// Waits until fewer than [`MOST_OPEN`] requests are open.
    async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            if self.ids().len() < MOST_OPEN {
                return;
            }
            freed.await;
        }
    }

    /// Adds a request. Returns false if its id is in use or too long.
    fn enter(&self, id: &RequestId) -> bool {
        let key = key(id);
        key.len() <= LONGEST_ID && self.ids().insert(key)
    }

    /// Removes a request that is answered or cancelled.
    fn leave(&self, id: &RequestId) {
        if self.ids().remove(&key(id)) {
            self.freed.notify_one();
        }
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // Poisoning is ignored: the ids are consistent whenever the lock can be released.
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the key of an id. The ids `1` and `"1"` have different keys.
fn key(id: &RequestId) -> String {
    format!("{id:?}")
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BoundedTransport<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let open = Arc::clone(&self.open);
        let sending = self.inner.send(message);
        async move {
            let sent = sending.await;
            if let Some(id) = answered {
                open.leave(&id);
            }
            sent
        }
    }

    // Cancel safe: a received message is returned without another await, so that it cannot be lost.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if self.must_yield {
                // Lets the task of the last message run before the next message is read.
                tokio::task::yield_now().await;
                self.must_yield = false;
            }
            self.open.room().await;
            let message = self.inner.receive().await?;
            self.must_yield = matches!(&message, JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_));
            match &message {
                JsonRpcMessage::Request(request) if !self.open.enter(&request.id) => {
                    tracing::debug!("a request of an MCP server is dropped: its id is in use or too long");
                    continue;
                }
                JsonRpcMessage::Notification(told) => {
                    // rmcp does not answer a cancelled request.
                    if let ServerNotification::CancelledNotification(cancelled) = &told.notification
                        && let Some(id) = &cancelled.params.request_id
                    {
                        self.open.leave(id);
                    }
                }
                JsonRpcMessage::Request(_) | JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
            }
            return Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::{Value, json};

    use super::*;

    /// Server that sends the messages of `next` without end, and reads one answer per notification of `reads`.
    struct Endless {
        next: fn(usize) -> Value,
        given: usize,
        reads: Arc<Notify>,
    }

    impl Transport<RoleClient> for Endless {
        type Error = std::io::Error;

        fn send(
            &mut self,
            _: TxJsonRpcMessage<RoleClient>,
        ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
            let reads = Arc::clone(&self.reads);
            async move {
                reads.notified().await;
                Ok(())
            }
        }

        async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
            self.given += 1;
            Some(serde_json::from_value((self.next)(self.given)).expect("a message"))
        }

        async fn close(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    fn endless(next: fn(usize) -> Value) -> BoundedTransport<Endless> {
        BoundedTransport::new(Endless {
            next,
            given: 0,
            reads: Arc::default(),
        })
    }

    fn ping(id: usize) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
    }

    fn answer(id: usize) -> TxJsonRpcMessage<RoleClient> {
        serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "result": {}})).expect("a message")
    }

    /// Returns the number of messages received until the transport waits, at most `most`. Yielding to other tasks does not count.
    fn taken(transport: &mut BoundedTransport<Endless>, most: usize) -> usize {
        let one = |transport: &mut BoundedTransport<Endless>| {
            let mut receiving = Box::pin(transport.receive());
            (0..3).any(|_| receiving.as_mut().now_or_never().is_some())
        };
        (0..most).take_while(|_| one(transport)).count()
    }

    #[test]
    fn reading_pauses_while_the_server_does_not_read_answers() {
        let mut transport = endless(ping);
        assert_eq!(taken(&mut transport, 1_000), MOST_OPEN);
        let reads = Arc::clone(&transport.inner.reads);
        let mut sending = Box::pin(transport.send(answer(1)));
        assert!(sending.as_mut().now_or_never().is_none());
        assert_eq!(taken(&mut transport, 1_000), 0, "an answer that is not sent is none");
        reads.notify_one();
        assert!(sending.now_or_never().is_some());
        assert_eq!(taken(&mut transport, 1_000), 1);
    }

    #[test]
    fn cancelled_requests_and_repeated_ids_do_not_block_reading() {
        let mut cancels = endless(|n| match n % 2 {
            0 => json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": n - 1}}),
            _ => ping(n),
        });
        assert_eq!(taken(&mut cancels, 1_000), 1_000);
        assert!(cancels.open.ids().len() <= 1);
        let mut repeats = endless(|n| if n < 500 { ping(1) } else { ping(n) });
        assert_eq!(taken(&mut repeats, 1), 1);
        taken(&mut repeats, 1_000);
        assert!(repeats.open.ids().len() <= MOST_OPEN);
    }

    #[test]
    fn the_transport_yields_between_two_notifications() {
        let mut transport = endless(|_| json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
        assert!(transport.receive().now_or_never().is_some());
        assert!(transport.receive().now_or_never().is_none(), "it yields first");
    }
}
