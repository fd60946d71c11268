//! The graph of one region, before and after its layout.

/// Kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
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
pub(super) struct Item {
    pub(super) body: Body,
    pub(super) width: i32,
    pub(super) height: i32,
    /// Free space that is needed to the right.
    pub(super) aside: i32,
    /// Offsets of the ports on the upper and the lower side of a region.
    pub(super) tops: Vec<i32>,
    pub(super) bottoms: Vec<i32>,
}

impl Item {
    /// Returns a point on a border.
    pub(super) fn point(body: Body) -> Self {
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
pub(super) struct Leg {
    pub(super) from: usize,
    /// Port of a region on its lower side.
    pub(super) from_port: usize,
    pub(super) to: usize,
    /// Port of a region on its upper side.
    pub(super) to_port: usize,
    /// Legs of different classes do not merge: 0 for the normal flow, then loops, errors, triggers.
    pub(super) class: u8,
    /// True if the leg starts at the point of its source that all legs with this flag share.
    pub(super) is_bus: bool,
    /// Width and height of the label.
    pub(super) label: Option<[i32; 2]>,
    /// True if the leg leads back: its target is above its source.
    pub(super) is_back: bool,
}

/// The graph of a region.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub(super) items: Vec<Item>,
    pub(super) legs: Vec<Leg>,
    /// Ranks of the items, if they are given; then their order in a row is the order of the list too.
    pub(super) ranks: Option<Vec<usize>>,
    /// Space between two items in a row.
    pub(super) gap: i32,
}

/// Positions of the parts of a region.
#[derive(Clone, Debug, Default)]
pub(super) struct Arranged {
    pub(super) width: i32,
    pub(super) height: i32,
    /// Upper left corner of each item.
    pub(super) items: Vec<[i32; 2]>,
    /// Points of each leg, from its source to its target.
    pub(super) legs: Vec<Vec<[i32; 2]>>,
    /// Upper left corner of each leg's label.
    pub(super) labels: Vec<Option<[i32; 2]>>,
}
