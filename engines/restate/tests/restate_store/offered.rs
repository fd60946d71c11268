//! Runs assigned to a process, and claims that are over.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use pirn_restate::{RestateOptions, RestateStore};
use pirn_store::{Assignment, Claims as _, Commit, Content, NewRun, RunStatus, Store as _};
use serde_json::json;

use crate::requests::{query, wait_for};
use crate::server::{Server, free_port};
use crate::{begun, open, step};

/// TCP proxy to the server's admin API that the test can cut.
struct Way {
    url: String,
    /// Open connections; none after the cut.
    through: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Way {
    fn to_admin(server: &Server) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let through = Arc::new(Mutex::new(Some(Vec::new())));
        let (to, open) = (server.admin().replace("http://", ""), Arc::clone(&through));
        std::thread::spawn(move || {
            for here in listener.incoming() {
                let Some(open) = &mut *open.lock().expect("whole") else {
                    return;
                };
                let (here, there) = (here.expect("a connection"), TcpStream::connect(&to).expect("connects"));
                for (from, into) in [(&here, &there), (&there, &here)] {
                    let copies = (from.try_clone().expect("a copy"), into.try_clone().expect("a copy"));
                    std::thread::spawn(move || std::io::copy(&mut { copies.0 }, &mut { copies.1 }));
                }
                open.extend([here, there]);
            }
        });
        Self { url, through }
    }

    fn cut(&self) {
        for stream in self.through.lock().expect("whole").take().expect("it is open") {
            // The other end may be closed already.
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

#[test]
fn a_process_resumes_an_offered_run_without_a_request_to_the_server() {
    let Some(server) = Server::start() else { return };
    let offering = open(&server, free_port());
    let (definition, input) = (Content::new("{}"), Content::new("\"hello\""));
    let mut new = NewRun::new("flow", definition.hash(), 1);
    new.contents = vec![input.hash()];
    new.is_carried = false;
    let starts = Commit::start("run", new)
        .content(definition.clone())
        .content(input.clone());
    block_on(offering.commit(starts)).expect("begins");
    for after in 0..2 {
        block_on(offering.commit(step("run", after, 300))).expect("is kept");
    }
    let way = Way::to_admin(&server);
    let options = RestateOptions::default()
        .admin(&*way.url)
        .patience(Duration::from_secs(2));
    let store = RestateStore::connect(&server.url(), options).expect("connects");
    store.carry(1);
    assert_eq!(block_on(store.assigned()), Ok(Assignment::Run("run".to_owned())));
    way.cut();
    assert_eq!(block_on(store.run("run")), block_on(offering.run("run")));
    let texts = block_on(store.contents(vec![definition.hash(), input.hash()])).expect("were given");
    assert_eq!(
        texts.iter().map(|text| &**text).collect::<Vec<_>>(),
        ["{}", "\"hello\""]
    );
    assert_eq!(
        block_on(store.journal("run", 0, 100)),
        block_on(offering.journal("run", 0, 100))
    );
    assert_eq!(block_on(store.commit(step("run", 2, 300))), Ok(3));
    // The state received with the claim is outdated after the commit: the read needs the server.
    assert_eq!(
        block_on(store.run("run")).expect_err("nobody answers").code(),
        "STORE_ERROR"
    );
}

#[test]
fn the_server_removes_the_owner_of_an_ended_or_released_run() {
    let Some(server) = Server::start() else { return };
    let options = RestateOptions::default()
        .admin(server.admin())
        .claim(Duration::from_secs(2));
    let _offering = open(&server, free_port());
    let store = RestateStore::connect(&server.url(), options).expect("connects");
    for run in ["ended", "released", "carried"] {
        block_on(store.commit(begun(run))).expect("begins");
    }
    block_on(store.commit(step("ended", 0, 1).status(RunStatus::Completed))).expect("ends");
    store.release("released", 3_600_000);
    let sql = "select key from state where service_name = 'PirnProcess' and key like 'run %' order by key";
    wait_for("a run that has ended or was released has an owner", || {
        (query(&server, sql) == json!([{"key": "run 1 carried"}])).then_some(())
    });
}
