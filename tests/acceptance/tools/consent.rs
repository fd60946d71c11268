//! Consent to tool calls: questions of the run, answered once, in any order, also with changed arguments.

use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use pirn::tools::{Approval, ApprovalRequest, ToolOptions, ToolRegistry, Verdict, tool_fn};
use pirn::{
    AnswerRefused, Engine, EngineBuilder, EventType, Interaction, Role, RunHandle, SubscriptionItem, ThreadStatus,
};
use pirn_tests::world::{line, node};
use serde_json::{Value, json};

/// Arguments of every call that was made.
type Made = Arc<Mutex<Vec<Value>>>;

fn schema() -> Value {
    json!({
        "type": "object", "required": ["path"], "additionalProperties": false,
        "properties": {"path": {"type": "string", "minLength": 2}},
    })
}

/// Returns an engine with the tool `delete`. Its calls wait for consent or not, as `approval` requires, and it reports the
/// deleted path.
fn deletes(approval: Approval, approval_timeout: Option<u64>) -> (EngineBuilder, Made) {
    let made = Made::default();
    let hears = Arc::clone(&made);
    let delete = tool_fn("delete", "Deletes", schema(), move |given| {
        hears.lock().expect("no panic").push(given.clone());
        std::future::ready(Ok(format!("deleted {}", given["path"])))
    });
    let options = ToolOptions {
        approval,
        approval_timeout,
        ..ToolOptions::default()
    };
    let mut tools = ToolRegistry::new();
    tools.register_with(delete, options);
    (Engine::builder().virtual_time(Some(7)).tools(tools), made)
}

/// Returns a workflow whose model calls `delete` with each path in one reply and then replies `done`.
fn calling(paths: &[&str]) -> Value {
    let calls = paths.iter().enumerate();
    let calls: Vec<Value> = calls
        .map(|(at, path)| json!({"id": format!("c{at}"), "name": "delete", "arguments": {"path": path}}))
        .collect();
    let ask = node(
        "ask",
        "LLM",
        json!({"profileId": "script", "prompt": "go", "tools": ["delete"]}),
    );
    json!({
        "workflows": [line("main", &[ask])],
        "profiles": [{"id": "script", "provider": "scripted", "responses": [{"toolCalls": calls}, {"content": "done"}]}],
    })
}

/// Returns a workflow that makes such a call in a TOOL node.
fn without_a_model() -> Value {
    line(
        "main",
        &[node(
            "ask",
            "TOOL",
            json!({"tool": "delete", "arguments": {"path": "/a"}}),
        )],
    )
}

struct Asking {
    engine: Engine,
    run: RunHandle,
    events: pirn::BlockingEvents,
}

impl Asking {
    fn start(builder: EngineBuilder, bundle: &Value) -> Self {
        let engine = builder.workflows(bundle.to_string()).build().expect("builds");
        let mut run = engine.run("main");
        let events = run.blocking_events(&[], 1_000);
        let run = run.start().expect("starts");
        engine.wait_idle();
        Self { engine, run, events }
    }

    fn open(&self) -> Vec<Interaction> {
        block_on(self.run.interactions())
    }

    fn answer(&self, question: &Interaction, answer: Value) -> Result<(), AnswerRefused> {
        let taken = block_on(self.run.answer(&question.id, answer));
        self.engine.wait_idle();
        taken
    }

    /// Returns the results of the calls as the model received them.
    fn tool_results(&self) -> Vec<String> {
        let report = self.run.outcome_blocking();
        assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
        let messages = report.conversation.messages.iter();
        let results = messages.filter(|message| message.role == Role::Tool);
        results.map(|message| message.content.as_str().to_owned()).collect()
    }

    /// Returns the events of interactions and tool calls, each with the answer of its interaction.
    fn events(self) -> Vec<(EventType, Value)> {
        self.run.wait_all_ended_blocking();
        self.engine.shutdown_blocking(std::time::Duration::from_secs(5));
        let events = self.events.map(|heard| match heard {
            SubscriptionItem::Event(event) => event,
            SubscriptionItem::Lagged(count) => panic!("{count} events were missed"),
        });
        let wanted = events.filter(|event| {
            let name = event.raised.event_type.as_str();
            name.starts_with("INTERACTION") || name.starts_with("TOOL_CALL")
        });
        wanted
            .map(|event| {
                (
                    event.raised.event_type,
                    event.raised.fields.get("answer").cloned().unwrap_or_default(),
                )
            })
            .collect()
    }
}

