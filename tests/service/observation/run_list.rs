//! The list of runs: what its items state, and its filters; the list of sessions.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::store::{MemoryStore, Pending, Run, RunFilter, RunPlace, Store, StoreError, forward_to_store};
use pirn::{Engine, Event};
use pirn_service::{Options, RunArchive, RunQuery, RunSummary};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::world::{Events, World, answer, refusal};

async fn stored() -> World {
    World::of(Engine::builder().store(MemoryStore::new()), Options::default()).await
}

async fn listed(world: &World, query: &str) -> Vec<Value> {
    let list = answer(world.get(&format!("/v1/runs?{query}"))).await.body;
    list["runs"]
        .as_array()
        .unwrap_or_else(|| panic!("{query}: {list}"))
        .clone()
}

fn ids(runs: &[Value]) -> Vec<&str> {
    runs.iter().map(|run| run["runId"].as_str().expect("an id")).collect()
}

#[tokio::test]
async fn an_item_has_the_tokens_cost_and_duration_of_its_report() {
    for world in [World::new().await, stored().await] {
        let id = world.start("chat", json!({"message": "time?"})).await;
        let report = world.ended(&id).await;
        let spent = &report["tokens"]["spent"];
        assert!(spent["total"].as_u64() > Some(0), "{spent}");
        let item = &listed(&world, "").await[0];
        assert_eq!(item["tokens"], spent["total"]);
        assert_eq!(
            (&item["cost"], item["cost"]["currency"].as_str()),
            (&spent["cost"], Some("USD"))
        );
        assert_eq!(item["durationMs"], report["elapsedMs"]);
        assert_eq!(item["openQuestions"], 0);
        let waiting = world.start("two-people", Value::Null).await;
        for count in [2, 1] {
            let mut asked = Vec::new();
            while asked.len() != count {
                let open = answer(world.get(&format!("/v1/runs/{waiting}/interactions")))
                    .await
                    .body;
                asked.clone_from(open["interactions"].as_array().expect("questions"));
            }
            while listed(&world, "").await[0]["openQuestions"] != count {
                tokio::task::yield_now().await;
            }
            let item = &listed(&world, "").await[0];
            assert_eq!(
                (&item["status"], &item["durationMs"]),
                (&json!("RUNNING"), &Value::Null)
            );
            let question = asked[0]["id"].as_str().expect("an id");
            answer(world.post(&format!("/v1/interactions/{question}"), &json!({"answer": "yes"}))).await;
        }
        world.ended(&waiting).await;
        assert_eq!(listed(&world, "").await[0]["openQuestions"], 0);
    }
}

#[tokio::test]
async fn a_run_in_memory_counts_the_tokens_of_completed_nodes_until_it_ends() {
    let world = World::new().await;
    let id = world.start("talks-then-waits", json!({"message": "time?"})).await;
    let mut events = crate::world::Events::open(world.get(&format!("/v1/runs/{id}/events?types=NODE_STARTED"))).await;
    while events.next().await.expect("an event").json["nodeId"] != "gate" {}
    let before = listed(&world, "").await[0]["tokens"].clone();
    assert!(before.as_u64() > Some(0), "{before}");
    world.gate.add_permits(1);
    assert_eq!(world.ended(&id).await["tokens"]["spent"]["total"], before);
}

#[tokio::test]
async fn the_answer_the_list_and_the_store_state_one_start() {
    let store = Arc::new(MemoryStore::new());
    let world = World::of(
        Engine::builder().shared_store(Arc::clone(&store) as _),
        Options::default(),
    )
    .await;
    // At once, so that some runs begin later than they were requested.
    let body = json!({"workflow": "echo", "input": {}});
    let starts = (0..100).map(|_| answer(world.post("/v1/runs", &body)));
    let mut told: Vec<(String, u64)> = futures::future::join_all(starts)
        .await
        .iter()
        .map(|started| {
            let id = started.body["runId"].as_str().expect("an id");
            (id.to_owned(), started.body["startedAt"].as_u64().expect("a time"))
        })
        .collect();
    told.sort_by(|a, b| (b.1, &b.0).cmp(&(a.1, &a.0)));
    let listed = listed(&world, "").await;
    let listed: Vec<(String, u64)> = listed
        .iter()
        .map(|run| {
            (
                run["runId"].as_str().expect("an id").to_owned(),
                run["startedAt"].as_u64().expect("a time"),
            )
        })
        .collect();
    assert_eq!(listed, told);
    let stored = store.runs(RunFilter::default(), None, 100).await.expect("stored");
    let mut stored: Vec<(String, u64)> = stored.into_iter().map(|run| (run.id, run.started_at)).collect();
    stored.sort_by(|a, b| (b.1, &b.0).cmp(&(a.1, &a.0)));
    assert_eq!(stored, told);
}

