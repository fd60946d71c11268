//! Connections to the server, and connection errors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::poll_fn;
use tokio::sync::Notify;
use tokio_postgres::config::Host;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Row, Statement};

use crate::fault::Fault;

/// Release of absurd's schema that this version calls.
pub(crate) const ABSURD: &str = "0.5.1";
/// Version of the schema `pirn` that this version reads and writes.
pub(crate) const LAYOUT: i32 = 3;

/// Reason why a connection or a setup failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The URL is not a PostgreSQL URL.
    Url(String),
    /// No server answers at the URL, or it refuses the login.
    Unreachable {
        /// The server.
        server: String,
        /// The reason.
        why: String,
    },
    /// The database has no schema `pirn`, or an earlier version of it: [`setup`](crate::setup) creates or upgrades it.
    NotSetUp {
        /// The server.
        server: String,
        /// Version found; none if there is no schema.
        layout: Option<i32>,
    },
    /// The database has a schema of another version. Nothing was changed.
    Version {
        /// The server.
        server: String,
        /// Schema, version found, and version expected.
        why: String,
    },
    /// The program `absurdctl` is missing or failed.
    Absurdctl {
        /// The reason.
        why: String,
    },
    /// The server refused a request.
    Refused {
        /// The server.
        server: String,
        /// The reason.
        why: String,
    },
}

impl ConnectError {
    /// A stable code: `INVALID_URL`, `SERVER_UNREACHABLE`, `NOT_SET_UP`, `WRONG_SCHEMA`, `ABSURDCTL_FAILED` or
    /// `STORE_ERROR`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Url(_) => "INVALID_URL",
            Self::Unreachable { .. } => "SERVER_UNREACHABLE",
            Self::NotSetUp { .. } => "NOT_SET_UP",
            Self::Version { .. } => "WRONG_SCHEMA",
            Self::Absurdctl { .. } => "ABSURDCTL_FAILED",
            Self::Refused { .. } => "STORE_ERROR",
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(why) => write!(f, "invalid URL of a PostgreSQL server: {why}"),
            Self::Unreachable { server, why } => write!(f, "{server} does not answer: {why}"),
            Self::NotSetUp { server, layout: None } => write!(f, "{server} has no schema pirn"),
            Self::NotSetUp {
                server,
                layout: Some(found),
            } => write!(
                f,
                "{server}: its schema pirn has version {found}, which is older than {LAYOUT}"
            ),
            Self::Absurdctl { why } => write!(f, "absurdctl: {why}"),
            Self::Version { server, why } | Self::Refused { server, why } => write!(f, "{server}: {why}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// Address of a server.
#[derive(Clone)]
pub(crate) struct Server {
    config: Config,
    /// URL without user and password, for messages.
    pub(crate) name: Arc<str>,
}

impl Server {
    pub(crate) fn parse(url: &str) -> Result<Self, ConnectError> {
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            ConnectError::Url(format!("{error}{}", cause.unwrap_or_default()))
        })?;
        if config.get_hosts().is_empty() {
            return Err(ConnectError::Url(
                "no host; such as postgres://user@localhost:5432/pirn".to_owned(),
            ));
        }
        if config.get_connect_timeout().is_none() {
            // Without a limit, a host that drops packets blocks the connection for minutes.
            config.connect_timeout(Duration::from_secs(10));
        }
        // Detects a server that disappeared without closing the connection.
        config.tcp_user_timeout(Duration::from_secs(20));
        config.keepalives_idle(Duration::from_secs(20));
        config.application_name("pirn");
        let host = match &config.get_hosts()[0] {
            Host::Tcp(host) => host.clone(),
            #[cfg(unix)]
            Host::Unix(folder) => folder.display().to_string(),
        };
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
        // Built from the parts, because the URL may contain a password.
        let name = format!("postgres://{host}:{port}/{database}").into();
        Ok(Self { config, name })
    }

