//! The server, as it is named, and the ways in which there may be none.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Settings of a [`RestateStore`](crate::RestateStore).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestateOptions {
    /// The server's admin API (default: port 9070 of the host in the URL).
    pub admin: Option<String>,
    /// A process that says nothing for so long is dead (default 30 s), and its runs go on elsewhere.
    pub claim: Duration,
    /// The name of this process in its claims, for people (default: its process id).
    pub name: Option<String>,
    /// A server, or its workers, that do not come back in so much time have failed: the runs here end with `STORE_ERROR`, and
    /// stay in the store (default 60 s).
    pub patience: Duration,
    /// The place where this process offers the objects' code to the server; none: others do.
    pub endpoint: Option<Endpoint>,
}

/// The place where a worker waits for the server's calls. Workers of one machine may share it, and share the calls then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address that it listens on.
    pub listen: SocketAddr,
    /// The URL by which the server reaches it, or the balancer before several (default: `http://` and the address).
    pub url: Option<String>,
}

impl Endpoint {
    /// At this address, which the server reaches as it is.
    pub fn at(listen: SocketAddr) -> Self {
        Self { listen, url: None }
    }

    pub(crate) fn shown(&self) -> String {
        self.url.clone().unwrap_or_else(|| format!("http://{}", self.listen))
    }
}

impl Default for RestateOptions {
    fn default() -> Self {
        Self {
            admin: None,
            claim: Duration::from_secs(30),
            name: None,
            patience: Duration::from_mins(1),
            endpoint: None,
        }
    }
}

impl RestateOptions {
    /// The URL of the server's admin API.
    #[must_use]
    pub fn admin(mut self, url: impl Into<String>) -> Self {
        self.admin = Some(url.into());
        self
    }

    /// The time for which a process may be silent.
    #[must_use]
    pub fn claim(mut self, lasts: Duration) -> Self {
        self.claim = lasts;
        self
    }

    /// The name of this process.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The time that a server may be away.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Offers the objects' code to the server.
    #[must_use]
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoint = Some(endpoint);
        self
    }
}

/// Why there is no store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The URL is none of an HTTP server.
    Url(String),
    /// No server answers there.
    Unreachable {
        /// The URL that was tried.
        server: String,
        /// The reason.
        why: String,
    },
    /// No worker has offered the objects to the server yet.
    NotSetUp {
        /// The server's URL.
        server: String,
    },
    /// The server has the objects of another version. Nothing was changed.
    Version {
        /// The server's URL.
        server: String,
        /// The layout found, and the one expected.
        why: String,
    },
    /// The address of the endpoint can not be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        why: String,
    },
    /// The server refused something else.
    Refused {
        /// The server's URL.
        server: String,
        /// The reason.
        why: String,
    },
}

impl ConnectError {
    /// A stable code: `INVALID_URL`, `SERVER_UNREACHABLE`, `NOT_SET_UP`, `WRONG_SCHEMA`, `ADDRESS_IN_USE` or `STORE_ERROR`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Url(_) => "INVALID_URL",
            Self::Unreachable { .. } => "SERVER_UNREACHABLE",
            Self::NotSetUp { .. } => "NOT_SET_UP",
            Self::Version { .. } => "WRONG_SCHEMA",
            Self::Listen { .. } => "ADDRESS_IN_USE",
            Self::Refused { .. } => "STORE_ERROR",
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(why) => write!(f, "invalid URL of a Restate server: {why}"),
            Self::Unreachable { server, why } => write!(f, "{server} does not answer: {why}"),
            Self::NotSetUp { server } => write!(f, "{server} knows no worker of Pirn yet"),
            Self::Listen { address, why } => write!(f, "cannot listen on {address}: {why}"),
            Self::Version { server, why } | Self::Refused { server, why } => write!(f, "{server}: {why}"),
        }
    }
}

impl std::error::Error for ConnectError {}
