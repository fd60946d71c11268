//! Runs of AG-UI clients that wait for people: interrupts, and the inputs that resume them.

use pirn::Engine;
use pirn_service::Options;
use serde_json::{Value, json};

use crate::chats::client_tools;
use crate::chats::front_ends::{agui, types};
use crate::command::{Served, folder};
use crate::world::{Events, World, access, answer};

/// The events of the AG-UI run that an input starts.
async fn events_of_input(url: &str, input: &Value) -> Vec<Value> {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let request = client.post(url).header("content-type", "application/json");
    let events = Events::open(request.body(input.to_string())).await;
    events.all().await.into_iter().map(|event| event.json).collect()
}

/// The events of the AG-UI run that answers interrupts of the thread.
async fn resume(world: &World, workflow: &str, answers: &Value) -> Vec<Value> {
    let input = json!({"threadId": "t1", "runId": "r2", "messages": [], "resume": answers});
    events_of_input(&world.url(&format!("/v1/agui/{workflow}")), &input).await
}

fn interrupts(events: &[Value]) -> Vec<Value> {
    let last = events.last().expect("an end");
    assert_eq!(
        (&last["type"], &last["outcome"]["type"]),
        (&json!("RUN_FINISHED"), &json!("interrupt")),
        "{events:?}"
    );
    let opened = events.iter().filter(|event| event["type"] == "STEP_STARTED").count();
    let closed = events.iter().filter(|event| event["type"] == "STEP_FINISHED").count();
    assert_eq!(opened, closed, "no step is left open: {events:?}");
    last["outcome"]["interrupts"].as_array().cloned().unwrap_or_default()
}

fn resolved(interrupt: &Value, payload: &Value) -> Value {
    json!({"interruptId": interrupt["id"], "status": "resolved", "payload": payload})
}

#[tokio::test]
async fn a_run_that_waits_for_a_person_ends_with_an_interrupt_and_the_next_input_answers_it_once() {
    let world = World::new().await;
    let asked = interrupts(&agui(&world, "asks").await);
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (&asked[0]["reason"], &asked[0]["message"], &asked[0]["responseSchema"]),
        (
            &json!("input_required"),
            &json!("Which?"),
            &json!({"enum": ["red", "blue"]})
        )
    );
    let wrong = resume(&world, "asks", &json!([resolved(&asked[0], &json!("green"))])).await;
    assert_eq!(types(&wrong), ["RUN_ERROR"]);
    assert_eq!(wrong[0]["code"], "INVALID_ANSWER");
    let answer = json!([resolved(&asked[0], &json!("blue"))]);
    let ended = resume(&world, "asks", &answer).await;
    assert_eq!(
        types(&ended),
        [
            "RUN_STARTED",
            "STEP_STARTED",
            "STEP_FINISHED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED"
        ],
        "what the first stream told is not told again"
    );
    let last = ended.last().expect("an end");
    assert_eq!(
        (&last["runId"], &last["result"]),
        (&json!("r2"), &json!(["blue", null]))
    );
    assert_eq!(
        resume(&world, "asks", &answer).await,
        ended,
        "the same answer again is none"
    );
    let late = resume(&world, "asks", &json!([resolved(&asked[0], &json!("red"))])).await;
    assert_eq!(late[0]["code"], "INTERACTION_CLOSED");
    for id in ["none", "no.such.0@1", "x@y"] {
        let unknown = resume(&world, "asks", &json!([{"interruptId": id, "status": "resolved"}])).await;
        assert_eq!(types(&unknown), ["RUN_ERROR"], "{id}");
    }
}

