//! A picture as data: positions, lines and texts. The page, the SVG and the HTML file draw the same one.

use serde::{Deserialize, Serialize};

/// Size of normal text in pixels. Bold text has this size too.
pub const FONT_SIZE: i32 = 13;

/// A laid out workflow, or several. Coordinates are pixels; the origin is at the top left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drawing {
    /// Width of the picture.
    pub width: i32,
    /// Height of the picture.
    pub height: i32,
    /// Size of all text in pixels. The font is Arial, Helvetica, Liberation Sans or one with the same metrics.
    pub font_size: i32,
    /// Nodes and triggers. The order is that of the workflow file.
    pub nodes: Vec<Node>,
    /// Edges. They cross no node except their ends.
    pub edges: Vec<Edge>,
    /// The branches of forks, outer ones first.
    pub lanes: Vec<Lane>,
    /// Frames of workflows, if the picture shows several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
}

/// A box: a node, a trigger, or a workflow that a trigger starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Unique id in this picture: the node's id, `trigger:ID`, or `workflow:ID`. In a picture of several workflows, ids of nodes and
    /// inner triggers start with `WORKFLOW/`.
    pub id: String,
    /// The node's type word (`LLM`), or `TRIGGER` or `WORKFLOW`.
    #[serde(rename = "type")]
    pub node_type: String,
    /// Left edge.
    pub x: i32,
    /// Upper edge.
    pub y: i32,
    /// Width.
    pub width: i32,
    /// Height.
    pub height: i32,
    /// The visible text: at most three lines.
    pub lines: Vec<Line>,
    /// The whole text, for a tooltip.
    pub title: String,
    /// Index of the innermost lane that contains the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<usize>,
}

/// A line of text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// The text, shortened with `…` if it is too long.
    pub text: String,
    /// Left end of the text.
    pub x: i32,
    /// Baseline.
    pub y: i32,
    /// Width of the text, for the `textLength` of SVG: a substituted font is not wider.
    pub width: i32,
    /// True for the title of a box.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bold: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_false(value: &bool) -> bool {
    !value
}

/// A transition, a call, or the start of a workflow by a trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    /// Id of the source box.
    pub from: String,
    /// Id of the target box.
    pub to: String,
    /// Kind of the edge.
    pub kind: EdgeKind,
    /// Ends and bends, from the source to the target. All parts are horizontal or vertical.
    pub points: Vec<[i32; 2]>,
    /// Text next to the edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
}

/// Kind of an edge, which determines its style.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EdgeKind {
    /// A transition without a condition, or a path of a fork.
    Flow,
    /// A transition with a condition.
    Condition,
    /// From a LOOP_END to its LOOP_START.
    Loop,
    /// A transition after an error or a timeout.
    Error,
    /// From a trigger to the workflow that it starts, or from a node to the workflow that it calls.
    Trigger,
}

/// Text next to an edge. Its rectangle overlaps no box, line or other label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Label {
    /// The whole text.
    pub text: String,
    /// Left edge.
    pub x: i32,
    /// Upper edge.
    pub y: i32,
    /// Width.
    pub width: i32,
    /// Height.
    pub height: i32,
    /// The visible text: at most three lines.
    pub lines: Vec<Line>,
}

/// A branch of a fork: the area between its FORK and its JOIN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lane {
    /// Id of the FORK's box.
    pub fork: String,
    /// Id of the path.
    pub path_id: String,
    /// Left edge.
    pub x: i32,
    /// Upper edge.
    pub y: i32,
    /// Width.
    pub width: i32,
    /// Height.
    pub height: i32,
    /// The whole label.
    pub label: String,
    /// The visible label: one line.
    pub lines: Vec<Line>,
}

/// The frame of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Id of the workflow.
    pub workflow: String,
    /// Left edge.
    pub x: i32,
    /// Upper edge.
    pub y: i32,
    /// Width.
    pub width: i32,
    /// Height.
    pub height: i32,
    /// The whole title.
    pub label: String,
    /// The visible title: one line.
    pub lines: Vec<Line>,
}
