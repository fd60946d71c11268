//! Commits through the open call of a run, and names of the contents of starting runs.

use futures::executor::block_on;
use pirn_restate::RestateStore;
use pirn_store::{Assignment, Claims as _, Commit, Content, NewRun, Record, RunStatus, Store as _, StoreError};
use serde_json::json;

use crate::requests::{curl, query, wait_for};
use crate::server::{Server, free_port};
use crate::{open, step};

/// Returns the id and the journal length of the run's open call.
fn open_call(server: &Server, run: &str) -> Option<(String, u64)> {
    let rows = query(
        server,
        &format!(
            "select id, journal_size from sys_invocation where target_service_name = 'PirnRun' and target_service_key = '{run}' \
            and target_handler_name = 'own' and status <> 'completed'"
        ),
    );
    Some((rows[0]["id"].as_str()?.to_owned(), rows[0]["journal_size"].as_u64()?))
}

/// Starts a run without an owner, which the store then owns.
fn assigned(store: &RestateStore, run: &str) {
    let definition = Content::new("{}");
    let start = Commit::start(run, NewRun::new("flow", definition.hash(), 1)).content(definition);
    block_on(store.commit(start)).expect("begins");
    assert_eq!(block_on(store.assigned()), Ok(Assignment::Run(run.to_owned())));
}

fn bodies(store: &RestateStore, run: &str) -> Vec<String> {
    let journal = block_on(store.journal(run, 0, 1_000)).expect("is read");
    journal.into_iter().map(|record| record.body).collect()
}

#[test]
fn the_commits_of_an_assigned_run_share_one_call() {
    let Some(server) = Server::start() else { return };
    let store = open(&server, free_port());
    store.carry(1_000);
    let mut runs = (0..).map(|number| format!("run {number}"));
    // The call ends if this process is slower than its timeout, so the observation is repeated with further runs.
    wait_for("no call executes several commits", || {
        let run = runs.next().expect("endless");
        assigned(&store, &run);
        for after in 0..10 {
            assert_eq!(block_on(store.commit(step(&run, after, 300))), Ok(after + 1));
        }
        // Each commit is an entry for its input and one for its record at least.
        open_call(&server, &run).filter(|(_, entries)| *entries > 20)
    });
}

#[test]
fn an_acknowledged_commit_is_read_at_once_and_a_cancelled_killed_or_idle_call_loses_none() {
    let Some(server) = Server::start() else { return };
    let store = open(&server, free_port());
    store.carry(100);
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for number in 0..12 {
        let run = format!("run-{number}");
        assigned(&store, &run);
        let mut expected: Vec<String> = Vec::new();
        for _ in 0..12 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            match random % 8 {
                0 => wait_for("the idle call does not end", || {
                    open_call(&server, &run).is_none().then_some(())
                }),
                how @ (1 | 2) => {
                    // Read first: then the state includes all acknowledged commits before the call is killed.
                    assert_eq!(bodies(&store, &run), expected);
                    if let Some((call, _)) = open_call(&server, &run) {
                        let how = if how == 1 { "cancel" } else { "kill" };
                        let url = format!("{}/invocations/{call}/{how}", server.admin());
                        // It may have ended since.
                        curl(&["-X", "PATCH", &url]);
                    }
                }
                3 => {
                    let read = block_on(store.run(&run)).expect("is read").expect("is there");
                    assert_eq!(read.steps, expected.len() as u64, "{run}");
                }
                _ => {
                    let body = format!("\"{}\"", expected.len());
                    let commit = Commit::after(&run, expected.len() as u64).record(Record::new(1, &body));
                    expected.push(body);
                    assert_eq!(block_on(store.commit(commit)), Ok(expected.len() as u64), "{run}");
                }
            }
        }
        let end = Commit::after(&run, expected.len() as u64).record(Record::new(2, "\"end\""));
        block_on(store.commit(end.status(RunStatus::Completed))).expect("ends");
        expected.push("\"end\"".to_owned());
        let read = block_on(store.run(&run)).expect("is read").expect("is there");
        assert_eq!((read.status, read.steps), (RunStatus::Completed, expected.len() as u64));
        assert_eq!(bodies(&store, &run), expected);
        block_on(store.ended(&run)).expect("has ended");
    }
}

#[test]
fn a_start_that_is_refused_leaves_none_of_its_contents() {
    let Some(server) = Server::start() else { return };
    let store = open(&server, free_port());
    let start = |input: &Content| {
        let definition = Content::new("{}");
        let mut new = NewRun::new("flow", definition.hash(), 1);
        new.contents = vec![input.hash()];
        new.is_carried = true;
        block_on(store.commit(Commit::start("run", new).content(definition).content(input.clone())))
    };
    let (first, second) = (Content::new("\"first\""), Content::new("\"second\""));
    start(&first).expect("begins");
    assert!(matches!(start(&second), Err(StoreError::RunExists { .. })));
    let sql = format!(
        "select key from state where service_name = 'PirnContent' and service_key = '{}'",
        second.hash()
    );
    wait_for("the content stays stored", || {
        (query(&server, &sql) == json!([])).then_some(())
    });
    let texts = block_on(store.contents(vec![first.hash(), Content::new("{}").hash()])).expect("are there");
    assert_eq!(
        texts.iter().map(|text| &**text).collect::<Vec<_>>(),
        ["\"first\"", "{}"]
    );
}

#[test]
fn a_content_of_runs_that_start_at_once_is_freed_with_the_last_of_them() {
    const RUNS: usize = 60;
    let Some(server) = Server::start() else { return };
    let store = open(&server, free_port());
    let definition = Content::new(format!("{{\"a\": \"{}\"}}", "x".repeat(1_000)));
    let ids: Vec<String> = (0..RUNS).map(|number| format!("run-{number}")).collect();
    let starts: Vec<_> = ids
        .iter()
        .map(|id| {
            let mut new = NewRun::new("flow", definition.hash(), 1);
            new.is_carried = true;
            store.commit(
                Commit::start(id, new)
                    .content(definition.clone())
                    .status(RunStatus::Completed),
            )
        })
        .collect();
    for start in starts {
        block_on(start).expect("begins");
    }
    let read = || block_on(store.contents(vec![definition.hash()]));
    for some in [&ids[..RUNS - 1], &ids[RUNS - 1..]] {
        assert_eq!(*read().expect("a run is left")[0], **definition.text());
        let would = block_on(store.remove(some.to_vec(), true)).expect("is computed");
        let removed = block_on(store.remove(some.to_vec(), false)).expect("is removed");
        assert_eq!(would, removed);
    }
    assert!(matches!(read(), Err(StoreError::NoSuchContent { .. })));
}
