//! `pirn serve FILE...`: serves workflows over HTTP.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use pirn::Engine;
#[cfg(feature = "studio")]
use pirn_service::StudioMode;
use pirn_service::{Access, Limits, Options, Service, serve};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::files;
use crate::interrupt::{self, Interrupt};
use crate::log::LogArgs;
use crate::place::SharedArgs;
use crate::served::{ServedFiles, WorkflowIds};
use crate::signals::{Signal, Signals};
use crate::store::not_resumed;
use crate::terminal::{FAILED, Output};

/// Arguments of `pirn serve`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn serve workflow.json
  pirn serve workflow.json --store runs.db
  pirn serve workflow.json --listen 0.0.0.0:7474 --token-file tokens --allow-host pirn.example.com

  curl http://127.0.0.1:7474/v1/runs?wait=10 -H 'Content-Type: application/json' -d '{\"workflow\": \"greet\"}'

SIGHUP reads the workflows and tokens again; SIGTERM ends the service when the runs under way
have; with --store, runs that have not ended after the grace period stay in the store and are resumed at the next start.

Exit codes: 0 stopped by a signal and every run has ended, 1 a file is invalid or a run did not end, 2 wrong usage or an unreadable file.")]
pub(crate) struct Args {
    #[command(flatten)]
    served: ServedFiles,
    /// Address to listen on; any but a loopback one needs a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7474", value_parser = address)]
    listen: SocketAddr,
    /// Store for runs and sessions, a file or a folder: runs that have not ended are resumed at the next start
    #[arg(long, value_name = "FILE")]
    store: Option<String>,
    #[command(flatten)]
    shared: SharedArgs,
    /// Execute no runs: runs that clients start are queued in the server of --engine for its workers
    #[arg(long)]
    detach: bool,
    /// A file with one token per line; a request must have one of them: Authorization: Bearer TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// An accepted Host name, in addition to localhost and the listening address
    #[arg(long, value_name = "NAME", value_parser = host)]
    allow_host: Vec<String>,
    /// An origin whose pages may send requests, such as https://app.example.com
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    allow_origin: Vec<String>,
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

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "expected an address and a port, such as 127.0.0.1:7474".to_owned())
}

fn host(text: &str) -> Result<String, String> {
    Access::check_host(text).map(|()| text.to_owned())
}

fn origin(text: &str) -> Result<String, String> {
    Access::check_origin(text).map(|()| text.to_owned())
}

/// Serves until a stop signal arrives.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    serve_files(args, &|_| {})
}

/// Serves until a stop signal arrives. Calls `on_listening` with the address once connections are accepted.
pub(crate) fn serve_files(args: &Args, on_listening: &dyn Fn(SocketAddr)) -> Result<ExitCode, Failure> {
    args.log.begin()?;
    let tokens = args.tokens()?;
    if tokens.is_empty() && !args.listen.ip().is_loopback() {
        let message = format!("every client that reaches {} could start runs", args.listen);
        return Err(Failure::usage("TOKEN_NEEDED", message).with_help("give a --token-file"));
    }
    let place = args.shared.or(args.store.as_deref())?;
    if args.detach && place.as_ref().is_none_or(|place| place.file().is_some()) {
        return Err(Failure::usage(
            "USAGE",
            "--detach needs a server that workers share: --engine and its --url",
        ));
    }
    let interrupt = interrupt::listen_until_served();
    let (engine, ids) = args.served.open(place.as_ref())?;
    #[cfg(feature = "otel")]
    let telemetry = args.telemetry(&engine)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let served = match runtime {
        Ok(runtime) => runtime.block_on(listen(args, (&engine, &ids), (tokens, interrupt), on_listening)),
        Err(error) => Err(Failure::failed("NO_THREADS", error.to_string())),
    };
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
    fn tokens(&self) -> Result<Vec<String>, Failure> {
        let Some(path) = &self.token_file else {
            return Ok(Vec::new());
        };
        let text = files::read_named(path)?;
        let lines = text.lines().map(str::trim);
        let tokens: Vec<String> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
        if tokens.is_empty() {
            return Err(Failure::usage("NO_TOKEN", format!("{path} has no token")));
        }
        Ok(tokens)
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
            .map_err(|message| Failure::usage("INVALID_USAGE", message))
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
            .map_err(|message| Failure::usage("INVALID_USAGE", message))
    }

    fn options(&self, tokens: Vec<String>) -> Options {
        let mut access = Access {
            tokens,
            origins: self.allow_origin.clone(),
            ..Access::default()
        };
        let address = match self.listen {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        for name in self.allow_host.iter().chain([&address]) {
            access = access.host(name);
        }
        Options {
            access,
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
            None if self.listen.ip().is_loopback() => StudioMode::Full,
            // Without a mode, because others than the owner of this machine may use the page.
            Some(Mode::Read) | None => StudioMode::Read,
        }
    }

    /// Reloads workflows and tokens from their files; on an error the loaded ones stay in use.
    fn reload(&self, service: &Service, engine: &Engine) {
        match self.served.reload(engine).and_then(|ids| offered(service, &ids)) {
            Ok(()) => tracing::info!("the workflows were reloaded"),
            Err(failure) => {
                failure.report(Output::Text);
                tracing::error!("reloading failed: the workflows are unchanged");
            }
        }
        match self.tokens() {
            Ok(tokens) => service.set_tokens(tokens),
            Err(failure) => {
                failure.report(Output::Text);
                tracing::error!("reloading failed: the tokens are unchanged");
            }
        }
    }
}

fn offered(service: &Service, ids: &WorkflowIds) -> Result<(), Failure> {
    let offered = service.publish(ids);
    offered.map_err(|faults| Failure::failed("INVALID_INPUT_SCHEMA", faults.join("\n")))
}

async fn listen(
    args: &Args,
    (engine, ids): (&Engine, &WorkflowIds),
    (tokens, interrupt): (Vec<String>, Interrupt),
    on_listening: &dyn Fn(SocketAddr),
) -> Result<ExitCode, Failure> {
    let service = Service::new(engine.clone(), args.options(tokens));
    offered(&service, ids)?;
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
        tokio::task::block_in_place(|| args.reload(&service, engine));
    }
    let listening = async {
        let listener = TcpListener::bind(args.listen).await?;
        let address = listener.local_addr()?;
        Ok::<_, std::io::Error>((listener, address))
    };
    let (listener, address) = listening.await.map_err(|error| {
        let message = format!("cannot listen on {}: {error}", args.listen);
        Failure::usage("CANNOT_LISTEN", message)
    })?;
    tracing::info!("listening on http://{address}");
    on_listening(address);
    let (stop, stopped) = oneshot::channel::<()>();
    let limits = Limits::default();
    let router = service.router();
    // A separate task: connections are accepted while files are read again.
    #[allow(clippy::disallowed_methods)] // no engine is asked: connections are the command's
    let serving = tokio::spawn(async move {
        serve(listener, router, &limits, async {
            // Stop in both cases: on a message, and if the sender was dropped.
            stopped.await.unwrap_or(());
        })
        .await;
    });
    let steering = async {
        while signals.next().await == Signal::Reload {
            tokio::task::block_in_place(|| args.reload(&service, engine));
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
            "every run has ended"
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
