//! Removal of old runs from the store, and erasure of sessions and tenants.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pirn::Engine;
use pirn::store::{Commit, Content, NewRun, Pending, Removed, RunStatus, SqliteStore, Store, forward_to_store};
use pirn_service::Options;
use serde_json::{Value, json};

use crate::command::{ECHO, Served};
use crate::world::{World, answer, refusal, tenants};

/// A store that counts the runs of its largest removal.
struct Counting {
    store: SqliteStore,
    largest: Arc<AtomicUsize>,
}

impl Store for Counting {
    forward_to_store!(store: location commit run runs journal contents chain snapshot timers sessions session set_meta meta remove_session replace);
    fn remove(&self, ids: Vec<String>, dry_run: bool) -> Pending<Removed> {
        self.largest.fetch_max(ids.len(), Ordering::SeqCst);
        self.store.remove(ids, dry_run)
    }
}

async fn listed(world: &World) -> Vec<Value> {
    let list = answer(world.get("/v1/runs?limit=1000")).await.body;
    list["runs"].as_array().expect("runs").clone()
}

#[tokio::test]
async fn runs_that_ended_long_ago_are_removed_in_small_batches_and_others_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let largest = Arc::new(AtomicUsize::new(0));
    let store = Counting {
        store: SqliteStore::open(folder.path().join("runs.db")).expect("a store"),
        largest: Arc::clone(&largest),
    };
    let world = World::of(Engine::builder().store(store), Options::default()).await;
    let waiting = world.start("asks", json!({})).await;
    for _ in 0..50 {
        world.start("echo", json!({})).await;
    }
    let service = world.service.clone();
    let removing = tokio::spawn(async move { service.remove_ended(Duration::from_millis(1)).await });
    loop {
        let runs = listed(&world).await;
        if runs.len() == 1 {
            assert_eq!(runs[0]["runId"], waiting.as_str());
            break;
        }
    }
    assert_eq!(largest.load(Ordering::SeqCst), 20);
    // Younger runs stay.
    removing.abort();
    let young = world.start("echo", json!({})).await;
    let service = world.service.clone();
    let removing = tokio::spawn(async move { service.remove_ended(Duration::from_hours(1)).await });
    world.ended(&young).await;
    tokio::task::yield_now().await;
    assert_eq!(listed(&world).await.len(), 2);
    removing.abort();
}

