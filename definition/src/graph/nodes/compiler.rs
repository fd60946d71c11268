//! Checks and compiles the config of each node.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use serde_path_to_error::Track;

use crate::definition::json::Step;
use crate::definition::{
    BuiltInTool, CodeConfig, ContextOperation, ContinueFromTriggerConfig, FaultCode, NodeConfig, NodeDefinition,
    PinSection, Pinned, Replacement, RetryPolicy, RouteConfig, ScriptConfig, SubgraphConfig, Target, TextMessage,
    ToolConfig, TruncateContext, VariableScope, WaitConfig, WorkflowDefinition, steps_of, workflow_of_tool,
};
use crate::error::RunErrorCode;
use crate::graph::compile_context::CompileContext;
use crate::graph::diagnostics::{Diagnostics, child, pointer};
use crate::graph::model::{ContextNode, Edge, Fork, ForkIx, Node, NodeKind, ScriptNode, TemplateMessage, ValueSpec};
use crate::graph::snippets::list::Snippets;
use crate::graph::structure::adjacency::Adjacency;
use crate::graph::structure::pairing::{Partners, check_fork};
use crate::script::{read_meta, script_body};

/// Compiles the nodes of one workflow.
pub(in crate::graph) struct NodeCompiler<'a, 's> {
    pub(in crate::graph) definition: &'a WorkflowDefinition,
    pub(in crate::graph) adjacency: &'a Adjacency,
    pub(in crate::graph) partners: &'a Partners,
    pub(in crate::graph) context: &'a CompileContext<'a>,
    /// All variables that may be assigned in a run.
    pub(in crate::graph) variable_names: &'a BTreeSet<Arc<str>>,
    pub(in crate::graph) snippets: Snippets<'static>,
    pub(in crate::graph) report: &'a mut Diagnostics<'s>,
}

impl NodeCompiler<'_, '_> {
    fn declared_scope(&self, name: &str) -> VariableScope {
        let mut declared = self.definition.variables.iter();
        let declared = declared.find(|variable| variable.name == name);
        declared.map_or(VariableScope::Thread, |variable| variable.scope)
    }

    /// Compiles every node, and every FORK that has a JOIN. Nodes in `placeholders` are skipped: their faults are reported already,
    /// and a workflow with faults has no graph.
    pub(in crate::graph) fn compile(&mut self, placeholders: &[usize]) -> (Vec<Node>, Vec<Fork>) {
        let definition = self.definition;
        let mut forks = Vec::new();
        let mut fork_of: Vec<Option<ForkIx>> = vec![None; definition.nodes.len()];
        for (place, node) in definition.nodes.iter().enumerate() {
            let known = placeholders.binary_search(&place).is_err();
            match (&node.config, self.partners[place]) {
                (NodeConfig::Fork(fork), partner) if known => {
                    let holes = self.report.origin.holes();
                    if !holes.transitions && !holes.nodes {
                        check_fork(definition, place, fork, self.adjacency, self.report);
                    }
                    let Some(join) = partner else { continue };
                    let number = forks.len() as ForkIx;
                    fork_of[place] = Some(number);
                    fork_of[join as usize] = Some(number);
                    if let Some(fork) = self.fork(place, fork, join) {
                        forks.push(fork);
                    }
                }
                (_, _) => {}
            }
        }
        let mut nodes = Vec::with_capacity(definition.nodes.len());
        for (place, node) in definition.nodes.iter().enumerate() {
            if placeholders.binary_search(&place).is_err() {
                nodes.extend(self.node(place, node, fork_of[place]));
            }
        }
        (nodes, forks)
    }

