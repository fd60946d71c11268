//! The answer to whoever gave a command.

use futures::channel::oneshot;

/// Answers whoever still waits.
pub(crate) fn answer<T>(to: &mut Option<oneshot::Sender<T>>, with: T) {
    if let Some(to) = to.take() {
        drop(to.send(with));
    }
}
