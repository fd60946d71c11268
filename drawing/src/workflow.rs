//! From workflow definitions to the input of the layout. Invalid workflows are drawn too, so that one can see why they are invalid:
//! references to unknown nodes are omitted.

use std::collections::{BTreeMap, BTreeSet};

use pirn_definition::definition::{
    ContextOperation, ForkStrategy, JoinStrategy, MergeVariables, NodeConfig, NodeDefinition, OnDecided, PinSection,
    Reducer, TriggerAction, TriggerDefinition, VariableDefinition, WorkflowDefinition,
};

use crate::drawing::EdgeKind;
use crate::sketch::{Arrow, Fork, Sketch, SketchBox, SketchGroup};

/// Returns the boxes and arrows of these workflows and outer triggers.
pub(crate) fn sketch(workflows: &[&WorkflowDefinition], triggers: &[&TriggerDefinition]) -> Sketch {
    let mut sketcher = Sketcher {
        is_framed: workflows.len() > 1,
        ..Sketcher::default()
    };
    for workflow in workflows {
        sketcher.workflow(workflow);
    }
    for (workflow, places) in workflows.iter().zip(sketcher.groups_of_boxes()) {
        sketcher.links(workflow, places);
    }
    for trigger in triggers {
        let place = sketcher.trigger(trigger, "");
        sketcher.started_by(place, trigger);
    }
    sketcher.out
}

#[derive(Default)]
struct Sketcher<'w> {
    out: Sketch,
    /// True if the picture shows several workflows: ids then have the workflow's id as a prefix.
    is_framed: bool,
    ids: BTreeSet<String>,
    /// The first node of each workflow.
    starts: BTreeMap<&'w str, usize>,
    /// Boxes of workflows that are not drawn.
    stubs: BTreeMap<&'w str, usize>,
}

impl<'w> Sketcher<'w> {
    fn add(&mut self, wanted: String, node_type: &'static str, title: String, settings: String) -> usize {
        let mut id = wanted;
        while !self.ids.insert(id.clone()) {
            id.push('\'');
        }
        self.out.boxes.push(SketchBox {
            id,
            node_type,
            title,
            settings,
        });
        self.out.boxes.len() - 1
    }

    fn workflow(&mut self, workflow: &'w WorkflowDefinition) {
        let first = self.out.boxes.len();
        let prefix = self.prefix(workflow);
        for node in &workflow.nodes {
            let id = format!("{prefix}{}", node.id);
            let title = titled(&node.id, node.name.as_deref());
            let settings = settings(node, &workflow.variables);
            self.add(id, node.config.type_name(), title, settings);
        }
        for trigger in &workflow.triggers {
            self.trigger(trigger, &prefix);
        }
        self.out.groups.push(SketchGroup {
            id: workflow.id.clone(),
            title: titled(&workflow.id, workflow.name.as_deref()),
            boxes: first..self.out.boxes.len(),
        });
        let is_start = |node: &NodeDefinition| matches!(node.config, NodeConfig::Start | NodeConfig::StartFromTrigger);
        if let Some(start) = workflow.nodes.iter().position(is_start) {
            self.starts.entry(&workflow.id).or_insert(first + start);
        }
        self.transitions(workflow, first);
        self.pairs(workflow, first);
    }

    fn prefix(&self, workflow: &WorkflowDefinition) -> String {
        if self.is_framed {
            format!("{}/", workflow.id)
        } else {
            String::new()
        }
    }

    fn groups_of_boxes(&self) -> Vec<std::ops::Range<usize>> {
        self.out.groups.iter().map(|group| group.boxes.clone()).collect()
    }

    fn trigger(&mut self, trigger: &TriggerDefinition, prefix: &str) -> usize {
        let id = format!("{prefix}trigger:{}", trigger.id);
        let title = titled(&trigger.id, trigger.name.as_deref());
        self.add(id, "TRIGGER", title, trigger_settings(trigger))
    }

    /// Adds the arrows that leave a workflow.
    fn links(&mut self, workflow: &'w WorkflowDefinition, boxes: std::ops::Range<usize>) {
        for (place, node) in boxes.clone().zip(&workflow.nodes) {
            let (called, how) = match &node.config {
                NodeConfig::Subgraph(call) => (&call.subgraph_id, "calls"),
                NodeConfig::Map(map) => (&map.subgraph_id, "calls for each item"),
                _ => continue,
            };
            if let Some(start) = self.starts.get(called.as_str()).copied()
                && !boxes.contains(&start)
            {
                self.arrow(place, start, Some(how), EdgeKind::Trigger);
            }
        }
        for (place, trigger) in boxes.skip(workflow.nodes.len()).zip(&workflow.triggers) {
            self.started_by(place, trigger);
        }
    }

