//! Conversations of a run. A conversation serves the thread that owns it, and the threads that share it.
//!
//! All requests arrive as messages in FIFO order. A later message of a thread therefore sees everything that it added before.

use std::sync::Arc;

use pirn_conversation::conversation::compression::{current_turn_tokens, replacement};
use pirn_conversation::conversation::{
    Conversation, ConversationEffect, ConversationError, ConversationInput, CountedMessage, LargeResults, MessageRules,
    PinStrategy, Prefix, PrefixBreak, PreparedRequest, RequestParts, RequestPrefix, ResolvedContext, TokenSignal,
    Tokenizer, hash_text,
};
use pirn_conversation::model_call::{CacheReason, CacheReport, CacheUse, PredictedRequest};
use pirn_definition::definition::{ConversationMode, Pinned, VariableScope};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{Graph, LlmNode, NodeIx, NodeKind};
use pirn_definition::message::{Message as ChatMessage, Role};
use pirn_events::event::{Field, RaisedEvent};
use serde_json::json;

use crate::run::ThreadNo;
use crate::run::data::last_request::LastRequest;
use crate::run::data::message::{
    Assigned, Change, ConversationSource, ForkSnapshot, Merge, Message, Request, ThreadRequest, ToConversation,
    ToSupervisor, TriggerContext,
};
use crate::run::data::summaries::{RunSummaryRules, add_warnings};
use crate::run::data::thread_state::ConversationState;
use crate::run::data::user_messages::{UserMessages, event_fields};
use crate::run::parts::globals::Globals;
use crate::run::parts::graphs::Graphs;
use crate::run::parts::mailbox::{Mailbox, answer};
use crate::run::parts::memory::Memory;
use crate::run::parts::tree::Tree;
use crate::run::step::Step;
use crate::thread::{
    self, AnsweredRequest, ContextChange, ConversationOp, OfferedTools, Outcome, ThreadMachine, When, variable_fields,
};

/// A turn of a conversation.
pub(in crate::run) struct ConversationTurn<'t, 'a> {
    pub(in crate::run) owner: ThreadNo,
    /// Thread in whose name events are raised.
    pub(in crate::run) thread: &'t ThreadMachine,
    pub(in crate::run) own: &'t mut ConversationState,
    pub(in crate::run) globals: &'t mut Globals,
    /// Large tool results of the run; `None` until there is one.
    pub(in crate::run) results: &'t mut Option<Box<LargeResults>>,
    pub(in crate::run) mailbox: &'t mut Mailbox,
    pub(in crate::run) memory: &'t mut Memory,
    /// Messages of people; `None` until there is one.
    pub(in crate::run) user_messages: &'t mut Option<Box<UserMessages>>,
    /// Number of triggers between the run's steps and the current change.
    pub(in crate::run) trigger_depth: u32,
    pub(in crate::run) summaries: &'t RunSummaryRules,
    /// Use of the providers' prompt caches; `None` until a reply reports one.
    pub(in crate::run) cache: &'t mut Option<Box<CacheReport>>,
    /// Threads of the run: several may share the conversation, and walk different workflows.
    pub(in crate::run) tree: &'t Tree,
    pub(in crate::run) graphs: &'t Graphs,
    pub(in crate::run) step: &'t mut Step<'a>,
}

