//! Tests of the public API: from text to compiled graphs and warnings.

mod analysis;
mod definitions;
mod random;
mod times;
