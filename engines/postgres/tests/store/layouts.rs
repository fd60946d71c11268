//! Upgrades of databases with an earlier layout.

use std::time::{Duration, Instant};

use futures::executor::block_on;
use pirn_postgres::{PostgresOptions, PostgresStore};
use pirn_store::{Claims as _, Store};

use crate::server::Server;
use crate::{begin, open, step};

/// Creates a database of layout 1 with an orphaned run of two steps.
fn first_layout(server: &Server) -> String {
    let url = server.prepared();
    server.sql(&url, "DROP SCHEMA pirn CASCADE");
    server.sql(&url, include_str!("layout-1.sql"));
    server.sql(
        &url,
        "SELECT pirn.commit('00000000-0000-0000-0000-000000000001', 1, null, 'first', 30, \
            jsonb_build_object('run', 'kept', 'start', jsonb_build_object('workflow', 'flow', 'definition', encode(sha256('{}'), 'hex'), \
              'contents', '[]'::jsonb, 'semantics', 1, 'startedAt', 1, 'isCarried', false, 'maxForks', 64)), \
            '{1,2}', '{null,null}', '{\"one\",\"two\"}', array[sha256('{}')], '{\"{}\"}', '{}', null, null, null)",
    );
    url
}

#[test]
fn a_database_with_the_first_layout_is_refused_until_migrated_without_data_loss() {
    let Some(server) = Server::shared() else { return };
    let url = first_layout(server);
    let refused = PostgresStore::connect(&url, PostgresOptions::default()).expect_err("is of an earlier layout");
    assert_eq!(refused.code(), "NOT_SET_UP", "{refused}");
    assert!(server.set_up(&url), "something was made");
    assert!(!server.set_up(&url), "and nothing the second time");
    let store = open(&url);
    let kept = block_on(store.journal("kept", 0, 10)).expect("is read");
    let bodies: Vec<&str> = kept.iter().map(|record| &*record.body).collect();
    assert_eq!(bodies, ["one", "two"]);
    // These calls use a column, a table and functions of later layouts.
    block_on(store.claim("kept")).expect("is free");
    assert_eq!(block_on(store.commit(step("kept", 2))), Ok(3));
    store.release("kept", 1_000);
    assert_eq!(
        block_on(store.settle("name", "value".to_owned(), 3)),
        Ok("value".to_owned())
    );
    begin(&store, "another");
    assert_eq!(block_on(store.commit(step("another", 0))), Ok(1));
}

#[test]
fn a_database_in_use_is_not_migrated() {
    let Some(server) = Server::shared() else { return };
    let url = server.prepared();
    let options = PostgresOptions::default().patience(Duration::ZERO);
    let store = PostgresStore::connect(&url, options).expect("connects");
    begin(&store, "run");
    // The store stays connected, and the layout is set back to an earlier one.
    server.sql(&url, "UPDATE pirn.layout SET version = 1");
    let refused = server.try_set_up(&url).expect_err("somebody works with it");
    assert_eq!(refused.code(), "WRONG_SCHEMA", "{refused}");
    server.has(&url, "(SELECT version FROM pirn.layout) = 1");
    drop(store);
    // `pg_stat_activity` lists closed connections for a short time.
    let until = Instant::now() + Duration::from_secs(20);
    let mut made = server.try_set_up(&url);
    while made.is_err() && Instant::now() < until {
        made = server.try_set_up(&url);
    }
    assert_eq!(made, Ok(true));
}
