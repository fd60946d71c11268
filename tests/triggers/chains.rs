//! SPEC section 5: a chain of triggers has a depth limit of 8. Every event has the depth of its cause, from whichever actor
//! it is raised, so a trigger that causes its own event ends in an error event and not in an endless cascade.

use std::sync::Arc;
use std::time::Duration;

use pirn::tools::tool_fn;
use pirn::{Engine, EventFilter, EventType, RunReport, SubscriptionItem, ThreadStatus};
use pirn_events::event::Event;
use pirn_tests::world::{code, forked, line, node, say, wait, workflow};
use serde_json::{Value, json};

/// SPEC's limit.
const LIMIT: u32 = 8;

/// Bound on the firings of an endless chain, far above what a chain of eight needs.
const STORM: u64 = 60;

/// An event type, and workflows and triggers in which an action causes it again.
struct Chain {
    event: EventType,
    workflows: Vec<Value>,
    triggers: Vec<Value>,
    /// Depth of the last event: two triggers that alternate may end one before the limit.
    deepest: u32,
}

fn trigger(event: EventType, action: &Value) -> Value {
    json!({"id": event.as_str(), "type": "EVENT", "condition": {"eventType": event}, "action": action,
        "maxTriggers": STORM})
}

fn execute(workflow: &str) -> Value {
    json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": workflow}})
}

fn start(workflow: &str) -> Value {
    json!({"type": "START_WORKFLOW", "parameters": {"workflowId": workflow}})
}

/// The token events, and configs by which about four hundred letters raise them.
fn token_events() -> [(EventType, Value); 3] {
    [
        (EventType::TokenLimitExceeded, json!({"tokenLimit": 50})),
        (EventType::TokenUsageWarning, json!({"tokenLimit": 150})),
        (
            EventType::TokenLimitApproached,
            json!({"tokenLimit": 200, "compression": {"speculativeAt": 0.4}}),
        ),
    ]
}

/// A triggered sub-workflow of nodes in a row.
fn sub(id: &str, nodes: &[Value], end: &Value) -> Value {
    let mut all = vec![node("s", "START_FROM_TRIGGER", json!({}))];
    all.extend(nodes.iter().cloned());
    all.push(node("c", "CONTINUE_FROM_TRIGGER", end.clone()));
    let way: Vec<&str> = all.iter().filter_map(|node| node["id"].as_str()).collect();
    workflow(id, &all, &[&way.join(">")])
}

/// A chain by a sub-workflow: main thread and sub-workflow both pass `nodes`, which raise the event.
fn by_its_child(event: EventType, nodes: &[Value]) -> Chain {
    let mut main = nodes.to_vec();
    main.push(wait("rest", 1_000));
    Chain {
        event,
        workflows: vec![
            line("main", &main),
            sub("sub", nodes, &json!({})),
            line("called", &[code("x", "return 1")]),
        ],
        triggers: vec![trigger(event, &execute("sub"))],
        deepest: LIMIT,
    }
}

/// Like [`by_its_child`], with an action that starts the workflow as a new run.
fn by_a_new_run(event: EventType, main: Value) -> Chain {
    Chain {
        event,
        workflows: vec![main],
        triggers: vec![trigger(event, &start("main"))],
        deepest: LIMIT,
    }
}

