//! Positions of boxes, lanes, edges and labels.
//!
//! Not here: texts and their sizes (`boxes`), and colours (`svg`).

mod column;

use crate::boxes::Measured;
use crate::drawing::Drawing;
use crate::sketch::Sketch;

/// Computes the positions of all parts.
pub(crate) fn lay_out(sketch: &Sketch) -> Drawing {
    let boxes: Vec<Measured> = sketch.boxes.iter().map(Measured::of).collect();
    column::lay_out(sketch, &boxes)
}
