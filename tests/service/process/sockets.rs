//! The sockets of `pirn serve`: TLS, and unix sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rcgen::{CertificateParams, Issuer, KeyPair};
use reqwest::{Certificate, Client};

const ECHO: &str = r#"{"id": "echo", "edges": [{"from": "s", "to": "e"}],
    "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END", "config": {"output": "input"}}]}"#;

/// A serving process, killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts `pirn serve`; returns the process and the address in its log.
fn serve(folder: &Path, arguments: &[&str]) -> (Process, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
    command.args(["serve", "echo.json"]).args(arguments);
    started(folder, &mut command)
}

/// Starts a command that serves; returns the process and the address in its log.
fn started(folder: &Path, command: &mut Command) -> (Process, String) {
    std::fs::write(folder.join("echo.json"), ECHO).expect("is written");
    let command = command.current_dir(folder);
    let mut child = command
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut log = child.stderr.take().expect("piped");
    let mut text = String::new();
    let mut bytes = [0; 512];
    let address = loop {
        let count = log.read(&mut bytes).expect("is read");
        assert!(count > 0, "it ended: {text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        if let Some((address, _)) = text
            .split_once("listening on ")
            .and_then(|(_, rest)| rest.split_once('\n'))
        {
            break address.trim().to_owned();
        }
    };
    // The pipe must be read, or the process would block.
    std::thread::spawn(move || drop(std::io::copy(&mut log, &mut std::io::sink())));
    (Process(child), address)
}

/// An authority that signs certificates for 127.0.0.1.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// Writes a certificate and its key.
    fn write(&self, folder: &Path) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(folder.join("cert.pem"), certificate.pem()).expect("is written");
        std::fs::write(folder.join("key.pem"), key.serialize_pem()).expect("is written");
    }

    /// A client that trusts this authority alone.
    fn client(&self) -> Client {
        let root = Certificate::from_pem(self.certificate.as_bytes()).expect("a certificate");
        let client = Client::builder()
            .no_proxy()
            .tls_certs_only([root])
            .pool_max_idle_per_host(0);
        client.build().expect("a client")
    }
}

#[tokio::test]
async fn a_certificate_is_used_and_replaced_without_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (Authority::new(), Authority::new());
    first.write(folder.path());
    let tls = [
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        "cert.pem",
        "--tls-key",
        "key.pem",
    ];
    let (process, address) = serve(folder.path(), &tls);
    assert!(address.starts_with("https://127.0.0.1:"), "{address}");
    let ready = async |client: Client| {
        client
            .get(format!("{address}/readyz"))
            .send()
            .await
            .map(|answer| answer.status().as_u16())
    };
    assert_eq!(ready(first.client()).await.expect("is trusted"), 200);
    assert!(ready(second.client()).await.is_err(), "another authority");
    let plain = Client::builder().no_proxy().build().expect("a client");
    assert!(
        plain.get(address.replace("https", "http")).send().await.is_err(),
        "no TLS"
    );
    // Neither an invalid file nor the key of another certificate replaces the certificate.
    let pid = rustix::process::Pid::from_raw(process.0.id().cast_signed()).expect("a process");
    let reload = || rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("is sent");
    std::fs::write(folder.path().join("key.pem"), "no key").expect("is written");
    reload();
    for _ in 0..20 {
        assert_eq!(ready(first.client()).await.expect("is trusted"), 200);
    }
    second.write(folder.path());
    reload();
    // Until the signal is handled, the first certificate is in use.
    while ready(second.client()).await.is_err() {}
    assert!(ready(first.client()).await.is_err());
}

#[test]
fn an_unusable_certificate_stops_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    authority.write(folder.path());
    std::fs::copy(folder.path().join("key.pem"), folder.path().join("other.pem")).expect("is copied");
    authority.write(folder.path());
    std::fs::write(folder.path().join("echo.json"), ECHO).expect("is written");
    for (certificate, key) in [
        ("none.pem", "key.pem"),
        ("cert.pem", "none.pem"),
        ("key.pem", "key.pem"),
        ("cert.pem", "other.pem"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
        command.args([
            "serve",
            "echo.json",
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            certificate,
            "--tls-key",
            key,
        ]);
        let ended = command.current_dir(folder.path()).output().expect("it ends");
        let text = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{text}");
        assert!(text.contains(".pem"), "{text}");
    }
}

/// Requests the list of runs over a connection; returns the answer.
fn asked(mut stream: impl Read + Write, header: &str) -> String {
    let request = format!("GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n{header}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("is read");
    answer
}

#[test]
fn the_socket_of_a_socket_unit_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("tokens"), "s3cret").expect("is written");
    let path = folder.path().join("pirn.sock");
    let unix = UnixListener::bind(&path).expect("a socket");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = tcp.local_addr().expect("an address");
    // As systemd passes it: descriptor 3, and the id of the process in a variable.
    let start = |socket: OwnedFd| {
        let mut command = Command::new("sh");
        command.args(["-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3<&0 </dev/null", "sh"]);
        command.args([env!("CARGO_BIN_EXE_pirn"), "serve", "echo.json", "--listen", "systemd"]);
        command.args(["--token-file", "tokens"]).stdin(socket);
        started(folder.path(), &mut command)
    };
    let token = "Authorization: Bearer s3cret\r\n";
    let (process, _) = start(unix.into());
    let connect = || UnixStream::connect(&path).expect("connects");
    assert!(asked(connect(), token).starts_with("HTTP/1.1 200"));
    assert!(
        asked(connect(), "").starts_with("HTTP/1.1 401"),
        "others may connect, so a token is needed"
    );
    drop(process);
    let (_process, address) = start(tcp.into());
    assert_eq!(address, format!("http://{port}"));
    assert!(asked(TcpStream::connect(port).expect("connects"), token).starts_with("HTTP/1.1 200"));
}

