//! Single-threaded driver of a run in a store: an input is durable before its effects are performed and its events delivered.

use std::sync::Arc;

use futures::executor::block_on;
use pirn_conversation::conversation::Conversation;
use pirn_core::run::{
    Effect, JournaledInput, Message, OpenEffects, Outbox, PendingWaits, ReplayStep, RunEnvironment, RunMachine,
    RunSeed, RunStart, RunStartRecord, SummaryRules, Timer, ToSupervisor, ToThread, WaitReason,
};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{self, Input, Outcome};
use pirn_definition::definition::Pinned;
use pirn_store::{Commit, Content, NewRun, Record, RunStatus, Store, StoreError};
use serde_json::json;

use super::external::{Receiver, mix};
use super::fixtures::{LISTENING, Workflows};

pub(crate) const RUN: &str = "run-1";

/// Workflow, and the seed of the order in which its effects are performed.
pub(crate) struct Scene {
    pub(crate) bundle: String,
    pub(crate) workflows: Workflows,
    pub(crate) seed: u64,
}

struct Driver<'a> {
    scene: &'a Scene,
    store: &'a dyn Store,
    receiver: &'a mut Receiver,
    world: Workflows,
    machine: RunMachine,
    open: OpenEffects,
    waits: PendingWaits,
    outbox: Outbox,
    /// Number of durable steps.
    steps: u64,
    now: u64,
    /// Number of events raised so far.
    told_events: usize,
}

/// Starts or resumes the run, and drives it to its end. Stops at the first error of the store.
pub(crate) fn play(scene: &Scene, store: &dyn Store, receiver: &mut Receiver) -> Result<(), StoreError> {
    let mut driver = match block_on(store.run(RUN))? {
        None => Driver::begin(scene, store, receiver)?,
        Some(_) => Driver::recover(scene, store, receiver)?,
    };
    driver.carry();
    while !driver.open.is_settled {
        let (now, message, effect) = driver.next();
        driver.tell(now, message, effect)?;
    }
    let last = block_on(store.run(RUN))?.map(|run| run.status);
    if last.is_some_and(|status| !status.is_final()) {
        let status = match driver.open.report.as_ref().map(|report| report.status) {
            Some(ThreadStatus::Completed) => RunStatus::Completed,
            _ => RunStatus::Failed,
        };
        block_on(store.commit(Commit::after(RUN, driver.steps).status(status)))?;
    }
    Ok(())
}

/// Returns what the run waits for, by its open effects.
fn waited_for(open: &OpenEffects) -> Option<WaitReason> {
    if open.awaits_session || !open.begins.is_empty() || !open.runs.is_empty() || !open.awaits_triggers.is_empty() {
        return None;
    }
    let wanted: Vec<&thread::Effect> = open.threads.values().map(|(_, effect)| effect).collect();
    let has = |is: fn(&thread::Effect) -> bool| wanted.iter().any(|effect| is(effect));
    let asks = has(|effect| matches!(effect, thread::Effect::Ask { .. }));
    let awaits = has(|effect| matches!(effect, thread::Effect::WaitEvent { .. }));
    let is_wait = |effect: &&thread::Effect| {
        matches!(
            effect,
            thread::Effect::Ask { .. } | thread::Effect::WaitEvent { .. } | thread::Effect::Timer { .. }
        )
    };
    if wanted.is_empty() || !wanted.iter().all(is_wait) {
        return None;
    }
    Some(if asks {
        WaitReason::Interaction
    } else if awaits {
        WaitReason::Event
    } else {
        WaitReason::Timer
    })
}

