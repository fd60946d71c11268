//! What a compilation knows of the world around the definitions.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::model::Graph;
use super::site::Site;
use super::syntax::{NoSyntax, Syntax};
use crate::definition::FaultCode;
use crate::definition::json::Step;

/// The world around the definitions: `CompileContext { syntax: &engine, ..CompileContext::default() }`.
#[derive(Clone, Copy)]
pub struct CompileContext<'a> {
    /// Reads expressions, templates and scripts.
    pub syntax: &'a dyn Syntax,
    /// Registered functions; absent: not known, any name passes.
    pub functions: Option<&'a BTreeSet<String>>,
    /// Defined profiles; absent: not known, any name passes.
    pub profiles: Option<&'a BTreeSet<String>>,
    /// Workflows compiled earlier that these may name.
    pub registered: &'a [Arc<Graph>],
    /// Ids of workflows that exist but could not be read ([`crate::definition::Loaded::unreadable`]).
    pub unreadable: &'a [String],
    /// [`Graph::uid`] of the first graph; the following get the following numbers.
    pub first_uid: u64,
}

impl Default for CompileContext<'_> {
    fn default() -> Self {
        Self {
            syntax: &NoSyntax,
            functions: None,
            profiles: None,
            registered: &[],
            unreadable: &[],
            first_uid: 0,
        }
    }
}

impl CompileContext<'_> {
    pub(super) fn check_function(&self, name: &str, way: &[Step], site: &mut Site<'_>) {
        if self.functions.is_some_and(|functions| !functions.contains(name)) {
            site.fault(
                FaultCode::UnknownFunction,
                way,
                format!("no function is registered as `{name}`"),
            );
        }
    }
}
