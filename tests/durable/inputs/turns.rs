//! The cost of a turn of a session in bytes written and read does not depend on the length of the session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::executor::block_on;
use pirn::store::{Commit, ContentHash, MemoryStore, Pending, Session, Store, StoreError, forward_to_store};
use pirn::{Engine, ThreadStatus};
use serde_json::{Value, json};

/// A store that counts the bytes written, and the bytes of contents and records read.
#[derive(Clone, Default)]
struct Counting {
    kept: MemoryStore,
    written: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
}

impl Counting {
    fn took(&self) -> (u64, u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.written), take(&self.read))
    }
}

fn bytes_of(commit: &Commit) -> usize {
    let records = commit.records.iter().map(|record| record.body.len());
    let contents = commit.contents.iter().map(|content| content.text().len());
    let session = commit
        .session
        .iter()
        .map(|session| session.body.len() + session.contents.len() * ContentHash::LEN);
    let started = match &commit.follows {
        pirn::store::Precondition::Start(new) => new.contents.len() * ContentHash::LEN,
        pirn::store::Precondition::Step(_) => 0,
    };
    records.chain(contents).chain(session).sum::<usize>() + started + commit.names.len() * ContentHash::LEN
}

impl Store for Counting {
    forward_to_store!(kept: location claims run runs journal snapshot timers sessions set_meta meta remove remove_session);

    fn commit(&self, commit: Commit) -> Pending<u64> {
        self.written.fetch_add(bytes_of(&commit) as u64, Ordering::Relaxed);
        self.kept.commit(commit)
    }
    fn contents(&self, hashes: Vec<ContentHash>) -> Pending<Vec<Arc<str>>> {
        let (kept, read) = (self.kept.contents(hashes), Arc::clone(&self.read));
        Box::pin(async move {
            let texts = kept.await?;
            let bytes: usize = texts.iter().map(|text| text.len()).sum();
            read.fetch_add(bytes as u64, Ordering::Relaxed);
            Ok::<_, StoreError>(texts)
        })
    }
    fn chain(&self, last: ContentHash, limit: usize) -> Pending<Vec<ContentHash>> {
        let (kept, read) = (self.kept.chain(last, limit), Arc::clone(&self.read));
        Box::pin(async move {
            let chain = kept.await?;
            read.fetch_add((chain.len() * ContentHash::LEN) as u64, Ordering::Relaxed);
            Ok::<_, StoreError>(chain)
        })
    }
    fn session(&self, id: &str) -> Pending<Option<Session>> {
        let (kept, read) = (self.kept.session(id), Arc::clone(&self.read));
        Box::pin(async move {
            let session = kept.await?;
            let bytes = session.as_ref().map_or(0, |session| session.body.len());
            read.fetch_add(bytes as u64, Ordering::Relaxed);
            Ok::<_, StoreError>(session)
        })
    }
}

/// Returns a workflow for one turn of a chat: the user's message, and the offline model's reply to the last ten messages.
fn chat(compresses: bool) -> String {
    let mut nodes = vec![
        json!({"id": "start", "type": "START"}),
        json!({"id": "ask", "type": "LLM", "config": {"prompt": "{{input}}"}}),
    ];
    if compresses {
        let truncate = json!({"operation": "truncate", "truncate": {"keepLast": 2}});
        nodes.push(json!({"id": "shorten", "type": "CONTEXT_PROCESSOR", "config": truncate}));
    }
    nodes.push(json!({"id": "end", "type": "END", "config": {"output": "'done'"}}));
    let ids: Vec<Value> = nodes.iter().map(|node| node["id"].clone()).collect();
    let edges: Vec<Value> = ids
        .windows(2)
        .map(|pair| json!({"from": pair[0], "to": pair[1]}))
        .collect();
    json!({"id": "chat", "nodes": nodes, "edges": edges}).to_string()
}

fn engine(store: &(impl Store + Clone), compresses: bool) -> Engine {
    let engine = Engine::builder().workflows(chat(compresses)).store(store.clone());
    engine.virtual_time(None).build().expect("builds")
}

fn say(engine: &Engine, turn: usize) {
    let run = engine.run("chat").run_id(format!("turn-{turn}"));
    let run = run
        .input(format!("{turn:08} {}", "what I say ".repeat(10)))
        .session("s");
    let report = run.start().expect("starts").outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed, "{report:?}");
    assert_eq!(report.conversation.messages.len(), 2 * (turn + 1));
    // The form in which the service returns the report.
    let shown = serde_json::to_string(&*report).expect("is JSON");
    assert!(shown.len() < 4_000, "turn {turn}: a report of {} bytes", shown.len());
}

/// Returns the bytes that ten turns write and read, after each number of previous turns.
fn costs(store: &Counting, engine: &Engine, after: &[usize]) -> Vec<(u64, u64)> {
    let mut turn = 0;
    let cost = after.iter().map(|after| {
        while turn < *after {
            say(engine, turn);
            turn += 1;
        }
        store.took();
        for _ in 0..10 {
            say(engine, turn);
            turn += 1;
        }
        store.took()
    });
    cost.collect()
}

#[test]
fn a_turn_writes_and_reads_as_many_bytes_after_1000_turns_as_after_10() {
    for compresses in [false, true] {
        let store = Counting::default();
        let engine = engine(&store, compresses);
        let costs = costs(&store, &engine, &[10, 100, 1_000]);
        println!("{costs:?}");
        for (written, read) in &costs {
            assert!(written * 10 <= costs[0].0 * 11, "compressed: {compresses}: {costs:?}");
            assert!(read * 10 <= costs[0].1 * 11, "compressed: {compresses}: {costs:?}");
        }
    }
}

#[test]
fn another_process_reads_a_conversation_once_and_then_only_additions() {
    let store = Counting::default();
    let first = engine(&store, false);
    (0..200).for_each(|turn| say(&first, turn));
    let second = engine(&store, false);
    store.took();
    say(&second, 200);
    let (_, whole) = store.took();
    say(&first, 201);
    let (_, added) = store.took();
    say(&second, 202);
    let (_, added_again) = store.took();
    assert!(whole > 200 * 200, "{whole} bytes");
    assert!(
        added < 3_000 && added_again < 3_000,
        "{added} and {added_again} of {whole} bytes"
    );
}

#[test]
fn a_conversation_read_from_a_store_equals_the_one_that_its_runs_saved() {
    for compresses in [false, true] {
        let store = Counting::default();
        let first = engine(&store, compresses);
        (0..70).for_each(|turn| say(&first, turn));
        let left = block_on(first.session("s")).expect("is read");
        let found = block_on(engine(&store, compresses).session("s")).expect("is read");
        assert_eq!(found.conversation, left.conversation, "compressed: {compresses}");
        assert_eq!((found.version, &found.variables), (left.version, &left.variables));
        // A view of an earlier run shows the conversation that the run started with.
        let view = block_on(first.view("turn-30", None)).expect("is read");
        assert_eq!(view.report.conversation.messages.len(), 62, "compressed: {compresses}");
        let shown: Vec<_> = view
            .report
            .conversation
            .messages
            .iter()
            .map(|message| message.content.clone())
            .collect();
        let all: Vec<_> = left
            .conversation
            .complete()
            .messages()
            .iter()
            .map(|message| message.content.clone())
            .collect();
        assert_eq!(shown[..], all[..62]);
    }
}
