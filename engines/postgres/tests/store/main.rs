//! Tests of the store against a real server.
#![allow(clippy::disallowed_methods, reason = "a server lives by the real clock")]

mod backoff;
mod connections;
mod layouts;
mod paused;
mod plans;
mod pooler;
#[path = "../server/mod.rs"]
mod server;

use futures::executor::block_on;
use futures::future::join_all;
use pirn_postgres::{PostgresOptions, PostgresStore};
use pirn_store::{Commit, Content, NewRun, Record, Store, conformance};

use server::Server;

fn open(url: &str) -> PostgresStore {
    PostgresStore::connect(url, PostgresOptions::default()).expect("connects")
}

/// Starts a run that this store owns.
fn begin(store: &PostgresStore, run: &str) {
    let definition = Content::new("{}");
    let mut new = NewRun::new("flow", definition.hash(), 1);
    new.is_carried = true;
    block_on(store.commit(Commit::start(run, new).content(definition))).expect("begins");
}

fn step(run: &str, after: u64) -> Commit {
    Commit::after(run, after).record(Record::new(1, format!("\"step {after}\"")))
}

fn asserted(condition: &str) -> String {
    format!("DO $$ BEGIN ASSERT ({condition}), 'it is not so'; END $$")
}

impl Server {
    /// Fails if a condition is false in the database.
    fn has(&self, url: &str, condition: &str) {
        self.sql(url, &asserted(condition));
    }

    fn is_so(&self, url: &str, condition: &str) -> bool {
        self.try_sql(url, &asserted(condition)).is_ok()
    }
}

#[test]
fn the_store_contract_holds_in_postgresql() {
    let Some(server) = Server::shared() else { return };
    conformance::check(|name| {
        let url = server.prepared();
        eprintln!("{name}");
        Box::new(move || Box::new(open(&url)) as Box<dyn Store>)
    });
}

#[test]
fn a_settled_name_has_one_value_for_all_processes_until_evicted() {
    let Some(server) = Server::shared() else { return };
    let url = server.prepared();
    let stores: Vec<PostgresStore> = (0..4).map(|_| open(&url)).collect();
    let claims = |of: usize| stores[of].claims().expect("several share it");
    let settle = |of: usize, name: &str, value: &str| claims(of).settle(name, value.to_owned(), 3);
    let value = |name: &str| block_on(settle(0, name, "another")).expect("is settled");
    for round in 0..25 {
        let name = format!("name {round}");
        let asked = (0..stores.len()).map(|of| settle(of, &name, &format!("of {of}")));
        let values = block_on(join_all(asked.collect::<Vec<_>>()));
        let values: Vec<String> = values.into_iter().map(|value| value.expect("is settled")).collect();
        assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
        for last in [round, round - 1, round - 2].into_iter().filter(|last| *last >= 0) {
            assert_ne!(value(&format!("name {last}")), "another", "forgotten after {name}");
        }
    }
    assert_eq!(value("name 0"), "another", "it was forgotten");
    let unsettle = |value: &str| block_on(claims(1).unsettle("name 0", value.to_owned())).expect("is done");
    unsettle("another value");
    assert_eq!(
        block_on(settle(2, "name 0", "the next")).expect("is settled"),
        "another"
    );
    unsettle("another");
    assert_eq!(
        block_on(settle(2, "name 0", "the next")).expect("is settled"),
        "the next"
    );
}

#[test]
fn a_process_finds_the_address_of_the_owner_of_a_run() {
    const ADDRESS: &str = "http://svc-a:7474/pirn";
    let Some(server) = Server::shared() else { return };
    let url = server.prepared();
    let options = PostgresOptions::default().advertise(ADDRESS);
    let owner = PostgresStore::connect(&url, options).expect("connects");
    let (other, silent) = (open(&url), open(&url));
    let address = |store: &PostgresStore, run: &str| {
        let claims = store.claims().expect("several share it");
        block_on(claims.owner_address(run)).expect("the server answers")
    };
    begin(&owner, "run");
    begin(&silent, "silent");
    assert_eq!(address(&other, "run").as_deref(), Some(ADDRESS));
    assert_eq!(address(&owner, "run"), None, "the run is its own");
    assert_eq!(address(&other, "silent"), None, "the owner advertises no address");
    assert_eq!(address(&other, "none"), None);
    owner.claims().expect("several share it").release("run", 0);
    // The owner's queries about the run are answered in the order of its commands.
    block_on(owner.run("run")).expect("the server answers");
    assert_eq!(address(&other, "run"), None, "the run has no owner");
}