impl<'t> ConversationTurn<'t, '_> {
    pub(in crate::run) fn take(&mut self, message: ToConversation) {
        match message {
            ToConversation::Serve {
                thread,
                effect,
                request,
            } => {
                let outcome = self.serve(thread, *request);
                answer(self.mailbox, thread, effect, outcome);
            }
            ToConversation::Forward(thread, mut forwarded) => {
                if let ThreadRequest::Prepared { prepared, .. } = &mut *forwarded {
                    // A compression by the firing may continue this request, most of which the provider has cached.
                    let last = self.own.requests.as_ref().and_then(|requests| requests.last.clone());
                    prepared.asked = last.map(Box::new);
                }
                // Taken for every kind of message, because a snapshot costs the same for any length.
                let conversation = self.own.machine.snapshot();
                forward(self.mailbox, thread, *forwarded, self.owner, Some(conversation));
            }
            ToConversation::Ended(thread, mut ended) => {
                if let Some(artifacts) = &mut ended.artifacts {
                    // A thread that shares the conversation reports no warnings: the owner does.
                    if let Some(requests) = self.own.requests.as_mut().filter(|_| thread == self.owner) {
                        artifacts.warnings = std::mem::take(&mut requests.warnings);
                    }
                    // Added here and not by the thread: everything that the thread sent before its end is included by now.
                    artifacts.conversation = Some(self.own.machine.conversation().clone());
                }
                self.mailbox
                    .send(Message::Supervisor(ToSupervisor::Ended { thread, ended }));
            }
            ToConversation::CompressionEnded => self.compression_ended(),
        }
    }

    fn serve(&mut self, thread: ThreadNo, request: Request) -> Outcome {
        match request {
            Request::Do {
                op,
                pinned,
                budget,
                tool_tokens,
                offered,
                rules,
            } => self.answer_op((thread, op), (pinned, budget), (tool_tokens, offered), rules),
            Request::Merge(merge) => {
                let own = self.trigger_depth;
                // Events of this change are links of the trigger's chain. Later changes of the thread are not.
                self.trigger_depth = own.max(merge.trigger_depth);
                let outcome = self.merge_with_globals(*merge);
                self.trigger_depth = own;
                outcome
            }
            // No signal is lost with `Ok(_)`: only `BeforeModelCall` raises one.
            Request::Restore { conversation, then } => match self.apply_input(ConversationInput::Restore(conversation))
            {
                Ok(_) => then,
                Err(error) => Outcome::Failed(not_restored().caused_by(error)),
            },
        }
    }

    pub(in crate::run) fn graph(&self) -> &Graph {
        self.thread.graph()
    }

    pub(in crate::run) fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        self.step.env.tokenizer(self.graph())
    }

    /// Enables the token limit check again after a compression, successful or not.
    fn compression_ended(&mut self) {
        // Cannot fail: the input only enables the check.
        let _: Result<Vec<TokenSignal>, RunError> = self.apply_input(ConversationInput::CompressionEnded);
    }

    fn count(&self, messages: Vec<ChatMessage>) -> Vec<CountedMessage> {
        let tokenizer = self.tokenizer();
        messages
            .into_iter()
            .map(|message| CountedMessage::new(message, &*tokenizer))
            .collect()
    }

    pub(in crate::run) fn emit(&mut self, event: RaisedEvent) {
        let event = event.at_depth(self.trigger_depth);
        self.step.emit(self.thread.graph(), self.thread.thread_id(), event);
    }

    /// Steps the conversation's machine and raises its events. Returns an error if the machine rejects the input.
    pub(in crate::run) fn apply_input(&mut self, input: ConversationInput) -> Result<Vec<TokenSignal>, RunError> {
        let mut effects = Vec::new();
        let before = self.own.machine.conversation().memory_total();
        self.own.machine.step(self.step.now, input, &mut effects);
        let after = self.own.machine.conversation().memory_total();
        // A compression may shrink the conversation. The account only grows until the run is measured.
        self.memory.made(after.saturating_sub(before));
        let mut signals = Vec::new();
        for effect in effects {
            match effect {
                ConversationEffect::MessageAdded { index, message } => {
                    if self.step.listens(EventType::MessageAdded) {
                        // Converted to JSON only if a subscriber reads the event: messages may be large.
                        let shown = message.message.lazy_json();
                        self.emit(RaisedEvent::of(
                            EventType::MessageAdded,
                            [
                                ("index", Field::from(json!(index))),
                                ("message", (&shown).into()),
                                ("tokens", json!(message.tokens).into()),
                            ],
                        ));
                    }
                }
                // Nothing to do: a pending compression compares the version when its result is applied.
                ConversationEffect::Reshaped { .. } => {}
                ConversationEffect::Signal(signal) => signals.push(signal),
                ConversationEffect::Rejected(error) => {
                    return Err(refused(&error));
                }
            }
        }
        Ok(signals)
    }

    fn done(&mut self, input: ConversationInput) -> Outcome {
        match self.apply_input(input) {
            Ok(_) => Outcome::Done,
            Err(error) => Outcome::Failed(error),
        }
    }

    fn answer_op(
        &mut self,
        (thread, op): (ThreadNo, ConversationOp),
        (pinned, budget): (Option<Box<Pinned>>, Option<String>),
        (tool_tokens, offered): (u64, Option<Box<OfferedTools>>),
        rules: MessageRules,
    ) -> Outcome {
        match op {
            ConversationOp::Append(messages) => self.append(messages),
            ConversationOp::AppendReply(reply) => {
                let AnsweredRequest { node, message, cache } = *reply;
                // Before the reply is added: the conversation is the one that the request has sent.
                self.observe_cache((thread, node), &cache);
                self.append(vec![message])
            }
            ConversationOp::AddUserMessages(when) => self.add_user_messages(when),
            ConversationOp::BuiltIn(tool, call) => self.built_in(tool, &call),
            ConversationOp::Apply(change) => {
                let change = match change {
                    ContextChange::Insert { messages, position } => ResolvedContext::Insert {
                        messages: self.count(messages),
                        position,
                    },
                    ContextChange::Replace { target, messages } => ResolvedContext::Replace {
                        target,
                        messages: self.count(messages),
                    },
                    ContextChange::Truncate(truncate) => ResolvedContext::Truncate(truncate),
                    ContextChange::Clear { keep_system } => ResolvedContext::Clear { keep_system },
                    ContextChange::Filter(filter) => ResolvedContext::Filter(filter),
                };
                self.done(ConversationInput::Apply(change))
            }
            ConversationOp::Prepare {
                agent,
                system,
                node,
                choice,
                recheck,
            } => {
                let from_end = self.graph().config.from_end;
                let (tool_tokens, offered) = self.offered(tool_tokens, offered);
                let parts = RequestParts {
                    agent,
                    pinned: pinned.as_deref(),
                    budget: budget.as_deref(),
                    strategy: from_end.map_or_else(PinStrategy::default, PinStrategy::FromEnd),
                    system: system.as_deref(),
                    pending: None,
                    tool_tokens,
                    rules,
                };
                let chosen = choice.as_deref();
                let asked_by = self.llm_node(thread, node);
                let profile_id = chosen
                    .and_then(|choice| choice.profile_id.as_ref())
                    .or_else(|| asked_by?.profile_id.as_ref());
                let mut outcome = self.prepare(&parts, (asked_by, profile_id), recheck);
                if let Outcome::Prepared(prepared) = &mut outcome {
                    prepared.offered.clone_from(&offered);
                }
                let strategy = parts.strategy;
                // Only LLM nodes prepare requests: there is nothing that a summary could continue.
                let Some(llm) = asked_by else {
                    return outcome;
                };
                let last = LastRequest {
                    thread_id: Arc::clone(self.thread.thread_id()),
                    profile_id: profile_id.cloned(),
                    tools: llm.tools.clone(),
                    offered,
                    parameters: chosen
                        .and_then(|choice| choice.parameters.clone())
                        .or_else(|| llm.parameters.clone()),
                    agent,
                    system,
                    pinned,
                    budget,
                    strategy,
                    tool_tokens,
                    rules,
                };
                // After `prepare`, which borrows the parts that move into `last`.
                self.own.requests.get_or_insert_default().last = Some(last);
                outcome
            }
            ConversationOp::Compress(config) => self.compress(config),
            ConversationOp::FinishSummary(written) => self.finish_summary(&written),
            // Not reached: the thread's turn sends a merge as `Request::Merge`, with its content.
            ConversationOp::Merge(_) => Outcome::Done,
        }
    }

    fn append(&mut self, messages: Vec<ChatMessage>) -> Outcome {
        let messages = match self.graph().config.artifact_tokens {
            // Without a limit no result is stored, and the search for built-in calls is saved.
            None => self.count(messages),
            Some(limit) => self.count_and_keep(messages, limit),
        };
        self.done(ConversationInput::Append(messages))
    }

    /// Returns an LLM node of the workflow that the thread walks. A thread that shares the conversation walks another one than its owner.
    fn llm_node(&self, thread: ThreadNo, node: NodeIx) -> Option<&'t LlmNode> {
        match &self.graphs.get(self.tree.get(thread)?.graph).node(node).kind {
            NodeKind::Llm(llm) => Some(llm),
            _ => None,
        }
    }

    /// Adds the messages of people that are due.
    fn add_user_messages(&mut self, when: When) -> Outcome {
        let due = self
            .user_messages
            .as_mut()
            .map_or_else(Vec::new, |waiting| waiting.take(when));
        let messages = due
            .iter()
            .map(|message| ChatMessage::new(Role::User, String::from(&*message.text)));
        let messages = self.count(messages.collect());
        let outcome = self.done(ConversationInput::Append(messages));
        if self.step.listens(EventType::UserMessage) {
            for message in &due {
                self.emit(RaisedEvent::new(EventType::UserMessage, event_fields(message, "ADDED")));
            }
        }
        outcome
    }

    fn prepare(
        &mut self,
        parts: &RequestParts<'_>,
        asked_by: (Option<&LlmNode>, Option<&Arc<str>>),
        recheck: bool,
    ) -> Outcome {
        let tokenizer = self.tokenizer();
        // The outline is cached between requests, so that an unchanged history is not examined again.
        let outline = &mut self.own.requests.get_or_insert_default().outline;
        let request = outline.prepare(self.own.machine.conversation(), parts, &*tokenizer);
        let mut events = Vec::new();
        let listens = self.step.listens(EventType::RequestPrepared);
        if listens || self.watches_cache() {
            let prefix = self.compare(&request, opening(asked_by, parts.tool_tokens), recheck);
            if listens {
                events.push(self.prepared(&request, prefix, asked_by.1));
            }
        } else if let Some(requests) = &mut self.own.requests {
            // Without a subscriber this request is not recorded. A comparison with an older one would be wrong.
            requests.prefix = None;
        }
        if !request.repairs().is_empty() {
            events.push(RaisedEvent::new(
                EventType::RequestRepaired,
                [("repairs", json!(request.repairs()))],
            ));
        }
        let signals = match self.apply_input(ConversationInput::BeforeModelCall {
            tokens: request.tokens(),
            is_repeated: recheck,
        }) {
            Ok(signals) => signals,
            Err(error) => return Outcome::Failed(error),
        };
        for signal in signals {
            let (event_type, used, limit) = match signal {
                TokenSignal::Exceeded {
                    tokens_used,
                    token_limit,
                } => (EventType::TokenLimitExceeded, tokens_used, token_limit),
                TokenSignal::Warning {
                    tokens_used,
                    token_limit,
                } => (EventType::TokenUsageWarning, tokens_used, token_limit),
                TokenSignal::Approached {
                    tokens_used,
                    token_limit,
                } => (EventType::TokenLimitApproached, tokens_used, token_limit),
            };
            let mut event = RaisedEvent::new(event_type, [("tokensUsed", json!(used)), ("tokenLimit", json!(limit))]);
            if event_type == EventType::TokenLimitApproached {
                let share = json!(self.own.machine.token_limit().speculative_at);
                event.fields.set("speculativeAt", share);
            }
            if event_type == EventType::TokenLimitExceeded {
                // A compression retains the current turn, so that none can help then.
                let turn = current_turn_tokens(self.own.machine.conversation());
                if turn > limit {
                    event.fields.set("currentTurnTokens", json!(turn));
                }
            }
            events.push(event);
        }
        // The thread raises the events, because it must wait for the triggers that hold it.
        Outcome::Prepared(thread::RequestWithEvents {
            request: Arc::new(request),
            events,
            // Set by the caller, which stores the tools for summaries too.
            offered: None,
        })
    }

    /// Adds the deferred tools that the conversation has revealed to the tools that a request offers in addition to those of its node,
    /// and counts them. Returns the tokens of all tools.
    fn offered(&self, tokens: u64, offered: Option<Box<OfferedTools>>) -> (u64, Option<Arc<OfferedTools>>) {
        let Some(mut offered) = offered else {
            return (tokens, None);
        };
        // The complete history: a compression hides the messages that have revealed tools.
        let history = self.own.machine.conversation().complete();
        offered.reveal(history.iter().map(|counted| &*counted.message));
        let tokenizer = self.tokenizer();
        let counted = offered.definitions().map(|tool| tokenizer.count(&tool.counted_text()));
        let revealed = self.step.env.tool_tokens(self.graph(), &offered.revealed);
        let tokens = counted.fold(tokens.saturating_add(revealed), u64::saturating_add);
        (tokens, Some(Arc::from(offered)))
    }

    /// Returns true if the replies of the conversation's model report the use of a cache, which is compared with the prefix.
    fn watches_cache(&self) -> bool {
        let watch = self.own.requests.as_ref().and_then(|requests| requests.cache.as_ref());
        watch.is_some_and(|watch| watch.needs_prediction())
    }

    /// Compares a request with the previous one. `recheck` means that it replaces the previous one, which was not sent.
    fn compare(&mut self, request: &PreparedRequest, opening: RequestPrefix, recheck: bool) -> Prefix {
        let (tokenizer, at) = (self.tokenizer(), self.step.now);
        let requests = self.own.requests.get_or_insert_default();
        let watch = requests.prefix.get_or_insert_default();
        let prefix = watch.prepared(request, &requests.outline, opening, recheck, &*tokenizer);
        if let Some(cache) = &mut requests.cache {
            let predicted = PredictedRequest {
                stable: prefix.tokens,
                tokens: request.tokens(),
                broken: prefix.broken,
                at,
            };
            cache.prepared(predicted, recheck);
        }
        prefix
    }

    /// Builds the REQUEST_PREPARED event.
    fn prepared(&self, request: &PreparedRequest, prefix: Prefix, profile_id: Option<&Arc<str>>) -> RaisedEvent {
        let mut event = RaisedEvent::new(
            EventType::RequestPrepared,
            [
                ("profileId", json!(profile_id)),
                ("tokensUsed", json!(request.tokens())),
                ("tokenLimit", json!(self.own.machine.token_limit().tokens)),
                ("messages", json!(request.len())),
                ("pinnedAt", json!(request.inserted_at())),
                ("stablePrefixTokens", json!(prefix.tokens)),
            ],
        );
        add_break(&mut event, prefix.broken);
        event
    }

    /// Compares the use of the provider's prompt cache with the prediction of the request that was answered.
    fn observe_cache(&mut self, (thread, node): (ThreadNo, NodeIx), used: &CacheUse) {
        let (tokenizer, llm) = (self.tokenizer(), self.llm_node(thread, node));
        // Both exist: the request was prepared here.
        let Some(requests) = self.own.requests.as_deref_mut() else {
            return;
        };
        let Some(last) = &requests.last else { return };
        let watch = requests.cache.get_or_insert_default();
        let observed = watch.answered(hash_text(&last.profile_id), used, self.step.now);
        // The first figure: the next request is compared with the answered one, which has not been recorded.
        if watch.needs_prediction() && requests.prefix.is_none() {
            let outline = &mut requests.outline;
            let request = outline.prepare(self.own.machine.conversation(), &last.parts(), &*tokenizer);
            let opening = opening((llm, last.profile_id.as_ref()), last.tool_tokens);
            let watch = requests.prefix.get_or_insert_default();
            watch.prepared(&request, outline, opening, false, &*tokenizer);
        }
        let Some(observed) = observed else { return };
        self.cache.get_or_insert_default().add(&observed);
        let Some(reason) = observed.reason.filter(|_| self.step.listens(EventType::CacheCollapsed)) else {
            return;
        };
        let node_id = self.tree.get(thread).map(|at| &self.graphs.get(at.graph).node(node).id);
        let mut fields = vec![
            ("nodeId", json!(node_id)),
            ("reason", json!(reason)),
            ("expectedTokens", json!(observed.expected)),
        ];
        if reason != CacheReason::Unreported {
            fields.extend([
                ("stableTokens", json!(observed.stable)),
                ("readTokens", json!(observed.read)),
                ("lostTokens", json!(observed.lost)),
                ("idleMs", json!(observed.idle_ms)),
            ]);
            fields.extend(observed.cost.map(|cost| ("cost", json!(cost))));
        }
        let mut event = RaisedEvent::of(EventType::CacheCollapsed, fields);
        add_break(&mut event, observed.broken);
        self.emit(event);
    }

    fn merge_with_globals(&mut self, mut merge: Merge) -> Outcome {
        // Taken out because `merge` is consumed before they are assigned.
        let globals = std::mem::take(&mut merge.globals);
        // Dry run on a copy: the variables and the messages change together or not at all.
        if let Err(error) = (**self.globals).clone().assign_all(&globals) {
            if merge.is_compression {
                // The compression is over although nothing was applied: the token limit must be checked again.
                self.compression_ended();
            }
            return Outcome::Failed(error);
        }
        match self.merge(merge) {
            Outcome::Done => self.take_globals(globals),
            refused => refused,
        }
    }

    fn take_globals(&mut self, values: Assigned) -> Outcome {
        for (name, value) in values {
            let value = match self.globals.assign(self.step, &name, value, false) {
                Ok(value) => value,
                // Not reached after the dry run of `merge_with_globals`, in the same turn.
                Err(error) => return Outcome::Failed(error),
            };
            if self.step.listens(EventType::VariableChanged) {
                let fields = variable_fields(&name, &value, VariableScope::Global);
                self.emit(RaisedEvent::of(EventType::VariableChanged, fields));
            }
        }
        Outcome::Done
    }

    fn merge(&mut self, merge: Merge) -> Outcome {
        let before = self.size();
        let (outcome, changed) = match merge.change {
            Change::Nothing => (Outcome::Done, false),
            Change::Append(messages) => {
                let messages = self.count(messages);
                (self.done(ConversationInput::Append(messages)), true)
            }
            Change::Replace { basis, messages } => {
                let outcome = match replacement(self.own.machine.conversation(), basis, self.count(messages)) {
                    Ok(messages) => self.done(ConversationInput::Replace { basis, messages }),
                    Err(error) => Outcome::Failed(refused(&error)),
                };
                (outcome, true)
            }
            // `take_result` raises the event and enables the check itself.
            Change::Compressed { basis, result } => return self.take_result(basis, &result, &[]),
        };
        if merge.is_compression {
            // Enable the token limit check again, whether the change succeeded or not.
            self.compression_ended();
            let is_done = matches!(outcome, Outcome::Done);
            if is_done && changed {
                self.note_compaction();
            }
            if is_done && self.step.listens(EventType::CompressionCompleted) {
                let mut event = self.compressed(changed, before);
                add_warnings(&mut event, &merge.warnings);
                self.emit(event);
            }
        }
        outcome
    }
}

