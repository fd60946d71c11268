//! A Restate server as the location of a store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pirn::store::Store;
use pirn_restate::{ConnectError, Endpoint, RestateOptions, RestateStore};

use crate::output::failure::Failure;
use crate::output::terminal::shell_quoted;

/// The address where a worker waits for the server's calls.
#[derive(clap::Args)]
pub(crate) struct EndpointArgs {
    /// The address where the worker waits for a Restate server's calls; workers of one machine may share it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9080")]
    listen: SocketAddr,
    /// The URL by which a Restate server reaches this worker, or a load balancer of several (default: http:// and --listen)
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
    /// A public key of the Restate server, publickeyv1_...: calls that none of the keys has signed are refused
    #[arg(long, value_name = "KEY")]
    identity_key: Vec<String>,
}

/// Connection to a Restate server.
#[derive(Clone)]
pub(crate) struct Restate {
    pub(super) url: String,
    pub(super) admin: Option<String>,
    /// Duration of a claim, in seconds.
    pub(super) claim: u32,
    /// Base URL of the service in this process.
    pub(super) advertise: Option<String>,
    /// The endpoint of a worker; `None` for other commands.
    pub(super) endpoint: Option<Endpoint>,
}

impl Restate {
    /// Sets the endpoint of a process that answers the server's calls.
    pub(crate) fn offering(&mut self, arguments: &EndpointArgs) {
        let mut endpoint = Endpoint::at(arguments.listen);
        endpoint.url.clone_from(&arguments.advertise);
        endpoint.identity_keys.clone_from(&arguments.identity_key);
        self.endpoint = Some(endpoint);
    }

    pub(super) fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        let mut options = RestateOptions::default().claim(Duration::from_secs(u64::from(self.claim)));
        options.admin.clone_from(&self.admin);
        options.endpoint.clone_from(&self.endpoint);
        options.advertise.clone_from(&self.advertise);
        options.token = token()?;
        let store = RestateStore::connect(&self.url, options).map_err(|error| self.refused(&error))?;
        Ok(Arc::new(store))
    }

    fn refused(&self, error: &ConnectError) -> Failure {
        let failure = Failure::usage(error.code(), error.to_string());
        match error {
            ConnectError::NotSetUp { .. } => {
                failure.with_help(format!("start a worker: pirn worker {}", self.arguments()))
            }
            ConnectError::Url(_) => failure.with_help("such as http://localhost:8080 or https://ID.env.eu.restate.cloud:8080"),
            ConnectError::IdentityKey(_) => {
                failure.with_help("give the key that the server prints at its start, or that Restate Cloud shows: --identity-key publickeyv1_...")
            }
            ConnectError::Unauthorized { .. } => {
                failure.with_help("set PIRN_ENGINE_TOKEN to a token of the server, or PIRN_ENGINE_TOKEN_FILE to a file with one")
            }
            ConnectError::Version { .. } => {
                failure.with_help("all workers of a server must have one version: stop the others first")
            }
            ConnectError::Listen { .. } => failure.with_help("name another address by --listen"),
            // Unreachable, or refused by the server: the message has the reason.
            _other => failure,
        }
    }

    /// Formats the command line arguments that name this server.
    pub(super) fn arguments(&self) -> String {
        let admin = self
            .admin
            .as_ref()
            .map(|admin| format!(" --admin {}", shell_quoted(admin)));
        format!(
            "--engine restate --url {}{}",
            shell_quoted(&self.url),
            admin.unwrap_or_default()
        )
    }
}

/// Returns the token of the environment. No argument has it: other users can read the arguments of a process.
fn token() -> Result<Option<String>, Failure> {
    if let Some(file) = std::env::var_os("PIRN_ENGINE_TOKEN_FILE") {
        let text = std::fs::read_to_string(&file).map_err(|error| {
            let message = format!("cannot read PIRN_ENGINE_TOKEN_FILE={}: {error}", file.display());
            Failure::usage("UNREADABLE_FILE", message)
        })?;
        return Ok(Some(text.trim().to_owned()));
    }
    Ok(std::env::var("PIRN_ENGINE_TOKEN")
        .ok()
        .filter(|token| !token.is_empty()))
}
