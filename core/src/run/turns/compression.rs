//! Compression of a conversation: built-in compressions, and applying a result.

use std::sync::Arc;

use pirn_conversation::conversation::compression::{
    Accepted, Compression, CompressionContext, CompressionResult, SummaryPlan, SummaryUse, accept_result, compress,
    finish_summary, finish_with_checklist, missing_statements, transcript,
};
use pirn_conversation::conversation::{
    Basis, Conversation, ConversationInput, CountedMessage, MarkMap, ModelRequest, RequestParts, Tokenizer,
    build_request,
};
use pirn_definition::definition::CompressionConfig;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::message::{Message, Role};
use pirn_events::event::RaisedEvent;
use serde_json::{Value, json};

use super::conversation::{ConversationTurn, refused};
use crate::run::data::last_request::LastRequest;
use crate::run::data::summaries::{MAX_WARNINGS, SummaryWarning, add_warnings};
use crate::run::data::thread_state::PendingSummary;
use crate::thread::{Outcome, SummaryRequest, WrittenSummary};

impl ConversationTurn<'_, '_> {
    /// Returns the input of a built-in compression.
    fn context(&self, config: CompressionConfig) -> CompressionContext {
        let machine = &self.own.machine;
        CompressionContext {
            thread_id: self.thread.thread_id().to_string(),
            workflow_id: self.graph().workflow_id.to_string(),
            messages: machine.conversation().visible().messages(),
            mark_map: MarkMap::default(),
            tokens_used: machine.context_tokens(),
            token_limit: machine.token_limit().tokens.unwrap_or_default(),
            compression_config: Some(config),
        }
    }

