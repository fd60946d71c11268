//! The host interface and its handles.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use futures::future::{BoxFuture, LocalBoxFuture};
use pirn_core::thread::Interaction;
use pirn_definition::Millis;
use serde_json::Value;

use super::TimerKey;
use super::observation::{Label, Observation};

/// Callback that answers a question.
pub type GiveAnswer = Rc<dyn Fn(&Interaction, Value)>;

/// The services of a host: clock, timers, tasks, work. Implemented once per kind of host, and called through [`Host`].
pub trait Port {
    /// Milliseconds since the host started; never goes back.
    fn now(&self) -> Millis;
    /// Milliseconds since the Unix epoch (under virtual time: since the configured origin).
    fn wall_clock(&self) -> Millis;
    /// Runs `task` on this thread until it ends or the host does.
    fn spawn(&self, label: Option<Label<'_>>, task: LocalBoxFuture<'static, ()>);
    /// Calls `fire` on this thread once `after` milliseconds have passed, never earlier.
    fn set_timer(&self, label: Option<Label<'_>>, after: Millis, fire: Box<dyn FnOnce()>) -> TimerKey;
    /// Sets a timer that does not count as progress: virtual time does not advance for it alone.
    fn set_background_timer(&self, after: Millis, fire: Box<dyn FnOnce()>) -> TimerKey {
        // A real clock advances without progress.
        self.set_timer(None, after, fire)
    }
    /// Sets a timer for housekeeping that does not affect runs, for example releasing memory. Returns none, and never fires, on a
    /// host that explores orders.
    fn set_quiet_timer(&self, after: Millis, fire: Box<dyn FnOnce()>) -> Option<TimerKey> {
        Some(self.set_background_timer(after, fire))
    }
    /// Cancels a timer. Ignored if the timer has fired or does not exist.
    fn cancel_timer(&self, key: TimerKey);
    /// Runs work that may leave this thread; under virtual time it does not.
    fn work(&self, label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle;
    /// Runs work that waits for the outside world, always on a real tokio runtime.
    fn external(&self, label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle;
    /// Reads or writes a store. Time that can stop does not pass meanwhile.
    fn access_store(&self, work: BoxFuture<'static, ()>) -> WorkHandle {
        self.external(None, work)
    }
    /// Waits until another thread has written to a store.
    fn wait(&self, wait: BoxFuture<'static, ()>) {
        self.access_store(wait).detach();
    }
    /// Offers possible answers to a question. Each stays available until its handle is dropped, and `give` is called if the host
    /// chooses it. Only an explorer offers any.
    fn offer_answers(&self, _label: Label<'_>, _question: &Arc<Interaction>, _give: GiveAnswer) -> Vec<WorkHandle> {
        Vec::new()
    }
    /// Clock for use inside work.
    fn work_clock(&self) -> WorkClock;
    /// Clock for use inside work that does not count as progress.
    fn background_work_clock(&self) -> WorkClock {
        self.work_clock()
    }
    /// A random number; a seeded sequence under virtual time.
    fn random(&self) -> u64;
    /// True if the host chooses the order of ready tasks. Other hosts run them in FIFO order.
    fn picks_order(&self) -> bool {
        false
    }
    /// True if time stops while another thread works for an actor: the host blocks on that thread.
    fn waits_for_threads(&self) -> bool {
        false
    }
    /// True if the host uses [`Port::observe`]. Queried once, when its [`Host`] is created.
    fn observes(&self) -> bool {
        false
    }
    /// Receives an observation about a run. Called only if [`Port::observes`] is true.
    fn observe(&self, _observation: Observation) {}
}

/// An actor's handle to its host. Cheap to clone, bound to its thread.
///
/// ```
/// # use pirn_actors::host::SimulatedHost;
/// let simulated = SimulatedHost::new(None);
/// let host = simulated.host();
/// let (told, heard) = std::sync::mpsc::channel();
/// host.after(None, 1_000, { let host = host.clone(); move || told.send(host.now()).unwrap_or(()) }).detach();
/// simulated.run_until_idle();
/// assert_eq!(heard.try_recv(), Ok(1_000));
/// ```
#[derive(Clone)]
pub struct Host {
    port: Rc<dyn Port>,
    observes: bool,
    is_background: bool,
}

impl Host {
    /// A handle to `port`.
    pub fn new(port: Rc<dyn Port>) -> Self {
        Self {
            // Cached, because runs ask at every step.
            observes: port.observes(),
            port,
            is_background: false,
        }
    }

    /// Returns a handle for background activity such as schedules. Under virtual time its timers fire only while other activity
    /// advances the clock.
    #[must_use]
    pub fn in_background(&self) -> Self {
        Self {
            is_background: true,
            ..self.clone()
        }
    }

    /// Reports an observation, from which an explorer distinguishes states. Not evaluated on other hosts.
    pub fn observe(&self, observation: impl FnOnce() -> Observation) {
        if self.observes {
            self.port.observe(observation());
        }
    }

    /// True if the host explores orders: it holds labelled work until a chooser picks it.
    pub fn explores(&self) -> bool {
        self.observes
    }

    /// True if the host chooses the order of ready tasks. Other hosts run them in FIFO order.
    pub fn picks_order(&self) -> bool {
        self.port.picks_order()
    }

    /// Milliseconds since the host started; never goes back.
    pub fn now(&self) -> Millis {
        self.port.now()
    }

    /// Milliseconds since the Unix epoch (under virtual time: since the configured origin, by default the start).
    pub fn wall_clock(&self) -> Millis {
        self.port.wall_clock()
    }

    /// Runs `task` on this thread, starting in a later turn. The host drops it on shutdown.
    pub fn spawn(&self, label: Option<Label<'_>>, task: LocalBoxFuture<'static, ()>) {
        self.port.spawn(label, task);
    }

    /// Calls `fire` on this thread once `after` milliseconds have passed. Dropping the handle cancels.
    pub fn after(&self, label: Option<Label<'_>>, after: Millis, fire: impl FnOnce() + 'static) -> TimerHandle {
        let fire = Box::new(fire);
        let key = if self.is_background {
            self.port.set_background_timer(after, fire)
        } else {
            self.port.set_timer(label, after, fire)
        };
        TimerHandle {
            armed: Some((self.clone(), key)),
        }
    }

    /// Like [`Host::after`], for housekeeping that does not affect runs. Under virtual time it does not count as progress, and an
    /// explorer never fires it.
    pub fn when_quiet(&self, after: Millis, fire: impl FnOnce() + 'static) -> Option<TimerHandle> {
        let key = self.port.set_quiet_timer(after, Box::new(fire))?;
        Some(TimerHandle {
            armed: Some((self.clone(), key)),
        })
    }

    /// A future that is ready once `after` milliseconds have passed. Dropping it cancels.
    pub fn sleep(&self, after: Millis) -> impl Future<Output = ()> + use<> {
        let (elapsed, wait) = futures::channel::oneshot::channel::<()>();
        let timer = self.after(None, after, move || {
            // The future may have been dropped.
            elapsed.send(()).unwrap_or(());
        });
        async move {
            // Moved into the future, so that the drop of the future cancels the timer.
            let _timer = timer;
            if wait.await.is_err() {
                // The host is shutting down and dropped the timer. The future stays pending until its task is dropped.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Runs a model call, a tool, a script or store access without blocking this thread: on the embedding program's tokio runtime
    /// in production, on the simulated executor (in a deterministic order) under virtual time. Dropping the handle aborts the
    /// work.
    pub fn work(&self, label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle {
        self.port.work(label, work)
    }

    /// Like [`Host::work`], for work that waits for the outside world (an HTTP response): always on a real tokio runtime. While
    /// it runs, a virtual clock is no faster than the real one.
    pub fn external(&self, label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle {
        self.port.external(label, work)
    }

    /// Like [`Host::external`], for work that reads or writes a store, which takes no virtual time. It must not wait for a timer of
    /// this host.
    pub fn access_store(&self, work: BoxFuture<'static, ()>) -> WorkHandle {
        self.port.access_store(work)
    }

    /// Waits until another thread has written to a store. Like [`Host::access_store`], but without an intermediate thread on hosts
    /// with a real clock.
    pub fn wait(&self, wait: BoxFuture<'static, ()>) {
        self.port.wait(wait);
    }

    /// Starts work on a thread that is not the host's. `begin` submits the work with a callback; `answer` receives the result.
    ///
    /// A host that waits for such threads blocks until the result is there. If the work has a label, delivering the result is a
    /// separate step, so other steps may come first. The result depends on when the work started, so it is reported as an
    /// observation.
    pub fn on_other_thread<T: std::fmt::Debug + Send + 'static>(
        &self,
        label: Option<Label<'_>>,
        begin: impl FnOnce(Box<dyn FnOnce(T) + Send>) -> WorkHandle,
        answer: impl FnOnce(T) + Send + 'static,
    ) -> WorkHandle {
        // With a real clock nothing blocks: the other thread calls `answer` itself.
        if !self.port.waits_for_threads() {
            return begin(Box::new(answer));
        }
        // A blocking channel, because virtual time must not advance while the other thread works.
        let (tell, told) = std::sync::mpsc::channel();
        // Held until the result is there: the drop of the handle would abort the work.
        let _working = begin(Box::new(move |result| tell.send(result).unwrap_or(())));
        match told.recv() {
            Ok(result) => {
                let Some(label) = label else {
                    answer(result);
                    return WorkHandle::inert();
                };
                self.observe(|| Observation::Delivered {
                    run: Arc::clone(label.run),
                    thread: label.thread,
                    text: format!("{result:?}"),
                });
                self.port.work(Some(label), Box::pin(async move { answer(result) }))
            }
            // The worker dropped its callback, so no answer follows.
            Err(_) => WorkHandle::inert(),
        }
    }

    /// Offers answers to a question on a host that chooses what happens next. Other hosts leave the answer to the run's caller.
    pub fn offer_answers(
        &self,
        label: Label<'_>,
        question: impl FnOnce() -> Option<Interaction>,
        give: impl Fn(&Interaction, Value) + 'static,
    ) -> Vec<WorkHandle> {
        // Only an explorer offers answers, so other hosts do not build the question.
        if !self.observes {
            return Vec::new();
        }
        question().map_or_else(Vec::new, |question| {
            self.port.offer_answers(label, &Arc::new(question), Rc::new(give))
        })
    }

    /// The clock for use inside [`Host::work`].
    pub fn work_clock(&self) -> WorkClock {
        if self.is_background {
            self.port.background_work_clock()
        } else {
            self.port.work_clock()
        }
    }

    /// A random number; a seeded sequence under virtual time.
    pub fn random(&self) -> u64 {
        self.port.random()
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// A running timer. Dropping it cancels the timer.
#[must_use = "dropping a TimerHandle cancels the timer; hold it, or call `detach`"]
pub struct TimerHandle {
    armed: Option<(Host, TimerKey)>,
}

impl TimerHandle {
    /// Keeps the timer running without its handle.
    pub fn detach(mut self) {
        self.armed = None;
    }
}

impl Drop for TimerHandle {
    fn drop(&mut self) {
        if let Some((host, key)) = self.armed.take() {
            host.port.cancel_timer(key);
        }
    }
}

impl std::fmt::Debug for TimerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TimerHandle")
            .field(&self.armed.as_ref().map(|(_, key)| key))
            .finish()
    }
}

/// Work in flight. Dropping it aborts the work: the future is dropped soon after, on the thread that runs it.
#[must_use = "dropping a WorkHandle aborts the work; hold it, or call `detach`"]
pub struct WorkHandle {
    abort: Option<Box<dyn FnOnce() + Send>>,
}

impl WorkHandle {
    /// A handle that calls `abort` when it is dropped.
    pub fn new(abort: impl FnOnce() + Send + 'static) -> Self {
        Self {
            abort: Some(Box::new(abort)),
        }
    }

    /// A handle to work that was refused or cannot be aborted.
    pub fn inert() -> Self {
        Self { abort: None }
    }

    /// Lets the work continue without its handle.
    pub fn detach(mut self) {
        self.abort = None;
    }
}

impl Drop for WorkHandle {
    fn drop(&mut self) {
        if let Some(abort) = self.abort.take() {
            abort();
        }
    }
}

impl std::fmt::Debug for WorkHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkHandle").finish_non_exhaustive()
    }
}

/// Time source of a [`WorkClock`]. Implemented once per kind of host.
pub trait WorkTime: Send + Sync {
    /// Milliseconds since the host started, like [`Port::now`].
    fn now(&self) -> Millis;
    /// A future that is ready once `after` milliseconds have passed.
    fn sleep(&self, after: Millis) -> BoxFuture<'static, ()>;
}

/// The host's clock for work that may run on another thread (a scripted model's delay, the pause before a retry).
#[derive(Clone)]
pub struct WorkClock {
    time: Arc<dyn WorkTime>,
}

impl WorkClock {
    /// A clock that reads `time`.
    pub fn new(time: Arc<dyn WorkTime>) -> Self {
        Self { time }
    }

    /// Milliseconds since the host started; never goes back.
    pub fn now(&self) -> Millis {
        self.time.now()
    }

    /// A future that is ready once `after` milliseconds have passed.
    pub fn sleep(&self, after: Millis) -> BoxFuture<'static, ()> {
        self.time.sleep(after)
    }
}

impl std::fmt::Debug for WorkClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkClock").field("now", &self.now()).finish()
    }
}
