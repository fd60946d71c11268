//! The threads that run scripts.
//!
//! 1. Every accepted job is answered once: by its thread, or by the watchdog after the time limit.
//! 2. A thread that has not returned at a job's limit is late. One that is late for [`PATIENCE`] is stuck and is replaced. A stuck
//!    thread that returns ends.
//! 3. While the number of stuck threads exceeds its maximum, every job is refused.
//! 4. Runs take turns, and no run occupies all threads.
//!
//! One lock protects the state. No callback is called and no wait happens under it, except on the condition variables.
//!
//! Not here: what a thread does with a job, which is in `interpreter`.

mod watchdog;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pirn_actors::ports::ScriptStats;
use pirn_conversation::fair_queue::FairQueue;
use pirn_core::thread::Outcome;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::script::ScriptFault;

use crate::deadline::now;
use crate::interpreter::Interpreter;
#[cfg(feature = "javascript")]
use crate::sessions::Sessions;
use crate::task::{CancelHandle, Task, TaskResult};
use crate::{Logs, ScriptSettings};

/// Time after its limit until the watchdog answers a job.
const GRACE: Duration = Duration::from_millis(100);

/// Time that a thread may be late before it is abandoned.
const PATIENCE: Duration = Duration::from_millis(100);

/// Time to wait for the threads when a pool is dropped.
const FAREWELL: Duration = Duration::from_secs(1);

/// The callback for a job's result.
pub(super) type Answer = Box<dyn FnOnce(TaskResult) + Send>;

/// Threads that run scripts, started on demand. Dropping the pool ends them.
pub(super) struct ScriptPool {
    shared: Arc<Shared>,
}

/// A job of a pool; dropping the guard cancels it.
pub(super) struct JobGuard {
    pool: Weak<Shared>,
    run: Arc<str>,
    id: u64,
}

struct Job {
    id: u64,
    run: Arc<str>,
    task: Task,
    answer: Answer,
}

struct Shared {
    settings: ScriptSettings,
    /// Script workflows between their steps.
    #[cfg(feature = "javascript")]
    sessions: Arc<Sessions>,
    state: Mutex<State>,
    /// Notified for a new job or the end of the pool.
    work: Condvar,
    /// Notified when a thread has ended.
    left: Condvar,
    /// Notified for a deadline earlier than the one for which the watchdog waits, or the end of the pool.
    alarm: Condvar,
}

#[derive(Default)]
struct State {
    queue: FairQueue<Job>,
    threads: BTreeMap<u64, Thread>,
    next: u64,
    idle: usize,
    stuck: usize,
    given_up: u64,
    refused: u64,
    is_closed: bool,
    has_warden: bool,
    /// Time of the watchdog's next check; `None`: nothing to check.
    looks_at: Option<Instant>,
}

struct Thread {
    handle: Option<JoinHandle<()>>,
    cancel_handle: Arc<CancelHandle>,
    phase: Phase,
}

enum Phase {
    Idle,
    /// The job was answered, and the thread prepares for the next one.
    Preparing,
    Running(Running),
    /// The job was answered by the watchdog.
    Late {
        run: Arc<str>,
        since: Instant,
    },
    /// The thread was replaced.
    Stuck,
}

struct Running {
    id: u64,
    run: Arc<str>,
    deadline: Instant,
    answer: Answer,
    /// The answer to the job at its deadline.
    fault: ScriptFault,
}

impl ScriptPool {
    pub(super) fn new(settings: ScriptSettings) -> Self {
        let settings = ScriptSettings {
            threads: settings.threads.max(1),
            ..settings
        };
        let shared = Arc::new(Shared {
            #[cfg(feature = "javascript")]
            sessions: Arc::new(Sessions::new(&settings)),
            settings,
            state: Mutex::default(),
            work: Condvar::new(),
            left: Condvar::new(),
            alarm: Condvar::new(),
        });
        #[cfg(feature = "javascript")]
        {
            let pool = Arc::downgrade(&shared);
            shared.sessions.set_wake(move || {
                if let Some(pool) = pool.upgrade() {
                    pool.queue(&Arc::from(""), Task::DropReleased, Box::new(|_| ()));
                }
            });
        }
        Self { shared }
    }

