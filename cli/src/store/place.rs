//! Location of a store of runs: a file that one process holds, or a server that several processes share.

#[cfg(feature = "restate")]
pub(crate) mod restate;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::Either;
use pirn::Engine;
use pirn::config::ConfigText;
use pirn::store::{SqliteStore, Store, StoreError};

use super::store_key::KeyArgs;
use crate::output::failure::Failure;
use crate::output::terminal::shell_quoted;
use crate::store::{file, has_listener, refused};

/// Time for which a command waits for a store that another process holds without answering requests. Most commands hold a store for
/// milliseconds.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Pause between two attempts to open such a store.
const PAUSE: Duration = Duration::from_millis(25);

/// The location of the runs.
#[derive(clap::Args)]
pub(crate) struct StoreArgs {
    /// The store: a file, or a folder with a runs.db (default: PIRN_STORE of the environment, otherwise runs.db)
    #[arg(long, global = true, value_name = "FILE")]
    store: Option<String>,
    #[command(flatten)]
    shared: SharedArgs,
}

impl StoreArgs {
    /// Returns the location that the arguments name.
    pub(crate) fn place(&self) -> Result<Place, Failure> {
        let place = self.shared.place()?;
        let file = || self.store.clone().or_else(from_environment);
        Ok(place.unwrap_or_else(|| self.shared.file(file().unwrap_or_else(|| "runs.db".to_owned()))))
    }

    /// Opens an existing store file.
    pub(crate) fn open_file(&self) -> Result<SqliteStore, Failure> {
        match self.place()? {
            Place::File(file) => {
                check_exists(&file.path())?;
                file.open(None)
            }
            #[cfg(feature = "postgres")]
            Place::Postgres(_) => Err(no_file()),
            #[cfg(feature = "restate")]
            Place::Restate(_) => Err(no_file()),
        }
    }

    /// Opens an existing store.
    pub(crate) fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        self.place()?.open_existing()
    }

    /// Opens an existing store, or returns the answer of the process that holds it; see [`StoreFile::open_or`].
    pub(crate) fn open_or<T>(
        &self,
        ask: impl Fn(&Path, &StoreError) -> Option<Result<T, Failure>>,
    ) -> Result<Either<Arc<dyn Store>, T>, Failure> {
        match self.place()? {
            Place::File(file) => {
                check_exists(&file.path())?;
                Ok(match file.open_or(None, ask)? {
                    Either::Left(store) => Either::Left(Arc::new(store)),
                    Either::Right(answer) => Either::Right(answer),
                })
            }
            #[cfg(feature = "cluster")]
            place => place.open(None).map(Either::Left),
        }
    }

    /// Builds an engine without workflows over the store, for commands that only read.
    pub(crate) fn open_engine(&self) -> Result<Engine, Failure> {
        engine_over(self.open()?)
    }
}

/// Builds an engine without workflows over a store.
pub(crate) fn engine_over(store: Arc<dyn Store>) -> Result<Engine, Failure> {
    let built = Engine::builder().shared_store(store).arbiters(1).build();
    built.map_err(|error| Failure::failed("ENGINE_NOT_BUILT", error.to_string()))
}

/// Returns the failure of a command about a file.
#[cfg(feature = "cluster")]
fn no_file() -> Failure {
    let message = "the command needs a store file; a store on a server relies on the encryption of that server";
    Failure::usage("USAGE", message).with_help("name a file: --store FILE")
}

/// Returns the store that the environment names.
fn from_environment() -> Option<String> {
    std::env::var("PIRN_STORE").ok().filter(|named| !named.is_empty())
}

/// The server of a store that several processes share.
#[derive(clap::Args)]
pub(crate) struct SharedArgs {
    /// Store runs in a server that several processes share, instead of --store
    #[cfg(feature = "cluster")]
    #[arg(long, global = true, value_enum, value_name = "ENGINE")]
    engine: Option<EngineName>,
    /// The engine's server, such as postgres:///pirn (local socket), postgres://user@db.example/pirn?sslmode=verify-full,
    /// "host=db dbname=pirn" or http://localhost:8080 (default: the environment's PIRN_ENGINE_URL)
    #[cfg(feature = "cluster")]
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// The admin API of a Restate server (default: port 9070 of the host in --url)
    #[cfg(feature = "restate")]
    #[arg(long, global = true, value_name = "URL")]
    admin: Option<String>,
    /// Seconds without a heartbeat after which other processes claim the runs of a process
    #[cfg(feature = "cluster")]
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    claim: u32,
    #[command(flatten)]
    key: KeyArgs,
}

/// The engines whose stores several processes share.
#[cfg(feature = "cluster")]
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum EngineName {
    /// PostgreSQL, by absurd's schema
    #[cfg(feature = "postgres")]
    Postgres,
    /// A Restate server
    #[cfg(feature = "restate")]
    Restate,
}

