//! Model calls and what they need of the conversation.

use std::rc::Rc;
use std::sync::Arc;

use actix::{Addr, AsyncContext, Context};
use pirn_core::conversation::Conversation;
use pirn_core::definition::Pinned;
use pirn_core::event::{EventType, RaisedEvent};
use pirn_core::graph::{NodeIx, NodeKind};
use pirn_core::thread::{ConversationOp, EffectId, Outcome};
use serde_json::{Value, json};

use super::carry::outcome_answer;
use super::{InFlight, ThreadActor, ThreadMsg};
use crate::contain::{Exit, start_contained};
use crate::conversation::{ConversationActor, ConversationMsg};
use crate::events::BusMsg;
use crate::ports::{ModelCall, TokenSink};

impl ThreadActor {
    pub(super) fn model(
        &mut self,
        id: EffectId,
        node: NodeIx,
        request: Arc<pirn_core::conversation::ModelRequest>,
        context: &mut Context<Self>,
    ) {
        let graph = Arc::clone(self.machine.graph());
        let (profile_id, node_parameters, response_format) = match &graph.node(node).kind {
            NodeKind::Llm(llm) => (
                llm.profile_id.clone(),
                llm.parameters.clone(),
                llm.response_format.clone(),
            ),
            NodeKind::Context(pirn_core::graph::ContextNode::Compress(config)) => {
                let named = config.parameters.get("profileId").and_then(Value::as_str);
                (Some(Arc::from(named.unwrap_or("extractive"))), None, None)
            }
            _ => (None, None, None),
        };
        let (profile, model) = self.run.engine.ports.models.choose(profile_id.as_deref());
        let mut parameters = profile.parameters.clone().unwrap_or_default();
        parameters.extend(
            node_parameters
                .iter()
                .flat_map(|more| more.iter().map(|(name, value)| (name.clone(), value.clone()))),
        );
        let tools = self.run.engine.ports.tools.specs(&self.tools_of(node));
        let session = self.sessions.entry(profile.id.clone()).or_default().clone();
        let tokens = self.token_sink(node);
        let clock = self.run.host.work_clock();
        let is_external = model.is_external();
        let future = model.call(ModelCall {
            request,
            profile,
            parameters,
            tools,
            response_format,
            session,
            clock,
            tokens,
        });
        let answer = outcome_answer(context.address(), id);
        let work = Box::pin(async move {
            answer.give(match future.await {
                Ok(reply) => Outcome::Reply(reply),
                Err(error) => Outcome::Failed(error),
            });
        });
        let handle = if is_external {
            self.run.host.external(work)
        } else {
            self.run.host.work(work)
        };
        self.in_flight.insert(id, InFlight::Work(handle));
    }

    /// LLM_TOKEN events, where somebody listens to them.
    fn token_sink(&self, node: NodeIx) -> TokenSink {
        if !self.run.listens(EventType::LlmToken) {
            return TokenSink::closed();
        }
        let bus = self.run.engine.bus.clone();
        let run_id = Arc::clone(&self.run.run_id);
        let workflow_id = Arc::clone(&self.machine.graph().workflow_id);
        let thread_id = Arc::clone(self.machine.thread_id());
        let node_id = Arc::clone(&self.machine.graph().node(node).id);
        let timestamp = self.run.host.wall_clock();
        TokenSink::new(move |piece| {
            bus.do_send(BusMsg::Raise {
                run_id: Arc::clone(&run_id),
                workflow_id: Arc::clone(&workflow_id),
                thread_id: Arc::clone(&thread_id),
                timestamp,
                raised: RaisedEvent::new(
                    EventType::LlmToken,
                    [("nodeId", json!(node_id)), ("text", json!(piece))],
                ),
            });
        })
    }

    pub(super) fn tools_of(&self, node: NodeIx) -> Vec<Arc<str>> {
        match &self.machine.graph().node(node).kind {
            NodeKind::Llm(llm) => llm.tools.clone(),
            _ => Vec::new(),
        }
    }

    pub(super) fn converse(&mut self, id: EffectId, op: ConversationOp, context: &mut Context<Self>) {
        let answer = outcome_answer(context.address(), id);
        let conversation = self.conversation_actor(context);
        let message = match op {
            ConversationOp::Merge(firing) => {
                let Some(merge) = self.merges.remove(&firing) else {
                    return answer.give(Outcome::Done);
                };
                ConversationMsg::Merge { merge, answer }
            }
            ConversationOp::Prepare { node, .. } => {
                let specs = self.run.engine.ports.tools.specs(&self.tools_of(node));
                let tool_tokens = if specs.is_empty() { 0 } else { self.tool_tokens(&specs) };
                let pinned = self.pinned();
                ConversationMsg::Do {
                    op,
                    pinned: Some(pinned),
                    tool_tokens,
                    answer,
                }
            }
            op => ConversationMsg::Do {
                op,
                pinned: None,
                tool_tokens: 0,
                answer,
            },
        };
        conversation.do_send(message);
    }

    fn pinned(&self) -> Pinned {
        let mut pinned = self.run.pinned.borrow().clone();
        if let Some(agent) = self.machine.agent() {
            pinned.role.clone_from(&agent.role);
        }
        pinned
    }

    fn tool_tokens(&self, specs: &[crate::ports::ToolSpec]) -> u64 {
        let tokenizer = (self.run.engine.ports.tokenizer)(self.settings.tokenizer.as_deref());
        specs
            .iter()
            .map(|spec| tokenizer.count(&format!("{} {} {}", spec.name, spec.description, spec.parameters)))
            .sum()
    }

    /// The conversation's actor, started when it is first needed.
    pub(super) fn conversation_actor(&mut self, context: &mut Context<Self>) -> Addr<ConversationActor> {
        if let Some(address) = &self.conversation.address {
            return address.clone();
        }
        let actor = ConversationActor::new(
            Rc::clone(&self.run),
            self.conversation.seed.clone(),
            self.settings.clone(),
        );
        let thread = context.address();
        let address = start_contained(&self.run.host, actor, move |exit| {
            if let Exit::Panicked { message } = exit {
                thread.do_send(ThreadMsg::ConversationLost { message });
            }
        });
        self.conversation.address = Some(address.clone());
        self.conversation.seed = Conversation::new();
        address
    }
}