#[tokio::test]
async fn concurrent_questions_are_answered_by_one_input_and_a_cancelled_interrupt_cancels_the_run() {
    let world = World::new().await;
    let asked = interrupts(&agui(&world, "two-people").await);
    let mut messages: Vec<&str> = asked.iter().filter_map(|one| one["message"].as_str()).collect();
    messages.sort_unstable();
    assert_eq!(messages, ["Ada?", "Bob?"]);
    let yes: Vec<Value> = asked.iter().map(|one| resolved(one, &json!("yes"))).collect();
    for (answered, left) in [(0, 1), (1, 0)] {
        let refused = resume(&world, "two-people", &json!([yes[answered]])).await;
        assert_eq!(types(&refused), ["RUN_ERROR"]);
        assert_eq!(refused[0]["code"], "INTERRUPTS_OPEN");
        let message = refused[0]["message"].as_str().expect("a message");
        let names = |one: &Value| message.contains(one["id"].as_str().expect("an id"));
        assert!(names(&asked[left]) && !names(&asked[answered]), "{message}");
    }
    let ended = resume(&world, "two-people", &json!(yes)).await;
    assert_eq!(ended.last().expect("an end")["result"], "both");
    let again = resume(&world, "two-people", &json!(yes)).await;
    assert_eq!(
        again.last().expect("an end")["result"],
        "both",
        "the same answers again"
    );
    let asked = interrupts(&agui(&world, "asks").await);
    let ended = resume(
        &world,
        "asks",
        &json!([{"interruptId": asked[0]["id"], "status": "cancelled"}]),
    )
    .await;
    assert_eq!(ended.last().expect("an end")["outcome"], json!({"type": "cancelled"}));
}

#[tokio::test]
async fn a_thread_with_open_interrupts_accepts_only_their_answers() {
    let world = World::new().await;
    let asked = interrupts(&agui(&world, "asks").await);
    let id = asked[0]["id"].as_str().expect("an id");
    let refused = agui(&world, "asks").await;
    assert_eq!(types(&refused), ["RUN_ERROR"]);
    assert_eq!(refused[0]["code"], "INTERRUPTS_OPEN");
    let message = refused[0]["message"].as_str().expect("a message");
    assert!(message.contains(id) && message.contains("Which?"), "{message}");
    let runs = answer(world.get("/v1/runs?workflow=asks")).await.body;
    assert_eq!(
        runs["runs"].as_array().map(Vec::len),
        Some(1),
        "none was started: {runs}"
    );

    let input = |thread: &str, resume: Value| {
        let messages = json!([{"id": "m", "role": "user", "content": "x"}]);
        json!({"threadId": thread, "runId": "r9", "messages": messages, "resume": resume})
    };
    let elsewhere = input("t2", json!([resolved(&asked[0], &json!("red"))]));
    let refused = events_of_input(&world.url("/v1/agui/asks"), &elsewhere).await;
    assert_eq!(
        (types(&refused), &refused[0]["code"]),
        (vec!["RUN_ERROR"], &json!("INVALID_VALUE")),
        "answers come in the thread that was asked"
    );
    let other = events_of_input(&world.url("/v1/agui/asks"), &input("t2", json!([]))).await;
    assert_eq!(interrupts(&other).len(), 1, "another thread is free");
    assert_eq!(
        agui(&world, "echo").await.last().expect("an end")["type"],
        "RUN_FINISHED"
    );

    let answers = json!([resolved(&asked[0], &json!("red"))]);
    let ended = resume(&world, "asks", &answers).await;
    assert_eq!(ended.last().expect("an end")["result"], json!(["red", null]));
    assert_eq!(
        interrupts(&agui(&world, "asks").await).len(),
        1,
        "the thread is free again"
    );
}

