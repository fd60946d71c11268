//! Setup and upgrade of the database schemas.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use crate::connection::connect::{ABSURD, ConnectError, Connection, LAYOUT, Server};
use crate::thread;

const PIRN_SQL: &str = include_str!("../sql/pirn.sql");

/// Creates the schemas `absurd` and `pirn` and absurd's queue `pirn` in a database. Existing schemas and their data stay. A schema
/// `pirn` of an earlier version is upgraded if no other process is connected to it. Returns true if anything was created or
/// upgraded. Concurrent calls run one after another.
///
/// `absurdctl` is the program of that name (PyPI, 0.5.1), which creates its schema by `psql`. It runs only if that schema is
/// missing.
///
/// # Errors
/// The program is missing or fails, the server does not answer or refuses to create a schema, the database's encoding is not UTF-8,
/// the schema has a later version, or processes use an earlier version. Nothing is changed in `pirn` then.
pub fn setup(url: &str, absurdctl: impl AsRef<OsStr>) -> Result<bool, ConnectError> {
    let server = Server::parse(url)?;
    let absurdctl = absurdctl.as_ref().to_owned();
    let make = make(&server, &absurdctl);
    thread::block_on(make).map_err(|why| ConnectError::Refused {
        server: server.name.to_string(),
        why,
    })?
}

async fn make(server: &Server, absurdctl: &OsStr) -> Result<bool, ConnectError> {
    let on = server.connect(None).await?;
    if on.is_pooled {
        return Err(ConnectError::Refused {
            server: server.name.to_string(),
            // The locks of a setup belong to a session.
            why: "a setup cannot go through a connection pooler: name the PostgreSQL server itself by --url".to_owned(),
        });
    }
    let execute = async |sql: &str| on.execute(sql).await.map_err(|fault| server.refused(fault));
    let encoding: String = server.one(&on, "SELECT current_setting('server_encoding')").await?;
    // First, because no other encoding can store every text of a run, and it cannot be changed later.
    server.expect_encoding(&encoding)?;
    // Held until this connection closes: serializes concurrent setups.
    execute("SELECT pg_advisory_lock(7049, 0)").await?;
    let mut is_made = false;
    if server
        .one(&on, "SELECT to_regprocedure('absurd.get_schema_version()') IS NULL")
        .await?
    {
        make_absurd(server, absurdctl)?;
        is_made = true;
    }
    // Started after the lock: a transaction does not see a schema that was created after its first catalog lookup.
    execute("BEGIN").await?;
    let absurd: String = server.one(&on, "SELECT absurd.get_schema_version()").await?;
    // Before `pirn` is created, whose functions depend on absurd's tables.
    server.expect("absurd", &*absurd, ABSURD)?;
    execute("SELECT absurd.create_queue('pirn')").await?;
    let mut layout = 0;
    if server.one(&on, "SELECT to_regclass('pirn.layout') IS NOT NULL").await? {
        layout = server.one(&on, "SELECT version FROM pirn.layout").await?;
    }
    if layout < LAYOUT {
        server.expect_nobody(&on, layout).await?;
        // In the transaction: a failed upgrade leaves the earlier version intact.
        execute(PIRN_SQL).await?;
        layout = LAYOUT;
        is_made = true;
    }
    server.expect("pirn", &layout, &LAYOUT)?;
    execute("COMMIT").await?;
    Ok(is_made)
}

/// Runs absurd's program, which opens its own connection.
fn make_absurd(server: &Server, absurdctl: &OsStr) -> Result<(), ConnectError> {
    let failed = |why: String| ConnectError::Absurdctl { why };
    let output = Command::new(absurdctl)
        .arg("init")
        // Pass every setting in the environment: other users can read the arguments of psql.
        .envs(server.settings().as_variables())
        .env("ABSURD_DATABASE_URL", "postgresql://")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(said.trim().to_owned()))
}

impl Server {
    /// Fails while processes are connected that use an earlier layout: the upgrade drops functions that they call.
    async fn expect_nobody(&self, on: &Connection, layout: i32) -> Result<(), ConnectError> {
        const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
            AND application_name LIKE 'pirn%' AND pid <> pg_backend_pid() AND NOT EXISTS ( \
              SELECT FROM pg_locks l WHERE l.pid = pg_stat_activity.pid AND l.locktype = 'advisory' AND l.classid = 7049 AND l.objid = 0)";
        let others: i64 = if layout == 0 { 0 } else { self.one(on, OTHERS).await? };
        if others == 0 {
            return Ok(());
        }
        Err(ConnectError::Version {
            server: self.name.to_string(),
            why: format!(
                "its schema pirn has version {layout} and is in use ({others} connections): stop the processes, then set it up again"
            ),
        })
    }

    fn expect_encoding(&self, found: &str) -> Result<(), ConnectError> {
        if found == "UTF8" {
            return Ok(());
        }
        Err(ConnectError::Refused {
            server: self.name.to_string(),
            why: format!("the database has the encoding {found}; create one with ENCODING 'UTF8'"),
        })
    }
}
