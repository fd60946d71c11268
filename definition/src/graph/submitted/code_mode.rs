//! Scripts that a model runs by the tool `run_code`: the tools that they may call, and the workflow that contains one.

use std::sync::Arc;

use serde_json::{Value, json};

use super::workflow::SubmittedWorkflow;
use crate::definition::{
    BuiltInTool, CodeModeLimits, Fault, FaultCode, InDoubt, LlmConfig, ScriptConfig, ScriptLimits, SourceFile,
    ToolEntry, script_workflow,
};

/// Name of the argument with the script.
const ARGUMENT: &str = "code";

/// Rules for the scripts that the model of an LLM node runs by the tool `run_code`.
#[derive(Clone, Debug)]
pub struct CodeRules {
    /// Tools and workflows that the node offers in every request.
    tools: Vec<String>,
    limits: CodeModeLimits,
    in_doubt: Option<InDoubt>,
}

impl CodeRules {
    /// Returns the rules of a node. Returns `None` if the node does not list the tool `run_code`.
    pub(in crate::graph) fn of(llm: &LlmConfig, in_doubt: Option<&InDoubt>) -> Option<Self> {
        let mut tools = llm.tools.iter();
        tools.find(|tool| tool.name == BuiltInTool::RunCode.name())?;
        let offered = llm
            .tools
            .iter()
            .filter(|tool| !tool.deferred && BuiltInTool::of_name(&tool.name).is_none());
        Some(Self {
            tools: offered.map(ToolEntry::compiled).collect(),
            limits: llm.code_limits.unwrap_or_default(),
            in_doubt: in_doubt.cloned(),
        })
    }

    /// Reads the arguments of a call. The script may call the tools of the node, including the deferred ones that are `revealed`.
    ///
    /// # Errors
    /// Returns a fault if the arguments contain no script.
    pub fn read(&self, arguments: &Value, revealed: &[Arc<str>]) -> Result<SubmittedWorkflow, Vec<Fault>> {
        let Some(code) = arguments.get(ARGUMENT).and_then(Value::as_str) else {
            let message = "`code` must be a string: the body of a JavaScript async function";
            let fault = SourceFile::new(ARGUMENT, "null").fault_at(FaultCode::InvalidValue, "", message);
            return Err(vec![fault]);
        };
        let revealed = revealed.iter().map(ToString::to_string);
        let CodeModeLimits {
            calls,
            concurrency,
            result_bytes,
            output_bytes,
            time_ms,
        } = self.limits;
        let config = ScriptConfig {
            code: code.to_owned(),
            tools: self.tools.iter().cloned().chain(revealed).collect(),
            limits: ScriptLimits {
                concurrency,
                calls,
                result_bytes,
                time_ms,
                // Agents are refused when they are called.
                ..ScriptLimits::default()
            },
            tool_result_bytes: Some(output_bytes),
            ..ScriptConfig::default()
        };
        // A config always has a JSON form.
        let config = serde_json::to_value(config).unwrap_or_default();
        let mut workflow = script_workflow(BuiltInTool::RunCode.name(), config);
        if let Some(policy) = &self.in_doubt {
            // The calls of the script are those of the node's tools.
            workflow["nodes"][1]["inDoubt"] = json!(policy);
        }
        Ok(SubmittedWorkflow {
            source: workflow.to_string().into(),
            plan: String::new(),
            argument: ARGUMENT,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn a_script_may_call_the_tools_that_the_node_offers() {
        let llm = json!({"tools": ["run_code", "run_workflow", "git_*", "workflow:helper", {"name": "rare", "deferred": true}],
            "codeLimits": {"calls": 7, "outputBytes": 9}});
        let rules = CodeRules::of(&serde_json::from_value(llm).unwrap(), Some(&InDoubt::Fail)).unwrap();
        let config = |revealed: &[Arc<str>]| -> Map<String, Value> {
            let submitted = rules.read(&json!({"code": "return 1"}), revealed).unwrap();
            let source: Value = serde_json::from_str(&submitted.source).unwrap();
            assert_eq!(source["nodes"][1]["inDoubt"], "fail");
            source["nodes"][1]["config"].as_object().unwrap().clone()
        };
        let script = config(&[]);
        assert_eq!(script["tools"], json!(["git_*", "workflow:helper"]));
        assert_eq!(script["limits"]["calls"], 7);
        assert_eq!(script["toolResultBytes"], 9);
        assert_eq!(
            config(&["rare".into()])["tools"],
            json!(["git_*", "workflow:helper", "rare"])
        );
        assert_eq!(
            rules.read(&json!({"code": 1}), &[]).unwrap_err()[0].code,
            FaultCode::InvalidValue
        );
    }
}
