//! The schedules of an engine. Each is a task on the first arbiter, which drives its [`ScheduleMachine`] with that arbiter's
//! clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, StreamExt};
use pirn_core::run::{Control, scheduled};
use pirn_core::status::ThreadStatus;
use pirn_definition::Millis;
use pirn_definition::definition::{ScheduleDefinition, TriggerDefinition, schedule_name};
use pirn_definition::error::RunErrorCode;
use pirn_definition::times::Times;
use pirn_events::schedule::{Effect, Input, ScheduleMachine, ScheduleState, Skip};
use pirn_events::trigger::{Owner, TriggerExists, TriggerState};

use super::EngineShared;
use crate::host::{Host, TimerHandle};
use crate::ports::{EarlierRun, ScheduleMemory};
use crate::protocol::engine::{DetachedRun, EngineHandle, OnEnd};
use crate::protocol::matcher::TriggerRefused;
use crate::protocol::supervisor::{RunEnd, SupervisorMsg};

/// Maximum time between two looks at the clock, in milliseconds. A long timer would miss changes of the wall clock and suspends
/// of the computer.
const LOOKS_EVERY: Millis = 60_000;

/// The active schedules.
#[derive(Default)]
pub(super) struct Schedules(Mutex<BTreeMap<(Owner, String), ScheduleHandle>>);

/// Handle of a schedule. Dropping it stops the schedule.
struct ScheduleHandle {
    definition: Arc<TriggerDefinition>,
    enabled: bool,
    fired: Arc<AtomicU64>,
    mail: UnboundedSender<ToSchedule>,
}

impl Drop for ScheduleHandle {
    fn drop(&mut self) {
        // The task holds a sender of its own channel, so the channel does not close with this sender.
        self.tell(ToSchedule::Stop);
    }
}

impl ScheduleHandle {
    fn tell(&self, message: ToSchedule) {
        // The send fails if the schedule's thread has ended.
        drop(self.mail.unbounded_send(message));
    }
}

/// A message to a schedule.
enum ToSchedule {
    Begin(Option<ScheduleState>),
    Input(Input),
    /// Starts the run of this time, unless an earlier process started it.
    Start {
        due: Millis,
        begun: EarlierRun,
    },
    /// The state that the processes of the store persisted last, and the input that waited for it.
    Seen(Option<ScheduleState>, Input),
    /// States of the runs that earlier processes started, and the input that waited for them.
    Looked(Vec<(Millis, EarlierRun)>, Input),
    /// A run that this process does not own was to be cancelled; `is_over` is false if it has not ended yet.
    Cancelled {
        due: Millis,
        is_over: bool,
    },
    /// Stops the schedule.
    Stop,
}

impl Schedules {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Owner, String), ScheduleHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops all schedules.
    pub(super) fn stop(&self) {
        self.lock().clear();
    }
}

impl EngineShared {
    /// Replaces the schedules of a workflow by those of `triggers`. An unchanged schedule continues.
    pub(super) fn schedules_of(self: &Arc<Self>, owner: &Owner, triggers: &[TriggerDefinition]) {
        let wanted = || triggers.iter().filter(|trigger| trigger.schedule.is_some());
        // Locked until all have started, so that two registrations of one workflow cannot mix.
        let mut known = self.schedules.lock();
        // The drop of a `ScheduleHandle` stops its schedule before the new version starts.
        known.retain(|(of, _), known| of != owner || wanted().any(|trigger| *trigger == *known.definition));
        for trigger in wanted() {
            if !known.contains_key(&(owner.clone(), trigger.id.clone())) {
                self.begin_schedule(&mut known, owner, trigger);
            }
        }
    }

    /// Adds a schedule that belongs to no workflow.
    ///
    /// # Errors
    /// Fails if the id is in use, or if the schedule is invalid.
    pub fn add_schedule(self: &Arc<Self>, trigger: &TriggerDefinition) -> Result<(), TriggerRefused> {
        let schedule = trigger.schedule.as_ref().ok_or(TriggerRefused::NoSchedule)?;
        // `begin_schedule` skips an invalid definition without an error.
        Times::read(&schedule.cron, &schedule.timezone).map_err(TriggerRefused::Schedule)?;
        let mut known = self.schedules.lock();
        let id = trigger.id.clone();
        // A schedule of a workflow has an equal name if the id is WORKFLOW.TRIGGER, and would share its stored state and its runs.
        if known.keys().any(|(owner, known)| stored_name(owner, known) == id) {
            return Err(TriggerExists { id }.into());
        }
        self.begin_schedule(&mut known, &Owner::Engine, trigger);
        Ok(())
    }

