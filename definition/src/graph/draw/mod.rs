//! Drawings of workflows, for Mermaid, Graphviz and other renderers. Drawn from definitions, so that invalid workflows can be
//! drawn too.
//!
//! Not here: the layout and the colours of a picture: the renderer of the command chooses them.

mod dot;
mod mermaid;

use std::collections::BTreeMap;

use crate::definition::{
    ForkStrategy, JoinStrategy, MergeVariables, NodeConfig, NodeDefinition, Reducer, TriggerDefinition,
    VariableDefinition, WorkflowDefinition, workflow_of_tool,
};

pub use dot::dot;
pub use mermaid::mermaid;

/// Boxes and arrows: the workflows of some files, and the triggers between them.
#[derive(Clone, Debug, Default)]
pub struct Drawing {
    /// Boxes; arrows refer to their indices.
    pub boxes: Vec<NodeBox>,
    /// The workflows, in order.
    pub groups: Vec<Group>,
    /// Arrows, sorted by source box.
    pub arrows: Vec<Arrow>,
}

/// A workflow in a drawing.
#[derive(Clone, Debug)]
pub struct Group {
    /// The workflow's id, and its name if it has one.
    pub title: String,
    /// Indices of its boxes.
    pub boxes: std::ops::Range<usize>,
}

/// A node or a trigger in a drawing.
#[derive(Clone, Debug)]
pub struct NodeBox {
    /// One or two lines: the id, the type, and the most descriptive field.
    pub label: String,
    /// Shape of the box.
    pub shape: Shape,
}

/// Shape of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// START and END.
    Terminal,
    /// A node of any other type.
    Box,
    /// ROUTE.
    Diamond,
    /// FORK.
    Spread,
    /// JOIN.
    Gather,
    /// SUBGRAPH.
    Frame,
    /// A trigger, START_FROM_TRIGGER or CONTINUE_FROM_TRIGGER.
    Trigger,
    /// LOOP_START and LOOP_END.
    Loop,
}

/// An arrow from one box to another.
#[derive(Clone, Debug)]
pub struct Arrow {
    /// Index of the source box.
    pub from: usize,
    /// Index of the target box.
    pub to: usize,
    /// Label of the arrow.
    pub label: Option<String>,
    /// Line style.
    pub style: ArrowStyle,
}

/// Line style of an arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrowStyle {
    /// An edge or a route.
    Plain,
    /// A path of a fork.
    Path,
    /// An `onError` transition, a call, or a trigger's action.
    Dashed,
}

impl Drawing {
    /// Draws these workflows and outer triggers.
    pub fn of(workflows: &[&WorkflowDefinition], triggers: &[&TriggerDefinition]) -> Self {
        let mut drawing = Self::default();
        let mut starts = BTreeMap::new();
        for workflow in workflows {
            drawing.workflow(workflow, &mut starts);
        }
        for trigger in triggers {
            drawing.boxes.push(trigger_box(trigger));
        }
        let first_trigger = drawing.boxes.len() - triggers.len();
        for (place, trigger) in triggers.iter().enumerate() {
            drawing.started_by(first_trigger + place, trigger, &starts);
        }
        for (group, workflow) in workflows.iter().enumerate() {
            let first = drawing.groups[group].boxes.start;
            for (place, node) in workflow.nodes.iter().enumerate() {
                let (called, how) = match &node.config {
                    NodeConfig::Subgraph(call) => (&call.subgraph_id, "calls"),
                    NodeConfig::Map(map) => (&map.subgraph_id, "calls for each item"),
                    NodeConfig::Llm(llm) => {
                        for called in llm.tools.iter().filter_map(|tool| workflow_of_tool(tool)) {
                            drawing.link(first + place, starts.get(called), "calls as a tool");
                        }
                        continue;
                    }
                    _ => continue,
                };
                drawing.link(first + place, starts.get(called.as_str()), how);
            }
            for (place, trigger) in workflow.triggers.iter().enumerate() {
                drawing.started_by(first + workflow.nodes.len() + place, trigger, &starts);
            }
        }
        drawing.arrows.sort_by_key(|arrow| arrow.from);
        drawing
    }

