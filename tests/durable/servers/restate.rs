//! Runs in a Restate server.

#[path = "../../../engines/restate/tests/server/mod.rs"]
mod server;

use std::time::Duration;

use pirn_restate::{Endpoint, RestateOptions, RestateStore};

use super::in_servers;
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
fn generated_workflows_behave_equally_in_restate_and_in_a_file() {
    let Some((server, _offering)) = start() else { return };
    in_servers::generated_workflows_behave_equally_in_a_server_and_in_a_file(open(&server));
}

#[test]
fn every_example_behaves_equally_in_restate_and_in_a_file() {
    let Some((server, _offering)) = start() else { return };
    in_servers::every_example_behaves_equally_in_a_server_and_in_a_file(open(&server));
}

#[test]
fn a_run_killed_at_a_commit_resumes_with_an_unchanged_result_in_restate() {
    let Some((server, _offering)) = start() else { return };
    in_servers::a_run_killed_at_a_commit_resumes_with_an_unchanged_result(|| open(&server));
}

#[test]
fn a_run_is_paused_and_pinned_through_another_process_with_restate() {
    let Some((server, _offering)) = start() else { return };
    in_servers::a_run_is_paused_and_pinned_through_another_process(|| open(&server));
}

#[test]
fn a_parked_run_renews_its_claim_and_resumes_in_its_process_in_restate() {
    let Some((server, _offering)) = start() else { return };
    in_servers::a_parked_run_renews_its_claim_and_resumes_in_its_process(|claim: Duration| {
        let options = RestateOptions::default().admin(server.admin()).claim(claim);
        RestateStore::connect(&server.url(), options).expect("connects")
    });
}
