//! A model call that a replay has requested, and its settings in this process.

use std::sync::Arc;

use pirn_actors::call_settings::{AskedModel, CallSettings};
use pirn_actors::journal::Graphs;
use pirn_actors::ports::{Models, Tools};
use pirn_core::thread::{ContinuedRequest, Effect, ModelChoice, OfferedTools};
use pirn_definition::definition::Profile;
use pirn_definition::graph::{Graph, NodeIx};

use crate::engine::Engine;

/// The part of a model call that determines its settings.
pub(in crate::engine::durable) struct SentCall {
    pub(in crate::engine::durable) graph: Arc<Graph>,
    pub(in crate::engine::durable) node: NodeIx,
    choice: Option<Arc<ModelChoice>>,
    pub(in crate::engine::durable) goes_on: Option<Arc<ContinuedRequest>>,
    pub(in crate::engine::durable) offered: Option<Arc<OfferedTools>>,
    offers_tools: bool,
}

impl SentCall {
    /// Returns the call of an effect of a thread with this graph; `None` if the effect is no model call.
    pub(in crate::engine::durable) fn of(graph: &Arc<Graph>, effect: &Effect) -> Option<Self> {
        let Effect::Model {
            node,
            offers_tools,
            choice,
            goes_on,
            offered,
            ..
        } = effect
        else {
            return None;
        };
        Some(Self {
            graph: Arc::clone(graph),
            node: *node,
            choice: choice.clone(),
            goes_on: goes_on.clone(),
            offered: offered.clone(),
            offers_tools: *offers_tools,
        })
    }
}

/// The profiles and tools of this process, for the runs of some workflows.
pub(in crate::engine::durable) struct SettingsSource<'a> {
    engine: &'a Engine,
    pub(in crate::engine::durable) models: Arc<dyn Models>,
    pub(in crate::engine::durable) workflows: Graphs,
}

impl<'a> SettingsSource<'a> {
    pub(in crate::engine::durable) fn new(engine: &'a Engine, graphs: &Graphs) -> Self {
        let models = &engine.shared().ports().models;
        Self {
            engine,
            models: models.of_run(graphs).unwrap_or_else(|| Arc::clone(models)),
            workflows: Arc::clone(graphs),
        }
    }

    pub(in crate::engine::durable) fn tools(&self) -> &dyn Tools {
        &*self.engine.shared().ports().tools
    }

    /// Returns the profile of a call, without looking up its tools.
    pub(in crate::engine::durable) fn profile(&self, call: &SentCall) -> Arc<Profile> {
        let chosen = ModelChoice::of(&call.graph, call.node, call.choice.as_deref(), call.goes_on.as_deref());
        self.models.choose(chosen.profile_id.as_deref()).0
    }

    /// Returns the settings of a call.
    pub(in crate::engine::durable) fn of(&self, call: &SentCall) -> CallSettings {
        let asked = AskedModel {
            choice: call.choice.as_deref(),
            goes_on: call.goes_on.as_deref(),
            offers_tools: call.offers_tools,
            offered: call.offered.as_deref(),
        };
        let source = (self.tools(), &self.workflows);
        CallSettings::of(&*self.models, source, &call.graph, call.node, asked)
    }
}
