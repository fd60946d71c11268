//! Starts a PostgreSQL server for the tests of a process or for one test, from the installed programs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};

/// Server with data and socket in a temporary folder. Dropping it ends it.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    programs: PathBuf,
    absurdctl: PathBuf,
    /// Number of databases and of executed programs, for unique names.
    count: AtomicU32,
    /// Additional settings, as arguments.
    settings: String,
    /// Port of the socket, and of TCP if the settings name an address.
    port: u16,
    /// Name of the database that `prepared` copies.
    template: OnceLock<String>,
}

/// The server of `Server::shared`.
struct Shared {
    server: Server,
    /// Stops the server when this process ends, because statics are not dropped: it waits for the end of its input.
    _stopper: Child,
}

/// Returns the folder of the newest Debian package; none if there is no package.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let found = versions.filter_map(|version| {
        let version = version.ok()?;
        let number: u32 = version.file_name().to_str()?.parse().ok()?;
        let programs = version.path().join("bin");
        programs.join("initdb").exists().then_some((number, programs))
    });
    found.max().map(|(_, programs)| programs)
}

/// Returns the path of `absurdctl`, installed by a script; none, with a message on stderr, if that fails.
fn absurdctl() -> Option<PathBuf> {
    let mut root = Path::new(env!("CARGO_MANIFEST_DIR"));
    while !root.join("tests/servers/setup-absurd").exists() {
        root = root.parent()?;
    }
    let installed = Command::new(root.join("tests/servers/setup-absurd")).status();
    if !installed.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: absurdctl cannot be installed (tests/servers/setup-absurd)");
        return None;
    }
    Some(root.join("target/servers/absurd/bin/absurdctl"))
}

/// True if this process is the superuser, as which PostgreSQL does not start. A process asks once: a test starts many programs.
static IS_ROOT: LazyLock<bool> = LazyLock::new(|| {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
});

