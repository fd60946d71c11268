//! USER_INTERACTION: opens a question to a person and waits for the answer or the time limit.

use std::sync::Arc;

use pirn_definition::definition::VariableScope;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{InteractionNode, NodeKind, QuestionTimeout};
use serde_json::{Map, Value, json};

use super::question::{QuestionContent, QuestionOutcome};
use crate::thread::context::{Progress, StepContext, done, evaluate, failure};
use crate::thread::data::effect::{Effect, EffectId, Evaluation, Outcome, PersonsAnswer};
use crate::thread::data::question::{Interaction, OpenQuestion};
use crate::thread::data::stages::{AskedQuestion, InteractionStage, NodeRun};
use crate::thread::machine::ThreadMachine;

impl InteractionStage {
    /// Returns the open question, with the effect that awaits its answer.
    pub(in crate::thread::nodes) fn interaction(&self, thread: &ThreadMachine) -> Option<(EffectId, Interaction)> {
        // Before the templates are rendered there is no question to show.
        let (Self::Asked(asked), NodeKind::UserInteraction(node)) = (self, &thread.graph().node(thread.at).kind) else {
            return None;
        };
        // Schema and choices are taken from the graph, so that the stage stores the rendered strings only.
        let content = content(node, Arc::clone(&asked.question), asked.assignee.clone());
        Some((asked.id, content.of(thread, asked.id)))
    }
}

fn content(node: &InteractionNode, question: Arc<str>, assignee: Option<Arc<str>>) -> QuestionContent {
    QuestionContent {
        question,
        assignee,
        schema: node.schema.clone(),
        choices: node.choices.clone(),
        timeout_ms: node.timeout_ms,
        tool: None,
        client_tool: None,
        is_of_script: false,
    }
}

pub(in crate::thread::nodes) fn enter(cx: &mut StepContext<'_>) -> Progress {
    let id = evaluate(cx, Evaluation::Texts);
    Progress::Wait(NodeRun::Interaction(InteractionStage::Texts { id }))
}

pub(in crate::thread::nodes) fn answer(
    cx: &mut StepContext<'_>,
    stage: InteractionStage,
    effect: EffectId,
    outcome: Outcome,
) -> Progress {
    // Cloned, because the node is read while the thread is changed.
    let graph = Arc::clone(cx.thread.graph());
    let NodeKind::UserInteraction(node) = &graph.node(cx.thread.at).kind else {
        return Progress::Failed(failure(outcome));
    };
    match (stage, outcome) {
        (InteractionStage::Texts { id }, Outcome::Texts(texts)) if id == effect => ask(cx, node, texts),
        // Includes the error of a template.
        (InteractionStage::Texts { id }, other) if id == effect => Progress::Failed(failure(other)),
        (InteractionStage::Asked(asked), outcome) if asked.open().awaits(effect) => {
            match asked.open().handle_answer(cx, effect, outcome) {
                QuestionOutcome::Answered(answer) => answered(cx, node, &answer),
                QuestionOutcome::NobodyInTime => timed_out(cx, node),
                QuestionOutcome::Failed(error) => Progress::Failed(error),
            }
        }
        // An answer to an effect that was cancelled: the person and the time limit may answer at the same time.
        (stage, _) => Progress::Wait(NodeRun::Interaction(stage)),
    }
}

fn ask(cx: &mut StepContext<'_>, node: &InteractionNode, texts: Vec<Option<String>>) -> Progress {
    // The order of `evaluate`: question, addressee.
    let mut texts = texts.into_iter();
    let question: Arc<str> = texts.next().flatten().unwrap_or_default().into();
    let assignee: Option<Arc<str>> = texts.next().flatten().map(Arc::from);
    let content = content(node, Arc::clone(&question), assignee.clone());
    let OpenQuestion { id, timer } = OpenQuestion::put(cx, content);
    Progress::Wait(NodeRun::Interaction(InteractionStage::Asked(Box::new(AskedQuestion {
        id,
        timer,
        question,
        assignee,
    }))))
}

fn answered(
    cx: &mut StepContext<'_>,
    node: &InteractionNode,
    PersonsAnswer { answer, by, at }: &PersonsAnswer,
) -> Progress {
    let mut output = Map::from_iter([("answer".to_owned(), (**answer).clone()), ("at".to_owned(), json!(at))]);
    if let Some(by) = by {
        output.insert("by".to_owned(), json!(by));
    }
    taken(cx, node, answer, Value::Object(output))
}

fn timed_out(cx: &mut StepContext<'_>, node: &InteractionNode) -> Progress {
    match &node.on_timeout {
        // As a node failure, so that `retry` opens the question again and `onError` applies.
        QuestionTimeout::Fail => {
            let after_ms = node.timeout_ms.unwrap_or_default();
            let message = format!("no answer within {after_ms} ms");
            Progress::Failed(RunError::new(RunErrorCode::NodeTimeout, message))
        }
        QuestionTimeout::Default(answer) => taken(cx, node, answer, json!({ "answer": answer })),
        // No edge is evaluated: the definition names the target of this case.
        QuestionTimeout::GoTo(target) => Progress::DoneAt(cx.thread.last.clone(), *target),
    }
}

fn taken(cx: &mut StepContext<'_>, node: &InteractionNode, answer: &Arc<Value>, output: Value) -> Progress {
    if let Some(variable) = &node.assign_to {
        // Before the node completes: a value of the wrong type fails the node, and edges read the variable.
        match cx.thread.variables.assign(variable, Arc::clone(answer), false) {
            Ok(value) => cx.variable_changed(variable, &value, VariableScope::Thread, 0),
            Err(error) => return Progress::Failed(error),
        }
    }
    // `done` checks the size, because the answer comes from outside.
    done(Arc::new(output).into())
}

/// Cancels the active effects of the node.
pub(in crate::thread::nodes) fn abandon(cx: &mut StepContext<'_>, stage: &InteractionStage) {
    match stage {
        InteractionStage::Texts { id } => cx.out.push(Effect::Drop { id: *id }),
        InteractionStage::Asked(asked) => asked.open().withdraw(cx),
    }
}
