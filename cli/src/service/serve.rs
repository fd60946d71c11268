//! `pirn serve FILE...`: serves workflows over HTTP.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use pirn::Engine;
#[cfg(feature = "studio")]
use pirn_service::StudioMode;
use pirn_service::{Access, Limits, Options, Service, TenantLimits, Tls, serve_on};
use tokio::sync::oneshot;

use super::listen::ListenAddress;
use super::served::{Offer, ServedFiles};
use super::service_args::{AccessArgs, Retention, RetentionArgs};
#[cfg(feature = "cluster")]
use crate::config::service_settings::advertised_url;
use crate::output::failure::Failure;
use crate::output::terminal::FAILED;
use crate::process::interrupt::{self, Interrupt};
use crate::process::log::LogArgs;
use crate::process::open_files;
use crate::process::signals::{Signal, Signals};
use crate::store::not_resumed;
use crate::store::place::SharedArgs;
use crate::store::store_owner;

/// Arguments of `pirn serve`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn serve workflow.json
  pirn serve workflow.json --store runs.db
  pirn serve workflow.json --listen 0.0.0.0:7474 --token-file tokens --allow-host pirn.example.com

  curl http://127.0.0.1:7474/v1/runs?wait=10 -H 'Content-Type: application/json' -d '{\"workflow\": \"greet\"}'

SIGHUP reads the workflows, tokens and the certificate again; SIGTERM ends the service when the runs under way
have; with --store, runs that have not ended after the grace period stay in the store and are resumed at the next start.

Exit codes: 0 stopped by a signal and every run has ended, 1 a file is invalid or a run did not end, 2 wrong usage or an unreadable file.")]
pub(crate) struct Args {
    #[command(flatten)]
    served: ServedFiles,
    /// Address to listen on, unix:PATH for a unix socket, or systemd for the socket of a socket unit; an address that other
    /// machines reach, and systemd, need a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7474", value_parser = str::parse::<ListenAddress>)]
    pub(crate) listen: ListenAddress,
    /// Use TLS with this certificate chain, a PEM file; SIGHUP reads it again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<String>,
    /// The private key of --tls-cert, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<String>,
    /// Store for runs and sessions, a file or a folder: runs that have not ended are resumed at the next start
    #[arg(long, value_name = "FILE")]
    store: Option<String>,
    #[command(flatten)]
    shared: SharedArgs,
    #[command(flatten)]
    retention: RetentionArgs,
    /// Execute no runs: runs that clients start are queued in the server of --engine for its workers
    #[arg(long)]
    detach: bool,
    /// The URL at which other services of the server of --engine reach this one, such as http://svc-a:7474: they forward requests about
    /// runs that this service executes
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "URL", value_parser = advertised_url)]
    advertise: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
    /// Access of the page at /studio/ (default: full on a loopback address, read on any other)
    #[cfg(feature = "studio")]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) studio: Option<Mode>,
    /// Seconds that runs may continue after a stop signal
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    /// Send spans to this OTLP collector, such as http://127.0.0.1:4318/v1/traces
    #[cfg(feature = "otel")]
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Include replies, arguments and results of tools in the spans
    #[cfg(feature = "otel")]
    #[arg(long, requires = "otlp")]
    otlp_contents: bool,
    /// Send the metrics of /metrics to this OTLP collector, such as http://127.0.0.1:4318/v1/metrics
    #[cfg(feature = "otel")]
    #[arg(long, value_name = "URL")]
    otlp_metrics: Option<String>,
    #[command(flatten)]
    log: LogArgs,
}

/// Access rights of the page.
#[cfg(feature = "studio")]
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// There is no page
    Off,
    /// It shows runs and offers no actions
    Read,
    /// It shows runs, and starts, answers, forks and cancels them
    Full,
}

/// Serves until a stop signal arrives.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    serve_files(args, &|_, _| {})
}

