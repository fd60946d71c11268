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

/// A server with a standby that replaces it.
struct Replicated {
    url: String,
    primary: Server,
    standby: Server,
}

impl cluster::Server for Replicated {
    fn arguments(&self) -> Vec<String> {
        ["--engine", "postgres", "--url", &self.url].map(str::to_owned).to_vec()
    }

    fn worker_arguments(&self) -> Vec<String> {
        Vec::new()
    }

    fn kill(&self) {
        self.primary.kill();
    }

    fn go(&self) {
        self.standby.promote();
    }
}

#[test]
fn every_run_ends_once_when_a_standby_is_promoted_under_load() {
    let Some(primary) = Server::start_unsynced() else {
        return;
    };
    let prepared = primary.prepared();
    let (_, database) = prepared.rsplit_once('/').expect("a database");
    let standby = primary.standby();
    let hosts = format!("{},{}", primary.socket().display(), standby.socket().display());
    let url = format!("host={hosts} user=postgres dbname={database}");
    let cluster = Cluster::of(Replicated { url, primary, standby });
    crate::faults::every_run_ends_once_when_the_server_is_replaced(&cluster);
}

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

/// Returns the status and the body of an answer.
fn get(port: u16, path: &str) -> Option<(u16, String)> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer))
}

#[test]
fn a_worker_is_ready_while_its_server_answers_and_reports_its_runs() {
    let Some(cluster) = start_alone() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    cluster.write(
        "main.json",
        &crate::commands::chain(&[crate::commands::append("a", 0.0)]),
    );
    let address = format!("127.0.0.1:{port}");
    let arguments = [
        "worker",
        "--profiles",
        "pirn.toml",
        "--grace",
        "2",
        "--health",
        &address,
    ];
    let worker = cluster::Worker(cluster.spawn(&arguments, "worker"));
    let status = |path: &str| get(port, path).map(|(status, _)| status);
    cluster.wait("it is ready", || status("/readyz") == Some(200));
    assert_eq!(status("/healthz"), Some(200));
    assert_eq!(status("/v1/runs"), Some(404), "only probes and metrics are served");
    cluster.json(&["run", "main.json", "--detach", "--run-id", "run-1"]);
    cluster.wait("the run ends", || cluster.status("run-1") == "COMPLETED");
    cluster.wait("the run is counted", || {
        let (_, metrics) = get(port, "/metrics").expect("answers");
        let mut lines = metrics.lines().filter(|line| line.starts_with("pirn_runs_ended_total"));
        lines.any(|line| line.contains("COMPLETED") && line.ends_with(" 1"))
    });
    cluster.server.kill();
    cluster.wait("it is not ready", || status("/readyz") == Some(503));
    assert_eq!(status("/healthz"), Some(200), "the process is alive");
    cluster.server.go();
    cluster.wait("it is ready again", || status("/readyz") == Some(200));
    // A run that waits keeps the worker draining for its grace.
    cluster.write(
        "main.json",
        &crate::commands::chain(&[crate::commands::append("long", 600.0)]),
    );
    cluster.json(&["run", "main.json", "--detach", "--run-id", "run-2"]);
    cluster.wait("it is executed", || cluster.lines("lines").len() == 2);
    worker.signal("TERM");
    cluster.wait("it drains", || {
        get(port, "/readyz").is_some_and(|(_, answer)| answer.contains("DRAINING"))
    });
    cluster.wait("it ends", || get(port, "/healthz").is_none());
}

/// Connection string, environment, and true if it connects.
type Case<'a> = (String, &'a [(&'a str, &'a str)], bool);

#[test]
fn a_connection_string_and_the_environment_name_the_database_that_psql_reaches() {
    let Some(server) = Server::shared() else { return };
    let prepared = server.prepared();
    let (_, database) = prepared.rsplit_once('/').expect("a database");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = server.socket().display().to_string();
    let services = folder.path().join("services");
    std::fs::write(
        &services,
        format!("[pirn]\nhost={socket}\ndbname={database}\nuser=postgres\n"),
    )
    .expect("written");
    let services = services.display().to_string();
    let here = [("PGHOST", &*socket), ("PGUSER", "postgres"), ("PGDATABASE", database)];
    let escaped = socket.replace('/', "%2F");
    let cases: &[Case<'_>] = &[
        ("postgres://".to_owned(), &here, true),
        ("postgresql:///".to_owned(), &here, true),
        (String::new(), &here, true),
        (format!("postgres:///{database}?host={socket}&user=postgres"), &[], true),
        (
            format!("postgres://postgres@{escaped}/{database}"),
            &[("PGHOST", "/nowhere")],
            true,
        ),
        (
            format!("host='{socket}' dbname = {database} user=postgres"),
            &[("PGDATABASE", "missing")],
            true,
        ),
        (format!("postgres://postgres@/nowhere,{escaped}/{database}"), &[], false),
        (
            format!("host=/nowhere,{socket} user=postgres dbname={database}"),
            &[("PGCONNECT_TIMEOUT", "3")],
            true,
        ),
        ("service=pirn".to_owned(), &[("PGSERVICEFILE", &services)], true),
        (
            "postgres://?service=pirn".to_owned(),
            &[("PGSERVICEFILE", &services)],
            true,
        ),
        ("postgres:///missing".to_owned(), &here, false),
        (
            "postgres://".to_owned(),
            &[("PGHOST", &socket), ("PGPORT", "1"), ("PGUSER", "postgres")],
            false,
        ),
        ("hostt=x".to_owned(), &here, false),
    ];
    for (text, variables, is_reached) in cases {
        let run = |program: &str, arguments: &[&str]| {
            let mut command = std::process::Command::new(program);
            let path = std::env::var_os("PATH").unwrap_or_default();
            command
                .env_clear()
                .env("PATH", path)
                .env("HOME", folder.path())
                .envs(variables.iter().copied());
            let output = command.args(arguments).stdin(std::process::Stdio::null()).output();
            output.expect("runs")
        };
        let own = run(
            env!("CARGO_BIN_EXE_pirn"),
            &[
                "runs", "list", "--output", "json", "--engine", "postgres", "--url", text,
            ],
        );
        let psql = run(
            "psql",
            &["-X", "-w", "-q", "-c", "SELECT version FROM pirn.layout", text],
        );
        let said = String::from_utf8_lossy(&own.stdout);
        assert_eq!(own.status.success(), *is_reached, "{text} {variables:?}: {said}");
        assert_eq!(
            psql.status.success(),
            *is_reached,
            "{text} {variables:?}: {}",
            String::from_utf8_lossy(&psql.stderr)
        );
    }
}