    /// Queues a job without blocking; a refused job is answered at once.
    pub(super) fn submit(&self, run: &Arc<str>, task: Task, answer: Answer) -> JobGuard {
        JobGuard {
            id: self.shared.queue(run, task, answer),
            pool: Arc::downgrade(&self.shared),
            run: Arc::clone(run),
        }
    }

    /// Runs a job and waits for it.
    pub(super) fn wait_for(&self, run: &Arc<str>, task: Task) -> TaskResult {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let _guard = self.submit(run, task, Box::new(move |done| tell.send(done).unwrap_or(())));
        told.recv()
            .unwrap_or_else(|_| TaskResult::failed(ScriptFault::cancelled().into()))
    }

    pub(super) fn stats(&self) -> ScriptStats {
        let state = self.shared.lock();
        let running = |thread: &&Thread| matches!(thread.phase, Phase::Running(_));
        let own = ScriptStats {
            waiting: state.queue.len(),
            running: state.threads.values().filter(running).count(),
            stuck: state.stuck,
            given_up: state.given_up,
            refused: state.refused,
            ..ScriptStats::default()
        };
        drop(state);
        #[cfg(feature = "javascript")]
        let own = {
            let (counts, live_scripts) = self.shared.sessions.counts();
            ScriptStats {
                live_scripts,
                evaluated_steps: counts.evaluated,
                resumed_steps: counts.resumed,
                delivered_results: counts.results,
                ..own
            }
        };
        own
    }
}

impl Drop for ScriptPool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        let waiting: Vec<_> = state.queue.drain().collect();
        for thread in state.threads.values() {
            thread.cancel_handle.stop();
        }
        self.shared.work.notify_all();
        self.shared.alarm.notify_all();
        drop(state);
        for job in waiting {
            job.refuse(ScriptFault::cancelled().into());
        }
        // Stuck threads own the shared state for ever.
        #[cfg(feature = "javascript")]
        self.shared.sessions.close();
        // Stuck threads are not joined. The last owner of the pool may itself be one of its threads, which must not join itself.
        let own = std::thread::current().id();
        let deadline = now() + FAREWELL;
        let mut state = self.shared.lock();
        loop {
            let is_awaited = |thread: &&Thread| {
                let is_own = thread.handle.as_ref().is_some_and(|handle| handle.thread().id() == own);
                !is_own && !matches!(thread.phase, Phase::Stuck)
            };
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() || !state.threads.values().any(|thread| is_awaited(&thread)) {
                return;
            }
            state = self
                .shared
                .left
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

impl Drop for JobGuard {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.cancel(&self.run, self.id);
        }
    }
}

/// Calls a callback and catches its panic, which would end a thread that serves other jobs.
fn deliver(answer: Answer, done: TaskResult) {
    if catch_unwind(AssertUnwindSafe(|| answer(done))).is_err() {
        tracing::error!("the callback of a script panicked");
    }
}

impl Thread {
    /// Returns whether a caller waits for the thread to return.
    fn is_busy(&self) -> bool {
        matches!(self.phase, Phase::Running(_) | Phase::Late { .. })
    }
}

impl Job {
    fn refuse(self, error: RunError) {
        deliver(self.answer, TaskResult::failed(error));
    }
}

impl Shared {
    /// Locks the state. A poisoned lock is usable: the state is consistent after every statement.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job without blocking, and returns its number; a refused job is answered at once.
    fn queue(self: &Arc<Self>, run: &Arc<str>, task: Task, answer: Answer) -> u64 {
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        let refusal = self.refusal(&state).or_else(|| self.make_room(&mut state));
        if let Some(refusal) = refusal {
            state.refused += 1;
            drop(state);
            answer(TaskResult::failed(refusal));
            return id;
        }
        let own = Arc::clone(run);
        let job = Job {
            id,
            run: own,
            task,
            answer,
        };
        state.queue.push(run, id, job);
        drop(state);
        self.work.notify_one();
        id
    }

