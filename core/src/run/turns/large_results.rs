//! Large tool results of a run: stored when they join a conversation, and returned by built-in tools.

use pirn_conversation::conversation::{
    CountedMessage, DEFAULT_KEPT_BYTES, DEFAULT_PAGE_TOKENS, DroppedResult, ShownResult, read_artifact, recall,
    shown_result,
};
use pirn_definition::definition::BuiltInTool;
use pirn_definition::event_type::EventType;
use pirn_definition::message::{Message, Role, ToolCall};
use pirn_events::event::RaisedEvent;
use serde_json::{Value, json};

use super::conversation::ConversationTurn;
use crate::thread::{Outcome, ToolResult};

impl ConversationTurn<'_, '_> {
    /// Counts messages that join the conversation. Stores results of more than `limit` tokens and replaces them with previews.
    pub(in crate::run) fn count_and_keep(&mut self, messages: Vec<Message>, limit: u64) -> Vec<CountedMessage> {
        let tokenizer = self.tokenizer();
        let max_bytes = self.graph().config.max_artifact_bytes.unwrap_or(DEFAULT_KEPT_BYTES);
        let mut shown = Vec::with_capacity(messages.len());
        for message in messages {
            // Replies of built-in tools are never stored: the model would receive a preview of the page that it requested.
            if message.role != Role::Tool || self.answers_built_in(&message) {
                shown.push(CountedMessage::new(message, &*tokenizer));
                continue;
            }
            // Copied for the event, because `shown_result` takes the message.
            let call = message.tool_call_id.clone();
            let results = self.results.get_or_insert_default();
            match shown_result(message, (limit, max_bytes), results, &*tokenizer) {
                ShownResult::Whole(counted) => shown.push(counted),
                ShownResult::Preview {
                    counted,
                    id,
                    tokens,
                    dropped,
                } => {
                    // No value is needed: the id is a hash of the content.
                    self.step.env.shared(format_args!("artifact {id}"), &Value::Null);
                    if self.step.listens(EventType::ArtifactKept) {
                        self.emit(RaisedEvent::new(
                            EventType::ArtifactKept,
                            [
                                ("artifactId", json!(id)),
                                ("toolCallId", json!(call)),
                                ("tokens", json!(tokens)),
                                ("previewTokens", json!(counted.tokens)),
                            ],
                        ));
                    }
                    shown.push(counted);
                    for dropped in &dropped {
                        self.emit_dropped(dropped, max_bytes);
                    }
                }
            }
        }
        shown
    }

    fn emit_dropped(&mut self, dropped: &DroppedResult, max_bytes: usize) {
        if self.step.listens(EventType::ArtifactDropped) {
            self.emit(RaisedEvent::new(
                EventType::ArtifactDropped,
                [
                    ("artifactId", json!(dropped.id)),
                    ("bytes", json!(dropped.bytes)),
                    ("maxBytes", json!(max_bytes)),
                ],
            ));
        }
    }

    /// Returns true if the result belongs to a built-in tool with short results, which its call in the conversation shows.
    fn answers_built_in(&self, result: &Message) -> bool {
        let visible = self.own.machine.conversation().visible();
        // From the end: the calls are in the last message that requests tools, so that the scan is short.
        let asked = visible.iter().rev().find(|counted| counted.message.asks_for_tools());
        let calls = asked.into_iter().flat_map(|counted| &counted.message.tool_calls);
        let mut answered = calls.filter(|call| result.tool_call_id.as_ref() == Some(&call.id));
        let reads_a_page = |call: &ToolCall| match BuiltInTool::of_name(&call.name) {
            Some(BuiltInTool::ReadArtifact | BuiltInTool::Recall | BuiltInTool::ToolSearch) => true,
            // A file of a skill and the output of a workflow have no pages.
            Some(BuiltInTool::ReadSkill | BuiltInTool::RunWorkflow | BuiltInTool::RunCode) | None => false,
        };
        answered.any(reads_a_page)
    }

    /// Answers a call of a built-in tool.
    pub(in crate::run) fn built_in(&mut self, tool: BuiltInTool, call: &ToolCall) -> Outcome {
        let limit = self.graph().config.artifact_tokens.unwrap_or(DEFAULT_PAGE_TOKENS);
        let tokenizer = self.tokenizer();
        let answer = match tool {
            BuiltInTool::ReadArtifact => {
                let results = self.results.get_or_insert_default();
                read_artifact(&call.arguments, results, limit, &*tokenizer)
            }
            // Not reached: the run starts a child for these tools.
            BuiltInTool::RunWorkflow | BuiltInTool::RunCode => {
                Err(format!("the conversation does not answer `{}`", call.name))
            }
            BuiltInTool::Recall => recall(&call.arguments, self.own.machine.conversation(), limit, &*tokenizer),
            // Not reached: the thread reads skills, and the host searches.
            BuiltInTool::ToolSearch | BuiltInTool::ReadSkill => Err("the tool is not available here".to_owned()),
        };
        // An error is answered as text too, so that the model can correct its call.
        let failed = answer.is_err();
        Outcome::Tool(Box::new(ToolResult {
            content: answer.unwrap_or_else(|why| why),
            failed,
            ..ToolResult::default()
        }))
    }
}