impl Server {
    /// Starts a server; none, with a message on stderr, if PostgreSQL is not installed.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn start() -> Option<Self> {
        Self::with(Self::empty("", 5432)?)
    }

    /// Starts a server without fsync, for a test that stops it but simulates no power cut.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn start_unsynced() -> Option<Self> {
        Self::with(Self::empty("-c fsync=off", 5432)?)
    }

    /// Starts a server that listens on an address of this machine too.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn start_with_tcp() -> Option<Self> {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a free port").port();
        Self::with(Self::empty(
            "-c fsync=off -c listen_addresses=127.0.0.1,127.0.0.2",
            port,
        )?)
    }

    /// Starts a standby of this server. Commits of this server wait for it from now on.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn standby(&self) -> Self {
        let standby = Self::empty("-c fsync=off -c hot_standby=on", 5432).expect("the programs are there");
        let (data, socket) = (standby.data(), self.socket().display().to_string());
        let copied = self.program(
            "pg_basebackup",
            &[
                "-D",
                &data,
                "-R",
                "-c",
                "fast",
                "--no-sync",
                "-h",
                &socket,
                "-U",
                "postgres",
            ],
        );
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        standby.go();
        let url = self.url("postgres");
        self.sql(&url, "ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql(&url, "SELECT pg_reload_conf()");
        standby
    }

    /// Makes a standby accept writes.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn promote(&self) {
        let promoted = self.program("pg_ctl", &["-D", &self.data(), "-w", "promote"]);
        assert!(
            promoted.status.success(),
            "{}",
            String::from_utf8_lossy(&promoted.stderr)
        );
    }

    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Writes a file into the data folder, private to the server.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn write(&self, name: &str, text: &str) {
        let file = self.folder.path().join("data").join(name);
        std::fs::write(&file, text).expect("written");
        Self::own(&file);
        let private = Command::new("chmod").arg("600").arg(&file).status();
        assert!(private.expect("chmod").success());
    }

    /// Gives a file to the user of the server.
    fn own(file: &Path) {
        if *IS_ROOT {
            let owned = Command::new("chown").arg("postgres").arg(file).status();
            assert!(owned.expect("chown").success(), "the user postgres is there");
        }
    }

    /// Starts a program as the user of the server.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn as_user(program: &str) -> Command {
        if *IS_ROOT {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--", program]);
            command
        } else {
            Command::new(program)
        }
    }

    /// Returns the server of this process, without fsync; each test uses its own database. The first call starts it. None, with a
    /// message on stderr, if PostgreSQL is not installed.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Shared>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| {
            let server = Self::start_unsynced()?;
            let stopper = server.stopper();
            Some(Shared {
                server,
                _stopper: stopper,
            })
        });
        shared.as_ref().map(|shared| &shared.server)
    }

    /// Starts the program that stops the server and deletes its folder when this process has ended.
    fn stopper(&self) -> Child {
        use std::os::unix::process::CommandExt as _;
        let stop = self.command("pg_ctl");
        Command::new("sh")
            .args(["-c", r#"read -r _; cd /; "$@"; rm -rf "$0""#])
            .arg(self.folder.path())
            .arg(stop.get_program())
            .args(stop.get_args())
            .args(["-D", &self.data(), "-m", "immediate", "-w", "stop"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt from the terminal does not end it.
            .process_group(0)
            .spawn()
            .expect("sh runs")
    }

    /// Returns a server without data.
    fn empty(settings: &str, port: u16) -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("SKIPPED: no PostgreSQL server in /usr/lib/postgresql: apt-get install postgresql");
            return None;
        };
        let absurdctl = absurdctl()?;
        let folder = tempfile::Builder::new()
            .prefix("pirn-pg")
            .tempdir_in("/tmp")
            .expect("a folder");
        let server = Self {
            folder,
            programs,
            absurdctl,
            count: AtomicU32::new(0),
            settings: settings.to_owned(),
            port,
            template: OnceLock::new(),
        };
        Self::own(server.folder.path());
        Some(server)
    }

    /// Creates the data of a server and starts it.
    #[allow(clippy::unnecessary_wraps, reason = "the callers return an option")]
    fn with(server: Self) -> Option<Self> {
        let data = server.data();
        let made = server.program(
            "initdb",
            &["-D", &data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync"],
        );
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        server.go();
        Some(server)
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    pub(crate) fn socket(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the command of a program of PostgreSQL, as an unprivileged user.
    fn command(&self, name: &str) -> Command {
        Self::as_user(&self.programs.join(name).display().to_string())
    }

    /// Runs a program of PostgreSQL.
    fn program(&self, name: &str, arguments: &[&str]) -> Output {
        let mut command = self.command(name);
        // Output goes to a file: the started server inherits it and would hold a pipe open.
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let log = self.folder.path().join(format!("{name}-{number}.out"));
        let out = std::fs::File::create(&log).expect("a log");
        let status = command
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out)
            .status()
            .expect("runs");
        let stderr = std::fs::read(&log).unwrap_or_default();
        Output {
            status,
            stdout: Vec::new(),
            stderr,
        }
    }

    /// Starts the process.
    pub(crate) fn go(&self) {
        let (data, log) = (self.data(), self.folder.path().join("log").display().to_string());
        let options = format!(
            "-c listen_addresses='' -c unix_socket_directories={} -c port={} -c max_connections=200 {}",
            self.socket().display(),
            self.port,
            self.settings
        );
        let started = self.program("pg_ctl", &["-D", &data, "-w", "-l", &log, "-o", &options, "start"]);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    }

    /// Stops the server without a shutdown checkpoint, like a power cut.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn kill(&self) {
        let stopped = self.program("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]);
        assert!(stopped.status.success());
    }

    /// Executes SQL in a database.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn sql(&self, url: &str, command: &str) {
        if let Err(why) = self.try_sql(url, command) {
            panic!("{why}");
        }
    }

    /// Executes SQL, or returns the server's error.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn try_sql(&self, url: &str, command: &str) -> Result<(), String> {
        let done = self.program("psql", &["-q", "-v", "ON_ERROR_STOP=1", "-c", command, url]);
        if done.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }

    pub(crate) fn url(&self, database: &str) -> String {
        let socket = self.socket().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{socket}:{}/{database}", self.port)
    }

    /// Creates the schemas in a database.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn set_up(&self, url: &str) -> bool {
        self.try_set_up(url).expect("is set up")
    }

    /// Creates the schemas, or returns the error.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn try_set_up(&self, url: &str) -> Result<bool, pirn_postgres::ConnectError> {
        pirn_postgres::setup(url, &self.absurdctl)
    }

    /// Creates an empty database and returns its URL.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn database(&self) -> String {
        self.url(&self.created(&[]))
    }

    /// Creates a database with the schemas and returns its URL. Copies a database in which they were created once, because
    /// `absurdctl` takes a second for each.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn prepared(&self) -> String {
        let template = self.template.get_or_init(|| {
            let name = self.created(&[]);
            self.set_up(&self.url(&name));
            name
        });
        self.url(&self.created(&["-T", template]))
    }

    /// Dumps the schemas of a database, restores them in a new one, and returns its URL.
    #[allow(dead_code, reason = "not every test of the binaries that share this does")]
    pub(crate) fn dumped_and_restored(&self, url: &str) -> String {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let file = self
            .folder
            .path()
            .join(format!("data/dump-{number}"))
            .display()
            .to_string();
        let dump = [
            "--format=custom",
            "--schema=pirn",
            "--schema=absurd",
            "--file",
            &file,
            url,
        ];
        let dumped = self.program("pg_dump", &dump);
        assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
        let restored = self.url(&self.created(&[]));
        let arguments = ["--exit-on-error", "--no-owner", "--dbname", &restored, &file];
        let filled = self.program("pg_restore", &arguments);
        assert!(filled.status.success(), "{}", String::from_utf8_lossy(&filled.stderr));
        restored
    }

    /// Creates a database and returns its name.
    fn created(&self, options: &[&str]) -> String {
        let name = format!("test{}", self.count.fetch_add(1, Ordering::Relaxed));
        let socket = self.socket().display().to_string();
        let port = self.port.to_string();
        let arguments = ["-h", &socket, "-p", &port, "-U", "postgres", &name];
        let made = self.program("createdb", &[options, &arguments].concat());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        name
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.program("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]);
    }
}
