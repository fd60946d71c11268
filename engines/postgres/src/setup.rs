//! The schemas in the database.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use crate::connect::{ABSURD, ConnectError, Connection, LAYOUT, Server};
use crate::thread;

const PIRN_SQL: &str = include_str!("../sql/pirn.sql");

/// Makes the schemas `absurd` and `pirn` in a database, and absurd's queue `pirn`; what is there stays. A schema `pirn` of an earlier
/// version is brought up to date, with all runs in it, once no other process is connected to it. True if anything was
/// made. Several at a time do it once. `absurdctl` is the program of that name (PyPI, 0.5.1), which makes the first by `psql`; it is
/// run only where that schema is not there.
///
/// # Errors
/// The program is not there or fails, the server does not answer or lets nobody make a schema, the database's encoding is not UTF-8,
/// a schema of a later version is there, or processes use one of an earlier version: then nothing is changed.
pub fn setup(url: &str, absurdctl: impl AsRef<OsStr>) -> Result<bool, ConnectError> {
    let server = Server::parse(url)?;
    let absurdctl = absurdctl.as_ref().to_owned();
    let make = make(&server, url, &absurdctl);
    thread::block_on(make).map_err(|why| ConnectError::Refused {
        server: server.name.to_string(),
        why,
    })?
}

async fn make(server: &Server, url: &str, absurdctl: &OsStr) -> Result<bool, ConnectError> {
    let on = server.connect(None).await?;
    let execute = async |sql: &str| on.execute(sql).await.map_err(|fault| server.refused(fault));
    let encoding: String = server.one(&on, "SELECT current_setting('server_encoding')").await?;
    server.expect_encoding(&encoding)?;
    // Until this connection ends.
    execute("SELECT pg_advisory_lock(7049, 0)").await?;
    let mut is_made = false;
    if server
        .one(&on, "SELECT to_regprocedure('absurd.get_schema_version()') IS NULL")
        .await?
    {
        make_absurd(url, absurdctl)?;
        is_made = true;
    }
    // Not before: a transaction does not see the schema that another made meanwhile, once it has looked for it.
    execute("BEGIN").await?;
    let absurd: String = server.one(&on, "SELECT absurd.get_schema_version()").await?;
    server.expect("absurd", &*absurd, ABSURD)?;
    execute("SELECT absurd.create_queue('pirn')").await?;
    let mut layout = 0;
    if server.one(&on, "SELECT to_regclass('pirn.layout') IS NOT NULL").await? {
        layout = server.one(&on, "SELECT version FROM pirn.layout").await?;
    }
    if layout < LAYOUT {
        server.expect_nobody(&on, layout).await?;
        execute(PIRN_SQL).await?;
        layout = LAYOUT;
        is_made = true;
    }
    server.expect("pirn", &layout, &LAYOUT)?;
    execute("COMMIT").await?;
    Ok(is_made)
}

/// Has absurd's own program make its schema, by a connection of its own.
fn make_absurd(url: &str, absurdctl: &OsStr) -> Result<(), ConnectError> {
    let failed = |why: String| ConnectError::Absurdctl { why };
    let output = Command::new(absurdctl)
        .arg("init")
        // Not among the arguments, which others see: it may have a password.
        .env("ABSURD_DATABASE_URL", url)
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
    /// Refuses while processes work with an earlier layout: they call functions that would be there no more.
    async fn expect_nobody(&self, on: &Connection, layout: i32) -> Result<(), ConnectError> {
        const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
            AND application_name = 'pirn' AND pid <> pg_backend_pid() AND NOT EXISTS ( \
              SELECT FROM pg_locks l WHERE l.pid = pg_stat_activity.pid AND l.locktype = 'advisory' AND l.classid = 7049 AND l.objid = 0)";
        let others: i64 = if layout == 0 { 0 } else { self.one(on, OTHERS).await? };
        if others == 0 {
            return Ok(());
        }
        Err(ConnectError::Version {
            server: self.name.to_string(),
            why: format!(
                "its schema pirn is of version {layout}, and processes work with it ({others} connections): stop them, then set it up again"
            ),
        })
    }

    fn expect_encoding(&self, found: &str) -> Result<(), ConnectError> {
        if found == "UTF8" {
            return Ok(());
        }
        Err(ConnectError::Refused {
            server: self.name.to_string(),
            why: format!("the database is encoded as {found}; make one with ENCODING 'UTF8'"),
        })
    }
}
