//! Triggers of type SCHEDULE. A virtual clock starts at midnight, 1 January 1970, UTC.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use pirn::store::{Assignment, Claims, Commit, MemoryStore, Pending, RunStatus, Store, forward_to_store};
use pirn::{Engine, EngineBuilder, ScheduleDefinition, TriggerDefinition, TriggerState};
use serde_json::{Value, json};

use crate::durable::faults::failing_store::fails;

/// The inputs of the runs that schedules started, in order.
#[derive(Clone, Default)]
struct Started(Arc<Mutex<Vec<Value>>>);

impl Started {
    fn at(&self) -> Vec<String> {
        let inputs = self.0.lock().expect("locks");
        let at = |input: &Value| input["scheduledAt"].as_str().unwrap_or_default().to_owned();
        inputs.iter().map(at).collect()
    }

    /// An engine with `work`, which takes `takes` seconds, and `main`, which waits for `waits` seconds.
    fn engine(&self, takes: u64, waits: u64, triggers: &Value) -> EngineBuilder {
        let own = Arc::clone(&self.0);
        let line = |id: &str, node: Value| {
            let seconds = if id == "main" { waits } else { takes };
            json!({"id": id, "nodes": [{"id": "start", "type": "START"}, node,
                {"id": "wait", "type": "WAIT", "config": {"seconds": seconds}}, {"id": "end", "type": "END"}],
                "edges": [{"from": "start", "to": "do"}, {"from": "do", "to": "wait"}, {"from": "wait", "to": "end"}]})
        };
        let code =
            |function: &str| json!({"id": "do", "type": "CODE", "config": {"function": function, "input": "input"}});
        let bundle = json!({
            "workflows": [line("main", code("nothing")), line("work", code("note"))],
            "triggers": triggers,
        });
        let engine = Engine::builder().workflows(bundle.to_string());
        let engine = engine.function("nothing", |_| Ok(Value::Null));
        engine.function("note", move |input| {
            own.lock().expect("locks").push((**input).clone());
            Ok(Value::Null)
        })
    }

    /// Runs `main` under virtual time until it and every run started by then have ended.
    fn play(&self, takes: u64, waits: u64, triggers: &Value) -> Engine {
        let engine = self
            .engine(takes, waits, triggers)
            .virtual_time(None)
            .build()
            .expect("builds");
        let run = engine.start("main", Value::Null).expect("starts");
        engine.wait_idle();
        let report = run.try_outcome().expect("a schedule keeps no run from its end");
        assert_eq!(report.elapsed_ms, waits * 1_000, "nobody waits for a schedule");
        engine
    }
}