    /// Adds a schedule, replacing one with this id. A trigger without times only removes the old schedule.
    pub(super) fn replace_schedule(self: &Arc<Self>, trigger: &TriggerDefinition) {
        let mut known = self.schedules.lock();
        let key = (Owner::Engine, trigger.id.clone());
        // A schedule with an equal definition keeps its timer and its count.
        if known.get(&key).is_some_and(|known| *known.definition == *trigger) {
            return;
        }
        known.remove(&key);
        self.begin_schedule(&mut known, &Owner::Engine, trigger);
    }

    /// Enables or disables a schedule. Returns whether its state changed; none if there is no such schedule.
    pub fn enable_schedule(&self, owner: &Owner, id: &str, enabled: bool) -> Option<bool> {
        let mut known = self.schedules.lock();
        let known = known.get_mut(&(owner.clone(), id.to_owned()))?;
        let changed = std::mem::replace(&mut known.enabled, enabled) != enabled;
        if changed {
            known.tell(ToSchedule::Input(if enabled { Input::Enable } else { Input::Disable }));
        }
        Some(changed)
    }

    /// Returns the states of an owner's schedules, ordered by id.
    pub fn schedules(&self, owner: &Owner) -> Vec<TriggerState> {
        let known = self.schedules.lock();
        let own = known.iter().filter(|((of, _), _)| of == owner);
        own.map(|((_, id), known)| TriggerState {
            id: id.clone(),
            enabled: known.enabled,
            fired: known.fired.load(Ordering::Relaxed),
        })
        .collect()
    }

    fn begin_schedule(
        self: &Arc<Self>,
        known: &mut BTreeMap<(Owner, String), ScheduleHandle>,
        owner: &Owner,
        trigger: &TriggerDefinition,
    ) {
        let Some(memory) = self.ports.schedules.clone() else {
            return;
        };
        // A definition that was not validated may have no times.
        let Some((schedule, times)) = times_of(trigger) else {
            return;
        };
        let (mail, received) = unbounded();
        let trigger = Arc::new(trigger.clone());
        let begun = ScheduleHandle {
            definition: Arc::clone(&trigger),
            enabled: trigger.enabled,
            fired: Arc::default(),
            mail: mail.clone(),
        };
        let fired = Arc::clone(&begun.fired);
        let name = stored_name(owner, &trigger.id);
        known.insert((owner.clone(), trigger.id.clone()), begun);
        let engine = self.handle();
        let job = Box::new(move |host: &Host, _| {
            let shared_seed = memory.seed(&name);
            // Drawn in any case, so that the later random numbers of the engine do not depend on the kind of store.
            let own_seed = host.random();
            let seed = shared_seed.unwrap_or(own_seed);
            let jitter = (schedule.jitter_ms.unwrap_or_default(), seed);
            let policies = (schedule.overlap, schedule.catch_up);
            let machine = ScheduleMachine::new(times.clone(), policies, jitter, trigger.max_triggers);
            let carried = ScheduleTask {
                machine: if trigger.enabled { machine } else { machine.disabled() },
                times,
                // Otherwise the timers of schedules would advance virtual time for ever.
                host: host.in_background(),
                engine,
                memory,
                trigger,
                name,
                fired,
                mail,
                timer: None,
                before: BTreeSet::new(),
                is_shared: shared_seed.is_some(),
                skipped: BTreeSet::new(),
                uncancelled: BTreeSet::new(),
            };
            host.spawn(None, carried.live(received).boxed_local());
        });
        if let Err(error) = self.spawner.start_on(0, job) {
            tracing::warn!(%error, "a schedule outlived its engine");
        }
    }
}

/// Returns the name of a schedule in the store and in its run ids.
fn stored_name(owner: &Owner, id: &str) -> String {
    let workflow = match owner {
        Owner::Workflow(workflow) => Some(&**workflow),
        Owner::Engine => None,
    };
    schedule_name(workflow, id)
}

/// Returns the schedule of a SCHEDULE trigger, with its times.
fn times_of(trigger: &TriggerDefinition) -> Option<(ScheduleDefinition, Times)> {
    let schedule = trigger.schedule.clone()?;
    let times = Times::read(&schedule.cron, &schedule.timezone).ok()?;
    Some((schedule, times))
}