    fn node(&mut self, place: usize, node: &NodeDefinition, fork: Option<ForkIx>) -> Option<Node> {
        let retry = node.retry.as_ref().map(|retry| self.retry(place, retry));
        let retry_on = node.retry.as_ref().and_then(|retry| retry.retry_on.as_deref());
        for (number, code) in retry_on.unwrap_or_default().iter().enumerate() {
            let mut known = RunErrorCode::ALL.iter().map(|code| code.as_str());
            if !known.any(|known| known == code) {
                let known = RunErrorCode::ALL.iter().map(|code| code.as_str());
                let pointer = pointer!["nodes", place, "retry", "retryOn", number];
                let message = format!("unknown error code `{code}`: it would never be retried");
                self.report
                    .unknown(FaultCode::InvalidValue, &pointer, message, code, known);
            }
        }
        let timeout_ms = self
            .report
            .milliseconds(node.timeout_ms, || pointer!["nodes", place, "timeoutMs"]);
        let on_error = node
            .on_error
            .as_ref()
            .and_then(|to| self.adjacency.find(&to.target_node_id));
        let mut edges = self.edges(place);
        let kind = match &node.config {
            NodeConfig::Route(route) => {
                let edges = std::mem::take(&mut edges);
                self.route(place, route, &edges)
            }
            NodeConfig::Fork(_) => {
                edges.clear();
                NodeKind::Fork(fork?)
            }
            NodeConfig::Join(join) => {
                self.check_join(place, join);
                NodeKind::Join(fork?)
            }
            NodeConfig::Start => NodeKind::Start,
            NodeConfig::StartFromTrigger => NodeKind::StartFromTrigger,
            NodeConfig::End(end) => {
                let output = end.output.as_deref();
                NodeKind::End {
                    output: output.map(|text| self.expression(text, place, "output")),
                }
            }
            NodeConfig::Variable(variable) => {
                let pointer = pointer!["nodes", place, "config", "variableName"];
                self.report.variable_name(&variable.variable_name, &pointer);
                NodeKind::Variable {
                    name: Arc::from(variable.variable_name.as_str()),
                    expression: self.expression(&variable.expression, place, "expression"),
                    variable_type: variable.variable_type,
                    scope: variable
                        .scope
                        .unwrap_or_else(|| self.declared_scope(&variable.variable_name)),
                    readonly: variable.readonly,
                }
            }
            NodeConfig::Llm(llm) => NodeKind::Llm(self.llm(place, llm)),
            NodeConfig::Code(code) => self.code(place, code)?,
            NodeConfig::Script(script) => self.script(place, script),
            NodeConfig::Subgraph(subgraph) => self.subgraph(place, subgraph),
            NodeConfig::Map(map) => self.map(place, map),
            NodeConfig::ContextProcessor(operation) => NodeKind::Context(self.operation(place, operation)),
            NodeConfig::Wait(wait) => self.wait(place, wait)?,
            NodeConfig::Tool(tool) => self.tool(place, tool),
            NodeConfig::UserInteraction(config) => self.interaction(place, config),
            NodeConfig::LoopStart(config) => self.loop_start(place, config)?,
            NodeConfig::LoopEnd(config) => self.loop_end(place, config)?,
            NodeConfig::ContinueFromTrigger(config) => {
                self.check_callbacks(place, config);
                NodeKind::ContinueFromTrigger(config.clone())
            }
        };
        Some(Node {
            id: Arc::from(node.id.as_str()),
            name: node.name.as_deref().map(Arc::from),
            kind,
            retry,
            timeout_ms,
            on_error,
            in_doubt: node.in_doubt.clone(),
            edges,
        })
    }

    pub(in crate::graph) fn expression(&mut self, text: &str, place: usize, key: &str) -> u32 {
        self.snippets
            .expression(text, || pointer!["nodes", place, "config", key], self.report)
    }

    pub(in crate::graph) fn template(&mut self, text: &str, place: usize, key: &str) -> u32 {
        self.snippets
            .template(text, || pointer!["nodes", place, "config", key], self.report)
    }