#[test]
fn without_a_passed_socket_or_a_token_nothing_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("echo.json"), ECHO).expect("is written");
    std::fs::write(folder.path().join("tokens"), "s3cret").expect("is written");
    for (arguments, reason) in [(&["--token-file", "tokens"][..], "LISTEN_FDS"), (&[], "--token-file")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
        command
            .args(["serve", "echo.json", "--listen", "systemd"])
            .args(arguments);
        let ended = command.current_dir(folder.path()).output().expect("it ends");
        let text = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{text}");
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn a_unix_socket_is_served_and_a_stale_one_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("pirn.sock");
    let listen = format!("unix:{}", socket.display());
    for _ in 0..2 {
        // The second process finds the socket of the first, which was killed.
        let (_process, address) = serve(folder.path(), &["--listen", &listen]);
        assert_eq!(address, listen);
        let answer = asked(UnixStream::connect(&socket).expect("connects"), "");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("\"runs\":[]"),
            "{answer}"
        );
    }
    assert!(socket.exists());
    let file = folder.path().join("file");
    std::fs::write(&file, "data").expect("is written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pirn"));
    command
        .args(["serve", "echo.json", "--listen"])
        .arg(format!("unix:{}", file.display()));
    let ended = command.current_dir(folder.path()).output().expect("it ends");
    assert_eq!(ended.status.code(), Some(2));
    assert_eq!(
        std::fs::read(&file).expect("is read"),
        b"data",
        "a file that is no socket stays"
    );
}

#[test]
fn a_burst_of_connections_waits_to_be_accepted_and_is_not_refused_by_the_system() {
    let folder = crate::command::folder("burst");
    let (served, url) = serve(&folder, &["--listen", "127.0.0.1:0"]);
    let address = url.strip_prefix("http://").expect("a URL").parse().expect("an address");
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &served.0.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    };
    // A stopped process accepts nothing, so every connection stays in the queue of the socket.
    signal("-STOP");
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok();
    let mut burst: Vec<TcpStream> = (0..300).map_while(connect).collect();
    signal("-CONT");
    assert_eq!(burst.len(), 300);
    let last = burst.last_mut().expect("a connection");
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    last.write_all(request).expect("the request is sent");
    let mut answer = String::new();
    last.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// Starts a service with a program as a tool, under a limit of open files.
fn serve_within(files: u32, folder: &Path, limit: &str) -> (Process, String) {
    let workflow = r#"{"id": "calls", "edges": [{"from": "s", "to": "a"}, {"from": "a", "to": "e"}],
        "nodes": [{"id": "s", "type": "START"},
                  {"id": "a", "type": "LLM", "config": {"profileId": "m", "prompt": "go", "tools": ["say"]}},
                  {"id": "e", "type": "END", "config": {"output": "input"}}]}"#;
    std::fs::write(folder.join("calls.json"), workflow).expect("is written");
    let config = r#"
        profiles = [{ id = "m", provider = "scripted", responses = [{ toolCalls = [{ name = "say", arguments = {} }] }, { content = "ok" }] }]
        tools = [{ name = "say", description = "Says", inputSchema = { type = "object" }, command = { program = "echo", args = ["started"] } }]
    "#;
    std::fs::write(folder.join("pirn.toml"), config).expect("is written");
    let script = format!("ulimit {limit} {files}; exec \"$0\" serve calls.json --listen 127.0.0.1:0 --store runs.db");
    let mut command = Command::new("sh");
    started(folder, command.args(["-c", &script, env!("CARGO_BIN_EXE_pirn")]))
}

/// Connections that have sent a part of a request.
fn idle(address: &str, count: usize) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(b"GET /healthz HTTP/1.1\r\n").expect("is sent");
        stream
    };
    (0..count).map(open).collect()
}

#[test]
fn idle_clients_leave_enough_files_for_the_tools_of_runs() {
    let folder = crate::command::folder("files");
    let (_served, url) = serve_within(256, &folder, "-n");
    let address = url.strip_prefix("http://").expect("a URL");
    let mut first = TcpStream::connect(address).expect("a connection");
    let mut get = |path: &str, body: &str| {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        first.write_all(request.as_bytes()).expect("the request is sent");
        let mut answer = Vec::new();
        let mut bytes = [0; 1 << 14];
        while !answer.ends_with(b"}") && !answer.ends_with(b"]") {
            let count = first.read(&mut bytes).expect("an answer");
            assert!(count > 0, "the connection is closed");
            answer.extend_from_slice(&bytes[..count]);
        }
        String::from_utf8(answer).expect("text")
    };
    let listed = get("/v1/runs", "");
    assert!(listed.starts_with("HTTP/1.1 200 "), "{listed}");
    let clients = idle(address, 300);
    let ended = get("/v1/runs?wait=60", r#"{"workflow": "calls"}"#);
    assert!(ended.contains("started"), "{ended}");
    drop(clients);
}

#[cfg(target_os = "linux")]
#[test]
fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let folder = crate::command::folder("soft-files");
    let (served, _url) = serve_within(200, &folder, "-Sn");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", served.0.id())).expect("is read");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("a line");
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    let hard: u64 = numbers[1].parse().unwrap_or(u64::MAX);
    assert_eq!(numbers[0], hard.min(65_536).to_string(), "{line}");
}
