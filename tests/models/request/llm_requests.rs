//! The request of an LLM node: parts of its message, an evaluated profile and parameters, and the API key that is sent.

use pirn::{Engine, EngineBuilder, EventType, FinishReason, Message, Part, Role, RunReport};
use pirn_tests::wire::{Answer, Server};
use pirn_tests::world::{Ran, run_in};
use serde_json::{Value, json};

use crate::models::{asking, engine, profile};

const PICTURE: &str = "data:image/png;base64,iVBORw0=";

fn asks(server: &Server, more: &Value, config: Value, input: Value) -> Ran {
    run_in(engine([profile(server, more)]), &asking(config), input, Vec::new())
}

#[test]
fn parts_follow_the_prompt_in_one_message() {
    let server = Server::answering([Answer::saying(&["a leaf"])]);
    let config = json!({"prompt": "What is {{input.it}}?", "parts": [
        {"type": "image", "url": PICTURE, "detail": "low"},
        {"type": "text", "text": "Beside {{input.it}}:"},
        {"type": "image", "url": "{{input.photo}}"},
        "{{input.more}}",
    ]});
    let more = json!([{"type": "file", "url": "data:application/pdf;base64,JVBE", "name": "a.pdf"}, "and this"]);
    // Braces in an inserted value are not evaluated as a template.
    let input = json!({"it": "this", "photo": "https://example.test/{{a}}.png", "more": more});
    let ran = asks(&server, &json!({}), config, input);
    assert_eq!(ran.report.output["content"], "a leaf", "{:?}", ran.report.error);
    assert_eq!(
        server.requests()[0].body["messages"],
        json!([{"role": "user", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}},
            {"type": "text", "text": "Beside this:"},
            {"type": "image_url", "image_url": {"url": "https://example.test/{{a}}.png"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
            {"type": "text", "text": "and this"},
        ]}])
    );
}

#[test]
fn parts_may_be_one_expression_and_need_no_prompt() {
    let server = Server::answering([Answer::saying(&["one"]), Answer::saying(&["two"])]);
    let image = json!({"type": "image", "url": PICTURE});
    let config = json!({"parts": "input.photos.map(url => ({type: 'image', url}))"});
    let computed = asks(&server, &json!({}), config, json!({"photos": [PICTURE]}));
    let literal = asks(&server, &json!({}), json!({"parts": [image]}), json!(null));
    for ran in [computed, literal] {
        let expected = Message::of_parts(Role::User, vec![Part::image(PICTURE)]);
        assert_eq!(*ran.report.conversation.messages[0], expected, "{:?}", ran.report.error);
        assert_eq!(ran.report.nodes[1].finish_reason, Some(FinishReason::Stop));
    }
}

#[test]
fn an_invalid_part_is_a_fault_of_the_file_or_an_error_of_its_node() {
    for (parts, code, words) in [
        (
            json!([{"type": "imgae", "url": PICTURE}]),
            "/parts/0/type",
            "did you mean `image`?",
        ),
        (
            json!([{"type": "image", "uri": PICTURE}]),
            "/parts/0",
            "unknown field `uri`",
        ),
        (json!(7), "/parts", "must be a list of texts, images and files"),
        (json!("input."), "/parts", "INVALID_EXPRESSION"),
    ] {
        let built = Engine::builder()
            .workflows(asking(json!({ "parts": parts })).to_string())
            .build();
        let error = built.expect_err("it is no part").to_string();
        assert!(error.contains(words), "{code}: {error}");
    }
    let server = Server::answering([]);
    for (input, words) in [
        (json!({"parts": 7}), "7 is not a part of a message"),
        (json!({"parts": [{"type": "image"}]}), "missing field `url`"),
        (json!({"parts": [[]]}), "holds no lists"),
    ] {
        let ran = asks(
            &server,
            &json!({}),
            json!({"prompt": "p", "parts": "input.parts"}),
            input,
        );
        let error = ran.report.error.as_ref().expect("it failed").to_string();
        assert!(
            error.contains("`parts` of the node") && error.contains(words),
            "{error}"
        );
    }
    assert!(server.requests().is_empty());
}

#[test]
fn an_images_tokens_are_counted_by_the_providers_rule() {
    let photo = json!({"type": "image", "url": PICTURE, "width": 1000, "height": 1000});
    let tokens = |more: Value| {
        let server = Server::answering([]);
        let mut fields = more;
        fields["retry"] = json!({"maxAttempts": 1});
        let ran = asks(&server, &fields, json!({"parts": [photo]}), json!(null));
        let prepared = ran.of(EventType::RequestPrepared)[0];
        prepared.to_json()["tokensUsed"].as_u64().expect("a number")
    };
    let (overhead, most) = (4, 1_334);
    for (more, cost) in [
        (json!({}), 765),
        (json!({"provider": "anthropic"}), 1_334),
        (json!({"provider": "gemini"}), 1_032),
        (json!({"model": "vertex/claude-sonnet-4-5"}), 1_334),
        (json!({"tokenizer": "gemini-2"}), 1_032),
        (json!({"tokenizer": "estimate"}), most),
        (json!({"provider": "ollama"}), most),
    ] {
        assert_eq!(tokens(more.clone()), overhead + cost, "{more}");
    }
}