/// Waits until the report of a run says that its events were dropped, and returns it.
async fn dropped(world: &World, id: &str) -> Value {
    loop {
        let report = answer(world.get(&format!("/v1/runs/{id}"))).await.body;
        if report["eventsDropped"] == true {
            return report;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn events_of_runs_that_ended_long_ago_are_dropped_and_their_reports_stay_readable() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let store = SqliteStore::open(&file).expect("a store");
    let world = World::of(Engine::builder().store(store), Options::default()).await;
    let waiting = world.start("asks", json!({})).await;
    let body = json!({"workflow": "chat", "input": {"message": "a canary", "secret": "canary-input"}, "runId": "old"});
    answer(world.post("/v1/runs?wait=30", &body)).await;
    let base = world.start("echo", json!({"n": 1})).await;
    world.ended(&base).await;
    let fork = json!({"step": 0, "runId": "fork"});
    assert_eq!(
        answer(world.post(&format!("/v1/runs/{base}/fork"), &fork)).await.status,
        201
    );
    world.ended("fork").await;
    // Runs that ended a short time ago stay whole.
    let service = world.service.clone();
    let young = tokio::spawn(async move { service.drop_events(Duration::from_hours(1)).await });
    let before = answer(world.get("/v1/runs/old")).await.body;
    assert!(before.get("eventsDropped").is_none(), "{before}");
    young.abort();

    let service = world.service.clone();
    let dropping = tokio::spawn(async move { service.drop_events(Duration::from_millis(1)).await });
    let mut after = dropped(&world, "old").await;
    let fields = after.as_object_mut().expect("a report");
    // A report from memory has no number of steps.
    assert!(fields.remove("eventsDropped").is_some() && fields.remove("steps").is_some());
    assert_eq!(after, before);
    dropped(&world, "fork").await;
    // The base of the fork is reduced once the fork does not need its steps.
    dropped(&world, &base).await;
    dropping.abort();
    for path in [
        "/v1/runs/old/events",
        "/v1/runs/old/events?after=2",
        "/v1/runs/old?at=1",
        "/v1/runs/old/steps",
    ] {
        let (status, code) = refusal(world.get(path)).await;
        assert_eq!((status, &*code), (410, "EVENTS_DROPPED"), "{path}");
    }
    let forked = refusal(world.post("/v1/runs/old/fork", &json!({"step": 1, "runId": "none"}))).await;
    assert_eq!(forked, (410, "EVENTS_DROPPED".to_owned()));
    let runs = listed(&world).await;
    let of = |id: &str| runs.iter().find(|run| run["runId"] == id).expect("is listed");
    assert_eq!(of("old")["status"], "COMPLETED");
    // An unfinished run has its events.
    of(&waiting);
    let events = answer(world.get(&format!("/v1/runs/{waiting}/steps"))).await;
    assert_eq!(events.status, 200);

    world.service.shut_down(Duration::from_secs(5)).await;
    drop(world);
}

/// Calls `pirn runs` with a store; returns its exit code and its output.
fn runs_of(store: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
    let command = command
        .arg("runs")
        .args(arguments)
        .args(["--output", "json", "--store"]);
    let output = command.arg(store).output().expect("it runs");
    (
        output.status.code(),
        serde_json::from_slice(&output.stdout).expect("JSON"),
    )
}

#[tokio::test]
async fn serve_drops_events_by_its_argument_or_the_config_file_and_the_commands_show_the_report() {
    for (config, arguments) in [
        ("", &["--keep-events", "0s"][..]),
        ("[service]\nkeepEvents = \"0s\"\n", &[]),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("echo.json"), ECHO).expect("is written");
        std::fs::write(folder.path().join("pirn.toml"), config).expect("is written");
        let file = folder.path().join("runs.db");
        let mut run = Command::new(env!("CARGO_BIN_EXE_pirn"));
        let run = run.args([
            "run",
            "echo.json",
            "--input",
            "{\"word\": \"canary-x\"}",
            "--run-id",
            "r",
            "--store",
            "runs.db",
        ]);
        assert!(
            run.current_dir(folder.path())
                .output()
                .expect("it runs")
                .status
                .success()
        );
        let (_, before) = runs_of(&file, &["show", "r"]);
        let serve = ["echo.json", "--store", "runs.db"];
        let mut served = Served::start(folder.path(), &[&serve[..], arguments].concat());
        served.line("were dropped").expect("is logged");
        served.kill();
        let (code, mut report) = runs_of(&file, &["show", "r"]);
        assert_eq!((code, &report["eventsDropped"]), (Some(0), &json!(true)), "{report}");
        report.as_object_mut().expect("a report").remove("eventsDropped");
        assert_eq!(report, before);
        for command in [
            &["events", "r"][..],
            &["show", "r", "--at", "0"],
            &["fork", "r", "--at", "0"],
            &["explain", "r"],
        ] {
            let (code, error) = runs_of(&file, command);
            assert_eq!(
                (code, &error["error"]["code"]),
                (Some(1), &json!("EVENTS_DROPPED")),
                "{command:?}"
            );
        }
        // An export has the report, also for another store.
        let exported = folder.path().join("r.jsonl");
        let exported = exported.to_str().expect("UTF-8");
        assert_eq!(runs_of(&file, &["export", "r", exported]).0, Some(0));
        let other = folder.path().join("other.db");
        assert_eq!(runs_of(&other, &["import", exported]).0, Some(0));
        assert_eq!(runs_of(&other, &["show", "r"]).1["output"], before["output"]);
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("echo.json"), ECHO).expect("is written");
    for (config, message) in [
        ("", "--keep-events needs a store file"),
        ("[service]\nkeepEvents = \"soon\"\n", "as in 7d"),
    ] {
        std::fs::write(folder.path().join("pirn.toml"), config).expect("is written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
        let command = command.args(["serve", "echo.json", "--listen", "127.0.0.1:0", "--keep-events", "7d"]);
        let output = command.current_dir(folder.path()).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(message), "{said}");
    }
}

/// Calls `pirn runs erase`; returns its exit code and its output.
fn erase(store: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
    command
        .args(["runs", "erase", "--output", "json", "--store"])
        .arg(store)
        .args(arguments);
    let output = command.output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_run_whose_id_a_user_chose_is_not_erased_as_one_that_a_trigger_started() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("echo.json"), ECHO).expect("is written");
    let store = folder.path().join("runs.db");
    for (id, session) in [("job", "one"), ("job-f7", "two")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
        command.args([
            "run",
            "echo.json",
            "--store",
            "runs.db",
            "--run-id",
            id,
            "--session",
            session,
        ]);
        let output = command.current_dir(folder.path()).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let (code, erased) = erase(&store, &["--session", "one"]);
    assert_eq!(code, Some(0), "{erased}");
    assert_eq!(runs_of(&store, &["show", "job"]).0, Some(2), "no such run");
    assert_eq!(runs_of(&store, &["show", "job-f7"]).0, Some(0));
}

#[tokio::test]
async fn a_run_that_a_trigger_of_an_unfinished_run_started_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let store = SqliteStore::open(&file).expect("a store");
    let definition = Content::new("{}");
    for (id, status) in [
        ("live", RunStatus::Unfinished),
        ("live-f1", RunStatus::Completed),
        ("live-f1-f1", RunStatus::Completed),
        ("gone-f1", RunStatus::Completed),
        ("ended", RunStatus::Failed),
        ("ended-f2", RunStatus::Completed),
    ] {
        let start = Commit::start(id, NewRun::new("echo", definition.hash(), 1)).content(definition.clone());
        store.commit(start.status(status)).await.expect("is committed");
    }
    // The starter of `live-f1-f1` has ended and never starts it again.
    drop(store);
    let (code, pruned) = runs_of(&file, &["prune", "--dry-run"]);
    assert_eq!((code, &pruned["removed"]), (Some(0), &json!(4)), "{pruned}");

    let store = SqliteStore::open(&file).expect("a store");
    let started = store.run("live-f1").await.expect("is read").expect("a run");
    let engine = Engine::builder().store(store).build().expect("builds");
    let is_dropped = engine.drop_events(&started).await;
    assert!(!is_dropped.expect("is decided"), "the starter rebuilds it");
    engine.shutdown(Duration::from_secs(5)).await;
    drop(engine);
    let store = SqliteStore::open(&file).expect("a store");
    let world = World::of(Engine::builder().store(store), Options::default()).await;
    let service = world.service.clone();
    let removing = tokio::spawn(async move { service.remove_ended(Duration::from_millis(1)).await });
    let ids = || async {
        let runs = listed(&world).await;
        let mut ids: Vec<String> = runs
            .iter()
            .map(|run| run["runId"].as_str().expect("an id").to_owned())
            .collect();
        ids.sort_unstable();
        ids
    };
    while ids().await.len() > 2 {}
    assert_eq!(ids().await, ["live", "live-f1"]);
    removing.abort();
}