fn every(cron: &str, schedule: &Value, more: &Value) -> Value {
    let mut trigger = json!({"id": "t", "type": "SCHEDULE", "schedule": {"cron": cron},
        "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "work"}}});
    for (name, value) in schedule.as_object().into_iter().flatten() {
        trigger["schedule"][name] = value.clone();
    }
    for (name, value) in more.as_object().into_iter().flatten() {
        trigger[name] = value.clone();
    }
    json!([trigger])
}

const DAY: u64 = 86_400;

#[test]
fn a_schedule_starts_its_workflow_at_each_of_its_times() {
    let started = Started::default();
    let engine = started.play(
        1,
        3 * DAY,
        &every("0 3 * * *", &json!({"timezone": "Europe/Berlin"}), &Value::Null),
    );
    let at = |day: u32| format!("1970-01-0{day}T03:00:00+01:00");
    assert_eq!(started.at(), [at(1), at(2), at(3)]);
    let first = started.0.lock().expect("locks")[0].clone();
    let hours = 2 * 3_600_000;
    let event = json!({"type": "SCHEDULE_DUE", "triggerId": "t", "scheduledAt": at(1), "timestamp": hours});
    assert_eq!(first, event, "its input is the event");
    let state = TriggerState {
        id: "t".to_owned(),
        enabled: true,
        fired: 3,
    };
    assert_eq!(block_on(engine.triggers(None)), [state]);
}

#[test]
fn a_schedule_in_a_workflow_fires_like_a_top_level_one() {
    let started = Started::default();
    let own = every("0 3 * * *", &Value::Null, &Value::Null);
    let engine = started.engine(1, DAY, &json!([])).workflows(
        json!({"id": "own", "triggers": own, "edges": [{"from": "s", "to": "e"}],
            "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}]})
        .to_string(),
    );
    let engine = engine.virtual_time(None).build().expect("builds");
    engine.start("main", Value::Null).expect("starts");
    engine.wait_idle();
    assert_eq!(started.at(), ["1970-01-01T03:00:00+00:00"]);
    assert_eq!(block_on(engine.triggers(Some("own"))).len(), 1);
}

#[test]
fn a_start_during_an_earlier_run_is_handled_by_the_overlap_mode() {
    // Every minute for five and a half minutes; each run takes one and a half.
    for (overlap, minutes) in [
        ("skip", &[1, 3, 5][..]),
        ("queue", &[1, 2, 3, 4]),
        ("cancelPrevious", &[1, 2, 3, 4, 5]),
        ("allow", &[1, 2, 3, 4, 5]),
    ] {
        let started = Started::default();
        started.play(90, 335, &every("* * * * *", &json!({"overlap": overlap}), &Value::Null));
        let expected: Vec<String> = minutes.iter().map(|m| format!("1970-01-01T00:0{m}:00+00:00")).collect();
        assert_eq!(started.at(), expected, "{overlap}");
    }
}

#[test]
fn a_schedule_fires_up_to_its_limit_while_it_is_enabled() {
    let started = Started::default();
    started.play(1, 600, &every("* * * * *", &Value::Null, &json!({"maxTriggers": 2})));
    assert_eq!(started.at().len(), 2);
    let started = Started::default();
    started.play(1, 600, &every("* * * * *", &Value::Null, &json!({"enabled": false})));
    assert_eq!(started.at(), Vec::<String>::new());
}

#[test]
fn a_schedule_is_added_disabled_and_enabled_while_the_engine_runs() {
    let started = Started::default();
    let engine = started
        .engine(1, 180, &json!([]))
        .virtual_time(None)
        .build()
        .expect("builds");
    let minutely = || TriggerDefinition::scheduled("t", ScheduleDefinition::cron("* * * * *"), "work");
    let play = || {
        let before = started.at().len();
        engine.start("main", Value::Null).expect("starts");
        engine.wait_idle();
        started.at().len() - before
    };
    assert_eq!(block_on(engine.add_trigger(minutely())), Ok(()));
    assert!(block_on(engine.add_trigger(minutely())).is_err(), "its id is taken");
    assert_eq!(play(), 3);
    assert_eq!(block_on(engine.enable_trigger(None, "t", false)), Some(true));
    assert_eq!(block_on(engine.enable_trigger(None, "t", false)), Some(false));
    assert_eq!(play(), 0);
    assert_eq!(block_on(engine.enable_trigger(None, "t", true)), Some(true));
    assert_eq!(play(), 3, "what came while it was disabled was no time of it");
    let wrong = TriggerDefinition::scheduled("u", ScheduleDefinition::cron("* * * * *").timezone("Atlantis"), "work");
    assert!(block_on(engine.add_trigger(wrong)).is_err(), "there is no such zone");
}

#[test]
fn an_engine_with_schedules_disabled_fires_none() {
    let started = Started::default();
    let engine = started.engine(1, DAY, &every("* * * * *", &Value::Null, &Value::Null));
    let engine = engine.schedules(false).virtual_time(None).build().expect("builds");
    engine.start("main", Value::Null).expect("starts");
    engine.wait_idle();
    assert_eq!(started.at(), Vec::<String>::new());
}

/// The ids of one schedule's runs in a store.
fn runs_of(store: &MemoryStore, schedule: &str) -> Vec<String> {
    let runs = block_on(store.runs(pirn::store::RunFilter::default(), None, 1_000)).expect("is read");
    let of = format!("{schedule}@");
    let mut ids: Vec<String> = runs
        .into_iter()
        .map(|run| run.id)
        .filter(|id| id.starts_with(&of))
        .collect();
    // Several start in one millisecond, so the store's order is not fixed.
    ids.sort();
    ids
}

/// Schedules on each first of January, one per name and `catchUp` value.
fn yearly(named: &[(&str, &str)]) -> Value {
    let each = named.iter().map(|(id, catch_up)| {
        let schedule = json!({"catchUp": catch_up, "overlap": "allow"});
        every("0 0 1 1 *", &schedule, &json!({"id": id}))[0].clone()
    });
    Value::Array(each.collect())
}

/// Runs an engine on the store until the last of these schedules has started its missed runs.
fn process(store: &MemoryStore, named: &[(&str, &str)]) {
    let started = Started::default();
    let (told, heard) = std::sync::mpsc::channel();
    let own = Arc::clone(&started.0);
    let engine = started
        .engine(0, 0, &yearly(named))
        .function("note", move |input| {
            own.lock().expect("locks").push((**input).clone());
            told.send(input["triggerId"].clone())
                .map_err(|error| error.to_string())?;
            Ok(Value::Null)
        })
        .store(store.clone())
        .build()
        .expect("builds");
    let last = named.last().expect("one at least").0;
    while heard.recv().expect("the last schedule fires") != last {}
    let report = engine.shutdown_blocking(Duration::from_mins(1));
    assert_eq!(
        (report.runs_left, report.tasks_left),
        (0, 0),
        "nothing of a schedule is left"
    );
}

/// Stores a moment of 1999 as the last time of these schedules.
fn last_seen_in_1999(store: &MemoryStore, ids: &[&str]) {
    for id in ids {
        let moment = Some("946684799000".to_owned());
        block_on(store.set_meta(&format!("schedule {id}"), moment)).expect("is kept");
    }
}

#[test]
fn starts_missed_while_no_engine_ran_are_handled_by_the_catch_up_mode() {
    let store = MemoryStore::new();
    last_seen_in_1999(&store, &["none", "all", "last"]);
    process(&store, &[("none", "none"), ("all", "all"), ("last", "last")]);
    assert_eq!(runs_of(&store, "none"), Vec::<String>::new());
    let all = runs_of(&store, "all");
    assert_eq!(all[0], "all@2000-01-01T00:00:00+00:00");
    assert_eq!(all[20], "all@2020-01-01T00:00:00+00:00", "each of them");
    assert_eq!(runs_of(&store, "last").len(), 1);
    assert_eq!(runs_of(&store, "last")[0][4..], all[all.len() - 1][3..]);
}

#[test]
fn no_time_of_a_schedule_starts_two_runs_after_a_crash_at_any_point() {
    let store = MemoryStore::new();
    last_seen_in_1999(&store, &["all", "last"]);
    process(&store, &[("all", "all"), ("last", "last")]);
    let before = runs_of(&store, "all");
    // The runs have started, but the stored time may lag behind after a crash: the next process tries each start again.
    last_seen_in_1999(&store, &["all", "later"]);
    process(&store, &[("all", "all"), ("later", "last")]);
    assert_eq!(runs_of(&store, "all"), before);
}

/// An engine on `store` whose schedule starts runs that wait for a person.
fn asking(store: impl Store, more: &Value) -> Engine {
    let work = json!({"id": "work", "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}], "nodes": [
        {"id": "start", "type": "START"},
        {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Well?"}},
        {"id": "end", "type": "END"}]});
    let main = json!({"id": "main", "edges": [{"from": "start", "to": "wait"}, {"from": "wait", "to": "end"}], "nodes": [
        {"id": "start", "type": "START"},
        {"id": "wait", "type": "WAIT", "config": {"seconds": 150}},
        {"id": "end", "type": "END"}]});
    let bundle = json!({"workflows": [work, main], "triggers": every("* * * * *", &Value::Null, more)});
    let engine = Engine::builder().workflows(bundle.to_string()).store(store);
    engine.virtual_time(None).build().expect("builds")
}

/// Runs the engine for two and a half minutes of virtual time, by a run of this id.
fn live(engine: &Engine, name: &str) {
    let run = engine.run("main").run_id(name).start().expect("starts");
    engine.wait_idle();
    let report = run.try_outcome().expect("ends");
    assert_eq!(report.elapsed_ms, 150_000);
}

#[test]
fn a_run_of_an_earlier_process_counts_as_active_until_it_ends_or_is_not_recovered() {
    for goes_on in [true, false] {
        let store = MemoryStore::new();
        let first = asking(store.clone(), &Value::Null);
        live(&first, "one");
        let begun = "t@1970-01-01T00:01:00+00:00";
        assert_eq!(runs_of(&store, "t"), [begun], "it overlaps those after it");
        first.shutdown_blocking(Duration::ZERO);
        drop(first);

        let next = asking(store.clone(), &Value::Null);
        let recovered = if goes_on {
            block_on(next.recover()).expect("reads the store")
        } else {
            Vec::new()
        };
        live(&next, "two");
        live(&next, "three");
        if !goes_on {
            let later = "t@1970-01-01T00:03:00+00:00";
            assert_eq!(runs_of(&store, "t"), [begun, later], "it holds up nothing");
            continue;
        }
        assert_eq!(runs_of(&store, "t"), [begun], "it is under way");
        let (_, run) = recovered.into_iter().find(|(id, _)| id == begun).expect("is recovered");
        let run = run.expect("goes on");
        let question = block_on(run.interactions()).remove(0);
        block_on(run.answer(&question.id, "well")).expect("is taken");
        live(&next, "four");
        let later = "t@1970-01-01T00:06:00+00:00";
        assert_eq!(runs_of(&store, "t"), [begun, later], "it has ended");
    }
}

#[test]
fn the_limit_of_a_schedule_applies_to_all_processes_together() {
    let store = MemoryStore::new();
    let more = json!({"maxTriggers": 3, "schedule": {"cron": "* * * * *", "overlap": "allow"}});
    for (runs, lives) in [(2, 1), (3, 2), (3, 3)] {
        let engine = asking(store.clone(), &more);
        (0..lives).for_each(|life| live(&engine, &format!("{lives} {life}")));
        assert_eq!(runs_of(&store, "t").len(), runs);
        engine.shutdown_blocking(Duration::ZERO);
    }
}

/// A store that other processes share, which own all runs that this one has not started.
#[derive(Clone)]
struct Shared {
    store: MemoryStore,
    /// Inputs that were sent to runs of other processes.
    sent: Arc<Mutex<Vec<(String, String)>>>,
}

impl Store for Shared {
    forward_to_store!(store: location commit run runs journal contents chain snapshot timers sessions session set_meta meta remove remove_session);

    fn claims(&self) -> Option<&dyn Claims> {
        Some(self)
    }
}

fn ready<T: Send + 'static>(value: T) -> Pending<T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Claims for Shared {
    fn claim(&self, _: &str) -> Pending<()> {
        ready(())
    }
    fn release(&self, _: &str, _: u64) {}
    fn carry(&self, _: usize) {}
    fn assigned(&self) -> Pending<Assignment> {
        Box::pin(std::future::pending())
    }
    fn turn(&self, _: &str, _: &str) -> Pending<()> {
        ready(())
    }
    fn ended(&self, _: &str) -> Pending<()> {
        Box::pin(std::future::pending())
    }
    fn tell(&self, run: &str, request: String) -> Pending<Option<String>> {
        self.sent.lock().expect("locks").push((run.to_owned(), request));
        ready(Some(json!({"told": "done"}).to_string()))
    }
    fn answer(&self, _: u64, _: String) {}
}

#[test]
fn a_schedule_cancels_its_previous_run_through_the_process_that_owns_it() {
    let store = MemoryStore::new();
    let more = json!({"schedule": {"cron": "* * * * *", "overlap": "cancelPrevious"}});
    let first = asking(store.clone(), &more);
    live(&first, "one");
    first.shutdown_blocking(Duration::ZERO);
    drop(first);
    let shared = Shared {
        store,
        sent: Arc::default(),
    };
    let next = asking(shared.clone(), &more);
    live(&next, "two");
    live(&next, "three");
    let sent = shared.sent.lock().expect("locks").clone();
    let (run, request) = sent.first().expect("the run of the last time is cancelled");
    assert_eq!(run, "t@1970-01-01T00:02:00+00:00");
    assert!(request.contains("cancel"), "{request}");
}

/// A store of a process that is killed when it has stored that a schedule has handled its second minute.
#[derive(Clone)]
struct Killed {
    store: MemoryStore,
    is_over: Arc<AtomicBool>,
}

impl Store for Killed {
    forward_to_store!(store: location run runs journal contents chain snapshot timers sessions session meta remove remove_session);

    fn set_meta(&self, name: &str, value: Option<String>) -> Pending<()> {
        let is_second = value.as_ref().is_some_and(|value| value.contains("\"last\":120000"));
        if self.is_over.fetch_or(is_second, Ordering::SeqCst) {
            return fails();
        }
        self.store.set_meta(name, value)
    }

    fn commit(&self, commit: Commit) -> Pending<u64> {
        if self.is_over.load(Ordering::SeqCst) {
            return fails();
        }
        self.store.commit(commit)
    }
}

#[test]
fn a_previous_run_is_cancelled_if_the_process_was_killed_before_it_cancelled_the_run() {
    let store = MemoryStore::new();
    let more = json!({"schedule": {"cron": "* * * * *", "overlap": "cancelPrevious"}});
    let killed = Killed {
        store: store.clone(),
        is_over: Arc::default(),
    };
    let first = asking(killed, &more);
    first.run("main").start().expect("starts");
    first.wait_idle();
    first.shutdown_blocking(Duration::ZERO);
    drop(first);
    let [one, two, three] = [1, 2, 3].map(|minute| format!("t@1970-01-01T00:0{minute}:00+00:00"));
    assert_eq!(runs_of(&store, "t"), [one.as_str()], "the second run was not started");
    let next = asking(store.clone(), &more);
    block_on(next.recover()).expect("reads the store");
    live(&next, "two");
    live(&next, "three");
    let status = |id: &str| block_on(store.run(id)).expect("is read").map(|run| run.status);
    assert_eq!(status(&one), Some(RunStatus::Cancelled));
    assert_eq!(status(&two), Some(RunStatus::Cancelled));
    assert!(status(&three).is_some(), "the schedule continues");
}

/// Returns a store, and an engine that shares it with other processes and whose schedule has started one run.
fn one_begun(begun: &str) -> (MemoryStore, Engine) {
    let store = MemoryStore::new();
    let shared = Shared {
        store: store.clone(),
        sent: Arc::default(),
    };
    let engine = asking(shared, &Value::Null);
    live(&engine, "one");
    assert_eq!(runs_of(&store, "t"), [begun]);
    (store, engine)
}

#[test]
fn a_run_that_another_process_started_at_a_skipped_time_counts_for_the_overlap() {
    let (begun, skipped) = ("t@1970-01-01T00:01:00+00:00", "t@1970-01-01T00:02:00+00:00");
    let (store, engine) = one_begun(begun);
    // The other process saw the end of the first run before the second time, and this one after it.
    let other = asking(store.clone(), &json!({"enabled": false}));
    other.run("work").run_id(skipped).start().expect("starts");
    other.wait_idle();
    engine.find(begun).expect("is owned").cancel("over");
    live(&engine, "two");
    assert_eq!(runs_of(&store, "t"), [begun, skipped]);
    other.find(skipped).expect("is owned").cancel("over");
    other.wait_idle();
    live(&engine, "three");
    assert_eq!(runs_of(&store, "t").len(), 3, "the schedule continues");
}

#[test]
fn a_run_that_has_left_its_process_counts_for_the_overlap_until_it_has_ended() {
    let begun = "t@1970-01-01T00:01:00+00:00";
    let (store, engine) = one_begun(begun);
    engine.find(begun).expect("is owned").release();
    live(&engine, "two");
    assert_eq!(runs_of(&store, "t"), [begun], "another process may execute it");
    let other = asking(store.clone(), &json!({"enabled": false}));
    block_on(other.resume(begun).cancel("over")).expect("cancels");
    other.wait_idle();
    live(&engine, "three");
    assert_eq!(runs_of(&store, "t").len(), 2, "the schedule continues");
}

/// An engine on `store` whose runs take 7 seconds. Its schedule skips every second time.
fn every_five_seconds(store: &MemoryStore, waits: u64) -> Engine {
    let shared = Shared {
        store: store.clone(),
        sent: Arc::default(),
    };
    let triggers = every("*/5 * * * * *", &Value::Null, &Value::Null);
    let engine = Started::default().engine(7, waits, &triggers).store(shared);
    engine.virtual_time(None).build().expect("builds")
}

#[test]
fn a_process_whose_clock_is_behind_starts_no_run_at_times_that_another_one_has_skipped() {
    let alone = MemoryStore::new();
    let play = |engine: &Engine| {
        let run = engine.start("main", Value::Null).expect("starts");
        engine.wait_idle();
        run.try_outcome().expect("ends");
    };
    play(&every_five_seconds(&alone, 42));
    let expected = runs_of(&alone, "t");
    assert_eq!(expected.len(), 4, "{expected:?}");
    let store = MemoryStore::new();
    let (ahead, behind) = (every_five_seconds(&store, 42), every_five_seconds(&store, 3));
    play(&behind);
    play(&ahead);
    (1..14).for_each(|_| play(&behind));
    assert_eq!(runs_of(&store, "t"), expected);
}

#[test]
fn processes_that_share_a_store_agree_on_the_random_delays_of_a_schedule() {
    let started = |seed: u64| {
        let store = MemoryStore::new();
        let shared = Shared {
            store: store.clone(),
            sent: Arc::default(),
        };
        let triggers = every("* * * * *", &json!({"jitterMs": 50_000}), &Value::Null);
        let engine = Started::default().engine(0, 300, &triggers).store(shared);
        let engine = engine.virtual_time(Some(seed)).build().expect("builds");
        engine.start("main", Value::Null).expect("starts");
        engine.wait_idle();
        let runs = block_on(store.runs(pirn::store::RunFilter::default(), None, 1_000)).expect("is read");
        let of_schedule = runs.into_iter().filter(|run| run.id.starts_with("t@"));
        of_schedule
            .map(|run| (run.id, run.started_at))
            .collect::<BTreeMap<_, _>>()
    };
    let (one, other) = (started(1), started(2));
    assert!(one.len() > 2, "{one:?}");
    assert_eq!(one, other);
}