#[test]
fn the_profile_and_the_parameters_of_a_node_may_be_expressions() {
    let server = Server::answering([Answer::saying(&["one"]), Answer::saying(&["two"])]);
    let profiles = ["small", "large"].map(|id| profile(&server, &json!({"id": id, "model": format!("model-{id}")})));
    let config = json!({"prompt": "{{input.size}}?", "system": "Be {{input.mood}}.", "profileId": "{{input.size}}",
        "parameters": {"temperature": "{{input.heat}}", "user": "u-{{input.size}}", "seed": 7}});
    let ran = |size: &str| {
        let input = json!({"size": size, "mood": "kind", "heat": 0.25});
        run_in(engine(profiles.clone()), &asking(config.clone()), input, Vec::new())
    };
    assert_eq!(ran("large").report.output["content"], "one");
    assert_eq!(ran("small").report.output["content"], "two");
    let requests = server.requests();
    for (request, size) in requests.iter().zip(["large", "small"]) {
        let body = &request.body;
        assert_eq!(body["model"], format!("model-{size}"));
        assert_eq!((&body["temperature"], &body["seed"]), (&json!(0.25), &json!(7)));
        assert_eq!(body["user"], format!("u-{size}"));
        assert_eq!(body["messages"][0], json!({"role": "system", "content": "Be kind."}));
    }
    let unknown = ran("lage").report;
    let error = unknown.error.as_ref().expect("there is none").to_string();
    assert!(
        error.contains("no profile has the id `lage`; did you mean `large`?"),
        "{error}"
    );
    let nobody = ran(" ").report;
    let error = nobody.error.as_ref().expect("there is none").to_string();
    assert!(error.contains("`profileId` evaluates to an empty string"), "{error}");
    assert_eq!(server.requests().len(), 2, "nobody else was asked");
}

/// Runs with this tenant in the metadata, or without metadata.
fn run_for(builder: EngineBuilder, tenant: Option<&str>) -> RunReport {
    let engine = builder
        .workflows(asking(json!({"prompt": "hi"})).to_string())
        .build()
        .expect("valid");
    let mut run = engine.run("asks");
    if let Some(tenant) = tenant {
        run = run.metadata([("tenant", tenant)]);
    }
    let report = run.start().expect("admitted").outcome_blocking();
    (*report).clone()
}

#[test]
fn each_tenant_has_a_separate_api_key() {
    let server = Server::answering([Answer::saying(&["a"]), Answer::saying(&["b"]), Answer::saying(&["c"])]);
    // Variables that cargo sets for every test serve as API keys.
    let keys = json!({"by": "tenant", "names": {"acme": "CARGO_PKG_NAME", "beta": "CARGO_PKG_VERSION"}});
    let one = json!({"apiKeyEnvs": keys, "retry": {"maxAttempts": 1}});
    let run = |fields: &Value, tenant| run_for(engine([profile(&server, fields)]), tenant);
    assert_eq!(run(&one, Some("acme")).output["content"], "a");
    assert_eq!(run(&one, Some("beta")).output["content"], "b");
    for (tenant, words) in [
        (Some("other"), "there is no key for tenant \"other\""),
        (None, "the run's metadata has no `tenant`"),
    ] {
        let error = run(&one, tenant).error.expect("no key");
        let details = error.details.clone().unwrap_or_default();
        assert_eq!(details["kind"], "key", "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let mut with_default = one.clone();
    with_default["apiKeyEnv"] = json!("CARGO_PKG_NAME");
    assert_eq!(run(&with_default, Some("other")).output["content"], "c");
    let sent: Vec<String> = server
        .requests()
        .iter()
        .map(|request| request.headers["authorization"].clone())
        .collect();
    let bearer = |key: &str| format!("Bearer {key}");
    let (name, version) = (bearer(env!("CARGO_PKG_NAME")), bearer(env!("CARGO_PKG_VERSION")));
    assert_eq!(sent, [name.clone(), version, name]);
}

#[test]
fn a_program_may_choose_the_key_of_each_call() {
    let server = Server::answering([Answer::saying(&["a"]), Answer::saying(&["b"])]);
    let choose = |profile: &pirn::Profile, context: &pirn::CallContext| {
        let tenant = context.metadata.get("tenant")?.as_str()?;
        assert_eq!(context.node_id.as_deref(), Some("ask"));
        Some(format!("sk-{}-{tenant}", profile.id))
    };
    let run = |tenant| {
        let fields = json!({"apiKeyEnv": "CARGO_PKG_NAME"});
        run_for(engine([profile(&server, &fields)]).model_keys(choose), tenant)
    };
    assert_eq!(run(Some("acme")).output["content"], "a");
    assert_eq!(run(None).output["content"], "b");
    let sent: Vec<String> = server
        .requests()
        .iter()
        .map(|request| request.headers["authorization"].clone())
        .collect();
    assert_eq!(sent, ["Bearer sk-m-acme", concat!("Bearer ", env!("CARGO_PKG_NAME"))]);
}

#[test]
fn invalid_tenant_keys_are_reported_with_their_location() {
    let server = Server::answering([]);
    for (keys, words) in [
        (json!({"tenant": "acme"}), "unknown field `tenant`"),
        (json!({"by": "tenant"}), "`names` is missing"),
        (json!({"by": "tenant", "names": ["a"]}), "must be an object, got a list"),
    ] {
        let built = engine([profile(&server, &json!({ "apiKeyEnvs": keys }))]).build();
        let error = built.expect_err("it is wrong").to_string();
        assert!(error.contains("/apiKeyEnvs") && error.contains(words), "{error}");
    }
}
