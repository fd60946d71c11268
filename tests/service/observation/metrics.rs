//! The Prometheus and OTLP metrics.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use pirn::Engine;
use pirn::store::{MemoryStore, SqliteStore};
use pirn_service::Options;
use serde_json::{Value, json};

use crate::command::{Served, folder};
use crate::world::{World, answer, answered, later, refusal};

/// Samples by name and labels; fails on a malformed line.
fn samples(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        (name.to_owned(), value.to_owned())
    };
    lines.map(sample).collect()
}

#[tokio::test]
async fn the_metrics_count_runs_nodes_calls_and_requests() {
    let world = World::new().await;
    for (workflow, input) in [
        ("echo", json!({})),
        ("echo", json!({})),
        ("broken", json!(null)),
        ("two-voices", json!({"message": "hi"})),
    ] {
        let id = world.start(workflow, input).await;
        world.ended(&id).await;
    }
    let id = world.start("chat", json!({"message": "time?"})).await;
    assert_eq!(world.ended(&id).await["status"], "COMPLETED");
    assert_eq!(refusal(world.get("/v1/runs/none")).await.0, 404);
    let answered = answer(world.get("/metrics")).await;
    assert_eq!(
        answered.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let text = answered.body.as_str().expect("text");
    let samples = samples(text);
    let value = |name: &str| {
        samples
            .get(name)
            .map_or_else(|| panic!("{name} in\n{text}"), String::as_str)
    };
    assert_eq!(value(r#"pirn_runs_started_total{workflow="echo"}"#), "2");
    assert_eq!(
        value(r#"pirn_runs_ended_total{workflow="echo",status="COMPLETED"}"#),
        "2"
    );
    assert_eq!(
        value(r#"pirn_runs_ended_total{workflow="broken",status="FAILED"}"#),
        "1"
    );
    assert_eq!(value(r#"pirn_steps_total{type="JOIN",result="completed"}"#), "1");
    assert_eq!(value(r#"pirn_joins_total{result="completed"}"#), "1");
    assert_eq!(value(r#"pirn_join_decision_seconds_count{workflow="two-voices"}"#), "1");
    assert_eq!(value(r#"pirn_tool_calls_total{tool="clock",result="failed"}"#), "1");
    assert_eq!(value(r#"pirn_http_refusals_total{code="UNKNOWN_RUN"}"#), "1");
    assert_eq!(
        value(r#"pirn_http_requests_total{method="POST",route="/v1/runs",status="201"}"#),
        "5"
    );
    assert!(
        value(r#"pirn_tokens_total{workflow="chat",kind="total"}"#) != "0",
        "{text}"
    );
    // No other workflow uses that profile.
    let of_kind = |kind: &str| {
        let of_profile = value(&format!(r#"pirn_model_tokens_total{{profile="bot",kind="{kind}"}}"#));
        assert_eq!(
            of_profile,
            value(&format!(r#"pirn_tokens_total{{workflow="chat",kind="{kind}"}}"#))
        );
        of_profile.parse::<f64>().expect("a number")
    };
    let cost = value(r#"pirn_model_cost_total{profile="bot",currency="USD"}"#).parse::<f64>();
    let expected = (of_kind("input") + 2.0 * of_kind("output")) / 1e6;
    assert!(
        (cost.expect("a number") - expected).abs() < 1e-12 && expected > 0.0,
        "{text}"
    );
    let bot = r#"gen_ai_operation_name="chat",gen_ai_provider_name="scripted",pirn_profile_id="bot""#;
    for (kind, of_type) in [("input", "input"), ("output", "output")] {
        let sum = value(&format!(
            r#"gen_ai_client_token_usage_sum{{{bot},gen_ai_token_type="{of_type}"}}"#
        ));
        assert_eq!(sum.parse::<f64>().ok(), Some(of_kind(kind)));
    }
    let requests = value(&format!("gen_ai_client_operation_duration_seconds_count{{{bot}}}"));
    assert_ne!(requests, "0");
    assert_eq!(value("pirn_runs_live"), "0");
    // Every family has its type and help exactly once.
    let families: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let mut once = families.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), families.len());
    promtool(text);
}

/// Checks the text with Prometheus's `promtool`, if that is installed.
fn promtool(text: &str) {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("promtool is not installed: skipped");
        return;
    };
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(text.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && said.is_empty(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

#[tokio::test]
async fn the_metrics_of_a_store_count_commits_and_commits_per_sync() {
    let store = SqliteStore::open(folder("commits").join("runs.db")).expect("a store");
    let world = World::of(Engine::builder().store(store), Options::default()).await;
    for _ in 0..3 {
        let id = world.start("echo", json!({})).await;
        world.ended(&id).await;
    }
    let text = answer(world.get("/metrics")).await.body;
    let text = text.as_str().expect("text");
    let samples = samples(text);
    let value = |name: &str| samples[name].parse::<f64>().expect("a number");
    assert!(value("pirn_store_commits_total") >= 3.0, "{text}");
    assert_eq!(
        (value("pirn_store_batch_size_sum"), value("pirn_store_batch_size_count")),
        (
            value("pirn_store_commits_total"),
            value(r#"pirn_store_batch_size_bucket{le="1024"}"#)
        )
    );
    for actor in ["run", "event_bus", "trigger_matcher"] {
        assert_eq!(samples[&format!("pirn_mailbox_depth{{actor=\"{actor}\"}}")], "0");
    }
    promtool(text);
    let without = answer(World::new().await.get("/metrics")).await.body;
    assert!(!without.as_str().expect("text").contains("pirn_store"), "{without}");
}

/// A workflow that calls a model and a tool, and then waits for an answer.
const TALKS: &str = r#"{"workflows": [{"id": "talks",
        "nodes": [{"id": "start", "type": "START"},
                  {"id": "reply", "type": "LLM", "config": {"prompt": "go", "tools": ["clock"], "profileId": "talker"}},
                  {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Enough?"}},
                  {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "reply"}, {"from": "reply", "to": "ask"}, {"from": "ask", "to": "end"}]}],
    "profiles": [{"id": "talker", "provider": "scripted", "responses": [
        {"content": "let me see", "toolCalls": [{"id": "c1", "name": "clock", "arguments": {"zone": "UTC"}}]},
        {"content": "it is noon"}]}]}"#;

async fn talks() -> World {
    let engine = Engine::builder().store(MemoryStore::new()).workflows(TALKS);
    World::of(engine, Options::default()).await
}

/// The counters of runs.
async fn counted(world: &World) -> BTreeMap<String, u64> {
    let text = answer(world.get("/metrics")).await.body;
    let samples = samples(text.as_str().expect("text")).into_iter();
    let is_of_runs = |name: &str| {
        let counters = ["runs_started", "runs_ended", "steps", "tool_calls", "tokens"];
        counters
            .iter()
            .any(|counter| name.starts_with(&format!("pirn_{counter}_total")))
    };
    let counted = samples.filter(|(name, _)| is_of_runs(name));
    counted
        .map(|(name, value)| (name, value.parse().expect("a whole number")))
        .collect()
}

#[tokio::test]
async fn a_run_that_is_parked_and_resumed_is_counted_like_one_that_stays() {
    let (stays, moves) = (talks().await, talks().await);
    for (world, is_moved) in [(&stays, false), (&moves, true)] {
        let id = world.start("talks", Value::Null).await;
        world.until(&id, "INTERACTION_REQUESTED").await;
        if is_moved {
            for call in ["park", "resume", "park", "resume"] {
                later().await;
                let told = answer(world.post(&format!("/v1/runs/{id}/{call}"), &json!({}))).await;
                assert_eq!(told.status.as_u16(), 200, "{}", told.body);
            }
            world.until(&id, "INTERACTION_REQUESTED").await;
            later().await;
        }
        answered(world, &id).await;
        assert_eq!(world.ended(&id).await["status"], "COMPLETED");
    }
    let counted_once = counted(&stays).await;
    assert_eq!(counted_once[r#"pirn_runs_started_total{workflow="talks"}"#], 1);
    assert_eq!(counted(&moves).await, counted_once);
}

#[tokio::test]
async fn a_fork_counts_only_what_its_base_has_not_done() {
    let world = talks().await;
    let id = world.start("talks", Value::Null).await;
    world.until(&id, "INTERACTION_REQUESTED").await;
    answered(&world, &id).await;
    assert_eq!(world.ended(&id).await["status"], "COMPLETED");
    let before = counted(&world).await;
    let steps = answer(world.get(&format!("/v1/runs/{id}/steps"))).await.body;
    let mut steps = steps["steps"].as_array().expect("steps").iter().rev();
    let model = steps.find(|step| step["kind"] == "model").expect("a model call");
    later().await;
    let ask = json!({"step": model["step"], "runId": "fork"});
    let forked = answer(world.post(&format!("/v1/runs/{id}/fork"), &ask)).await;
    assert_eq!(forked.status.as_u16(), 201, "{}", forked.body);
    answered(&world, "fork").await;
    assert_eq!(world.ended("fork").await["status"], "COMPLETED");
    let after = counted(&world).await;
    let added = |name: &str| after[name] - before[name];
    for (name, count) in [
        (r#"pirn_runs_started_total{workflow="talks"}"#, 1),
        (r#"pirn_runs_ended_total{workflow="talks",status="COMPLETED"}"#, 1),
        (r#"pirn_steps_total{type="USER_INTERACTION",result="completed"}"#, 1),
        (r#"pirn_steps_total{type="LLM",result="completed"}"#, 0),
        (r#"pirn_tool_calls_total{tool="clock",result="failed"}"#, 0),
        (r#"pirn_tokens_total{workflow="talks",kind="total"}"#, 0),
    ] {
        assert_eq!(added(name), count, "{name}");
    }
}

#[cfg(feature = "otel")]
mod otlp {
    use std::time::Duration;

    use axum::Router;
    use axum::body::Bytes;
    use axum::routing::post;
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
    use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, NumberDataPoint};
    use pirn_service::MetricsOptions;
    use prost::Message;
    use tokio::sync::mpsc;

    use super::*;

    const GAUGES: [&str; 3] = ["pirn_runs_live", "pirn_streams_open", "pirn_mailbox_depth"];

    /// A collector, and a channel of the messages that it received.
    async fn collector() -> (String, mpsc::UnboundedReceiver<ExportMetricsServiceRequest>) {
        let (sender, received) = mpsc::unbounded_channel();
        let take = async move |body: Bytes| {
            let message = ExportMetricsServiceRequest::decode(body).expect("a message of OTLP");
            // Fails if the test has ended.
            drop(sender.send(message));
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/v1/metrics", listener.local_addr().expect("an address"));
        let served = axum::serve(listener, Router::new().route("/v1/metrics", post(take)));
        tokio::spawn(served.into_future());
        (url, received)
    }

    fn text_of(attribute: &KeyValue) -> (&str, &str) {
        match &attribute.value {
            Some(AnyValue {
                value: Some(Attribute::StringValue(text)),
            }) => (&attribute.key, text),
            other => panic!("{other:?} is no text"),
        }
    }

    /// Labels in Prometheus's format, with the bound of a bucket.
    fn labels(attributes: &[KeyValue], bound: Option<&str>) -> String {
        let attributes = attributes.iter().map(text_of);
        let labels: Vec<String> = attributes
            .chain(bound.map(|bound| ("le", bound)))
            .map(|(name, value)| format!("{}=\"{value}\"", name.replace('.', "_")))
            .collect();
        if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        }
    }

    /// A message's samples by the names that OpenTelemetry's conventions give them in Prometheus.
    fn as_prometheus(message: &ExportMetricsServiceRequest) -> BTreeMap<String, f64> {
        let mut samples = BTreeMap::new();
        let scopes = message.resource_metrics.iter().flat_map(|of| &of.scope_metrics);
        for metric in scopes.flat_map(|scope| &scope.metrics) {
            let unit = if metric.unit == "s" { "_seconds" } else { "" };
            let name = format!("{}{unit}", metric.name.replace('.', "_"));
            let mut put = |name: &str, points: &[NumberDataPoint]| {
                for point in points {
                    let Some(Number::AsDouble(value)) = point.value else {
                        panic!("{point:?} has no value")
                    };
                    samples.insert(format!("{name}{}", labels(&point.attributes, None)), value);
                }
            };
            match metric.data.as_ref().expect("data") {
                Data::Sum(sum) => {
                    assert!(sum.is_monotonic);
                    assert_eq!(sum.aggregation_temporality(), AggregationTemporality::Cumulative);
                    put(&format!("{name}_total"), &sum.data_points);
                }
                Data::Gauge(gauge) => put(&name, &gauge.data_points),
                Data::Histogram(histogram) => {
                    assert_eq!(histogram.aggregation_temporality(), AggregationTemporality::Cumulative);
                    for point in &histogram.data_points {
                        let bounds = point.explicit_bounds.iter().map(f64::to_string);
                        let mut count = 0;
                        for (bound, counted) in bounds.chain(["+Inf".to_owned()]).zip(&point.bucket_counts) {
                            count += counted;
                            let labels = labels(&point.attributes, Some(&bound));
                            samples.insert(format!("{name}_bucket{labels}"), count as f64);
                        }
                        let labels = labels(&point.attributes, None);
                        samples.insert(format!("{name}_sum{labels}"), point.sum.expect("a sum"));
                        samples.insert(format!("{name}_count{labels}"), point.count as f64);
                        assert_eq!(point.count, count);
                    }
                }
                other => panic!("{other:?} is sent by nobody"),
            }
        }
        samples
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_collector_receives_the_metrics_that_prometheus_scrapes() {
        let store = SqliteStore::open(folder("otlp").join("runs.db")).expect("a store");
        let world = World::of(Engine::builder().store(store), Options::default()).await;
        let (url, mut received) = collector().await;
        let options = MetricsOptions {
            endpoint: Some(url),
            service_name: Some("shop".to_owned()),
            interval: Some(Duration::from_millis(20)),
        };
        let export = world.service.export_metrics(&options).expect("an exporter");
        let first = received.recv().await.expect("it is sent by itself");
        for (workflow, input) in [
            ("echo", json!({})),
            ("two-voices", json!({"message": "hi"})),
            ("chat", json!({"message": "time?"})),
        ] {
            let id = world.start(workflow, input).await;
            world.ended(&id).await;
        }
        tokio::task::spawn_blocking(|| export.finish()).await.expect("it ends");
        let mut last = first;
        while let Ok(message) = received.try_recv() {
            last = message;
        }
        let resource = last.resource_metrics[0].resource.as_ref().expect("a resource");
        let named = resource
            .attributes
            .iter()
            .find(|attribute| attribute.key == "service.name");
        assert_eq!(named.map(text_of), Some(("service.name", "shop")));

        let sent = as_prometheus(&last);
        let text = answer(world.get("/metrics")).await.body;
        let read = samples(text.as_str().expect("text")).into_iter();
        let read: BTreeMap<String, f64> = read
            .map(|(name, value)| (name, value.parse().expect("a number")))
            .collect();
        for name in [
            "pirn_runs_ended_total",
            "pirn_model_cost_total",
            "pirn_store_commits_total",
        ] {
            assert!(sent.keys().any(|key| key.starts_with(name)), "{name} in {sent:?}");
        }
        assert!(sent.keys().eq(read.keys()), "{sent:?} {read:?}");
        // Gauges may change between the export and the scrape.
        let lasting = |samples: BTreeMap<String, f64>| -> BTreeMap<String, f64> {
            let is_gauge = |name: &str| GAUGES.iter().any(|gauge| name.starts_with(gauge));
            samples.into_iter().filter(|(name, _)| !is_gauge(name)).collect()
        };
        assert_eq!(lasting(sent), lasting(read));
    }

    #[cfg(unix)]
    #[tokio::test(flavor = "multi_thread")]
    async fn a_terminated_service_exports_its_metrics_a_last_time() {
        let folder = folder("otlp-last");
        let workflow = r#"{"id": "short", "edges": [{"from": "s", "to": "e"}],
            "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}]}"#;
        std::fs::write(folder.join("short.json"), workflow).expect("a file");
        let (url, mut received) = collector().await;
        let mut served = Served::start(&folder, &["short.json", "--otlp-metrics", &url]);
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let start = client.post(format!("{}/v1/runs?wait=10", served.url));
        let start = start.header("content-type", "application/json");
        answer(start.body(r#"{"workflow": "short"}"#)).await;
        served.signal("TERM");
        assert_eq!(served.ended(), Some(0));
        let last = received.try_recv().expect("it was sent before the service ended");
        let sent = as_prometheus(&last);
        let name = r#"pirn_runs_ended_total{workflow="short",status="COMPLETED"}"#;
        assert_eq!(sent.get(name), Some(&1.0), "{sent:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_shutdown_waits_at_most_once_for_an_unresponsive_collector() {
        let world = World::new().await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let options = MetricsOptions {
            endpoint: Some(format!("http://{}/", listener.local_addr().expect("an address"))),
            interval: Some(Duration::from_millis(1)),
            ..MetricsOptions::default()
        };
        let export = world.service.export_metrics(&options).expect("an exporter");
        let (silent, _) = listener.accept().await.expect("a message is on its way");
        let finished = tokio::task::spawn_blocking(|| export.finish());
        // Earlier than the time limit of an export.
        let last = tokio::time::timeout(Duration::from_secs(5), listener.accept()).await;
        let last = last.expect("the last message comes").expect("a connection");
        drop((listener, last, silent));
        finished.await.expect("it ends");
    }

    #[tokio::test]
    async fn an_invalid_collector_address_is_refused() {
        let world = World::new().await;
        let options = MetricsOptions {
            endpoint: Some("collector:4318".to_owned()),
            ..MetricsOptions::default()
        };
        let refused = world.service.export_metrics(&options).expect_err("no URL").to_string();
        assert!(refused.contains("http"), "{refused}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_call_in_doubt_is_counted_when_its_run_resumes() {
    let folder = folder("in-doubt");
    let at = |name: &str| folder.join(name);
    let workflow = r#"{"id": "calls", "nodes": [{"id": "s", "type": "START"},
            {"id": "t", "type": "TOOL", "config": {"tool": "ring", "arguments": {}}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "t"}, {"from": "t", "to": "e"}]}"#;
    let config = format!(
        "[[tools]]\nname = \"ring\"\ndescription = \"rings\"\ninputSchema = {{ type = \"object\" }}\n\
         command = {{ program = \"sh\", args = [\"-c\", \"echo begun >> '{}'; cat '{}'\"] }}\n",
        at("begun").display(),
        at("gate").display()
    );
    std::fs::write(at("calls.json"), workflow).expect("a file");
    std::fs::write(at("pirn.toml"), config).expect("a file");
    let made = Command::new("mkfifo").arg(at("gate")).status();
    assert!(made.expect("mkfifo runs").success());
    let begun = async |times: usize| {
        while std::fs::read_to_string(at("begun")).unwrap_or_default().lines().count() < times {
            tokio::task::yield_now().await;
        }
    };
    let serve = || Served::start(&folder, &["calls.json", "--store", "runs.db", "--grace", "0"]);
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");

    let mut first = serve();
    let start = client.post(format!("{}/v1/runs", first.url));
    let start = start.header("content-type", "application/json");
    assert_eq!(
        answer(start.body(r#"{"workflow": "calls"}"#)).await.status.as_u16(),
        201
    );
    begun(1).await;
    first.kill();
    let second = serve();
    begun(2).await;
    let counted = async {
        loop {
            let text = answer(client.get(format!("{}/metrics", second.url))).await.body;
            let mut samples = samples(text.as_str().expect("text")).into_iter();
            if let Some(counted) = samples.find(|(name, _)| name.starts_with("pirn_effects_in_doubt_total{")) {
                break counted;
            }
        }
    };
    let limit = std::time::Duration::from_secs(30);
    let (name, count) = tokio::time::timeout(limit, counted).await.expect("it is counted");
    assert_eq!(
        (name.as_str(), count.as_str()),
        (r#"pirn_effects_in_doubt_total{kind="tool",resolution="repeated"}"#, "1")
    );
    // Lets both programs end.
    std::fs::write(at("gate"), "rung").expect("they read");
}
