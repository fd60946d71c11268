//! Workers that share a Restate server.

#[path = "../../engines/restate/tests/server/mod.rs"]
mod server;

use pirn_restate::{Endpoint, RestateOptions, RestateStore};
use serde_json::{Value, json};

use crate::cluster::{self, Cluster};
use server::{Server, free_port};

struct Objects {
    server: Server,
    /// Port of every worker, and of the process that serves the objects while there is no worker.
    port: u16,
    _offering: RestateStore,
}

impl cluster::Server for Objects {
    fn arguments(&self) -> Vec<String> {
        let (url, admin) = (self.server.url(), self.server.admin());
        ["--engine", "restate", "--url", &url, "--admin", &admin]
            .map(str::to_owned)
            .to_vec()
    }

    fn worker_arguments(&self) -> Vec<String> {
        vec!["--listen".to_owned(), format!("127.0.0.1:{}", self.port)]
    }

    fn kill(&self) {
        self.server.kill();
    }

    fn go(&self) {
        self.server.go();
    }
}

/// Returns `None` if the Restate server is not available.
fn start() -> Option<Cluster> {
    let (server, port) = (Server::start()?, free_port());
    let endpoint = Endpoint::at(([127, 0, 0, 1], port).into());
    let options = RestateOptions::default().admin(server.admin()).endpoint(endpoint);
    let offering = RestateStore::connect(&server.url(), options).expect("connects");
    Some(Cluster::of(Objects {
        server,
        port,
        _offering: offering,
    }))
}

crate::with_each_engine!(start, start);

#[test]
fn an_unreachable_or_workerless_restate_server_is_reported_with_the_command_to_run() {
    let Some(server) = Server::start() else { return };
    let list = |url: &str, admin: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pirn"));
        let place = ["--engine", "restate", "--url", url, "--admin", admin];
        let output = command.args(["runs", "list", "--output", "json"]).args(place).output();
        let output = output.expect("runs");
        let told: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
        (output.status.code(), told["error"].clone())
    };
    let (url, admin) = (server.url(), server.admin());
    let (code, error) = list(&url, &admin);
    assert_eq!((code, &error["code"]), (Some(2), &json!("NOT_SET_UP")), "{error}");
    let help = error["help"].as_str().expect("help");
    assert!(help.contains("pirn worker --engine restate"), "{error}");
    let (code, error) = list("http://127.0.0.1:9", "http://127.0.0.1:9");
    assert_eq!(
        (code, &error["code"]),
        (Some(2), &json!("SERVER_UNREACHABLE")),
        "{error}"
    );
    let (code, error) = list("not a URL", &admin);
    assert_eq!((code, &error["code"]), (Some(2), &json!("INVALID_URL")), "{error}");
    let endpoint = Endpoint::at(([127, 0, 0, 1], free_port()).into());
    let options = RestateOptions::default().admin(admin.as_str()).endpoint(endpoint);
    let _offering = RestateStore::connect(&url, options).expect("connects");
    let (code, error) = list(&url, &admin);
    assert_eq!((code, &error), (Some(0), &Value::Null));
}
