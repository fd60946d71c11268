//! Log events of a run have spans that name its run, thread and node.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use pirn::{Engine, ThreadStatus};
use pirn_tests::world::{forked, node, workflow};
use serde_json::{Value, json};
use tokio::task::LocalSet;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The spans and events of a test, in order.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Spans>>);

#[derive(Default)]
struct Spans {
    made: Vec<Span>,
    entered: Vec<(ThreadId, u64)>,
    /// The span of each event.
    events: Vec<Option<u64>>,
    /// Spans of threads and runs that were open at the last event.
    open: Vec<String>,
}

struct Span {
    parent: Option<u64>,
    name: &'static str,
    fields: BTreeMap<&'static str, String>,
    held: usize,
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, Spans> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spans {
    fn at(&mut self, id: &Id) -> &mut Span {
        &mut self.made[id.into_u64() as usize - 1]
    }

    /// The span with its parents: `run w / thread w / node a model`.
    fn way(&self, id: u64) -> String {
        let Span {
            parent, name, fields, ..
        } = &self.made[id as usize - 1];
        let shown = ["workflow_id", "path_id", "node_id", "awaits"].map(|field| fields.get(field).cloned());
        let own = [Some((*name).to_owned())].into_iter().chain(shown).flatten();
        let own = own.collect::<Vec<_>>().join(" ");
        parent.map_or(own.clone(), |parent| format!("{} / {own}", self.way(parent)))
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["pirn_actors", "said"].contains(&metadata.target())
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut heard = self.lock();
        heard.made.push(Span {
            parent: attributes.parent().map(Id::into_u64),
            name: attributes.metadata().name(),
            fields: fields.0,
            held: 1,
        });
        Id::from_u64(heard.made.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let mut heard = self.lock();
        let own = std::thread::current().id();
        let inside = heard.entered.iter().rev().find(|(thread, _)| *thread == own);
        let inside = inside.map(|(_, span)| *span);
        heard.events.push(inside);
        // A node's span is held by its work, which another thread drops.
        let is_open = |id: &u64| heard.made[*id as usize - 1].held > 0 && heard.made[*id as usize - 1].name != "node";
        let open = (1..=heard.made.len() as u64).filter(is_open);
        heard.open = open.map(|id| heard.way(id)).collect();
    }

    fn enter(&self, id: &Id) {
        self.lock().entered.push((std::thread::current().id(), id.into_u64()));
    }

    fn exit(&self, id: &Id) {
        let mut heard = self.lock();
        let this = (std::thread::current().id(), id.into_u64());
        let place = heard.entered.iter().rposition(|one| *one == this);
        heard.entered.remove(place.expect("it was entered here"));
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.lock().at(id).held += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut heard = self.lock();
        let span = heard.at(&id);
        span.held -= 1;
        span.held == 0
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

fn bundle() -> Value {
    let ask = |id: &str| node(id, "LLM", json!({"prompt": "hello"}));
    let branches = [vec![ask("ask")], vec![node("log", "CODE", json!({"function": "log"}))]];
    let mut main = forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"}));
    main["nodes"]
        .as_array_mut()
        .expect("a list")
        .push(node("after", "CODE", json!({"function": "log"})));
    let edges = main["edges"].as_array_mut().expect("a list");
    let last = edges.iter_mut().find(|edge| edge["to"] == "end").expect("the last");
    last["to"] = json!("after");
    edges.push(json!({"from": "after", "to": "end"}));
    main["triggers"] = json!([{
        "id": "asked", "type": "EVENT",
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId == 'ask'"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {
            "triggeredWorkflowId": "watcher", "waitForCompletion": true}}}]);
    let nodes = [
        node("begin", "START_FROM_TRIGGER", json!({})),
        ask("note"),
        node("back", "CONTINUE_FROM_TRIGGER", json!({})),
    ];
    let watcher = workflow("watcher", &nodes, &["begin>note>back"]);
    json!({"workflows": [main, watcher], "profiles": [{"id": "default", "provider": "echo"}]})
}

#[test]
fn a_run_has_spans_for_itself_its_threads_and_its_waiting_nodes() {
    let heard = Heard::default();
    // With a single dispatcher in the process, tracing asks the default one of the thread that reaches a span first. That may be
    // another test's thread, which has none, and the span would stay disabled here.
    let _second = tracing::Dispatch::new(heard.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (run_id, thread_id) = tracing::subscriber::with_default(heard.clone(), || {
        LocalSet::new().block_on(&runtime, async {
            let builder = Engine::builder().local().workflows(bundle().to_string());
            let builder = builder.function("log", |_| {
                tracing::info!(target: "said", "here");
                Ok(Value::Null)
            });
            let engine = builder.build().unwrap_or_else(|error| panic!("{error}"));
            let run = engine.start("forked", Value::Null).expect("it is admitted");
            let report = run.outcome().await;
            assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
            run.wait_all_ended().await;
            engine.shutdown(Duration::from_secs(5)).await;
            (report.run_id.clone(), report.thread_id.clone())
        })
    });
    let heard = heard.lock();
    let mut ways: Vec<String> = (1..=heard.made.len() as u64).map(|id| heard.way(id)).collect();
    ways.sort();
    assert_eq!(
        ways,
        [
            "run forked",
            "run forked / thread forked",
            "run forked / thread forked / thread forked p0",
            "run forked / thread forked / thread forked p0 / node ask model",
            "run forked / thread forked / thread forked p1",
            "run forked / thread watcher",
            "run forked / thread watcher / node note model",
        ]
    );
    assert_eq!(heard.made[0].fields["run_id"], run_id);
    let first = heard.made.iter().find(|span| span.name == "thread");
    assert_eq!(first.map(|span| &*span.fields["thread_id"]), Some(&*thread_id));
    let said: Vec<String> = heard.events.iter().flatten().map(|span| heard.way(*span)).collect();
    let (branch, main) = (
        "run forked / thread forked / thread forked p1",
        "run forked / thread forked",
    );
    assert_eq!(said, [branch, main]);
    assert_eq!(heard.open, ["run forked", main], "a span ends with its thread");
    assert!(heard.entered.is_empty(), "every span was left");
    assert!(heard.made.iter().all(|span| span.held == 0), "every span was closed");
}