fn files_with(folder: &Path, word: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|file| file.expect("a file").path());
    let found = files.filter(|file| {
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes.windows(word.len()).any(|window| window == word.as_bytes())
    });
    found.map(|file| file.display().to_string()).collect()
}

/// Creates a store file with 31 ended runs of each of the tenants acme and zeta, in the sessions `one` and `two`.
async fn create_store(file: &Path) {
    let options = Options {
        access: tenants(),
        ..Options::default()
    };
    let store = SqliteStore::open(file).expect("a store");
    let world = World::of(Engine::builder().store(store), options).await;
    let post = |tenant: &str, path: &str, body: Value| world.post(path, &body).bearer_auth(format!("{tenant}-token"));
    for tenant in ["acme", "zeta"] {
        for number in 0..30 {
            let session = if number < 10 { "one" } else { "two" };
            let text = format!("canary-{tenant}-{session} ").repeat(1 + number * 20);
            let body = json!({"workflow": "chat", "input": {"message": text, "text": text}, "session": session,
                "runId": format!("canary-{tenant}-{session}-{number}"), "metadata": {"user": text}});
            let key = format!("canary-{tenant}-{session}-key-{number}");
            let ended = answer(post(tenant, "/v1/runs?wait=30", body).header("idempotency-key", key)).await;
            assert_eq!(ended.body["status"], "COMPLETED", "{}", ended.body);
        }
        let fork = post(
            tenant,
            &format!("/v1/runs/canary-{tenant}-one-3/fork"),
            json!({"step": 1, "runId": "forked"}),
        );
        assert_eq!(answer(fork).await.status, 201);
        let report = world
            .client
            .get(world.url("/v1/runs/forked/events"))
            .bearer_auth(format!("{tenant}-token"));
        answer(report).await;
    }
    world.service.shut_down(Duration::from_secs(5)).await;
    drop(world);
    let mut ended = (None, String::new());
    for _ in 0..500 {
        // The connections of the service end after its shutdown, and release the store.
        tokio::task::yield_now().await;
        ended = erase(file, &["--session", "acme~one", "--dry-run"]);
        if ended.0 == Some(0) {
            break;
        }
    }
    assert_eq!(ended.0, Some(0), "{}", ended.1);
}

