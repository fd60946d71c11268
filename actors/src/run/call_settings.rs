//! Parts of a model call that do not come from the conversation: the profile with its model, the parameters, the tools and the
//! format of the reply.

use std::sync::Arc;

use pirn_core::thread::{ContinuedRequest, ModelChoice, OfferedTools, ToolChoice};
use pirn_definition::definition::{BuiltInTool, Profile, workflow_of_tool, workflow_tool_name};
use pirn_definition::graph::{Graph, NodeIx, NodeKind};
use serde_json::{Map, Value};

use crate::journal::Graphs;
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
    /// Tools in addition to those of the node.
    pub offered: Option<&'a OfferedTools>,
}

/// See the module. A call and the view of a recorded call use the same function, so that both have equal settings.
pub struct CallSettings {
    /// The chosen profile.
    pub profile: Arc<Profile>,
    /// Its model.
    pub model: Arc<dyn Model>,
    /// Parameters of the profile, overridden by those of the node.
    pub parameters: Map<String, Value>,
    /// Parameters of the node alone.
    pub own_parameters: Map<String, Value>,
    /// Names of the offered tools.
    pub tool_names: Vec<Arc<str>>,
    /// Specs of those tools; unknown names are skipped.
    pub tools: Vec<ToolSpec>,
    /// Schema of the structured output that the node requires.
    pub response_format: Option<Arc<Value>>,
}

impl CallSettings {
    /// Returns the settings with which a node calls its model.
    pub fn of(
        models: &dyn Models,
        (host, workflows): (&dyn Tools, &Graphs),
        graph: &Graph,
        node: NodeIx,
        asked: AskedModel<'_>,
    ) -> Self {
        let (own_tools, response_format) = match &graph.node(node).kind {
            NodeKind::Llm(llm) => (&llm.tools[..], llm.response_format.clone()),
            // A compression offers no tools.
            _ => (&[][..], None),
        };
        let chosen = ModelChoice::of(graph, node, asked.choice, asked.goes_on);
        let (profile, model) = models.choose(chosen.profile_id.as_deref());
        let mut own_parameters = chosen.parameters.as_deref().cloned().unwrap_or_default();
        let mut parameters = laid_over_profile(&profile, Some(&own_parameters));
        // A continued request offers the tools of the earlier one, so that the provider's prompt cache matches.
        let tool_names = asked.goes_on.map_or(own_tools, |goes_on| &goes_on.tools[..]).to_vec();
        let offered = asked
            .goes_on
            .map_or(asked.offered, |goes_on| goes_on.offered.as_deref());
        let mut tools = specs(host, workflows, &tool_names);
        let definitions = offered.into_iter().flat_map(OfferedTools::definitions);
        tools.extend(definitions.cloned().map(ToolSpec::from));
        if let Some(offered) = offered {
            // Last, in the order of their revelation: the tools of the request before are a prefix of these.
            tools.extend(host.specs(&offered.revealed));
        }
        let choice = ToolChoice::of(asked.goes_on.is_some(), asked.offers_tools, !tools.is_empty());
        choice.apply(&mut parameters);
        choice.apply(&mut own_parameters);
        Self {
            profile,
            model,
            parameters,
            own_parameters,
            tool_names,
            tools,
            response_format,
        }
    }
}

/// Returns the specs of a node's tools: registered and built-in ones, followed by workflows.
pub(crate) fn specs(tools: &dyn Tools, workflows: &Graphs, names: &[Arc<str>]) -> Vec<ToolSpec> {
    let called = names.iter().filter_map(|name| workflows.get(workflow_of_tool(name)?));
    let called: Vec<ToolSpec> = called
        .map(|graph| {
            let unsaid = || format!("Runs the workflow {} and returns its output.", graph.workflow_id);
            ToolSpec {
                name: workflow_tool_name(&graph.workflow_id),
                description: graph.about.description.clone().unwrap_or_else(unsaid),
                parameters: graph.about.argument_schema(),
            }
        })
        .collect();
    let mut specs = tools.specs(names);
    // A pattern may match a tool with the name of a workflow. Calls of that name start the workflow, and providers refuse equal names.
    specs.retain(|spec| called.iter().all(|called| called.name != spec.name));
    let registered = specs.len();
    specs.extend(called);
    if let Some(place) = specs[..registered].iter().position(is_run_code) {
        let others = specs.iter().filter(|spec| BuiltInTool::of_name(&spec.name).is_none());
        let listed: String = others.map(function_of_script).collect();
        specs[place].description.push_str(&listed);
    }
    specs
}

fn is_run_code(spec: &ToolSpec) -> bool {
    spec.name == BuiltInTool::RunCode.name()
}

/// Describes a tool as a function of the scripts of `run_code`.
fn function_of_script(spec: &ToolSpec) -> String {
    // A description with several lines stays a comment.
    let description = spec.description.replace('\n', "\n// ");
    format!(
        "\n\n// {description}\n// args: {}\ntools[{:?}](args)",
        spec.parameters, spec.name
    )
}
