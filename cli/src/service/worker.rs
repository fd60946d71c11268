//! `pirn worker`: executes runs of a server that several processes share.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use pirn::Engine;
use pirn_service::{Limits, Options, Service, serve};
use tokio::sync::oneshot;

use super::listen::bind_tcp;
use super::served::ServedFiles;
use crate::config::ConfigFile;
use crate::output::failure::Failure;
use crate::output::terminal::Output;
use crate::process::interrupt::{self, Interrupt};
use crate::process::log::LogArgs;
use crate::process::signals::{Signal, Signals};
use crate::store::not_resumed;
#[cfg(any(feature = "postgres", feature = "restate"))]
use crate::store::place::Place;
use crate::store::place::SharedArgs;

/// Arguments of `pirn worker`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn worker --setup --engine postgres --url postgres://localhost/pirn workflows/
  pirn worker --engine postgres --url postgres://localhost/pirn --profiles pirn.toml --carry 500
  pirn worker --engine restate --url http://localhost:8080 --profiles pirn.toml
  pirn worker --engine postgres --url postgres:///pirn --health 0.0.0.0:9090

A run is resumed with the definition that it started with; the workflow files, or those of a folder, supply functions, tools and schedules.
SIGTERM releases the runs that have not ended after the grace to other workers. SIGHUP reads the files again.

Exit codes: 0 stopped by a signal, 1 a file is invalid, 2 wrong usage, an unreadable file, or a server that is unreachable or not set up.")]
pub(crate) struct Args {
    /// Workflow files, or folders of them
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    shared: SharedArgs,
    #[cfg(feature = "restate")]
    #[command(flatten)]
    endpoint: crate::store::place::restate::EndpointArgs,
    /// Create the schemas in the database first, if they do not exist
    #[cfg(feature = "postgres")]
    #[arg(long)]
    setup: bool,
    /// The program that creates absurd's schema: absurdctl 0.5.1 of PyPI
    #[cfg(feature = "postgres")]
    #[arg(long, value_name = "PROGRAM", default_value = "absurdctl", requires = "setup")]
    absurdctl: String,
    /// Maximum number of runs at once
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    carry: u32,
    /// Seconds that runs may continue after a stop signal
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    grace: u64,
    /// Address of /healthz, /readyz and /metrics for probes, such as 0.0.0.0:9090; they need no token
    #[arg(long, value_name = "ADDRESS")]
    health: Option<SocketAddr>,
    #[command(flatten)]
    log: LogArgs,
}

/// Executes runs until a stop signal arrives.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    args.log.begin()?;
    let interrupt = interrupt::listen_until_served();
    let Some(place) = args.shared.place()? else {
        return Err(Failure::usage(
            "USAGE",
            "a worker needs a server: --engine ENGINE --url URL",
        ));
    };
    #[cfg(feature = "restate")]
    let place = match place {
        Place::Restate(mut server) => {
            server.offering(&args.endpoint);
            Place::Restate(server)
        }
        other => other,
    };
    #[cfg(feature = "postgres")]
    if let (true, Place::Postgres(server)) = (args.setup, &place) {
        let made = server.set_up(&args.absurdctl)?;
        tracing::info!(
            "{}",
            if made {
                "the schemas were created"
            } else {
                "the schemas exist already"
            }
        );
    }
    let mut files = Vec::new();
    for named in &args.files {
        files.extend(workflow_files(named)?);
    }
    let served = ServedFiles::of(files, args.config, None);
    let (engine, _) = served.open(Some(&place))?;
    // Two threads: probes are answered while files are read again.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Failure::failed("NO_THREADS", error.to_string()))?;
    let grace = Duration::from_secs(args.grace);
    let carried = runtime.block_on(async {
        let health = match args.health {
            Some(address) => Some(HealthPort::open(address, &engine)?),
            None => None,
        };
        let carried = carry(&engine, &served, args.carry as usize, health.as_ref(), &interrupt).await;
        // While runs end, `/readyz` answers 503.
        let left = match &health {
            Some(health) => health.service.shut_down(grace).await,
            None => engine.shutdown(grace).await,
        };
        tracing::info!(
            left = left.runs_cancelled,
            "the worker stops; other workers resume its runs"
        );
        carried
    });
    pirn::tools::kill_all();
    carried.map(|()| ExitCode::SUCCESS)
}

/// The listener of `--health`, and the service that counts the runs.
struct HealthPort {
    service: Service,
    _stop: oneshot::Sender<()>,
}

impl HealthPort {
    fn open(address: SocketAddr, engine: &Engine) -> Result<Self, Failure> {
        let unusable = |error: std::io::Error| {
            let failure = Failure::usage("CANNOT_LISTEN", format!("cannot listen on {address}: {error}"));
            failure.with_help("name another address by --health")
        };
        let listener = bind_tcp(address).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let service = Service::new(engine.clone(), Options::default());
        let router = service.health_router();
        let (stop, stopped) = oneshot::channel::<()>();
        #[allow(clippy::disallowed_methods)] // no engine is asked: connections are the command's
        drop(tokio::spawn(async move {
            serve(listener, router, &Limits::default(), async {
                // The sender is dropped when the worker ends.
                stopped.await.unwrap_or(());
            })
            .await;
        }));
        tracing::info!("health and metrics on http://{address}");
        Ok(Self { service, _stop: stop })
    }
}

/// Executes runs and handles signals until a stop signal arrives.
async fn carry(
    engine: &Engine,
    served: &ServedFiles,
    at_most: usize,
    health: Option<&HealthPort>,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let signals = Signals::listen();
    let mut signals = signals.map_err(|error| Failure::failed("NO_SIGNALS", error.to_string()))?;
    tracing::info!(at_most, "executes runs");
    let reload = || match served.reload(engine) {
        Ok(_) => tracing::info!("the workflows were reloaded"),
        Err(failure) => {
            failure.report(Output::Text);
            tracing::error!("reloading failed: the workflows are unchanged");
        }
    };
    // SIGHUP arrived after the files were read: read them again.
    if interrupt.stand_down() {
        tokio::task::block_in_place(reload);
    }
    let steering = async {
        while signals.next().await == Signal::Reload {
            tokio::task::block_in_place(reload);
        }
    };
    let working = async {
        match health {
            // The service records the metrics of the runs.
            Some(health) => health.service.work(at_most).await,
            None => engine.work(at_most).await,
        }
    };
    tokio::select! {
        () = steering => Ok(()),
        worked = working => worked.map_err(|error| not_resumed(&error)),
    }
}

/// Returns the file, or every workflow file in a folder, sorted by name.
fn workflow_files(named: &str) -> Result<Vec<String>, Failure> {
    let path = Path::new(named);
    if !path.is_dir() {
        return Ok(vec![named.to_owned()]);
    }
    let unreadable = |error: std::io::Error| Failure::usage("UNREADABLE_FILE", format!("cannot read {named}: {error}"));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if file.extension().is_some_and(|extension| extension == "json") {
            files.push(file.display().to_string());
        }
    }
    files.sort();
    Ok(files)
}
