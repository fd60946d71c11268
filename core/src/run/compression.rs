//! Compression of a conversation: built-in compressions, and applying a result.

use std::sync::Arc;

use pirn_conversation::conversation::compression::{
    Accepted, Compression, CompressionContext, CompressionResult, SummaryPlan, accept_result, compress, finish_summary,
    transcript,
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
use crate::thread::Outcome;

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

    pub(super) fn compress(&mut self, config: CompressionConfig) -> Outcome {
        let writer = config
            .parameters
            .get("profileId")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let context = self.context(config);
        // Taken before the model writes: a result is rejected if the conversation is reshaped in between.
        let basis = self.own.machine.conversation().basis();
        let tokenizer = self.tokenizer();
        match compress(&context, &*tokenizer) {
            Ok(Compression::Done(result)) => self.take_result(basis, &result),
            Ok(Compression::Summarize(plan)) => {
                let transcript = Arc::new(summary_request(&plan, &*tokenizer));
                let asked = self.own.requests.as_ref().and_then(|requests| requests.last.as_ref());
                // If the writer is the conversation's model: continue its last request, most of which the provider's cache then serves.
                let asked = asked.filter(|asked| {
                    let env = &self.step.env;
                    writer.is_some() && env.profile(writer.as_deref()) == env.profile(asked.profile_id.as_deref())
                });
                let goes_on = asked.and_then(|asked| {
                    let conversation = self.own.machine.conversation();
                    let request = asked.summary_request(conversation, plan.kept.len(), &*tokenizer)?;
                    Some((request, asked.goes_on(Arc::clone(&transcript))))
                });
                // Stored here because the model's answer has the text only.
                self.own.summary = Some(Box::new((*plan, basis)));
                match goes_on {
                    Some((request, goes_on)) => Outcome::Summarize(Arc::new(request), Some(Arc::new(goes_on))),
                    None => Outcome::Summarize(transcript, None),
                }
            }
            Err(error) => Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, error.to_string())),
        }
    }

    pub(super) fn finish_summary(&mut self, text: &str) -> Outcome {
        let Some((plan, basis)) = self.own.summary.take().map(|summary| *summary) else {
            return Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, "no summary was requested"));
        };
        let result = finish_summary(&plan, text, &*self.tokenizer());
        self.take_result(basis, &result)
    }

    /// Applies a compression result atomically and raises COMPRESSION_COMPLETED. On an error nothing changes, and the caller
    /// reports it.
    pub(super) fn take_result(&mut self, basis: Basis, result: &CompressionResult) -> Outcome {
        // Measured before the change, which replaces the messages.
        let before = self.size();
        let accepted = accept_result(self.own.machine.conversation(), basis, result, &*self.tokenizer());
        let taken = match accepted {
            Ok(Accepted::Replace(messages)) => self.tell(ConversationInput::Replace { basis, messages }).map(|_| true),
            Ok(Accepted::NotSmaller) => Ok(false),
            Err(error) => Err(refused(&error)),
        };
        // Also after an error: otherwise the token limit would never be checked again.
        let ended = self.tell(ConversationInput::CompressionEnded).err();
        match (taken, ended) {
            (Ok(changed), None) => {
                if self.step.listens(EventType::CompressionCompleted) {
                    // Built for a subscriber only: the result contains all messages of the conversation.
                    let mut event = self.compressed(changed, before);
                    event.fields.set("result", json!(result));
                    self.emit(event);
                }
                Outcome::Done
            }
            (Err(error), _) | (Ok(_), Some(error)) => Outcome::Failed(error),
        }
    }

    /// Returns the number of visible messages, and their tokens.
    pub(super) fn size(&self) -> (usize, u64) {
        let conversation = self.own.machine.conversation();
        (conversation.visible().len(), conversation.visible_tokens())
    }

    pub(super) fn compressed(&self, changed: bool, before: (usize, u64)) -> RaisedEvent {
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

/// Builds the request for a summary.
fn summary_request(plan: &SummaryPlan, tokenizer: &dyn Tokenizer) -> ModelRequest {
    const ASK: &str = "Summarize the conversation below. Keep names, numbers, decisions, open questions and promises. \
                       Answer with the summary alone.";
    let text = transcript(&plan.to_summarize);
    let conversation = Conversation::from_messages([
        CountedMessage::new(Message::new(Role::System, ASK), tokenizer),
        CountedMessage::new(Message::new(Role::User, text), tokenizer),
    ]);
    build_request(&conversation, &RequestParts::default(), tokenizer)
}
