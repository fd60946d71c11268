//! Checks and compiles LLM nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::compiler::NodeCompiler;
use crate::definition::json::Step;
use crate::definition::{
    BuiltInTool, FaultCode, LlmConfig, MAX_SKILLS, SKILL_FILE, ToolDefinition, ToolEntry, nearest, workflow_of_tool,
    workflow_tool_name,
};
use crate::graph::diagnostics::{child, pointer};
use crate::graph::model::{ChoiceSpec, LlmNode, NodeSkills, PartSpec, ValueSpec};
use crate::graph::submitted::code_mode::CodeRules;
use crate::graph::submitted::dynamic::DynamicRules;
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
        let skills = self.skills(place, llm);
        let computed_profile = computed_profile.map(|text| self.template(text, place, "profileId"));
        let parameters = llm.parameters.clone().map(|parameters| {
            let pointer = pointer!["nodes", place, "config", "parameters"];
            self.snippets.value(&Value::Object(parameters), &pointer, self.report)
        });
        let (parameters, computed) = match parameters {
            Some(ValueSpec::Literal(value)) => (value.as_object().cloned().map(Arc::new), None),
            computed => (None, computed),
        };
        let pointer = pointer!["nodes", place, "config", "responseFormat"];
        if llm.response_format.as_ref().is_some_and(ignores_schema) {
            let message = "`responseFormat` has a `schema` without the type `json_schema`: the schema would be ignored";
            let help = r#"add `"type": "json_schema"`, or write the schema itself as `responseFormat`"#;
            self.report
                .fault_with_help(FaultCode::InvalidSchema, &pointer, message.to_owned(), help);
        }
        if llm.response_format.as_ref().is_some_and(lacks_schema) {
            let message = "`responseFormat` has the type `json_schema` and no `schema`: any JSON would be accepted";
            let help = r#"add `"schema": {"type": "object", ...}`; `{"type": "json_object"}` accepts any JSON"#;
            self.report
                .fault_with_help(FaultCode::InvalidSchema, &pointer, message.to_owned(), help);
        }
        let is_computed = computed_profile.is_some() || computed.is_some();
        let parts = pointer!["nodes", place, "config", "parts"];
        LlmNode {
            profile_id: named.map(Arc::from),
            prompt: llm.prompt.as_deref().map(|text| self.template(text, place, "prompt")),
            system: llm.system.as_deref().map(|text| self.template(text, place, "system")),
            tools,
            client_tools: llm.client_tools,
            skills,
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
            dynamic: self.dynamic(place, llm).map(Box::new),
            code: self.code_rules(place, llm).map(Box::new),
        }
    }

    /// Returns the tools of a node, followed by the built-in tools that its workflow enables. Built-in tools are only added to
    /// nodes with tools.
    fn llm_tools(&mut self, place: usize, llm: &LlmConfig) -> Vec<Arc<str>> {
        let config = &self.definition.config;
        for (number, entry) in llm.tools.iter().enumerate() {
            let pointer = pointer!["nodes", place, "config", "tools", number];
            let name = &entry.name;
            if entry.consent.is_some() && workflow_of_tool(name).is_none() {
                let message = format!("`{name}` is no workflow: remove `consent`, and set `approval` of the tool");
                self.report.fault(FaultCode::InvalidValue, &pointer, message);
            }
            if let Some(id) = workflow_of_tool(name) {
                if entry.deferred {
                    let message = format!("`{name}` is a workflow, which cannot be deferred: remove `deferred`");
                    self.report.fault(FaultCode::InvalidValue, &pointer, message);
                }
                self.check_workflow_tool((id, number), &llm.tools, &pointer);
                continue;
            }
            match BuiltInTool::of_name(name) {
                None => self.context.check_tool(name, &pointer, self.report),
                Some(_) if entry.deferred => {
                    let message = format!("`{name}` is a built-in tool, which cannot be deferred: remove `deferred`");
                    self.report.fault(FaultCode::InvalidValue, &pointer, message);
                }
                // Each node enables it by its name.
                Some(BuiltInTool::RunWorkflow | BuiltInTool::RunCode) => {}
                Some(tool) if !tool.is_offered(config) => {
                    let setting = tool.setting();
                    let message = format!("`{name}` is a built-in tool that this workflow does not enable: {setting}");
                    self.report.fault(FaultCode::InvalidValue, &pointer, message);
                }
                Some(_) => {}
            }
        }
        let mut tools: Vec<Arc<str>> = llm.tools.iter().map(|tool| Arc::from(tool.compiled())).collect();
        if !tools.is_empty() {
            let has_deferred = llm.tools.iter().any(|tool| tool.deferred);
            let is_offered = |tool: &BuiltInTool| match tool {
                BuiltInTool::ToolSearch => has_deferred,
                // Not a name in the list: its definition depends on the skills.
                BuiltInTool::ReadSkill => false,
                BuiltInTool::ReadArtifact | BuiltInTool::Recall | BuiltInTool::RunWorkflow | BuiltInTool::RunCode => {
                    tool.is_offered(config)
                }
            };
            let offered = BuiltInTool::ALL.into_iter().filter(is_offered);
            let missing = offered.filter(|tool| !llm.tools.iter().any(|named| named.name == tool.name()));
            tools.extend(missing.map(|tool| Arc::from(tool.name())));
        }
        tools
    }

    /// Returns the rules for submitted workflows. `dynamic` without the tool is a fault.
    fn dynamic(&mut self, place: usize, llm: &LlmConfig) -> Option<DynamicRules> {
        let rules = DynamicRules::of(llm);
        let pointer = pointer!["nodes", place, "config", "dynamic"];
        let tools = pointer!["nodes", place, "config", "tools"];
        let is_whole = !self.report.origin.is_incomplete(&tools);
        if rules.is_none() && llm.dynamic.is_some() && is_whole {
            let message = "`dynamic` requires the tool `run_workflow` in `tools`";
            self.report.fault(FaultCode::InvalidValue, &pointer, message);
        }
        for (number, id) in llm
            .dynamic
            .iter()
            .flat_map(|dynamic| &dynamic.profiles)
            .flatten()
            .enumerate()
        {
            let pointer = child(&child(&pointer, "profiles"), number);
            self.context.check_profile(id, &pointer, self.report);
        }
        rules
    }

    /// Returns the rules for scripts of `run_code`. `codeLimits` without the tool is a fault.
    fn code_rules(&mut self, place: usize, llm: &LlmConfig) -> Option<CodeRules> {
        let rules = CodeRules::of(llm, self.definition.nodes[place].in_doubt.as_ref());
        let pointer = pointer!["nodes", place, "config", "codeLimits"];
        if rules.is_none() && llm.code_limits.is_some() {
            let message = "`codeLimits` requires the tool `run_code` in `tools`";
            self.report.fault(FaultCode::InvalidValue, &pointer, message);
        }
        if llm.code_limits.is_some_and(|limits| limits.concurrency == 0) {
            let pointer = child(&pointer, "concurrency");
            self.report
                .fault(FaultCode::InvalidValue, &pointer, "`concurrency` must be at least 1");
        }
        rules
    }

    /// Checks that no other tool of the node has the name under which models call this workflow.
    fn check_workflow_tool(&mut self, (id, number): (&str, usize), tools: &[ToolEntry], pointer: &[Step]) {
        let name = workflow_tool_name(id);
        let others = tools.iter().enumerate().filter(|(other, _)| *other != number);
        let mut equal = others.filter(|(_, other)| match workflow_of_tool(&other.name) {
            Some(other) => workflow_tool_name(other) == name,
            None => other.name == name,
        });
        if let Some((_, other)) = equal.next() {
            let message = format!(
                "models call the workflow `{id}` as `{name}`, which is the name of `{}` too",
                other.name
            );
            self.report.fault(FaultCode::InvalidValue, pointer, message);
        } else if BuiltInTool::of_name(&name).is_some() {
            let message = format!("models call the workflow `{id}` as `{name}`, which is the name of a built-in tool");
            self.report.fault(FaultCode::InvalidValue, pointer, message);
        }
    }

    /// Compiles the skills of a node, or those of its workflow.
    fn skills(&mut self, place: usize, llm: &LlmConfig) -> Option<Box<NodeSkills>> {
        let (skills, pointer) = match &llm.skills {
            Some(skills) => (skills, pointer!["nodes", place, "config", "skills"]),
            None => (self.definition.config.skills.as_ref()?, pointer!["config", "skills"]),
        };
        if skills.len() > MAX_SKILLS {
            let message = format!("{} skills, and a node may have {MAX_SKILLS}", skills.len());
            self.report.fault(FaultCode::LimitExceeded, &pointer, message);
            return None;
        }
        let (mut by_name, mut description) = (BTreeMap::new(), BuiltInTool::ReadSkill.description().to_owned());
        for (number, skill) in skills.iter().enumerate() {
            let fault = |why: &dyn std::fmt::Display| match &*skill.folder {
                "" => format!("the skill: {why}"),
                folder => format!("the skill `{folder}`: {why}"),
            };
            match skill.read() {
                Ok((head, _)) if by_name.contains_key(&head.name) => {
                    let message = fault(&format_args!("another skill has the name `{}` too", head.name));
                    self.report
                        .fault(FaultCode::InvalidValue, &child(&pointer, number), message);
                }
                Ok((head, body)) => {
                    // One line for each skill: line breaks in a description would look like another entry.
                    let words: Vec<&str> = head.description.split_whitespace().collect();
                    let line = ["\n- ", &*head.name, ": ", &*words.join(" ")].concat();
                    description.push_str(&line);
                    let mut files = skill.files.clone();
                    files.insert(SKILL_FILE.to_owned(), body.to_owned());
                    by_name.insert(head.name, files);
                }
                Err(why) => {
                    let files = child(&child(&pointer, number), "files");
                    self.report.fault(FaultCode::InvalidValue, &files, fault(&why));
                }
            }
        }
        let definition = ToolDefinition {
            name: BuiltInTool::ReadSkill.name().to_owned(),
            description,
            parameters: BuiltInTool::ReadSkill.parameters(),
        };
        (!by_name.is_empty()).then(|| {
            Box::new(NodeSkills {
                by_name,
                definitions: Arc::new(vec![definition]),
            })
        })
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

/// True for `{schema}` and `{type: "json_object", schema}`: JSON Schema has no such keyword.
fn ignores_schema(format: &Value) -> bool {
    let has_schema = ["schema", "json_schema", "jsonSchema"]
        .iter()
        .any(|key| format.get(key).is_some());
    has_schema && format.get("type").is_none_or(|kind| kind != "json_schema")
}

/// True for `{type: "json_schema"}` without a schema: any JSON would be accepted.
fn lacks_schema(format: &Value) -> bool {
    let inner = format.get("json_schema").or_else(|| format.get("jsonSchema"));
    format.get("type").is_some_and(|kind| kind == "json_schema") && inner.unwrap_or(format).get("schema").is_none()
}
