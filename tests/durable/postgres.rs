//! Runs in PostgreSQL.

use std::time::Duration;

use pirn_postgres::{PostgresOptions, PostgresStore};

use crate::in_servers;
use crate::server::Server;

fn open(url: &str) -> PostgresStore {
    PostgresStore::connect(url, PostgresOptions::default()).expect("connects")
}

/// A server, and a database in it that is set up; none where PostgreSQL is not installed.
fn start() -> Option<(Server, String)> {
    let server = Server::start_unsynced()?;
    let url = server.database();
    server.set_up(&url);
    Some((server, url))
}

#[test]
fn generated_workflows_say_and_come_to_the_same_in_postgresql_as_in_a_file() {
    let Some((_server, url)) = start() else { return };
    in_servers::generated_workflows_say_and_come_to_the_same_as_in_a_file(open(&url));
}

#[test]
fn every_example_says_and_comes_to_the_same_in_postgresql_as_in_a_file() {
    let Some((_server, url)) = start() else { return };
    in_servers::every_example_says_and_comes_to_the_same_as_in_a_file(open(&url));
}

#[test]
fn a_run_that_is_killed_at_a_commit_comes_to_the_same_in_postgresql() {
    let Some((_server, url)) = start() else { return };
    in_servers::a_run_that_is_killed_at_a_commit_comes_to_the_same(|| open(&url));
}

#[test]
fn a_parked_run_keeps_its_claim_and_wakes_where_it_is_in_postgresql() {
    let Some((_server, url)) = start() else { return };
    in_servers::a_parked_run_keeps_its_claim_and_wakes_where_it_is(|claim: Duration| {
        PostgresStore::connect(&url, PostgresOptions::default().claim(claim)).expect("connects")
    });
}
