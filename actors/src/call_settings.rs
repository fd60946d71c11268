//! Parts of a model call that do not come from the conversation: the profile with its model, the parameters, the tools and the
//! format of the reply.

use std::sync::Arc;

use pirn_core::thread::{ContinuedRequest, ModelChoice, ToolChoice};
use pirn_definition::definition::Profile;
use pirn_definition::graph::{Graph, NodeIx, NodeKind};
use serde_json::{Map, Value};

use crate::ports::{Model, Models, ToolSpec, Tools, laid_over_profile};

/// Facts of an effect about a model call, in addition to its request.
#[derive(Clone, Copy)]
pub struct AskedModel<'a> {
    /// Profile and parameters that expressions of the node have computed.
    pub choice: Option<&'a ModelChoice>,
    /// The earlier request that the call continues.
    pub goes_on: Option<&'a ContinuedRequest>,
    /// The model may call tools.
    pub offers_tools: bool,
}

/// See the module. A call and the view of a recorded call use the same function, so that both have equal settings.
pub struct CallSettings {
    /// The chosen profile.
    pub profile: Arc<Profile>,
    /// Its model.
    pub model: Arc<dyn Model>,
    /// Parameters of the profile, overridden by those of the node.
    pub parameters: Map<String, Value>,
    /// Names of the offered tools.
    pub tool_names: Vec<Arc<str>>,
    /// Specs of those tools; unknown names are skipped.
    pub tools: Vec<ToolSpec>,
    /// Schema of the structured output that the node requires.
    pub response_format: Option<Arc<Value>>,
}

impl CallSettings {
    /// Returns the settings with which a node calls its model.
    pub fn of(models: &dyn Models, tools: &dyn Tools, graph: &Graph, node: NodeIx, asked: AskedModel<'_>) -> Self {
        let (own_tools, response_format) = match &graph.node(node).kind {
            NodeKind::Llm(llm) => (&llm.tools[..], llm.response_format.clone()),
            // A compression offers no tools.
            _ => (&[][..], None),
        };
        let chosen = ModelChoice::of(graph, node, asked.choice, asked.goes_on);
        let (profile, model) = models.choose(chosen.profile_id.as_deref());
        let mut parameters = laid_over_profile(&profile, chosen.parameters.as_deref());
        // A continued request offers the tools of the earlier one, so that the provider's prompt cache matches.
        let tool_names = asked.goes_on.map_or(own_tools, |goes_on| &goes_on.tools[..]).to_vec();
        let tools = tools.specs(&tool_names);
        ToolChoice::of(asked.goes_on.is_some(), asked.offers_tools, !tools.is_empty()).apply(&mut parameters);
        Self {
            profile,
            model,
            parameters,
            tool_names,
            tools,
            response_format,
        }
    }
}
