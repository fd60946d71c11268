//! The figures that Prometheus reads.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::command::{Served, folder};
use crate::world::{World, answer, refusal};

/// Samples by name and labels; fails where a line is none.
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
async fn the_figures_count_what_has_happened() {
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
    // Only this workflow asks that profile.
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
    assert_eq!(value("pirn_runs_live"), "0");
    // Every family has its type and help, and no family stands twice.
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

/// Prometheus's own check of what it reads, where it is installed.
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

#[cfg(unix)]
#[tokio::test]
async fn a_call_in_doubt_is_counted_where_its_run_goes_on() {
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
    // Both programs end.
    std::fs::write(at("gate"), "rung").expect("they read");
}
