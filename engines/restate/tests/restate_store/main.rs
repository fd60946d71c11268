//! The store in Restate, against a real server.
#![allow(clippy::disallowed_methods, reason = "processes live by the real clock")]

#[path = "../server/mod.rs"]
mod server;

use pirn_restate::{Endpoint, RestateOptions, RestateStore};
use pirn_store::{Store, conformance};

use server::{Server, free_port};

fn open(server: &Server, port: u16) -> RestateStore {
    let endpoint = Endpoint::at(([127, 0, 0, 1], port).into());
    let options = RestateOptions::default().admin(server.admin()).endpoint(endpoint);
    RestateStore::connect(&server.url(), options).expect("connects")
}

#[test]
fn every_promise_is_kept_in_restate() {
    if Server::start().is_none() {
        return;
    }
    conformance::check(|name| {
        eprintln!("{name}");
        let (server, port) = (Server::start().expect("starts"), free_port());
        Box::new(move || Box::new(open(&server, port)) as Box<dyn Store>)
    });
}
