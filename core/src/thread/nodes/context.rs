//! CONTEXT_PROCESSOR: changes the conversation.

use std::sync::Arc;

use pirn_conversation::model_call::{FailureKind, FinishReason, ModelFailure};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{ContextNode, NodeKind, TemplateMessage};
use pirn_definition::message::Message;
use serde_json::json;

use crate::thread::context::{Progress, StepContext, evaluate, failure};
use crate::thread::data::effect::{
    ContextChange, ConversationOp, Effect, EffectId, Evaluation, ModelChoice, Outcome, SummaryRequest, WrittenSummary,
};
use crate::thread::data::stages::{ContextStage, NodeRun};

pub(super) fn enter(cx: &mut StepContext<'_>, node: &ContextNode) -> Progress {
    let op = match node {
        ContextNode::Insert { .. } | ContextNode::Replace { .. } => {
            let id = evaluate(cx, Evaluation::Texts);
            return Progress::Wait(NodeRun::Context(ContextStage::Texts { id }));
        }
        ContextNode::Pin { section, .. } => {
            let id = evaluate(cx, Evaluation::Pin);
            return Progress::Wait(NodeRun::Context(ContextStage::Pin { id, section: *section }));
        }
        ContextNode::Truncate(truncate) => ConversationOp::Apply(ContextChange::Truncate(truncate.clone())),
        ContextNode::Clear { keep_system } => ConversationOp::Apply(ContextChange::Clear {
            keep_system: *keep_system,
        }),
        ContextNode::Filter(filter) => ConversationOp::Apply(ContextChange::Filter(filter.clone())),
        // Not through `ask`: a compression is atomic, and its stage defers cancels.
        ContextNode::Compress(config) => return compress(cx, ConversationOp::Compress(config.clone())),
    };
    ask(cx, op)
}

pub(super) fn answer(cx: &mut StepContext<'_>, stage: ContextStage, effect: EffectId, outcome: Outcome) -> Progress {
    // An answer to an effect that was cancelled.
    if stage.id() != effect {
        return Progress::Wait(NodeRun::Context(stage));
    }
    match (stage, outcome) {
        (ContextStage::Texts { .. }, Outcome::Texts(texts)) => match resolve(cx, texts) {
            // The templates are requested for two operations only.
            Some(op) => ask(cx, ConversationOp::Apply(op)),
            None => Progress::Failed(failure(Outcome::Done)),
        },
        (ContextStage::Pin { section, .. }, Outcome::Value(value)) => {
            let id = cx.next_effect();
            cx.out.push(Effect::Pin { id, section, value });
            Progress::Wait(NodeRun::Context(ContextStage::Work { id }))
        }
        (ContextStage::Work { .. }, Outcome::Done) => Progress::Done(cx.thread.last.clone()),
        (ContextStage::Work { .. }, Outcome::Value(value)) => Progress::Done(value.into()),
        (ContextStage::Compressing { .. }, Outcome::Done) => {
            cx.unless_stopped(|cx| Progress::Done(cx.thread.last.clone()))
        }
        // Nothing has been applied yet, so that the stop needs no model call first.
        (ContextStage::Compressing { .. }, Outcome::Summarize(_)) if cx.thread.stop.is_some() => {
            emit_failure(cx, &stopped());
            cx.unless_stopped(|_| Progress::Failed(stopped()))
        }
        (ContextStage::Compressing { .. }, Outcome::Summarize(summary)) => {
            // The host raises the tokens of the summary in the thread's name.
            cx.may_be_held_by(&[EventType::LlmToken]);
            let (id, key) = cx.next_call();
            summarize(cx, *summary, id, key)
        }
        (ContextStage::Summary { fallback, .. }, Outcome::Reply(reply)) => {
            cx.spend(reply.usage);
            // Tool calls or an empty text: the model continued the conversation instead of summarizing it.
            let has_continued = !reply.tool_calls.is_empty() || reply.content.trim().is_empty();
            // Without a fallback the text is used: a blank one is ignored.
            if let Some(fallback) = fallback.filter(|_| has_continued) {
                return summarize_again(cx, *fallback);
            }
            let written = WrittenSummary {
                text: reply.content,
                is_truncated: reply.finish_reason == FinishReason::Length,
            };
            compress(cx, ConversationOp::FinishSummary(Box::new(written)))
        }
        (ContextStage::Summary { fallback, .. }, other) => {
            // Counts the tokens of the failed call first: they are spent even if the fallback succeeds.
            let error = super::llm::call_error(cx, other);
            // The long request may exceed the context of the model. Other failures would fail the transcript too.
            let is_rejected = ModelFailure::of(&error).kind == FailureKind::Rejected;
            if let Some(fallback) = fallback.filter(|_| is_rejected) {
                return summarize_again(cx, *fallback);
            }
            emit_failure(cx, &error);
            Progress::Failed(error)
        }
        (ContextStage::Compressing { .. }, other) => {
            let error = failure(other);
            emit_failure(cx, &error);
            // A stop that waited takes precedence over the failure, because the node must not be retried then.
            cx.unless_stopped(|_| Progress::Failed(error))
        }
        (ContextStage::Texts { .. } | ContextStage::Pin { .. } | ContextStage::Work { .. }, other) => {
            Progress::Failed(failure(other))
        }
    }
}

