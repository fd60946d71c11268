//! Names that definitions may refer to: functions, profiles, tools, registered workflows.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::diagnostics::{Diagnostics, MAX_LISTED, child};
use super::model::Graph;
use super::syntax::{NoSyntax, Syntax};
use crate::definition::json::Step;
use crate::definition::{CompressionConfig, CompressionParameter, FaultCode, nearest};

/// Environment of the definitions: `CompileContext { syntax: &engine, ..CompileContext::default() }`.
#[derive(Clone, Copy)]
pub struct CompileContext<'a> {
    /// Checks expressions, templates and scripts.
    pub syntax: &'a dyn Syntax,
    /// Registered functions; `None` accepts any name.
    pub functions: Option<&'a BTreeSet<String>>,
    /// Profiles that nodes may name; `None` accepts any name.
    pub profiles: Option<&'a BTreeSet<String>>,
    /// Tools that LLM nodes may name; a trailing `*` matches any suffix. `None` accepts any name.
    pub tools: Option<&'a BTreeSet<String>>,
    /// Workflows compiled earlier that the definitions may name.
    pub registered: &'a [Arc<Graph>],
    /// Ids of workflows that exist but could not be read ([`crate::definition::Loaded::unreadable`]).
    pub unreadable: &'a [String],
    /// [`Graph::uid`] of the first graph; the next graphs get consecutive numbers.
    pub first_uid: u64,
}

impl Default for CompileContext<'_> {
    fn default() -> Self {
        Self {
            syntax: &NoSyntax,
            functions: None,
            profiles: None,
            tools: None,
            registered: &[],
            unreadable: &[],
            first_uid: 0,
        }
    }
}