    pub(in crate::run) fn compress(&mut self, config: CompressionConfig) -> Outcome {
        let named = config.parameters.get("profileId").and_then(Value::as_str);
        let named: Option<Arc<str>> = named.map(Arc::from);
        let context = self.context(config);
        // Taken before the model writes: a result is rejected if the conversation is reshaped in between.
        let basis = self.own.machine.conversation().basis();
        let tokenizer = self.tokenizer();
        match compress(&context, &*tokenizer) {
            Ok(Compression::Done(result)) => self.take_result(basis, &result, &[]),
            Ok(Compression::Summarize(plan)) => {
                let writer = if self.summaries.has_checklist() {
                    let Some(writer) = self.writer(named.as_ref()) else {
                        let result = finish_with_checklist(&plan, None, &*tokenizer).result;
                        return self.take_result(basis, &result, &[]);
                    };
                    Some(writer)
                } else {
                    named
                };
                let transcript = Arc::new(summary_request(&plan, &*tokenizer));
                // If the writer is the conversation's model: continue its last request, most of which the provider's cache then serves.
                let asked = self.last_request().filter(|asked| {
                    let env = &self.step.env;
                    writer.is_some() && env.profile(writer.as_deref()) == env.profile(asked.profile_id.as_deref())
                });
                let goes_on = asked.and_then(|asked| {
                    let conversation = self.own.machine.conversation();
                    let request = asked.summary_request(conversation, plan.kept.len(), &*tokenizer)?;
                    Some((request, asked.goes_on(Arc::clone(&transcript))))
                });
                // Stored here because the model's answer has the text only.
                self.own.summary = Some(Box::new(PendingSummary {
                    plan: *plan,
                    basis,
                    profile_id: writer.clone(),
                    first: None,
                }));
                let (request, goes_on) = match goes_on {
                    Some((request, goes_on)) => (Arc::new(request), Some(Arc::new(goes_on))),
                    None => (transcript, None),
                };
                Outcome::Summarize(Box::new(SummaryRequest {
                    request,
                    goes_on,
                    profile_id: writer,
                }))
            }
            Err(error) => Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, error.to_string())),
        }
    }

    fn last_request(&self) -> Option<&LastRequest> {
        self.own.requests.as_ref()?.last.as_ref()
    }

    /// Returns the profile that writes a summary: the named one, else that of the node whose request exceeded the limit. Returns `None` if
    /// that is offline or unknown, so that a checklist is the summary.
    fn writer(&self, named: Option<&Arc<str>>) -> Option<Arc<str>> {
        let env = &self.step.env;
        if let Some(named) = named {
            return (env.summary_use(Some(named)) != SummaryUse::Never).then(|| Arc::clone(named));
        }
        let profile_id = match self.last_request() {
            Some(asked) => env.profile(asked.profile_id.as_deref()),
            None => self.summaries.profile_id().cloned(),
        };
        profile_id.filter(|profile_id| env.summary_use(Some(profile_id)) == SummaryUse::Always)
    }

    pub(in crate::run) fn finish_summary(&mut self, written: &WrittenSummary) -> Outcome {
        let Some(mut pending) = self.own.summary.take() else {
            return Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, "no summary was requested"));
        };
        let tokenizer = self.tokenizer();
        if !self.summaries.has_checklist() {
            let result = finish_summary(&pending.plan, &written.text, &*tokenizer);
            return self.take_result(pending.basis, &result, &[]);
        }
        // The end of a truncated text is lost: any statement may have been there.
        let text = (!written.is_truncated && !written.text.trim().is_empty()).then_some(&*written.text);
        if let (Some(text), None) = (text, &pending.first) {
            let missing = missing_statements(&pending.plan, text, &*tokenizer);
            if !missing.is_empty() {
                let request = SummaryRequest {
                    request: Arc::new(repeated_request(text, &missing, &*tokenizer)),
                    goes_on: None,
                    profile_id: pending.profile_id.clone(),
                };
                pending.first = Some(text.to_owned());
                self.own.summary = Some(pending);
                return Outcome::Summarize(Box::new(request));
            }
        }
        let PendingSummary { plan, basis, first, .. } = *pending;
        let summarized = finish_with_checklist(&plan, text.or(first.as_deref()), &*tokenizer);
        let instructions = summarized.instructions.into_iter().map(SummaryWarning::Instruction);
        let truncated = written.is_truncated.then_some(SummaryWarning::Truncated);
        let warnings: Vec<SummaryWarning> = truncated.into_iter().chain(instructions).collect();
        self.take_result(basis, &summarized.result, &warnings)
    }

    /// Applies a compression result atomically and raises COMPRESSION_COMPLETED. On an error nothing changes, and the caller
    /// reports it.
    pub(in crate::run) fn take_result(
        &mut self,
        basis: Basis,
        result: &CompressionResult,
        warnings: &[SummaryWarning],
    ) -> Outcome {
        // Measured before the change, which replaces the messages.
        let before = self.size();
        let accepted = accept_result(self.own.machine.conversation(), basis, result, &*self.tokenizer());
        let taken = match accepted {
            Ok(Accepted::Replace(messages)) => self
                .apply_input(ConversationInput::Replace { basis, messages })
                .map(|_| true),
            Ok(Accepted::NotSmaller) => Ok(false),
            Err(error) => Err(refused(&error)),
        };
        // Also after an error: otherwise the token limit would never be checked again.
        let ended = self.apply_input(ConversationInput::CompressionEnded).err();
        match (taken, ended) {
            (Ok(changed), None) => {
                if changed {
                    self.note_compaction();
                }
                if !warnings.is_empty() {
                    // For the thread that a sub-workflow compresses: it has no other source.
                    let noted = &mut self.own.requests.get_or_insert_default().warnings;
                    let room = MAX_WARNINGS.saturating_sub(noted.len());
                    noted.extend(warnings.iter().take(room).cloned());
                }
                if self.step.listens(EventType::CompressionCompleted) {
                    // Built for a subscriber only: the result contains all messages of the conversation.
                    let mut event = self.compressed(changed, before);
                    event.fields.set("result", json!(result));
                    add_warnings(&mut event, warnings);
                    self.emit(event);
                }
                Outcome::Done
            }
            (Err(error), _) | (Ok(_), Some(error)) => Outcome::Failed(error),
        }
    }

    /// Records a compression as the reason that the next request differs.
    pub(in crate::run) fn note_compaction(&mut self) {
        if let Some(watch) = self.own.requests.as_mut().and_then(|requests| requests.cache.as_mut()) {
            watch.compacted();
        }
    }

    /// Returns the number of visible messages, and their tokens.
    pub(in crate::run) fn size(&self) -> (usize, u64) {
        let conversation = self.own.machine.conversation();
        (conversation.visible().len(), conversation.visible_tokens())
    }

    pub(in crate::run) fn compressed(&self, changed: bool, before: (usize, u64)) -> RaisedEvent {
        let after = self.size();
        RaisedEvent::new(
            EventType::CompressionCompleted,
            [
                ("changed", json!(changed)),
                ("messagesBefore", json!(before.0)),
                ("messagesAfter", json!(after.0)),
                ("tokensBefore", json!(before.1)),
                ("tokensAfter", json!(after.1)),
            ],
        )
    }
}

/// Builds the request to add the missing statements to a summary.
fn repeated_request(summary: &str, missing: &[String], tokenizer: &dyn Tokenizer) -> ModelRequest {
    const ASK: &str = "The summary below lacks some statements of its conversation, which follow it. Write the summary again with each of \
                       them. Keep the rest. Answer with the summary alone.";
    let text = format!("Summary:\n{summary}\n\nMissing statements:\n- {}", missing.join("\n- "));
    request_of(ASK, text, tokenizer)
}

/// Builds the request for a summary.
fn summary_request(plan: &SummaryPlan, tokenizer: &dyn Tokenizer) -> ModelRequest {
    const ASK: &str = "Summarize the conversation below. Keep names, numbers, decisions, open questions and promises. \
                       Answer with the summary alone.";
    request_of(ASK, transcript(&plan.to_summarize), tokenizer)
}

fn request_of(ask: &str, text: String, tokenizer: &dyn Tokenizer) -> ModelRequest {
    let conversation = Conversation::from_messages([
        CountedMessage::new(Message::new(Role::System, ask), tokenizer),
        CountedMessage::new(Message::new(Role::User, text), tokenizer),
    ]);
    build_request(&conversation, &RequestParts::default(), tokenizer)
}