#[tokio::test]
async fn no_file_contains_text_of_an_erased_tenant_or_session() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    create_store(&file).await;
    assert!(!files_with(folder.path(), "canary-acme-one").is_empty());
    let (code, text) = erase(&file, &["--session", "acme~one"]);
    assert_eq!(code, Some(0), "{text}");
    let erased: Value = serde_json::from_str(&text).expect("JSON");
    // The fork of a run has its history.
    assert_eq!((&erased["runs"], &erased["sessions"]), (&json!(11), &json!(1)));
    assert_eq!(files_with(folder.path(), "canary-acme-one"), Vec::<String>::new());
    for kept in ["canary-acme-two", "canary-zeta-one", "canary-zeta-two"] {
        assert!(!files_with(folder.path(), kept).is_empty(), "{kept}");
    }
    let (code, text) = erase(&file, &["--tenant", "acme"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(files_with(folder.path(), "canary-acme"), Vec::<String>::new());
    assert_eq!(files_with(folder.path(), "acme~"), Vec::<String>::new());
    assert!(!files_with(folder.path(), "canary-zeta-one").is_empty());
}

/// The ids of the runs in a store file.
fn stored_runs(file: &Path) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
    let output = command
        .args(["runs", "list", "--output", "json", "--store"])
        .arg(file)
        .output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let runs = list["runs"].as_array().expect("runs").iter();
    runs.map(|run| run["runId"].as_str().expect("an id").to_owned())
        .collect()
}

#[tokio::test]
async fn an_erasure_that_is_killed_is_completed_by_repeating_it_and_loses_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let original = folder.path().join("original.db");
    create_store(&original).await;
    let of_zeta = |file: &Path| -> Vec<String> {
        stored_runs(file)
            .into_iter()
            .filter(|id| id.starts_with("zeta~"))
            .collect()
    };
    let kept = of_zeta(&original);
    assert_eq!(kept.len(), 31);
    // Measures an erasure, so that the kills are spread over its whole duration.
    let copy = |name: &str| {
        let copied = folder.path().join(name);
        std::fs::create_dir(&copied).expect("a folder");
        for end in ["", "-wal"] {
            let part = folder.path().join(format!("original.db{end}"));
            if part.exists() {
                std::fs::copy(part, copied.join(format!("runs.db{end}"))).expect("is copied");
            }
        }
        copied.join("runs.db")
    };
    let started = Instant::now();
    assert_eq!(erase(&copy("measured"), &["--tenant", "acme"]).0, Some(0));
    let duration = started.elapsed();
    for number in 0..16_u32 {
        let file = copy(&number.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
        command
            .args(["runs", "erase", "--tenant", "acme", "--store"])
            .arg(&file);
        let mut killed = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        std::thread::sleep(duration * number / 16);
        killed.kill().expect("is killed or has ended");
        killed.wait().expect("it ends");
        assert_eq!(of_zeta(&file), kept, "killed at {number}/16");
        let (code, text) = erase(&file, &["--tenant", "acme"]);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(stored_runs(&file), kept);
        let folder = file.parent().expect("a folder");
        assert_eq!(files_with(folder, "canary-acme"), Vec::<String>::new());
        assert_eq!(files_with(folder, "acme~"), Vec::<String>::new());
    }
}