/// A store file with the argument that names its keys.
#[derive(Clone)]
pub(crate) struct StoreFile {
    named: String,
    key: KeyArgs,
}

/// Location of a store; see the module.
#[derive(Clone)]
pub(crate) enum Place {
    File(StoreFile),
    #[cfg(feature = "postgres")]
    Postgres(shared::Postgres),
    #[cfg(feature = "restate")]
    Restate(restate::Restate),
}

impl SharedArgs {
    /// Returns the server, if the arguments name one.
    #[cfg(feature = "cluster")]
    pub(crate) fn place(&self) -> Result<Option<Place>, Failure> {
        let url = self.url.clone().or_else(|| std::env::var("PIRN_ENGINE_URL").ok());
        match (self.engine, url) {
            #[cfg(feature = "postgres")]
            (Some(EngineName::Postgres), Some(url)) => {
                self.key.refuse()?;
                Ok(Some(Place::Postgres(shared::Postgres {
                    url,
                    claim: self.claim,
                    advertise: None,
                })))
            }
            #[cfg(feature = "restate")]
            (Some(EngineName::Restate), Some(url)) => {
                self.key.refuse()?;
                Ok(Some(Place::Restate(restate::Restate {
                    url,
                    admin: self.admin.clone(),
                    claim: self.claim,
                    advertise: None,
                    endpoint: None,
                })))
            }
            // As for psql, the environment alone may name the database.
            #[cfg(feature = "postgres")]
            (Some(EngineName::Postgres), None)
                if ["PGHOST", "PGDATABASE", "PGSERVICE"]
                    .iter()
                    .any(|name| std::env::var_os(name).is_some()) =>
            {
                self.key.refuse()?;
                let url = "postgres://".to_owned();
                Ok(Some(Place::Postgres(shared::Postgres {
                    url,
                    claim: self.claim,
                    advertise: None,
                })))
            }
            (Some(_), None) => Err(Failure::usage("USAGE", "--engine needs the --url of its server")
                .with_help("such as --url postgres:///pirn, or http://localhost:8080 of Restate")),
            (None, _) if self.url.is_some() => Err(Failure::usage("USAGE", "--url needs --engine")),
            (None, _) => Ok(None),
        }
    }

    /// Returns `None`: this build supports no server engines.
    #[cfg(not(feature = "cluster"))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)] // as with an engine
    pub(crate) fn place(&self) -> Result<Option<Place>, Failure> {
        Ok(None)
    }

    /// Returns the server, or else the file of this name or of the environment.
    pub(crate) fn or(&self, store: Option<&str>) -> Result<Option<Place>, Failure> {
        Ok(self.place()?.or_else(|| {
            store
                .map(str::to_owned)
                .or_else(from_environment)
                .map(|named| self.file(named))
        }))
    }

    fn file(&self, named: String) -> Place {
        let key = self.key.clone();
        Place::File(StoreFile { named, key })
    }
}

impl StoreFile {
    fn path(&self) -> PathBuf {
        file(&self.named)
    }

    fn open(&self, config: Option<&ConfigText>) -> Result<SqliteStore, Failure> {
        // A process that listens may hold the store for days.
        let fails = |path: &Path, held: &StoreError| has_listener(path).then(|| Err(refused(held)));
        let Either::Left(store) = self.open_or::<Infallible>(config, fails)?;
        Ok(store)
    }

