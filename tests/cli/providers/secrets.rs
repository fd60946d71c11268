//! An API key in a field for the name of an environment variable is rejected, and no output of any command contains it.

use serde_json::{Value, json};

use crate::command::{Ended, pirn_in};
use crate::folder::Folder;

const FLOW: &str = r#"{"id": "w", "nodes": [{"id": "s", "type": "START"}, {"id": "ask", "type": "LLM", "config": {"prompt": "hi"}},
    {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]}"#;

/// Secrets that cannot be names of variables, and some that could be.
const SECRETS: &[&str] = &[
    "sk-abcdefghijklmnopqrstuv",
    "correct horse battery staple",
    "0a1b2c3d4e5f60718293a4b5",
    "eyJhbGciOiJIUzI1NiJ9.e30.canary",
    "hf_abcdefghijklmnopqrst",
    "AIzaSyCanaryCanaryCanary12",
    "aB3dE6gH9jK2mN5pQ8sT",
    "cafebabe0123456789abcdef",
];

/// A secret that has the form of a variable's name.
const LIKE_A_NAME: &str = "correcthorsebatterystaple";

fn profile(more: &str) -> String {
    format!(
        "[[profiles]]\nid = \"p\"\nprovider = \"openai\"\nmodel = \"m\"\nendpoint = \"http://127.0.0.1:9/v1\"\n{more}\n"
    )
}

/// Returns a config file for each field that takes the name of a variable, with this secret in the field.
fn configs(secret: &str) -> Vec<(&'static str, String)> {
    let server = "[[mcpServers]]\nid = \"far\"\nurl = \"https://127.0.0.1:9/mcp\"\n";
    vec![
        ("apiKeyEnv", profile(&format!("apiKeyEnv = \"{secret}\""))),
        (
            "apiKeyEnvs",
            profile(&format!(
                "apiKeyEnvs = {{ by = \"tenant\", names = {{ acme = \"{secret}\" }} }}"
            )),
        ),
        (
            "headersEnv",
            profile(&format!("headersEnv = {{ \"X-Gate\" = \"{secret}\" }}")),
        ),
        (
            "headersEnv with text",
            profile(&format!("headersEnv = {{ \"X-Gate\" = \"Bearer ${{{secret}}}\" }}")),
        ),
        (
            "a tool's headersEnv",
            format!(
                "[[tools]]\nname = \"t\"\ndescription = \"T.\"\n[tools.http]\nurl = \"http://127.0.0.1:9/\"\nheadersEnv = {{ \"X-Gate\" = \"{secret}\" }}\n"
            ),
        ),
        (
            "a tool's envFrom",
            format!(
                "[[tools]]\nname = \"t\"\ndescription = \"T.\"\n[tools.command]\nprogram = \"true\"\nenvFrom = [\"{secret}\"]\n"
            ),
        ),
        (
            "a server's envFrom",
            format!("[[mcpServers]]\nid = \"near\"\ncommand = \"true\"\nenvFrom = [\"{secret}\"]\n"),
        ),
        (
            "a server's headersEnv",
            format!("{server}headersEnv = {{ \"X-Gate\" = \"{secret}\" }}\n"),
        ),
        (
            "clientSecretEnv",
            format!(
                "{server}[mcpServers.oauth]\ntokenUrl = \"https://127.0.0.1:9/t\"\nclientId = \"c\"\nclientSecretEnv = \"{secret}\"\n"
            ),
        ),
    ]
}

/// Commands that may show the config, in both formats.
const COMMANDS: &[&[&str]] = &[
    &["validate", "flow.json"],
    &["validate", "flow.json", "--output", "json"],
    &["run", "flow.json", "--metadata", "tenant=acme", "--verbose"],
    &[
        "run",
        "flow.json",
        "--metadata",
        "tenant=acme",
        "--output",
        "json",
        "--events",
        "events.jsonl",
    ],
    &["run", "flow.json", "--metadata", "tenant=acme", "--store", "runs.db"],
    &["runs", "list", "--store", "runs.db", "--output", "json"],
    &["tools", "list"],
    &["tools", "call", "t", "{}"],
    &["models", "check", "--output", "json"],
    &["models", "check"],
];

fn shown(folder: &Folder, arguments: &[&str]) -> (Ended, String) {
    let ended = pirn_in(folder.path(), arguments, &[]);
    let events = std::fs::read_to_string(folder.path().join("events.jsonl")).unwrap_or_default();
    let all = format!("{}{}{events}", ended.stdout, ended.stderr);
    (ended, all)
}

#[test]
fn a_key_instead_of_a_variables_name_is_refused_and_never_shown() {
    for (number, secret) in SECRETS.iter().enumerate() {
        for (place, config) in configs(secret) {
            if place == "headersEnv with text" && secret.contains(' ') {
                continue;
            }
            let folder = Folder::new(&format!("secrets-{number}"))
                .with("flow.json", FLOW)
                .with("pirn.toml", &config);
            for command in COMMANDS {
                let (ended, all) = shown(&folder, command);
                assert!(!all.contains(secret), "{place}: {command:?}: {all}");
                let judges =
                    matches!(command[0], "validate" | "run") || (command[0] == "models" && place.contains("Env"));
                assert!(!judges || ended.code != Some(0), "{place}: {command:?} takes it: {all}");
            }
        }
        let mut bundle: Value = serde_json::from_str(FLOW).expect("JSON");
        bundle = json!({"workflows": [bundle], "profiles": [
            {"id": "p", "provider": "openai", "model": "m", "endpoint": "http://127.0.0.1:9/", "apiKeyEnv": secret},
        ]});
        let written = format!("{bundle:#}");
        let broken = written.replace("\"provider\"", "\"provder\"");
        for text in [written.as_str(), &broken, &written[..written.len() - 2]] {
            let folder = Folder::new(&format!("secrets-bundle-{number}")).with("flow.json", text);
            for command in &COMMANDS[..5] {
                let (ended, all) = shown(&folder, command);
                assert!(!all.contains(secret), "in a bundle: {command:?}: {all}");
                assert_ne!(ended.code, Some(0), "in a bundle: {command:?}");
            }
        }
    }
}

#[test]
fn an_unset_variables_name_that_could_be_a_key_is_not_shown() {
    for (place, config) in configs(LIKE_A_NAME) {
        let folder = Folder::new("secrets-names")
            .with("flow.json", FLOW)
            .with("pirn.toml", &config);
        for command in COMMANDS {
            let (_, all) = shown(&folder, command);
            assert!(!all.contains(LIKE_A_NAME), "{place}: {command:?}: {all}");
        }
    }
}
