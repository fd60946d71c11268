//! Delays of runs that do not progress.

use futures::executor::block_on;
use pirn_store::{Assignment, Claims as _, Store as _};

use crate::server::Server;
use crate::{begin, open};

#[test]
fn a_run_without_progress_is_offered_with_growing_delay_and_can_be_claimed_at_once() {
    let Some(server) = Server::shared() else { return };
    let url = server.prepared();
    let store = open(&url);
    begin(&store, "stuck");
    let is_offered_after = |seconds: u32| {
        store.release("stuck", 5_000);
        // Commands of one run are executed in FIFO order: the release is done when this read returns.
        block_on(store.run("stuck")).expect("is read");
        let from_now = "SELECT extract(epoch FROM available_at - absurd.current_time()) FROM absurd.r_pirn WHERE state = 'sleeping'";
        server.has(&url, &format!("({from_now}) BETWEEN 0.4 * {seconds} AND {seconds}"));
        block_on(store.claim("stuck")).expect("is free");
    };
    for seconds in [5, 10, 20, 40, 80, 160, 300, 300] {
        is_offered_after(seconds);
    }
    // Simulates an hour without a put-off, which resets the delay.
    server.sql(
        &url,
        "UPDATE pirn.runs SET returned_at = returned_at - interval '61 minutes'",
    );
    is_offered_after(5);
    is_offered_after(10);
    // A release without a delay offers the run at once.
    let other = open(&url);
    other.carry(8);
    store.release("stuck", 0);
    assert_eq!(block_on(other.assigned()), Ok(Assignment::Run("stuck".to_owned())));
}