/// Serves until a stop signal arrives. Calls `on_listening` with the scheme and the address
/// once a TCP socket accepts connections.
pub(crate) fn serve_files(args: &Args, on_listening: &dyn Fn(&str, SocketAddr)) -> Result<ExitCode, Failure> {
    args.log.begin()?;
    let settings = args.served.settings()?;
    let mut access = args.access.access(&settings)?;
    if access.grants.is_empty() && access.jwt.is_none() && !args.listen.is_local() {
        let message = format!("every client that reaches {} could start runs", args.listen);
        return Err(Failure::usage("TOKEN_NEEDED", message).with_help("give a --token-file, or a --jwt-issuer"));
    }
    let mut place = args.shared.or(args.store.as_deref())?;
    if let Some(url) = args.advertised().or(settings.advertise.as_ref()) {
        if !place.as_mut().is_some_and(|place| place.advertise(url)) {
            let message = "--advertise needs a server that services share: --engine and its --url";
            return Err(Failure::usage("USAGE", message));
        }
        // Forwarded requests name this host.
        let host = Access::advertised_host(url).map_err(|why| Failure::usage("USAGE", why.to_string()))?;
        access = access.host(&host);
    }
    if args.detach && place.as_ref().is_none_or(|place| place.file().is_some()) {
        return Err(Failure::usage(
            "USAGE",
            "--detach needs a server that workers share: --engine and its --url",
        ));
    }
    let retention = args.retention.retention(&settings, place.as_ref())?;
    let interrupt = interrupt::listen_until_served();
    let (engine, offer) = args.served.open(place.as_ref())?;
    // For commands about the store while this process has it open.
    let store_socket = place
        .as_ref()
        .filter(|place| place.file().is_some())
        .and_then(|place| store_owner::listen(place, &engine, true));
    #[cfg(feature = "otel")]
    let telemetry = args.telemetry(&engine)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let served = match runtime {
        Ok(runtime) => runtime.block_on(listen(
            args,
            (&engine, &offer),
            (args.options(access, settings.tenant_limits), retention, interrupt),
            on_listening,
        )),
        Err(error) => Err(Failure::failed("NO_THREADS", error.to_string())),
    };
    drop(store_socket);
    #[cfg(feature = "otel")]
    if let Some(telemetry) = telemetry {
        // If `shutdown` was never called, dropping the last handle stops the engine.
        drop(engine);
        telemetry.finish();
    }
    pirn::tools::kill_all();
    served
}

impl Args {
    /// Returns the URL for other services; see the argument.
    #[cfg_attr(not(feature = "cluster"), allow(clippy::unused_self))] // as with an engine
    fn advertised(&self) -> Option<&String> {
        #[cfg(feature = "cluster")]
        return self.advertise.as_ref();
        #[cfg(not(feature = "cluster"))]
        None
    }

    #[cfg(feature = "otel")]
    fn telemetry(&self, engine: &Engine) -> Result<Option<pirn_otel::Telemetry>, Failure> {
        let Some(endpoint) = &self.otlp else { return Ok(None) };
        let options = pirn_otel::TelemetryOptions {
            endpoint: Some(endpoint.clone()),
            has_contents: self.otlp_contents,
            ..Default::default()
        };
        let telemetry = pirn_otel::Telemetry::start(engine, options);
        telemetry
            .map(Some)
            .map_err(|error| Failure::usage("INVALID_USAGE", error.to_string()))
    }

    #[cfg(feature = "otel")]
    fn metrics(&self, service: &Service) -> Result<Option<pirn_service::MetricsExport>, Failure> {
        let Some(endpoint) = &self.otlp_metrics else {
            return Ok(None);
        };
        let options = pirn_service::MetricsOptions {
            endpoint: Some(endpoint.clone()),
            ..Default::default()
        };
        let exported = service.export_metrics(&options);
        exported
            .map(Some)
            .map_err(|error| Failure::usage("INVALID_USAGE", error.to_string()))
    }

    fn options(&self, access: Access, tenant_limits: TenantLimits) -> Options {
        let access = match self.listen.host() {
            Some(name) => access.host(&name),
            None => access,
        };
        Options {
            access,
            tenant_limits,
            enqueue_only: self.detach,
            #[cfg(feature = "studio")]
            studio: self.studio_mode(),
            ..Options::default()
        }
    }

    #[cfg(feature = "studio")]
    fn studio_mode(&self) -> StudioMode {
        match self.studio {
            Some(Mode::Off) => StudioMode::Off,
            Some(Mode::Full) => StudioMode::Full,
            None if self.listen.is_local() => StudioMode::Full,
            // Without a mode, because others than the owner of this machine may use the page.
            Some(Mode::Read) | None => StudioMode::Read,
        }
    }

    fn tls(&self) -> Result<Option<Tls>, Failure> {
        let files = self.tls_cert.as_ref().zip(self.tls_key.as_ref());
        let read = files.map(|(certificate, key)| Tls::read(certificate, key)).transpose();
        read.map_err(|why| Failure::usage("INVALID_CERTIFICATE", why.to_string()))
    }

