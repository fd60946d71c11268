//! Tool calls that wait for an answer from outside: approval by a person, after which the call runs, runs with changed arguments, or
//! is refused; and execution by the client of the run.

use std::fmt::Write as _;
use std::sync::Arc;

use pirn_definition::Millis;
use pirn_definition::definition::BuiltInTool;
use pirn_definition::error::RunError;
use pirn_definition::message::ToolCall;
use serde_json::Value;

use super::question::{QuestionContent, QuestionOutcome};
use crate::thread::context::{StepContext, failure};
use crate::thread::data::effect::{ConsentRequest, Effect, EffectId, Outcome, ToolResult};
use crate::thread::data::question::{ClientCall, Consent, ConsentAnswer, Interaction, OpenQuestion, ToolConsent};
use crate::thread::machine::ThreadMachine;

/// Result of an answer.
pub(in crate::thread::nodes) enum ConsentOutcome {
    /// Still waiting, in this state.
    Waits(Consent),
    /// The call has a result. Contains the arguments if a person changed them.
    Ended(ToolResult, Option<Value>),
}

impl Consent {
    /// Opens the question.
    pub(in crate::thread::nodes) fn ask(
        cx: &mut StepContext<'_>,
        name: String,
        tool_call_id: String,
        request: ConsentRequest,
    ) -> Self {
        let tool = Arc::new(ToolConsent {
            name,
            arguments: request.arguments,
            tool_call_id,
            reason: request.reason,
            schema: request.schema,
        });
        // The effect of the call has been answered already: `NeedsConsent` means that nothing was called.
        let question = OpenQuestion::put(cx, content(&tool, request.timeout_ms));
        Self::Asked {
            question,
            tool,
            timeout_ms: request.timeout_ms,
        }
    }

    /// Requests the result of a call from the run's client. Returns the effect that awaits it.
    pub(in crate::thread::nodes) fn ask_client(cx: &mut StepContext<'_>, call: &ToolCall) -> (EffectId, Self) {
        let call = Arc::new(ClientCall {
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            tool_call_id: call.id.clone(),
        });
        let question = OpenQuestion::put(cx, client_content(&call));
        (question.id, Self::Client { question, call })
    }

    /// Processes an awaited answer. An approved call uses this idempotency key.
    pub(in crate::thread::nodes) fn answer(
        self,
        cx: &mut StepContext<'_>,
        key: EffectId,
        effect: EffectId,
        outcome: Outcome,
    ) -> ConsentOutcome {
        match self {
            Self::Allowed { edited, .. } => ConsentOutcome::Ended(result_of_call(outcome, RESULT_BYTES), edited),
            Self::Client { question, .. } => {
                let result = match question.handle_answer(cx, effect, outcome) {
                    QuestionOutcome::Answered(answer) => {
                        // The answer was checked before it was accepted. An invalid one is an error for the model.
                        ClientCall::read(&answer.answer).unwrap_or_else(|wrong| ToolResult::failed(wrong.to_string()))
                    }
                    // Not reached: the question has no time limit.
                    QuestionOutcome::NobodyInTime => ToolResult::failed("the client sent no result in time"),
                    QuestionOutcome::Failed(error) => ToolResult::failed(error.to_string()),
                };
                ConsentOutcome::Ended(result, None)
            }
            Self::Asked {
                question,
                tool,
                timeout_ms,
            } => {
                let refused =
                    |reason: &str| ToolResult::failed(format!("the call of `{}` was refused: {reason}", tool.name));
                let result = match question.handle_answer(cx, effect, outcome) {
                    QuestionOutcome::Answered(answer) => match ConsentAnswer::read(&answer.answer) {
                        // No result yet: the same call starts now.
                        Ok(ConsentAnswer::Allow(edited)) => return ConsentOutcome::Waits(run(cx, key, &tool, edited)),
                        Ok(ConsentAnswer::Refuse(reason)) => refused(&reason),
                        // Refuse, and do not repeat the question: an answer that cannot be interpreted must not run the tool.
                        Err(expected) => refused(&format!("invalid answer: {expected}")),
                    },
                    QuestionOutcome::NobodyInTime => {
                        // Only a question with a time limit times out, so that the default is never used.
                        let after_ms = timeout_ms.unwrap_or_default();
                        refused(&format!("no answer within {after_ms} ms"))
                    }
                    QuestionOutcome::Failed(error) => ToolResult::failed(error.to_string()),
                };
                ConsentOutcome::Ended(result, None)
            }
        }
    }

