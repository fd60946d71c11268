//! Checks and compiles LLM nodes.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::diagnostics::{child, pointer};
use super::model::{ChoiceSpec, LlmNode, PartSpec, ValueSpec};
use super::nodes::NodeCompiler;
use crate::definition::json::Step;
use crate::definition::{BuiltInTool, FaultCode, LlmConfig, nearest};
use crate::message::Part;

/// Default maximum number of tool rounds.
const DEFAULT_TOOL_ROUNDS: u32 = 10;

impl NodeCompiler<'_, '_> {
    pub(super) fn llm(&mut self, place: usize, llm: &LlmConfig) -> LlmNode {
        let profile = llm.profile_id.as_deref();
        let computed_profile = profile.filter(|id| id.contains("{{"));
        let named = profile.filter(|_| computed_profile.is_none());
        if let Some(id) = named {
            let pointer = pointer!["nodes", place, "config", "profileId"];
            self.context.check_profile(id, &pointer, self.report);
        }
        let tools = self.llm_tools(place, llm);
        let computed_profile = computed_profile.map(|text| self.template(text, place, "profileId"));
        let parameters = llm.parameters.clone().map(|parameters| {
            let pointer = pointer!["nodes", place, "config", "parameters"];
            self.snippets.value(&Value::Object(parameters), &pointer, self.report)
        });
        let (parameters, computed) = match parameters {
            Some(ValueSpec::Literal(value)) => (value.as_object().cloned().map(Arc::new), None),
            computed => (None, computed),
        };
        let is_computed = computed_profile.is_some() || computed.is_some();
        let parts = pointer!["nodes", place, "config", "parts"];
        LlmNode {
            profile_id: named.map(Arc::from),
            prompt: llm.prompt.as_deref().map(|text| self.template(text, place, "prompt")),
            system: llm.system.as_deref().map(|text| self.template(text, place, "system")),
            tools,
            parameters,
            parts: llm
                .parts
                .as_ref()
                .map_or_else(Vec::new, |written| self.parts(written, &parts)),
            choice: is_computed.then(|| {
                Box::new(ChoiceSpec {
                    profile: computed_profile,
                    parameters: computed,
                })
            }),
            max_tool_rounds: llm.max_tool_rounds.unwrap_or(DEFAULT_TOOL_ROUNDS),
            on_limit: llm.on_limit.unwrap_or_default(),
            response_format: llm.response_format.clone().map(Arc::new),
        }
    }

    /// Returns the tools of a node, followed by the built-in tools that its workflow enables. Built-in tools are only added to
    /// nodes with tools.
    fn llm_tools(&mut self, place: usize, llm: &LlmConfig) -> Vec<Arc<str>> {
        let config = &self.definition.config;
        for (number, name) in llm.tools.iter().enumerate() {
            let pointer = pointer!["nodes", place, "config", "tools", number];
            match BuiltInTool::of_name(name) {
                None => self.context.check_tool(name, &pointer, self.report),
                Some(tool) if !tool.is_offered(config) => {
                    let setting = tool.setting();
                    let message = format!(
                        "`{name}` is a built-in tool that this workflow does not enable: set `config.{setting}`"
                    );
                    self.report.fault(FaultCode::InvalidValue, &pointer, message);
                }
                Some(_) => {}
            }
        }
        let mut tools: Vec<Arc<str>> = llm.tools.iter().map(|tool| Arc::from(tool.as_str())).collect();
        if !tools.is_empty() {
            let offered = BuiltInTool::ALL.into_iter().filter(|tool| tool.is_offered(config));
            let missing = offered.filter(|tool| !llm.tools.iter().any(|named| named == tool.name()));
            tools.extend(missing.map(|tool| Arc::from(tool.name())));
        }
        tools
    }

    fn parts(&mut self, written: &Value, pointer: &[Step]) -> Vec<PartSpec> {
        match written {
            Value::String(_) => vec![PartSpec::Computed(self.snippets.input(written, pointer, self.report))],
            Value::Array(items) => items
                .iter()
                .enumerate()
                .filter_map(|(place, item)| self.part(item, &child(pointer, place)))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                let message = "`parts` must be a list of texts, images and files, or an expression that gives one";
                self.report.fault(FaultCode::InvalidValue, pointer, message);
                Vec::new()
            }
        }
    }

    /// Compiles a part. A part without templates is read once, here, so that an image in it is never copied.
    fn part(&mut self, item: &Value, pointer: &[Step]) -> Option<PartSpec> {
        const KINDS: [&str; 3] = ["text", "image", "file"];
        let kind = item.get("type").and_then(Value::as_str);
        if let Some(kind) = kind.filter(|kind| !kind.contains("{{") && !KINDS.contains(kind)) {
            let message = format!("unknown kind of part `{kind}`: there are {}", KINDS.join(", "));
            let near = nearest(kind, KINDS.into_iter());
            let help = near.map_or_else(String::new, |near| format!("did you mean `{near}`?"));
            self.report
                .fault_with_help(FaultCode::InvalidValue, &child(pointer, "type"), message, &help);
            return None;
        }
        match self.snippets.value(item, pointer, self.report) {
            ValueSpec::Literal(value) => match Part::deserialize(&*value) {
                Ok(part) => Some(PartSpec::Literal(part)),
                Err(error) => {
                    let message = format!("not a part of a message: {error}");
                    self.report.fault(FaultCode::InvalidValue, pointer, message);
                    None
                }
            },
            // One template may return a whole part, or a list of parts.
            computed => Some(PartSpec::Computed(computed)),
        }
    }
}