#[tokio::test]
async fn filters_select_by_text_and_by_start() {
    for world in [World::new().await, stored().await] {
        for (workflow, run, session) in [
            ("echo", "Alpha-1", "desk"),
            ("echo", "beta-2", "ALPHAbet"),
            ("gated", "gamma-3", "desk"),
        ] {
            let body = json!({"workflow": workflow, "input": {}, "runId": run, "session": session});
            let started = answer(world.post("/v1/runs", &body)).await.body;
            let at = started["startedAt"].as_u64().expect("a time");
            // The next run must have a later start.
            while now() <= at {
                tokio::task::yield_now().await;
            }
        }
        let all = listed(&world, "").await;
        assert_eq!(ids(&all), ["gamma-3", "beta-2", "Alpha-1"]);
        let at = |place: usize| all[place]["startedAt"].as_u64().expect("a time");
        for (query, expected) in [
            ("text=alpha".to_owned(), &["beta-2", "Alpha-1"][..]),
            ("text=GATED".to_owned(), &["gamma-3"]),
            ("text=esk".to_owned(), &["gamma-3", "Alpha-1"]),
            ("text=delta".to_owned(), &[]),
            (format!("startedAfter={}", at(1)), &["gamma-3"]),
            (format!("startedBefore={}", at(1)), &["Alpha-1"]),
            (format!("startedAfter={}&startedBefore={}", at(2), at(0)), &["beta-2"]),
            (format!("startedBefore={}&text=desk", at(0)), &["Alpha-1"]),
            ("text=a&status=completed".to_owned(), &["beta-2", "Alpha-1"]),
        ] {
            assert_eq!(ids(&listed(&world, &query).await), expected, "{query}");
        }
        let first = answer(world.get("/v1/runs?text=alpha&limit=1")).await.body;
        assert_eq!(ids(first["runs"].as_array().expect("runs")), ["beta-2"]);
        let next = first["next"].as_str().expect("another page");
        assert_eq!(
            ids(&listed(&world, &format!("text=alpha&limit=1&after={next}")).await),
            ["Alpha-1"]
        );
        world.gate.add_permits(1);
    }
    let world = World::new().await;
    let long = format!("/v1/runs?text={}", "x".repeat(257));
    assert_eq!(refusal(world.get(&long)).await, (400, "INVALID_REQUEST".into()));
    assert_eq!(
        refusal(world.get("/v1/runs?startedAfter=soon")).await,
        (400, "INVALID_REQUEST".into())
    );
}

/// A store in memory that delays the answer to one query of the list of runs.
struct GatedList {
    kept: MemoryStore,
    /// Signals the query, then waits for permission to answer.
    gate: Arc<Mutex<Option<Gate>>>,
}

type Gate = (oneshot::Sender<()>, oneshot::Receiver<()>);

impl Store for GatedList {
    forward_to_store!(kept: location commit run journal contents chain snapshot timers sessions session set_meta meta remove remove_session);
    fn runs(&self, filter: RunFilter, after: Option<RunPlace>, limit: usize) -> Pending<Vec<Run>> {
        let runs = self.kept.runs(filter, after, limit);
        let Some((asked, let_go)) = self.gate.lock().expect("whole").take() else {
            return runs;
        };
        Box::pin(async move {
            asked.send(()).expect("the test waits");
            let_go.await.expect("the test lets it go");
            runs.await
        })
    }
}

