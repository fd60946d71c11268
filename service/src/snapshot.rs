//! The present values of a service's metrics: those it counts, and those it reads from the engine on request.

use std::time::Duration;

use pirn::Profile;
use pirn::models::{ModelRequests, conventional_provider};
use tokio::runtime::Handle;
use tokio::time::MissedTickBehavior;

#[cfg(feature = "otel")]
use crate::metrics::otlp;
use crate::metrics::{MetricId, Series, owned};
use crate::runs::now;
use crate::state::Service;
use crate::studio::StudioMode;

/// Time limit for the engine's threads to report their mailbox depths; after it, the depths are left out.
const ASKED_FOR: Duration = Duration::from_secs(1);

impl Service {
    /// Returns the present values of all metrics.
    pub(super) async fn metrics_snapshot(&self) -> Series {
        let mut series = self.metrics().series();
        let engine = self.engine();
        series.set(MetricId::RunsLive, Vec::new(), engine.live_runs() as f64);
        series.set(MetricId::OpenStreams, Vec::new(), self.streams().open() as f64);
        set_usage(&mut series, self);
        if let Some(figures) = engine.store().and_then(|store| store.figures()) {
            series.set(MetricId::StoreWrites, Vec::new(), figures.writes as f64);
            series.set_counted(
                MetricId::StoreBatch,
                Vec::new(),
                &figures.batches,
                figures.writes as f64,
            );
        }
        if let Ok(depths) = tokio::time::timeout(ASKED_FOR, engine.mailbox_depths()).await {
            let depths = [
                ("run", depths.runs),
                ("event_bus", depths.event_buses),
                ("trigger_matcher", depths.trigger_matchers),
            ];
            for (actor, waiting) in depths {
                series.set(MetricId::MailboxDepth, owned([("actor", actor)]), waiting as f64);
            }
        }
        series
    }
}

impl Service {
    /// Samples the metrics for the charts of the Studio, until the service has shut down or its last handle is dropped.
    pub(super) fn sample_metrics(&self, runtime: &Handle) {
        if self.studio() == StudioMode::Off || !self.begin_sampling() {
            return;
        }
        let (service, interval) = (self.weak(), self.recent_metrics().interval());
        // Not tracked as a task of the service: a shutdown would wait for the next sample.
        runtime.spawn(async move {
            let mut times = tokio::time::interval(interval);
            // After a suspension, one sample follows instead of one for each missed time.
            times.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                times.tick().await;
                let Some(service) = service().filter(|service| !service.runs().changes().is_closed()) else {
                    return;
                };
                let series = service.metrics_snapshot().await;
                service.recent_metrics().push(now(), &series);
            }
        });
    }
}

#[cfg(feature = "otel")]
impl Service {
    /// Sends the metrics of `/metrics` to a collector by OTLP over HTTP: at every interval, and a last time in
    /// [`MetricsExport::finish`](crate::MetricsExport::finish). A message that fails is logged; the next one contains its values, since sums are cumulative.
    ///
    /// # Errors
    /// Returns an error if the options are invalid, or the thread does not start.
    pub fn export_metrics(
        &self,
        options: &pirn_otel::MetricsOptions,
    ) -> Result<pirn_otel::MetricsExport, pirn_otel::StartError> {
        let service = self.clone();
        pirn_otel::MetricsExport::start(options, move |since| {
            let service = service.clone();
            async move { otlp::metrics(&service.metrics_snapshot().await, since, std::time::SystemTime::now()) }
        })
    }
}

/// Sets the tokens and the cost of each profile.
fn set_usage(series: &mut Series, service: &Service) {
    for (profile, requests) in service.engine().requests_by_profile() {
        set_requests(series, &service.engine().profile(Some(&profile)), &requests);
        let spent = requests.usage;
        let kinds = [
            ("input", spent.input),
            ("cachedRead", spent.cached_read),
            ("cachedWrite", spent.cached_write),
            ("output", spent.output),
            ("reasoning", spent.reasoning),
        ];
        for (kind, tokens) in kinds.into_iter().filter(|(_, tokens)| *tokens > 0) {
            let labels = owned([("profile", profile.as_str()), ("kind", kind)]);
            series.set(MetricId::ModelTokens, labels, tokens as f64);
        }
        if let Some(cost) = spent.cost {
            let currency = cost.currency.to_string();
            let labels = owned([("profile", profile.as_str()), ("currency", currency.as_str())]);
            series.set(MetricId::ModelCost, labels, cost.amount());
        }
    }
}

/// Sets the metrics of OpenTelemetry's conventions for one profile.
fn set_requests(series: &mut Series, profile: &Profile, requests: &ModelRequests) {
    let labels = |more: &[(&'static str, &str)]| {
        let model = profile.model.as_deref().map(|model| ("gen_ai.request.model", model));
        let common = [
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.provider.name", conventional_provider(&profile.provider)),
            ("pirn.profile.id", &*profile.id),
        ];
        let labels = common.into_iter().chain(model).chain(more.iter().copied());
        labels.map(|(name, value)| (name, value.to_owned())).collect::<Vec<_>>()
    };
    for (kind, tokens) in [("input", &requests.input_tokens), ("output", &requests.output_tokens)] {
        if tokens.counts.iter().any(|count| *count > 0) {
            let labels = labels(&[("gen_ai.token.type", kind)]);
            series.set_counted(MetricId::RequestTokens, labels, &tokens.counts, tokens.sum as f64);
        }
    }
    for (failure, durations) in &requests.durations_ms {
        let labels = match failure {
            Some(failure) => labels(&[("error.type", failure.as_str())]),
            None => labels(&[]),
        };
        let seconds = durations.sum as f64 / 1_000.0;
        series.set_counted(MetricId::RequestDuration, labels, &durations.counts, seconds);
    }
}
