//! Profiles of `pirn.toml` and of workflow files, as `pirn validate` and `pirn run` see them: built, without network and keys.

use serde_json::{Value, json};

use crate::command::{Ended, pirn_in};
use crate::folder::Folder;

const FLOW: &str = r#"{"id": "w", "nodes": [{"id": "s", "type": "START"}, {"id": "ask", "type": "LLM", "config": {"prompt": "hi"}},
    {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]}"#;

fn validated(folder: &Folder, arguments: &[&str]) -> Ended {
    let all: Vec<&str> = ["validate", "flow.json"]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    pirn_in(folder.path(), &all, &[])
}

#[test]
fn an_invalid_profile_is_reported_with_its_line() {
    let good = "[[profiles]]\nid = \"good\"\nprovider = \"echo\"\n\n[[profiles]]\nid = \"bad\"\n";
    let cases = [
        (
            "provider = \"opnai\"\n",
            "/profiles/1/provider",
            7,
            "unknown provider `opnai`",
        ),
        (
            "provider = \"openai\"\n",
            "/profiles/1/model",
            5,
            "needs the name of a model",
        ),
        (
            "provider = \"openai\"\nmodel = \"m\"\ntemprature = 1\n",
            "/profiles/1/temprature",
            9,
            "temprature",
        ),
        (
            "provider = \"echo\"\ntokenLimit = \"many\"\n",
            "/profiles/1/tokenLimit",
            8,
            "must be a whole number that is not negative, got the text \"many\"",
        ),
        (
            "provider = \"echo\"\nfallback = [\"good\", \"gone\"]\n",
            "/profiles/1/fallback/1",
            8,
            "gone",
        ),
        (
            "provider = \"echo\"\napiKey = \"sk-1\"\n",
            "/profiles/1/apiKey",
            8,
            "apiKeyEnv",
        ),
        (
            "provider = \"scripted\"\n[[profiles.responses]]\nmatch = \"(\"\n",
            "/profiles/1/responses/0/match",
            9,
            "profile `bad`",
        ),
    ];
    for (place, (wrong, pointer, line, part)) in cases.into_iter().enumerate() {
        let folder = Folder::new(&format!("profiles-{place}"))
            .with("flow.json", FLOW)
            .with("pirn.toml", &format!("{good}{wrong}"));
        let ended = validated(&folder, &["--output", "json"]);
        assert_eq!(ended.code, Some(1), "{wrong}: {}{}", ended.stdout, ended.stderr);
        let report = ended.json();
        let error = &report["errors"][0];
        assert_eq!(error["code"], "INVALID_PROFILE", "{report}");
        assert_eq!(
            (&error["pointer"], &error["line"]),
            (&json!(pointer), &json!(line)),
            "{wrong}"
        );
        assert_eq!(error["file"], "pirn.toml");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(part) && !message.contains("sk-1"), "{message}");
        // `pirn run` reports this too, before it starts anything.
        let text = validated(&folder, &[]).stdout;
        assert!(
            text.contains("pirn.toml:") && text.contains("INVALID_PROFILE"),
            "{text}"
        );
        let run = pirn_in(folder.path(), &["run", "flow.json"], &[]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
        let (faults, _) = text.split_once("checked: ").expect("it says what it checked");
        assert!(run.stderr.contains(faults.trim_end()), "{}", run.stderr);
    }
}

#[test]
fn errors_in_profiles_of_workflow_files_and_json_configs_have_locations_too() {
    let folder = Folder::new("profiles-json")
        .with(
            "flow.json",
            &format!("{{\"workflows\": [{FLOW}],\n\"profiles\": [{{\"id\": \"a\",\n\"provider\": \"nothing\"}}]}}"),
        )
        .with(
            "more.json",
            "[{\"id\": \"b\", \"provider\": \"echo\"},\n {\"id\": \"b\", \"provider\": \"echo\"}]",
        );
    let report = validated(&folder, &["--output", "json", "--profiles", "more.json"]).json();
    let told = |place: usize| -> Value {
        let error = &report["errors"][place];
        json!([error["file"], error["pointer"], error["line"]])
    };
    assert_eq!(told(0), json!(["more.json", "/1/id", 2]), "{report}");
    assert_eq!(told(1), json!(["flow.json", "/profiles/0/provider", 4]), "{report}");
}

