//! The input of the layout: boxes and arrows without positions.

use crate::drawing::EdgeKind;

/// Boxes, the arrows between them, and their nesting.
#[derive(Debug, Default)]
pub(crate) struct Sketch {
    /// Boxes; all other parts refer to their indices.
    pub(crate) boxes: Vec<SketchBox>,
    /// Arrows.
    pub(crate) arrows: Vec<Arrow>,
    /// The workflows, each with a contiguous range of boxes. Boxes after the last range belong to none.
    pub(crate) groups: Vec<SketchGroup>,
    /// Pairs of a FORK and its JOIN.
    pub(crate) forks: Vec<Fork>,
    /// Pairs of a LOOP_START and its LOOP_END.
    pub(crate) loops: Vec<[usize; 2]>,
}

/// A node, a trigger or a workflow.
#[derive(Debug)]
pub(crate) struct SketchBox {
    /// Unique id.
    pub(crate) id: String,
    /// Type word.
    pub(crate) node_type: &'static str,
    /// Title, in bold.
    pub(crate) title: String,
    /// Text after the type word.
    pub(crate) settings: String,
}

/// A workflow.
#[derive(Debug)]
pub(crate) struct SketchGroup {
    /// Id of the workflow.
    pub(crate) id: String,
    /// Id and name.
    pub(crate) title: String,
    /// Its boxes.
    pub(crate) boxes: std::ops::Range<usize>,
}

/// A FORK with its JOIN.
#[derive(Debug)]
pub(crate) struct Fork {
    /// Box of the FORK.
    pub(crate) start: usize,
    /// Box of the JOIN.
    pub(crate) join: usize,
    /// Path ids, and the boxes at which the paths start.
    pub(crate) paths: Vec<(String, usize)>,
}

/// An arrow between two boxes.
#[derive(Debug)]
pub(crate) struct Arrow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) label: Option<String>,
    pub(crate) kind: EdgeKind,
    /// Index of the path, if the arrow is one of a fork.
    pub(crate) path: Option<usize>,
}
