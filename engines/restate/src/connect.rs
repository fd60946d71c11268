//! Options of the connection to a server, and connection errors.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Settings of a [`RestateStore`](crate::RestateStore).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestateOptions {
    /// The server's admin API (default: port 9070 of the host in the URL).
    pub admin: Option<String>,
    /// Time without a heartbeat after which a process is dead and its runs are offered to others (default 30 s).
    pub claim: Duration,
    /// Label of this process in its claims, for error messages (default: its process id).
    pub name: Option<String>,
    /// Base URL at which the service of this process is reachable for the services of other processes, such as `http://svc-a:7474`
    /// (default: none). Services forward requests about a run to the service of its owner.
    pub advertise: Option<String>,
    /// Retry time for a call to the server or its workers (default 60 s). When it is over, the runs in this process end with
    /// `STORE_ERROR`; their stored state stays resumable.
    pub patience: Duration,
    /// Token for the server's ingress and admin API, sent as `Authorization: Bearer`. Only over https, or to this machine.
    pub token: Option<String>,
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
    /// Public keys of the server, such as `publickeyv1_...`: calls that none of them has signed are refused. Empty: every call is
    /// accepted.
    pub identity_keys: Vec<String>,
}

impl Endpoint {
    /// Creates an endpoint that the server reaches directly at its listening address.
    pub fn at(listen: SocketAddr) -> Self {
        Self {
            listen,
            url: None,
            identity_keys: Vec::new(),
        }
    }

    /// Adds a public key of the server.
    #[must_use]
    pub fn identity_key(mut self, key: impl Into<String>) -> Self {
        self.identity_keys.push(key.into());
        self
    }

    pub(crate) fn shown(&self) -> String {
        self.url.clone().unwrap_or_else(|| format!("http://{}", self.listen))
    }
}

impl fmt::Debug for RestateOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token, which is a secret.
        f.debug_struct("RestateOptions")
            .field("admin", &self.admin)
            .field("claim", &self.claim)
            .field("name", &self.name)
            .field("advertise", &self.advertise)
            .field("patience", &self.patience)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Default for RestateOptions {
    fn default() -> Self {
        Self {
            admin: None,
            claim: Duration::from_secs(30),
            name: None,
            advertise: None,
            patience: Duration::from_mins(1),
            token: None,
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

    /// Sets the base URL of the service of this process. A URL with spaces is not found by other processes.
    #[must_use]
    pub fn advertise(mut self, url: impl Into<String>) -> Self {
        self.advertise = Some(url.into());
        self
    }

    /// Sets the time for which calls to an unreachable server are retried.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the token for the server's ingress and admin API.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
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
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is not that of an HTTP server.
    Url(String),
    /// A public key of the server is malformed.
    IdentityKey(String),
    /// The server requires a token, or refuses the given one.
    Unauthorized {
        /// The server's URL.
        server: String,
        /// The reason.
        why: String,
    },
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
    /// A stable code: `INVALID_URL`, `INVALID_IDENTITY_KEY`, `SERVER_UNREACHABLE`, `UNAUTHORIZED`, `NOT_SET_UP`, `WRONG_SCHEMA`,
    /// `ADDRESS_IN_USE` or `STORE_ERROR`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Url(_) => "INVALID_URL",
            Self::IdentityKey(_) => "INVALID_IDENTITY_KEY",
            Self::Unauthorized { .. } => "UNAUTHORIZED",
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
            Self::IdentityKey(why) => write!(f, "invalid identity key of a Restate server: {why}"),
            Self::Unauthorized { server, why } => write!(f, "{server} refuses the token: {why}"),
            Self::Unreachable { server, why } => write!(f, "{server} does not answer: {why}"),
            Self::NotSetUp { server } => write!(f, "{server} knows no worker of Pirn yet"),
            Self::Listen { address, why } => write!(f, "cannot listen on {address}: {why}"),
            Self::Version { server, why } | Self::Refused { server, why } => write!(f, "{server}: {why}"),
        }
    }
}

impl std::error::Error for ConnectError {}