#[test]
fn calls_that_need_consent_raise_their_questions_together_and_accept_answers_in_any_order() {
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]] {
        let (builder, made) = deletes(Approval::Ask, None);
        let asking = Asking::start(builder, &calling(&["/a", "/b", "/c"]));
        let open = asking.open();
        let calls: Vec<_> = open
            .iter()
            .map(|question| {
                let call = question.tool.as_ref().expect("is about a call");
                assert_eq!((&*call.name, &*question.node_id), ("delete", "ask"));
                assert_eq!((&call.schema, call.reason.is_empty()), (&schema(), false));
                (call.tool_call_id.as_str(), &call.arguments["path"])
            })
            .collect();
        assert_eq!(
            calls,
            [("c0", &json!("/a")), ("c1", &json!("/b")), ("c2", &json!("/c"))]
        );
        assert_eq!(
            *made.lock().expect("no panic"),
            [Value::Null; 0],
            "nothing runs unasked"
        );
        let answers = [
            json!("allow"),
            json!({"decision": "refuse", "reason": "not that one"}),
            json!("refuse"),
        ];
        for place in order {
            assert_eq!(asking.answer(&open[place], answers[place].clone()), Ok(()));
            assert_eq!(
                asking.answer(&open[place], json!("allow")),
                Err(AnswerRefused::NotOpen),
                "one that was answered is not asked again"
            );
        }
        assert_eq!(
            asking.tool_results(),
            [
                "deleted \"/a\"",
                "the call of `delete` was refused: not that one",
                "the call of `delete` was refused: a person refused it"
            ]
        );
        assert_eq!(*made.lock().expect("no panic"), [json!({"path": "/a"})]);
    }
}

#[test]
fn changed_arguments_must_fit_the_tools_schema_and_an_invalid_answer_does_not_close_the_question() {
    let (builder, made) = deletes(Approval::Ask, None);
    let asking = Asking::start(builder, &calling(&["/a"]));
    let question = asking.open().remove(0);
    for (wrong, reason) in [
        (json!("maybe"), "expected \"allow\""),
        (json!({"decision": "allow", "because": 1}), "expected \"allow\""),
        (json!({"decision": "allow", "arguments": {}}), "\"path\""),
        (json!({"decision": "allow", "arguments": {"path": "/"}}), "at /path"),
        (json!({"decision": "allow", "arguments": "rm"}), "\"object\""),
    ] {
        let refused = asking.answer(&question, wrong.clone()).expect_err("it is wrong");
        assert_eq!(refused.code(), "INVALID_ANSWER");
        assert!(refused.to_string().contains(reason), "{wrong}: {refused}");
        assert_eq!(asking.open().len(), 1, "{wrong}: it stays open");
    }
    let edited = json!({"decision": "allow", "arguments": {"path": "/b"}});
    assert_eq!(asking.answer(&question, edited.clone()), Ok(()));
    assert_eq!(*made.lock().expect("no panic"), [json!({"path": "/b"})]);
    assert_eq!(
        asking.tool_results(),
        ["(A person changed the arguments to {\"path\":\"/b\"}.)\ndeleted \"/b\""],
        "the model is told what was done"
    );
    assert_eq!(
        asking.events(),
        [
            (EventType::ToolCallStarted, Value::Null),
            (EventType::InteractionRequested, Value::Null),
            (EventType::InteractionAnswered, edited),
            (EventType::ToolCallCompleted, Value::Null),
        ]
    );
}

#[test]
fn a_call_without_an_answer_within_the_time_limit_is_refused() {
    let (builder, made) = deletes(Approval::Ask, Some(50));
    let asking = Asking::start(builder, &calling(&["/a"]));
    assert_eq!(asking.open(), [], "the clock went on to the end of its time");
    assert_eq!(
        asking.tool_results(),
        ["the call of `delete` was refused: no answer within 50 ms"]
    );
    assert_eq!(asking.run.outcome_blocking().elapsed_ms, 50);
    assert_eq!(*made.lock().expect("no panic"), [Value::Null; 0]);
    let kinds: Vec<EventType> = asking.events().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(
        kinds,
        [
            EventType::ToolCallStarted,
            EventType::InteractionRequested,
            EventType::InteractionTimedOut,
            EventType::ToolCallFailed
        ]
    );
}