/// A chain by effects on the main thread: `first` triggers a sub-workflow, and its effect on the main thread triggers it again.
fn chain_by_effects_on_main(event: EventType, first: &Value, nodes: &[Value], end: &Value) -> Chain {
    let once = json!({"id": "once", "type": "EVENT", "action": execute("sub"),
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'first'"}});
    // Results are merged at safe points, so `main` needs more nodes than the chain has links.
    let mut main = vec![first.clone()];
    main.extend((0..2 * LIMIT).map(|place| wait(&format!("rest{place}"), 1_000)));
    Chain {
        event,
        workflows: vec![line("main", &main), sub("sub", nodes, end)],
        triggers: vec![once, trigger(event, &execute("sub"))],
        deepest: LIMIT,
    }
}

fn ask(profile: &str) -> Value {
    node(
        "ask",
        "LLM",
        json!({"profileId": profile, "prompt": "go", "tools": ["works", "fails"]}),
    )
}

/// A node that fails and whose `onError` continues at `after`.
fn fails(id: &str, kind: &str, mut config: Value) -> Value {
    config["onError"] = json!({ "targetNodeId": "after" });
    let mut node = node(id, kind, config);
    let on_error = node["config"]
        .as_object_mut()
        .and_then(|config| config.remove("onError"));
    node["onError"] = on_error.unwrap_or_default();
    node
}

fn broken() -> Vec<Value> {
    vec![
        fails("boom", "CODE", json!({"code": "throw 1"})),
        code("after", "return 1"),
    ]
}

fn a_fork(id: &str) -> Value {
    let mut forked = forked(
        &[vec![code("a", "return 1")], vec![code("b", "return 2")]],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    forked["id"] = json!(id);
    forked
}

fn chains() -> Vec<Chain> {
    use EventType as E;
    let called = node("call", "SUBGRAPH", json!({"subgraphId": "called"}));
    let question = json!({"question": "Who?", "timeoutMs": 1, "onTimeout": "default", "default": "nobody"});
    let unanswered = node("ask", "USER_INTERACTION", question);
    let summary = json!({"operation": "compress", "strategy": "summarize", "parameters": {"profileId": "broken", "keepRecent": 1}});
    let unsummarized = || {
        let words = "many words ".repeat(20);
        let turns = ["user", "assistant"].map(|role| json!({"role": role, "content": words}));
        let turns: Vec<Value> = turns.iter().cycle().take(8).cloned().collect();
        let mut nodes = vec![node(
            "turns",
            "CONTEXT_PROCESSOR",
            json!({"operation": "insert", "messages": turns}),
        )];
        nodes.push(fails("boom", "CONTEXT_PROCESSOR", summary.clone()));
        nodes.push(code("after", "return 1"));
        nodes
    };
    let compress = node(
        "compress",
        "CONTEXT_PROCESSOR",
        json!({"operation": "compress", "strategy": "keep_recent", "parameters": {"count": 2}}),
    );
    let count = node("v", "VARIABLE", json!({"variableName": "n", "expression": "1"}));
    let orphan = node(
        "orphan",
        "CONTEXT_PROCESSOR",
        json!({"operation": "insert", "messages": [{"role": "tool", "content": "whose?"}]}),
    );
    let first = code("first", "return 1");
    let mut list = vec![
        by_its_child(E::NodeStarted, &[code("x", "return 1")]),
        by_its_child(E::NodeCompleted, &[code("x", "return 1")]),
        by_its_child(E::NodeFailed, &broken()),
        by_its_child(E::ThreadStarted, &[code("x", "return 1")]),
        by_its_child(E::MessageAdded, &[say("say", "hello")]),
        by_its_child(E::RequestPrepared, &[ask("main")]),
        by_its_child(E::RequestRepaired, &[orphan, ask("main")]),
        by_its_child(E::LlmToken, &[ask("main")]),
        by_its_child(E::ToolCallStarted, &[ask("tools")]),
        by_its_child(E::ToolCallCompleted, &[ask("tools")]),
        by_its_child(E::ToolCallFailed, &[ask("tools")]),
        by_its_child(E::CompressionCompleted, &[say("say", "hello"), compress]),
        by_its_child(E::CompressionFailed, &unsummarized()),
        by_its_child(E::SubgraphStarted, std::slice::from_ref(&called)),
        by_its_child(E::SubgraphCompleted, &[called]),
        by_its_child(E::VariableChanged, std::slice::from_ref(&count)),
        by_its_child(E::InteractionRequested, std::slice::from_ref(&unanswered)),
        by_its_child(E::InteractionTimedOut, &[unanswered]),
        by_its_child(E::ScriptLog, &[code("x", "console.log(1)")]),
        by_a_new_run(E::ThreadCompleted, line("main", &[code("x", "return 1")])),
        by_a_new_run(E::ThreadFailed, line("main", &[code("x", "throw 1")])),
        by_a_new_run(E::ThreadForkStarted, a_fork("main")),
        by_a_new_run(E::ThreadForkCompleted, a_fork("main")),
        by_a_new_run(E::ThreadJoinStarted, a_fork("main")),
        by_a_new_run(E::ThreadJoinConditionMet, a_fork("main")),
        chain_by_effects_on_main(
            E::VariableChanged,
            &first,
            &[count],
            &json!({"variableCallback": {"includeAll": true}}),
        ),
        chain_by_effects_on_main(
            E::MessageAdded,
            &first,
            &[],
            &json!({"conversationHistoryCallback": {"lastN": 1}}),
        ),
        chain_by_effects_on_main(E::TriggeredSubgraphCompleted, &first, &[], &json!({})),
        chain_by_effects_on_main(E::TriggeredSubgraphFailed, &first, &[code("x", "throw 1")], &json!({})),
    ];
    // The callback of MESSAGE_ADDED needs a message to return.
    for chain in &mut list {
        if chain.event == E::MessageAdded && chain.triggers.len() == 2 {
            chain.workflows[1] = sub(
                "sub",
                &[say("say", "hello")],
                &json!({"conversationHistoryCallback": {"lastN": 1}}),
            );
        }
    }
    // A sub-workflow coalesces with one of its trigger that is still running, a new run does not.
    let mut started = chain_by_effects_on_main(E::TriggeredSubgraphStarted, &first, &[], &json!({}));
    started.triggers[1] = trigger(E::TriggeredSubgraphStarted, &start("main"));
    started.deepest = LIMIT - 1;
    list.push(started);
    let stop = json!({"id": "stop", "type": "EVENT", "action": {"type": "STOP_THREAD", "parameters": {}},
        "condition": {"eventType": "NODE_STARTED", "expression": "event.nodeId === 'rest'"}});
    let mut cancelled = by_a_new_run(E::ThreadCancelled, line("main", &[wait("rest", 1_000)]));
    cancelled.triggers.push(stop);
    cancelled.deepest = LIMIT - 1;
    list.push(cancelled);
    for (event, config) in token_events() {
        let again = json!({"id": "again", "type": "EVENT", "action": start("main"),
            "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'x'"}});
        let long = say("say", &"many words ".repeat(40));
        let mut limited = line("main", &[long, ask("main"), wait("rest", 1_000)]);
        limited["config"] = config;
        list.push(Chain {
            event,
            workflows: vec![limited, line("between", &[code("x", "return 1")])],
            triggers: vec![trigger(event, &start("between")), again],
            deepest: LIMIT,
        });
    }
    let mut warned = line("main", &[ask("main")]);
    warned["config"] = json!({"budget": {"modelCalls": 1}});
    list.push(by_a_new_run(E::BudgetWarning, warned));
    let asks = json!({"profileId": "long", "prompt": "go", "tools": ["long"]});
    let mut kept = line("main", &[node("ask", "LLM", asks)]);
    // Only one of two results fits, so one is dropped.
    kept["config"] = json!({"artifactTokens": 200, "maxArtifactBytes": 6_000});
    list.push(by_a_new_run(E::ArtifactDropped, kept.clone()));
    kept["config"] = json!({"artifactTokens": 200});
    let mut large = by_a_new_run(E::ArtifactKept, kept);
    // A run raises two of these events, and only one may fire the trigger.
    large.triggers[0]["condition"]["expression"] = json!("event.toolCallId === 'a'");
    list.push(large);
    let told = json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "again"}});
    let once = json!({"id": "once", "type": "EVENT", "action": told,
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'first'"}});
    list.push(Chain {
        event: E::Notification,
        workflows: vec![line("main", std::slice::from_ref(&first))],
        triggers: vec![once, trigger(E::Notification, &told)],
        deepest: LIMIT,
    });
    list
}

fn play(chain: &Chain) -> (Arc<RunReport>, Vec<Arc<Event>>) {
    let calls = json!([
        {"id": "1", "name": "works", "arguments": {}}, {"id": "2", "name": "fails", "arguments": {}}]);
    let long =
        json!([{"id": "a", "name": "long", "arguments": {}}, {"id": "b", "name": "long", "arguments": {"n": 1}}]);
    let profiles = json!([
        {"id": "main", "provider": "echo"},
        {"id": "tools", "provider": "scripted", "responses": [{"toolCalls": calls}, {"content": "done"}]},
        {"id": "long", "provider": "scripted", "responses": [{"toolCalls": long}, {"content": "done"}]},
        {"id": "broken", "provider": "scripted", "responses": [{"error": "no"}]},
    ]);
    let bundle = json!({"workflows": chain.workflows, "triggers": chain.triggers, "profiles": profiles});
    let tool = |name: &str, said: Result<&'static str, &'static str>| {
        tool_fn(name, "For this test", json!({"type": "object"}), move |_| async move {
            said.map(str::to_owned).map_err(str::to_owned)
        })
    };
    let engine = Engine::builder()
        .virtual_time(Some(7))
        .tool(tool("works", Ok("yes")))
        .tool(tool("fails", Err("no")))
        .tool(tool_fn(
            "long",
            "For this test",
            json!({"type": "object"}),
            |arguments| async move { Ok(format!("{arguments} {}", "many words ".repeat(400))) },
        ))
        .workflows(bundle.to_string())
        .build()
        .unwrap_or_else(|error| panic!("{}: {error}", chain.event.as_str()));
    let mut events = engine.events(EventFilter::default(), 1 << 16);
    let handle = engine
        .start("main", Value::Null)
        .unwrap_or_else(|error| panic!("{}: {error}", chain.event.as_str()));
    let report = handle.outcome_blocking();
    handle.wait_all_ended_blocking();
    let shutdown = engine.shutdown_blocking(Duration::from_secs(5));
    assert_eq!(
        (shutdown.runs_cancelled, shutdown.runs_left),
        (0, 0),
        "{}",
        chain.event.as_str()
    );
    let mut heard = Vec::new();
    while let Some(next) = futures::executor::block_on(events.next()) {
        match next {
            SubscriptionItem::Event(event) => heard.push(event),
            SubscriptionItem::Lagged(count) => panic!("{}: {count} events were missed", chain.event.as_str()),
        }
    }
    (report, heard)
}

#[test]
fn a_trigger_chain_ends_at_the_limit_for_every_event_type() {
    for chain in chains() {
        let name = chain.event.as_str();
        let (report, events) = play(&chain);
        assert!(report.status.is_final(), "{name}");
        let of = |event_type: EventType| events.iter().filter(move |event| event.raised.event_type == event_type);
        let deepest = of(chain.event).map(|event| event.raised.trigger_depth).max();
        assert_eq!(deepest, Some(chain.deepest), "{name}: so long is the chain");
        let too_deep: Vec<&Arc<Event>> = of(EventType::TriggerFailed)
            .filter(|event| event.raised.fields["error"]["message"] == "the chain of triggers is too deep")
            .collect();
        assert!(!too_deep.is_empty(), "{name}: an error event says that it ended");
        for event in &events {
            let depth = event.raised.trigger_depth;
            let is_told = event.raised.event_type == EventType::TriggerFailed;
            assert!(depth <= LIMIT + u32::from(is_told), "{name}: {event:?}");
        }
    }
}

#[test]
fn every_event_type_has_a_chain_test_or_a_reason_for_none() {
    use EventType as E;
    let elsewhere = [
        (E::ThreadPaused, "alternating_pause_and_resume_end_at_the_limit"),
        (E::ThreadResumed, "alternating_pause_and_resume_end_at_the_limit"),
        (
            E::TriggerFailed,
            "a_failing_trigger_on_trigger_failed_fires_up_to_the_limit",
        ),
        (E::CheckpointCreated, "nothing raises it"),
        (E::InteractionAnswered, "a person raises it"),
        (E::UserMessage, "a person raises it"),
        (
            E::InteractionWithdrawn,
            "it follows from a cancel, as THREAD_CANCELLED does",
        ),
        (E::ScheduleDue, "no run raises it: the clock is no link of a chain"),
        (E::BudgetOverrun, "it comes of a reply's usage, as BUDGET_WARNING does"),
        (
            E::CacheCollapsed,
            "it follows from the reply of a provider, as BUDGET_WARNING does",
        ),
        (E::EffectInDoubt, "a run raises it once, when it goes on after a crash"),
        (
            E::Custom,
            "a_function_that_raises_the_event_it_is_called_for_ends_at_the_limit",
        ),
        (
            E::EventDropped,
            "a_function_that_raises_events_until_they_are_dropped_ends_at_the_limit",
        ),
    ];
    let list = chains();
    for event_type in E::ALL {
        let has_chain = list.iter().any(|chain| chain.event == *event_type);
        let is_elsewhere = elsewhere.iter().any(|(other, _)| other == event_type);
        assert!(has_chain != is_elsewhere, "{}", event_type.as_str());
    }
}

#[test]
fn alternating_pause_and_resume_end_at_the_limit() {
    let waits: Vec<Value> = (0..20).map(|place| wait(&format!("w{place}"), 10)).collect();
    let pause = json!({"type": "PAUSE_THREAD", "parameters": {}});
    let resume = json!({"type": "RESUME_THREAD", "parameters": {}});
    let chain = Chain {
        event: EventType::ThreadResumed,
        workflows: vec![line("main", &waits)],
        triggers: vec![
            trigger(EventType::ThreadPaused, &resume),
            trigger(EventType::ThreadResumed, &pause),
            json!({"id": "once", "type": "EVENT", "action": pause,
                "condition": {"eventType": "NODE_STARTED", "expression": "event.nodeId === 'w0'"}}),
        ],
        deepest: LIMIT,
    };
    let (report, events) = play(&chain);
    assert_eq!(report.error, None);
    let depths = |event_type: EventType| -> Vec<u32> {
        let of = events.iter().filter(|event| event.raised.event_type == event_type);
        of.map(|event| event.raised.trigger_depth).collect()
    };
    assert_eq!(depths(EventType::ThreadPaused), [1, 3, 5, 7]);
    assert_eq!(depths(EventType::ThreadResumed), [2, 4, 6, 8]);
    assert_eq!(
        depths(EventType::TriggerFailed),
        [9],
        "the ninth link is refused, and the run ends"
    );
}

#[test]
fn a_thread_with_a_refused_resume_stays_paused_and_can_be_resumed_from_outside() {
    let waits: Vec<Value> = (0..20).map(|place| wait(&format!("w{place}"), 10)).collect();
    let pause = json!({"type": "PAUSE_THREAD", "parameters": {}});
    let resume = json!({"type": "RESUME_THREAD", "parameters": {}});
    // One link before the first pause, so that the last link allowed is a pause.
    let set = json!({"id": "set", "type": "EVENT", "condition": {"eventType": "NODE_STARTED", "expression": "event.nodeId === 'w0'"},
        "action": {"type": "SET_VARIABLE", "parameters": {"variableName": "x", "value": 1, "scope": "global"}}});
    let mut once = trigger(EventType::VariableChanged, &pause);
    once["maxTriggers"] = json!(1);
    let triggers = [
        set,
        once,
        trigger(EventType::ThreadPaused, &resume),
        trigger(EventType::ThreadResumed, &pause),
    ];
    let bundle = json!({"workflows": [line("main", &waits)], "triggers": triggers}).to_string();
    for goes_on in [true, false] {
        let engine = Engine::builder()
            .virtual_time(Some(7))
            .workflows(bundle.clone())
            .build()
            .expect("valid");
        let mut run = engine.run("main");
        let mut failed = run.blocking_events(&[EventType::TriggerFailed], 16);
        let handle = run.start().expect("admitted");
        let Some(SubscriptionItem::Event(told)) = failed.next() else {
            panic!("nothing is told");
        };
        assert_eq!(told.raised.trigger_depth, LIMIT + 1);
        assert_eq!(told.raised.fields["triggerId"], "THREAD_PAUSED");
        let message = told.raised.fields["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(
            message,
            "the chain of triggers is too deep: the paused thread stays paused until a caller resumes it"
        );
        if goes_on {
            handle.resume();
            assert_eq!(handle.outcome_blocking().status, ThreadStatus::Completed);
        } else {
            engine.cancel_if_deadlocked(&handle);
            let report = handle.outcome_blocking();
            let reason = report.error.as_ref().map_or("", |error| error.message.as_str());
            assert_eq!(report.status, ThreadStatus::Cancelled, "time can bring nothing more");
            assert!(reason.contains("waits for ever"), "{reason}");
        }
        engine.shutdown_blocking(Duration::from_secs(5));
    }
}

#[test]
fn a_failing_trigger_on_trigger_failed_fires_up_to_the_limit() {
    let no_such_thread = json!({"type": "STOP_THREAD", "parameters": {"threadId": "nobody"}});
    let fails = trigger(EventType::TriggerFailed, &no_such_thread);
    let mut broken = fails.clone();
    broken["condition"]["expression"] = json!("event.nope.nope()");
    for (name, watcher) in [("its action fails", fails), ("its condition fails", broken)] {
        let once = json!({"id": "once", "type": "EVENT", "action": no_such_thread,
            "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'first'"}});
        let chain = Chain {
            event: EventType::TriggerFailed,
            workflows: vec![line("main", &[code("first", "return 1"), wait("rest", 1_000)])],
            triggers: vec![once, watcher],
            deepest: LIMIT,
        };
        let (report, events) = play(&chain);
        assert_eq!(report.error, None, "{name}");
        let failed = events
            .iter()
            .filter(|event| event.raised.event_type == EventType::TriggerFailed);
        let depths: Vec<u32> = failed.map(|event| event.raised.trigger_depth).collect();
        assert_eq!(depths, [1, 2, 3, 4, 5, 6, 7, 8, 9], "{name}");
    }
}

