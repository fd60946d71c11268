//! The trigger depth and the idempotency key of the host code that is currently running.
//!
//! A function called by a trigger can raise an event (through a `RunHandle`) that fires the trigger again. Such an event gets the
//! caller's depth plus one, so that the depth limit ends the chain. The depth is stored in a thread-local while the function is
//! called and while its future is polled; callers need not pass it. Work that a function moves to another task or thread is not
//! tracked.
//!
//! The current effect is tracked in the same way. Its id is the idempotency key for requests to other services, equal in every
//! attempt and every process.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use pirn_core::run::{CallNo, ThreadNo, effect_key, trigger_key};
use pirn_core::thread::EffectId;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static EFFECT: RefCell<Option<EffectName>> = const { RefCell::new(None) };
}

/// Identifies an effect.
#[derive(Clone)]
pub(crate) enum EffectName {
    /// An effect that a thread awaits.
    Thread {
        run_id: Arc<str>,
        thread: ThreadNo,
        effect: EffectId,
    },
    /// A call of a trigger.
    TriggerCall { run_id: Arc<str>, call: CallNo },
}

impl EffectName {
    fn key(&self) -> String {
        match self {
            Self::Thread { run_id, thread, effect } => effect_key(run_id, *thread, *effect),
            Self::TriggerCall { run_id, call } => trigger_key(run_id, *call),
        }
    }
}

/// Returns the idempotency key of the effect that the caller executes: `RUN.THREAD.EFFECT`, or `RUN.tCALL` for a trigger's call
/// in a durable run. Equal in every attempt and every process.
///
/// None outside of a model, tool or async function of a run, and outside of trigger calls in durable runs.
pub fn idempotency_key() -> Option<String> {
    EFFECT.with_borrow(|effect| effect.as_ref().map(EffectName::key))
}

/// Returns the number of triggers between the run's own steps and the caller. 0 if no trigger called it.
pub fn trigger_depth() -> u32 {
    DEPTH.get()
}

/// Calls host code at a trigger depth.
pub(crate) fn with_trigger_depth<T>(depth: u32, call: impl FnOnce() -> T) -> T {
    let _before = DepthGuard(DEPTH.replace(depth));
    call()
}

/// Calls host code that executes an effect, at a trigger depth.
pub(crate) fn call_of<T>(depth: u32, mut effect: Option<EffectName>, call: impl FnOnce() -> T) -> T {
    with_effect(&mut effect, || with_trigger_depth(depth, call))
}

/// Creates a future of host code at a trigger depth. If `effect` is given, the future executes that effect.
pub(crate) fn work_of<T: 'static>(
    depth: u32,
    mut effect: Option<EffectName>,
    begin: impl FnOnce() -> BoxFuture<'static, T>,
) -> BoxFuture<'static, T> {
    // The part of the host code before its first `await` runs here and may raise events too.
    let work = with_effect(&mut effect, || with_trigger_depth(depth, begin));
    Box::pin(CallFuture { depth, effect, work })
}

/// Calls host code that executes an effect.
fn with_effect<T>(effect: &mut Option<EffectName>, call: impl FnOnce() -> T) -> T {
    /// Restores the outer effect, also if the call panics.
    struct EffectGuard<'a>(&'a mut Option<EffectName>);
    impl Drop for EffectGuard<'_> {
        fn drop(&mut self) {
            EFFECT.with_borrow_mut(|current| std::mem::swap(current, self.0));
        }
    }
    // Swapped and not cloned: the name is lent to the thread-local and returned, so a poll allocates nothing.
    EFFECT.with_borrow_mut(|current| std::mem::swap(current, effect));
    let _back = EffectGuard(effect);
    call()
}

/// Restores the outer depth, also if the call panics.
struct DepthGuard(u32);

impl Drop for DepthGuard {
    fn drop(&mut self) {
        DEPTH.set(self.0);
    }
}

struct CallFuture<T> {
    depth: u32,
    effect: Option<EffectName>,
    work: BoxFuture<'static, T>,
}

impl<T> Future for CallFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<T> {
        // Split into fields, because the future is polled while the name of the effect is lent.
        let Self { depth, effect, work } = &mut *self;
        // Set again for each poll, because other tasks of this thread run between two polls.
        with_effect(effect, || with_trigger_depth(*depth, || work.as_mut().poll(task)))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn the_trigger_depth_is_scoped_to_the_call_and_restored_after_a_panic() {
        let heard = with_trigger_depth(2, || {
            (trigger_depth(), with_trigger_depth(5, trigger_depth), trigger_depth())
        });
        assert_eq!((heard, trigger_depth()), ((2, 5, 2), 0));
        let broken = catch_unwind(|| with_trigger_depth(3, || panic!("on purpose")));
        assert!(broken.is_err());
        assert_eq!(trigger_depth(), 0);
    }

    #[test]
    fn work_has_its_trigger_depth_in_every_poll() {
        let (go, may_go) = futures::channel::oneshot::channel::<()>();
        let mut work = work_of(4, None, || {
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

    #[test]
    fn the_idempotency_key_is_set_only_while_its_work_is_polled() {
        let name = EffectName::Thread {
            run_id: "run-1".into(),
            thread: 2,
            effect: 7,
        };
        let (go, may_go) = futures::channel::oneshot::channel::<()>();
        let begun = RefCell::new(None);
        let mut work = work_of(0, Some(name), || {
            begun.replace(idempotency_key());
            Box::pin(async move {
                may_go.await.unwrap_or(());
                idempotency_key()
            })
        });
        assert_eq!(
            (begun.into_inner().as_deref(), idempotency_key()),
            (Some("run-1.2.7"), None)
        );
        let mut task = Context::from_waker(std::task::Waker::noop());
        assert!(work.as_mut().poll(&mut task).is_pending());
        assert_eq!(idempotency_key(), None);
        go.send(()).unwrap_or(());
        assert_eq!(work.as_mut().poll(&mut task), Poll::Ready(Some("run-1.2.7".to_owned())));
    }
}