    /// Opens the store. If another process holds it, calls `ask` and returns the answer of that process. Without an answer, repeats both
    /// for [`LONGEST_WAIT`].
    #[allow(clippy::disallowed_methods)] // real time, because the other process is waited for; no engine is running here
    fn open_or<T>(
        &self,
        config: Option<&ConfigText>,
        ask: impl Fn(&Path, &StoreError) -> Option<Result<T, Failure>>,
    ) -> Result<Either<SqliteStore, T>, Failure> {
        let (path, keys) = (self.path(), self.key.keys(config)?);
        let started = Instant::now();
        loop {
            let opened = match &keys {
                None => SqliteStore::open(&path),
                Some(keys) => SqliteStore::open_encrypted(&path, keys.clone()),
            };
            let held = match opened {
                Err(error @ StoreError::Held { .. }) => error,
                opened => return opened.map(Either::Left).map_err(|error| refused(&error)),
            };
            if let Some(answer) = ask(&path, &held) {
                return answer.map(Either::Right);
            }
            if started.elapsed() >= LONGEST_WAIT {
                let advice = "that process answers no requests of other commands; repeat the command when it has ended";
                return Err(refused(&held).with_help(advice));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn check_exists(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Ok(());
    }
    let message = format!("there is no store {}", path.display());
    Err(Failure::usage("NO_STORE", message).with_help("name it with --store FILE; `pirn run --store FILE` makes one"))
}

impl Place {
    /// Opens the store; a missing file is created. The config may name its keys; without one, the default config does.
    pub(crate) fn open(&self, config: Option<&ConfigText>) -> Result<Arc<dyn Store>, Failure> {
        match self {
            Self::File(file) => Ok(Arc::new(file.open(config)?)),
            #[cfg(feature = "postgres")]
            Self::Postgres(server) => server.open(),
            #[cfg(feature = "restate")]
            Self::Restate(server) => server.open(),
        }
    }

    /// Opens the store; fails if its file is missing.
    pub(crate) fn open_existing(&self) -> Result<Arc<dyn Store>, Failure> {
        if let Some(path) = self.file() {
            check_exists(&path)?;
        }
        self.open(None)
    }

    /// Returns the path of the file; `None` for a server.
    #[cfg_attr(not(feature = "cluster"), allow(clippy::unnecessary_wraps))] // as with an engine
    pub(crate) fn file(&self) -> Option<PathBuf> {
        match self {
            Self::File(file) => Some(file.path()),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
            #[cfg(feature = "restate")]
            Self::Restate(_) => None,
        }
    }

    /// Sets the base URL of the service in this process. Returns false if no other process can read it: the store is a file.
    #[cfg_attr(not(feature = "cluster"), allow(clippy::unused_self))] // as with an engine
    pub(crate) fn advertise(&mut self, url: &str) -> bool {
        #[cfg(not(feature = "cluster"))]
        let _ = url;
        match self {
            Self::File(_) => false,
            #[cfg(feature = "postgres")]
            Self::Postgres(server) => {
                server.advertise = Some(url.to_owned());
                true
            }
            #[cfg(feature = "restate")]
            Self::Restate(server) => {
                server.advertise = Some(url.to_owned());
                true
            }
        }
    }

    /// Formats the command line arguments that name this location.
    pub(crate) fn arguments(&self) -> String {
        match self {
            Self::File(file) => format!("--store {}", shell_quoted(&file.named)),
            #[cfg(feature = "postgres")]
            Self::Postgres(server) => format!("--engine postgres --url {}", shell_quoted(&server.shown())),
            #[cfg(feature = "restate")]
            Self::Restate(server) => server.arguments(),
        }
    }
}

#[cfg(feature = "postgres")]
pub(crate) mod shared {
    use std::sync::Arc;
    use std::time::Duration;

    use pirn::store::Store;
    use pirn_postgres::{ConnectError, PostgresOptions, PostgresStore};

    use crate::output::failure::Failure;
    use crate::output::terminal::shell_quoted;

    #[derive(Clone)]
    pub(crate) struct Postgres {
        pub(super) url: String,
        /// Duration of a claim, in seconds.
        pub(super) claim: u32,
        /// Base URL of the service in this process.
        pub(super) advertise: Option<String>,
    }

    impl Postgres {
        pub(super) fn open(&self) -> Result<Arc<dyn Store>, Failure> {
            let mut options = PostgresOptions::default().claim(Duration::from_secs(u64::from(self.claim)));
            options.advertise.clone_from(&self.advertise);
            let store = PostgresStore::connect(&self.url, options).map_err(|error| self.refused(&error))?;
            Ok(Arc::new(store))
        }

        /// Creates the missing schemas; returns true if any was created.
        pub(crate) fn set_up(&self, absurdctl: &str) -> Result<bool, Failure> {
            pirn_postgres::setup(&self.url, absurdctl).map_err(|error| self.refused(&error))
        }

        fn refused(&self, error: &ConnectError) -> Failure {
            let failure = Failure::usage(error.code(), error.to_string());
            match error {
                ConnectError::NotSetUp { .. } => failure.with_help(format!(
                    "set it up once: pirn worker --setup --engine postgres --url {}",
                    shell_quoted(&self.shown())
                )),
                ConnectError::Absurdctl { .. } => {
                    failure.with_help("install it, and psql: pip install absurdctl==0.5.1; or name it by --absurdctl")
                }
                ConnectError::Url(_) => failure.with_help(
                    "such as postgres:///pirn (local socket) or postgres://user@host:5432/pirn?sslmode=verify-full",
                ),
                ConnectError::Version { .. } => failure.with_help(
                    "all workers of a server must have one version: stop the others, and migrate the schema first",
                ),
                _other => match error.help() {
                    Some(help) => failure.with_help(help.to_owned()),
                    None => failure,
                },
            }
        }

        /// Returns the URL without its password.
        pub(super) fn shown(&self) -> String {
            pirn_postgres::without_password(&self.url)
        }
    }
}