#[test]
fn an_unknown_tokenizer_is_an_error_and_a_missing_program_a_warning() {
    let config = "[[profiles]]\nid = \"near\"\nprovider = \"echo\"\ntokenizer = \"o200kbase\"\n\n\
        [[tools]]\nname = \"now\"\ndescription = \"The time.\"\n[tools.command]\nprogram = \"daet-of-today\"\n\n\
        [[mcpServers]]\nid = \"files\"\ncommand = \"no-such-server\"\n";
    let folder = Folder::new("profiles-missing")
        .with("flow.json", FLOW)
        .with("pirn.toml", config);
    let report = validated(&folder, &["--output", "json"]).json();
    let told: Vec<Value> = report["warnings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| json!([one["code"], one["pointer"], one["line"]]))
        .collect();
    let expected = [
        json!(["PROGRAM_NOT_FOUND", "/tools/0/command/program", 10]),
        json!(["PROGRAM_NOT_FOUND", "/mcpServers/0/command", 14]),
    ];
    assert_eq!(told, expected, "{report}");
    let error = &report["errors"][0];
    let told = json!([error["code"], error["pointer"], error["line"], error["help"]]);
    let expected = json!([
        "UNKNOWN_TOKENIZER",
        "/profiles/0/tokenizer",
        4,
        "did you mean `o200k_base`?"
    ]);
    assert_eq!(told, expected, "{report}");
}

#[test]
fn unsupported_parameters_of_a_provider_are_warnings() {
    let profile = |id: &str, more: &str| {
        format!("[[profiles]]\nid = \"{id}\"\nmodel = \"m\"\nparameters = {{ seed = 7, stop = \"x\" }}\n{more}\n")
    };
    let config = [
        profile("chat", "provider = \"openai\""),
        profile("responses", "provider = \"openai\"\napi = \"responses\""),
        profile("claude", "provider = \"anthropic\""),
        profile("google", "provider = \"gemini\""),
        profile("own", "provider = \"ollama\""),
    ]
    .concat();
    let asks = FLOW.replace(
        r#""prompt": "hi""#,
        r#""prompt": "hi", "profileId": "claude", "parameters": {"seed": 9}"#,
    );
    let folder = Folder::new("profiles-seed")
        .with("flow.json", &asks)
        .with("pirn.toml", &config);
    let report = validated(&folder, &["--output", "json"]).json();
    let told: Vec<Value> = report["warnings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| json!([one["pointer"], one["message"]]))
        .collect();
    let expected = [
        json!([
            "/profiles/1/parameters/seed",
            "profile `responses`, /parameters/seed: openai has no `seed`: it is not sent"
        ]),
        json!([
            "/profiles/1/parameters/stop",
            "profile `responses`, /parameters/stop: openai has no `stop`: it is not sent"
        ]),
        json!([
            "/profiles/2/parameters/seed",
            "profile `claude`, /parameters/seed: anthropic has no `seed`: it is not sent"
        ]),
        json!([
            "/nodes/1/config/parameters/seed",
            "anthropic has no `seed`: it is not sent"
        ]),
    ];
    assert_eq!(told, expected, "{report}");
    assert_eq!(report["valid"], true);
}

#[test]
fn validation_needs_neither_a_key_nor_a_network() {
    let config = "[[profiles]]\nid = \"far\"\nprovider = \"openai\"\nmodel = \"m\"\nendpoint = \"http://127.0.0.1:1/v1\"\napiKeyEnv = \"NOT_SET_ANYWHERE\"\n";
    let folder = Folder::new("profiles-keyless")
        .with("flow.json", FLOW)
        .with("pirn.toml", config);
    let ended = validated(&folder, &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stdout);
    assert!(
        ended.stdout.starts_with("valid: 0 errors, 0 warnings\n"),
        "{}",
        ended.stdout
    );
}

#[test]
fn the_metadata_of_a_run_chooses_its_key() {
    let profile = "[[profiles]]\nid = \"a\"\nprovider = \"openai\"\nmodel = \"m\"\nendpoint = \"http://127.0.0.1:9/\"\n\
        apiKeyEnvs = { by = \"tenant\", names = { acme = \"ACME_KEY\", 7 = \"SEVENTH_KEY\" } }\n";
    let folder = Folder::new("profiles-metadata")
        .with("flow.json", FLOW)
        .with("pirn.toml", profile);
    for (metadata, said) in [
        (&[][..], "the run's metadata has no `tenant` to choose the key by"),
        (
            &["tenant=acme", "user=u-7"],
            "the environment variable ACME_KEY with the key is not set",
        ),
        (
            &["tenant=7"],
            "the environment variable SEVENTH_KEY with the key is not set",
        ),
        (
            &["tenant=beta"],
            "there is no key for tenant \"beta\": `apiKeyEnvs` does not name it",
        ),
    ] {
        for more in [&[][..], &["--virtual-time", "--seeds", "1"]] {
            let mut arguments = vec!["run", "flow.json"];
            arguments.extend(metadata.iter().flat_map(|one| ["--metadata", *one]));
            arguments.extend(more);
            let ended = pirn_in(folder.path(), &arguments, &[]);
            let told = format!("{}{}", ended.stdout, ended.stderr);
            assert!(ended.code == Some(1) && told.contains(said), "{arguments:?}: {told}");
        }
    }
}
