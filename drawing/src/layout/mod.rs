//! Positions of boxes, lanes, edges and labels.
//!
//! Not here: texts and their sizes (`boxes`), and colours (`svg`).

mod assemble;
mod column;
mod layers;
mod legs;
mod nest;
mod pack;
mod regions;

use crate::boxes::{Measured, Text};
use crate::drawing::Drawing;
use crate::sketch::Sketch;

use assemble::assemble;
use legs::Legs;
use nest::Nest;

/// Number of boxes above which all of them are placed in one column.
const LAYERED_BOXES: usize = 20_000;

/// Computes the positions of all parts.
pub(crate) fn lay_out(sketch: &Sketch) -> Drawing {
    let mut boxes: Vec<Measured> = sketch.boxes.iter().map(Measured::of).collect();
    layered(sketch, &mut boxes).unwrap_or_else(|| column::lay_out(sketch, &boxes))
}

/// Places the boxes in layers; nothing if there are too many boxes, or lines that pass too many layers.
fn layered(sketch: &Sketch, boxes: &mut [Measured]) -> Option<Drawing> {
    if boxes.len() > LAYERED_BOXES {
        return None;
    }
    let labels: Vec<Option<Text>> = sketch
        .arrows
        .iter()
        .map(|arrow| arrow.label.as_deref().map(Text::label))
        .collect();
    let nest = Nest::of(sketch);
    let legs = Legs::of(sketch, &nest, &labels);
    for (count, one) in legs.leaving(&nest, boxes.len()).into_iter().zip(&mut *boxes) {
        one.width = one.width.max(layers::columns::PORTS * (count + 1));
    }
    let regions = regions::arrange(sketch, &nest, &legs, boxes, &labels)?;
    Some(assemble(sketch, &nest, &legs, &regions, boxes, &labels))
}
