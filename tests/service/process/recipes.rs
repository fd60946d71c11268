//! The files of `examples/service` under their programs, where those are installed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use reqwest::Client;
use serde_json::{Value, json};

use crate::command::{Served, folder, root};
use crate::servers;
use crate::world::{Events, answer};

/// The workflows of the examples.
const WORKFLOWS: &str = "examples/service/workflows.json";

fn example(name: &str) -> String {
    std::fs::read_to_string(root().join("examples/service").join(name)).expect("the example")
}

/// True if the program can be started; otherwise prints that it is not installed.
fn is_installed(program: &str) -> bool {
    let version = Command::new(program)
        .arg("-v")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if version.is_err() {
        println!("skipped: {program} is not installed");
    }
    version.is_ok()
}

/// A program that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if the program has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Creates a certificate for the name in the recipe; returns its files.
fn certificate(folder: &Path) -> [PathBuf; 2] {
    let [certificate, key] = ["pirn.pem", "pirn.key"].map(|name| folder.join(name));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=pirn.example.com",
        ])
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .stderr(Stdio::null())
        .status();
    assert!(made.expect("openssl runs").success());
    [certificate, key]
}

#[tokio::test]
async fn behind_the_recipes_nginx_events_arrive_without_delay() {
    if !is_installed("nginx") || !is_installed("openssl") {
        return;
    }
    let folder = folder("nginx");
    let served = Served::start(root(), &[WORKFLOWS, "--allow-host", "pirn.example.com"]);
    let upstream = served.url.trim().strip_prefix("http://").expect("an address");
    // A port that was free a moment ago, for nginx.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let mut site = example("nginx.conf");
    let [certificate, key] = certificate(&folder).map(|path| path.display().to_string());
    for (from, to) in [
        ("127.0.0.1:7474", upstream),
        ("listen 443", &format!("listen 127.0.0.1:{port}")),
        ("/etc/ssl/pirn.example.com.pem", &certificate),
        ("/etc/ssl/pirn.example.com.key", &key),
    ] {
        assert!(site.contains(from), "the recipe has {from}");
        site = site.replace(from, to);
    }
    let at = folder.display();
    let paths =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {at}/{name};"));
    let whole = format!(
        "pid {at}/pid; error_log {at}/log; events {{}} http {{ access_log off; {} {site} }}",
        paths.concat()
    );
    std::fs::write(folder.join("nginx.conf"), whole).expect("a file");
    let nginx = Command::new("nginx")
        .arg("-p")
        .arg(&folder)
        .arg("-c")
        .arg(folder.join("nginx.conf"))
        .args(["-e", "stderr", "-g", "daemon off; master_process off;"])
        .spawn();
    let mut nginx = Running(nginx.expect("nginx starts"));
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        assert!(
            nginx.0.try_wait().expect("it is ours").is_none(),
            "nginx takes the recipe"
        );
        tokio::task::yield_now().await;
    }

    let client = Client::builder()
        .no_proxy()
        .tls_danger_accept_invalid_certs(true)
        .resolve("pirn.example.com", ([127, 0, 0, 1], port).into())
        .build()
        .expect("a client");
    let url = |path: &str| format!("https://pirn.example.com:{port}{path}");
    let send = |path: &str, body: Value| {
        let request = client.post(url(path)).header("content-type", "application/json");
        request.body(body.to_string())
    };
    let started = answer(send("/v1/runs", json!({"workflow": "order", "runId": "o"}))).await;
    assert_eq!(started.status.as_u16(), 201, "{}", started.body);
    let mut events = Events::open(client.get(url("/v1/runs/o/events"))).await;
    // The event arrives while the run waits: the proxy does not buffer it.
    while events.next().await.expect("an event").json["nodeId"] != "payment" {}
    assert_eq!(
        answer(send("/v1/runs/o/emit", json!({"name": "paid"})))
            .await
            .status
            .as_u16(),
        200
    );
    let last = events.all().await.pop().expect("an end");
    assert_eq!(last.json["status"], "COMPLETED");
    assert_eq!(answer(client.get(url("/metrics"))).await.status.as_u16(), 403);
}

#[test]
fn the_page_starts_a_workflow_and_shows_its_events_and_outcome() {
    let Some(node) = servers::new_node() else { return };
    let served = Served::start(root(), &[WORKFLOWS]);
    let shown = |workflow: &str, message: &str| -> Value {
        let output = Command::new(&node)
            .args([
                "--experimental-eventsource",
                "tests/servers/clients/page.mjs",
                "examples/service/index.html",
            ])
            .args([served.url.trim(), workflow, message])
            .current_dir(root())
            .output()
            .expect("node runs");
        let failure = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{failure}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let greeted = shown("greet", "Ada");
    assert_eq!(greeted["workflows"], json!(["chat", "greet", "order"]));
    assert_eq!(greeted["said"], "Hello, Ada!");
    let events = greeted["events"].as_array().expect("events");
    assert!(
        events[0]
            .as_str()
            .is_some_and(|first| first.starts_with("1 THREAD_STARTED")),
        "{greeted}"
    );
    assert_eq!(events.last(), Some(&json!("COMPLETED")));
    let unknown = shown("none", "Ada");
    let why = unknown["events"][0].as_str().expect("an error");
    assert!(why.starts_with("UNKNOWN_WORKFLOW: "), "{why}");
}

#[test]
fn systemd_accepts_the_unit() {
    if !is_installed("systemd-analyze") {
        return;
    }
    let folder = folder("systemd");
    let unit = example("pirn.service");
    let program = "/usr/local/bin/pirn";
    assert!(unit.contains(program));
    let path = folder.join("pirn.service");
    std::fs::write(&path, unit.replace(program, env!("CARGO_BIN_EXE_pirn"))).expect("a file");
    let output = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&path)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("pirn.service:"), "{said}");
    // The options of the unit's command exist.
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .expect("a command");
    let words: Vec<&str> = line.split(' ').skip(1).filter(|word| !word.starts_with('/')).collect();
    let help = Command::new(env!("CARGO_BIN_EXE_pirn"))
        .args([words[0], "--help"])
        .output()
        .expect("it runs");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for option in words.iter().filter(|word| word.starts_with("--")) {
        assert!(help.contains(option), "{option}");
    }
}