    fn started_by(&mut self, trigger_box: usize, trigger: &'w TriggerDefinition) {
        let (_, started) = trigger.action.type_and_workflow();
        let Some(started) = started else { return };
        let drawn = self.starts.get(started).or_else(|| self.stubs.get(started)).copied();
        let target = drawn.unwrap_or_else(|| {
            let id = format!("workflow:{started}");
            let place = self.add(id, "WORKFLOW", started.to_owned(), String::new());
            self.stubs.insert(started, place);
            place
        });
        self.arrow(trigger_box, target, Some("starts"), EdgeKind::Trigger);
    }

    fn arrow(&mut self, from: usize, to: usize, label: Option<&str>, kind: EdgeKind) {
        self.out.arrows.push(Arrow {
            from,
            to,
            label: label.map(str::to_owned).filter(|label| !label.trim().is_empty()),
            kind,
            path: None,
        });
    }

    /// Adds the transitions of a workflow, in the order of its nodes.
    fn transitions(&mut self, workflow: &WorkflowDefinition, first: usize) {
        let places = Places::of(workflow, first);
        let mut edges: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for edge in &workflow.edges {
            edges.entry(&edge.source_node_id).or_default().push(edge);
        }
        for (from, node) in (first..).zip(&workflow.nodes) {
            if !self.own_ways(from, node, &places) {
                for edge in edges.remove(node.id.as_str()).unwrap_or_default() {
                    let Some(to) = places.find(&edge.target_node_id) else {
                        continue;
                    };
                    let kind = match &edge.condition {
                        Some(_) => EdgeKind::Condition,
                        None => EdgeKind::Flow,
                    };
                    let label = edge.label.as_deref().or(edge.condition.as_deref());
                    self.arrow(from, to, label, kind);
                }
            }
            if let NodeConfig::UserInteraction(interaction) = &node.config
                && let Some(to) = interaction.timeout_target().and_then(|id| places.find(id))
            {
                self.arrow(from, to, Some("on timeout"), EdgeKind::Error);
            }
            if let Some(to) = node
                .on_error
                .as_ref()
                .and_then(|on_error| places.find(&on_error.target_node_id))
            {
                self.arrow(from, to, Some("on error"), EdgeKind::Error);
            }
        }
    }

    /// Adds the transitions that are in a node's config. True if they replace the node's edges.
    fn own_ways(&mut self, from: usize, node: &NodeDefinition, places: &Places<'_>) -> bool {
        match &node.config {
            NodeConfig::Route(route) => {
                for one in &route.routes {
                    if let Some(to) = places.find(&one.target_node_id) {
                        self.arrow(from, to, Some(&one.condition), EdgeKind::Condition);
                    }
                }
                let default = route.default_target_node_id.as_deref();
                if let Some(to) = default.and_then(|id| places.find(id)) {
                    self.arrow(from, to, Some("otherwise"), EdgeKind::Condition);
                }
                !route.routes.is_empty() || default.is_some()
            }
            NodeConfig::Fork(fork) => {
                for (path, (id, child)) in fork.fork_path_ids.iter().zip(&fork.child_node_ids).enumerate() {
                    if let Some(to) = places.find(child) {
                        self.arrow(from, to, Some(id), EdgeKind::Flow);
                        if let Some(arrow) = self.out.arrows.last_mut() {
                            arrow.path = Some(path);
                        }
                    }
                }
                true
            }
            NodeConfig::LoopEnd(end) => {
                if let Some(start) = places.loops.get(end.loop_id.as_str()).copied() {
                    self.arrow(from, start, Some("next"), EdgeKind::Loop);
                }
                false
            }
            NodeConfig::Start
            | NodeConfig::End(_)
            | NodeConfig::Variable(_)
            | NodeConfig::Llm(_)
            | NodeConfig::Code(_)
            | NodeConfig::Script(_)
            | NodeConfig::Join(_)
            | NodeConfig::Subgraph(_)
            | NodeConfig::Map(_)
            | NodeConfig::ContextProcessor(_)
            | NodeConfig::Wait(_)
            | NodeConfig::Tool(_)
            | NodeConfig::UserInteraction(_)
            | NodeConfig::LoopStart(_)
            | NodeConfig::StartFromTrigger
            | NodeConfig::ContinueFromTrigger(_) => false,
        }
    }

