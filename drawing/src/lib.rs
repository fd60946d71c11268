//! Pictures of workflows. The layout is computed here for the service, its page, `pirn graph` and HTML files.
//!
//! Equal workflows have equal pictures. Invalid workflows are drawn too.
//!
//! # Modules
//!
//! ```text
//! html  layout  workflow
//!         ↓
//!     svg  boxes
//!        ↓
//!  font  sketch
//!        ↓
//!     drawing
//! ```
//!
//! # Reading order
//!
//! 1. `drawing`: the result.
//! 2. `workflow` and `sketch`: the input, from workflow definitions.
//! 3. `layout`: positions.
//! 4. `svg` and `html`.

mod boxes;
mod drawing;
mod font;
mod html;
mod layout;
mod sketch;
mod svg;
mod workflow;

use pirn_definition::definition::{TriggerDefinition, WorkflowDefinition};

pub use drawing::{Drawing, Edge, EdgeKind, FONT_SIZE, Group, Label, Lane, Line, Node};
pub use html::html;
pub use svg::svg;

/// Draws workflows and outer triggers. The picture of a single workflow has its plain node ids; several workflows are framed.
pub fn draw(workflows: &[&WorkflowDefinition], triggers: &[&TriggerDefinition]) -> Drawing {
    layout::lay_out(&workflow::sketch(workflows, triggers))
}