    fn workflow<'w>(&mut self, workflow: &'w WorkflowDefinition, starts: &mut BTreeMap<&'w str, usize>) {
        let first = self.boxes.len();
        self.boxes.extend(workflow.nodes.iter().map(|node| NodeBox {
            label: label(node, &workflow.variables),
            shape: shape(&node.config),
        }));
        self.boxes.extend(workflow.triggers.iter().map(trigger_box));
        let title = match workflow.name.as_deref() {
            Some(name) if name != workflow.id => format!("{}: {name}", workflow.id),
            Some(_) | None => workflow.id.clone(),
        };
        self.groups.push(Group {
            title,
            boxes: first..self.boxes.len(),
        });
        let begins = |node: &NodeDefinition| matches!(node.config, NodeConfig::Start | NodeConfig::StartFromTrigger);
        if let Some(start) = workflow.nodes.iter().position(begins) {
            starts.entry(&workflow.id).or_insert(first + start);
        }
        self.arrows.extend(ways(workflow).into_iter().map(|way| Arrow {
            from: first + way.from,
            to: first + way.to,
            ..way
        }));
    }

    fn started_by(&mut self, trigger_box: usize, trigger: &TriggerDefinition, starts: &BTreeMap<&str, usize>) {
        let (_, started) = trigger.action.type_and_workflow();
        self.link(trigger_box, started.and_then(|id| starts.get(id)), "starts");
    }

    fn link(&mut self, from: usize, to: Option<&usize>, label: &str) {
        self.arrows.extend(to.map(|to| Arrow {
            from,
            to: *to,
            label: Some(label.to_owned()),
            style: ArrowStyle::Dashed,
        }));
    }
}

fn trigger_box(trigger: &TriggerDefinition) -> NodeBox {
    let event = trigger.condition.event_name.as_deref();
    let event = event.unwrap_or(trigger.condition.event_type.as_str());
    let when = match &trigger.schedule {
        Some(schedule) => format!("SCHEDULE {} {}", schedule.cron, schedule.timezone),
        None => format!("TRIGGER on {event}"),
    };
    NodeBox {
        label: format!("{}\n{when}: {}", trigger.id, trigger.action.type_and_workflow().0),
        shape: Shape::Trigger,
    }
}

fn shape(config: &NodeConfig) -> Shape {
    match config {
        NodeConfig::Start | NodeConfig::End(_) => Shape::Terminal,
        NodeConfig::Route(_) => Shape::Diamond,
        NodeConfig::Fork(_) => Shape::Spread,
        NodeConfig::Join(_) => Shape::Gather,
        NodeConfig::Subgraph(_) | NodeConfig::Map(_) => Shape::Frame,
        NodeConfig::LoopStart(_) | NodeConfig::LoopEnd(_) => Shape::Loop,
        NodeConfig::StartFromTrigger | NodeConfig::ContinueFromTrigger(_) => Shape::Trigger,
        NodeConfig::Variable(_)
        | NodeConfig::Llm(_)
        | NodeConfig::Code(_)
        | NodeConfig::Script(_)
        | NodeConfig::ContextProcessor(_)
        | NodeConfig::Wait(_)
        | NodeConfig::Tool(_)
        | NodeConfig::UserInteraction(_) => Shape::Box,
    }
}

fn label(node: &NodeDefinition, variables: &[VariableDefinition]) -> String {
    let title = match node.name.as_deref() {
        Some(name) if name != node.id => format!("{}: {name}", node.id),
        Some(_) | None => node.id.clone(),
    };
    let (type_name, known_by) = (node.config.type_name(), known_by(&node.config));
    format!("{title}\n{type_name}{known_by}{}", merged(&node.config, variables))
}

/// Returns the variables that a MAP merges, each with its reducer; for a JOIN that merges all, the variables with a reducer.
fn merged(config: &NodeConfig, variables: &[VariableDefinition]) -> String {
    let reducer = |name: &str| variables.iter().find(|variable| variable.name == name)?.reduce.as_ref();
    let by = |name: &str| match reducer(name) {
        Some(Reducer::Word(word)) => format!("{name} by {}", word.as_str()),
        Some(Reducer::Expression(text)) => format!("{name} by {text}"),
        None => name.to_owned(),
    };
    let names: Vec<String> = match config {
        NodeConfig::Map(map) => map.assign.iter().map(|name| by(name)).collect(),
        NodeConfig::Join(join) if join.merge_variables == MergeVariables::All => {
            let wanted = variables.iter().filter(|variable| variable.reduce.is_some());
            wanted.map(|variable| by(&variable.name)).collect()
        }
        _ => return String::new(),
    };
    if names.is_empty() {
        return String::new();
    }
    format!("\nmerges {}", names.join(", "))
}

