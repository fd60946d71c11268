//! The number of triggers between a run's own steps and what the host's code does just now.
//!
//! A function that a trigger calls can raise an event, through a `RunHandle`, that calls it again. What it raises is one
//! link further down the chain than what it was called for, so the chain has its end. Nobody hands a
//! depth to such code and nobody has to: while it is called, and while its future is polled, the depth is the thread's.
//! Work it does in a task or thread of its own is not attributed to it.
//!
//! The effect that such code carries out is known in the same way: its id is the idempotency key of whatever the code asks of
//! others, the same in every attempt and every process.

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

/// Names an effect.
#[derive(Clone)]
pub(crate) enum EffectName {
    /// One that a thread awaits.
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

/// The idempotency key of the effect that the caller carries out: `RUN.THREAD.EFFECT`, or `RUN.tCALL` of a trigger's call in a
/// durable run; the same in every attempt and every process. None outside of a run's model, tool or async function, and of what
/// triggers call in a durable run.
pub fn idempotency_key() -> Option<String> {
    EFFECT.with_borrow(|effect| effect.as_ref().map(EffectName::key))
}

/// The number of triggers between the run's own steps and the caller; 0 where none called it.
pub fn trigger_depth() -> u32 {
    DEPTH.get()
}

/// Calls code of the host that `depth` triggers brought about.
pub(crate) fn with_trigger_depth<T>(depth: u32, call: impl FnOnce() -> T) -> T {
    let _before = Before(DEPTH.replace(depth));
    call()
}

/// The same for code that carries an effect out.
pub(crate) fn call_of<T>(depth: u32, mut effect: Option<EffectName>, call: impl FnOnce() -> T) -> T {
    with_effect(&mut effect, || with_trigger_depth(depth, call))
}

/// Work of the host that `depth` triggers brought about, and that carries an effect out; none: it has none.
pub(crate) fn work_of<T: 'static>(
    depth: u32,
    mut effect: Option<EffectName>,
    begin: impl FnOnce() -> BoxFuture<'static, T>,
) -> BoxFuture<'static, T> {
    let work = with_effect(&mut effect, || with_trigger_depth(depth, begin));
    Box::pin(Caused { depth, effect, work })
}

/// Calls code of the host that carries an effect out.
fn with_effect<T>(effect: &mut Option<EffectName>, call: impl FnOnce() -> T) -> T {
    /// Puts the names back, also where the call panics.
    struct Back<'a>(&'a mut Option<EffectName>);
    impl Drop for Back<'_> {
        fn drop(&mut self) {
            EFFECT.with_borrow_mut(|current| std::mem::swap(current, self.0));
        }
    }
    EFFECT.with_borrow_mut(|current| std::mem::swap(current, effect));
    let _back = Back(effect);
    call()
}

/// Puts the depth back, also where the call panics.
struct Before(u32);

impl Drop for Before {
    fn drop(&mut self) {
        DEPTH.set(self.0);
    }
}

struct Caused<T> {
    depth: u32,
    effect: Option<EffectName>,
    work: BoxFuture<'static, T>,
}

impl<T> Future for Caused<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<T> {
        let Self { depth, effect, work } = &mut *self;
        with_effect(effect, || with_trigger_depth(*depth, || work.as_mut().poll(task)))
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
    fn work_has_its_effects_key_whenever_it_is_polled_and_nobody_else_has() {
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
