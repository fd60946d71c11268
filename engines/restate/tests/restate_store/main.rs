//! Tests of the store against a real server.
#![allow(clippy::disallowed_methods, reason = "processes live by the real clock")]

mod ended;
mod identity;
mod offered;
mod owned;
mod requests;
#[path = "../server/mod.rs"]
mod server;
mod tls;

use std::time::{Duration, Instant};

use futures::executor::block_on;
use pirn_restate::{Endpoint, RestateOptions, RestateStore};
use pirn_store::{Assignment, Claims, Commit, Content, NewRun, Record, Store, conformance};

use requests::{curl, query};
use server::{Server, free_port};

fn open(server: &Server, port: u16) -> RestateStore {
    let endpoint = Endpoint::at(([127, 0, 0, 1], port).into());
    let options = RestateOptions::default().admin(server.admin()).endpoint(endpoint);
    RestateStore::connect(&server.url(), options).expect("connects")
}

#[test]
fn the_store_contract_holds_in_restate() {
    if Server::start().is_none() {
        return;
    }
    conformance::check(|name| {
        eprintln!("{name}");
        let (server, port) = (Server::start().expect("starts"), free_port());
        Box::new(move || Box::new(open(&server, port)) as Box<dyn Store>)
    });
}

/// Connects without an endpoint.
fn connect(server: &Server) -> RestateStore {
    let options = RestateOptions::default().admin(server.admin());
    RestateStore::connect(&server.url(), options).expect("connects")
}

fn begun(run: &str) -> Commit {
    let definition = Content::new("{}");
    let mut new = NewRun::new("flow", definition.hash(), 1);
    new.is_carried = true;
    Commit::start(run, new).content(definition)
}

fn step(run: &str, after: u64, bytes: usize) -> Commit {
    Commit::after(run, after).record(Record::new(1, "x".repeat(bytes)))
}

#[test]
fn a_step_over_the_size_limit_is_refused_at_once_and_its_run_is_not_offered() {
    let Some(server) = Server::start() else { return };
    let (store, other) = (open(&server, free_port()), connect(&server));
    for run in ["large", "small"] {
        block_on(store.commit(begun(run))).expect("begins");
    }
    let refused = block_on(store.commit(step("large", 0, 40 << 20))).expect_err("is too large");
    assert_eq!(refused.code(), "STORE_LIMIT");
    let text = Content::new("x".repeat(40 << 20));
    let refused = block_on(store.commit(Commit::after("large", 0).content(text))).expect_err("is too large");
    assert_eq!(refused.code(), "STORE_LIMIT");
    block_on(store.commit(step("small", 0, 8 << 20))).expect("is taken");
    store.release("large", 0);
    store.release("small", 0);
    other.carry(8);
    // The queue serves runs in the order of their release: `large` came first and was not offered.
    assert_eq!(block_on(other.assigned()), Ok(Assignment::Run("small".to_owned())));
    // An explicit claim still succeeds.
    block_on(other.claim("large")).expect("is free");
    assert_eq!(block_on(other.commit(step("large", 0, 1))), Ok(1));
}

#[test]
fn a_step_transfers_only_the_bytes_of_that_step() {
    let Some(server) = Server::start() else { return };
    let store = open(&server, free_port());
    block_on(store.commit(begun("long"))).expect("begins");
    // More bytes in total than the server's message limit.
    for after in 0..12 {
        block_on(store.commit(step("long", after, 4 << 20))).expect("is taken");
    }
    assert_eq!(block_on(store.commit(step("long", 12, 1))), Ok(13));
    for object in [
        "PirnRun",
        "PirnSession",
        "PirnContent",
        "PirnProcess",
        "PirnQueue",
        "PirnMeta",
    ] {
        let url = format!("{}/services/{object}", server.admin());
        let told = curl(&[&url]).expect("is known");
        assert_eq!(told["enable_lazy_state"], true, "{object}");
        assert_eq!(
            told["journal_retention"], "0s",
            "{object}: nothing is kept of a call that is over"
        );
    }
}

