//! Chains of triggers through the host: the function of a trigger raises the event that fires the trigger, by a handle of
//! the run, or starts another run.

use std::sync::{Arc, Mutex, OnceLock};

use pirn::tools::tool_fn;
use pirn::{Engine, EngineBuilder, EventFilter, EventType, Input, RunHandle, SubscriptionItem, ThreadStatus};
use pirn_events::event::Event;
use pirn_tests::world::{code, line, node, wait, workflow};
use serde_json::{Map, Value, json};

/// Depth limit of a chain of triggers (SPEC section 5).
const LIMIT: u32 = 8;

/// The run's handle, for code that may be called before `start` has returned the handle.
#[derive(Clone, Default)]
struct Handle(Arc<OnceLock<RunHandle>>);

impl Handle {
    fn emit(&self) {
        self.0.wait().emit("again", Map::new());
    }
}

/// A trigger on the event `again`, and one that performs its action for the first time.
fn again(action: &Value) -> Value {
    json!([
        {"id": "again", "type": "EVENT", "action": action, "condition": {"eventType": "CUSTOM", "eventName": "again"}},
        {"id": "once", "type": "EVENT", "action": action,
            "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'first'"}}
    ])
}

fn custom() -> Value {
    json!({"type": "CUSTOM", "parameters": {"function": "again"}})
}

fn played(builder: EngineBuilder, handle: &Handle, workflows: &[Value], triggers: &Value) -> Vec<Arc<Event>> {
    let profiles = json!([{"id": "default", "provider": "scripted",
        "responses": [{"toolCalls": [{"id": "c", "name": "again"}]}, {"content": "done"}]}]);
    let bundle = json!({"workflows": workflows, "triggers": triggers, "profiles": profiles});
    let engine = builder
        .virtual_time(Some(1))
        .workflows(bundle.to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let mut events = engine.events(EventFilter::default(), 1 << 16);
    let run = engine
        .start("main", Value::Null)
        .unwrap_or_else(|error| panic!("{error}"));
    handle.0.get_or_init(|| run.clone());
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
    engine.shutdown_blocking(std::time::Duration::from_secs(5));
    let mut heard = Vec::new();
    while let Some(SubscriptionItem::Event(event)) = futures::executor::block_on(events.next()) {
        heard.push(event);
    }
    heard
}

fn main_line() -> Value {
    line("main", &[code("first", "return 1"), wait("rest", 1_000)])
}

fn depths(events: &[Arc<Event>], event_type: EventType) -> Vec<u32> {
    let of = events.iter().filter(|event| event.raised.event_type == event_type);
    of.map(|event| event.raised.trigger_depth).collect()
}

#[track_caller]
fn ends_at_the_limit(name: &str, events: &[Arc<Event>]) {
    let deepest: Vec<u32> = (1..=LIMIT).collect();
    assert_eq!(depths(events, EventType::Custom), deepest, "{name}");
    assert_eq!(depths(events, EventType::TriggerFailed), [LIMIT + 1], "{name}");
}

#[test]
fn a_function_that_raises_the_event_it_is_called_for_ends_at_the_limit() {
    let handle = Handle::default();
    let inline = {
        let handle = handle.clone();
        Engine::builder().function("again", move |_| {
            handle.emit();
            Ok(Value::Null)
        })
    };
    ends_at_the_limit("inline", &played(inline, &handle, &[main_line()], &again(&custom())));
    let handle = Handle::default();
    let work = {
        let handle = handle.clone();
        Engine::builder().async_function("again", move |_| {
            let handle = handle.clone();
            Box::pin(async move {
                futures::future::ready(()).await;
                handle.emit();
                Ok(Value::Null)
            })
        })
    };
    ends_at_the_limit("work", &played(work, &handle, &[main_line()], &again(&custom())));
}

/// The WAIT buffers 1,000 events. Each further one is dropped with EVENT_DROPPED, which triggers the function again.
#[test]
fn a_function_that_raises_events_until_they_are_dropped_ends_at_the_limit() {
    let handle = Handle::default();
    let (fills, raises) = (handle.clone(), handle.clone());
    let builder = Engine::builder()
        .function("fill", move |_| {
            (0..=1_000).for_each(|_| fills.emit());
            Ok(Value::Null)
        })
        .function("again", move |_| {
            raises.emit();
            Ok(Value::Null)
        });
    let first = node("first", "CODE", json!({"function": "fill"}));
    let workflows = [
        line("main", &[first, wait("rest", 1_000)]),
        line("waits", &[node("again", "WAIT", json!({"event": "again"}))]),
    ];
    let triggers =
        json!([{"id": "again", "type": "EVENT", "action": custom(), "condition": {"eventType": "EVENT_DROPPED"}}]);
    let events = played(builder, &handle, &workflows, &triggers);
    let all: Vec<u32> = (0..=LIMIT).collect();
    assert_eq!(depths(&events, EventType::EventDropped), all);
    assert_eq!(depths(&events, EventType::Custom)[1_001..], all[1..]);
    assert_eq!(depths(&events, EventType::TriggerFailed), [LIMIT + 1]);
}

#[test]
fn a_notification_hook_and_a_sub_workflow_that_raise_their_event_end_at_the_limit() {
    let handle = Handle::default();
    let hook = {
        let handle = handle.clone();
        Engine::builder().on_notification(move |_, _| handle.emit())
    };
    let says = json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "again"}});
    ends_at_the_limit("hook", &played(hook, &handle, &[main_line()], &again(&says)));
    let sub = |inner: Value| {
        let nodes = [
            node("s", "START_FROM_TRIGGER", json!({})),
            inner,
            node("c", "CONTINUE_FROM_TRIGGER", json!({})),
        ];
        workflow("sub", &nodes, &["s>x>c"])
    };
    let runs = json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH",
        "parameters": {"triggeredWorkflowId": "sub", "waitForCompletion": false}});
    let function = node("x", "CODE", json!({"function": "again"}));
    let tool = node("x", "LLM", json!({"prompt": "go", "tools": ["again"]}));
    for (name, inner) in [("function", function), ("tool", tool)] {
        let handle = Handle::default();
        let (by_function, by_tool) = (handle.clone(), handle.clone());
        let builder = Engine::builder()
            .function("again", move |_| {
                by_function.emit();
                Ok(Value::Null)
            })
            .tool(tool_fn(
                "again",
                "For this test",
                json!({"type": "object"}),
                move |_| {
                    let handle = by_tool.clone();
                    async move {
                        handle.emit();
                        Ok("done".to_owned())
                    }
                },
            ));
        // Events raised while their own firing runs coalesce, so there is one firing; the raised events still get a depth.
        let events = played(builder, &handle, &[main_line(), sub(inner)], &again(&runs));
        assert_eq!(depths(&events, EventType::Custom).first(), Some(&1), "{name}");
        let deepest = depths(&events, EventType::Custom).into_iter().max();
        assert!(deepest.is_some_and(|depth| depth <= LIMIT), "{name}: {deepest:?}");
    }
}

