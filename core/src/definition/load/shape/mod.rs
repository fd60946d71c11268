//! The one table of every field the loader knows, with the other names it is read under.
//!
//! The loader renames by it, finds unknown fields by it, and the published schema takes its aliases from it.

mod context;
mod node;
mod trigger;
mod workflow;

pub(crate) use context::OPERATIONS;
pub(crate) use node::{NODE, NODE_TYPES};
pub(crate) use trigger::{ACTIONS, TRIGGER};
pub(crate) use workflow::WORKFLOW;

use super::read::Problem;
use crate::definition::json::Tree;

/// The fields of one kind of object.
pub(crate) struct Shape {
    /// The Rust type that holds it, for the schema.
    #[cfg_attr(not(feature = "schema"), expect(dead_code, reason = "only the schema asks"))]
    pub(crate) type_name: &'static str,
    pub(crate) fields: &'static [Field],
}

/// One field.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) holds: Holds,
}

/// What a field holds, as far as the loader cares before serde does.
#[derive(Clone, Copy)]
pub(crate) enum Holds {
    /// Any value, `null` included.
    Value,
    /// Whatever the type says; `null` counts as absent.
    Plain,
    /// A word that is read in either case, upper in canonical form.
    Upper,
    /// A word that is read in either case, lower in canonical form.
    Lower,
    /// An object, or a list of objects; anything else is left to serde.
    Object(&'static Shape),
    /// Text or a flag, or something that must be of a type; looked at here because serde says nothing useful about
    /// untagged enums.
    Either(&'static Shape, fn(&Tree) -> Vec<Problem>),
}

const fn field(name: &'static str, holds: Holds) -> Field {
    Field {
        name,
        aliases: &[],
        holds,
    }
}

const fn also(name: &'static str, aliases: &'static [&'static str], holds: Holds) -> Field {
    Field { name, aliases, holds }
}

pub(crate) static BUNDLE: Shape = Shape {
    type_name: "Bundle",
    fields: &[
        field("workflows", Holds::Value),
        field("triggers", Holds::Value),
        field("profiles", Holds::Value),
    ],
};

/// An object whose keys are the user's.
pub(crate) static OPEN: Shape = Shape {
    type_name: "",
    fields: &[],
};

/// Every shape that can be reached, each once: what the schema is widened by.
#[cfg(feature = "schema")]
pub(crate) fn every_shape() -> Vec<&'static Shape> {
    let tables = [NODE_TYPES, OPERATIONS, ACTIONS];
    let mut open: Vec<&'static Shape> = vec![&WORKFLOW, &TRIGGER];
    open.extend(tables.into_iter().flatten().map(|(_, shape)| *shape));
    let mut found: Vec<&'static Shape> = Vec::new();
    while let Some(shape) = open.pop() {
        if found.iter().any(|known| std::ptr::eq(*known, shape)) {
            continue;
        }
        found.push(shape);
        open.extend(shape.fields.iter().filter_map(|field| match field.holds {
            Holds::Object(inner) | Holds::Either(inner, _) => Some(inner),
            Holds::Value | Holds::Plain | Holds::Upper | Holds::Lower => None,
        }));
    }
    found
}
