//! MAP: the supervisor starts a thread for each item and decides the join; the thread waits.

use std::sync::Arc;

use pirn_definition::definition::ForkStrategy;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{MapNode, NodeKind};
use serde_json::{Value, json};

use super::fork;
use crate::thread::context::{Progress, StepContext, evaluate, failure};
use crate::thread::data::effect::{Effect, EffectId, Evaluation, Outcome};
use crate::thread::data::stages::{MapStage, NodeRun};
use crate::thread::items::item_names;

pub(super) fn enter(cx: &mut StepContext<'_>) -> Progress {
    // Even a literal list is evaluated: the item inputs may depend on the item.
    let id = evaluate(cx, Evaluation::Input);
    Progress::Wait(NodeRun::Map(MapStage::Inputs { id }))
}

pub(super) fn answer(cx: &mut StepContext<'_>, stage: MapStage, effect: EffectId, outcome: Outcome) -> Progress {
    if stage.id() != effect {
        return Progress::Wait(NodeRun::Map(stage));
    }
    match (stage, outcome) {
        (MapStage::Inputs { .. }, Outcome::Value(inputs)) => start(cx, inputs),
        (MapStage::Inputs { .. }, other) => Progress::Failed(failure(other)),
        // The join of a MAP has the outcomes of a FORK's join.
        (MapStage::Join { .. }, outcome) => fork::answer(cx, outcome),
    }
}

fn start(cx: &mut StepContext<'_>, inputs: Arc<Value>) -> Progress {
    let graph = Arc::clone(cx.thread.graph());
    let node = cx.thread.at;
    let NodeKind::Map(map) = &graph.node(node).kind else {
        return Progress::Failed(failure(Outcome::Done));
    };
    // Before the effect, so that an invalid list starts no thread.
    let count = match count(map, &inputs).and_then(|count| cx.start_agents(count as u64).map(|()| count)) {
        Ok(count) => count,
        Err(error) => return Progress::Failed(error),
    };
    let id = cx.next_effect();
    // From the cloned graph: the closures below must not borrow the thread.
    let node_id = &graph.node(node).id;
    // Both events precede the effect: the events of the first thread must follow them.
    cx.emit(EventType::ThreadForkStarted, |_| {
        [
            ("nodeId", json!(node_id)),
            ("forkPathIds", json!(item_names(count))),
            ("forkStrategy", json!(ForkStrategy::Parallel)),
            ("subgraphId", json!(map.workflow_id)),
        ]
    });
    cx.emit(EventType::ThreadJoinStarted, |_| {
        [
            ("nodeId", json!(node_id)),
            ("joinStrategy", json!(map.join.strategy)),
            ("timeoutMs", json!(map.join.timeout_ms)),
        ]
    });
    cx.out.push(Effect::Map { id, node, inputs });
    Progress::Wait(NodeRun::Map(MapStage::Join { id }))
}

fn count(map: &MapNode, inputs: &Value) -> Result<usize, RunError> {
    let kind = match inputs {
        // An empty list is valid: the join of no threads is decided at once.
        Value::Array(list) if list.len() <= map.max_items as usize => return Ok(list.len()),
        Value::Array(list) => {
            let message = format!("{} items: at most {} (`maxItems`)", list.len(), map.max_items);
            return Err(RunError::new(RunErrorCode::TooManyItems, message));
        }
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        // The fields of an object are its items.
        Value::Object(_) => "an object",
    };
    let message = format!("`items` of a MAP is a list or an object, not {kind}");
    Err(RunError::new(RunErrorCode::NodeFailed, message))
}
