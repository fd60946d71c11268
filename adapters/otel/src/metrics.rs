//! Periodic export of metrics to a collector, on a dedicated thread.
#![allow(
    clippy::disallowed_methods,
    reason = "metrics are sent by the real clock, on a private runtime"
)]

use std::str::FromStr;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use pirn_models::error_chain::with_causes;
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use tokio::sync::oneshot;

use super::names::SCOPE;
use super::resource::resource;
use super::start_error::StartError;

/// Default time between two messages.
const INTERVAL: Duration = Duration::from_mins(1);

/// Time limit of one message to the collector.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Options of the metrics export. Absent options are read from OpenTelemetry's environment variables.
#[derive(Clone, Debug, Default)]
pub struct MetricsOptions {
    /// The collector's address for metrics, such as `http://127.0.0.1:4318/v1/metrics` (default: the environment's
    /// `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`, else that one).
    pub endpoint: Option<String>,
    /// `service.name` (default `pirn`).
    pub service_name: Option<String>,
    /// Time between two messages (default: the environment's `OTEL_METRIC_EXPORT_INTERVAL`, milliseconds, else 60 s).
    pub interval: Option<Duration>,
}

/// A running export of metrics. Call [`MetricsExport::finish`] to stop it; dropping it stops it as well.
#[derive(Debug)]
pub struct MetricsExport {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl MetricsExport {
    /// Sends metrics to a collector by OTLP over HTTP: at every interval, and a last time in [`MetricsExport::finish`]. `collect`
    /// gets the time of this call and returns the values since then. A message that fails is logged; the next one contains its
    /// values if sums are cumulative.
    ///
    /// # Errors
    /// Returns an error if the options are invalid, or the thread does not start.
    pub fn start<F, R>(options: &MetricsOptions, collect: F) -> Result<Self, StartError>
    where
        F: Fn(SystemTime) -> R + Send + 'static,
        R: Future<Output = Vec<Metric>>,
    {
        let exporter = Exporter::new(options, |name| std::env::var(name).ok())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("pirn-metrics".to_owned())
            .spawn(move || runtime.block_on(exporter.run(collect, stopped)))
            .map_err(|error| format!("no thread: {error}"))?;
        Ok(Self { stop, thread })
    }

    /// Sends the metrics a last time, and waits until they are sent.
    pub fn finish(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("the thread that exports metrics panicked");
        }
    }
}

struct Exporter {
    client: Client,
    endpoint: Url,
    resource: Resource,
    interval: Duration,
    since: SystemTime,
}

impl Exporter {
    fn new(options: &MetricsOptions, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let client = Client::builder()
            .timeout(TIME_LIMIT)
            .default_headers(headers(&variable)?)
            .build();
        let resource = resource(options.service_name.as_deref());
        Ok(Self {
            client: client.map_err(|error| error.to_string())?,
            endpoint: endpoint(options.endpoint.as_deref(), &variable)?,
            resource: (&resource).into(),
            interval: match options.interval {
                Some(interval) => interval,
                None => interval(&variable)?,
            },
            since: SystemTime::now(),
        })
    }

    async fn run<F, R>(self, collect: F, mut stopped: oneshot::Receiver<()>)
    where
        F: Fn(SystemTime) -> R,
        R: Future<Output = Vec<Metric>>,
    {
        while tokio::time::timeout(self.interval, &mut stopped).await.is_err() {
            tokio::select! {
                () = self.send_or_log(collect(self.since)) => {}
                // Abandon the message: the last one contains its values.
                _ = &mut stopped => break,
            }
        }
        self.send_or_log(collect(self.since)).await;
    }

    async fn send_or_log(&self, metrics: impl Future<Output = Vec<Metric>>) {
        let message = message(metrics.await, self.resource.clone());
        if let Err(error) = self.send(&message).await {
            tracing::warn!(error, "the metrics were not sent");
        }
    }

    async fn send(&self, message: &ExportMetricsServiceRequest) -> Result<(), String> {
        let request = self.client.post(self.endpoint.clone());
        let request = request.header(CONTENT_TYPE, "application/x-protobuf");
        let answer = request.body(message.encode_to_vec()).send().await;
        // Remove the URL from the error: it may contain a secret.
        let answer = answer.map_err(|error| with_causes(&error.without_url()))?;
        if answer.status().is_success() {
            Ok(())
        } else {
            Err(format!("the collector returned {}", answer.status()))
        }
    }
}

