//! Workflows that the threads of a run walk; usually one.

use std::sync::Arc;

use pirn_conversation::conversation::TokenLimit;
use pirn_definition::graph::Graph;
use serde::{Deserialize, Serialize};

use crate::run::environment::RunEnvironment;

/// Index of a workflow in its run.
pub(in crate::run) type GraphNo = u32;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    workflow_id: Arc<str>,
    /// Source of a workflow that was written during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<Arc<str>>,
    #[serde(skip)]
    graph: Option<Arc<Graph>>,
    /// Cached for the run, so that a fork of many branches does not look it up for each.
    token_limit: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    speculative_at: Option<f64>,
}

/// Workflows of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct Graphs(Vec<Entry>);

impl Graphs {
    pub(in crate::run) fn add(&mut self, graph: &Arc<Graph>, env: &dyn RunEnvironment) -> GraphNo {
        let is_same = |known: &Arc<Graph>| {
            // A workflow that was written during the run is compiled again after a replay: equal sources have equal graphs.
            Arc::ptr_eq(known, graph) || (known.source.is_some() && known.source == graph.source)
        };
        let known = |entry: &Entry| entry.graph.as_ref().is_some_and(is_same);
        // A scan: a run has few workflows.
        let place = self.0.iter().position(known).unwrap_or_else(|| {
            // Most runs have one workflow: a list that doubles would reserve room for four.
            self.0.reserve_exact(1);
            let token_limit = graph.config.token_limit.or_else(|| env.token_limit(graph));
            self.0.push(Entry {
                workflow_id: Arc::clone(&graph.workflow_id),
                source: graph.source.clone(),
                graph: Some(Arc::clone(graph)),
                token_limit,
                speculative_at: (graph.config.compression.as_ref())
                    .and_then(|compression| compression.speculative_at)
                    // Meaningless without a limit.
                    .or_else(|| token_limit.and_then(|_| env.speculative_at())),
            });
            self.0.len() - 1
        });
        place as GraphNo
    }

    /// # Panics
    /// Panics after deserialization until [`Self::attach`] is called.
    pub(in crate::run) fn get(&self, no: GraphNo) -> &Arc<Graph> {
        self.0[no as usize]
            .graph
            .as_ref()
            .expect("a deserialized run is attached to its workflows before use")
    }

    pub(in crate::run) fn token_limit(&self, no: GraphNo) -> TokenLimit {
        let entry = &self.0[no as usize];
        TokenLimit {
            tokens: entry.token_limit,
            speculative_at: entry.speculative_at,
        }
    }

    /// Attaches the workflows to a deserialized run. Returns the id of a missing one.
    pub(in crate::run) fn attach(&mut self, env: &dyn RunEnvironment) -> Result<(), Arc<str>> {
        for entry in &mut self.0 {
            let graph = match &entry.source {
                Some(source) => env.compile(source).ok(),
                None => env.graph(&entry.workflow_id),
            };
            // Threads name workflows by their index here, so that a missing one makes the run unusable.
            entry.graph = Some(graph.ok_or_else(|| Arc::clone(&entry.workflow_id))?);
        }
        Ok(())
    }
}
