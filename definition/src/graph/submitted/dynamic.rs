//! Rules of a node for the workflows that its model submits by the tool `run_workflow`.

use std::fmt::Write as _;

use serde_json::Value;

use super::workflow::SubmittedWorkflow;
use crate::definition::{
    Budget, BuiltInTool, CodeModeLimits, ContextOperation, DynamicConfig, DynamicConsent, DynamicForm, DynamicLimits,
    Fault, FaultCode, LlmConfig, Loaded, Located, MapConfig, NodeConfig, ScriptConfig, ScriptLimits, SourceFile,
    ToolEntry, WorkflowConfig, WorkflowDefinition, load, workflow_of_script, workflow_of_tool,
};
use crate::graph::draw::{Drawing, mermaid};

/// Default maximum number of LLM nodes and calls of a submitted workflow.
const DEFAULT_AGENTS: u64 = 100;

/// Default maximum number of concurrent branches of a submitted workflow.
const DEFAULT_CONCURRENCY: u32 = 16;

/// Id of a submitted workflow that has none.
const DEFAULT_ID: &str = "dynamic";

/// Maximum number of calls of a submitted script. Each step evaluates it again: the cost is quadratic, and a model must not write a script
/// that runs for hours.
const MAX_CALLS: u32 = 1_000;

/// Maximum number of characters of a script in its plan.
const SHOWN_SCRIPT: usize = 8_000;

/// Rules for the workflows that the model of an LLM node submits, with all defaults.
#[derive(Clone, Debug)]
pub struct DynamicRules {
    allow: Vec<DynamicForm>,
    /// Allowed profiles. Empty: nodes use the default profile.
    profiles: Vec<String>,
    tools: Vec<String>,
    limits: DynamicLimits,
    consent: DynamicConsent,
    /// Limits of the scripts of submitted LLM nodes with the tool `run_code`.
    code_limits: Option<CodeModeLimits>,
}

impl DynamicRules {
    /// Returns the rules of a node. Returns `None` if the node does not list the tool `run_workflow`.
    pub(in crate::graph) fn of(llm: &LlmConfig) -> Option<Self> {
        let is_tool = |tool: &ToolEntry| tool.name == BuiltInTool::RunWorkflow.name();
        if !llm.tools.iter().any(is_tool) {
            return None;
        }
        let dynamic = llm.dynamic.as_deref().cloned().unwrap_or_default();
        let own_profile = || llm.profile_id.iter().filter(|id| !id.contains("{{")).cloned().collect();
        let own_tools = || {
            // A submitted workflow may call a workflow that needs consent only if `dynamic.tools` names it.
            let others = llm.tools.iter().filter(|tool| !is_tool(tool) && !tool.asks());
            others.map(|tool| tool.name.clone()).collect()
        };
        Some(Self {
            allow: dynamic
                .allow
                .unwrap_or_else(|| vec![DynamicForm::Graph, DynamicForm::Script]),
            profiles: dynamic.profiles.unwrap_or_else(own_profile),
            tools: dynamic.tools.unwrap_or_else(own_tools),
            limits: dynamic.limits,
            consent: dynamic.consent.unwrap_or_default(),
            code_limits: llm.code_limits,
        })
    }

    /// Returns true if a person must approve a submitted workflow.
    pub fn asks(&self) -> bool {
        self.consent == DynamicConsent::Ask
    }

    /// Reads the arguments of a call, and applies the rules.
    ///
    /// # Errors
    /// Returns the faults of the workflow for the model. Their JSON pointers are those of [`SubmittedWorkflow::faults`].
    pub fn read(&self, arguments: &Value) -> Result<SubmittedWorkflow, Vec<Fault>> {
        let given = |name: &str| arguments.get(name).filter(|value| !value.is_null());
        match (given("graph"), given("script")) {
            (Some(graph), None) => self.read_graph(graph),
            (None, Some(script)) => self.read_script(script),
            (Some(_), Some(_)) => Err(refused("submit either `graph` or `script`, not both")),
            (None, None) => Err(refused("submit the workflow as `graph` or as `script`")),
        }
    }