/// The task of one schedule.
struct ScheduleTask {
    machine: ScheduleMachine,
    times: Times,
    host: Host,
    engine: Arc<dyn EngineHandle>,
    memory: Arc<dyn ScheduleMemory>,
    trigger: Arc<TriggerDefinition>,
    /// Name of the schedule in the store and in its run ids.
    name: String,
    fired: Arc<AtomicU64>,
    mail: UnboundedSender<ToSchedule>,
    timer: Option<TimerHandle>,
    /// Times of unfinished runs that earlier processes started, and of cancelled runs.
    before: BTreeSet<Millis>,
    /// True if other processes have the schedule too.
    is_shared: bool,
    /// Times that were skipped because of an overlap or a full queue. Another process may have seen the end of the earlier run before, and
    /// started the run of the time.
    skipped: BTreeSet<Millis>,
    /// Times of runs to cancel that no process or another one owns.
    uncancelled: BTreeSet<Millis>,
}

impl ScheduleTask {
    async fn live(mut self, mut received: UnboundedReceiver<ToSchedule>) {
        let kept = self.memory.kept(&self.name);
        // Not awaited here: a slow store would delay a `Stop`.
        self.hear(kept, ToSchedule::Begin);
        while let Some(message) = received.next().await {
            if matches!(message, ToSchedule::Input(Input::Elapsed { .. })) {
                // A process may have resumed these runs since.
                for due in std::mem::take(&mut self.uncancelled) {
                    self.cancel(due);
                }
            }
            match message {
                ToSchedule::Begin(kept) => {
                    let started = kept.as_ref().map_or(0, |kept| kept.started);
                    self.fired.store(started, Ordering::Relaxed);
                    self.step(Input::Begin(kept));
                }
                // Another process may have handled later times than this one.
                ToSchedule::Input(input @ (Input::Elapsed { .. } | Input::Enable)) if self.is_shared => {
                    let seen = self.memory.kept(&self.name);
                    self.hear(seen, |seen| ToSchedule::Seen(seen, input));
                }
                ToSchedule::Seen(seen, input) => {
                    if let Some(seen) = seen {
                        self.step(Input::Seen(seen));
                    }
                    self.look(input);
                }
                // No callback reports the runs of another process, so the store is queried before the next decision.
                ToSchedule::Input(input @ Input::Elapsed { .. }) if !self.before.is_empty() => self.look(input),
                ToSchedule::Input(input @ Input::Ended { due }) => {
                    self.before.remove(&due);
                    self.uncancelled.remove(&due);
                    self.step(input);
                }
                ToSchedule::Input(input) => self.step(input),
                ToSchedule::Start { due, begun } => match begun {
                    EarlierRun::No => self.start(due),
                    // The run is resumed together with the other runs of the store.
                    EarlierRun::Here | EarlierRun::Somewhere => drop(self.before.insert(due)),
                    EarlierRun::Ended => self.step(Input::Ended { due }),
                },
                ToSchedule::Looked(runs, input) => {
                    for (due, begun) in runs {
                        self.looked(due, begun);
                    }
                    self.step(input);
                }
                ToSchedule::Cancelled { due, is_over: false } => drop(self.uncancelled.insert(due)),
                ToSchedule::Cancelled { due, is_over: true } => self.step(Input::Ended { due }),
                ToSchedule::Stop => return,
            }
        }
    }

    fn look(&self, input: Input) {
        let runs = self.before.union(&self.skipped).map(|due| {
            let due = *due;
            self.memory.begun(&self.run_id(due)).map(move |begun| (due, begun))
        });
        self.hear(join_all(runs).boxed(), |runs| ToSchedule::Looked(runs, input));
    }

    fn looked(&mut self, due: Millis, begun: EarlierRun) {
        if self.skipped.remove(&due) {
            if matches!(begun, EarlierRun::No) {
                return;
            }
            self.before.insert(due);
            self.step(Input::Found { due });
        }
        let is_over = match begun {
            EarlierRun::Somewhere => false,
            // A run that has not been resumed yet does not delay the schedule.
            EarlierRun::Here => !self.engine.owns_run(&self.run_id(due)),
            EarlierRun::No | EarlierRun::Ended => true,
        };
        if is_over {
            self.before.remove(&due);
            self.step(Input::Ended { due });
        }
    }

