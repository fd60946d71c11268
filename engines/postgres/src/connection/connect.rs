//! Connections to the server, and connection errors.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::poll_fn;
use tokio::sync::Notify;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Row, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::advice::{Kind, Refusal, explain};
use super::fault::Fault;
use super::parameter::Parameter;
use super::settings::{Environment, Settings, SslMode, Target};
use super::tls;

/// Release of absurd's schema that this version calls.
pub(crate) const ABSURD: &str = "0.5.1";
/// Version of the schema `pirn` that this version reads and writes.
pub(crate) const LAYOUT: i32 = 3;

/// Reason why a connection or a setup failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The connection string, or a setting of the environment, is invalid.
    Url(String),
    /// No server answers at the URL, or it refuses the login.
    Unreachable {
        /// The server.
        server: String,
        /// The reason.
        why: String,
        /// The setting to change.
        help: Option<String>,
    },
    /// TLS failed: a certificate is missing or not trusted.
    Tls {
        /// The server.
        server: String,
        /// The reason.
        why: String,
        /// The setting to change.
        help: Option<String>,
    },
    /// No server accepts writes.
    ReadOnly {
        /// The server.
        server: String,
        /// The reason.
        why: String,
        /// The setting to change.
        help: Option<String>,
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
    /// A stable code: `INVALID_URL`, `SERVER_UNREACHABLE`, `TLS_FAILED`, `READ_ONLY_SERVER`, `NOT_SET_UP`, `WRONG_SCHEMA`,
    /// `ABSURDCTL_FAILED` or `STORE_ERROR`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Url(_) => "INVALID_URL",
            Self::Unreachable { .. } => "SERVER_UNREACHABLE",
            Self::Tls { .. } => "TLS_FAILED",
            Self::ReadOnly { .. } => "READ_ONLY_SERVER",
            Self::NotSetUp { .. } => "NOT_SET_UP",
            Self::Version { .. } => "WRONG_SCHEMA",
            Self::Absurdctl { .. } => "ABSURDCTL_FAILED",
            Self::Refused { .. } => "STORE_ERROR",
        }
    }

    /// Returns the setting to change, if it is known.
    pub fn help(&self) -> Option<&str> {
        match self {
            Self::Unreachable { help, .. } | Self::Tls { help, .. } | Self::ReadOnly { help, .. } => help.as_deref(),
            Self::Url(_)
            | Self::NotSetUp { .. }
            | Self::Version { .. }
            | Self::Absurdctl { .. }
            | Self::Refused { .. } => None,
        }
    }

    /// Formats the error with its help, for a message in one line.
    pub(crate) fn in_full(&self) -> String {
        match self.help() {
            Some(help) => format!("{self}; {help}"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(why) => write!(f, "invalid connection settings of PostgreSQL: {why}"),
            Self::Unreachable { server, why, .. } => write!(f, "cannot connect to {server}: {why}"),
            Self::NotSetUp { server, layout: None } => write!(f, "{server} has no schema pirn"),
            Self::NotSetUp {
                server,
                layout: Some(found),
            } => write!(
                f,
                "{server}: its schema pirn has version {found}, which is older than {LAYOUT}"
            ),
            Self::Absurdctl { why } => write!(f, "absurdctl: {why}"),
            Self::Tls { server, why, .. }
            | Self::ReadOnly { server, why, .. }
            | Self::Version { server, why }
            | Self::Refused { server, why } => write!(f, "{server}: {why}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// The servers that a connection string names.
#[derive(Clone)]
pub(crate) struct Server {
    settings: Arc<Settings>,
    /// URL without user and password, for messages.
    pub(crate) name: Arc<str>,
    /// True once a pooler has refused the settings of a session.
    has_pooler: Arc<AtomicBool>,
}

/// Settings of a session, sent with the login. The server's default of `synchronous_commit` may be off, and an answered commit must
/// be on disk. A pooler refuses or ignores the settings, so that `pirn.direct` is set only in a connection to the server itself.
const SESSION: &str = "-c synchronous_commit=on -c search_path=pg_catalog -c pirn.direct=on";

impl Server {
    pub(crate) fn parse(url: &str) -> Result<Self, ConnectError> {
        let settings = Settings::of(url, &Environment::of_process()).map_err(ConnectError::Url)?;
        let servers: Vec<String> = settings.targets.iter().map(ToString::to_string).collect();
        // Built from the parts, because the URL may contain a password.
        let name = format!("postgres://{}/{}", servers.join(","), settings.database).into();
        Ok(Self {
            settings: Arc::new(settings),
            name,
            has_pooler: Arc::default(),
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Opens a connection to the first server that accepts writes. `notify` is notified of every `NOTIFY`.
    pub(crate) async fn connect(&self, notify: Option<Arc<Notify>>) -> Result<Connection, ConnectError> {
        let mut targets: Vec<&Target> = self.settings.targets.iter().collect();
        if self.settings.is_random {
            // The seed of a hash is random.
            let random = std::collections::hash_map::RandomState::new();
            targets.sort_by_cached_key(|target| random.hash_one(target.to_string()));
        }
        let mut refusals = Vec::new();
        for target in &targets {
            match self.login(target, notify.as_ref()).await {
                Ok(client) => return self.connection(client).await,
                Err(refusal) => refusals.push((target.to_string(), refusal)),
            }
        }
        Err(self.unusable(refusals))
    }

    /// Opens a connection to a server, by the methods that `sslmode` allows.
    async fn login(&self, target: &Target, notify: Option<&Arc<Notify>>) -> Result<Client, Refusal> {
        use tokio_postgres::config::SslMode as Tls;
        let modes: &[Tls] = match self.settings.sslmode {
            // Sockets have no TLS.
            _ if target.is_socket() => &[Tls::Disable],
            SslMode::Disable => &[Tls::Disable],
            SslMode::Allow => &[Tls::Disable, Tls::Require],
            SslMode::Prefer => &[Tls::Prefer, Tls::Disable],
            SslMode::VerifyFull if !target.has_name() => {
                let why = "sslmode=verify-full compares a name, and hostaddr is only an address";
                return Err(Refusal::new(
                    Kind::Tls,
                    why,
                    "set host to the name of the server".to_owned(),
                ));
            }
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => &[Tls::Require],
        };
        // Before any attempt: an unreadable certificate must not lead to a connection without TLS.
        let tls = if modes.iter().all(|mode| *mode == Tls::Disable) {
            None
        } else {
            Some(tls::connector(&self.settings).map_err(|why| Refusal::new(Kind::Tls, why, None))?)
        };
        let mut first = None;
        for mode in modes {
            let tls = tls.as_ref().filter(|_| *mode != Tls::Disable);
            let attempt = self.attempt(target, *mode, tls, notify);
            let logged_in = match self.settings.timeout {
                None => attempt.await,
                Some(limit) => tokio::time::timeout(limit, attempt)
                    .await
                    .unwrap_or_else(|_| Err(Refusal::timeout(&self.settings))),
            };
            match logged_in {
                Ok(client) => return Ok(client),
                // The other method may be the one that `pg_hba.conf` allows.
                Err(refusal) if matches!(refusal.kind, Kind::Tls | Kind::Login) => {
                    // The first method is the preferred one, and the reason why it failed the one to report.
                    first = first.or(Some(refusal));
                }
                Err(refusal) => return Err(first.unwrap_or(refusal)),
            }
        }
        Err(first.unwrap_or_else(|| Refusal::new(Kind::Unreachable, "no method of login", None)))
    }

    async fn attempt(
        &self,
        target: &Target,
        mode: tokio_postgres::config::SslMode,
        tls: Option<&MakeRustlsConnect>,
        notify: Option<&Arc<Notify>>,
    ) -> Result<Client, Refusal> {
        let config = || {
            let mut config = self
                .settings
                .config(target)
                .map_err(|why| Refusal::new(Kind::Unreachable, why, None))?;
            config.ssl_mode(mode);
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            Ok::<_, Refusal>(config)
        };
        let own = self.settings.get("options");
        if !self.has_pooler.load(Ordering::Relaxed) {
            let mut config = config()?;
            // The last setting of a name is valid: the user's options cannot change those that commits need.
            config.options(format!("{} {SESSION}", own.unwrap_or_default()).trim_start());
            match self.open_with(&config, target, tls, notify).await {
                Err(refusal) if refusal.kind == Kind::Pooler => {}
                other => return other,
            }
            self.has_pooler.store(true, Ordering::Relaxed);
        }
        let mut config = config()?;
        if let Some(own) = own {
            config.options(own);
        }
        self.open_with(&config, target, tls, notify).await
    }

    async fn open_with(
        &self,
        config: &Config,
        target: &Target,
        tls: Option<&MakeRustlsConnect>,
        notify: Option<&Arc<Notify>>,
    ) -> Result<Client, Refusal> {
        let opened = match tls {
            Some(tls) => open(config, tls.clone(), notify).await,
            None => open(config, NoTls, notify).await,
        };
        opened.map_err(|error| explain(&error, &self.settings, target))
    }

    /// Finds out whether a pooler is between this process and the server, and what it must guarantee.
    async fn connection(&self, client: Client) -> Result<Connection, ConnectError> {
        const STATE: &str =
            "SELECT coalesce(current_setting('pirn.direct', true), '') = 'on', current_setting('synchronous_commit')";
        let state = client.query_typed(STATE, &[]).await;
        let state = state.and_then(|rows| {
            let row = rows.first().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
            row.unwrap_or_else(|| Ok((false, String::new())))
        });
        let (is_direct, durability): (bool, String) = state.map_err(|error| self.refused(error.into()))?;
        if !is_direct && !["on", "remote_apply"].contains(&&*durability) {
            return Err(ConnectError::Refused {
                server: self.name.to_string(),
                why: format!(
                    "a connection pooler forwards no settings, and synchronous_commit is {durability}: \
                    ALTER DATABASE {} SET synchronous_commit = on",
                    self.settings.database
                ),
            });
        }
        Ok(Connection {
            client,
            is_pooled: !is_direct,
            statements: Mutex::default(),
        })
    }

    fn unusable(&self, mut refusals: Vec<(String, Refusal)>) -> ConnectError {
        let server = self.name.to_string();
        let kind = refusals.first().map(|(_, refusal)| refusal.kind);
        let is_same = refusals.iter().all(|(_, refusal)| Some(refusal.kind) == kind);
        let why = match &*refusals {
            [(_, only)] => only.why.clone(),
            several => {
                let each = several
                    .iter()
                    .map(|(target, refusal)| format!("{target}: {}", refusal.why));
                each.collect::<Vec<_>>().join("; ")
            }
        };
        let help = refusals.iter_mut().find_map(|(_, refusal)| refusal.help.take());
        match kind {
            Some(Kind::Tls) if is_same => ConnectError::Tls { server, why, help },
            Some(Kind::ReadOnly) if is_same => ConnectError::ReadOnly { server, why, help },
            _ => ConnectError::Unreachable { server, why, help },
        }
    }

    /// Opens a connection and checks the versions of both schemas.
    pub(crate) async fn open(&self, notify: Option<Arc<Notify>>) -> Result<Connection, ConnectError> {
        let connection = self.connect(notify).await?;
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
            Fault::Lost(why) => ConnectError::Unreachable {
                server,
                why,
                help: None,
            },
            Fault::Again(why) | Fault::Failed(why) | Fault::Refused(why, _) => ConnectError::Refused { server, why },
        }
    }
}

/// Opens a connection, and starts the task that drives it.
async fn open<T>(config: &Config, tls: T, notify: Option<&Arc<Notify>>) -> Result<Client, tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, mut connection) = config.connect(tls).await?;
    let notify = notify.cloned();
    // The connection makes progress only while this task polls it.
    tokio::spawn(async move {
        // Errors of the connection are returned by the queries that wait on it.
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let (AsyncMessage::Notification(_), Some(notify)) = (message, &notify) {
                notify.notify_one();
            }
        }
    });
    Ok(client)
}

/// Connection with its prepared statements.
pub(crate) struct Connection {
    client: Client,
    /// True behind a connection pooler, which may execute each transaction in another session of the server: nothing may depend on
    /// the state of a session.
    pub(crate) is_pooled: bool,
    statements: Mutex<BTreeMap<&'static str, Statement>>,
}

impl Connection {
    pub(crate) async fn execute(&self, sql: &str) -> Result<(), Fault> {
        Ok(self.client.batch_execute(sql).await?)
    }

    pub(crate) async fn query(&self, sql: &'static str, parameters: &[&dyn Parameter]) -> Result<Vec<Row>, Fault> {
        if self.is_pooled {
            // A prepared statement belongs to a session.
            let typed = parameters.iter().map(|parameter| {
                let value: &(dyn ToSql + Sync) = *parameter;
                (value, parameter.sql_type())
            });
            return Ok(self.client.query_typed(sql, &typed.collect::<Vec<_>>()).await?);
        }
        let statement = self.prepared(sql).await?;
        let values = parameters.iter().map(|parameter| {
            let value: &(dyn ToSql + Sync) = *parameter;
            value
        });
        Ok(self.client.query(&statement, &values.collect::<Vec<_>>()).await?)
    }

    /// Prepares a statement before it is used, if the connection has prepared statements.
    pub(crate) async fn prepare(&self, sql: &'static str) -> Result<(), Fault> {
        if !self.is_pooled {
            self.prepared(sql).await?;
        }
        Ok(())
    }

    /// Prepares a statement on first use.
    async fn prepared(&self, sql: &'static str) -> Result<Statement, Fault> {
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