/// Returns the part of a node's label after the type.
fn known_by(config: &NodeConfig) -> String {
    match config {
        NodeConfig::Join(join) => joined_by(join.join_strategy, join.threshold, join.timeout),
        NodeConfig::Map(map) => {
            let join = joined_by(map.join_strategy, map.threshold, map.timeout);
            format!(" {}{join}", map.subgraph_id)
        }
        NodeConfig::Fork(fork) if fork.fork_strategy == ForkStrategy::Serial => " serial".to_owned(),
        NodeConfig::Subgraph(call) => format!(" {}", call.subgraph_id),
        NodeConfig::Tool(tool) => format!(" {}", tool.tool),
        NodeConfig::LoopStart(start) => format!(" {}", start.loop_id),
        NodeConfig::LoopEnd(end) => format!(" {}", end.loop_id),
        _ => String::new(),
    }
}

fn joined_by(strategy: JoinStrategy, threshold: Option<u32>, timeout: Option<f64>) -> String {
    let strategy = strategy.as_str();
    let threshold = threshold.map_or_else(String::new, |count| format!(" {count}"));
    let timeout = timeout.filter(|seconds| *seconds > 0.0);
    let timeout = timeout.map_or_else(String::new, |seconds| format!(", {seconds} s"));
    format!(" {strategy}{threshold}{timeout}")
}

/// Returns the loop id and the id of the LOOP_START.
fn loop_start(node: &NodeDefinition) -> Option<(&str, &str)> {
    match &node.config {
        NodeConfig::LoopStart(config) => Some((&config.loop_id, &node.id)),
        _ => None,
    }
}

/// Returns all transitions, in the order of the nodes; references to unknown nodes are omitted.
fn ways(definition: &WorkflowDefinition) -> Vec<Arrow> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, node) in definition.nodes.iter().enumerate() {
        places.entry(&node.id).or_insert(place);
    }
    let mut out = Vec::new();
    let mut add = |from: usize, to: &str, label: Option<String>, style: ArrowStyle| {
        if let Some(to) = places.get(to).copied() {
            out.push(Arrow { from, to, label, style });
        }
    };
    let loops: BTreeMap<&str, &str> = definition.nodes.iter().filter_map(loop_start).collect();
    let mut own_ways = vec![false; definition.nodes.len()];
    for (place, node) in definition.nodes.iter().enumerate() {
        if let NodeConfig::Route(route) = &node.config {
            own_ways[place] = !route.routes.is_empty() || route.default_target_node_id.is_some();
            for one in &route.routes {
                add(
                    place,
                    &one.target_node_id,
                    Some(one.condition.clone()),
                    ArrowStyle::Plain,
                );
            }
            if let Some(target) = &route.default_target_node_id {
                add(place, target, Some("otherwise".to_owned()), ArrowStyle::Plain);
            }
        }
        if let NodeConfig::Fork(fork) = &node.config {
            own_ways[place] = true;
            for (path, child) in fork.fork_path_ids.iter().zip(&fork.child_node_ids) {
                add(place, child, Some(path.clone()), ArrowStyle::Path);
            }
        }
        if let NodeConfig::LoopEnd(end) = &node.config
            && let Some(start) = loops.get(end.loop_id.as_str())
        {
            add(place, start, Some("next".to_owned()), ArrowStyle::Path);
        }
        if let NodeConfig::UserInteraction(interaction) = &node.config
            && let Some(id) = interaction.timeout_target()
        {
            add(place, id, Some("on timeout".to_owned()), ArrowStyle::Dashed);
        }
        if let Some(on_error) = &node.on_error {
            let label = Some("on error".to_owned());
            add(place, &on_error.target_node_id, label, ArrowStyle::Dashed);
        }
    }
    for edge in &definition.edges {
        if let Some(from) = places
            .get(edge.source_node_id.as_str())
            .copied()
            .filter(|from| !own_ways[*from])
        {
            let label = edge.label.clone().or_else(|| edge.condition.clone());
            add(from, &edge.target_node_id, label, ArrowStyle::Plain);
        }
    }
    out.sort_by_key(|arrow| arrow.from);
    out
}

#[cfg(test)]
mod tests {
    use super::{Drawing, dot, mermaid};
    use crate::definition::{SourceFile, load};