    fn retry(&mut self, place: usize, retry: &RetryPolicy) -> RetryPolicy {
        let pointer = |key: &str| pointer!["nodes", place, "retry", key];
        if retry.max_attempts == 0 {
            self.report.fault(
                FaultCode::InvalidValue,
                &pointer("maxAttempts"),
                "at least one attempt is made",
            );
        }
        if !(retry.backoff.is_finite() && retry.backoff >= 0.0) {
            let message = format!("invalid backoff {}: expected a number of at least 0", retry.backoff);
            self.report.fault(FaultCode::InvalidValue, &pointer("backoff"), message);
        }
        self.report
            .milliseconds(Some(retry.initial_delay_ms), || pointer("initialDelayMs"));
        self.report
            .milliseconds(Some(retry.max_delay_ms), || pointer("maxDelayMs"));
        retry.clone()
    }

    /// Returns the edges with the highest weight first, then in list order.
    fn edges(&mut self, place: usize) -> Vec<Edge> {
        let mut order = self.adjacency.edges[place].clone();
        let weight = |edge: &usize| self.definition.edges[*edge].weight;
        order.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        let mut edges = Vec::with_capacity(order.len());
        for index in order {
            let edge = &self.definition.edges[index];
            let Some(target) = self.adjacency.targets[index] else {
                continue;
            };
            let condition = edge.condition.as_deref().map(|text| {
                self.snippets
                    .expression(text, || pointer!["edges", index, "condition"], self.report)
            });
            edges.push(Edge { condition, target });
        }
        edges
    }

    /// Compiles a ROUTE from `routes` and the default if it has either, and otherwise from its edges.
    fn route(&mut self, place: usize, route: &RouteConfig, edges: &[Edge]) -> NodeKind {
        if route.routes.is_empty() && route.default_target_node_id.is_none() {
            let default = edges
                .iter()
                .find(|edge| edge.condition.is_none())
                .map(|edge| edge.target);
            let routes = edges
                .iter()
                .map_while(|edge| edge.condition.map(|condition| (condition, edge.target)))
                .collect();
            return NodeKind::Route { routes, default };
        }
        let mut order: Vec<usize> = (0..route.routes.len()).collect();
        for (index, one) in route.routes.iter().enumerate() {
            if !one.priority.is_finite() {
                let pointer = pointer!["nodes", place, "config", "routes", index, "priority"];
                self.report.fault(
                    FaultCode::InvalidValue,
                    &pointer,
                    format!("invalid priority {}: expected a finite number", one.priority),
                );
            }
        }
        order.sort_by(|a, b| route.routes[*b].priority.total_cmp(&route.routes[*a].priority));
        let mut routes = Vec::with_capacity(order.len());
        for index in order {
            let one = &route.routes[index];
            let pointer = || pointer!["nodes", place, "config", "routes", index, "condition"];
            let condition = self.snippets.expression(&one.condition, pointer, self.report);
            routes.extend(
                self.adjacency
                    .find(&one.target_node_id)
                    .map(|target| (condition, target)),
            );
        }
        let default = route
            .default_target_node_id
            .as_deref()
            .and_then(|id| self.adjacency.find(id));
        NodeKind::Route { routes, default }
    }

    fn code(&mut self, place: usize, code: &CodeConfig) -> Option<NodeKind> {
        let pointer = pointer!["nodes", place, "config"];
        let input = code
            .input
            .as_ref()
            .map(|input| self.snippets.input(input, &child(&pointer, "input"), self.report));
        match (&code.code, &code.function) {
            (Some(text), None) => {
                let code = self.snippets.script(text, || child(&pointer, "code"), self.report);
                Some(NodeKind::Script { code, input })
            }
            (None, Some(name)) => {
                self.context
                    .check_function(name, &child(&pointer, "function"), self.report);
                Some(NodeKind::Function {
                    name: Arc::from(name.as_str()),
                    input,
                })
            }
            (Some(_), Some(_)) => {
                self.report.fault(
                    FaultCode::InvalidValue,
                    &pointer,
                    "either `code` or `function`, not both",
                );
                None
            }
            (None, None) => {
                self.report.fault(
                    FaultCode::MissingField,
                    &pointer,
                    "a CODE node needs `code` or `function`",
                );
                None
            }
        }
    }

