//! Workers that share a PostgreSQL server.

#[path = "../../engines/postgres/tests/server/mod.rs"]
mod server;

use serde_json::{Value, json};

use crate::cluster::{self, Cluster};
use server::Server;

struct Database {
    url: String,
    /// The server, if no other test uses it.
    server: Option<Server>,
}

impl Database {
    fn server(&self) -> &Server {
        self.server
            .as_ref()
            .expect("only clusters with their own server are killed")
    }
}

impl cluster::Server for Database {
    fn arguments(&self) -> Vec<String> {
        ["--engine", "postgres", "--url", &self.url].map(str::to_owned).to_vec()
    }

    fn worker_arguments(&self) -> Vec<String> {
        Vec::new()
    }

    fn kill(&self) {
        self.server().kill();
    }

    fn go(&self) {
        self.server().go();
    }
}

/// Returns a cluster that shares the server of this process; `None` if PostgreSQL is not installed.
fn start() -> Option<Cluster> {
    let url = Server::shared()?.prepared();
    Some(Cluster::of(Database { url, server: None }))
}

/// Returns a cluster with a server that can be killed.
fn start_alone() -> Option<Cluster> {
    let server = Server::start_unsynced()?;
    let url = server.prepared();
    Some(Cluster::of(Database {
        url,
        server: Some(server),
    }))
}

crate::with_each_engine!(start, start_alone);

#[test]
fn an_unreachable_or_unprepared_postgresql_server_is_reported_with_the_command_to_run() {
    let Some(server) = Server::shared() else { return };
    let url = server.database();
    let binary = env!("CARGO_BIN_EXE_pirn");
    let list = |url: &str| {
        let mut command = std::process::Command::new(binary);
        let output = command
            .args(["runs", "list", "--output", "json", "--engine", "postgres", "--url", url])
            .output();
        let output = output.expect("runs");
        let told: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
        (output.status.code(), told["error"].clone())
    };
    let (code, error) = list(&url);
    assert_eq!((code, &error["code"]), (Some(2), &json!("NOT_SET_UP")), "{error}");
    assert!(
        error["help"]
            .as_str()
            .expect("help")
            .contains("pirn worker --setup --engine postgres"),
        "{error}"
    );
    let (code, error) = list("postgres://postgres@127.0.0.1:9/none");
    assert_eq!(
        (code, &error["code"]),
        (Some(2), &json!("SERVER_UNREACHABLE")),
        "{error}"
    );
    let (code, error) = list("not a URL");
    assert_eq!((code, &error["code"]), (Some(2), &json!("INVALID_URL")), "{error}");
    let missing = pirn_postgres::setup(&url, "no-such-absurdctl").expect_err("it is not there");
    assert_eq!(missing.code(), "ABSURDCTL_FAILED");
    assert!(server.set_up(&url));
    assert!(!server.set_up(&url), "nothing is made twice");
    let (code, error) = list(&url);
    assert_eq!((code, &error), (Some(0), &Value::Null));
    server.sql(&url, "UPDATE pirn.layout SET version = 99");
    let (code, error) = list(&url);
    assert_eq!((code, &error["code"]), (Some(2), &json!("WRONG_SCHEMA")), "{error}");
}