    fn drawn() -> Drawing {
        let text = r#"{"id": "say \"hi\"", "nodes": [
            {"id": "s", "type": "START"},
            {"id": "r", "type": "ROUTE", "config": {"routes": [{"condition": "a < \"b\" | c", "targetNodeId": "f"}],
             "defaultTargetNodeId": "e"}},
            {"id": "f", "type": "FORK", "config": {"forkPathIds": ["p"], "childNodeIds": ["c"]}},
            {"id": "c", "type": "LLM", "name": "back\\slash\nand line", "onError": {"targetNodeId": "j"}},
            {"id": "j", "type": "JOIN", "config": {"forkPathIds": ["p"], "joinStrategy": "ALL_COMPLETED"}},
            {"id": "e", "type": "END"}],
            "edges": [{"from": "s", "to": "r"}, {"from": "f", "to": "c"}, {"from": "c", "to": "j"},
                      {"from": "j", "to": "e"}, {"from": "j", "to": "nowhere"}]}"#;
        let loaded = load(&SourceFile::new("drawn.json", text));
        assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
        drawing(&loaded)
    }

    fn drawing(loaded: &crate::definition::Loaded) -> Drawing {
        let workflows: Vec<_> = loaded.workflows.iter().map(|one| &one.value).collect();
        let triggers: Vec<_> = loaded.triggers.iter().map(|one| &one.value).collect();
        Drawing::of(&workflows, &triggers)
    }

    #[test]
    fn one_drawing_contains_all_workflows_calls_and_triggers() {
        let text = r#"{"workflows": [
            {"id": "main", "nodes": [{"id": "s", "type": "START"},
                {"id": "c", "type": "SUBGRAPH", "config": {"subgraphId": "other"}}, {"id": "e", "type": "END"}],
             "edges": [{"from": "s", "to": "c"}, {"from": "c", "to": "e"}]},
            {"id": "other", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
             "edges": [{"from": "s", "to": "e"}]}],
            "triggers": [{"id": "t", "type": "EVENT", "condition": {"eventType": "NODE_FAILED"},
             "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "other"}}}]}"#;
        let loaded = load(&SourceFile::new("two.json", text));
        assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
        let text = mermaid(&drawing(&loaded));
        assert_eq!(
            text,
            "flowchart TD\n  subgraph w0[\"main\"]\n    n0([\"s<br/>START\"])\n    n1[[\"c<br/>SUBGRAPH other\"]]\n    \
             n2([\"e<br/>END\"])\n  end\n  subgraph w1[\"other\"]\n    n3([\"s<br/>START\"])\n    n4([\"e<br/>END\"])\n  end\n  \
             n5{{\"t<br/>TRIGGER on NODE_FAILED: START_WORKFLOW\"}}\n  \
             n0 --> n1\n  n1 --> n2\n  n1 -.->|\"calls\"| n3\n  n3 --> n4\n  n5 -.->|\"starts\"| n3\n"
        );
        let dot = dot(&drawing(&loaded));
        assert_eq!(dot.matches("digraph").count(), 1);
        assert!(dot.contains("subgraph \"cluster_0\" {"), "{dot}");
    }

    #[test]
    fn mermaid_shows_node_types_and_edges_and_escapes_labels() {
        let text = mermaid(&drawn());
        assert_eq!(
            text,
            "flowchart TD\n  n0([\"s<br/>START\"])\n  n1{\"r<br/>ROUTE\"}\n  n2[/\"f<br/>FORK\"\\]\n  \
             n3[\"c: back#92;slash<br/>and line<br/>LLM\"]\n  n4[\\\"j<br/>JOIN ALL_COMPLETED\"/]\n  n5([\"e<br/>END\"])\n  \
             n0 --> n1\n  n1 -->|\"a #60; #34;b#34; #124; c\"| n2\n  n1 -->|\"otherwise\"| n5\n  n2 ==>|\"p\"| n3\n  \
             n3 -.->|\"on error\"| n4\n  n3 --> n4\n  n4 --> n5\n"
        );
    }

    #[test]
    fn dot_shows_node_types_and_edges_and_escapes_labels() {
        let text = dot(&drawn());
        assert!(text.starts_with("digraph \"say \\\"hi\\\"\" {\n"), "{text}");
        assert!(
            text.contains("n3 [label=\"c: back\\\\slash\\nand line\\nLLM\", shape=box];"),
            "{text}"
        );
        assert!(
            text.contains("n1 -> n2 [style=solid, label=\"a < \\\"b\\\" | c\"];"),
            "{text}"
        );
        assert!(text.contains("n2 -> n3 [style=bold, label=\"p\"];"), "{text}");
        assert!(text.contains("n3 -> n4 [style=dashed, label=\"on error\"];"), "{text}");
        assert!(text.ends_with("}\n"));
    }
}