    fn script(&mut self, place: usize, script: &ScriptConfig) -> NodeKind {
        let pointer = pointer!["nodes", place, "config"];
        if let Some(id) = &script.profile_id {
            self.context
                .check_profile(id, &child(&pointer, "profileId"), self.report);
        }
        for (name, id) in &script.models {
            let pointer = child(&child(&pointer, "models"), name.as_str());
            self.context.check_profile(id, &pointer, self.report);
        }
        for (number, name) in script.tools.iter().enumerate() {
            let pointer = child(&child(&pointer, "tools"), number);
            if BuiltInTool::of_name(name).is_some() {
                let message = format!("`{name}` is a built-in tool: only models call it, in LLM nodes");
                self.report.fault(FaultCode::InvalidValue, &pointer, message);
            } else if workflow_of_tool(name).is_none() {
                self.context.check_tool(name, &pointer, self.report);
            }
        }
        let limits = script.limits;
        for (key, limit) in [("concurrency", limits.concurrency), ("calls", limits.calls)] {
            if limit == 0 {
                let pointer = child(&child(&pointer, "limits"), key);
                let message = format!("`{key}` must be at least 1");
                self.report.fault(FaultCode::InvalidValue, &pointer, message);
            }
        }
        let pointer_of_time = || child(&child(&pointer, "limits"), "timeMs");
        self.report.milliseconds(limits.time_ms, pointer_of_time);
        let input = script
            .input
            .as_ref()
            .map(|input| self.snippets.input(input, &child(&pointer, "input"), self.report));
        let code = &script.code;
        if let Some(file) = &script.file {
            // The loader has replaced it, unless the definition was built in Rust.
            let message =
                format!("the script `{file}`: load the workflow file by its path, or give the script as `code`");
            self.report
                .fault(FaultCode::InvalidValue, &child(&pointer, "file"), message);
        } else if code.is_empty() {
            self.report.fault(
                FaultCode::MissingField,
                &pointer,
                "a SCRIPT node needs `code` or `file`",
            );
        }
        if let Err(fault) = read_meta(code) {
            let (pointer, message) = (child(&pointer, "code"), fault.to_string());
            let fault = (self.report.origin).fault_within(
                FaultCode::InvalidExpression,
                &pointer,
                &(fault.at..fault.at + 1),
                message,
            );
            self.report.faults.push(fault);
        }
        NodeKind::Orchestration(Box::new(ScriptNode {
            code: self
                .snippets
                .workflow(&script_body(code), || child(&pointer, "code"), self.report),
            input,
            profile_id: script.profile_id.as_deref().map(Arc::from),
            models: script.models.clone(),
            tools: script.tools.iter().map(|name| Arc::from(name.as_str())).collect(),
            profiles: script.profiles.clone(),
            workflows: script.workflows.clone(),
            limits,
            tool_result_bytes: script.tool_result_bytes,
        }))
    }

    fn subgraph(&mut self, place: usize, subgraph: &SubgraphConfig) -> NodeKind {
        let pointer = pointer!["nodes", place, "config", "input"];
        NodeKind::Subgraph {
            workflow_id: Arc::from(subgraph.subgraph_id.as_str()),
            input: subgraph
                .input
                .as_ref()
                .map(|input| self.snippets.input(input, &pointer, self.report)),
            output: subgraph
                .output
                .as_deref()
                .map(|text| self.expression(text, place, "output")),
            conversation: subgraph.conversation,
            agent: subgraph.agent.clone(),
        }
    }

