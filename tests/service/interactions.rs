//! Questions to people, over HTTP.

use serde_json::json;

use crate::world::{Events, World, answer, refusal};

#[tokio::test]
async fn a_question_is_listed_until_it_is_answered_once() {
    let world = World::new().await;
    let started = answer(world.post("/v1/runs", &json!({"workflow": "asks", "runId": "r1"}))).await;
    assert_eq!(started.status, 201);
    let list = "/v1/runs/r1/interactions";
    let open = loop {
        let open = answer(world.get(list)).await.body;
        if open["interactions"] != json!([]) {
            break open["interactions"][0].clone();
        }
    };
    let id = open["id"].as_str().expect("an id").to_owned();
    assert_eq!(
        (&open["nodeId"], &open["question"]),
        (&json!("color"), &json!("Which?"))
    );
    assert_eq!(open["choices"], json!(["red", "blue"]));
    let path = format!("/v1/interactions/{id}");
    let wrong = answer(world.post(&path, &json!({"answer": "green"}))).await;
    assert_eq!(
        (wrong.status.as_u16(), &wrong.body["code"]),
        (422, &json!("INVALID_ANSWER"))
    );
    assert_eq!(wrong.body["pointer"], "/answer");
    let taken = answer(world.post(&path, &json!({"answer": "blue", "by": "ada"}))).await;
    assert_eq!((taken.status.as_u16(), taken.body), (200, json!({"ok": true})));
    assert_eq!(
        refusal(world.post(&path, &json!({"answer": "red"}))).await,
        (409, "INTERACTION_CLOSED".into())
    );
    let events = Events::open(world.get("/v1/runs/r1/events")).await.all().await;
    assert!(
        events
            .iter()
            .any(|event| event.json["output"] == json!(["blue", "ada"]))
    );
    assert_eq!(answer(world.get(list)).await.body, json!({"interactions": []}));
}

#[tokio::test]
async fn an_answer_without_an_open_question_is_refused() {
    let world = World::new().await;
    for id in ["none", "no.such.0", ".."] {
        let (status, _) = refusal(world.post(&format!("/v1/interactions/{id}"), &json!({"answer": 1}))).await;
        assert_eq!(status, 404, "{id}");
    }
}