/// Returns the hashes of what precedes the messages of a request. Only LLM nodes have one.
fn opening((asked_by, profile_id): (Option<&LlmNode>, Option<&Arc<str>>), tool_tokens: u64) -> RequestPrefix {
    let opening = asked_by.map(|llm| RequestPrefix {
        profile: hash_text(profile_id),
        // The tokens stand for the definitions of the tools, which the node only names.
        tools: hash_text(&llm.tools) ^ tool_tokens,
        format: hash_text(llm.response_format.as_ref().map(ToString::to_string)),
    });
    opening.unwrap_or_default()
}

/// Adds the first difference from the previous request to an event.
fn add_break(event: &mut RaisedEvent, broken: Option<(usize, PrefixBreak)>) {
    if let Some((at, why)) = broken {
        event.fields.set("brokenAt", json!(at));
        event.fields.set("why", json!(why));
    }
}

/// Handles a message to a conversation that was lost or has ended with its thread, so that no sender waits for ever.
pub(in crate::run) fn refuse(mailbox: &mut Mailbox, owner: ThreadNo, message: ToConversation) {
    match message {
        ToConversation::Serve { thread, effect, .. } => answer(mailbox, thread, effect, Outcome::Failed(lost())),
        ToConversation::Forward(thread, forwarded) => forward(mailbox, thread, *forwarded, owner, None),
        ToConversation::Ended(thread, ended) => {
            // Without a conversation, but not dropped: the supervisor waits for the end of every thread.
            mailbox.send(Message::Supervisor(ToSupervisor::Ended { thread, ended }));
        }
        ToConversation::CompressionEnded => {}
    }
}

