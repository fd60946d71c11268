//! Runs whose events another engine reads from the shared store while they execute.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use pirn::store::{Commit, MemoryStore, Pending, Record, Store, forward_to_store};
use pirn::{Engine, Event, EventType, RunFollower};
use pirn_tests::world::{line, node, plays};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::durable::faults::external_effects::{Outside, RUN};
use crate::durable::faults::failing_store::{Crash, Failing};
use crate::durable::small_workflows;
use crate::durable::workflows;
use crate::lifecycle::rebuilding::generated::generated;

const GENERATED: usize = 100;

/// A reader in another process, which looks for further steps after each commit of the run.
struct Reader {
    follower: RunFollower,
    events: Vec<Arc<Event>>,
}

/// A store that shows each commit to the reader before its caller knows of it.
#[derive(Clone)]
struct Shown {
    store: MemoryStore,
    reader: Arc<Mutex<Option<Reader>>>,
}

impl Shown {
    fn new(store: MemoryStore) -> Self {
        Self {
            store,
            reader: Arc::default(),
        }
    }

    /// Follows the run in this engine from now on.
    fn show(&self, engine: &Engine) {
        let follower = engine.follow(RUN, 0);
        let events = Vec::new();
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(Reader { follower, events });
    }

    /// Returns the events that the reader has seen, and whether it knows that there are no others.
    fn seen(&self) -> (Vec<Arc<Event>>, bool) {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = reader.as_ref().expect("the run is followed");
        (reader.events.clone(), reader.follower.is_over())
    }
}

impl Store for Shown {
    forward_to_store!(store: location run runs journal contents chain snapshot timers sessions session set_meta meta remove remove_session);

    fn commit(&self, commit: Commit) -> Pending<u64> {
        let is_of_run = commit.run == RUN;
        let committed = self.store.commit(commit);
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = reader.as_mut().filter(|_| is_of_run) {
            // A store in memory answers at once.
            match reader.follower.read().now_or_never() {
                Some(Ok(events)) => reader.events.extend(events),
                failed => panic!("the run cannot be followed: {failed:?}"),
            }
        }
        committed
    }
}

/// Returns the events without the pieces of replies, which are in no store.
fn stored(events: &[Arc<Event>]) -> Vec<Arc<Event>> {
    let is_stored = |event: &&Arc<Event>| event.raised.event_type != EventType::LlmToken;
    events.iter().filter(is_stored).cloned().collect()
}

#[test]
fn a_reader_in_another_process_sees_each_event_of_a_generated_workflow_once_and_in_order() {
    let mut runner = TestRunner::deterministic();
    let generated = generated();
    for number in 0..GENERATED {
        let workflow = generated.new_tree(&mut runner).expect("is generated").current();
        let bundle = workflow.bundle().to_string();
        let shown = Shown::new(MemoryStore::new());
        let reader = Engine::builder().store(shown.store.clone()).workflows(&*bundle);
        let reader = reader.virtual_time(Some(0)).build().expect("builds");
        shown.show(&reader);
        let builder = Engine::builder().virtual_time(Some(number as u64));
        let builder = builder.store(shown.clone()).workflows(&*bundle);
        let ran = plays(builder, |engine| engine.run("forked").run_id(RUN));
        let (seen, is_over) = shown.seen();
        assert!(is_over, "{number}: the run has ended");
        assert_eq!(seen, stored(&ran.events), "{number}: {bundle}");
    }
}

/// Plays a run that is killed at a commit and resumed. Returns the events of its clients and those of the reader, without times.
fn crashed(bundle: &str, crash: Crash) -> [Vec<Value>; 2] {
    let shown = Shown::new(MemoryStore::new());
    let reader = Outside::default().engine(bundle, shown.store.clone()).build();
    shown.show(&reader.expect("builds"));
    let outside = Outside::default();
    outside.play(bundle, &Failing::new(shown.clone(), crash));
    let again = Failing::new(shown.clone(), Crash::Never);
    assert!(outside.play(bundle, &again), "{crash:?}: ends in the end");
    let (seen, is_over) = shown.seen();
    assert!(is_over, "{crash:?}: the run has ended");
    let untimed = |event: &Arc<Event>| {
        let mut shown = event.to_json();
        shown["timestamp"] = Value::Null;
        shown
    };
    let clients = outside.known().events.values().cloned().collect();
    [clients, seen.iter().map(untimed).collect()]
}

#[test]
fn a_reader_in_another_process_sees_each_event_once_although_the_run_is_killed_at_a_commit_and_taken_over() {
    let small = small_workflows::all().into_iter().chain(small_workflows::later());
    let small = small.map(|(_, bundle)| bundle);
    let mut points = 0;
    for bundle in workflows::all().into_iter().chain(small) {
        let whole = Failing::new(MemoryStore::new(), Crash::Never);
        assert!(Outside::default().play(&bundle, &whole));
        for at in (0..whole.commits()).step_by(3) {
            for crash in [Crash::Before(at), Crash::After(at)] {
                let [clients, seen] = crashed(&bundle, crash);
                assert_eq!(seen, clients, "{crash:?}: {bundle}");
                points += 1;
            }
        }
    }
    assert!(points > 80, "only {points}");
}

/// A store that counts the records that are read from it.
struct Counted {
    store: MemoryStore,
    records: Arc<AtomicUsize>,
}

impl Store for Counted {
    forward_to_store!(store: location commit run runs contents chain snapshot timers sessions session set_meta meta remove remove_session);

    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>> {
        let (journal, records) = (self.store.journal(id, after, limit), Arc::clone(&self.records));
        let counted = journal.inspect(move |read| {
            records.fetch_add(read.as_ref().map_or(0, Vec::len), Ordering::Relaxed);
        });
        counted.boxed()
    }
}

#[test]
fn a_reader_in_another_process_reads_each_step_of_a_run_once() {
    const STEPS: usize = 300;
    let calls: Vec<Value> = (0..STEPS)
        .map(|number| node(&format!("n{number}"), "CODE", json!({"function": "work"})))
        .collect();
    let workflow = line("main", &calls).to_string();
    let (shown, records) = (Shown::new(MemoryStore::new()), Arc::<AtomicUsize>::default());
    let engine = |builder: pirn::EngineBuilder| {
        let builder = builder.workflows(&*workflow).virtual_time(Some(1));
        builder.async_function("work", |_| std::future::ready(Ok::<_, String>(Value::Null)))
    };
    let counted = Counted {
        store: shown.store.clone(),
        records: Arc::clone(&records),
    };
    let reader = engine(Engine::builder().store(counted)).build().expect("builds");
    shown.show(&reader);
    let ran = plays(engine(Engine::builder().store(shown.clone())), |engine| {
        engine.run("main").run_id(RUN)
    });
    let (seen, is_over) = shown.seen();
    assert!(is_over, "the run has ended");
    assert_eq!(seen, stored(&ran.events));
    let run = shown.store.run(RUN).now_or_never().expect("it is in memory");
    let steps = run.expect("is read").expect("is stored").steps;
    assert!(steps >= STEPS as u64, "{steps}");
    assert_eq!(records.load(Ordering::Relaxed) as u64, steps);
}
