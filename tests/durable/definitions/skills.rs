//! Skills: the definition of a run contains them.

use std::fs;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use pirn::store::MemoryStore;
use pirn::{Engine, EngineBuilder, Model, ModelCall, ModelReply, Role, RunError, ToolCall, ToolSpec};
use pirn_tests::world::{line, node};
use serde_json::{Value, json};

/// Reads the skill `notes`, a file of it, and a file that it does not have; then replies.
#[derive(Default)]
struct Reader(Mutex<Vec<Vec<ToolSpec>>>);

impl Model for Reader {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        self.0.lock().expect("a lock").push(call.tools);
        let results = call
            .request
            .messages
            .iter()
            .filter(|message| message.role == Role::Tool)
            .count();
        let asked = [
            json!({"name": "notes"}),
            json!({"name": "notes", "file": "form/a.md"}),
            json!({"name": "notes", "file": "../secret"}),
            json!({"name": "none"}),
        ];
        let calls = asked.get(results).map(|arguments| ToolCall {
            id: format!("c{results}"),
            name: "read_skill".to_owned(),
            arguments: arguments.clone(),
        });
        let reply = ModelReply {
            content: "written".to_owned(),
            tool_calls: calls.into_iter().collect(),
            ..ModelReply::default()
        };
        std::future::ready(Ok(reply)).boxed()
    }
}

fn builder(model: &Arc<Reader>, store: &MemoryStore) -> EngineBuilder {
    Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .model("reader", Arc::clone(model) as Arc<dyn Model>)
        .profiles([serde_json::from_value(json!({"id": "reader", "provider": "reader"})).expect("a profile")])
}

fn workflow(skills: &Value) -> Value {
    let ask = node("sure", "USER_INTERACTION", json!({"question": "Sure?"}));
    let write = node(
        "write",
        "LLM",
        json!({"profileId": "reader", "prompt": "go", "skills": skills}),
    );
    line("main", &[ask, write])
}

#[test]
fn a_run_reads_its_skills_after_their_folder_was_removed() {
    let folder = std::env::temp_dir().join(format!("pirn-skill-run-{}", std::process::id()));
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(folder.join("notes/form")).expect("a folder");
    fs::write(folder.join("secret"), "S").expect("a file");
    fs::write(
        folder.join("notes/SKILL.md"),
        "---\nname: notes\ndescription: Writes notes.\n---\nGroup them.",
    )
    .expect("a file");
    fs::write(folder.join("notes/form/a.md"), "Form A").expect("a file");
    let path = folder.join("main.json");
    fs::write(&path, workflow(&json!(["notes"])).to_string()).expect("a file");

    let (model, store) = (Arc::new(Reader::default()), MemoryStore::new());
    let first = builder(&model, &store).path(&path).build().expect("an engine");
    let run = first.run("main").run_id("r").start().expect("starts");
    while block_on(run.interactions()).is_empty() {
        std::thread::yield_now();
    }
    block_on(run.wait_durable()).expect("is durable");
    first.shutdown_blocking(std::time::Duration::from_secs(5));
    fs::remove_dir_all(&folder).expect("is removed");

    let second = builder(&model, &store).build().expect("an engine");
    let run = block_on(second.resume("r").start()).expect("continues");
    let asked = block_on(run.interactions());
    block_on(run.answer(&asked[0].id, "yes")).expect("is open");
    let report = run.outcome_blocking();
    assert_eq!(report.output["content"], "written", "{report:?}");
    let results = report
        .conversation
        .messages
        .iter()
        .filter(|message| message.role == Role::Tool);
    let results: Vec<String> = results.map(|message| message.content.as_str().to_owned()).collect();
    assert_eq!(results[0], "Group them.\n\n(Files of the skill: form/a.md)");
    assert_eq!(results[1], "Form A");
    assert!(
        results[2].contains("no text file `../secret`") && results[2].contains("form/a.md"),
        "{results:?}"
    );
    assert!(results[3].contains("no skill `none`; there are: notes"), "{results:?}");
    let requests = model.0.lock().expect("a lock");
    assert!(
        requests.iter().all(|tools| *tools == requests[0]),
        "the same tools in each request"
    );
    let [tool] = &requests[0][..] else {
        panic!("one tool: {requests:?}")
    };
    assert!(
        tool.name == "read_skill" && tool.description.ends_with("\n- notes: Writes notes."),
        "{tool:?}"
    );
}

#[test]
fn a_missing_or_malformed_skill_is_a_fault_at_its_entry() {
    let store = MemoryStore::new();
    let good = "---\nname: a\ndescription: d\n---\nx";
    for (skills, part) in [
        (json!(["notes"]), "a folder is read only with a workflow file on disk"),
        (json!([{"files": {}}]), "contains no SKILL.md"),
        (json!([{"files": {"SKILL.md": "x"}}]), "must start with a head"),
        (
            json!([{"files": {"SKILL.md": good}}, {"files": {"SKILL.md": good}}]),
            "another skill has the name `a`",
        ),
    ] {
        let model = Arc::new(Reader::default());
        let built = builder(&model, &store).workflows(workflow(&skills).to_string()).build();
        let fault = built.expect_err("is refused").to_string();
        assert!(fault.contains(part), "{skills}: {fault}");
    }
}