    /// Adds the pairs of FORK and JOIN with equal path ids, and of LOOP_START and LOOP_END with one loop id.
    fn pairs(&mut self, workflow: &WorkflowDefinition, first: usize) {
        let places = Places::of(workflow, first);
        let mut joins: BTreeMap<&[String], usize> = BTreeMap::new();
        for (place, node) in (first..).zip(&workflow.nodes) {
            if let NodeConfig::Join(join) = &node.config {
                joins.entry(&join.fork_path_ids).or_insert(place);
            }
        }
        for (place, node) in (first..).zip(&workflow.nodes) {
            if let NodeConfig::Fork(fork) = &node.config
                && let Some(join) = joins.remove(fork.fork_path_ids.as_slice())
            {
                let children = fork.child_node_ids.iter().map(|child| places.find(child));
                let paths: Option<Vec<_>> = fork
                    .fork_path_ids
                    .iter()
                    .cloned()
                    .zip(children)
                    .map(|(id, child)| Some((id, child?)))
                    .collect();
                if let Some(paths) = paths.filter(|paths| paths.len() == fork.child_node_ids.len()) {
                    self.out.forks.push(Fork {
                        start: place,
                        join,
                        paths,
                    });
                }
            }
            if let NodeConfig::LoopEnd(end) = &node.config
                && let Some(start) = places.loops.get(end.loop_id.as_str()).copied()
            {
                self.out.loops.push([start, place]);
            }
        }
    }
}

/// The boxes of a workflow's nodes by id; the first of several with one id.
struct Places<'a> {
    nodes: BTreeMap<&'a str, usize>,
    loops: BTreeMap<&'a str, usize>,
}

impl<'a> Places<'a> {
    fn of(workflow: &'a WorkflowDefinition, first: usize) -> Self {
        let (mut nodes, mut loops) = (BTreeMap::new(), BTreeMap::new());
        for (place, node) in (first..).zip(&workflow.nodes) {
            nodes.entry(node.id.as_str()).or_insert(place);
            if let NodeConfig::LoopStart(start) = &node.config {
                loops.entry(start.loop_id.as_str()).or_insert(place);
            }
        }
        Self { nodes, loops }
    }

    fn find(&self, id: &str) -> Option<usize> {
        self.nodes.get(id).copied()
    }
}

fn titled(id: &str, name: Option<&str>) -> String {
    match name {
        Some(name) if name != id && !name.is_empty() => format!("{id}: {name}"),
        Some(_) | None => id.to_owned(),
    }
}

fn trigger_settings(trigger: &TriggerDefinition) -> String {
    let mut words = Words::default();
    if let Some(schedule) = &trigger.schedule {
        words.say(format!("at {} {}", schedule.cron, schedule.timezone));
    } else {
        let event = trigger.condition.event_name.as_deref();
        words.say(format!("on {}", event.unwrap_or(trigger.condition.event_type.as_str())));
    }
    // An arrow shows the workflow that a trigger starts.
    let (action, started) = trigger.action.type_and_workflow();
    if started.is_none() {
        words.say(action);
    }
    if let TriggerAction::ExecuteTriggeredSubgraph(execute) = &trigger.action
        && !execute.wait_for_completion
    {
        words.say("without waiting");
    }
    if let Some(condition) = &trigger.condition.expression {
        words.say(format!("if {condition}"));
    }
    if let Some(count) = trigger.max_triggers {
        words.say(format!("at most {count} times"));
    }
    if !trigger.enabled {
        words.say("disabled");
    }
    words.0
}

/// Settings, separated by commas.
#[derive(Default)]
struct Words(String);

impl Words {
    fn say(&mut self, word: impl AsRef<str>) {
        if word.as_ref().is_empty() {
            return;
        }
        if !self.0.is_empty() {
            self.0.push_str(", ");
        }
        self.0.push_str(word.as_ref());
    }

    fn say_all<W: AsRef<str>>(&mut self, words: impl IntoIterator<Item = W>) {
        for word in words {
            self.say(word);
        }
    }
}

