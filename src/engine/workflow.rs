//! Public description of a registered workflow, for programs that start it.

use pirn_definition::graph::Graph;
use serde::Serialize;
use serde_json::{Map, Value};

/// A workflow's id, name, version and description, the schema of its input, and its nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowInfo {
    /// Names it.
    pub id: String,
    /// Name for display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Version for display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The description, for display and for models that may start the workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Map<String, Value>>,
    /// True for a triggered sub-workflow, which cannot be started directly.
    #[serde(skip)]
    pub is_triggered: bool,
    /// The nodes, in file order.
    pub nodes: Vec<NodeInfo>,
}

/// A node's id and type.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    /// The node's id in the workflow.
    pub node_id: String,
    /// The node type in upper case, as in a definition.
    #[serde(rename = "type")]
    pub node_type: &'static str,
}

impl WorkflowInfo {
    pub(super) fn of(graph: &Graph) -> Self {
        let about = graph.about.clone();
        let node = |node: &pirn_definition::graph::Node| NodeInfo {
            node_id: node.id.to_string(),
            node_type: node.kind.type_name(),
        };
        Self {
            id: graph.workflow_id.to_string(),
            name: about.name,
            version: about.version,
            description: about.description,
            input_schema: about.input_schema,
            is_triggered: graph.triggered,
            nodes: graph.nodes.iter().map(node).collect(),
        }
    }
}
