//! Options of the connection to a server, and connection errors.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Settings of a [`RestateStore`](crate::RestateStore).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestateOptions {
    /// The server's admin API (default: port 9070 of the host in the URL).
    pub admin: Option<String>,
    /// Time without a heartbeat after which a process is dead and its runs are offered to others (default 30 s).
    pub claim: Duration,
    /// Label of this process in its claims, for error messages (default: its process id).
    pub name: Option<String>,
    /// Retry time for a call to the server or its workers (default 60 s). When it is over, the runs in this process end with
    /// `STORE_ERROR`; their stored state stays resumable.
    pub patience: Duration,
    /// Address at which this process serves the objects' code to the server; none: other processes serve it.
    pub endpoint: Option<Endpoint>,
}

/// Address at which a worker serves the objects' code. Workers on one machine may share an address and its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Listening address.
    pub listen: SocketAddr,
    /// URL by which the server reaches the address, or a load balancer in front of it (default: `http://` and the address).
    pub url: Option<String>,
}

impl Endpoint {
    /// Creates an endpoint that the server reaches directly at its listening address.
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
    /// Sets the URL of the server's admin API.
    #[must_use]
    pub fn admin(mut self, url: impl Into<String>) -> Self {
        self.admin = Some(url.into());
        self
    }

    /// Sets the time without a heartbeat after which this process is dead.
    #[must_use]
    pub fn claim(mut self, lasts: Duration) -> Self {
        self.claim = lasts;
        self
    }

    /// Sets the label of this process.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the time for which calls to an unreachable server are retried.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Serves the objects' code to the server.
    #[must_use]
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoint = Some(endpoint);
        self
    }
}

/// Reason why a connection failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The URL is not that of an HTTP server.
    Url(String),
    /// No server answers at the URL.
    Unreachable {
        /// The URL that was tried.
        server: String,
        /// The reason.
        why: String,
    },
    /// No worker has registered the objects with the server yet.
    NotSetUp {
        /// The server's URL.
        server: String,
    },
    /// The server has objects of another version. Nothing was changed.
    Version {
        /// The server's URL.
        server: String,
        /// Layout found, and layout expected.
        why: String,
    },
    /// Binding the endpoint's address failed.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        why: String,
    },
    /// The server refused a request.
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