/// Returns the settings of a node that determine what it does.
fn settings(node: &NodeDefinition, variables: &[VariableDefinition]) -> String {
    let mut words = Words::default();
    match &node.config {
        NodeConfig::Start
        | NodeConfig::Route(_)
        | NodeConfig::Script(_)
        | NodeConfig::StartFromTrigger
        | NodeConfig::ContinueFromTrigger(_) => {}
        NodeConfig::End(end) => words.say_all(&end.output),
        NodeConfig::Variable(variable) => words.say(format!("{} = {}", variable.variable_name, variable.expression)),
        NodeConfig::Llm(llm) => {
            words.say_all(&llm.profile_id);
            words.say(count(llm.tools.len(), "tool"));
        }
        NodeConfig::Code(code) => words.say_all(&code.function),
        NodeConfig::Fork(fork) => {
            words.say(match fork.fork_strategy {
                ForkStrategy::Serial => "serial",
                ForkStrategy::Parallel => "parallel",
            });
        }
        NodeConfig::Join(join) => {
            let paths = Some(join.fork_path_ids.len());
            joined_by(&mut words, join.join_strategy, join.threshold, paths, join.timeout);
            decided(&mut words, join.on_decided);
            if join.merge_variables == MergeVariables::All {
                let reduced = variables.iter().filter(|variable| variable.reduce.is_some());
                merged(&mut words, reduced.map(|variable| variable.name.as_str()), variables);
            }
        }
        NodeConfig::Subgraph(call) => words.say(&call.subgraph_id),
        NodeConfig::Map(map) => {
            words.say(&map.subgraph_id);
            joined_by(&mut words, map.join_strategy, map.threshold, None, map.timeout);
            decided(&mut words, map.on_decided);
            words.say_all(map.concurrency.map(|count| format!("{count} at once")));
            merged(&mut words, map.assign.iter().map(String::as_str), variables);
        }
        NodeConfig::ContextProcessor(operation) => context(&mut words, operation),
        NodeConfig::Wait(wait) => {
            words.say_all(wait.seconds.map(|seconds| format!("{seconds} s")));
            words.say_all(wait.event.as_ref().map(|event| format!("for {event}")));
            words.say_all(wait.timeout.map(|seconds| format!("at most {seconds} s")));
        }
        NodeConfig::Tool(tool) => {
            let result = tool.assign_to.as_ref();
            words.say(result.map_or_else(|| tool.tool.clone(), |name| format!("{name} = {}", tool.tool)));
        }
        NodeConfig::UserInteraction(interaction) => {
            words.say(&interaction.question);
            words.say_all(interaction.timeout_ms.filter(|limit| *limit > 0).map(duration));
        }
        NodeConfig::LoopStart(start) => {
            words.say(&start.loop_id);
            let variable = start.data_source.as_ref().map(|source| source.variable_name.as_deref());
            words.say_all(
                variable.map(|name| name.map_or_else(|| "each item".to_owned(), |name| format!("each {name}"))),
            );
            words.say_all(start.max_iterations.map(|count| format!("at most {count}")));
        }
        NodeConfig::LoopEnd(end) => {
            words.say(&end.loop_id);
            words.say_all(
                end.break_condition
                    .as_ref()
                    .map(|condition| format!("until {condition}")),
            );
        }
    }
    let retries = node.retry.as_ref().filter(|retry| retry.max_attempts > 1);
    words.say_all(retries.map(|retry| format!("{} attempts", retry.max_attempts)));
    words.say_all(node.timeout_ms.map(duration));
    words.0
}

fn context(words: &mut Words, operation: &ContextOperation) {
    match operation {
        ContextOperation::Insert(insert) => words.say(format!("insert {}", count(insert.messages.len(), "message"))),
        ContextOperation::Replace(_) => words.say("replace"),
        ContextOperation::Truncate(_) => words.say("truncate"),
        ContextOperation::Clear(_) => words.say("clear"),
        ContextOperation::Filter(_) => words.say("filter"),
        ContextOperation::Compress(compress) => {
            let strategy = compress.strategy.as_deref().unwrap_or_default();
            words.say(format!("compress {strategy}").trim_end());
        }
        ContextOperation::Pin(pin) => words.say(match pin.section {
            PinSection::Role => "pin role",
            PinSection::Todo => "pin todo",
            PinSection::UsefulInfo => "pin usefulInfo",
            PinSection::FolderNotes => "pin folderNotes",
        }),
    }
}

fn count(count: usize, word: &str) -> String {
    match count {
        0 => String::new(),
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    }
}

fn duration(milliseconds: u64) -> String {
    if milliseconds.is_multiple_of(1000) {
        format!("{} s", milliseconds / 1000)
    } else {
        format!("{milliseconds} ms")
    }
}

fn decided(words: &mut Words, policy: OnDecided) {
    match policy {
        OnDecided::Cancel => {}
        OnDecided::Detach => words.say("others detached"),
    }
}

fn joined_by(
    words: &mut Words,
    strategy: JoinStrategy,
    threshold: Option<u32>,
    paths: Option<usize>,
    timeout: Option<f64>,
) {
    let strategy = strategy.as_str();
    words.say(match (threshold, paths) {
        (Some(threshold), Some(paths)) => format!("{strategy} {threshold} of {paths}"),
        (Some(threshold), None) => format!("{strategy} {threshold}"),
        (None, _) => strategy.to_owned(),
    });
    words.say_all(
        timeout
            .filter(|seconds| *seconds > 0.0)
            .map(|seconds| format!("{seconds} s")),
    );
}

/// Adds the variables that are merged, each with its reducer.
fn merged<'a>(words: &mut Words, names: impl Iterator<Item = &'a str>, variables: &[VariableDefinition]) {
    let reducer = |name: &str| variables.iter().find(|variable| variable.name == name)?.reduce.as_ref();
    let by = |name: &str| match reducer(name) {
        Some(Reducer::Word(word)) => format!("{name} by {}", word.as_str()),
        Some(Reducer::Expression(text)) => format!("{name} by {text}"),
        None => name.to_owned(),
    };
    let names: Vec<String> = names.map(by).collect();
    if !names.is_empty() {
        words.say(format!("merges {}", names.join(", ")));
    }
}