    fn read_graph(&self, graph: &Value) -> Result<SubmittedWorkflow, Vec<Fault>> {
        if !self.allow.contains(&DynamicForm::Graph) {
            return Err(refused("the agent may not submit graphs (`dynamic.allow`)"));
        }
        // Models often write an object as a string.
        let mut graph = match graph {
            Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| graph.clone()),
            graph => graph.clone(),
        };
        if let Value::Object(fields) = &mut graph {
            fields.entry("id").or_insert_with(|| DEFAULT_ID.into());
        }
        let workflow = load_one(&SourceFile::new("graph", graph.to_string()))?;
        let drawing = mermaid(&Drawing::of(&[&workflow.value], &[]));
        self.apply(workflow, "graph", &drawing)
    }

    /// Wraps a script in START and END: its `meta` configures the SCRIPT node as in a script file.
    fn read_script(&self, script: &Value) -> Result<SubmittedWorkflow, Vec<Fault>> {
        if !self.allow.contains(&DynamicForm::Script) {
            return Err(refused("the agent may not submit scripts (`dynamic.allow`)"));
        }
        let Value::String(script) = script else {
            return Err(refused(
                "`script` must be a string: the body of a JavaScript async function",
            ));
        };
        let workflow = workflow_of_script(DEFAULT_ID, script).map_err(|fault| {
            let file = SourceFile::new("script", script.as_str());
            let at = fault.at..fault.at + 1;
            vec![file.fault_in(FaultCode::InvalidExpression, "/script", at, fault.to_string())]
        })?;
        let shown: String = script.chars().take(SHOWN_SCRIPT).collect();
        let rest = if shown.len() < script.len() {
            "\n(The rest is in the arguments of the call.)"
        } else {
            ""
        };
        let submitted = load_one(&SourceFile::new("script", workflow.to_string()))
            .and_then(|workflow| self.apply(workflow, "script", &(shown + rest)));
        submitted.map_err(|faults| SubmittedWorkflow::faults_of_script(faults, "script"))
    }

    /// Applies the rules to a workflow, which `shown` shows to the person who approves it.
    fn apply(
        &self,
        workflow: Located<WorkflowDefinition>,
        argument: &'static str,
        shown: &str,
    ) -> Result<SubmittedWorkflow, Vec<Fault>> {
        let Located {
            value: mut workflow,
            origin,
        } = workflow;
        let mut found = Vec::new();
        let own = std::mem::take(&mut workflow.config);
        workflow.config = self.config(&own);
        let known = WorkflowConfig {
            budget: own.budget.clone(),
            timeout_ms: own.timeout_ms,
            max_concurrent_branches: own.max_concurrent_branches,
            ..WorkflowConfig::default()
        };
        if own != known {
            let message = "a submitted workflow may set `budget`, `timeoutMs` and `maxConcurrentBranches` only";
            found.push((FaultCode::InvalidValue, "/config".to_owned(), message.to_owned()));
        }
        let mut agents = 0;
        let mut scripts = Vec::new();
        for (place, node) in workflow.nodes.iter_mut().enumerate() {
            let mut report = |code, field: &str, message| {
                found.push((code, format!("/nodes/{place}/config/{field}"), message));
            };
            match &mut node.config {
                NodeConfig::Llm(llm) => {
                    agents += 1;
                    self.check_llm(llm, &mut report);
                }
                NodeConfig::Tool(tool) => self.check_tool(&tool.tool, "tool", &mut report),
                NodeConfig::Subgraph(subgraph) => {
                    agents += 1;
                    self.check_callee(&subgraph.subgraph_id, &mut report);
                }
                NodeConfig::Map(map) => {
                    agents += u64::from(map.most_items());
                    self.check_map(map, &mut report);
                }
                NodeConfig::Code(code) if code.function.is_some() => {
                    let message = "a submitted workflow may call no function of the program: use `code`".to_owned();
                    report(FaultCode::InvalidValue, "function", message);
                }
                // A script determines its calls at run time: the compiled node contains the rules, and each call is checked against them.
                NodeConfig::Script(script) => {
                    self.check_script(script, &mut report);
                    scripts.push(script);
                }
                NodeConfig::ContextProcessor(ContextOperation::Compress(compression)) => {
                    if let Some(id) = compression.parameters.get("profileId").and_then(Value::as_str) {
                        self.check_profile(id, "parameters/profileId", &mut report);
                    }
                }
                _other => {}
            }
        }
        // A first check: the run counts the executions (`max_agents`).
        let limit = self.agents();
        if agents > limit {
            let message = format!("the workflow has up to {agents} agents; `dynamic.limits.agents` allows {limit}");
            found.push((FaultCode::LimitExceeded, "/nodes".to_owned(), message));
        }
        // The agents that the other nodes leave, in equal parts.
        let mut open = scripts.len() as u64;
        for script in scripts {
            let part = limit.saturating_sub(agents) / open;
            open -= 1;
            script.limits.agents = script.limits.agents.min(u32::try_from(part).unwrap_or(u32::MAX));
            agents += u64::from(script.limits.agents);
        }
        if !found.is_empty() {
            let faults = found.into_iter();
            return Err(faults
                .map(|(code, pointer, message)| origin.fault_at(code, &pointer, message))
                .collect());
        }
        let plan = Self::plan(&workflow, agents, shown);
        // A definition always has a JSON form.
        let source = serde_json::to_string(&workflow).unwrap_or_default();
        Ok(SubmittedWorkflow {
            source: source.into(),
            plan,
            argument,
        })
    }

    /// Returns the config of a submitted workflow: the lower one of its own limits and those of the rules.
    fn config(&self, own: &WorkflowConfig) -> WorkflowConfig {
        let limits = &self.limits;
        let budget = own.budget.as_deref().cloned().unwrap_or_default();
        let budget = Budget {
            tokens: least(budget.tokens, limits.tokens),
            cost: match (budget.cost, limits.cost) {
                (Some(own), Some(limit)) => Some(own.min(limit)),
                (own, limit) => own.or(limit),
            },
            ..budget
        };
        let concurrency = limits.concurrency.unwrap_or(DEFAULT_CONCURRENCY);
        WorkflowConfig {
            budget: (budget != Budget::default()).then(|| Box::new(budget)),
            timeout_ms: least(own.timeout_ms.filter(|limit| *limit > 0), limits.time_ms),
            max_concurrent_branches: least(own.max_concurrent_branches, Some(concurrency)),
            max_agents: Some(self.agents()),
            max_nested: self.depth().checked_sub(1).filter(|nested| *nested > 0),
            ..WorkflowConfig::default()
        }
    }

    fn check_llm(&self, llm: &mut LlmConfig, report: &mut dyn FnMut(FaultCode, &str, String)) {
        match &llm.profile_id {
            Some(id) => self.check_profile(id, "profileId", report),
            None => llm.profile_id = self.profiles.first().cloned(),
        }
        // The rules list the tools that the workflow may use, and cannot list those of a client.
        if llm.client_tools == Some(true) {
            let message = "a submitted workflow may not use the tools of the client".to_owned();
            report(FaultCode::InvalidValue, "clientTools", message);
        }
        llm.client_tools = Some(false);
        let submits = BuiltInTool::RunWorkflow.name();
        for (number, tool) in llm.tools.iter().enumerate() {
            let field = format!("tools/{number}");
            if tool.name == submits {
                if self.depth() < 2 {
                    let message = format!(
                        "`{submits}` is nested too deep: `dynamic.limits.depth` is {}",
                        self.depth()
                    );
                    report(FaultCode::LimitExceeded, &field, message);
                }
            } else {
                self.check_tool(tool, &field, report);
            }
        }
        // Replaced, so that no nested workflow may do more than the one that contains it.
        let runs_code = llm.tools.iter().any(|tool| tool.name == BuiltInTool::RunCode.name());
        llm.code_limits = self.code_limits.filter(|_| runs_code);
        llm.dynamic = llm
            .tools
            .iter()
            .any(|tool| tool.name == submits)
            .then(|| Box::new(self.nested()));
    }

    fn nested(&self) -> DynamicConfig {
        DynamicConfig {
            allow: Some(self.allow.clone()),
            profiles: Some(self.profiles.clone()),
            tools: Some(self.tools.clone()),
            limits: DynamicLimits {
                depth: Some(self.depth().saturating_sub(1)),
                ..self.limits.clone()
            },
            consent: Some(self.consent),
        }
    }

    fn agents(&self) -> u64 {
        self.limits.agents.unwrap_or(DEFAULT_AGENTS)
    }

    fn depth(&self) -> u32 {
        self.limits.depth.unwrap_or(1)
    }

    fn check_map(&self, map: &mut MapConfig, report: &mut dyn FnMut(FaultCode, &str, String)) {
        self.check_callee(&map.subgraph_id, report);
        let concurrency = self.limits.concurrency.unwrap_or(DEFAULT_CONCURRENCY);
        map.concurrency = least(map.concurrency, Some(concurrency));
    }

    /// Restricts a script to the profiles, tools and workflows of the rules. Names in its `meta` must be among them.
    fn check_script(&self, script: &mut ScriptConfig, report: &mut dyn FnMut(FaultCode, &str, String)) {
        match &script.profile_id {
            Some(id) => self.check_profile(id, "profileId", report),
            None => script.profile_id = self.profiles.first().cloned(),
        }
        for (name, id) in &script.models {
            self.check_profile(id, &format!("models/{name}"), report);
        }
        match &script.profiles {
            Some(ids) => ids
                .iter()
                .enumerate()
                .for_each(|(number, id)| self.check_profile(id, &format!("profiles/{number}"), report)),
            None => script.profiles = Some(self.profiles.clone()),
        }
        for (number, tool) in script.tools.iter().enumerate() {
            self.check_tool(tool, &format!("tools/{number}"), report);
        }
        if script.tools.is_empty() {
            let own = self.tools.iter().filter(|tool| BuiltInTool::of_name(tool).is_none());
            script.tools = own.cloned().collect();
        }
        if let Some(ids) = &script.workflows {
            for (number, id) in ids.iter().enumerate() {
                self.check_workflow(id, &format!("workflows/{number}"), report);
            }
        } else {
            let ids = self.tools.iter().filter_map(|tool| workflow_of_tool(tool));
            script.workflows = Some(ids.map(str::to_owned).collect());
        }
        let ScriptLimits { result_bytes, .. } = ScriptLimits::default();
        let limits = &mut script.limits;
        limits.calls = limits.calls.min(MAX_CALLS);
        limits.result_bytes = limits.result_bytes.min(result_bytes);
        limits.concurrency = limits
            .concurrency
            .min(self.limits.concurrency.unwrap_or(DEFAULT_CONCURRENCY));
    }

    fn check_callee(&self, id: &str, report: &mut dyn FnMut(FaultCode, &str, String)) {
        self.check_workflow(id, "subgraphId", report);
    }

    fn check_workflow(&self, id: &str, field: &str, report: &mut dyn FnMut(FaultCode, &str, String)) {
        let mut workflows = self.tools.iter().filter_map(|tool| workflow_of_tool(tool));
        if !workflows.any(|allowed| allowed == id) {
            let message = format!("the workflow `{id}` may not be called here; {}", self.allowed_tools());
            report(FaultCode::UnknownWorkflowReference, field, message);
        }
    }

    fn check_tool(&self, name: &str, field: &str, report: &mut dyn FnMut(FaultCode, &str, String)) {
        if !self.tools.iter().any(|allowed| ToolEntry::includes(allowed, name)) {
            let message = format!("the tool `{name}` may not be used here; {}", self.allowed_tools());
            report(FaultCode::UnknownTool, field, message);
        }
    }

    fn allowed_tools(&self) -> String {
        match &self.tools[..] {
            [] => "no tools are allowed".to_owned(),
            tools => format!("allowed are: {}", tools.join(", ")),
        }
    }

    fn check_profile(&self, id: &str, field: &str, report: &mut dyn FnMut(FaultCode, &str, String)) {
        if !self.profiles.iter().any(|allowed| allowed == id) {
            let allowed = match &self.profiles[..] {
                [] => "leave `profileId` out".to_owned(),
                profiles => format!("allowed are: {}", profiles.join(", ")),
            };
            let message = format!("the profile `{id}` may not be used here; {allowed}");
            report(FaultCode::UnknownProfile, field, message);
        }
    }

    /// Describes the workflow for a person.
    fn plan(workflow: &WorkflowDefinition, agents: u64, shown: &str) -> String {
        let mut plan = format!(
            "the model wrote the workflow `{}` with up to {agents} agents",
            workflow.id
        );
        let mut limit = |limit: Option<String>| {
            if let Some(limit) = limit {
                // Writing to a string cannot fail.
                let _ = write!(plan, ", {limit}");
            }
        };
        let config = &workflow.config;
        let budget = config.budget.as_deref();
        limit(budget.and_then(|budget| Some(format!("at most {} tokens", budget.tokens?))));
        limit(budget.and_then(|budget| Some(format!("a cost of at most {}", budget.cost?))));
        limit(config.timeout_ms.map(|ms| format!("at most {ms} ms")));
        plan + ":\n" + shown
    }
}