fn message(metrics: Vec<Metric>, resource: Resource) -> ExportMetricsServiceRequest {
    let scope = InstrumentationScope {
        name: SCOPE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope),
                metrics,
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
    }
}

fn endpoint(given: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Url, String> {
    let own = || variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
    let of_all = || {
        let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT")?;
        Some(format!("{}/v1/metrics", base.trim_end_matches('/')))
    };
    let text = given.map(str::to_owned).or_else(own).or_else(of_all);
    let text = text.unwrap_or_else(|| "http://localhost:4318/v1/metrics".to_owned());
    let url = Url::parse(&text).map_err(|error| format!("the collector's address is not a URL: {error}"))?;
    if matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err("the collector's address must start with http:// or https://".to_owned())
    }
}

fn interval(variable: impl Fn(&str) -> Option<String>) -> Result<Duration, String> {
    let Some(text) = variable("OTEL_METRIC_EXPORT_INTERVAL") else {
        return Ok(INTERVAL);
    };
    let milliseconds = text.trim().parse().ok().filter(|milliseconds| *milliseconds > 0);
    milliseconds
        .map(Duration::from_millis)
        .ok_or_else(|| "OTEL_METRIC_EXPORT_INTERVAL must be a number of milliseconds, 1 or more".to_owned())
}

/// Parses headers from `NAME=VALUE,NAME=VALUE`, with percent-encoded values.
fn headers(variable: impl Fn(&str) -> Option<String>) -> Result<HeaderMap, String> {
    let names = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"];
    let mut headers = HeaderMap::new();
    for source in names {
        let text = variable(source).unwrap_or_default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let header = pair.split_once('=').and_then(|(name, value)| {
                let mut value = HeaderValue::from_bytes(&unescaped(value.trim())?).ok()?;
                value.set_sensitive(true);
                Some((HeaderName::from_str(name.trim()).ok()?, value))
            });
            let (name, value) = header.ok_or_else(|| format!("{source} is a list of NAME=VALUE, with commas"))?;
            headers.insert(name, value);
        }
    }
    Ok(headers)
}

/// Decodes percent-encoded text to bytes.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<String> {
        move |name| {
            let found = set.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn the_endpoint_is_the_option_then_the_environment_then_the_local_collector() {
        let both = variables(&[
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://metrics:1/own"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:2/"),
        ]);
        let of_all = variables(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:2/")]);
        let address = |url: Result<Url, String>| url.map(|url| url.to_string());
        assert_eq!(
            address(endpoint(Some("https://given/x"), &both)),
            Ok("https://given/x".to_owned())
        );
        assert_eq!(address(endpoint(None, &both)), Ok("http://metrics:1/own".to_owned()));
        assert_eq!(
            address(endpoint(None, &of_all)),
            Ok("http://all:2/v1/metrics".to_owned())
        );
        assert_eq!(
            address(endpoint(None, variables(&[]))),
            Ok("http://localhost:4318/v1/metrics".to_owned())
        );
        for wrong in ["", "127.0.0.1:4318", "grpc://all:2"] {
            assert!(endpoint(Some(wrong), variables(&[])).is_err(), "{wrong}");
        }
    }

    #[test]
    fn headers_from_the_environment_are_sent_and_absent_from_debug_output() {
        let found = headers(variables(&[
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret%20one, x-of=all"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-of=metrics"),
        ]));
        let found = found.expect("headers");
        let value = |name: &str| found[name].as_bytes().to_vec();
        assert_eq!(
            (value("api-key"), value("x-of")),
            (b"secret one".to_vec(), b"metrics".to_vec())
        );
        assert!(!format!("{found:?}").contains("secret"), "{found:?}");
        for wrong in ["api-key", "bad name=x", "a=%2", "a=%zz", "a=%0a"] {
            let variable = |name: &str| (name == "OTEL_EXPORTER_OTLP_HEADERS").then(|| wrong.to_owned());
            let refused = headers(variable).expect_err(wrong);
            assert!(refused.contains("OTEL_EXPORTER_OTLP_HEADERS"), "{refused}");
        }
    }

    #[test]
    fn the_export_interval_is_read_in_milliseconds() {
        let of = |text: &'static str| interval(move |_| Some(text.to_owned()));
        assert_eq!(of("1500"), Ok(Duration::from_millis(1_500)));
        assert_eq!(interval(|_| None), Ok(INTERVAL));
        for wrong in ["0", "-1", "soon", ""] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
