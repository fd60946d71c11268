//! The port itself, and the handles that it gives.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use futures::future::{BoxFuture, LocalBoxFuture};
use pirn_core::Millis;
use pirn_core::thread::Interaction;
use serde_json::Value;

use super::TimerKey;
use super::observation::{Label, Observation};

/// Gives a question an answer.
pub type GiveAnswer = Rc<dyn Fn(&Interaction, Value)>;

/// The things that a host must offer. Implemented once per kind of host, called through [`Host`].
pub trait Port {
    /// Milliseconds since the host started; never goes back.
    fn now(&self) -> Millis;
    /// Milliseconds since the Unix epoch (under virtual time: since the configured origin).
    fn wall_clock(&self) -> Millis;
    /// Runs `task` on this thread until it ends or the host does.
    fn spawn(&self, label: Option<Label<'_>>, task: LocalBoxFuture<'static, ()>);
    /// Calls `fire` on this thread once `after` milliseconds have passed, never earlier.
    fn set_timer(&self, label: Option<Label<'_>>, after: Millis, fire: Box<dyn FnOnce()>) -> TimerKey;
    /// The same for what nobody waits for: under virtual time it happens while others wait.
    fn set_background_timer(&self, after: Millis, fire: Box<dyn FnOnce()>) -> TimerKey {
        self.set_timer(None, after, fire)
    }
    /// The same for what changes nothing that a run does, like giving memory back. None where each thing that happens is chosen:
    /// it never does there.
    fn set_quiet_timer(&self, after: Millis, fire: Box<dyn FnOnce()>) -> Option<TimerKey> {
        Some(self.set_background_timer(after, fire))
    }
    /// Forgets a timer; one that has fired, or was never set, is no error.
    fn cancel_timer(&self, key: TimerKey);
    /// Runs work that may leave this thread; under virtual time it does not.
    fn work(&self, label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle;
    /// Runs work that waits for the outside world, always on a real tokio runtime.
    fn external(&self, label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle;
    /// The same for what another thread does, where waiting for it is all that is done here.
    fn wait(&self, wait: BoxFuture<'static, ()>) {
        self.external(None, wait).detach();
    }
    /// Offers the answers that a question may get, each of which is `give`n where it is chosen; a host that does not choose
    /// offers none. What is offered is offered until its handle is dropped.
    fn offer_answers(&self, _label: Label<'_>, _question: &Arc<Interaction>, _give: GiveAnswer) -> Vec<WorkHandle> {
        Vec::new()
    }
    /// The clock that work may take with it.
    fn work_clock(&self) -> WorkClock;
    /// The same for work that nobody waits for.
    fn background_work_clock(&self) -> WorkClock {
        self.work_clock()
    }
    /// A random number; a seeded sequence under virtual time.
    fn random(&self) -> u64;
    /// True if it picks which of the ready things happens next; other hosts take them first come, first served.
    fn picks_order(&self) -> bool {
        false
    }
    /// True if its time stands still while another's thread works for one of its actors: it waits for that thread then.
    fn waits_for_threads(&self) -> bool {
        false
    }
    /// True if it wants to hear [`Port::observe`]; asked once, when its [`Host`] is made.
    fn observes(&self) -> bool {
        false
    }
    /// Hears what becomes of runs; called where [`Port::observes`] only.
    fn observe(&self, _observation: Observation) {}
}

/// An actor's way to its host. Cheap to clone, bound to its thread.
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
            observes: port.observes(),
            port,
            is_background: false,
        }
    }

    /// The same host for what goes on beside others and nobody waits for, like what the clock starts: its timers and its work's
    /// delays pass under virtual time while others wait, and not for their own sake.
    #[must_use]
    pub fn in_background(&self) -> Self {
        Self {
            is_background: true,
            ..self.clone()
        }
    }

    /// Tells the host what became of a run, where it wants to know: an explorer tells states apart by it. Nothing is built
    /// where it does not.
    pub fn observe(&self, observation: impl FnOnce() -> Observation) {
        if self.observes {
            self.port.observe(observation());
        }
    }

    /// True if it picks which of the ready things happens next; other hosts take them first come, first served.
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

    /// Runs `task` on this thread, from a later turn on. It ends with the host at the latest.
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

    /// As [`Host::after`] for what changes nothing that a run does, like giving memory back: under virtual time it happens while
    /// others wait, and where each thing that happens is chosen never.
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
            // The sleeper may be gone: then nobody waits for the time.
            elapsed.send(()).unwrap_or(());
        });
        async move {
            let _timer = timer;
            if wait.await.is_err() {
                // The host is shutting down and dropped the timer: this sleep never ends, its task is dropped.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Runs a model call, a tool, a script or store work where it does not hold this thread up: on the embedding
    /// program's tokio runtime in production, on the simulated executor (so in a deterministic order) under
    /// virtual time. Dropping the handle aborts the work.
    pub fn work(&self, label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle {
        self.port.work(label, work)
    }

    /// Like [`Host::work`], for work that waits for the outside world (an HTTP answer): always on a real tokio
    /// runtime. While it runs, a virtual clock is no faster than the real one.
    pub fn external(&self, label: Option<Label<'_>>, work: BoxFuture<'static, ()>) -> WorkHandle {
        self.port.external(label, work)
    }

    /// Waits for another thread that has been told what to do: like [`Host::external`], but without a thread in between where
    /// the clock is the real one.
    pub fn wait(&self, wait: BoxFuture<'static, ()>) {
        self.port.wait(wait);
    }

    /// Makes a thread that is none of the host's do something: `begin` passes the work to it, and it calls back with the result,
    /// for `answer`. Where the host waits for such threads, the end of labelled work is the end of [`Host::work`]: other things
    /// may happen before it. The result is known by then, and depends on when the work started: an observing host is told of it.
    pub fn on_other_thread<T: std::fmt::Debug + Send + 'static>(
        &self,
        label: Option<Label<'_>>,
        begin: impl FnOnce(Box<dyn FnOnce(T) + Send>) -> WorkHandle,
        answer: impl FnOnce(T) + Send + 'static,
    ) -> WorkHandle {
        if !self.port.waits_for_threads() {
            return begin(Box::new(answer));
        }
        let (tell, told) = std::sync::mpsc::channel();
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
            // It has dropped its end: so is the answer.
            Err(_) => WorkHandle::inert(),
        }
    }

    /// Puts a question to a host that chooses what happens next: it may `give` one of the answers that there may be. Others
    /// leave that to whoever holds the run.
    pub fn offer_answers(
        &self,
        label: Label<'_>,
        question: impl FnOnce() -> Option<Interaction>,
        give: impl Fn(&Interaction, Value) + 'static,
    ) -> Vec<WorkHandle> {
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

/// A timer that has been set. Dropping it cancels the timer.
#[must_use = "dropping a TimerHandle cancels the timer; keep it, or call `detach`"]
pub struct TimerHandle {
    armed: Option<(Host, TimerKey)>,
}

impl TimerHandle {
    /// Lets the timer fire without anybody holding it.
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

/// Work in flight. Dropping it aborts the work: its future is dropped soon, wherever it runs.
#[must_use = "dropping a WorkHandle aborts the work; keep it, or call `detach`"]
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

    /// A handle to work that was refused, or can not be aborted.
    pub fn inert() -> Self {
        Self { abort: None }
    }

    /// Lets the work go on without anybody holding it.
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

/// The time that a [`WorkClock`] tells. Implemented once per kind of host.
pub trait WorkTime: Send + Sync {
    /// As [`Port::now`].
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
    /// A clock that asks `time`.
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
