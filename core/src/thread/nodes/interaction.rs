//! USER_INTERACTION: asks a person, and waits for the answer or until nobody has given one in time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{NodeRun, Progress, done, failure};
use crate::Millis;
use crate::definition::VariableScope;
use crate::error::{RunError, RunErrorCode};
use crate::event::EventType;
use crate::graph::{InteractionNode, NodeKind, QuestionTimeout};
use crate::thread::ThreadMachine;
use crate::thread::effect::{Effect, EffectId, Evaluation, Outcome, PersonsAnswer, TimerPurpose};
use crate::thread::step::StepContext;

/// The answer it awaits.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) enum InteractionStage {
    /// The texts of the question.
    Texts { id: EffectId },
    /// A person's answer.
    Asked(Box<Asked>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) struct Asked {
    id: EffectId,
    timer: Option<EffectId>,
    question: Arc<str>,
    assignee: Option<Arc<str>>,
}

/// A question that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interaction {
    /// Names it, for as long as there are runs: the thread's id and the number of what that awaits.
    pub id: String,
    /// The node that asks.
    pub node_id: Arc<str>,
    /// Its thread.
    pub thread_id: Arc<str>,
    /// The question.
    pub question: Arc<str>,
    /// Whom it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<Arc<str>>,
    /// JSON Schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Arc<Map<String, Value>>>,
    /// The answers to choose from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<Arc<Vec<Value>>>,
    /// Time the thread waits from the question on, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<Millis>,
}

impl ThreadMachine {
    /// The question that the thread waits with, and what awaits its answer.
    pub fn interaction(&self) -> Option<(EffectId, Interaction)> {
        let (NodeRun::Interaction(InteractionStage::Asked(asked)), NodeKind::UserInteraction(node)) =
            (&self.run, &self.graph().node(self.at).kind)
        else {
            return None;
        };
        let interaction = Interaction {
            id: interaction_id(self, asked.id),
            node_id: Arc::clone(&self.graph().node(self.at).id),
            thread_id: Arc::clone(self.thread_id()),
            question: Arc::clone(&asked.question),
            assignee: asked.assignee.clone(),
            schema: node.schema.clone(),
            choices: node.choices.clone(),
            timeout_ms: node.timeout_ms,
        };
        Some((asked.id, interaction))
    }
}

