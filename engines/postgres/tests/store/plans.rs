//! Number of rows that queries read.

use futures::executor::block_on;
use pirn_store::{Commit, Record, Store as _};
use std::time::{Duration, Instant};

use crate::server::Server;
use crate::{begin, open};

#[test]
fn reading_a_run_reads_no_journal_rows_of_other_runs() {
    const RUNS: u64 = 60;
    const STEPS: u64 = 100;
    let Some(server) = Server::shared() else { return };
    let url = server.prepared();
    let store = open(&url);
    let run = |number: u64| format!("run {number}");
    for number in 0..RUNS {
        begin(&store, &run(number));
        let steps = (0..STEPS).fold(Commit::after(run(number), 0), |commit, step| {
            commit.record(Record::new(1, format!("\"{step:0100}\"")))
        });
        assert_eq!(block_on(store.commit(steps)), Ok(STEPS));
    }
    for number in 0..RUNS {
        let read = block_on(store.journal(&run(number), 0, 1_000)).expect("is read");
        assert_eq!(read.len() as u64, STEPS);
    }
    drop(store);
    // A backend reports its statistics when it exits, some time after the connection was closed.
    let read =
        |column: &str| format!("(SELECT {column} FROM pg_stat_user_tables WHERE relid = 'pirn.journal'::regclass)");
    let is_told = format!("{} >= {}", read("idx_tup_fetch + seq_tup_read"), RUNS * STEPS);
    let until = Instant::now() + Duration::from_secs(20);
    while !server.is_so(&url, &is_told) && Instant::now() < until {}
    server.has(&url, &is_told);
    server.has(&url, &format!("{} = 0", read("seq_tup_read")));
}
