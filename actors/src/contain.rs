//! Starting actors with panic containment.
//!
//! actix starts an actor as a bare task: a panic kills it silently, and a second panic in `stopped` during unwinding aborts the
//! process. This module polls the context's future itself:
//!
//! 1. The future is polled inside `catch_unwind`. After a panic neither `stopping` nor `stopped` runs, because the actor's state
//!    may be inconsistent. An actor with results to save (spent tokens, messages) reports them from its handlers.
//! 2. The future is dropped inside a second `catch_unwind`, outside of unwinding.
//! 3. `on_exit` is called exactly once, after the actor was dropped, also if the executor drops the task.
//!
//! Two panics within one drop (the actor's `Drop` and then a field's) cannot be contained in safe Rust and abort the process.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};

use actix::dev::ContextFut;
use actix::dev::channel::AddressReceiver;
use actix::{Actor, ActorContext, Addr, Context};

use crate::host::Host;
use crate::panic_text::panic_message;

/// Reason why an actor ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The actor stopped: it requested the stop, or its last address was dropped.
    Stopped,
    /// The actor panicked in `started`, a handler, `stopping`, `stopped` or its `Drop`.
    Panicked {
        /// Text of the panic.
        message: String,
    },
    /// The host was dropped. An actor that had started was stopped first.
    Dropped,
}

/// Starts `actor` on this thread. `started` runs in a later turn; `on_exit` is called once, after the actor was dropped.
///
/// `on_exit` may run while the host shuts down and should only send; a panic in it is caught and logged.
pub fn start_contained<A>(host: &Host, actor: A, on_exit: impl FnOnce(Exit) + 'static) -> Addr<A>
where
    A: Actor<Context = Context<A>>,
{
    start_contained_with(host, |_| actor, on_exit)
}

/// Like [`start_contained`], for an actor whose constructor needs its address or context.
pub fn start_contained_with<A>(
    host: &Host,
    make: impl FnOnce(&mut Context<A>) -> A,
    on_exit: impl FnOnce(Exit) + 'static,
) -> Addr<A>
where
    A: Actor<Context = Context<A>>,
{
    start_in(host, Context::new(), make, on_exit)
}

/// Like [`start_contained`], for an actor whose address is in use already, on any thread: `mail` is the receiver of
/// `actix::dev::channel::channel`.
pub fn start_contained_on<A>(
    host: &Host,
    mail: AddressReceiver<A>,
    actor: A,
    on_exit: impl FnOnce(Exit) + 'static,
) -> Addr<A>
where
    A: Actor<Context = Context<A>>,
{
    start_in(host, Context::with_receiver(mail), |_| actor, on_exit)
}

/// Runs a closure and converts a panic into [`Exit::Panicked`].
pub(crate) fn contained<T>(turn: impl FnOnce() -> T) -> Result<T, Exit> {
    catch_unwind(AssertUnwindSafe(turn)).map_err(|payload| Exit::Panicked {
        message: panic_message(payload),
    })
}

fn start_in<A>(
    host: &Host,
    mut context: Context<A>,
    make: impl FnOnce(&mut Context<A>) -> A,
    on_exit: impl FnOnce(Exit) + 'static,
) -> Addr<A>
where
    A: Actor<Context = Context<A>>,
{
    let actor = make(&mut context);
    let running = context.into_future(actor);
    let address = running.address();
    host.spawn(
        None,
        Box::pin(ContainedFuture {
            running: Some(running),
            on_exit: Some(on_exit),
            has_started: false,
        }),
    );
    address
}

/// An actor's context future inside both catches.
struct ContainedFuture<A, F>
where
    A: Actor<Context = Context<A>>,
    F: FnOnce(Exit),
{
    running: Option<ContextFut<A, Context<A>>>,
    on_exit: Option<F>,
    has_started: bool,
}

impl<A, F> ContainedFuture<A, F>
where
    A: Actor<Context = Context<A>>,
    F: FnOnce(Exit),
{
    /// Drops the actor, then calls `on_exit`.
    fn end(&mut self, exit: Exit) {
        let mut exit = exit;
        // `take` tells `drop` that the actor has ended already.
        if let Some(mut running) = self.running.take() {
            // Dropping a terminated context does not poll it, so neither `stopping` nor `stopped` runs on a broken actor.
            running.ctx().terminate();
            if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop(running))) {
                exit = with_panic(exit, payload);
            }
        }
        if let Some(on_exit) = self.on_exit.take()
            // `end` may run in `drop` during unwinding, where a panic that escapes aborts the process.
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| on_exit(exit)))
        {
            let message = panic_message(payload);
            tracing::error!(message, "the report of an actor's end panicked");
        }
    }
}

// `F` may be `!Unpin`, but no field is pinned: the context's future is `Unpin` itself.
impl<A, F> Unpin for ContainedFuture<A, F>
where
    A: Actor<Context = Context<A>>,
    F: FnOnce(Exit),
{
}

impl<A, F> Future for ContainedFuture<A, F>
where
    A: Actor<Context = Context<A>>,
    F: FnOnce(Exit),
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<()> {
        self.has_started = true;
        let Some(running) = self.running.as_mut() else {
            return Poll::Ready(());
        };
        let exit = match catch_unwind(AssertUnwindSafe(|| Pin::new(running).poll(task))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => Exit::Stopped,
            Err(payload) => Exit::Panicked {
                message: panic_message(payload),
            },
        };
        self.end(exit);
        Poll::Ready(())
    }
}

impl<A, F> Drop for ContainedFuture<A, F>
where
    A: Actor<Context = Context<A>>,
    F: FnOnce(Exit),
{
    fn drop(&mut self) {
        // The actor ended in `poll`, which reported its exit.
        let Some(running) = self.running.as_mut() else { return };
        let mut exit = Exit::Dropped;
        // The first poll would run `started`, on a host that is gone.
        if self.has_started {
            // One poll runs `stopping` and `stopped`, so that an actor can release its resources although the host is gone.
            let farewell = catch_unwind(AssertUnwindSafe(|| {
                running.ctx().stop();
                let mut task = TaskContext::from_waker(Waker::noop());
                // The result is ignored: the future is dropped next.
                let _: Poll<()> = Pin::new(running).poll(&mut task);
            }));
            if let Err(payload) = farewell {
                exit = with_panic(exit, payload);
            }
        }
        self.end(exit);
    }
}

/// Records a panic in the exit. The first panic is the one that is reported.
fn with_panic(exit: Exit, payload: Box<dyn Any + Send>) -> Exit {
    let message = panic_message(payload);
    match exit {
        Exit::Stopped | Exit::Dropped => Exit::Panicked { message },
        Exit::Panicked { message: first } => {
            tracing::error!(message, "a second panic of this actor was contained");
            Exit::Panicked { message: first }
        }
    }
}
