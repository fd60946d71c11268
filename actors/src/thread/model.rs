//! Model calls and what they need of the conversation.

use std::sync::Arc;

use pirn_core::event::{EventType, RaisedEvent};
use pirn_core::graph::{NodeIx, NodeKind};
use pirn_core::thread::{EffectId, Outcome};
use serde_json::{Value, json};

use super::carry::outcome_answer;
use super::turn::Turn;
use super::{InFlight, ThreadActor};
use crate::events::{BusMsg, Source};
use crate::host::Asked;
use crate::ports::{ModelCall, TokenSink};

impl ThreadActor {
    pub(super) fn model(
        &mut self,
        id: EffectId,
        node: NodeIx,
        request: Arc<pirn_core::conversation::ModelRequest>,
        turn: &mut dyn Turn,
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
        let session = self.rare().sessions.entry(profile.id.clone()).or_default().clone();
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
            chance: self.run.host.random(),
            tokens,
        });
        self.tell_asks(node, Asked::Model);
        let answer = outcome_answer(turn.address(), id);
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
        let bus = self.run.bus().clone();
        let run_id = Arc::clone(&self.run.run_id);
        let workflow_id = Arc::clone(&self.machine.graph().workflow_id);
        let thread_id = Arc::clone(self.machine.thread_id());
        let node_id = Arc::clone(&self.machine.graph().node(node).id);
        let clock = self.run.host.work_clock();
        let (wall_clock, began) = (self.run.host.wall_clock(), clock.now());
        let trigger_depth = self.machine.trigger_depth();
        let raise = move |text: &str, is_restart: bool| {
            let fields = [("nodeId", json!(node_id)), ("text", json!(text))];
            let mut raised = RaisedEvent::new(EventType::LlmToken, fields).at_depth(trigger_depth);
            if is_restart {
                raised.data.insert("restart".to_owned(), json!(true));
            }
            bus.do_send(BusMsg::Raise {
                follows: false,
                source: Source {
                    run_id: Arc::clone(&run_id),
                    workflow_id: Arc::clone(&workflow_id),
                    thread_id: Arc::clone(&thread_id),
                    timestamp: wall_clock + clock.now().saturating_sub(began),
                },
                raised,
            });
        };
        let again = raise.clone();
        TokenSink::new(move |piece| raise(piece, false)).on_restart(move || again("", true))
    }

    pub(super) fn tools_of(&self, node: NodeIx) -> Vec<Arc<str>> {
        match &self.machine.graph().node(node).kind {
            NodeKind::Llm(llm) => llm.tools.clone(),
            _ => Vec::new(),
        }
    }
}
