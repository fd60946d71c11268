//! The store in PostgreSQL, against a real server.

#[path = "../server/mod.rs"]
mod server;

use pirn_postgres::{PostgresOptions, PostgresStore};
use pirn_store::Store;
use pirn_store::conformance;

use server::Server;

fn open(url: &str) -> PostgresStore {
    PostgresStore::connect(url, PostgresOptions::default()).expect("connects")
}

#[test]
fn every_promise_is_kept_in_postgresql() {
    let Some(server) = Server::start() else { return };
    conformance::check(|name| {
        let url = server.database();
        server.set_up(&url);
        eprintln!("{name}");
        Box::new(move || Box::new(open(&url)) as Box<dyn Store>)
    });
}
