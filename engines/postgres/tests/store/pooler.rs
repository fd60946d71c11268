//! The store behind `PgBouncer`, which executes each transaction in any session of the server.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use pirn_postgres::{ConnectError, PostgresOptions, PostgresStore};
use pirn_store::{Store, conformance};

use crate::open;
use crate::server::Server;

/// A pooler with few sessions. Dropping it ends it.
struct Pooler {
    process: Child,
    folder: PathBuf,
}

impl Pooler {
    /// Starts a pooler; none, with a message on stderr, if the program is not installed.
    fn start(server: &Server) -> Option<Self> {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"];
        let Some(program) = program.into_iter().find(|program| Path::new(program).exists()) else {
            eprintln!("SKIPPED: no PgBouncer: apt-get install pgbouncer");
            return None;
        };
        let folder = server.socket().to_owned();
        let config = format!(
            "[databases]\n* = host={} port={} user=postgres\n[pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = {}\n\
            pool_mode = transaction\nauth_type = any\ndefault_pool_size = 3\nmax_client_conn = 400\nserver_reset_query = DISCARD ALL\n\
            server_reset_query_always = 1\n",
            folder.display(),
            server.port(),
            folder.display()
        );
        server.write("pgbouncer.ini", &config);
        let process = Server::as_user(program)
            .arg("-q")
            .arg(folder.join("data/pgbouncer.ini"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let until = Instant::now() + Duration::from_secs(30);
        while !folder.join(".s.PGSQL.6432").exists() {
            assert!(Instant::now() < until, "the pooler does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { process, folder })
    }

    /// Returns the URL of a database through the pooler.
    fn url(&self, direct: &str) -> String {
        let (_, database) = direct.rsplit_once('/').expect("a database");
        format!(
            "host={} port=6432 user=postgres dbname={database}",
            self.folder.display()
        )
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // `runuser` forwards the signal to the program; SIGKILL would leave the program behind.
        let sent = std::process::Command::new("kill")
            .arg(self.process.id().to_string())
            .status();
        drop(sent);
        drop(self.process.wait());
    }
}

#[test]
fn the_store_contract_holds_behind_a_pooler_in_transaction_mode() {
    let Some(server) = Server::start_unsynced() else { return };
    let Some(pooler) = Pooler::start(&server) else { return };
    conformance::check(|name| {
        let url = pooler.url(&server.prepared());
        eprintln!("{name}");
        Box::new(move || Box::new(open(&url)) as Box<dyn Store>)
    });
}

#[test]
fn a_pooler_that_loses_commits_or_is_used_for_a_setup_is_refused_with_the_remedy() {
    let Some(server) = Server::start_unsynced() else { return };
    let Some(pooler) = Pooler::start(&server) else { return };
    let direct = server.prepared();
    let url = pooler.url(&direct);
    let refused = |result: Result<(), ConnectError>| result.expect_err("is refused").to_string();
    let why = refused(server.try_set_up(&url).map(drop));
    assert!(why.contains("name the PostgreSQL server itself"), "{why}");
    let (_, database) = direct.rsplit_once('/').expect("a database");
    server.sql(
        &direct,
        &format!("ALTER DATABASE {database} SET synchronous_commit = off"),
    );
    // Sessions that the pooler has opened before have the former value.
    server.sql(&direct, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()");
    let why = refused(PostgresStore::connect(&url, PostgresOptions::default()).map(drop));
    assert!(
        why.contains(&format!("ALTER DATABASE {database} SET synchronous_commit = on")),
        "{why}"
    );
    // A direct connection sets it for its session.
    drop(open(&direct));
}