#[tokio::test]
async fn an_answer_to_a_person_needs_the_role_and_a_result_of_the_clients_tool_does_not() {
    let options = Options {
        access: access(["runner roles=run", "person roles=run,answer"]),
        ..Options::default()
    };
    let world = World::of(Engine::builder().workflows(client_tools::WORKFLOWS), options).await;
    let user = json!({"id": "m", "role": "user", "content": "go"});
    let send = async |token: &str, workflow: &str, messages: Value, resume: Value| {
        let input = json!({"threadId": "t1", "runId": "r1", "messages": messages, "tools": client_tools::tools(), "resume": resume});
        let request = world.post(&format!("/v1/agui/{workflow}"), &input);
        let events = Events::open(request.header("authorization", format!("Bearer {token}"))).await;
        let events = events.all().await.into_iter().map(|event| event.json);
        events.collect::<Vec<_>>()
    };
    for (workflow, payload) in [("asks", json!("red")), ("careful", json!({"approved": true}))] {
        let asked = interrupts(&send("runner", workflow, json!([user]), json!([])).await);
        let answers = json!([resolved(&asked[0], &payload)]);
        let refused = send("runner", workflow, json!([]), answers.clone()).await;
        assert_eq!(
            (types(&refused), &refused[0]["code"]),
            (vec!["RUN_ERROR"], &json!("FORBIDDEN")),
            "{workflow}"
        );
        let ended = send("person", workflow, json!([]), answers).await;
        assert_eq!(ended.last().expect("an end")["type"], "RUN_FINISHED", "{ended:?}");
    }
    send("runner", "guide", json!([user]), json!([])).await;
    let result = json!({"id": "x1", "role": "tool", "toolCallId": "g1", "content": "Oslo"});
    let continued = send("runner", "guide", json!([user, result]), json!([])).await;
    assert!(types(&continued).contains(&"TOOL_CALL_START"), "{continued:?}");
}

#[tokio::test]
async fn the_expiry_of_an_interrupt_is_the_time_limit_of_its_question() {
    let world = World::new().await;
    let asked = interrupts(&agui(&world, "hurried").await);
    let id = asked[0]["metadata"]["pirn"]["interactionId"].as_str().expect("an id");
    let run = id.rsplitn(3, '.').nth(2).expect("a run");
    let mut events = Events::open(world.get(&format!("/v1/runs/{run}/events?types=INTERACTION_REQUESTED"))).await;
    let put = events.next().await.expect("the question").json["timestamp"].as_i64();
    let expires = asked[0]["expiresAt"].as_str().expect("a time");
    let at = chrono::DateTime::parse_from_rfc3339(expires).expect("ISO 8601");
    assert_eq!(put.map(|put| put + 3_600_000), Some(at.timestamp_millis()));
    assert!(expires.ends_with('Z'), "{expires}");
    let asked = interrupts(&agui(&world, "asks").await);
    assert!(asked[0].get("expiresAt").is_none(), "{asked:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn interrupts_survive_a_kill_of_the_service() {
    const ASKS: &str = r#"{"id": "asks", "nodes": [{"id": "s", "type": "START"},
            {"id": "q", "type": "USER_INTERACTION", "config": {"question": "Sure?", "timeoutMs": 3600000}},
            {"id": "e", "type": "END", "config": {"output": "output.answer"}}],
        "edges": [{"from": "s", "to": "q"}, {"from": "q", "to": "e"}]}"#;
    let folder = folder("interrupts");
    std::fs::write(folder.join("asks.json"), ASKS).expect("a file");
    let serve = || Served::start(&folder, &["asks.json", "--store", "runs.db", "--grace", "0"]);
    let input = |resume: Value| {
        let messages = json!([{"id": "m", "role": "user", "content": "go"}]);
        json!({"threadId": "t1", "runId": "r1", "messages": messages, "resume": resume})
    };
    let url = |served: &Served| format!("{}/v1/agui/asks", served.url);
    let mut first = serve();
    let asked = interrupts(&events_of_input(&url(&first), &input(json!([]))).await);
    first.kill();
    let second = serve();
    let refused = events_of_input(&url(&second), &input(json!([]))).await;
    assert_eq!(refused[0]["code"], "INTERRUPTS_OPEN", "{refused:?}");
    let ended = events_of_input(&url(&second), &input(json!([resolved(&asked[0], &json!("yes"))]))).await;
    assert_eq!(ended.last().expect("an end")["result"], "yes", "{ended:?}");
    let next = interrupts(&events_of_input(&url(&second), &input(json!([]))).await);
    assert!(
        next[0]["id"] != asked[0]["id"] && next[0]["expiresAt"].is_string(),
        "{next:?}"
    );
}