    fn tool(&mut self, place: usize, tool: &ToolConfig) -> NodeKind {
        let pointer = pointer!["nodes", place, "config"];
        if tool.tool.is_empty() {
            let message = "`tool` needs a name that is not empty";
            self.report
                .fault(FaultCode::InvalidValue, &child(&pointer, "tool"), message);
        }
        if let Some(name) = &tool.assign_to {
            self.report.variable_name(name, &child(&pointer, "assignTo"));
        }
        if let Some(id) = workflow_of_tool(&tool.tool) {
            let message = format!(
                "`{}` is a workflow: only models call it as a tool, in LLM nodes",
                tool.tool
            );
            let help = format!("call it by a SUBGRAPH node with `subgraphId` `{id}`");
            self.report
                .fault_with_help(FaultCode::InvalidValue, &child(&pointer, "tool"), message, &help);
        } else if BuiltInTool::of_name(&tool.tool).is_some() {
            let message = format!("`{}` is a built-in tool: only models call it, in LLM nodes", tool.tool);
            self.report
                .fault(FaultCode::InvalidValue, &child(&pointer, "tool"), message);
        } else {
            self.context
                .check_tool(&tool.tool, &child(&pointer, "tool"), self.report);
        }
        let arguments = tool.arguments.as_ref().map(|arguments| {
            let pointer = child(&pointer, "arguments");
            self.snippets.input(arguments, &pointer, self.report)
        });
        NodeKind::Tool {
            name: Arc::from(tool.tool.as_str()),
            arguments: arguments.unwrap_or_else(|| ValueSpec::Literal(Arc::new(json!({})))),
            assign_to: tool.assign_to.as_deref().map(Arc::from),
        }
    }

    fn wait(&mut self, place: usize, wait: &WaitConfig) -> Option<NodeKind> {
        let pointer = pointer!["nodes", place, "config"];
        let timeout_ms = self.report.seconds(wait.timeout, || child(&pointer, "timeout"));
        match (wait.seconds, &wait.event) {
            (Some(seconds), None) => {
                let ms = self.report.seconds(Some(seconds), || child(&pointer, "seconds"));
                if wait.timeout.is_some() {
                    let message = "`timeout` requires `event`; `seconds` is already the length of the WAIT";
                    self.report
                        .fault(FaultCode::InvalidValue, &child(&pointer, "timeout"), message);
                }
                Some(NodeKind::WaitTime(ms.unwrap_or_default()))
            }
            (None, Some(event)) => Some(NodeKind::WaitEvent {
                event: Arc::from(event.as_str()),
                timeout_ms,
            }),
            (Some(_), Some(_)) => {
                self.report.fault(
                    FaultCode::InvalidValue,
                    &pointer,
                    "either `seconds` or `event`, not both",
                );
                None
            }
            (None, None) => {
                self.report
                    .fault(FaultCode::MissingField, &pointer, "a WAIT needs `seconds` or `event`");
                None
            }
        }
    }

    fn operation(&mut self, place: usize, operation: &ContextOperation) -> ContextNode {
        let pointer = pointer!["nodes", place, "config"];
        match operation {
            ContextOperation::Insert(insert) => ContextNode::Insert {
                messages: self.messages(&insert.messages, &child(&pointer, "messages")),
                position: insert.position,
            },
            ContextOperation::Replace(replace) => {
                let target = match &replace.target {
                    Target::Word(crate::definition::AllWord::All) => None,
                    Target::Selection(selection) => {
                        self.report.history(selection, &child(&pointer, "target"));
                        Some(selection.clone())
                    }
                };
                let pointer = child(&pointer, "replacement");
                let messages = match &replace.replacement {
                    Replacement::Text(text) => {
                        vec![TemplateMessage {
                            role: replace.role,
                            content: self.snippets.template(text, || pointer.clone(), self.report),
                            pin: false,
                        }]
                    }
                    Replacement::Messages(messages) => self.messages(messages, &pointer),
                };
                ContextNode::Replace { target, messages }
            }
            ContextOperation::Truncate(truncate) => {
                self.check_truncate(truncate, &pointer);
                ContextNode::Truncate(truncate.clone())
            }
            ContextOperation::Clear(clear) => ContextNode::Clear {
                keep_system: clear.keep_system,
            },
            ContextOperation::Filter(filter) => ContextNode::Filter(filter.clone()),
            ContextOperation::Compress(config) => {
                let default = self.definition.config.compression.as_ref();
                self.context.check_compression(config, default, &pointer, self.report);
                if config.speculative_at.is_some() {
                    let message = "`speculativeAt` belongs in the workflow's `config.compression`: a node compresses when it is reached";
                    let pointer = child(&pointer, "speculativeAt");
                    self.report.fault(FaultCode::InvalidValue, &pointer, message);
                }
                ContextNode::Compress(config.or_default(default))
            }
            ContextOperation::Pin(pin) => {
                let pointer = child(&pointer, "value");
                let value = self.snippets.value(&pin.value, &pointer, self.report);
                // The form of a value with templates is known at run time only.
                if let ValueSpec::Literal(value) = &value {
                    self.check_section(pin.section, value, pointer);
                }
                ContextNode::Pin {
                    section: pin.section,
                    value,
                }
            }
        }
    }