impl CompileContext<'_> {
    /// Checks the name of a tool, in a TOOL node or in a node's `tools`.
    pub(super) fn check_tool(&self, name: &str, pointer: &[Step], report: &mut Diagnostics<'_>) {
        let Some(known) = self.tools else { return };
        if known.iter().any(|known| may_mean(name, known)) {
            return;
        }
        let near = nearest(name, known.iter().map(String::as_str));
        let help = near.map_or_else(
            || {
                let first: Vec<String> = known
                    .iter()
                    .take(MAX_LISTED)
                    .map(|known| format!("`{known}`"))
                    .collect();
                let there = if first.is_empty() {
                    "no tools".to_owned()
                } else {
                    first.join(", ")
                };
                format!("define it under [[tools]] or [[mcpServers]] of the config; the config has {there}")
            },
            |near| format!("did you mean `{near}`?"),
        );
        let message = format!("unknown tool `{name}`: it cannot be called");
        report.warn_with_help(FaultCode::UnknownTool, pointer, message, &help);
    }

    pub(super) fn check_profile(&self, id: &str, pointer: &[Step], report: &mut Diagnostics<'_>) {
        if self.profiles.is_some_and(|profiles| !profiles.contains(id)) {
            let message = format!("unknown profile `{id}`: no profile has this id");
            let known = self.profiles.into_iter().flatten().map(String::as_str);
            report.unknown(FaultCode::UnknownProfile, pointer, message, id, known);
        }
    }

    /// Checks the parameters of a compression and the profile that they name. `default` is the workflow's compression; its strategy applies
    /// to a node without `strategy`. The parameters of an unknown strategy, which compresses nothing, are not checked.
    pub(super) fn check_compression(
        &self,
        compression: &CompressionConfig,
        default: Option<&CompressionConfig>,
        pointer: &[Step],
        report: &mut Diagnostics<'_>,
    ) {
        let pointer = child(pointer, "parameters");
        if let Some(id) = compression.parameters.get("profileId").and_then(Value::as_str) {
            self.check_profile(id, &child(&pointer, "profileId"), report);
        }
        let inherited = || default?.strategy.as_deref();
        let Some(strategy) = compression.strategy.as_deref().or_else(inherited) else {
            return;
        };
        let Some(known) = CompressionParameter::of_strategy(strategy) else {
            return;
        };
        for (name, value) in &compression.parameters {
            let pointer = child(&pointer, name.as_str());
            let Some(parameter) = known.iter().find(|known| known.names.contains(&name.as_str())) else {
                let names = known.iter().flat_map(|known| known.names).copied();
                let help = nearest(name, names).map_or_else(
                    || {
                        let first = known.iter().filter_map(|known| known.names.first());
                        let first: Vec<String> = first.map(|name| format!("`{name}`")).collect();
                        format!("the parameters are {}", first.join(", "))
                    },
                    |near| format!("did you mean `{near}`?"),
                );
                let message = format!("the strategy `{strategy}` has no parameter `{name}`");
                report.fault_with_help(FaultCode::UnknownField, &pointer, message, &help);
                continue;
            };
            if !parameter.kind.fits(value) {
                let message = format!("`{name}` must be {}", parameter.kind);
                report.fault(FaultCode::InvalidValue, &pointer, message);
            }
        }
    }

    /// Checks a list of variables: each is assigned by a workflow or a trigger of the set.
    pub(super) fn check_variables(
        &self,
        names: &[String],
        variables: &BTreeSet<Arc<str>>,
        pointer: &[Step],
        report: &mut Diagnostics<'_>,
    ) {
        // A part that could not be read may assign any variable.
        let holes = report.origin.holes();
        if holes.nodes || holes.variables || !self.unreadable.is_empty() {
            return;
        }
        for (number, name) in names.iter().enumerate() {
            if !variables.contains(name.as_str()) {
                let message = format!("unknown variable `{name}`: nothing in any workflow assigns it");
                let known = variables.iter().map(AsRef::as_ref);
                report.unknown(FaultCode::UnknownName, &child(pointer, number), message, name, known);
            }
        }
    }

    /// As [`Self::check_variables`], with warnings: a list of variables to pass on may contain one that is never set.
    pub(super) fn warn_of_unknown_variables(
        &self,
        names: &[String],
        variables: &BTreeSet<Arc<str>>,
        pointer: &[Step],
        report: &mut Diagnostics<'_>,
    ) {
        let mut found = Diagnostics::new(report.origin);
        self.check_variables(names, variables, pointer, &mut found);
        for fault in found.faults {
            report.warn_of(fault);
        }
    }

    pub(super) fn check_function(&self, name: &str, pointer: &[Step], report: &mut Diagnostics<'_>) {
        if self.functions.is_some_and(|functions| !functions.contains(name)) {
            let message = format!("unknown function `{name}`: no function is registered under this name");
            let known = self.functions.into_iter().flatten().map(String::as_str);
            report.unknown(FaultCode::UnknownFunction, pointer, message, name, known);
        }
    }
}

/// True if a tool name in a node can match a registered name; either may be a prefix followed by `*`.
fn may_mean(named: &str, known: &str) -> bool {
    match (named.strip_suffix('*'), known.strip_suffix('*')) {
        (None, None) => named == known,
        (Some(named), None) => known.starts_with(named),
        (None, Some(known)) => named.starts_with(known),
        (Some(named), Some(known)) => named.starts_with(known) || known.starts_with(named),
    }
}

#[cfg(test)]
mod tests {
    use super::may_mean;

    #[test]
    fn a_trailing_asterisk_matches_every_name_with_that_prefix() {
        for (named, known, means) in [
            ("count", "count", true),
            ("count", "counts", false),
            ("co*", "count", true),
            ("*", "count", true),
            ("fi*", "count", false),
            ("files_read", "files_*", true),
            ("file", "files_*", false),
            ("anything", "*", true),
            ("files_r*", "files_*", true),
            ("f*", "files_*", true),
            ("git_*", "files_*", false),
        ] {
            assert_eq!(may_mean(named, known), means, "{named} {known}");
        }
    }
}
