//! The graph of one region, before and after its layout.

/// Kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::layout) enum Body {
    /// A box. The layout chooses where edges meet it.
    Plain,
    /// A laid out region. Edges meet it at its ports.
    Region,
    /// A point on the upper border of the region.
    Entry,
    /// A point on the lower border.
    Exit,
}

/// A part of a region that gets a position.
#[derive(Clone, Debug)]
pub(in crate::layout) struct Item {
    pub(in crate::layout) body: Body,
    pub(in crate::layout) width: i32,
    pub(in crate::layout) height: i32,
    /// Free space that is needed to the right.
    pub(in crate::layout) aside: i32,
    /// Offsets of the ports on the upper and the lower side of a region.
    pub(in crate::layout) tops: Vec<i32>,
    pub(in crate::layout) bottoms: Vec<i32>,
}

impl Item {
    /// Returns a point on a border.
    pub(in crate::layout) fn point(body: Body) -> Self {
        Self {
            body,
            width: 0,
            height: 0,
            aside: 0,
            tops: Vec::new(),
            bottoms: Vec::new(),
        }
    }
}

/// A line between two items.
#[derive(Clone, Debug)]
pub(in crate::layout) struct Leg {
    pub(in crate::layout) from: usize,
    /// Port of a region on its lower side.
    pub(in crate::layout) from_port: usize,
    pub(in crate::layout) to: usize,
    /// Port of a region on its upper side.
    pub(in crate::layout) to_port: usize,
    /// Legs of different classes do not merge: 0 for the normal flow, then loops, errors, triggers.
    pub(in crate::layout) class: u8,
    /// True if the leg starts at the point of its source that all legs with this flag share.
    pub(in crate::layout) is_bus: bool,
    /// Width and height of the label.
    pub(in crate::layout) label: Option<[i32; 2]>,
    /// True if the leg leads back: its target is above its source.
    pub(in crate::layout) is_back: bool,
}

/// The graph of a region.
#[derive(Clone, Debug, Default)]
pub(in crate::layout) struct Graph {
    pub(in crate::layout) items: Vec<Item>,
    pub(in crate::layout) legs: Vec<Leg>,
    /// Ranks of the items, if they are given; then their order in a row is the order of the list too.
    pub(in crate::layout) ranks: Option<Vec<usize>>,
    /// Space between two items in a row.
    pub(in crate::layout) gap: i32,
}

/// Positions of the parts of a region.
#[derive(Clone, Debug, Default)]
pub(in crate::layout) struct Arranged {
    pub(in crate::layout) width: i32,
    pub(in crate::layout) height: i32,
    /// Upper left corner of each item.
    pub(in crate::layout) items: Vec<[i32; 2]>,
    /// Points of each leg, from its source to its target.
    pub(in crate::layout) legs: Vec<Vec<[i32; 2]>>,
    /// Upper left corner of each leg's label.
    pub(in crate::layout) labels: Vec<Option<[i32; 2]>>,
}
