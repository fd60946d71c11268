//! Files loaded into a running engine.

use pirn::check::SourceFile;
use pirn::{Engine, Profile};
use serde_json::{Value, json};

/// A workflow that waits for an event and then outputs the reply of its model.
fn file(provider: &str, says: &str) -> SourceFile {
    let text = json!({
        "workflows": [{"id": "main", "nodes": [{"id": "s", "type": "START"}, {"id": "go", "type": "WAIT", "config": {"event": "go"}},
                {"id": "say", "type": "LLM", "config": {"profileId": "voice", "prompt": "speak"}},
                {"id": "e", "type": "END", "config": {"output": format!("[nodes.say.content, '{says}']")}}],
            "edges": [{"from": "s", "to": "go"}, {"from": "go", "to": "say"}, {"from": "say", "to": "e"}]}],
        "profiles": [{"id": "voice", "provider": provider, "responses": [{"content": says}]}],
    });
    SourceFile::new("main.json", text.to_string())
}

fn replies(engine: &Engine) -> Value {
    let run = engine.start("main", json!(null)).expect("starts");
    run.emit("go", []);
    run.outcome_blocking().output.clone()
}

#[test]
fn a_reloaded_file_and_its_profiles_apply_to_later_runs() {
    let before = file("scripted", "before");
    let engine = Engine::builder().virtual_time(None).workflows(&*before.text).build();
    let engine = engine.expect("builds");
    let began = engine.start("main", json!(null)).expect("starts");
    engine.wait_idle();
    engine.load_files(&[file("scripted", "after")]).expect("is good");
    assert_eq!(replies(&engine), json!(["after", "after"]));
    began.emit("go", []);
    assert_eq!(began.outcome_blocking().output, json!(["before", "before"]));

    let faults = engine
        .load_files(&[file("scriptd", "wrong")])
        .expect_err("no such provider");
    let fault = &faults[0];
    assert_eq!(
        (fault.code.as_str(), &*fault.pointer, fault.file.as_deref()),
        ("INVALID_PROFILE", "/profiles/0/provider", Some("main.json")),
        "{faults:?}"
    );
    assert_eq!(replies(&engine), json!(["after", "after"]), "nothing of it was loaded");
}

#[test]
fn a_profile_of_the_engine_builder_is_not_replaced_by_loaded_files() {
    let own: Profile =
        serde_json::from_value(json!({"id": "voice", "provider": "scripted", "responses": [{"content": "own"}]}))
            .expect("a profile");
    let engine = Engine::builder().virtual_time(None).profiles([own]).build();
    let engine = engine.expect("builds");
    for says in ["first", "second"] {
        engine.load_files(&[file("scripted", says)]).expect("is good");
        assert_eq!(replies(&engine), json!(["own", says]));
    }
}