impl<'a> Driver<'a> {
    fn begin(scene: &'a Scene, store: &'a dyn Store, receiver: &'a mut Receiver) -> Result<Self, StoreError> {
        let mut world = scene.workflows.clone();
        let begun = RunStart {
            uncarried: false,
            at: 1_000,
            listening: LISTENING,
            settings: Vec::new(),
            seed: RunSeed {
                run_id: RUN.into(),
                graph: world.graph("main").expect("a workflow main"),
                input: Arc::new(json!({"ticket": 7, "weight": 0.1})),
                conversation: Conversation::new(),
                pinned: Pinned::default(),
                metadata: None,
                is_unlimited: false,
                trigger_depth: 0,
                seed: 7,
                picks_starts: false,
                merges_assignments: true,
                run_bytes: pirn_core::run::DEFAULT_RUN_BYTES,
                deadline_ms: None,
                session: None,
                client_tools: None,
                summaries: SummaryRules::new(None),
                gaps: Vec::new(),
            },
        };
        let definition = Content::new(scene.bundle.as_str());
        let start = Content::new(serde_json::to_string(&RunStartRecord::of(&begun)).expect("is written"));
        let mut new = NewRun::new("main", definition.hash(), begun.at);
        new.contents = vec![start.hash()];
        let mut effects = Vec::new();
        let machine = RunMachine::new(begun.at, begun.seed, &mut world, &mut effects);
        let mut driver = Self {
            scene,
            store,
            receiver,
            world,
            machine,
            open: OpenEffects::default(),
            waits: PendingWaits::default(),
            outbox: Outbox::default(),
            steps: 0,
            now: begun.at,
            told_events: 0,
        };
        driver.saw(0, effects);
        driver.serve(0);
        block_on(store.commit(Commit::start(RUN, new).content(definition).content(start)))?;
        driver.outbox.durable(0);
        Ok(driver)
    }

    fn recover(scene: &'a Scene, store: &'a dyn Store, receiver: &'a mut Receiver) -> Result<Self, StoreError> {
        let run = block_on(store.run(RUN))?.expect("is there");
        let texts = block_on(store.contents(vec![run.definition, run.contents[0]]))?;
        assert_eq!(*texts[0], *scene.bundle);
        let begun: RunStartRecord = serde_json::from_str(&texts[1]).expect("is read");
        let journal = block_on(store.journal(RUN, 0, usize::MAX))?;
        let told: Vec<JournaledInput> = journal
            .iter()
            .map(|record| serde_json::from_str(&record.body).expect("is read"))
            .collect();
        let mut world = scene.workflows.clone();
        let graph = world.graph(&begun.workflow_id).expect("its workflow");
        let begun = begun.begun(graph);
        let now = told.last().map_or(begun.at, |told| told.at);
        let (mut open, mut events) = (OpenEffects::default(), Vec::new());
        let machine = RunMachine::replay(begun, told, &mut world, |_, _| {}, &mut |_, replayed| {
            open.saw(&replayed);
            if let ReplayStep::Effects(_, effects) = replayed {
                events.extend(
                    effects
                        .iter()
                        .filter(|effect| matches!(effect, Effect::Emit { .. } | Effect::EmitAll { .. }))
                        .cloned(),
                );
            }
        })
        .expect("fits");
        // A reconnected subscriber receives the events after its last one: delivered events must be durable.
        assert!(
            receiver.events.len() <= events.len(),
            "an event was told that is not durable"
        );
        let mut driver = Self {
            scene,
            store,
            receiver,
            world,
            machine,
            waits: PendingWaits::of(&open),
            open,
            outbox: Outbox::after(run.steps),
            steps: run.steps,
            now,
            told_events: 0,
        };
        let now = driver.now;
        driver.outbox.put(run.steps, now, events);
        let again = driver.open.effects(now);
        driver.outbox.put(run.steps, now, again);
        Ok(driver)
    }