#[test]
fn no_token_limit_is_checked_in_workflows_that_a_token_event_started() {
    let long = [say("say", &"many words ".repeat(40)), ask("main")];
    // The triggered sub-workflow does not block the thread, so a last WAIT makes the thread outlive it.
    let stays = [&long[..], &[wait("rest", 1_000)]].concat();
    for (by, config) in token_events() {
        let mut limited = [
            line("main", &stays),
            sub("sub", &long, &json!({})),
            sub("inner", &long, &json!({})),
        ];
        for workflow in &mut limited {
            workflow["config"] = config.clone();
        }
        let inner = json!({"id": "inner", "type": "EVENT", "workflowId": "sub", "action": execute("inner"),
            "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'say'"}});
        let chain = Chain {
            event: by,
            workflows: limited.to_vec(),
            triggers: vec![trigger(by, &execute("sub")), inner],
            deepest: 0,
        };
        let (report, events) = play(&chain);
        assert_eq!(report.error, None);
        let count = |event_type: EventType| {
            let of = events.iter().filter(|event| event.raised.event_type == event_type);
            of.count()
        };
        assert_eq!(count(by), 1, "{}", by.as_str());
        assert_eq!(count(EventType::ThreadCompleted), 3, "main, sub, inner");
        assert_eq!(count(EventType::TriggerFailed), 0);
    }
}