#[test]
fn a_cancelled_run_withdraws_its_consent_questions_and_makes_no_call() {
    for (bundle, count) in [(calling(&["/a", "/b"]), 2), (without_a_model(), 1)] {
        let (builder, made) = deletes(Approval::Ask, None);
        let asking = Asking::start(builder, &bundle);
        let open = asking.open();
        assert_eq!(open.len(), count);
        asking.run.cancel("enough");
        asking.engine.wait_idle();
        assert_eq!(asking.run.outcome_blocking().status, ThreadStatus::Cancelled);
        assert_eq!(asking.answer(&open[0], json!("allow")), Err(AnswerRefused::NotOpen));
        assert_eq!(*made.lock().expect("no panic"), [Value::Null; 0]);
        let events = asking.events();
        let withdrawn = events
            .iter()
            .filter(|(kind, _)| *kind == EventType::InteractionWithdrawn);
        assert_eq!(withdrawn.count(), count, "{events:?}");
    }
}

#[test]
fn a_tool_node_also_needs_consent_and_a_refusal_fails_the_node() {
    for (answer, output, code) in [
        (json!("allow"), json!("deleted \"/a\""), None),
        (
            json!({"decision": "allow", "arguments": {"path": "/b"}}),
            json!("deleted \"/b\""),
            None,
        ),
        (json!("refuse"), Value::Null, Some("TOOL_ERROR")),
    ] {
        let (builder, _) = deletes(Approval::Ask, None);
        let asking = Asking::start(builder, &without_a_model());
        let question = asking.open().remove(0);
        assert_eq!(asking.answer(&question, answer), Ok(()));
        let report = asking.run.outcome_blocking();
        let error = report.error.as_ref().map(|error| error.code.as_str());
        assert_eq!((&report.output, error), (&output, code));
    }
}

#[test]
fn an_approval_function_may_request_consent_and_may_refuse_a_call_that_a_person_allowed() {
    let decide = |request: &ApprovalRequest| match request.arguments["path"].as_str() {
        Some("/free") => Verdict::Allow,
        Some("/etc") => Verdict::Refuse("never".to_owned()),
        _other => Verdict::Ask("it is outside of /free".to_owned()),
    };
    let (builder, made) = deletes(Approval::Never, None);
    let asking = Asking::start(builder.approve_tools(decide), &calling(&["/free", "/a", "/b", "/etc"]));
    let open = asking.open();
    let reasons: Vec<_> = open
        .iter()
        .map(|question| question.tool.as_ref().expect("a call").reason.as_str())
        .collect();
    assert_eq!(reasons, ["it is outside of /free"; 2]);
    assert_eq!(asking.answer(&open[0], json!("allow")), Ok(()));
    let edited = json!({"decision": "allow", "arguments": {"path": "/etc"}});
    assert_eq!(asking.answer(&open[1], edited), Ok(()));
    assert_eq!(
        *made.lock().expect("no panic"),
        [json!({"path": "/free"}), json!({"path": "/a"})]
    );
    let told = asking.tool_results();
    assert_eq!(told[1], "deleted \"/a\"");
    assert!(told[2].ends_with("was refused: never"), "{}", told[2]);
    assert!(told[3].ends_with("was refused: never"), "{}", told[3]);
}

#[test]
fn the_event_of_a_consent_question_has_the_call_as_listed_in_open_interactions() {
    let (builder, made) = deletes(Approval::Ask, None);
    let engine = builder.workflows(calling(&["/a"]).to_string()).build().expect("builds");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&seen);
    let give = move |question: &Interaction| {
        list.lock().expect("no panic").push(question.clone());
        None
    };
    let run = engine.run("main").answers(give, |_, refused| panic!("{refused}"));
    let run = run.start().expect("starts");
    engine.wait_idle();
    let open = block_on(run.interactions());
    assert_eq!(*seen.lock().expect("no panic"), open);
    assert_eq!(open.len(), 1);
    drop(made);
}
