//! Layered layout of one graph without groups: rank of each item, order within a row, columns, channels of lines, heights.
//!
//! Not here: groups within groups ([`regions`](super::regions)), and several graphs side by side ([`pack`](super::pack)).

pub(super) mod arrange;
mod channels;
pub(super) mod columns;
pub(super) mod graph;
mod heights;
mod order;
pub(super) mod rank;
mod rows;
mod simplex;
