//! The files of `examples/deploy`: every flag exists, and the settings agree with each other and with the service.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::command::pirn;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/deploy")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a YAML file.
fn yaml(name: &str) -> Vec<Value> {
    let text = file(name);
    let documents = serde_yaml_ng::Deserializer::from_str(&text).map(|document| {
        let mut value = serde_yaml_ng::Value::deserialize(document).expect("YAML");
        value.apply_merge().expect("keys to merge");
        serde_json::to_value(value).expect("JSON")
    });
    documents.collect()
}

fn words(list: &Value) -> Vec<String> {
    let list = list.as_array().expect("a list");
    list.iter()
        .map(|word| word.as_str().expect("a word").to_owned())
        .collect()
}

/// Checks the flags of a command line against the help of its subcommand; returns the values of the flags.
fn check(line: &[String]) -> Vec<(String, String)> {
    let subcommand = line[0].as_str();
    let help = pirn(&[subcommand, "--help"]).stdout;
    let known: BTreeSet<&str> = help
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| word.starts_with("--"))
        .collect();
    let mut flags = Vec::new();
    let mut rest = line[1..].iter().peekable();
    while let Some(word) = rest.next() {
        let Some(flag) = word.strip_prefix("--") else { continue };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (
                flag,
                rest.next_if(|next| !next.starts_with("--"))
                    .cloned()
                    .unwrap_or_default(),
            ),
        };
        let flag = format!("--{name}");
        assert!(
            known.contains(flag.as_str()),
            "pirn {subcommand} has no {flag}: {known:?}"
        );
        flags.push((flag, value));
    }
    assert!(!flags.is_empty(), "{line:?}");
    flags
}

fn seconds(flags: &[(String, String)]) -> u64 {
    let grace = flags.iter().find(|(name, _)| name == "--grace").expect("--grace");
    grace.1.parse().expect("seconds")
}

#[test]
fn the_image_is_static_and_does_not_run_as_root() {
    let text = file("Dockerfile");
    let last = text.rsplit("\nFROM ").next().expect("a stage");
    assert!(last.starts_with("scratch\n"), "{last}");
    let user = last
        .lines()
        .find_map(|line| line.strip_prefix("USER "))
        .expect("a user");
    assert!(
        user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)),
        "{user}"
    );
    let manifest = include_str!("../../../cli/Cargo.toml");
    let features = text
        .split("--features ")
        .nth(1)
        .and_then(|rest| rest.lines().next())
        .expect("features");
    for feature in features.split(',') {
        assert!(manifest.contains(&format!("\n{feature} = [")), "{feature}");
    }
    let version = text
        .split("FROM rust:")
        .nth(1)
        .and_then(|rest| rest.split('-').next())
        .expect("a version");
    assert!(include_str!("../../../Cargo.toml").contains(&format!("rust-version = \"{version}\"")));
}

#[test]
fn compose_starts_a_service_and_workers_with_existing_flags() {
    let all = yaml("compose.yaml").remove(0);
    let services = all["services"].as_object().expect("services");
    for name in ["serve", "worker"] {
        let service = &services[name];
        let flags = check(&words(&service["command"]));
        let stop = service["stop_grace_period"]
            .as_str()
            .and_then(|stop| stop.strip_suffix('s'))
            .expect("seconds");
        assert!(stop.parse::<u64>().expect("a number") > seconds(&flags), "{name}");
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["cap_drop"], serde_json::json!(["ALL"]), "{name}");
        assert_eq!(
            service["depends_on"]["postgres"]["condition"], "service_healthy",
            "{name}"
        );
        assert_eq!(
            service["restart"], "unless-stopped",
            "the service ends until the schemas exist"
        );
    }
    let secrets = all["secrets"].as_object().expect("secrets");
    for service in services.values() {
        for secret in service["secrets"].as_array().into_iter().flatten() {
            assert!(secrets.contains_key(secret.as_str().expect("a name")), "{secret}");
        }
    }
}

#[test]
fn the_first_lines_of_each_file_create_the_files_that_its_command_reads() {
    for (name, created) in [
        ("compose.yaml", ["workflows/workflow.json", "> secrets/tokens"]),
        (
            "kubernetes.yaml",
            ["--from-file=workflow.json=WORKFLOW.json", "> tokens"],
        ),
        ("pirn.service", ["/etc/pirn/workflow.json", "> /etc/pirn/tokens"]),
    ] {
        let text = file(name);
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        let head = head.join("\n");
        assert!(created.iter().all(|part| head.contains(part)), "{name}: {head}");
        assert!(text.contains("/workflow.json"), "{name}");
    }
}

#[test]
fn kubernetes_probes_the_service_and_gives_runs_their_time() {
    let documents = yaml("kubernetes.yaml");
    let pod = &documents[0]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let flags = check(&words(&container["args"]));
    let grace = pod["terminationGracePeriodSeconds"].as_u64().expect("seconds");
    assert!(grace > seconds(&flags) + 5, "the last answers have 5 seconds");
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    for (probe, path) in [
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ] {
        assert_eq!(container[probe]["httpGet"]["path"], path);
    }
    // A store file belongs to one process.
    assert_eq!(documents[0]["spec"]["replicas"], 1);
    let port = &container["ports"][0];
    let listen = flags.iter().find(|(name, _)| name == "--listen").expect("an address");
    assert!(listen.1.ends_with(&format!(":{}", port["containerPort"])), "{listen:?}");
    assert_eq!(documents[1]["spec"]["ports"][0]["targetPort"], port["name"]);
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let data = mounts.iter().find(|mount| mount["name"] == "data").expect("a volume");
    let store = flags.iter().find(|(name, _)| name == "--store").expect("a store");
    assert!(
        store.1.starts_with(data["mountPath"].as_str().expect("a path")),
        "only this folder can be written"
    );
}

#[test]
fn the_unit_and_the_proxy_fit_the_service() {
    let unit = file("pirn.service");
    let setting = |name: &str| -> String {
        let found = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("{name} is missing")).to_owned()
    };
    let line: Vec<String> = setting("ExecStart")
        .split_whitespace()
        .skip(1)
        .map(str::to_owned)
        .collect();
    let flags = check(&line);
    assert!(setting("TimeoutStopSec").parse::<u64>().expect("seconds") > seconds(&flags) + 5);
    let value = |name: &str| flags.iter().find(|(flag, _)| flag == name).expect("a flag").1.clone();
    assert!(value("--store").starts_with(&format!("/var/lib/{}/", setting("StateDirectory"))));
    for (name, expected) in [
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("DynamicUser", "yes"),
    ] {
        assert_eq!(setting(name), expected);
    }
    let proxy = file("nginx.conf");
    assert!(proxy.contains(&format!("server {};", value("--listen"))));
    assert!(proxy.contains(&format!("server_name {};", value("--allow-host"))));
    for needed in [
        "proxy_buffering off;",
        "proxy_set_header Host $host;",
        "client_max_body_size 4m;",
        "proxy_http_version 1.1;",
    ] {
        assert!(proxy.contains(needed), "{needed}");
    }
    let depth = proxy
        .chars()
        .fold(0_i32, |depth, c| depth + i32::from(c == '{') - i32::from(c == '}'));
    assert_eq!(depth, 0, "braces");
}