#[tokio::test]
async fn a_tool_call_that_needs_consent_is_an_interrupt_of_that_call() {
    let world = World::new().await;
    for (payload, result) in [
        (json!({"approved": true}), "paid 7"),
        (json!({"approved": true, "editedArgs": {"amount": 5}}), "paid 5"),
        (json!({"approved": false, "reason": "too much"}), "too much"),
    ] {
        let events = agui(&world, "careful").await;
        let asked = interrupts(&events);
        let called = events
            .iter()
            .find(|event| event["type"] == "TOOL_CALL_START")
            .expect("the call");
        assert_eq!(
            (&asked[0]["reason"], &asked[0]["toolCallId"]),
            (&json!("tool_call"), &called["toolCallId"])
        );
        let ended = resume(&world, "careful", &json!([resolved(&asked[0], &payload)])).await;
        assert!(!types(&ended).contains(&"TOOL_CALL_START"), "it was told before");
        let told = ended
            .iter()
            .find(|event| event["type"] == "TOOL_CALL_RESULT")
            .expect("a result");
        assert_eq!(told["toolCallId"], called["toolCallId"]);
        assert!(
            told["content"].as_str().is_some_and(|text| text.contains(result)),
            "{told}"
        );
        assert_eq!(ended.last().expect("an end")["result"], "done");
    }
}

#[tokio::test]
async fn a_workflow_that_a_model_wrote_is_shown_with_its_limits_before_it_runs() {
    let builder = Engine::builder().workflows(include_str!("../../../examples/dynamic/dynamic.json"));
    let world = World::of(builder, Options::default()).await;
    for is_approved in [true, false] {
        let asked = interrupts(&agui(&world, "planner").await).remove(0);
        let message = asked["message"].as_str().expect("a text");
        for part in ["up to 3 agents", "at most 120000 ms", "flowchart TD", "verdict<br/>LLM"] {
            assert!(message.contains(part), "{message}");
        }
        let payload = json!({"approved": is_approved, "reason": "no"});
        let ended = resume(&world, "planner", &json!([resolved(&asked, &payload)])).await;
        let agents = ended.iter().filter(|event| event["type"] == "STEP_STARTED");
        let verdicts = agents.filter(|event| event.to_string().contains("verdict")).count();
        assert_eq!(verdicts, usize::from(is_approved), "{ended:?}");
    }
}

#[tokio::test]
async fn a_continued_stream_ends_with_an_interrupt_after_all_events_before_the_question() {
    let ask = |id: &str| json!({"id": id, "type": "USER_INTERACTION", "config": {"question": id}});
    // More events than a stream reads at a time.
    let routes = json!([{"condition": "n < 40", "targetNodeId": "count"}]);
    let workflow = json!({"id": "counts", "variables": [{"name": "n", "value": 0}],
        "nodes": [{"id": "start", "type": "START"}, ask("first"),
                  {"id": "count", "type": "VARIABLE", "config": {"variableName": "n", "expression": "n + 1"}},
                  {"id": "again", "type": "ROUTE", "config": {"routes": routes, "defaultTargetNodeId": "second"}},
                  ask("second"), {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "first"}, {"from": "first", "to": "count"}, {"from": "count", "to": "again"},
                  {"from": "second", "to": "end"}]});
    let world = World::of(Engine::builder().workflows(workflow.to_string()), Options::default()).await;
    let asked = interrupts(&agui(&world, "counts").await);
    let answer = json!([resolved(&asked[0], &json!("yes"))]);
    let first = resume(&world, "counts", &answer).await;
    // The run waits already when the repeated input opens its stream.
    let again = resume(&world, "counts", &answer).await;
    for events in [&first, &again] {
        let counted = events
            .iter()
            .filter(|event| event["stepName"] == "count" && event["type"] == "STEP_FINISHED");
        assert_eq!(counted.count(), 40, "{events:?}");
        assert_eq!(interrupts(events)[0]["message"], "second");
    }
}
