//! Children whose workflow is named, or written, during the run.

use std::sync::Arc;

use pirn_conversation::conversation::Conversation;
use pirn_core::run::{ConversationSource, Message, ToSupervisor};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{Callee, EffectId};
use serde_json::{Value, json};

use super::harness::Harness;
use super::rebuilt;

fn working(id: &str) -> Value {
    json!({
        "id": id,
        "nodes": [
            {"id": "s", "type": "START"},
            {"id": "w", "type": "CODE", "config": {"function": "work"}},
            {"id": "e", "type": "END"},
        ],
        "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}],
    })
}

fn start(run: &mut Harness, effect: EffectId, callee: Callee) {
    run.send(Message::Supervisor(ToSupervisor::Call {
        thread: 0,
        effect,
        node: 1,
        callee,
        input: Arc::new(json!({"effect": effect})),
        conversation: Box::new(ConversationSource::Snapshot(Conversation::new())),
    }));
}

fn inline(definition: &Value) -> Callee {
    Callee::Inline(definition.to_string().into())
}

#[test]
fn a_thread_has_several_children_of_registered_and_written_workflows_at_once() {
    let bundle = json!([working("main"), working("helper")]);
    let mut run = Harness::of(&bundle);
    start(&mut run, 101, Callee::Registered("helper".into()));
    start(&mut run, 102, inline(&working("helper")));
    start(&mut run, 103, inline(&working("helper")));
    start(&mut run, 104, Callee::Registered("missing".into()));
    start(
        &mut run,
        105,
        inline(&json!({"id": "broken", "nodes": [], "edges": []})),
    );
    assert_eq!(run.parents, [None, Some(0), Some(0), Some(0)]);
    let workflow = |run: &Harness, thread| run.machine.origin(thread).unwrap().1.workflow_id.to_string();
    assert_eq!(workflow(&run, 1), "helper");
    assert!(workflow(&run, 2).starts_with("helper@"), "{}", workflow(&run, 2));
    assert_eq!(workflow(&run, 3), workflow(&run, 2), "equal sources have one graph");
    for thread in [2, 1] {
        run.end_effect(thread, true);
    }
    assert_eq!(run.statuses()[3], ThreadStatus::Running);
    // The end of the caller cancels the child that still runs.
    run.end_effect(0, true);
    let report = run.report.as_ref().expect("the run has ended");
    assert_eq!(report.status, ThreadStatus::Completed);
    let ended = [
        ThreadStatus::Completed,
        ThreadStatus::Completed,
        ThreadStatus::Completed,
    ];
    assert_eq!(run.statuses(), [&ended[..], &[ThreadStatus::Cancelled]].concat());
    rebuilt::check(&bundle, &run);
}