    /// Reloads workflows, tokens and the certificate from their files; on an error the loaded ones stay in use.
    fn reload(&self, service: &Service, engine: &Engine, tls: Option<&Tls>) {
        if let Some(Err(why)) = tls.map(Tls::reload) {
            tracing::error!("reloading failed: the certificate is unchanged: {why}");
        }
        match self.served.reload(engine).and_then(|offer| publish(service, &offer)) {
            Ok(()) => tracing::info!("the workflows were reloaded"),
            Err(failure) => self
                .log
                .failure(failure, "reloading failed: the workflows are unchanged"),
        }
        match self.access.grants() {
            Ok(grants) => service.set_grants(grants),
            Err(failure) => self.log.failure(failure, "reloading failed: the tokens are unchanged"),
        }
    }
}

fn publish(service: &Service, offer: &Offer) -> Result<(), Failure> {
    let published = service.publish(offer);
    published.map_err(|faults| Failure::failed("INVALID_INPUT_SCHEMA", faults.join("\n")))
}

async fn listen(
    args: &Args,
    (engine, offer): (&Engine, &Offer),
    (options, retention, interrupt): (Options, Retention, Interrupt),
    on_listening: &dyn Fn(&str, SocketAddr),
) -> Result<ExitCode, Failure> {
    let tls = args.tls()?;
    let service = Service::new(engine.clone(), options);
    publish(&service, offer)?;
    #[cfg(feature = "otel")]
    let metrics = args.metrics(&service)?;
    // Resume stored runs before the port is open, so that the first request finds them.
    let left = if args.detach {
        Vec::new()
    } else {
        service.recover().await.map_err(|error| not_resumed(&error))?
    };
    for (run_id, error) in left {
        tracing::warn!(run_id, code = error.code(), %error, "the run could not be resumed; its stored state is unchanged");
    }
    let signals = Signals::listen();
    let mut signals = signals.map_err(|error| Failure::failed("NO_SIGNALS", error.to_string()))?;
    // SIGHUP arrived after the files were read: read them again.
    if interrupt.stand_down() {
        tokio::task::block_in_place(|| args.reload(&service, engine, tls.as_ref()));
    }
    let (listener, place, address) = args.listen.open(tls.as_ref())?;
    tracing::info!("listening on {place}");
    if let Some(address) = address {
        on_listening(if tls.is_some() { "https" } else { "http" }, address);
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let mut limits = Limits::default();
    limits.connections = limits.connections.min(open_files::max_connections());
    let router = service.router();
    // A separate task: connections are accepted while files are read again.
    #[allow(clippy::disallowed_methods)] // no engine is asked: connections are the command's
    let serving = tokio::spawn(async move {
        serve_on(listener, router, &limits, async {
            // Stop in both cases: on a message, and if the sender was dropped.
            stopped.await.unwrap_or(());
        })
        .await;
    });
    let steering = async {
        while signals.next().await == Signal::Reload {
            tokio::task::block_in_place(|| args.reload(&service, engine, tls.as_ref()));
        }
        tracing::info!(
            "no more runs are started; running ones may continue for {} s",
            args.grace
        );
        let left = tokio::select! {
            left = service.shut_down(Duration::from_secs(args.grace)) => left,
            () = signals.second_stop() => {
                // A second stop signal ends the process without a grace period.
                pirn::tools::kill_all();
                std::process::exit(i32::from(FAILED));
            }
        };
        tracing::info!(
            cancelled = left.runs_cancelled,
            left = left.runs_left,
            "no run is active in this process; with a store, unfinished runs can be resumed"
        );
        // Stop accepting connections last: until here, streams are readable and `/readyz` answers 503.
        drop(stop);
        left.runs_left
    };
    // With a shared store, claim runs that lost their owner, and receive inputs that other processes send to runs here.
    let working = async {
        let at_most = if args.detach { 0 } else { args.served.max_runs() };
        if let Err(error) = service.work(at_most).await {
            tracing::error!(%error, "taking over runs from other processes failed and has stopped");
        }
        // Never resolve: only the signals end the `select` below.
        std::future::pending::<()>().await;
    };
    let (served, left) = tokio::select! {
        ended = async { tokio::join!(serving, steering) } => ended,
        () = working => (Ok(()), 0),
        () = retention.apply(&service) => (Ok(()), 0),
    };
    if let Err(error) = served {
        return Err(Failure::failed("INTERNAL", error.to_string()));
    }
    #[cfg(feature = "otel")]
    if let Some(metrics) = metrics {
        tokio::task::block_in_place(|| metrics.finish());
    }
    Ok(if left == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    })
}