    fn interpreter(&self, cancel_handle: &Arc<CancelHandle>) -> Interpreter {
        #[cfg(feature = "javascript")]
        return Interpreter::new(&self.settings, cancel_handle, &self.sessions);
        #[cfg(not(feature = "javascript"))]
        Interpreter::new(&self.settings, cancel_handle)
    }

    /// Returns the reason why no job is accepted now.
    fn refusal(&self, state: &State) -> Option<RunError> {
        if state.is_closed {
            return Some(ScriptFault::cancelled().into());
        }
        if state.stuck > self.settings.max_stuck {
            return Some(too_many_stuck(state.stuck));
        }
        (state.queue.len() >= self.settings.max_waiting)
            .then(|| overloaded(format!("more than {} scripts are queued", self.settings.max_waiting)))
    }

    /// Starts a thread if all are busy and the maximum is not reached.
    fn make_room(self: &Arc<Self>, state: &mut State) -> Option<RunError> {
        let alive = state.threads.len() - state.stuck;
        if state.idle > state.queue.len() || alive >= self.settings.threads {
            return None;
        }
        let started = self.start_thread(state);
        match started {
            Err(error) if alive == 0 => Some(overloaded(format!("cannot start a script thread: {error}"))),
            Ok(()) | Err(_) => None,
        }
    }

    fn start_thread(self: &Arc<Self>, state: &mut State) -> std::io::Result<()> {
        if !state.has_warden {
            let pool = Arc::clone(self);
            std::thread::Builder::new()
                .name("pirn-script-watchdog".to_owned())
                .spawn(move || pool.run_watchdog())?;
            state.has_warden = true;
        }
        state.next += 1;
        let no = state.next;
        let cancel_handle = Arc::<CancelHandle>::default();
        let (pool, own) = (Arc::clone(self), Arc::clone(&cancel_handle));
        let handle = std::thread::Builder::new()
            .name("pirn-script".to_owned())
            .spawn(move || pool.serve(no, &own))?;
        let thread = Thread {
            handle: Some(handle),
            cancel_handle,
            phase: Phase::Idle,
        };
        state.threads.insert(no, thread);
        state.idle += 1;
        Ok(())
    }

    /// Main loop of a thread.
    fn serve(&self, no: u64, cancel_handle: &Arc<CancelHandle>) {
        let mut interpreter = self.interpreter(cancel_handle);
        while let Some(task) = self.next_task(no) {
            let done = catch_unwind(AssertUnwindSafe(|| interpreter.run(task)));
            let done = done.unwrap_or_else(|_| {
                interpreter = self.interpreter(cancel_handle);
                TaskResult::failed(RunError::new(RunErrorCode::ScriptError, "the script's thread panicked"))
            });
            let (answer, goes_on) = self.finished(no, interpreter.must_prepare());
            // From here on, the worker is not killed for this job.
            if cancel_handle.was_killed() {
                interpreter = self.interpreter(cancel_handle);
            }
            if let Some(answer) = answer {
                deliver(answer, done);
            }
            if !goes_on {
                break;
            }
            // After the answer, so that no caller waits for it.
            #[cfg(feature = "javascript")]
            interpreter.prepare();
        }
        drop(interpreter);
        let mut state = self.lock();
        if let Some(thread) = state.threads.remove(&no) {
            match thread.phase {
                Phase::Idle => state.idle -= 1,
                Phase::Stuck => state.stuck -= 1,
                Phase::Preparing | Phase::Running(_) | Phase::Late { .. } => {}
            }
        }
        drop(state);
        self.left.notify_all();
    }