    /// Returns the next external input.
    fn next(&mut self) -> (u64, Message, Option<String>) {
        assert!(!self.outbox.waits(), "nothing is done before it is durable");
        let now = self.now + 1;
        let answer =
            |thread, effect, outcome| Message::Thread(thread, ToThread::Input(Input::Answer { effect, outcome }));
        if self.open.quiesces {
            return (now, Message::Supervisor(ToSupervisor::TriggersQuiet), None);
        }
        if let Some((thread, effect)) = self.open.awaits_triggers.first() {
            return (now, answer(*thread, *effect, Outcome::HeldByFiring(Vec::new())), None);
        }
        let is_work = |effect: &thread::Effect| {
            !matches!(effect, thread::Effect::Timer { .. } | thread::Effect::WaitEvent { .. })
        };
        let work: Vec<_> = self
            .open
            .threads
            .iter()
            .filter(|(_, (_, effect))| is_work(effect))
            .collect();
        if !work.is_empty() {
            let chosen = mix(self.scene.seed ^ mix(self.steps)) % work.len() as u64;
            let ((thread, id), (_, effect)) = work[chosen as usize];
            let key = format!("{RUN}.{thread}.{id}");
            let outcome = self.receiver.perform(&key, self.scene.seed, effect);
            return (now, answer(*thread, *id, outcome), Some(key));
        }
        let own = self
            .open
            .threads
            .iter()
            .filter_map(|((thread, id), (since, effect))| match effect {
                thread::Effect::Timer { after_ms, .. } => {
                    Some((since + after_ms, answer(*thread, *id, Outcome::Elapsed)))
                }
                _ => None,
            });
        let timers = self.open.timers.iter().map(|(timer, due)| (*due, elapsed(*timer)));
        let (due, message) = own
            .chain(timers)
            .min_by_key(|(due, _)| *due)
            .expect("something comes next");
        (due.max(now), message, None)
    }

    fn tell(&mut self, now: u64, message: Message, effect: Option<String>) -> Result<(), StoreError> {
        self.now = now;
        let input = JournaledInput {
            at: now,
            after: self.machine.steps(),
            listening: LISTENING,
            uncarried: false,
            before: self.machine.take_calls(),
            message,
            settings: Vec::new(),
        };
        self.open.saw(&ReplayStep::Input(&input));
        self.waits.received(&input.message);
        let mut record = Record::new(now, serde_json::to_string(&input).expect("is written"));
        record.effect = effect;
        self.machine.receive(input.message);
        self.serve(self.steps + 1);
        self.steps = block_on(self.store.commit(Commit::after(RUN, self.steps).record(record)))?;
        self.outbox.durable(self.steps);
        self.carry();
        Ok(())
    }

    fn serve(&mut self, step: u64) {
        while let Some(message) = self.machine.next_message() {
            let mut effects = Vec::new();
            self.machine.step(self.now, message, &mut self.world, &mut effects);
            self.saw(step, effects);
        }
    }

    fn saw(&mut self, step: u64, mut effects: Vec<Effect>) {
        self.open.saw(&ReplayStep::Effects(self.now, &mut effects));
        for effect in &effects {
            self.waits.did(effect);
        }
        let waits_for = self.waits.waits_for();
        assert_eq!(waits_for, waited_for(&self.open), "after {effects:?}");
        assert_eq!(waits_for, PendingWaits::of(&self.open).waits_for());
        self.outbox.put(step, self.now, effects);
    }

    /// Releases durable effects. Events and reports are delivered; the others are performed later as open effects.
    fn carry(&mut self) {
        while let Some((_, effect)) = self.outbox.release(self.now) {
            match effect {
                Effect::Emit { thread_id, event, .. } => self.event(format!("{thread_id} {event:?}")),
                Effect::EmitAll { events, .. } => events.iter().for_each(|event| self.event(format!("{event:?}"))),
                Effect::Report(report) => {
                    let report = serde_json::to_string(&report).expect("is written");
                    if !self.receiver.reports.contains(&report) {
                        self.receiver.reports.push(report);
                    }
                }
                _ => {}
            }
        }
    }

    fn event(&mut self, event: String) {
        match self.receiver.events.get(self.told_events) {
            Some(seen) => assert_eq!(*seen, event, "an event that was told is another after recovery"),
            None => self.receiver.events.push(event),
        }
        self.told_events += 1;
    }
}

fn elapsed(timer: Timer) -> Message {
    Message::Supervisor(ToSupervisor::Elapsed(timer))
}
