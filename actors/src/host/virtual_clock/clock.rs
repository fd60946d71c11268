//! The virtual clock for work.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use pirn_definition::Millis;

use super::ready::Shared;
use crate::host::WorkTime;
use crate::host::timers::TimerKey;

/// Virtual time for work.
pub(super) struct VirtualTime {
    pub(super) shared: Arc<Shared>,
    /// True if sleeps end at once, because an explorer chooses when work ends.
    pub(super) is_instant: bool,
    /// True if sleeps do not count as progress.
    pub(super) is_background: bool,
}

impl WorkTime for VirtualTime {
    fn now(&self) -> Millis {
        self.shared.now()
    }

    fn sleep(&self, after: Millis) -> BoxFuture<'static, ()> {
        Box::pin(Sleep {
            // Counted from the call, not from the first poll.
            deadline: self
                .shared
                .now()
                .saturating_add(if self.is_instant { 0 } else { after }),
            shared: Arc::clone(&self.shared),
            is_background: self.is_background,
            key: None,
        })
    }
}

struct Sleep {
    shared: Arc<Shared>,
    deadline: Millis,
    is_background: bool,
    key: Option<TimerKey>,
}

impl Sleep {
    fn forget(&mut self) {
        if let Some(key) = self.key.take() {
            self.shared.remove_sleeper(key);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        // An earlier poll registered a waker that may be outdated.
        self.forget();
        if self.shared.now() >= self.deadline {
            return Poll::Ready(());
        }
        let waker = task.waker().clone();
        // A closed host registers nothing: the sleep stays pending until its task is dropped.
        self.key = self.shared.add_sleeper(self.deadline, self.is_background, waker);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.forget();
    }
}
