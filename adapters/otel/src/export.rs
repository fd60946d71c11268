//! Sends spans to a collector in batches, on a dedicated thread.
#![allow(
    clippy::disallowed_methods,
    reason = "batches are sent by the real clock, on a private runtime"
)]

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use pirn::{Engine, Event, EventFilter, Events, SubscriptionItem, WeakEngine};

use super::resource::resource;
use super::spans::{ProfileLookup, Spans};
use super::start_error::StartError;

/// Maximum number of buffered events.
const BUFFER: usize = 65_536;

/// Maximum number of spans in one request.
const BATCH: usize = 512;

/// Maximum time that a span waits for others to fill a batch.
const DELAY: Duration = Duration::from_secs(1);

/// Timeout of a request to the collector.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Options of the export: its destination and the content of spans.
#[derive(Clone, Debug, Default)]
pub struct TelemetryOptions {
    /// The collector's URL for traces, such as `http://127.0.0.1:4318/v1/traces` (default: the environment's
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`, else that URL).
    pub endpoint: Option<String>,
    /// `service.name` (default `pirn`).
    pub service_name: Option<String>,
    /// True if spans contain replies and the arguments and results of tools.
    pub has_contents: bool,
}

/// The export of spans of an engine's runs to a collector.
#[derive(Debug)]
pub struct Telemetry {
    thread: JoinHandle<()>,
}

impl Telemetry {
    /// Exports the spans of every run from now on, until the engine has stopped. Spans that the collector does not accept are
    /// logged and lost; runs do not wait for the export.
    ///
    /// # Errors
    /// Returns an error if the exporter cannot be created with these options, or its thread does not start.
    pub fn start(engine: &Engine, options: TelemetryOptions) -> Result<Self, StartError> {
        let filter = EventFilter {
            run_id: None,
            types: Spans::types(),
        };
        let events = engine.events(filter, BUFFER);
        let engine = engine.downgrade();
        let (sender, started) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("pirn-telemetry".to_owned())
            .spawn(move || run(&options, &engine, events, &sender))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        started.recv().map_err(|_| "the exporter's thread ended".to_owned())??;
        Ok(Self { thread })
    }

    /// Waits until all spans are sent. Shut down the engine first.
    pub fn finish(self) {
        if self.thread.join().is_err() {
            tracing::error!("the exporter's thread panicked");
        }
    }
}

fn run(options: &TelemetryOptions, engine: &WeakEngine, events: Events, sender: &mpsc::Sender<Result<(), String>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    // The thread that starts the exporter waits for this message.
    let report = |started| sender.send(started).unwrap_or(());
    match runtime {
        Ok(runtime) => runtime.block_on(async {
            match exporter(options) {
                Ok(exporter) => {
                    report(Ok(()));
                    let profiles: ProfileLookup = {
                        let engine = engine.clone();
                        Box::new(move |id| Some(engine.upgrade()?.profile(id)))
                    };
                    export(&exporter, Spans::new(options.has_contents, profiles), engine, events).await;
                }
                Err(error) => report(Err(error)),
            }
        }),
        Err(error) => report(Err(error.to_string())),
    }
}

fn exporter(options: &TelemetryOptions) -> Result<SpanExporter, String> {
    let mut builder = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(TIME_LIMIT);
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    let mut exporter = builder.build().map_err(|error| error.to_string())?;
    exporter.set_resource(&resource(options.service_name.as_deref()));
    Ok(exporter)
}

async fn export(exporter: &SpanExporter, mut spans: Spans, engine: &WeakEngine, mut events: Events) {
    let mut batch: Vec<SpanData> = Vec::new();
    loop {
        let heard = tokio::time::timeout(DELAY, events.next()).await;
        let is_quiet = heard.is_err();
        let mut has_ended = false;
        match heard {
            Ok(Some(SubscriptionItem::Event(event))) => {
                if event.sequence > 1 && !spans.knows(&event.run_id) {
                    // An earlier process has already exported the spans of these events: observe them for their context only.
                    for event in before(engine, &event).await {
                        spans.observe(&event);
                    }
                }
                batch.extend(spans.observe(&event));
            }
            Ok(Some(SubscriptionItem::Lagged(count))) => {
                tracing::warn!(count, "events came too fast: spans are missing");
            }
            Ok(None) => has_ended = true,
            Err(_elapsed) => {}
        }
        if !batch.is_empty() && (is_quiet || has_ended || batch.len() >= BATCH) {
            let sent = batch.len();
            if let Err(error) = exporter.export(std::mem::take(&mut batch)).await {
                tracing::warn!(%error, spans = sent, "spans were not sent");
            }
        }
        if has_ended {
            return;
        }
    }
}

/// Reads the events of a run before this one from the engine's store. There are none unless the run was resumed from an earlier
/// process.
async fn before(engine: &WeakEngine, event: &Event) -> Vec<Arc<Event>> {
    let engine = engine.upgrade().filter(|engine| engine.store().is_some());
    let Some(engine) = engine else { return Vec::new() };
    match engine.view(&event.run_id, None).await {
        Ok(mut view) => {
            view.events.retain(|earlier| earlier.sequence < event.sequence);
            view.events
        }
        Err(error) => {
            tracing::warn!(run_id = %event.run_id, %error, "its spans are missing");
            Vec::new()
        }
    }
}
