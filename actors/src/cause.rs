//! How many triggers stand between a run's own steps and what the host's code does just now.
//!
//! A function that a trigger calls can raise an event, through a `RunHandle`, that calls it again. What it raises is one
//! link further down the chain than what it was called for, so the chain has its end. Nobody hands a
//! depth to such code and nobody has to: while it is called, and while its future is polled, the depth is the thread's.
//! What it does in a task or thread of its own is not known to be its doing.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// How many triggers stand between the run's own steps and the caller; 0 where none called it.
pub fn trigger_depth() -> u32 {
    DEPTH.get()
}

/// Calls code of the host that `depth` triggers brought about.
pub(crate) fn with_trigger_depth<T>(depth: u32, call: impl FnOnce() -> T) -> T {
    let _before = Before(DEPTH.replace(depth));
    call()
}

/// Work of the host that `depth` triggers brought about.
pub(crate) fn work_with_trigger_depth<T: 'static>(
    depth: u32,
    begin: impl FnOnce() -> BoxFuture<'static, T>,
) -> BoxFuture<'static, T> {
    let work = with_trigger_depth(depth, begin);
    if depth == 0 {
        return work;
    }
    Box::pin(WithTriggerDepth { depth, work })
}

/// Puts the depth back, also where the call panics.
struct Before(u32);

impl Drop for Before {
    fn drop(&mut self) {
        DEPTH.set(self.0);
    }
}

struct WithTriggerDepth<T> {
    depth: u32,
    work: BoxFuture<'static, T>,
}

impl<T> Future for WithTriggerDepth<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<T> {
        with_trigger_depth(self.depth, || self.work.as_mut().poll(task))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn the_depth_is_the_calls_own_and_is_put_back_also_by_a_panic() {
        let heard = with_trigger_depth(2, || {
            (trigger_depth(), with_trigger_depth(5, trigger_depth), trigger_depth())
        });
        assert_eq!((heard, trigger_depth()), ((2, 5, 2), 0));
        let broken = catch_unwind(|| with_trigger_depth(3, || panic!("on purpose")));
        assert!(broken.is_err());
        assert_eq!(trigger_depth(), 0);
    }

    #[test]
    fn work_has_its_depth_whenever_it_is_polled() {
        let (go, may_go) = futures::channel::oneshot::channel::<()>();
        let mut work = work_with_trigger_depth(4, || {
            Box::pin(async move {
                let first = trigger_depth();
                may_go.await.unwrap_or(());
                (first, trigger_depth())
            })
        });
        let mut task = Context::from_waker(std::task::Waker::noop());
        assert!(work.as_mut().poll(&mut task).is_pending());
        assert_eq!(trigger_depth(), 0);
        go.send(()).unwrap_or(());
        assert_eq!(work.as_mut().poll(&mut task), Poll::Ready((4, 4)));
        assert_eq!(trigger_depth(), 0);
    }
}