    fn check_section(&mut self, section: PinSection, value: &Value, mut pointer: Vec<Step>) {
        let mut track = Track::new();
        let checked = Pinned::default().set(section, serde_path_to_error::Deserializer::new(value, &mut track));
        if let Err(error) = checked {
            pointer.extend(steps_of(track));
            let message = format!("the value does not fit the section `{}`: {error}", section.as_str());
            self.report.fault(FaultCode::InvalidValue, &pointer, message);
        }
    }

    fn messages(&mut self, messages: &[TextMessage], pointer: &[Step]) -> Vec<TemplateMessage> {
        messages
            .iter()
            .enumerate()
            .map(|(index, message)| {
                let pointer = || child(&child(pointer, index), "content");
                TemplateMessage {
                    role: message.role,
                    content: self.snippets.template(&message.content, pointer, self.report),
                    pin: message.pin,
                }
            })
            .collect()
    }

    fn check_truncate(&mut self, truncate: &TruncateContext, pointer: &[Step]) {
        let TruncateContext {
            keep_first,
            keep_last,
            remove_first,
            remove_last,
            range,
            role: _,
        } = truncate;
        let given = [keep_first, keep_last, remove_first, remove_last]
            .into_iter()
            .flatten()
            .count();
        if given + usize::from(range.is_some()) != 1 {
            let message = "give exactly one of keepFirst, keepLast, removeFirst, removeLast, range";
            self.report.fault(FaultCode::InvalidValue, pointer, message);
        }
        if range.is_some_and(|range| range.start >= range.end) {
            self.report.fault(
                FaultCode::InvalidValue,
                &child(pointer, "range"),
                "`start` must be below `end`",
            );
        }
    }

    fn check_callbacks(&mut self, place: usize, config: &ContinueFromTriggerConfig) {
        let pointer = pointer!["nodes", place, "config"];
        if let Some(callback) = &config.variable_callback {
            let pointer = child(&pointer, "variableCallback");
            match (&callback.include_variables, callback.include_all) {
                (Some(_), true) => {
                    let message = "either `includeVariables` or `includeAll`, not both";
                    self.report.fault(FaultCode::InvalidCallback, &pointer, message);
                }
                (None, false) => {
                    let message = "nothing is returned: set `includeVariables` or `includeAll: true`";
                    self.report.fault(FaultCode::InvalidCallback, &pointer, message);
                }
                (Some(names), false) => {
                    let pointer = child(&pointer, "includeVariables");
                    self.context
                        .warn_of_unknown_variables(names, self.variable_names, &pointer, self.report);
                }
                (None, true) => {}
            }
        }
        if let Some(callback) = &config.conversation_history_callback {
            self.report
                .history(&callback.selection(), &child(&pointer, "conversationHistoryCallback"));
        }
    }
}