#[tokio::test]
async fn a_run_that_is_parked_or_resumed_while_the_list_is_read_is_listed_once() {
    let gate = Arc::default();
    let store = GatedList {
        kept: MemoryStore::new(),
        gate: Arc::clone(&gate),
    };
    let world = World::of(Engine::builder().store(store), Options::default()).await;
    let id = world.start("paid", Value::Null).await;
    world.until(&id, "NODE_STARTED").await;
    for call in ["park", "resume"] {
        let ((asked, is_asked), (let_go, may_go)) = (oneshot::channel(), oneshot::channel());
        *gate.lock().expect("whole") = Some((asked, may_go));
        let changes = async {
            // The runs in memory were read before the query.
            is_asked.await.expect("asked");
            let events = Events::open(world.get(&format!("/v1/runs/{id}/events"))).await;
            let told = answer(world.post(&format!("/v1/runs/{id}/{call}"), &json!({}))).await;
            assert_eq!(told.status.as_u16(), 200, "{}", told.body);
            // The stream of a parked run ends when it has left the memory.
            events.all().await;
            let_go.send(()).expect("the store waits");
        };
        let (runs, ()) = tokio::join!(listed(&world, ""), changes);
        assert_eq!(ids(&runs), [id.as_str()], "{call}: {runs:?}");
    }
}

/// A store in memory that cannot list its runs.
struct Unlistable(MemoryStore);

impl Store for Unlistable {
    forward_to_store!(0: location commit run journal contents chain snapshot timers sessions session set_meta meta remove remove_session);
    fn runs(&self, _: RunFilter, _: Option<RunPlace>, _: usize) -> Pending<Vec<Run>> {
        let error = StoreError::Failed {
            file: "runs.db".into(),
            run: None,
            why: "the file was removed".to_owned(),
        };
        Box::pin(std::future::ready(Err(error)))
    }
}

#[tokio::test]
async fn a_list_of_a_store_that_cannot_be_read_is_refused_with_the_reason() {
    let store = Unlistable(MemoryStore::new());
    let world = World::of(Engine::builder().store(store), Options::default()).await;
    let refused = answer(world.get("/v1/runs")).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.body["code"]),
        (500, &json!("STORE_FAILED")),
        "{}",
        refused.body
    );
    let detail = refused.body["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("runs.db") && detail.contains("was removed"), "{detail}");
}

#[tokio::test]
async fn a_run_that_waits_for_its_session_is_queued() {
    for builder in [Engine::builder(), Engine::builder().store(MemoryStore::new())] {
        let world = World::of(builder, Options::default()).await;
        let start = async |id: &str| {
            let body = json!({"workflow": "paid", "session": "desk", "runId": id});
            answer(world.post("/v1/runs", &body)).await
        };
        start("first").await;
        world.until("first", "NODE_STARTED").await;
        // The list follows an event that a stream has delivered already.
        let only_runs = async |id: &str| {
            let mut tries = 0;
            while ids(&listed(&world, "status=running").await) != [id] {
                tries += 1;
                assert!(tries < 1_000, "{id} has the session");
            }
        };
        only_runs("first").await;
        start("second").await;
        let queued = listed(&world, "status=queued").await;
        assert_eq!(ids(&queued), ["second"]);
        let report = answer(world.get("/v1/runs/second")).await.body;
        assert_eq!(report["status"], "QUEUED", "{report}");
        assert_eq!(ids(&listed(&world, "status=running").await), ["first"]);
        answer(world.post("/v1/runs/first/emit", &json!({"name": "paid"}))).await;
        world.until("second", "NODE_STARTED").await;
        only_runs("second").await;
    }
}

#[tokio::test]
async fn an_item_has_the_sequence_of_the_last_event_or_none() {
    let world = stored().await;
    let id = world.start("paid", Value::Null).await;
    world.until(&id, "NODE_STARTED").await;
    let path = format!("/v1/runs/{id}/events");
    let events = Events::open(world.get(&path)).await;
    let parked = answer(world.post(&format!("/v1/runs/{id}/park"), &json!({}))).await;
    assert_eq!(parked.status.as_u16(), 200, "{}", parked.body);
    let events = events.all().await;
    let last = events.iter().rev().find_map(|event| event.id).expect("a sequence");
    let item = &listed(&world, "").await[0];
    assert_eq!((&item["status"], item.get("lastSequence")), (&json!("WAITING"), None));
    // The events of a stored run are the result of a replay. The service retains its figures.
    assert_eq!(Events::open(world.get(&path)).await.all().await, events);
    assert_eq!(listed(&world, "").await[0]["lastSequence"], last);
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_millis()).expect("not so late")
}

