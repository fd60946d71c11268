//! Arbitrary inputs in arbitrary order: a run never panics, each thread ends once, and nothing remains after a cancel.

use std::sync::Arc;

use pirn_core::run::{CallTarget, Control, Message, Timer, ToConversation, ToSupervisor, ToThread, TriggerCall};
use pirn_core::thread::{CancelReason, Input, Outcome};
use pirn_definition::definition::InDoubt;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_events::event::{Event, RaisedEvent};
use proptest::prelude::*;
use serde_json::json;

use super::harness::{Harness, answer, consent};
use super::rebuilt;
use super::shapes::{MORE_SHAPES, SHAPES, bundle};

/// A call of a trigger on an event of the main thread.
fn call(notifies: bool, holds_outcome: bool) -> TriggerCall {
    let event = Event {
        sequence: 1,
        timestamp: 0,
        run_id: "r".into(),
        workflow_id: "main".into(),
        thread_id: "r.0".into(),
        raised: RaisedEvent::new(EventType::NodeStarted, []),
    };
    let target = if notifies {
        CallTarget::Notification {
            message: "hello".into(),
            channel: None,
        }
    } else {
        CallTarget::Function {
            name: "f".into(),
            parameters: serde_json::Map::new(),
        }
    };
    TriggerCall {
        trigger_id: "t".into(),
        event: Arc::new(event),
        target,
        in_doubt: InDoubt::Keyed,
        holds_outcome,
    }
}

/// Returns any message; most are meaningless in the current state.
fn message() -> impl Strategy<Value = Message> {
    let outcome = prop_oneof![
        Just(Outcome::Done),
        Just(Outcome::Value(Arc::new(json!(1)))),
        Just(Outcome::Elapsed),
        Just(Outcome::Choice(Some(9))),
        Just(Outcome::HeldByFiring(vec![1])),
        Just(Outcome::Answered(answer(json!("allow")))),
        Just(Outcome::NeedsConsent(Box::new(consent()))),
        Just(Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, "on purpose"))),
    ];
    let input = prop_oneof![
        6 => (0..6_u64, outcome).prop_map(|(effect, outcome)| Input::Answer { effect, outcome }),
        1 => Just(Input::Start),
        1 => Just(Input::Raised),
        1 => Just(Input::Pause { trigger_depth: 0 }),
        2 => Just(Input::Resume { trigger_depth: 1 }),
        1 => Just(Input::Cancel { reason: CancelReason::Shutdown, trigger_depth: 1 }),
        1 => Just(Input::Fail(RunError::new(RunErrorCode::ActorPanicked, "on purpose"))),
    ];
    let thread = (
        0..7_u32,
        prop_oneof![
            8 => input.prop_map(ToThread::Input),
            1 => (0..3_u64).prop_map(ToThread::Describe),
            1 => Just(ToThread::GoOn),
        ],
    );
    let supervisor = prop_oneof![
        Just(ToSupervisor::Control(Control::Pause)),
        Just(ToSupervisor::Control(Control::Resume)),
        (0..7_u32).prop_map(|thread| ToSupervisor::ControlThread {
            thread,
            control: Control::Cancel("no".into()),
            trigger_depth: 1,
        }),
        (0..7_u32).prop_map(|thread| ToSupervisor::Elapsed(Timer::Thread { thread, after_ms: 5 })),
        (0..3_u32, 0..3_u32).prop_map(|(fork, generation)| ToSupervisor::Elapsed(Timer::Join { fork, generation })),
        (0..3_u64).prop_map(|firing| ToSupervisor::Elapsed(Timer::Firing(firing))),
        (0..3_u64).prop_map(|firing| ToSupervisor::Prepared { firing, prepared: None }),
        (0..3_u64).prop_map(|firing| ToSupervisor::Applied { firing, error: None }),
        (0..3_u64).prop_map(|firing| ToSupervisor::DetachedEnded {
            firing,
            output: Ok(json!(1))
        }),
        (0..7_u32, 0..6_u64).prop_map(|(thread, effect)| ToSupervisor::Drop { thread, effect }),
        (0..3_u32).prop_map(|fork| ToSupervisor::StopLosers { fork, from: 1 }),
        Just(ToSupervisor::TriggersQuiet),
        (any::<bool>(), any::<bool>())
            .prop_map(|(notifies, holds)| ToSupervisor::CallTrigger(Arc::new(call(notifies, holds)))),
        (0..4_u64, any::<bool>()).prop_map(|(call, fails)| ToSupervisor::TriggerCalled {
            call,
            error: fails.then(|| RunError::new(RunErrorCode::NodeFailed, "on purpose")),
        }),
    ];
    prop_oneof![
        4 => thread.prop_map(|(thread, message)| Message::Thread(thread, message)),
        2 => supervisor.prop_map(Message::Supervisor),
        1 => (0..7_u32).prop_map(|owner| Message::Conversation(owner, ToConversation::CompressionEnded)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn for_any_inputs_each_thread_ends_once_and_a_cancel_ends_all_work(
        shape in prop::sample::select([SHAPES, MORE_SHAPES].concat()),
        messages in prop::collection::vec(message(), 0..40),
        works in prop::collection::vec((0..6_u32, any::<bool>()), 0..10),
    ) {
        let bundle = bundle(shape, 1_000);
        let mut harness = Harness::of(&bundle);
        let mut works = works.into_iter();
        for message in messages {
            if harness.is_settled {
                break;
            }
            harness.send(message);
            if let Some((thread, well)) = works.next() && !harness.is_settled {
                harness.end_effect(thread, well);
            }
        }
        if !harness.is_settled {
            harness.send(Message::Supervisor(ToSupervisor::Control(Control::Shutdown)));
        }
        // Trigger calls are performed outside, so that the test must end them.
        for call in harness.calls.clone() {
            if !harness.is_settled {
                harness.send(Message::Supervisor(ToSupervisor::TriggerCalled { call, error: None }));
            }
        }
        prop_assert!(harness.is_settled, "something is left: {:?}", harness.statuses());
        prop_assert!(harness.report.is_some() && harness.works.is_empty());
        prop_assert_eq!(harness.ended.len(), harness.machine.len());
        rebuilt::check(&bundle, &harness);
    }
}