/// Five triggers on notifications that each send one: without a budget every notification causes five more.
fn cascade(config: &Value) -> String {
    let sends = |id: &str, event: &str| {
        json!({"id": id, "type": "EVENT", "condition": {"eventType": event},
            "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": id}}})
    };
    let mut triggers: Vec<Value> = (0..5).map(|n| sends(&format!("t{n}"), "NOTIFICATION")).collect();
    triggers.push(json!({"id": "first", "type": "EVENT",
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'a'"},
        "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "first"}}}));
    let mut main = line("main", &[code("a", "return 1")]);
    main["config"] = config.clone();
    json!({"workflows": [main], "triggers": triggers}).to_string()
}

#[test]
fn triggers_that_fire_each_other_end_at_the_runs_budget_with_one_report() {
    for (config, most) in [
        (json!({"maxTriggeredEvents": 37}), 37),
        (json!({"maxTriggeredEvents": 0}), 0),
        (json!({}), 10_000),
    ] {
        let engine = Engine::builder().workflows(cascade(&config)).build().expect("valid");
        let mut prepared = engine.run("main");
        let events = prepared.blocking_events(&[EventType::Notification, EventType::TriggerFailed], 1 << 20);
        let run = prepared.start().expect("it starts");
        assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
        run.wait_all_ended_blocking();
        engine.shutdown_blocking(std::time::Duration::from_secs(5));
        let heard: Vec<_> = events
            .map(|heard| match heard {
                SubscriptionItem::Event(event) => event,
                SubscriptionItem::Lagged(count) => panic!("{count} were missed"),
            })
            .collect();
        let of = |event_type: EventType| heard.iter().filter(move |event| event.raised.event_type == event_type);
        // The first one is caused by a step of the run.
        assert_eq!(of(EventType::Notification).count(), 1 + most, "{config}");
        let told: Vec<&str> = of(EventType::TriggerFailed)
            .filter_map(|event| event.raised.fields["error"]["message"].as_str())
            .filter(|message| message.contains("maxTriggeredEvents"))
            .collect();
        assert_eq!(told.len(), 1, "{config}: {told:?}");
    }
}