/// An archive of runs `0` (the oldest) to `count - 1`, which counts the runs that it returns.
struct Many {
    count: u64,
    read: AtomicUsize,
}

impl RunArchive for Many {
    fn events<'a>(&'a self, _: &'a str, _: u64, _: usize) -> BoxFuture<'a, io::Result<Vec<Event>>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn runs<'a>(&'a self, query: &'a RunQuery) -> BoxFuture<'a, io::Result<Vec<RunSummary>>> {
        let end = query.before.as_ref().map_or(self.count, |(at, _)| *at);
        let runs = (0..end).rev().take(query.limit).map(|at| RunSummary {
            run_id: format!("run-{at}"),
            started_at: at,
            ..RunSummary::default()
        });
        let runs: Vec<RunSummary> = runs.collect();
        self.read.fetch_add(runs.len(), Ordering::SeqCst);
        std::future::ready(Ok(runs)).boxed()
    }

    fn report<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Option<Value>>> {
        std::future::ready(Ok(None)).boxed()
    }
}

#[tokio::test]
async fn a_search_reads_a_limited_number_of_archived_runs_per_request() {
    let archive = Arc::new(Many {
        count: 50_500,
        read: AtomicUsize::new(0),
    });
    let options = Options {
        archive: Some(Arc::clone(&archive) as Arc<dyn RunArchive>),
        ..Options::default()
    };
    let world = World::with(options).await;
    let (mut after, mut requests, mut found) = (String::new(), 0, Vec::new());
    loop {
        archive.read.store(0, Ordering::SeqCst);
        let page = answer(world.get(&format!("/v1/runs?text=run-7777{after}"))).await.body;
        assert!(archive.read.load(Ordering::SeqCst) <= 21_000);
        requests += 1;
        found.extend(
            ids(page["runs"].as_array().expect("runs"))
                .into_iter()
                .map(str::to_owned),
        );
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!((requests, found), (3, vec!["run-7777".to_owned()]));
    // Without a text, one page is read.
    archive.read.store(0, Ordering::SeqCst);
    let page = listed(&world, "startedAfter=50397").await;
    assert_eq!(page.len(), 100);
    assert_eq!(
        ids(&listed(&world, "startedAfter=50497").await),
        ["run-50499", "run-50498"]
    );
    assert!(archive.read.load(Ordering::SeqCst) <= 300);
}

#[tokio::test]
async fn the_sessions_of_the_store_are_listed_by_page() {
    assert_eq!(
        answer(World::new().await.get("/v1/sessions")).await.body,
        json!({"sessions": []})
    );
    let world = stored().await;
    for session in ["c", "a", "b", "a"] {
        let body = json!({"workflow": "echo", "input": {}, "session": session});
        let run = answer(world.post("/v1/runs?wait=10", &body)).await.body;
        assert_eq!(run["status"], "COMPLETED");
    }
    let all = answer(world.get("/v1/sessions")).await.body;
    let shown = |list: &Value| -> Vec<(String, u64)> {
        let sessions = list["sessions"].as_array().expect("sessions").iter();
        let shown = sessions.map(|session| {
            (
                session["id"].as_str().expect("an id").to_owned(),
                session["version"].as_u64().expect("a number"),
            )
        });
        shown.collect()
    };
    assert_eq!(
        shown(&all),
        [("a".to_owned(), 2), ("b".to_owned(), 1), ("c".to_owned(), 1)]
    );
    assert!(all["sessions"][0]["updatedAt"].as_u64() > Some(0) && all["sessions"][0]["lastRunId"].is_string());
    let first = answer(world.get("/v1/sessions?limit=2")).await.body;
    assert_eq!((shown(&first).len(), &first["next"]), (2, &json!("b")));
    let rest = answer(world.get("/v1/sessions?limit=2&after=b")).await.body;
    assert_eq!((shown(&rest), &rest["next"]), (vec![("c".to_owned(), 1)], &Value::Null));
    assert_eq!(
        refusal(world.get("/v1/sessions?limit=0")).await,
        (400, "INVALID_REQUEST".into())
    );
}