/// Cancels the node. The summary of a running model call is discarded; a change that the conversation has started completes.
pub(super) fn abandon(cx: &mut StepContext<'_>, stage: &ContextStage) {
    cx.out.push(Effect::Drop { id: stage.id() });
    // Only this stage has started a compression without a final event.
    if let ContextStage::Summary { .. } = stage {
        emit_failure(cx, &stopped());
    }
}

fn stopped() -> RunError {
    RunError::new(RunErrorCode::Cancelled, "the compression was stopped")
}

/// Raises COMPRESSION_FAILED if the conversation did not apply a compression, so that each compression has one final event.
fn emit_failure(cx: &mut StepContext<'_>, error: &RunError) {
    cx.emit(EventType::CompressionFailed, |_| [("error", json!(error))]);
}

/// Requests a summary with the fallback of a request that failed.
fn summarize_again(cx: &mut StepContext<'_>, fallback: SummaryRequest) -> Progress {
    // The body differs from that of the first request. A service may answer an equal key with the first reply.
    let id = cx.next_effect();
    summarize(cx, fallback, id, id)
}

/// Requests a summary from the model.
fn summarize(cx: &mut StepContext<'_>, summary: SummaryRequest, id: EffectId, key: EffectId) -> Progress {
    let SummaryRequest {
        request,
        goes_on,
        profile_id,
    } = summary;
    let node = cx.thread.at;
    // Stored in the stage, because the request itself moves to the host. The fallback has none itself, so that a summary needs at most
    // two model calls.
    let fallback = goes_on.as_ref().map(|goes_on| {
        Box::new(SummaryRequest {
            request: Arc::clone(&goes_on.transcript),
            goes_on: None,
            profile_id: profile_id.clone(),
        })
    });
    cx.out.push(Effect::Model {
        id,
        key,
        node,
        request: Arc::new(request.into()),
        offers_tools: false,
        choice: profile_id.map(|profile_id| {
            Arc::new(ModelChoice {
                profile_id: Some(profile_id),
                parameters: None,
            })
        }),
        goes_on,
        offered: None,
    });
    Progress::Wait(NodeRun::Context(ContextStage::Summary { id, fallback }))
}

fn compress(cx: &mut StepContext<'_>, op: ConversationOp) -> Progress {
    let id = cx.next_effect();
    cx.converse(id, op);
    Progress::Wait(NodeRun::Context(ContextStage::Compressing { id }))
}

fn ask(cx: &mut StepContext<'_>, op: ConversationOp) -> Progress {
    let id = cx.next_effect();
    cx.converse(id, op);
    Progress::Wait(NodeRun::Context(ContextStage::Work { id }))
}

/// Returns the operation with its rendered templates.
fn resolve(cx: &StepContext<'_>, texts: Vec<Option<String>>) -> Option<ContextChange> {
    let graph = cx.thread.graph();
    let NodeKind::Context(node) = &graph.node(cx.thread.at).kind else {
        // The stage belongs to a CONTEXT_PROCESSOR, so that this does not occur.
        return None;
    };
    match node {
        ContextNode::Insert { messages, position } => Some(ContextChange::Insert {
            messages: rendered(messages, texts),
            position: *position,
        }),
        ContextNode::Replace { target, messages } => Some(ContextChange::Replace {
            target: target.clone(),
            messages: rendered(messages, texts),
        }),
        // These have no templates and were sent in `enter`.
        ContextNode::Truncate(_)
        | ContextNode::Clear { .. }
        | ContextNode::Filter(_)
        | ContextNode::Compress(_)
        | ContextNode::Pin { .. } => None,
    }
}

fn rendered(messages: &[TemplateMessage], texts: Vec<Option<String>>) -> Vec<Message> {
    // `evaluate` renders the contents in this order.
    let rendered = messages.iter().zip(texts).map(|(message, text)| Message {
        pin: message.pin,
        ..Message::new(message.role, text.unwrap_or_default())
    });
    rendered.collect()
}