    /// Returns the question while it is open.
    pub(in crate::thread::nodes) fn interaction(&self, thread: &ThreadMachine) -> Option<(EffectId, Interaction)> {
        match self {
            // Built on demand, so that the stage stores the call once, not a second time inside the question.
            Self::Asked {
                question,
                tool,
                timeout_ms,
            } => Some((question.id, content(tool, *timeout_ms).of(thread, question.id))),
            Self::Client { question, call } => Some((question.id, client_content(call).of(thread, question.id))),
            // The question was answered.
            Self::Allowed { .. } => None,
        }
    }

    /// Cancels the question or the call.
    pub(in crate::thread::nodes) fn abandon(&self, cx: &mut StepContext<'_>) {
        match self {
            Self::Asked { question, .. } | Self::Client { question, .. } => question.withdraw(cx),
            Self::Allowed { id, .. } => cx.out.push(Effect::Drop { id: *id }),
        }
    }
}

fn content(tool: &Arc<ToolConsent>, timeout_ms: Option<Millis>) -> QuestionContent {
    QuestionContent {
        question: if tool.name == BuiltInTool::RunWorkflow.name() {
            // The plan is the reason: it shows the graph better than its JSON in the arguments.
            format!("May this workflow run? {}", tool.reason).into()
        } else {
            format!("May the tool {} run with {}?", tool.name, tool.arguments).into()
        },
        schema: Some(ConsentAnswer::schema()),
        timeout_ms,
        // Marks the question as an approval: its answer is read by `ConsentAnswer::read`.
        tool: Some(Arc::clone(tool)),
        ..QuestionContent::default()
    }
}

/// Maximum bytes of the output of a workflow as the result of a call: the default of `maxOutputBytes` of other tools.
pub(in crate::thread::nodes) const RESULT_BYTES: usize = 64 << 10;

/// Returns the result of a call for the model. A failed call is a result too: the model, not the node, decides about it. The output of a
/// workflow has at most `limit` bytes.
pub(in crate::thread::nodes) fn result_of_call(outcome: Outcome, limit: usize) -> ToolResult {
    match outcome {
        // Limited by the tool.
        Outcome::Tool(result) => *result,
        // The tool is a workflow. Text is passed on as it is: as JSON it would have quotes.
        Outcome::Child { output } => ToolResult {
            content: match &*output {
                Value::String(text) => cut(text.clone(), limit),
                other => cut(other.to_string(), limit),
            },
            ..ToolResult::default()
        },
        // The message of an error may contain an output too.
        other => ToolResult::failed(cut(with_causes(&failure(other)), RESULT_BYTES)),
    }
}

/// Returns the first `limit` bytes of a text, with a note if it is longer.
fn cut(mut text: String, limit: usize) -> String {
    let bytes = text.len();
    if bytes > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push_str(&ToolResult::cut_note(text.len(), Some(bytes as u64)));
    }
    text
}

/// Describes an error with its causes: the model corrects a call by the cause, such as the failed node of a workflow.
fn with_causes(error: &RunError) -> String {
    let mut text = error.to_string();
    let mut next = error.cause.as_ref();
    while let Some(cause) = next {
        // Writing to a string cannot fail.
        let _ = write!(text, "; cause: {cause}");
        // The position in a script that the model wrote.
        if let Some(details) = &cause.details
            && let (Some(line), Some(column)) = (details["line"].as_u64(), details["column"].as_u64())
        {
            let _ = write!(text, " (line {line}, column {column})");
        }
        next = cause.cause.as_ref();
    }
    text
}

fn client_content(call: &Arc<ClientCall>) -> QuestionContent {
    QuestionContent {
        question: format!("The client executes the tool {} with {}.", call.name, call.arguments).into(),
        schema: Some(ClientCall::schema()),
        // Marks the question as a call of a client tool: its answer is read by `ClientCall::read`.
        client_tool: Some(Arc::clone(call)),
        ..QuestionContent::default()
    }
}

/// Starts the approved call.
fn run(cx: &mut StepContext<'_>, key: EffectId, tool: &ToolConsent, edited: Option<Value>) -> Consent {
    // A new effect, because the first one is answered. The key stays: the first one called nothing.
    let id = cx.next_effect();
    let call = ToolCall {
        id: tool.tool_call_id.clone(),
        name: tool.name.clone(),
        // Cloned: the changed arguments are also reported to the model.
        arguments: edited.as_ref().unwrap_or(&tool.arguments).clone(),
    };
    cx.out.push(Effect::Tool {
        id,
        key,
        node: cx.thread.at,
        call,
        // Without the flag the host would request approval again.
        is_consented: true,
    });
    Consent::Allowed { id, edited }
}
