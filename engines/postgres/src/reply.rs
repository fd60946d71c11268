//! Replies to callers.

use futures::channel::oneshot;

/// Sends a reply, once. The receiver may be gone.
pub(crate) fn answer<T>(to: &mut Option<oneshot::Sender<T>>, with: T) {
    if let Some(to) = to.take() {
        drop(to.send(with));
    }
}
