//! Location of a store of runs: a file that one process holds, or a server that several processes share.

#[cfg(feature = "restate")]
pub(crate) mod restate;

use std::path::PathBuf;
use std::sync::Arc;

use pirn::Engine;
use pirn::store::{SqliteStore, Store};

use crate::failure::Failure;
use crate::store::{file, refused};
use crate::terminal::shell_quoted;

/// The location of the runs.
#[derive(clap::Args)]
pub(crate) struct StoreArgs {
    /// The store: a file, or a folder with a runs.db
    #[arg(long, global = true, value_name = "FILE", default_value = "runs.db")]
    store: String,
    #[command(flatten)]
    shared: SharedArgs,
}

impl StoreArgs {
    /// Returns the location that the arguments name.
    pub(crate) fn place(&self) -> Result<Place, Failure> {
        let place = self.shared.place()?;
        Ok(place.unwrap_or_else(|| Place::File(self.store.clone())))
    }

    /// Opens an existing store.
    pub(crate) fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        self.place()?.open_existing()
    }

    /// Builds an engine without workflows over the store, for commands that only read.
    pub(crate) fn open_engine(&self) -> Result<Engine, Failure> {
        let built = Engine::builder().shared_store(self.open()?).arbiters(1).build();
        built.map_err(|error| Failure::failed("ENGINE_NOT_BUILT", error.to_string()))
    }
}

/// The server of a store that several processes share.
#[derive(clap::Args)]
pub(crate) struct SharedArgs {
    /// Store runs in a server that several processes share, instead of --store
    #[cfg(feature = "cluster")]
    #[arg(long, global = true, value_enum, value_name = "ENGINE")]
    engine: Option<EngineName>,
    /// The engine's server, such as postgres://user@localhost:5432/pirn or http://localhost:8080 (default: the environment's
    /// PIRN_ENGINE_URL)
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

/// Location of a store; see the module.
#[derive(Clone)]
pub(crate) enum Place {
    File(String),
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
                Ok(Some(Place::Postgres(shared::Postgres { url, claim: self.claim })))
            }
            #[cfg(feature = "restate")]
            (Some(EngineName::Restate), Some(url)) => Ok(Some(Place::Restate(restate::Restate {
                url,
                admin: self.admin.clone(),
                claim: self.claim,
                endpoint: None,
            }))),
            (Some(_), None) => Err(Failure::usage("USAGE", "--engine needs the --url of its server")
                .with_help("such as --url postgres://user@localhost:5432/pirn, or http://localhost:8080 of Restate")),
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

    /// Returns the server, or else the file of this name.
    pub(crate) fn or(&self, store: Option<&str>) -> Result<Option<Place>, Failure> {
        Ok(self
            .place()?
            .or_else(|| store.map(|named| Place::File(named.to_owned()))))
    }
}

impl Place {
    /// Opens the store; a missing file is created.
    pub(crate) fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        match self {
            Self::File(named) => {
                let store = SqliteStore::open(file(named)).map_err(|error| refused(&error))?;
                Ok(Arc::new(store))
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(server) => server.open(),
            #[cfg(feature = "restate")]
            Self::Restate(server) => server.open(),
        }
    }

    /// Opens the store; fails if its file is missing.
    pub(crate) fn open_existing(&self) -> Result<Arc<dyn Store>, Failure> {
        if let Some(path) = self.file().filter(|path| !path.exists()) {
            let message = format!("there is no store {}", path.display());
            return Err(Failure::usage("NO_STORE", message)
                .with_help("name it with --store FILE; `pirn run --store FILE` makes one"));
        }
        self.open()
    }

    /// Returns the path of the file; `None` for a server.
    #[cfg_attr(not(feature = "cluster"), allow(clippy::unnecessary_wraps))] // as with an engine
    pub(crate) fn file(&self) -> Option<PathBuf> {
        match self {
            Self::File(named) => Some(file(named)),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
            #[cfg(feature = "restate")]
            Self::Restate(_) => None,
        }
    }

    /// Formats the command line arguments that name this location.
    pub(crate) fn arguments(&self) -> String {
        match self {
            Self::File(named) => format!("--store {}", shell_quoted(named)),
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

    use crate::failure::Failure;
    use crate::terminal::shell_quoted;

    #[derive(Clone)]
    pub(crate) struct Postgres {
        pub(super) url: String,
        /// Duration of a claim, in seconds.
        pub(super) claim: u32,
    }

    impl Postgres {
        pub(super) fn open(&self) -> Result<Arc<dyn Store>, Failure> {
            let options = PostgresOptions::default().claim(Duration::from_secs(u64::from(self.claim)));
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
                ConnectError::Url(_) => failure.with_help("such as postgres://user@localhost:5432/pirn"),
                ConnectError::Version { .. } => failure.with_help(
                    "all workers of a server must have one version: stop the others, and migrate the schema first",
                ),
                ConnectError::Unreachable { .. } | ConnectError::Refused { .. } => failure,
            }
        }

        /// Returns the URL without its password.
        pub(super) fn shown(&self) -> String {
            let Some((scheme, rest)) = self.url.split_once("://") else {
                return "URL".to_owned();
            };
            let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
            let is_shown = |pair: &&str| {
                let name = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
                // Hide names with percent-encoding too: an encoded name may mean `password`.
                !name.contains("pass") && !name.contains('%')
            };
            let query: Vec<&str> = query
                .split('&')
                .filter(|pair| !pair.is_empty())
                .filter(is_shown)
                .collect();
            let query = if query.is_empty() {
                String::new()
            } else {
                format!("?{}", query.join("&"))
            };
            let Some((user, host)) = rest.rsplit_once('@') else {
                return format!("{scheme}://{rest}{query}");
            };
            let user = user.split_once(':').map_or(user, |(user, _)| user);
            format!("{scheme}://{user}@{host}{query}")
        }
    }
}