/// Loads a file with one workflow.
fn load_one(file: &SourceFile) -> Result<Located<WorkflowDefinition>, Vec<Fault>> {
    let Loaded { workflows, faults, .. } = load(file);
    if !faults.is_empty() {
        return Err(faults);
    }
    let [workflow] = <[_; 1]>::try_from(workflows)
        .map_err(|_| refused("expected one workflow: {\"nodes\": [...], \"edges\": [...]}"))?;
    Ok(workflow)
}

/// Returns the fault of a call that submits no workflow.
fn refused(message: &str) -> Vec<Fault> {
    vec![SourceFile::new("graph", "null").fault_at(FaultCode::InvalidValue, "", message)]
}

/// Returns the lower one of two limits.
fn least<T: Ord>(own: Option<T>, limit: Option<T>) -> Option<T> {
    match (own, limit) {
        (Some(own), Some(limit)) => Some(own.min(limit)),
        (own, limit) => own.or(limit),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(dynamic: &Value) -> DynamicRules {
        let llm =
            json!({"profileId": "boss", "tools": ["run_workflow", "search", "workflow:helper"], "dynamic": dynamic});
        DynamicRules::of(&serde_json::from_value(llm).unwrap()).unwrap()
    }

    fn graph(node: &Value) -> Value {
        json!({"graph": {
            "nodes": [{"id": "s", "type": "START"}, node, {"id": "e", "type": "END"}],
            "edges": [{"from": "s", "to": node["id"]}, {"from": node["id"], "to": "e"}],
        }})
    }

    fn llm(config: &Value) -> Value {
        graph(&json!({"id": "n", "type": "LLM", "config": config}))
    }

    #[test]
    fn a_submitted_workflow_uses_only_what_its_node_allows() {
        let rules = rules(&json!({"profiles": ["cheap"], "limits": {"agents": 3}}));
        let script = |mut config: Value| {
            config["code"] = json!("return 1");
            json!({"id": "n", "type": "SCRIPT", "config": config})
        };
        let map = |max_items| {
            json!({"id": "n", "type": "MAP",
            "config": {"items": "[1]", "subgraphId": "helper", "maxItems": max_items}})
        };
        let cases = [
            (
                llm(&json!({"prompt": "p", "profileId": "boss"})),
                "/nodes/1/config/profileId",
            ),
            (
                llm(&json!({"prompt": "p", "tools": ["delete"]})),
                "/nodes/1/config/tools/0",
            ),
            (
                llm(&json!({"prompt": "p", "tools": ["run_workflow"]})),
                "/nodes/1/config/tools/0",
            ),
            (
                graph(&json!({"id": "n", "type": "TOOL", "config": {"tool": "delete"}})),
                "/nodes/1/config/tool",
            ),
            (
                graph(&json!({"id": "n", "type": "SUBGRAPH", "config": {"subgraphId": "other"}})),
                "/nodes/1/config/subgraphId",
            ),
            (
                graph(&json!({"id": "n", "type": "CODE", "config": {"function": "f"}})),
                "/nodes/1/config/function",
            ),
            (graph(&map(4)), "/nodes"),
            (graph(&script(json!({"tools": ["delete"]}))), "/nodes/1/config/tools/0"),
            (
                graph(&script(json!({"profiles": ["boss"]}))),
                "/nodes/1/config/profiles/0",
            ),
            (
                graph(&script(json!({"workflows": ["other"]}))),
                "/nodes/1/config/workflows/0",
            ),
            (
                json!({"script": "export const meta = {tools: ['delete']}"}),
                "/meta/tools/0",
            ),
            (
                json!({"script": "export const meta = {models: {opus: 'boss'}}"}),
                "/meta/models/opus",
            ),
            (
                json!({"script": "export const meta = {limits: {agents: 'many'}}"}),
                "/meta/limits/agents",
            ),
            (json!({"script": "export const meta = {profileId: f()}"}), "/script"),
            (json!({"script": 1}), ""),
            (json!({"script": "return 1", "graph": {}}), ""),
            (json!({}), ""),
        ];
        for (arguments, pointer) in cases {
            let faults = rules.read(&arguments).expect_err(&arguments.to_string());
            assert_eq!(faults[0].pointer, pointer, "{faults:?}");
        }
        for arguments in [
            llm(&json!({"prompt": "p", "tools": ["search"]})),
            graph(&map(3)),
            graph(&script(json!({"tools": ["workflow:helper"], "workflows": ["helper"]}))),
            graph(&json!({"id": "n", "type": "SUBGRAPH", "config": {"subgraphId": "helper"}})),
        ] {
            rules.read(&arguments).unwrap();
            let text = json!({"graph": arguments["graph"].to_string()});
            rules.read(&text).expect("a graph may be written as a string");
        }
    }

    #[test]
    fn the_calls_of_a_submitted_script_are_restricted_to_the_rules() {
        let rules =
            rules(&json!({"profiles": ["cheap", "fast"], "limits": {"agents": 5, "concurrency": 2, "tokens": 9}}));
        let config = |arguments: &Value, place: usize| {
            let submitted = rules.read(arguments).unwrap();
            let source: Value = serde_json::from_str(&submitted.source).unwrap();
            assert_eq!(source["config"]["budget"]["tokens"], 9);
            (source["nodes"][place]["config"].clone(), submitted.plan)
        };
        let meta = "export const meta = {name: 'vote', limits: {calls: 4000000000, agents: 50}}\nreturn 1";
        let (script, plan) = config(&json!({ "script": meta }), 1);
        assert_eq!(script["profileId"], "cheap");
        assert_eq!(script["profiles"], json!(["cheap", "fast"]));
        assert_eq!(script["tools"], json!(["search", "workflow:helper"]));
        assert_eq!(script["workflows"], json!(["helper"]));
        let limits = &script["limits"];
        assert_eq!(
            (&limits["agents"], &limits["concurrency"], &limits["calls"]),
            (&json!(5), &json!(2), &json!(1_000))
        );
        for part in ["the workflow `vote` with up to 5 agents", "at most 9 tokens", meta] {
            assert!(plan.contains(part), "{part}: {plan}");
        }
        // An LLM node and two scripts share the agents.
        let script = |id: &str| json!({"id": id, "type": "SCRIPT", "config": {"code": "return 1"}});
        let nodes = json!([{"id": "s", "type": "START"}, {"id": "n", "type": "LLM", "config": {"prompt": "p"}}, script("a"), script("b"),
            {"id": "e", "type": "END"}]);
        let edges: Vec<_> = ["s", "n", "a", "b", "e"]
            .windows(2)
            .map(|pair| json!({"from": pair[0], "to": pair[1]}))
            .collect();
        let arguments = json!({"graph": {"nodes": nodes, "edges": edges}});
        assert_eq!(config(&arguments, 2).0["limits"]["agents"], 2);
        assert_eq!(config(&arguments, 3).0["limits"]["agents"], 2);
    }

    #[test]
    fn a_submitted_workflow_gets_the_lower_one_of_its_limits_and_those_of_the_rules() {
        let rules = rules(&json!({"limits": {"tokens": 100, "timeMs": 50, "concurrency": 2, "depth": 2}}));
        let mut arguments = llm(&json!({"prompt": "p", "tools": ["run_workflow"], "dynamic": {"consent": "auto"}}));
        arguments["graph"]["config"] = json!({"budget": {"tokens": 70, "modelCalls": 4}, "timeoutMs": 60});
        let submitted = rules.read(&arguments).unwrap();
        let source: Value = serde_json::from_str(&submitted.source).unwrap();
        let config = json!({"budget": {"tokens": 70, "modelCalls": 4}, "timeoutMs": 50, "maxConcurrentBranches": 2, "maxAgents": 100,
            "maxNested": 1});
        assert_eq!(source["config"], config);
        let nested = &source["nodes"][1]["config"];
        assert_eq!(nested["profileId"], "boss");
        assert_eq!(
            (&nested["dynamic"]["limits"]["depth"], &nested["dynamic"]["consent"]),
            (&json!(1), &json!("ask"))
        );
        assert!(
            submitted.plan.contains("at most 70 tokens, at most 50 ms"),
            "{}",
            submitted.plan
        );
    }
}
