//! Workflows as tools: a model's call starts a child thread, whose output is the result of the call.

use std::sync::Arc;

use pirn_definition::definition::{
    BuiltInTool, ConversationMode, Fault, ToolEntry, workflow_of_tool, workflow_tool_name,
};
use pirn_definition::graph::{NodeIx, NodeKind, SubmittedWorkflow};
use serde_json::{Value, json};

use super::thread::ThreadTurn;
use crate::run::data::message::ThreadRequest;
use crate::run::parts::agents::{may_submit, none_left};
use crate::thread::{self, Callee, ConsentRequest, EffectId, Outcome, ToolResult, called_workflows};

impl ThreadTurn<'_, '_> {
    /// Performs the call of a tool: in a child thread if the tool is a workflow, by the host otherwise. Returns the outcome of a call
    /// that is answered inline.
    pub(in crate::run) fn tool(&mut self, tool: thread::Effect) -> Option<(EffectId, Outcome)> {
        let thread::Effect::Tool {
            id,
            node,
            call,
            is_consented,
            ..
        } = &tool
        else {
            return None;
        };
        let (id, node) = (*id, *node);
        // Cloned, because the thread is changed while its node is read.
        let graph = Arc::clone(self.live.machine.graph());
        let (mut of_llm, mut of_script);
        let (dynamic, code, entries): (_, _, &mut dyn Iterator<Item = &str>) = match &graph.node(node).kind {
            NodeKind::Llm(llm) => {
                of_llm = llm.tools.iter().map(|entry| &**entry);
                (llm.dynamic.as_deref(), llm.code.as_deref(), &mut of_llm)
            }
            NodeKind::Orchestration(script) => {
                of_script = called_workflows(script);
                (None, None, &mut of_script)
            }
            _ => {
                // A TOOL node names a registered tool: the compiler refuses workflows there.
                self.outside(tool);
                return None;
            }
        };
        if let Some(rules) = dynamic.filter(|_| call.name == BuiltInTool::RunWorkflow.name()) {
            let submitted = match self.compiled(rules.read(&call.arguments)) {
                Ok(submitted) => submitted,
                Err(refusal) => return Some((id, refusal)),
            };
            if self.agents.is_some() && !may_submit(self.no, self.places) {
                let message = "the workflow was not started: `dynamic.limits.depth` of a submitted workflow around it allows no further one";
                return Some((id, Outcome::Tool(Box::new(ToolResult::failed(message.to_owned())))));
            }
            if rules.asks() && !is_consented {
                let request = ConsentRequest {
                    reason: submitted.plan,
                    arguments: call.arguments.clone(),
                    schema: BuiltInTool::RunWorkflow.parameters(),
                    timeout_ms: None,
                };
                return Some((id, Outcome::NeedsConsent(Box::new(request))));
            }
            let input = call.arguments.get("input").cloned().unwrap_or_default();
            self.start_child(id, node, Callee::Inline(submitted.source), Arc::new(input));
            return None;
        }
        if let Some(rules) = code.filter(|_| call.name == BuiltInTool::RunCode.name()) {
            let submitted = rules.read(&call.arguments, self.live.machine.revealed_tools());
            match self.compiled(submitted) {
                // No approval: each call of the script is approved like one of the model.
                Ok(submitted) => self.start_child(id, node, Callee::Inline(submitted.source), Arc::default()),
                Err(refusal) => return Some((id, refusal)),
            }
            return None;
        }
        let mut called =
            entries.filter_map(|entry| Some((workflow_of_tool(entry)?, ToolEntry::split_consent(entry).1)));
        let Some((workflow_id, asks)) = called.find(|(workflow_id, _)| workflow_tool_name(workflow_id) == call.name)
        else {
            self.outside(tool);
            return None;
        };
        if asks && !is_consented {
            let workflow = self.step.env.graph(workflow_id);
            let request = ConsentRequest {
                reason: format!("calls of the workflow `{workflow_id}` need consent"),
                arguments: call.arguments.clone(),
                schema: workflow.map_or_else(|| json!({}), |workflow| workflow.about.argument_schema()),
                timeout_ms: None,
            };
            return Some((id, Outcome::NeedsConsent(Box::new(request))));
        }
        // After the consent: a call that a person refuses starts no agent.
        let counts = self.agents.as_deref_mut();
        if counts.is_some_and(|counts| !counts.start_workflow(self.no, self.places)) {
            let message = none_left(workflow_id);
            return Some((id, Outcome::Tool(Box::new(ToolResult::failed(message)))));
        }
        let input = Arc::new(call.arguments.clone());
        self.start_child(id, node, Callee::Tool(workflow_id.into()), input);
        None
    }

    /// Compiles a submitted workflow. Returns the result of its call if it has faults.
    fn compiled(&self, submitted: Result<SubmittedWorkflow, Vec<Fault>>) -> Result<SubmittedWorkflow, Outcome> {
        let compiled = submitted.and_then(|submitted| {
            let compiled = self.step.env.compile(&submitted.source);
            compiled.map_err(|faults| submitted.faults(faults))?;
            Ok(submitted)
        });
        compiled.map_err(|faults| {
            Outcome::Tool(Box::new(ToolResult::failed(
                SubmittedWorkflow::refusal(&faults).to_string(),
            )))
        })
    }

    fn start_child(&mut self, effect: EffectId, node: NodeIx, callee: Callee, input: Arc<Value>) {
        self.live.supervise(effect);
        self.forward(ThreadRequest::Call {
            effect,
            node,
            callee,
            input,
            // The child has a conversation of its own: the result is all that the model receives.
            mode: ConversationMode::None,
        });
    }
}