    /// Opens a connection. `heard` is notified of every `NOTIFY`.
    pub(crate) async fn connect(&self, heard: Option<Arc<Notify>>) -> Result<Connection, ConnectError> {
        let connected = self.config.connect(NoTls).await;
        let (client, mut connection) = connected.map_err(|error| ConnectError::Unreachable {
            server: self.name.to_string(),
            why: told(&error),
        })?;
        // The connection makes progress only while this task polls it.
        tokio::spawn(async move {
            // Errors of the connection are returned by the queries that wait on it.
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let (AsyncMessage::Notification(_), Some(heard)) = (message, &heard) {
                    heard.notify_one();
                }
            }
        });
        let connection = Connection {
            client,
            statements: Mutex::default(),
        };
        // The server's default may be off: an answered commit must be on disk.
        let set = "SET synchronous_commit = on; SET client_encoding = 'UTF8'; SET search_path = pg_catalog";
        connection.execute(set).await.map_err(|fault| self.refused(fault))?;
        Ok(connection)
    }

    /// Opens a connection and checks the versions of both schemas.
    pub(crate) async fn open(&self, heard: Option<Arc<Notify>>) -> Result<Connection, ConnectError> {
        let connection = self.connect(heard).await?;
        self.check(&connection).await?;
        Ok(connection)
    }

    async fn check(&self, on: &Connection) -> Result<(), ConnectError> {
        // Query the catalog, because the error of a query of a missing table cannot be distinguished from others.
        let there = "SELECT to_regclass('pirn.layout') IS NOT NULL AND to_regprocedure('absurd.get_schema_version()') IS NOT NULL";
        let is_there: bool = self.one(on, there).await?;
        if !is_there {
            return Err(ConnectError::NotSetUp {
                server: self.name.to_string(),
                layout: None,
            });
        }
        let layout: i32 = self.one(on, "SELECT version FROM pirn.layout").await?;
        if layout < LAYOUT {
            return Err(ConnectError::NotSetUp {
                server: self.name.to_string(),
                layout: Some(layout),
            });
        }
        // The exact release: the functions of `pirn` read absurd's tables, whose columns are no public interface.
        let absurd: String = self.one(on, "SELECT absurd.get_schema_version()").await?;
        self.expect("pirn", &layout, &LAYOUT)?;
        self.expect("absurd", &*absurd, ABSURD)
    }

    pub(crate) fn expect<T: PartialEq + fmt::Display + ?Sized>(
        &self,
        schema: &str,
        found: &T,
        expected: &T,
    ) -> Result<(), ConnectError> {
        if found == expected {
            return Ok(());
        }
        Err(ConnectError::Version {
            server: self.name.to_string(),
            why: format!("its schema {schema} has version {found}; this pirn requires {expected}"),
        })
    }

    pub(crate) async fn one<T>(&self, on: &Connection, sql: &'static str) -> Result<T, ConnectError>
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        let rows = on.query(sql, &[]).await.map_err(|fault| self.refused(fault))?;
        let row = rows
            .first()
            .ok_or_else(|| self.refused(Fault::Failed("no row".to_owned())))?;
        row.try_get(0).map_err(|error| self.refused(error.into()))
    }

    pub(crate) fn refused(&self, fault: Fault) -> ConnectError {
        let server = self.name.to_string();
        match fault {
            Fault::Lost(why) => ConnectError::Unreachable { server, why },
            Fault::Again(why) | Fault::Failed(why) | Fault::Refused(why, _) => ConnectError::Refused { server, why },
        }
    }
}

fn told(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        // The text of the error is only "db error" or "connection closed".
        (Some(refused), _) => refused.message().to_owned(),
        (None, Some(cause)) => cause.to_string(),
        (None, None) => error.to_string(),
    }
}

/// Connection with its prepared statements.
pub(crate) struct Connection {
    client: Client,
    statements: Mutex<BTreeMap<&'static str, Statement>>,
}

impl Connection {
    pub(crate) async fn execute(&self, sql: &str) -> Result<(), Fault> {
        Ok(self.client.batch_execute(sql).await?)
    }

    pub(crate) async fn query(&self, sql: &'static str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Fault> {
        let statement = self.prepared(sql).await?;
        Ok(self.client.query(&statement, parameters).await?)
    }

    /// Prepares a statement on first use.
    pub(crate) async fn prepared(&self, sql: &'static str) -> Result<Statement, Fault> {
        let known = || self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        // The lock is not held across the await. Two queries may prepare one statement, and the later one stays.
        if let Some(statement) = known().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        known().insert(sql, statement.clone());
        Ok(statement)
    }
}