impl Interaction {
    /// Checks that it is one of the answers to choose from, where there are such. The schema is the caller's to check.
    ///
    /// # Errors
    /// A sentence that names the choices.
    pub fn check_choice(&self, answer: &Value) -> Result<(), String> {
        match &self.choices {
            Some(choices) if !choices.contains(answer) => {
                let choices: Vec<String> = choices.iter().map(Value::to_string).collect();
                Err(format!("expected one of {}", choices.join(", ")))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn interaction_id(thread: &ThreadMachine, effect: EffectId) -> String {
    format!("{}.{effect}", thread.thread_id())
}

pub(super) fn enter(walk: &mut StepContext<'_>) -> Progress {
    let id = super::evaluate(walk, Evaluation::Texts);
    Progress::Wait(NodeRun::Interaction(InteractionStage::Texts { id }))
}

pub(super) fn answer(
    walk: &mut StepContext<'_>,
    stage: InteractionStage,
    effect: EffectId,
    outcome: Outcome,
) -> Progress {
    let graph = Arc::clone(walk.thread.graph());
    let NodeKind::UserInteraction(node) = &graph.node(walk.thread.at).kind else {
        return Progress::Failed(failure(outcome));
    };
    match (stage, outcome) {
        (InteractionStage::Texts { id }, Outcome::Texts(texts)) if id == effect => ask(walk, node, texts),
        (InteractionStage::Texts { id }, other) if id == effect => Progress::Failed(failure(other)),
        (InteractionStage::Asked(asked), outcome) if asked.id == effect => {
            if let Some(id) = asked.timer {
                walk.out.push(Effect::Drop { id });
            }
            match outcome {
                Outcome::Answered(answer) => answered(walk, node, asked.id, &answer),
                other => Progress::Failed(failure(other)),
            }
        }
        (InteractionStage::Asked(asked), _) if asked.timer == Some(effect) => {
            walk.out.push(Effect::Drop { id: asked.id });
            timed_out(walk, node, asked.id)
        }
        (stage, _) => Progress::Wait(NodeRun::Interaction(stage)),
    }
}

fn ask(walk: &mut StepContext<'_>, node: &InteractionNode, texts: Vec<Option<String>>) -> Progress {
    let mut texts = texts.into_iter();
    let question: Arc<str> = texts.next().flatten().unwrap_or_default().into();
    let assignee: Option<Arc<str>> = texts.next().flatten().map(Arc::from);
    let id = walk.next_effect();
    walk.emit(EventType::InteractionRequested, |thread| {
        [
            ("interactionId", json!(interaction_id(thread, id))),
            ("nodeId", json!(thread.graph().node(thread.at).id)),
            ("question", json!(question)),
            ("assignee", json!(assignee)),
            ("schema", json!(node.schema)),
            ("choices", json!(node.choices)),
            ("timeoutMs", json!(node.timeout_ms)),
        ]
    });
    walk.out.push(Effect::Ask {
        id,
        node: walk.thread.at,
    });
    let timer = node.timeout_ms.map(|after_ms| {
        let id = walk.next_effect();
        walk.out.push(Effect::Timer {
            id,
            after_ms,
            purpose: TimerPurpose::Wait,
        });
        id
    });
    Progress::Wait(NodeRun::Interaction(InteractionStage::Asked(Box::new(Asked {
        id,
        timer,
        question,
        assignee,
    }))))
}

fn answered(
    walk: &mut StepContext<'_>,
    node: &InteractionNode,
    id: EffectId,
    PersonsAnswer { answer, by, at }: &PersonsAnswer,
) -> Progress {
    walk.emit(EventType::InteractionAnswered, |thread| {
        [
            ("interactionId", json!(interaction_id(thread, id))),
            ("nodeId", json!(thread.graph().node(thread.at).id)),
            ("answer", json!(answer)),
            ("by", json!(by)),
        ]
    });
    let mut output = Map::from_iter([("answer".to_owned(), (**answer).clone()), ("at".to_owned(), json!(at))]);
    if let Some(by) = by {
        output.insert("by".to_owned(), json!(by));
    }
    taken(walk, node, answer, Value::Object(output))
}

fn timed_out(walk: &mut StepContext<'_>, node: &InteractionNode, id: EffectId) -> Progress {
    walk.emit(EventType::InteractionTimedOut, |thread| {
        [
            ("interactionId", json!(interaction_id(thread, id))),
            ("nodeId", json!(thread.graph().node(thread.at).id)),
        ]
    });
    match &node.on_timeout {
        QuestionTimeout::Fail => {
            let after_ms = node.timeout_ms.unwrap_or_default();
            let message = format!("nobody answered within {after_ms} ms");
            Progress::Failed(RunError::new(RunErrorCode::NodeTimeout, message))
        }
        QuestionTimeout::Default(answer) => taken(walk, node, answer, json!({ "answer": answer })),
        QuestionTimeout::GoTo(target) => Progress::DoneAt(walk.thread.last.clone(), *target),
    }
}

fn taken(walk: &mut StepContext<'_>, node: &InteractionNode, answer: &Arc<Value>, output: Value) -> Progress {
    if let Some(variable) = &node.assign_to {
        match walk.thread.variables.assign(variable, Arc::clone(answer), false) {
            Ok(value) => walk.variable_changed(variable, &value, VariableScope::Thread, 0),
            Err(error) => return Progress::Failed(error),
        }
    }
    done(Arc::new(output).into())
}

/// The thread no longer waits.
pub(super) fn abandon(walk: &mut StepContext<'_>, stage: &InteractionStage) {
    match stage {
        InteractionStage::Texts { id } => walk.out.push(Effect::Drop { id: *id }),
        InteractionStage::Asked(asked) => {
            walk.out.push(Effect::Drop { id: asked.id });
            if let Some(id) = asked.timer {
                walk.out.push(Effect::Drop { id });
            }
            walk.emit(EventType::InteractionWithdrawn, |thread| {
                [
                    ("interactionId", json!(interaction_id(thread, asked.id))),
                    ("nodeId", json!(thread.graph().node(thread.at).id)),
                ]
            });
        }
    }
}
