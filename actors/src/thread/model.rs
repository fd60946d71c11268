//! Model calls.

use std::sync::Arc;

use pirn_conversation::conversation::ModelRequest;
use pirn_core::thread::{ContinuedRequest, EffectId, ModelChoice, OfferedTools, Outcome, ThreadMachine};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::NodeIx;
use pirn_events::event::RaisedEvent;
use serde_json::json;

use super::effects::{begun, effect_name, in_flight, label, outcome_answer};
use super::{InFlight, ThreadActor};
use crate::calls::current_call::work_of;
use crate::host::AwaitKind;
use crate::ports::{ModelCall, TokenSink};
use crate::protocol::bus::{BusMsg, Source};
use crate::run::call_settings::{AskedModel, CallSettings};
use crate::run::environment::context_of;
use crate::run::rebuilt_run::ModelAnswered;
use crate::run::run_context::RunContext;
use crate::run::turn::Turn;

impl ThreadActor {
    /// Restores the session of a model that answered this request in an earlier process.
    pub(crate) fn model_answered(&mut self, asked: &ModelAnswered, run: &RunContext) {
        let ModelAnswered {
            graph,
            node,
            request,
            choice,
        } = asked;
        let chosen = ModelChoice::of(graph, *node, choice.as_deref(), None);
        let (profile, model) = run.inline_services.models().choose(chosen.profile_id.as_deref());
        // The same key as in `model`, so that later calls find the session.
        let session = self.sessions.entry(profile.id.clone()).or_default();
        model.answered(request, session);
    }

    pub(super) fn model(
        &mut self,
        (id, key): (EffectId, EffectId),
        node: NodeIx,
        (request, offers_tools, choice, goes_on, offered): ModelCallParts,
        machine: &ThreadMachine,
        turn: &Turn<'_>,
        streams: bool,
    ) -> InFlight {
        let run = turn.run;
        let graph = machine.graph();
        let asked = AskedModel {
            choice: choice.as_deref(),
            goes_on: goes_on.as_deref(),
            offers_tools,
            offered: offered.as_deref(),
        };
        let tools = (&*run.ports().tools, run.inline_services.graphs());
        let settings = CallSettings::of(run.inline_services.models(), tools, graph, node, asked);
        let CallSettings {
            profile,
            model,
            parameters,
            own_parameters,
            tools,
            response_format,
            ..
        } = settings;
        // The clone shares its state with the thread's session.
        let session = self.sessions.entry(profile.id.clone()).or_default().clone();
        let call = ModelCall {
            request,
            profile,
            parameters,
            own_parameters,
            tools,
            response_format,
            session,
            goes_on_from: Arc::clone(goes_on.as_ref().map_or(machine.thread_id(), |before| &before.thread_id)),
            context: context_of(&run.run_id, machine, node, run.supervisor.metadata()),
            key_part: String::new(),
            clock: run.host.work_clock(),
            chance: run.host.random(),
            tokens: if streams {
                token_sink(node, machine, run)
            } else {
                TokenSink::closed()
            },
        };
        let name = Some(effect_name(run, self.no, key));
        let (future, is_external) = begun(
            || {
                let is_external = model.is_external();
                (work_of(machine.trigger_depth(), name, || model.call(call)), is_external)
            },
            |panic| {
                Err(RunError::new(
                    RunErrorCode::ModelError,
                    format!("the model panicked: {panic}"),
                ))
            },
        );
        let answer = outcome_answer(&run.supervisor, self.no, id);
        let work = Box::pin(async move {
            answer.give(match future.await {
                Ok(reply) => Outcome::Reply(Box::new(reply)),
                Err(error) => Outcome::Failed(error),
            });
        });
        in_flight(
            label(self.no, machine, run, node, AwaitKind::Model),
            work,
            is_external,
            turn,
        )
    }
}

/// The request, whether tools are offered, the node's profile and parameters, the earlier request that this one continues, and the
/// tools in addition to those of the node.
type ModelCallParts = (
    Arc<ModelRequest>,
    bool,
    Option<Arc<ModelChoice>>,
    Option<Arc<ContinuedRequest>>,
    Option<Arc<OfferedTools>>,
);

/// Returns a sink that raises LLM_TOKEN events.
fn token_sink(node: NodeIx, machine: &ThreadMachine, run: &RunContext) -> TokenSink {
    let bus = run.bus().clone();
    let run_id = Arc::clone(&run.run_id);
    let workflow_id = Arc::clone(&machine.graph().workflow_id);
    let thread_id = Arc::clone(machine.thread_id());
    let node_id = Arc::clone(&machine.graph().node(node).id);
    let clock = run.host.work_clock();
    // The sink may run on other threads, which can only read the work clock.
    let (wall_clock, began) = (run.host.wall_clock(), clock.now());
    let trigger_depth = machine.trigger_depth();
    // Pieces get no sequence in a durable run: a resumed run repeats its events, but receives different pieces.
    let is_durable = run.is_durable();
    let raise = move |text: &str, is_restart: bool| {
        let fields = [("nodeId", json!(node_id)), ("text", json!(text))];
        let mut raised = RaisedEvent::new(EventType::LlmToken, fields).at_depth(trigger_depth);
        if is_restart {
            raised.fields.set("restart", json!(true));
        }
        let source = Source {
            run_id: Arc::clone(&run_id),
            workflow_id: Arc::clone(&workflow_id),
            thread_id: Arc::clone(&thread_id),
            timestamp: wall_clock + clock.now().saturating_sub(began),
        };
        bus.do_send(if is_durable {
            BusMsg::Token { source, raised }
        } else {
            BusMsg::Raise {
                follows: false,
                sequence: None,
                source,
                raised,
            }
        });
    };
    let again = raise.clone();
    TokenSink::new(move |piece| raise(piece, false)).on_restart(move || again("", true))
}
