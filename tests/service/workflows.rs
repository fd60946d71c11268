//! The workflows that can be started.

use std::collections::BTreeMap;

use pirn::Engine;
use pirn::check::{SourceFile, World as Checked, check};
use pirn_service::Options;
use serde_json::json;

use crate::world::{World, answer, refusal};

#[tokio::test]
async fn a_profile_that_replaces_a_built_in_one_is_listed_once() {
    let bundle = r#"{"profiles": [{"id": "echo", "provider": "echo"}]}"#;
    let world = World::of(Engine::builder().workflows(bundle), Options::default()).await;
    let info = answer(world.get("/v1/info")).await.body;
    let profiles = info["profiles"].as_array().expect("profiles");
    assert_eq!(profiles.iter().filter(|id| **id == "echo").count(), 1, "{info}");
}

#[tokio::test]
async fn a_listed_workflow_has_its_description_and_input_schema() {
    let world = World::new().await;
    let all = answer(world.get("/v1/workflows")).await.body;
    let ids: Vec<&str> = all["workflows"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["id"].as_str())
        .collect();
    assert_eq!(
        ids,
        [
            "asks",
            "broken",
            "careful",
            "chat",
            "echo",
            "gated",
            "hurried",
            "paid",
            "steps",
            "talks-then-waits",
            "two-people",
            "two-voices",
            "whose"
        ]
    );
    let echo = answer(world.get("/v1/workflows/echo")).await.body;
    assert_eq!(
        echo,
        json!({
            "id": "echo", "name": "Echo", "description": "Gives its input back.",
            "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "nodes": [{"nodeId": "start", "type": "START"}, {"nodeId": "end", "type": "END"}],
        })
    );
    assert_eq!(
        refusal(world.get("/v1/workflows/nope")).await,
        (404, "UNKNOWN_WORKFLOW".into())
    );
}

#[tokio::test]
async fn a_workflow_removed_from_the_offer_starts_no_run() {
    let world = World::new().await;
    world
        .service
        .publish(&BTreeMap::from([("gated".to_owned(), Vec::new())]))
        .expect("nothing is wrong");
    let refused = world.post("/v1/runs", &json!({"workflow": "echo"}));
    assert_eq!(refusal(refused).await, (404, "UNKNOWN_WORKFLOW".into()));
}

#[tokio::test]
async fn a_workflow_has_the_warnings_of_its_part_of_the_file_with_their_lines() {
    let text = "[\n{\"id\": \"echo\", \"nodes\": [{\"id\": \"s\", \"type\": \"START\"}, {\"id\": \"e\", \"type\": \"END\"}],\n\"edges\": [{\"from\": \"s\", \"to\": \"e\"}]},\n\
                {\"id\": \"chat\", \"nodes\": [{\"id\": \"s\", \"type\": \"START\"},\n{\"id\": \"ask\", \"type\": \"LLM\", \"config\": {\"prompt\": \"hi\", \"profileId\": \"smart\"}},\n\
                {\"id\": \"e\", \"type\": \"END\"}], \"edges\": [{\"from\": \"s\", \"to\": \"ask\"}, {\"from\": \"ask\", \"to\": \"e\"}]}\n]";
    let checked = check(&[SourceFile::new("two.json", text)], &Checked::default());
    assert_eq!(checked.faults(), []);
    let world = World::new().await;
    world
        .service
        .publish(&checked.warnings_by_workflow())
        .expect("nothing is wrong");
    let chat = answer(world.get("/v1/workflows/chat")).await.body;
    let lines: Vec<_> = chat["warnings"]
        .as_array()
        .expect("warnings")
        .iter()
        .map(|warning| (&warning["file"], &warning["line"]))
        .collect();
    assert_eq!(lines, [(&json!("two.json"), &json!(5))], "{chat}");
    let echo = answer(world.get("/v1/workflows/echo")).await.body;
    assert_eq!(echo["warnings"], json!(null));
}
