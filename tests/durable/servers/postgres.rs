//! Runs in PostgreSQL.

use std::time::Duration;

use pirn_postgres::{PostgresOptions, PostgresStore};

use super::in_servers;
use crate::durable::faults::external_effects::Outside;
use crate::durable::faults::failing_store::{Crash, Failing};
use crate::durable::server::Server;
use crate::durable::workflows;

fn open(url: &str) -> PostgresStore {
    PostgresStore::connect(url, PostgresOptions::default()).expect("connects")
}

/// Returns a server and the URL of a migrated database; `None` if PostgreSQL is not installed.
fn start() -> Option<(&'static Server, String)> {
    let server = Server::shared()?;
    Some((server, server.prepared()))
}

#[test]
fn generated_workflows_behave_equally_in_postgresql_and_in_a_file() {
    let Some((_server, url)) = start() else { return };
    in_servers::generated_workflows_behave_equally_in_a_server_and_in_a_file(open(&url));
}

#[test]
fn every_example_behaves_equally_in_postgresql_and_in_a_file() {
    let Some((_server, url)) = start() else { return };
    in_servers::every_example_behaves_equally_in_a_server_and_in_a_file(open(&url));
}

#[test]
fn a_run_killed_at_a_commit_resumes_with_an_unchanged_result_in_postgresql() {
    let Some((_server, url)) = start() else { return };
    in_servers::a_run_killed_at_a_commit_resumes_with_an_unchanged_result(|| open(&url));
}

#[test]
fn a_parked_run_renews_its_claim_and_resumes_in_its_process_in_postgresql() {
    let Some((_server, url)) = start() else { return };
    in_servers::a_parked_run_renews_its_claim_and_resumes_in_its_process(|claim: Duration| {
        PostgresStore::connect(&url, PostgresOptions::default().claim(claim)).expect("connects")
    });
}

#[test]
fn a_run_is_paused_and_pinned_through_another_process_with_postgresql() {
    let Some((_server, url)) = start() else { return };
    in_servers::a_run_is_paused_and_pinned_through_another_process(|| open(&url));
}

#[test]
fn a_run_with_a_step_that_postgresql_refuses_is_offered_again_only_after_a_delay() {
    let Some((server, url)) = start() else { return };
    let store = Failing::new(open(&url), Crash::Before(1));
    let bundle = workflows::all().swap_remove(0);
    assert!(!Outside::default().play(&bundle, &store), "it does not come to its end");
    // Dropping the store waits until its commands are executed, and closes its last connection.
    drop(store);
    let put_off = "SELECT count(*) FROM absurd.r_pirn WHERE state = 'sleeping' AND available_at > absurd.current_time() + interval '1 second'";
    server.sql(
        &url,
        &format!("DO $$ BEGIN ASSERT ({put_off}) = 1, 'it is offered at once'; END $$"),
    );
}
