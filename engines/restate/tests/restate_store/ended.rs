//! Commits that are killed or cancelled by the server's tools while they run.

use futures::executor::block_on;
use pirn_restate::RestateStore;
use pirn_store::{Pending, Store as _};

use crate::requests::{curl, query, wait_for};
use crate::server::{Server, free_port};
use crate::{begun, connect, open, step};

/// Returns the id of the pending commit.
fn commit_under_way(server: &Server) -> String {
    let sql = "select id from sys_invocation where target_service_name = 'PirnRun' and target_handler_name like 'commit%' \
        and status <> 'completed'";
    wait_for("no commit is under way", || {
        query(server, sql)[0]["id"].as_str().map(str::to_owned)
    })
}

/// Starts a commit and kills or cancels its invocation.
fn ended(server: &Server, store: &RestateStore, after: u64, how: &str) -> Pending<u64> {
    let commit = store.commit(step("run", after, 300));
    let id = commit_under_way(server);
    let url = format!("{}/invocations/{id}/{how}", server.admin());
    assert!(curl(&["-X", "PATCH", &url]).is_some(), "{how} is done");
    commit
}

fn steps(store: &RestateStore) -> u64 {
    let run = block_on(store.run("run")).expect("is read").expect("is there");
    let journal = block_on(store.journal("run", 0, 100)).expect("is read");
    assert_eq!(journal.len() as u64, run.steps);
    run.steps
}

#[test]
fn a_killed_or_cancelled_commit_call_is_an_error_and_its_run_can_continue() {
    let Some(server) = Server::start() else { return };
    let port = free_port();
    let offering = open(&server, port);
    let store = connect(&server);
    block_on(store.commit(begun("run"))).expect("begins");
    assert_eq!(block_on(store.commit(step("run", 0, 300))), Ok(1));
    // No worker is connected: the call waits.
    drop(offering);
    let killed = block_on(ended(&server, &store, 1, "kill")).expect_err("it was killed");
    assert_eq!(killed.code(), "STORE_ERROR");
    assert!(killed.to_string().contains("killed"), "{killed}");
    let cancelled = ended(&server, &store, 1, "cancel");
    let _offering = open(&server, port);
    // The commit may have been completed before the cancellation arrived.
    let cancelled = block_on(cancelled);
    assert!(
        cancelled == Ok(2) || cancelled.as_ref().is_err_and(|error| error.code() == "STORE_ERROR"),
        "{cancelled:?}"
    );
    let kept = steps(&store);
    assert!(kept == 2 || (kept == 1 && cancelled.is_err()), "{kept}");
    assert_eq!(block_on(store.commit(step("run", kept, 300))), Ok(kept + 1));
    assert_eq!(steps(&store), kept + 1);
    // The drop releases the run, which needs a worker: `_offering` is still open.
    drop(store);
}
