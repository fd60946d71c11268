//! Starts a Restate server for one test, from the program on npm.
#![allow(clippy::disallowed_methods, reason = "a process lives by the real clock")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Server in a temporary folder, on loopback. Dropping it ends it.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    program: PathBuf,
    process: Mutex<Option<Child>>,
    ingress: u16,
    admin: u16,
    node: u16,
    /// The server signs its calls.
    is_signing: bool,
}

/// Returns the path of the server, installed by a script; none, with a message on stderr, if that fails.
fn program() -> Option<PathBuf> {
    let mut root = Path::new(env!("CARGO_MANIFEST_DIR"));
    while !root.join("tests/servers/setup-restate").exists() {
        root = root.parent()?;
    }
    let installed = Command::new(root.join("tests/servers/setup-restate")).status();
    if !installed.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: the Restate server cannot be installed (tests/servers/setup-restate)");
        return None;
    }
    Some(root.join("target/servers/restate/restate-server"))
}

/// Returns an unused port.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

impl Server {
    /// Starts a server; none, with a message on stderr, if the program cannot be installed.
    pub(crate) fn start() -> Option<Self> {
        Self::with(None)
    }

    /// Starts a server that signs its calls by an Ed25519 key in PEM format.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn start_signing(key: &str) -> Option<Self> {
        Self::with(Some(key))
    }

    fn with(key: Option<&str>) -> Option<Self> {
        let program = program()?;
        let folder = tempfile::Builder::new().prefix("pirn-restate").tempdir_in("/tmp");
        let server = Self {
            folder: folder.expect("a folder"),
            program,
            process: Mutex::default(),
            ingress: free_port(),
            admin: free_port(),
            node: free_port(),
            is_signing: key.is_some(),
        };
        if let Some(key) = key {
            std::fs::write(server.key(), key).expect("written");
        }
        server.go();
        Some(server)
    }

    /// Starts the process, and waits until it is ready.
    pub(crate) fn go(&self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log());
        let address = |port: u16| format!("127.0.0.1:{port}");
        // `setpriv --pdeathsig` ends the server with the test, even if that is killed.
        let mut command = if Command::new("setpriv")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok()
        {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--"]).arg(&self.program);
            command
        } else {
            Command::new(&self.program)
        };
        let started = command
            .arg("--base-dir")
            .arg(self.folder.path().join("data"))
            .envs([
                // Temporary files that the server leaves when it is killed are deleted with the folder.
                ("TMPDIR", self.folder.path().display().to_string()),
                ("RESTATE_NODE_NAME", "one".to_owned()),
                ("RESTATE_LISTEN_MODE", "tcp".to_owned()),
                ("RESTATE_BIND_ADDRESS", address(self.node)),
                ("RESTATE_ADVERTISED_ADDRESS", format!("http://{}", address(self.node))),
                ("RESTATE_INGRESS__BIND_ADDRESS", address(self.ingress)),
                ("RESTATE_ADMIN__BIND_ADDRESS", address(self.admin)),
                ("RESTATE_DEFAULT_NUM_PARTITIONS", "2".to_owned()),
                ("RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE", "256MB".to_owned()),
                ("RESTATE_DISABLE_TELEMETRY", "true".to_owned()),
                ("RESTATE_LOG_DISABLE_ANSI_CODES", "true".to_owned()),
                // Detects a worker that hangs.
                ("RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_INTERVAL", "1s".to_owned()),
                ("RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_TIMEOUT", "1s".to_owned()),
            ])
            .envs(
                self.is_signing
                    .then(|| ("RESTATE_REQUEST_IDENTITY_PRIVATE_KEY_PEM_FILE", self.key())),
            )
            .stdin(Stdio::null())
            .stdout(log.expect("a log"))
            .stderr(Stdio::null())
            .spawn();
        *self.process.lock().expect("whole") = Some(started.expect("the program runs"));
        let until = Instant::now() + Duration::from_mins(1);
        while !self.is_ready() {
            assert!(Instant::now() < until, "the server is not ready: {}", self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn is_ready(&self) -> bool {
        let healthy = |url: String| {
            let asked = Command::new("curl").args(["-sf", "-o", "/dev/null", &url]).status();
            asked.expect("curl is there").success()
        };
        healthy(format!("{}/restate/health", self.url())) && healthy(format!("{}/health", self.admin()))
    }

    /// Kills the server.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn kill(&self) {
        if let Some(mut process) = self.process.lock().expect("whole").take() {
            process.kill().expect("killed");
            process.wait().expect("it ends");
        }
    }

    /// Returns the URL of the ingress.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ingress)
    }

    /// Returns the URL of the admin API.
    pub(crate) fn admin(&self) -> String {
        format!("http://127.0.0.1:{}", self.admin)
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Returns the log.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.lock().expect("whole").take() {
            // The process may have ended already.
            drop(process.kill());
            drop(process.wait());
        }
    }
}
