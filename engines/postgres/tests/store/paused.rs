//! Processes that were paused for longer than their claims last.

use std::time::{Duration, Instant};

use futures::executor::block_on;
use pirn_postgres::{PostgresOptions, PostgresStore};
use pirn_store::{Claims as _, StoreError};

use crate::begin;
use crate::server::Server;

#[test]
fn an_idle_process_is_notified_that_another_process_claimed_its_run() {
    let Some(server) = Server::shared() else { return };
    let url = server.prepared();
    let open = || {
        let options = PostgresOptions::default().claim(Duration::from_secs(1));
        PostgresStore::connect(&url, options).expect("connects")
    };
    let (first, other) = (open(), open());
    begin(&first, "r");
    assert_eq!(block_on(first.verify("r")), Ok(()));
    assert_eq!(block_on(first.verify("nobody's")), Ok(()));
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        // Expires the claim in the database: the first process still runs and extends it by heartbeats.
        server.sql(
            &url,
            "UPDATE absurd.r_pirn SET claim_expires_at = absurd.current_time() - interval '1 second' WHERE state = 'running'",
        );
        match block_on(other.claim("r")) {
            Ok(()) => break,
            Err(StoreError::RunHeld { .. }) => assert!(Instant::now() < until, "it is never free"),
            Err(error) => panic!("{error}"),
        }
    }
    let lost = Err(StoreError::RunLost { run: "r".to_owned() });
    while block_on(first.verify("r")) != lost {
        assert!(Instant::now() < until, "it is never told");
    }
    assert_eq!(block_on(other.verify("r")), Ok(()));
}
