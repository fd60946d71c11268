//! USER_INTERACTION: questions to people, answered once, in any order.

use futures::executor::block_on;
use pirn::{AnswerRefused, Engine, EventType, Interaction, RunHandle, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{Ran, code, forked, line, node, run, say, wait, workflow};
use serde_json::{Value, json};

#[allow(clippy::needless_pass_by_value)] // `json!` makes values, a borrow at every call says nothing
fn question(id: &str, config: Value) -> Value {
    let mut whole = json!({"question": format!("{id}?")});
    whole
        .as_object_mut()
        .unwrap()
        .extend(config.as_object().unwrap().clone());
    node(id, "USER_INTERACTION", whole)
}

/// A run of a workflow that asks questions, on real threads.
struct Asking {
    _engine: Engine,
    run: RunHandle,
    events: pirn::BlockingEvents,
}

impl Asking {
    fn start(workflow: &Value, input: Value) -> Self {
        let engine = Engine::builder()
            .workflows(workflow.to_string())
            .build()
            .expect("an engine");
        let mut run = engine.run(workflow["id"].as_str().unwrap()).input(input);
        let events = run.blocking_events(&[], 1_000);
        Self {
            run: run.start().expect("a run"),
            _engine: engine,
            events,
        }
    }

    /// Waits for `count` questions and returns them, sorted by node.
    fn open_questions(&mut self, count: usize) -> Vec<Interaction> {
        let requested = self.events.by_ref().filter(|heard| match heard {
            SubscriptionItem::Event(event) => event.raised.event_type == EventType::InteractionRequested,
            SubscriptionItem::Lagged(_) => false,
        });
        assert_eq!(requested.take(count).count(), count);
        let mut open = block_on(self.run.interactions());
        open.sort_by(|a, b| a.node_id.cmp(&b.node_id));
        open
    }

    fn answer(&self, question: &Interaction, answer: Value) -> Result<(), AnswerRefused> {
        block_on(self.run.answer(&question.id, answer))
    }

    /// Returns the remaining events of interactions.
    fn rest(self) -> Vec<(EventType, Value)> {
        self.run.wait_all_ended_blocking();
        let heard = self.events.filter_map(|heard| match heard {
            SubscriptionItem::Event(event) if event.raised.event_type.as_str().starts_with("INTERACTION") => {
                Some((event.raised.event_type, event.raised.fields["nodeId"].clone()))
            }
            SubscriptionItem::Event(_) | SubscriptionItem::Lagged(_) => None,
        });
        heard.collect()
    }
}

#[test]
fn an_answer_is_the_nodes_output_and_a_variable() {
    let asks = line(
        "main",
        &[
            question(
                "sure",
                json!({"question": "Pay {{input.sum}}?", "assignee": "{{input.who}}", "assignTo": "paid"}),
            ),
            code("after", "return [output.answer, output.by, typeof output.at, paid]"),
        ],
    );
    let mut asking = Asking::start(&asks, json!({"sum": 7, "who": "ada"}));
    let open = asking.open_questions(1);
    let [sure] = &open[..] else { panic!("{open:?}") };
    assert_eq!((&*sure.question, sure.assignee.as_deref()), ("Pay 7?", Some("ada")));
    assert_eq!(block_on(asking.run.answer_by("bob", &sure.id, "yes")), Ok(()));
    let report = asking.run.outcome_blocking();
    assert_eq!(report.output, json!(["yes", "bob", "number", "yes"]));
    assert!(block_on(asking.run.interactions()).is_empty());
    assert_eq!(asking.answer(sure, json!("no")), Err(AnswerRefused::NotOpen));
    assert_eq!(asking.rest(), [(EventType::InteractionAnswered, json!("sure"))]);
}

#[test]
fn an_invalid_answer_is_refused_with_the_reason_and_the_question_stays_open() {
    let asks = line(
        "main",
        &[
            question("choice", json!({"choices": ["red", 7]})),
            question(
                "age",
                json!({"schema": {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer"}}}}),
            ),
        ],
    );
    let mut asking = Asking::start(&asks, Value::Null);
    let choice = asking.open_questions(1).remove(0);
    let refused = asking.answer(&choice, json!("blue")).expect_err("it is no choice");
    assert_eq!(refused.to_string(), "invalid answer: expected one of \"red\", 7");
    assert_eq!(asking.answer(&choice, json!(7)), Ok(()));
    let age = asking.open_questions(1).remove(0);
    for wrong in [json!({}), json!({"age": "old"}), json!(7)] {
        let refused = asking.answer(&age, wrong).expect_err("it is not what the schema says");
        assert!(matches!(refused, AnswerRefused::Invalid { .. }), "{refused}");
    }
    assert_eq!(asking.answer(&age, json!({"age": 36})), Ok(()));
    assert_eq!(asking.run.outcome_blocking().output["answer"], json!({"age": 36}));
}

#[test]
fn concurrent_questions_have_distinct_ids_and_accept_answers_in_any_order() {
    let mut asks = forked(
        &[vec![question("left", json!({}))], vec![question("right", json!({}))]],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    asks["id"] = json!("main");
    for order in [[0, 1], [1, 0]] {
        let mut asking = Asking::start(&asks, Value::Null);
        let open = asking.open_questions(2);
        assert_ne!(open[0].id, open[1].id);
        for place in order {
            assert_eq!(asking.answer(&open[place], json!(place)), Ok(()));
            assert_eq!(
                asking.answer(&open[place], json!(9)),
                Err(AnswerRefused::NotOpen),
                "answered once"
            );
        }
        let output = asking.run.outcome_blocking().output.clone();
        assert_eq!(
            (&output["outputs"]["p0"]["answer"], &output["outputs"]["p1"]["answer"]),
            (&json!(0), &json!(1))
        );
    }
}

#[test]
fn a_question_of_a_cancelled_thread_is_withdrawn() {
    let mut asks = forked(
        &[
            vec![question("lost", json!({"timeoutMs": 600_000}))],
            vec![question("won", json!({}))],
        ],
        false,
        &json!({"joinStrategy": "ANY_COMPLETED"}),
    );
    asks["id"] = json!("main");
    let mut asking = Asking::start(&asks, Value::Null);
    let open = asking.open_questions(2);
    assert_eq!(asking.answer(&open[1], json!("me")), Ok(()));
    assert_eq!(asking.run.outcome_blocking().status, ThreadStatus::Completed);
    asking.run.wait_all_ended_blocking();
    assert_eq!(asking.answer(&open[0], json!("late")), Err(AnswerRefused::NotOpen));
    let rest = asking.rest();
    let expected = [
        (EventType::InteractionAnswered, json!("won")),
        (EventType::InteractionWithdrawn, json!("lost")),
    ];
    assert_eq!(rest.len(), 2);
    assert!(expected.iter().all(|event| rest.contains(event)), "{rest:?}");
}

/// Runs a question that is never answered, under virtual time.
fn unanswered(config: Value) -> Ran {
    let nodes = [
        node("start", "START", json!({})),
        question("ask", config),
        code("answered", "return ['went on with', output.answer]"),
        code("unanswered", "return 'nobody came'"),
        node("end", "END", json!({})),
    ];
    run(
        &workflow("main", &nodes, &["start>ask>answered>end", "unanswered>end"]),
        Value::Null,
    )
}

#[test]
fn a_question_that_times_out_fails_uses_its_default_or_routes_to_another_node() {
    let elsewhere = json!({"targetNodeId": "unanswered"});
    let ran = unanswered(json!({"timeoutMs": 50, "onTimeout": elsewhere}));
    assert_eq!((&ran.report.output, ran.report.elapsed_ms), (&json!("nobody came"), 50));
    assert_eq!(ran.of(EventType::InteractionTimedOut).len(), 1);
    assert_eq!(ran.of(EventType::InteractionWithdrawn).len(), 0);
    // These workflows omit the node `unanswered`, which no edge would reach.
    let fails = |config: Value| run(&line("main", &[question("ask", config)]), Value::Null);
    let ran = fails(json!({"timeoutMs": 50}));
    assert_eq!((ran.code(), ran.report.elapsed_ms), ("NODE_TIMEOUT", 50));
    assert_eq!(ran.of(EventType::InteractionTimedOut).len(), 1);
    let ran = fails(json!({"timeoutMs": 50, "onTimeout": "default", "default": 3, "assignTo": "got"}));
    assert_eq!((ran.code(), &ran.report.output), ("", &json!({"answer": 3})));
    assert_eq!(ran.report.variables["got"], 3);
}

#[test]
fn a_cancelled_run_withdraws_its_questions() {
    let mut asking = Asking::start(&line("main", &[question("ask", json!({}))]), Value::Null);
    let ask = asking.open_questions(1).remove(0);
    asking.run.cancel("enough");
    assert_eq!(asking.run.outcome_blocking().status, ThreadStatus::Cancelled);
    assert_eq!(asking.answer(&ask, json!(1)), Err(AnswerRefused::NotOpen));
    assert_eq!(asking.rest(), [(EventType::InteractionWithdrawn, json!("ask"))]);
}

#[test]
fn an_invalid_question_is_reported_when_its_workflow_is_loaded() {
    for (config, place) in [
        (json!({"question": " "}), "question"),
        (json!({"choices": []}), "choices"),
        (json!({"assignTo": ""}), "assignTo"),
        (json!({"onTimeout": "fail"}), "onTimeout"),
        (json!({"timeoutMs": 5, "onTimeout": "default"}), "onTimeout"),
        (
            json!({"timeoutMs": 5, "onTimeout": "default", "default": 1, "choices": [2]}),
            "default",
        ),
        (json!({"default": 1}), "default"),
        (
            json!({"timeoutMs": 5, "onTimeout": {"targetNodeId": "nowhere"}}),
            "targetNodeId",
        ),
    ] {
        let workflow = line("main", &[question("ask", config.clone())]);
        let error = Engine::builder()
            .workflows(workflow.to_string())
            .build()
            .expect_err("it is faulty");
        let pirn::BuildError::Workflows(faults) = &error else {
            panic!("{error}")
        };
        assert!(
            faults.iter().any(|fault| fault.pointer.ends_with(place)),
            "{config}: {error}"
        );
    }
}

#[test]
fn a_conversation_continues_after_an_answer() {
    let asks = line(
        "main",
        &[
            say("before", "before"),
            question("ask", json!({})),
            say("after", "you said {{output.answer}}"),
            wait("pause", 1),
        ],
    );
    let mut asking = Asking::start(&asks, Value::Null);
    let ask = asking.open_questions(1).remove(0);
    assert_eq!(asking.answer(&ask, json!("hi")), Ok(()));
    let report = asking.run.outcome_blocking();
    let said: Vec<&str> = report
        .conversation
        .messages
        .iter()
        .map(|message| message.content.as_str())
        .collect();
    assert_eq!(said, ["before", "you said hi"]);
}
