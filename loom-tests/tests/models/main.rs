//! One model for each primitive. Loom runs every interleaving with at most two preemptions. `mutants` shows that each model can
//! fail.

mod admission;
mod batches;
mod completion;
mod drain_gate;
mod mutants;
mod quota;
mod stop_flag;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::model::Builder;
use loom::sync::Notify;

/// Runs every interleaving of `world` with at most two preemptions.
fn model(world: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(world);
}

/// Polls a future on the current thread until it is ready.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    struct NotifyWaker(Notify);
    impl Wake for NotifyWaker {
        fn wake(self: Arc<Self>) {
            self.0.notify();
        }
    }
    let notify = Arc::new(NotifyWaker(Notify::new()));
    let waker = Waker::from(Arc::clone(&notify));
    loop {
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => notify.0.wait(),
        }
    }
}