    fn step(&mut self, input: Input) {
        let now = self.host.wall_clock();
        let mut effects = Vec::new();
        self.machine.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::SetTimer { generation, at } => {
                    let mail = self.mail.clone();
                    // A time in the past saturates to a timer of 0, which fires in the next turn.
                    let after = at.saturating_sub(now).min(LOOKS_EVERY);
                    // The drop of the previous handle cancels the timer of an earlier generation.
                    self.timer = Some(self.host.after(None, after, move || {
                        // The schedule may have been stopped.
                        drop(mail.unbounded_send(ToSchedule::Input(Input::Elapsed { generation })));
                    }));
                }
                Effect::Start { due } => {
                    // Asked first, because an earlier process may have started the run of this time.
                    let begun = self.memory.begun(&self.run_id(due));
                    self.hear(begun, move |begun| ToSchedule::Start { due, begun });
                }
                Effect::Cancel { due } => self.cancel(due),
                Effect::Skipped { due, why } => {
                    if matches!(why, Skip::Overlaps | Skip::QueueFull) && self.is_shared {
                        self.skipped.insert(due);
                    }
                    let (schedule, due) = (&self.name, self.times.shown(due));
                    tracing::info!(schedule, due, ?why, "a scheduled time was skipped");
                }
                Effect::Keep(kept) => self.memory.keep(&self.name, &kept),
            }
        }
    }

    fn cancel(&mut self, due: Millis) {
        let (run_id, reason) = (self.run_id(due), format!("schedule {} starts the next run", self.name));
        let cancel = SupervisorMsg::Control(Control::Cancel(reason.clone()));
        if self.engine.tell_run(&run_id, cancel).is_ok() {
            // If an earlier process started the run, no callback reports its end.
            self.before.insert(due);
        } else {
            // The run may have just ended, or another process owns it.
            let cancelled = self.memory.cancel(&run_id, &reason);
            self.hear(cancelled, move |is_over| ToSchedule::Cancelled { due, is_over });
        }
    }

    /// Returns an id derived from the time, equal in every process: a time is never started twice.
    fn run_id(&self, due: Millis) -> Arc<str> {
        format!("{}@{}", self.name, self.times.shown(due)).into()
    }

    fn start(&mut self, due: Millis) {
        let Some(start) = scheduled(&self.trigger, due, &self.times.shown(due)) else {
            return self.step(Input::Ended { due });
        };
        let (mail, name) = (self.mail.clone(), self.name.clone());
        // The run may be on another arbiter, so its end arrives through the channel.
        let on_end: OnEnd = Box::new(move |end| {
            let message = match end {
                // Another process may execute the run: it has started the run of this time first, or has taken it over.
                RunEnd::Left(error) => {
                    if error.code == RunErrorCode::StoreError {
                        tracing::warn!(%error, schedule = name, "a run started by a schedule stopped here");
                    }
                    ToSchedule::Start {
                        due,
                        begun: EarlierRun::Somewhere,
                    }
                }
                RunEnd::Ended(report) => {
                    // A cancelled run did not fail: it was replaced.
                    if let Some(error) = &report.error
                        && report.status != ThreadStatus::Cancelled
                    {
                        tracing::warn!(%error, schedule = name, "a run started by a schedule failed");
                    }
                    ToSchedule::Input(Input::Ended { due })
                }
            };
            // The schedule may have been stopped.
            drop(mail.unbounded_send(message));
        });
        let run = DetachedRun {
            // Otherwise the timers of such runs would advance virtual time for ever.
            is_background: true,
            ..DetachedRun::of(self.run_id(due), start, None, on_end)
        };
        match Arc::clone(&self.engine).start_detached(run) {
            Ok(()) => {
                self.fired.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::warn!(%error, schedule = self.name, "a schedule failed to start its run");
                // A refused run counts as ended, so that the schedule continues with its next time.
                self.step(Input::Ended { due });
            }
        }
    }

    /// Sends the result of a future to this task; at once if it is ready.
    fn hear<T: 'static>(
        &self,
        mut answer: BoxFuture<'static, T>,
        message: impl FnOnce(T) -> ToSchedule + Send + 'static,
    ) {
        let mail = self.mail.clone();
        // The schedule may have been stopped.
        let tell = move |known| drop(mail.unbounded_send(message(known)));
        // A ready answer needs no thread.
        match (&mut answer).now_or_never() {
            Some(known) => tell(known),
            None => self.host.access_store(answer.map(tell).boxed()).detach(),
        }
    }
}
