//! Runs in a Restate server.

#[path = "../../engines/restate/tests/server/mod.rs"]
mod server;

use std::time::Duration;

use pirn_restate::{Endpoint, RestateOptions, RestateStore};

use crate::in_servers;
use server::{Server, free_port};

fn open(server: &Server) -> RestateStore {
    let options = RestateOptions::default().admin(server.admin());
    RestateStore::connect(&server.url(), options).expect("connects")
}

/// Starts a server and a store that serves the objects to it. Returns `None` if the server is not available.
fn start() -> Option<(Server, RestateStore)> {
    let server = Server::start()?;
    let endpoint = Endpoint::at(([127, 0, 0, 1], free_port()).into());
    let options = RestateOptions::default().admin(server.admin()).endpoint(endpoint);
    let offering = RestateStore::connect(&server.url(), options).expect("connects");
    Some((server, offering))
}

#[test]
fn generated_workflows_say_and_come_to_the_same_in_restate_as_in_a_file() {
    let Some((server, _offering)) = start() else { return };
    in_servers::generated_workflows_say_and_come_to_the_same_as_in_a_file(open(&server));
}

#[test]
fn every_example_says_and_comes_to_the_same_in_restate_as_in_a_file() {
    let Some((server, _offering)) = start() else { return };
    in_servers::every_example_says_and_comes_to_the_same_as_in_a_file(open(&server));
}

#[test]
fn a_run_that_is_killed_at_a_commit_comes_to_the_same_in_restate() {
    let Some((server, _offering)) = start() else { return };
    in_servers::a_run_that_is_killed_at_a_commit_comes_to_the_same(|| open(&server));
}

#[test]
fn a_parked_run_keeps_its_claim_and_wakes_where_it_is_in_restate() {
    let Some((server, _offering)) = start() else { return };
    in_servers::a_parked_run_keeps_its_claim_and_wakes_where_it_is(|claim: Duration| {
        let options = RestateOptions::default().admin(server.admin()).claim(claim);
        RestateStore::connect(&server.url(), options).expect("connects")
    });
}