#[test]
fn a_process_silent_for_longer_than_its_claim_cannot_write() {
    let Some(server) = Server::start() else { return };
    let _offering = open(&server, free_port());
    let connect = |name: &str| {
        let options = RestateOptions::default().admin(server.admin()).name(name);
        RestateStore::connect(&server.url(), options.claim(Duration::from_secs(1))).expect("connects")
    };
    let (first, second) = (connect("first"), connect("second"));
    block_on(first.commit(begun("run"))).expect("begins");
    let refused = block_on(second.commit(step("run", 0, 1))).expect_err("the first has it");
    assert_eq!(refused.code(), "RUN_HELD");
    assert_eq!(
        block_on(second.claim("run")).expect_err("the first has it").code(),
        "RUN_HELD"
    );
    // Closes the process object, as missed heartbeats of a crashed process would.
    let sql = "select service_key from state where service_name = 'PirnProcess' and key = 'life'";
    let rows = query(&server, sql);
    let processes = rows.as_array().expect("rows").iter();
    let mut names = processes.filter_map(|row| row["service_key"].as_str());
    let process = names
        .find(|name| name.starts_with("first "))
        .expect("it is known")
        .replace(' ', "%20");
    let close = format!("{}/PirnProcess/{process}/close", server.url());
    assert!(curl(&["-d", "null", &close]).is_some());
    second.carry(8);
    assert_eq!(block_on(second.assigned()), Ok(Assignment::Run("run".to_owned())));
    assert_eq!(block_on(first.assigned()), Ok(Assignment::Lost("run".to_owned())));
    assert_eq!(block_on(second.commit(step("run", 0, 1))), Ok(1));
    let refused = block_on(first.commit(step("run", 1, 1))).expect_err("is not its any more");
    assert_eq!(refused.code(), "RUN_LOST");
    assert_eq!(block_on(second.commit(step("run", 1, 1))), Ok(2));
}

#[test]
fn a_process_finds_the_address_of_the_owner_of_a_run() {
    const ADDRESS: &str = "http://svc-a:7474/pirn";
    let Some(server) = Server::start() else { return };
    let other = open(&server, free_port());
    let options = RestateOptions::default().admin(server.admin()).advertise(ADDRESS);
    let owner = RestateStore::connect(&server.url(), options).expect("connects");
    block_on(owner.commit(begun("run"))).expect("begins");
    block_on(other.commit(begun("silent"))).expect("begins");
    let address = |store: &RestateStore, run: &str| block_on(store.owner_address(run)).expect("the server answers");
    assert_eq!(address(&other, "run").as_deref(), Some(ADDRESS));
    assert_eq!(address(&owner, "run"), None, "the run is its own");
    assert_eq!(address(&owner, "silent"), None, "the owner advertises no address");
    assert_eq!(address(&other, "none"), None);
    // The object of a process receives messages under its name, which contains the address.
    owner.carry(8);
    other.release("silent", 0);
    assert_eq!(block_on(owner.assigned()), Ok(Assignment::Run("silent".to_owned())));
    assert_eq!(address(&other, "silent").as_deref(), Some(ADDRESS));
}

/// `cargo test --release -p pirn-restate --test restate_store -- --ignored --nocapture figures`
#[test]
#[ignore = "it measures"]
fn figures() {
    const STEPS: u64 = 500;
    let Some(server) = Server::start() else { return };
    let (store, bare) = (open(&server, free_port()), connect(&server));
    let per_second = |steps: u64, begun: Instant| steps as f64 / begun.elapsed().as_secs_f64();
    let begun_at = Instant::now();
    for _ in 0..STEPS {
        block_on(bare.set_meta("bare", Some("x".repeat(300)))).expect("is kept");
    }
    let alone = per_second(STEPS, begun_at);
    println!("an object that keeps one text: {alone:.0} calls/s, one after the other");
    block_on(store.commit(begun("alone"))).expect("begins");
    let begun_at = Instant::now();
    for after in 0..STEPS {
        block_on(store.commit(step("alone", after, 300))).expect("is kept");
    }
    let steps = per_second(STEPS, begun_at);
    println!(
        "a run: {steps:.0} steps/s, one after the other: {:.2} x the bare calls",
        alone / steps
    );
    for runs in [4_u64, 16, 64] {
        let ids: Vec<String> = (0..runs).map(|run| format!("{runs}-{run}")).collect();
        for id in &ids {
            block_on(store.commit(begun(id))).expect("begins");
        }
        let begun_at = Instant::now();
        for after in 0..STEPS / 10 {
            let commits: Vec<_> = ids.iter().map(|id| store.commit(step(id, after, 300))).collect();
            for commit in commits {
                block_on(commit).expect("is kept");
            }
        }
        println!(
            "{runs} runs at once: {:.0} steps/s",
            per_second(STEPS / 10 * runs, begun_at)
        );
    }
}
