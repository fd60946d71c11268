//! Faults for calls that draw on a budget and have no upper bound: they would be refused at run time.

use std::collections::{BTreeMap, BTreeSet};

use pirn_conversation::model_call::CallBound;
use pirn_definition::definition::{Budget, ContextOperation, Fault, FaultCode, Loaded, NodeConfig};
use serde_json::{Map, Value};

use pirn_models::ModelRegistry;

/// Returns faults for model calls without an upper bound, in workflows with a budget and in the workflows that these call.
pub(crate) fn budget_faults(loaded: &Loaded, models: &ModelRegistry) -> Vec<Fault> {
    let by_id: BTreeMap<&str, usize> = loaded
        .workflows
        .iter()
        .enumerate()
        .map(|(place, workflow)| (workflow.value.id.as_str(), place))
        .collect();
    let mut found = Vec::new();
    // Several workflows with a budget may call one workflow, whose faults are reported once.
    let mut told = BTreeSet::new();
    for (place, workflow) in loaded.workflows.iter().enumerate() {
        let limits: Vec<&Budget> = workflow
            .value
            .config
            .budget
            .iter()
            .flat_map(|budget| budget.all())
            .collect();
        let limits_cost = limits.iter().any(|limits| limits.cost.is_some());
        if !limits_cost && !limits.iter().any(|limits| limits.tokens.is_some()) {
            continue;
        }
        // A budget also covers the workflows that are called, so all that can be reached are checked.
        let (mut reached, mut next) = (BTreeSet::from([place]), vec![place]);
        while let Some(place) = next.pop() {
            let workflow = &loaded.workflows[place];
            for (node, definition) in workflow.value.nodes.iter().enumerate() {
                if let Some(called) = called(&definition.config).and_then(|id| by_id.get(id))
                    && reached.insert(*called)
                {
                    next.push(*called);
                }
                let Some(bound) = bound(&definition.config, models) else {
                    continue;
                };
                let missing = match bound {
                    // Without a maximum the engine cannot reserve tokens before the call.
                    CallBound { output: None, .. } => Some((
                        FaultCode::BudgetWithoutMaximum,
                        "a budget limits this call, and its maximum reply length is unknown",
                    )),
                    CallBound { prices: None, .. } if limits_cost => Some((
                        FaultCode::BudgetWithoutPrices,
                        "a budget limits the cost of this call, and its profile has no `prices`",
                    )),
                    CallBound { .. } => None,
                };
                if let Some((code, message)) = missing
                    && told.insert((place, node, code))
                {
                    found.push(
                        workflow
                            .origin
                            .fault_at(code, &format!("/nodes/{node}/config"), message.to_owned()),
                    );
                }
            }
        }
    }
    found
}

/// Returns the id of the workflow that a node calls.
fn called(node: &NodeConfig) -> Option<&str> {
    match node {
        NodeConfig::Subgraph(subgraph) => Some(&subgraph.subgraph_id),
        NodeConfig::Map(map) => Some(&map.subgraph_id),
        // Only these two nodes call a workflow by its id.
        _ => None,
    }
}

/// Returns the bound of a node's model calls, or `None` if it has no model calls or its request is unknown before the run.
fn bound(node: &NodeConfig, models: &ModelRegistry) -> Option<CallBound> {
    let nothing = Map::new();
    match node {
        NodeConfig::Llm(llm) => {
            let own = llm.parameters.as_ref().unwrap_or(&nothing);
            let most = own.get("maxTokens").or_else(|| own.get("max_tokens"));
            let bound = models.bound_of(llm.profile_id.as_deref(), own)?;
            Some(match most {
                // A template.
                Some(Value::String(_)) => CallBound {
                    output: Some(0),
                    ..bound
                },
                _ => bound,
            })
        }
        NodeConfig::ContextProcessor(ContextOperation::Compress(compress))
            if compress.strategy.as_deref() == Some("summarize") =>
        {
            // Otherwise the model is that of an LLM node, which is checked separately.
            let named = compress.parameters.get("profileId").and_then(Value::as_str)?;
            models.bound_of(Some(named), &nothing)
        }
        _ => None,
    }
}