    /// Waits for a job, or returns `None` when the pool ends.
    fn next_task(&self, no: u64) -> Option<Task> {
        let mut state = self.lock();
        Self::prepared(&mut state, no);
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(job) = self.pop(&mut state) {
                return Some(self.begin(&mut state, no, job));
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records that a thread has prepared. Until then it does not count as idle, so that a new job starts another thread instead of
    /// waiting: with two threads, one makes the next realm while the other executes a script.
    fn prepared(state: &mut State, no: u64) {
        if let Some(thread) = state.threads.get_mut(&no)
            && matches!(thread.phase, Phase::Preparing)
        {
            thread.phase = Phase::Idle;
            state.idle += 1;
        }
    }

    fn pop(&self, state: &mut State) -> Option<Job> {
        let State { queue, threads, .. } = state;
        let share = self.settings.threads.saturating_sub(1).max(1);
        let next = queue.pop(|run| {
            let is_of_run = |thread: &&Thread| match &thread.phase {
                Phase::Idle | Phase::Preparing | Phase::Stuck => false,
                Phase::Running(Running { run: other, .. }) | Phase::Late { run: other, .. } => &**other == run,
            };
            threads.values().filter(is_of_run).count() < share
        });
        next.map(|(_, job)| job)
    }

    fn begin(&self, state: &mut State, no: u64, job: Job) -> Task {
        let Job { id, run, task, answer } = job;
        let limit = task.limit(&self.settings);
        let deadline = now() + limit + GRACE;
        let fault = ScriptFault::limit(format!("it did not stop within its limit of {} ms", limit.as_millis()));
        state.idle -= 1;
        if let Some(thread) = state.threads.get_mut(&no) {
            thread.cancel_handle.begin(&task);
            thread.phase = Phase::Running(Running {
                id,
                run,
                deadline,
                answer,
                fault,
            });
        }
        self.look_at(state, deadline);
        task
    }

    /// Records that a thread has returned. Returns the caller to answer, and whether the thread continues.
    fn finished(&self, no: u64, must_prepare: bool) -> (Option<Answer>, bool) {
        let mut state = self.lock();
        let is_closed = state.is_closed;
        let Some(thread) = state.threads.get_mut(&no) else {
            return (None, false);
        };
        if matches!(thread.phase, Phase::Stuck) {
            return (None, false);
        }
        let answer = match std::mem::replace(&mut thread.phase, Phase::Preparing) {
            Phase::Running(running) => Some(running.answer),
            Phase::Idle | Phase::Preparing | Phase::Late { .. } | Phase::Stuck => None,
        };
        // A job that waited because its run used too many threads may be eligible now.
        self.work.notify_one();
        if !must_prepare {
            Self::prepared(&mut state, no);
        }
        (answer, !is_closed)
    }

    fn cancel(&self, run: &str, id: u64) {
        let mut state = self.lock();
        if let Some(job) = state.queue.remove(run, id) {
            drop(state);
            job.refuse(ScriptFault::cancelled().into());
            return;
        }
        let running = state.threads.values_mut().find_map(|thread| match &mut thread.phase {
            Phase::Running(running) if running.id == id => Some((&thread.cancel_handle, running)),
            _ => None,
        });
        let Some((cancel_handle, running)) = running else {
            return;
        };
        cancel_handle.stop();
        running.fault = ScriptFault::cancelled();
        running.deadline = running.deadline.min(now() + GRACE);
        let deadline = running.deadline;
        self.look_at(&mut state, deadline);
    }
}

fn too_many_stuck(stuck: usize) -> RunError {
    overloaded(format!(
        "{stuck} scripts did not stop at their limits, and hold their threads"
    ))
}

fn overloaded(message: impl Into<String>) -> RunError {
    RunError::new(RunErrorCode::Overloaded, message)
}

impl TaskResult {
    fn failed(error: RunError) -> Self {
        Self {
            outcome: Outcome::Failed(error),
            logs: Logs::default(),
        }
    }
}