#[test]
fn runs_that_a_triggers_function_starts_are_links_of_its_chain() {
    let started = Arc::new(Mutex::new(0_u32));
    let cell: Arc<OnceLock<Engine>> = Arc::default();
    let (count, own) = (Arc::clone(&started), Arc::clone(&cell));
    let function = move |_: &Input<'_>| {
        *count.lock().map_err(|error| error.to_string())? += 1;
        let run = own.wait().start("main", Value::Null);
        run.map(|_| Value::Null).map_err(|error| error.to_string())
    };
    let main = line("main", &[code("first", "return 1")]);
    let trigger = json!({"id": "more", "type": "EVENT", "action": custom(),
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'first'"}});
    let bundle = json!({"workflows": [main], "triggers": [trigger]});
    let engine = Engine::builder()
        .virtual_time(Some(1))
        .function("again", function)
        .workflows(bundle.to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    cell.get_or_init(|| engine.clone());
    let run = engine
        .start("main", Value::Null)
        .unwrap_or_else(|error| panic!("{error}"));
    run.wait_all_ended_blocking();
    engine.wait_idle();
    assert_eq!(*started.lock().expect("no panic"), LIMIT);
    engine.shutdown_blocking(std::time::Duration::from_secs(5));
}

#[test]
fn events_raised_from_a_functions_spawned_thread_are_bounded_by_max_triggers() {
    let handle = Handle::default();
    let builder = {
        let handle = handle.clone();
        Engine::builder().function("again", move |_| {
            let handle = handle.clone();
            let other = std::thread::spawn(move || handle.emit());
            other.join().map_err(|_| "it panicked".to_owned())?;
            Ok(Value::Null)
        })
    };
    let mut triggers = again(&custom());
    triggers[0]["maxTriggers"] = json!(20);
    let events = played(builder, &handle, &[main_line()], &triggers);
    assert_eq!(
        depths(&events, EventType::Custom),
        [0; 21],
        "each is the first of its chain"
    );
}