/// Forwards a thread's message to the supervisor with a snapshot of the conversation. Without a conversation the thread has
/// ended or is about to end, so that messages which need one are dropped.
fn forward(
    mailbox: &mut Mailbox,
    thread: ThreadNo,
    forwarded: ThreadRequest,
    owner: ThreadNo,
    conversation: Option<Conversation>,
) {
    let message = match forwarded {
        ThreadRequest::Fork { effect, fork, snapshot } => {
            let Some(conversation) = conversation else { return };
            ToSupervisor::Fork {
                thread,
                effect,
                fork,
                start: Box::new(ForkSnapshot { snapshot, conversation }),
            }
        }
        ThreadRequest::Map { effect, node, inputs } => {
            let Some(conversation) = conversation else { return };
            ToSupervisor::Map {
                thread,
                effect,
                node,
                inputs,
                conversation: Box::new(conversation),
            }
        }
        ThreadRequest::Call {
            effect,
            node,
            callee,
            input,
            mode,
        } => {
            let conversation = match (mode, conversation) {
                // The owner, not the caller: a caller that shares a conversation itself passes on that one.
                (ConversationMode::Share, _) => ConversationSource::Shared(owner),
                (ConversationMode::None, _) => ConversationSource::Snapshot(Conversation::new()),
                (ConversationMode::Fork, Some(conversation)) => ConversationSource::Snapshot(conversation),
                (ConversationMode::Fork, None) => return,
            };
            ToSupervisor::Call {
                thread,
                effect,
                node,
                callee,
                input,
                conversation: Box::new(conversation),
            }
        }
        ThreadRequest::Drop { effect } => ToSupervisor::Drop { thread, effect },
        ThreadRequest::Prepared { firing, prepared } => {
            // Sent without a conversation too: the supervisor then refuses the firing, which would be open for ever.
            let prepared = conversation.map(|conversation| {
                Box::new(TriggerContext {
                    conversation,
                    // `ThreadTurn::describe` has sent an empty conversation in this field.
                    ..prepared
                })
            });
            ToSupervisor::Prepared { firing, prepared }
        }
    };
    mailbox.send(Message::Supervisor(message));
}

/// Converts the rejection of an input.
pub(in crate::run) fn refused(error: &ConversationError) -> RunError {
    RunError::new(RunErrorCode::NodeFailed, error.to_string()).with_details(json!({ "code": error.code() }))
}

/// Returns the error for a conversation whose actor panicked.
pub(in crate::run) fn lost() -> RunError {
    RunError::new(RunErrorCode::ActorPanicked, "the conversation's actor has panicked")
}

/// Returns the error for a join that cannot restore the main path's conversation.
pub(in crate::run) fn not_restored() -> RunError {
    RunError::new(
        RunErrorCode::ConversationManagerMergeFailed,
        "the main path's conversation could not be restored",
    )
}
