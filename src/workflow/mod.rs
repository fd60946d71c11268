//! Workflows written in Rust: the definitions of the JSON format, checked by the compiler as far as types can.
//!
//! ```
//! use pirn::workflow::{JoinWhen, Llm, workflow};
//!
//! let ask = workflow("ask", "start", |flow, start| {
//!     let mut both = flow.fork("both");
//!     flow.edge(start, &both);
//!     let fast = flow.node("fast", Llm::prompt("What is {{input}}?").profile_id("echo"));
//!     let thorough = flow.node("thorough", Llm::prompt("Explain {{input}}.").profile_id("echo"));
//!     flow.path(&mut both, "fast", fast);
//!     flow.path(&mut both, "thorough", thorough);
//!     let first = flow.join("first", both, JoinWhen::AnyCompleted);
//!     flow.edge(fast, first);
//!     flow.edge(thorough, first);
//!     let end = flow.end_with("end", "output.completed[0]");
//!     flow.edge(first, end);
//! });
//! let engine = pirn::Engine::builder().workflow(&ask).virtual_time(None).build()?;
//! assert_eq!(engine.start("ask", "a pirn")?.outcome_blocking().output_as::<&str>()?, "fast");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A node is referred to by the handle that adding it returned. Therefore every edge, route or error path leads to an existing
//! node, none leads into START or out of END, and a handle is valid only in its workflow:
//!
//! ```compile_fail
//! pirn::workflow("loop", "start", |flow, start| {
//!     let end = flow.end("end");
//!     flow.edge(end, start); // END has no way out, START no way in
//! });
//! ```
//!
//! Creating a JOIN consumes its FORK, and creating a LOOP_START consumes its LOOP_END:
//!
//! ```compile_fail
//! # use pirn::workflow::JoinWhen;
//! pirn::workflow("twice", "start", |flow, start| {
//!     let fork = flow.fork("fork");
//!     flow.join("one", fork, JoinWhen::AllCompleted);
//!     flow.join("two", fork, JoinWhen::AllCompleted); // `fork` was moved
//! });
//! ```
//!
//! Faults beyond types (duplicate ids, expressions that do not parse, a FORK without a JOIN) are reported, with code and location,
//! when an engine is built with the workflow.

mod context;
mod handles;
mod joins;
mod settings;
mod steps;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::time::Duration;

use pirn_definition::definition::{
    ContinueFromTriggerConfig, EdgeDefinition, EndConfig, ForkConfig, ForkStrategy, LoopEndConfig, NodeConfig,
    NodeDefinition, OnTimeout, RouteConfig, TimeoutTarget, TimeoutWord, TriggerDefinition, VariableDefinition,
    VariableScope, WorkflowConfig, WorkflowDefinition,
};
use serde_json::{Map, Value};

pub use context::{Context, Kept, Messages};
use handles::Brand;
pub use handles::{End, Enters, Fork, Handle, Leaves, LoopStart, Node, Path, Question, Route, Start};
pub use joins::{Join, JoinWhen, MapItems};
pub use pirn_definition::definition::{
    AgentConfig as Agent, CompressionConfig as Compression, ConversationMode, FilterContext as Filter,
    HistoryCallbackMode, ItemConversation, LoopLimit, MergeVariables, Reducer, ReducerWord, RetryPolicy,
    ToolRoundLimit, VariableType,
};
pub use settings::{EdgeSettings, NodeSettings, RouteSettings};
pub use steps::{Ask, Assign, Back, CallTool, Code, Llm, Loop, Step, Subgraph, Wait};

/// Creates a workflow from its id, the id of its START, and a function that adds the other nodes.
pub fn workflow(
    id: impl Into<String>,
    start: impl Into<String>,
    build: impl for<'f> FnOnce(&mut WorkflowBuilder<'f, Normal>, Start<'f>),
) -> WorkflowDefinition {
    let mut flow = WorkflowBuilder::new(id.into());
    let start = Start(flow.add(start.into(), NodeConfig::Start));
    build(&mut flow, start);
    flow.definition
}

/// Creates a workflow that triggers start, from its id, the id of its START_FROM_TRIGGER, and a function that adds the other nodes.
///
/// ```
/// use pirn::workflow::{Back, Context, triggered};
/// let shorten = triggered("shorten", "begin", |flow, begin| {
///     let summary = flow.node("summary", Context::compress("summarize", [("keepRecent", 4)]));
///     flow.edge(begin, summary);
///     let back = flow.back("back", Back::new());
///     flow.edge(summary, back);
/// });
/// assert_eq!(shorten.nodes.len(), 3);
/// ```
pub fn triggered(
    id: impl Into<String>,
    start: impl Into<String>,
    build: impl for<'f> FnOnce(&mut WorkflowBuilder<'f, Triggered>, Start<'f>),
) -> WorkflowDefinition {
    let mut flow = WorkflowBuilder::new(id.into());
    let start = Start(flow.add(start.into(), NodeConfig::StartFromTrigger));
    build(&mut flow, start);
    flow.definition
}

/// Marker of a workflow that starts with START.
#[derive(Debug)]
pub enum Normal {}

/// Marker of a workflow that starts with START_FROM_TRIGGER.
#[derive(Debug)]
pub enum Triggered {}

/// Builder of a workflow. Nodes and edges have the order in which they are added.
#[derive(Debug)]
pub struct WorkflowBuilder<'f, K = Normal> {
    definition: WorkflowDefinition,
    brand: Brand<'f>,
    kind: PhantomData<K>,
}

impl<'f> WorkflowBuilder<'f, Normal> {
    /// Adds an END whose output is that of the last node.
    pub fn end(&mut self, id: impl Into<String>) -> End<'f> {
        End(self.add(id.into(), NodeConfig::End(EndConfig::default())))
    }

    /// Adds an END with an expression for its output.
    pub fn end_with(&mut self, id: impl Into<String>, output: impl Into<String>) -> End<'f> {
        let output = Some(output.into());
        End(self.add(id.into(), NodeConfig::End(EndConfig { output })))
    }
}

impl<'f> WorkflowBuilder<'f, Triggered> {
    /// The CONTINUE_FROM_TRIGGER.
    pub fn back(&mut self, id: impl Into<String>, back: Back) -> End<'f> {
        let config = ContinueFromTriggerConfig::from(back);
        End(self.add(id.into(), NodeConfig::ContinueFromTrigger(config)))
    }
}

impl<'f, K> WorkflowBuilder<'f, K> {
    fn new(id: String) -> Self {
        let definition = WorkflowDefinition {
            id,
            name: None,
            version: None,
            description: None,
            metadata: None,
            input_schema: None,
            variables: Vec::new(),
            nodes: Vec::new(),
            edges: Vec::new(),
            triggers: Vec::new(),
            config: WorkflowConfig::default(),
        };
        Self {
            definition,
            brand: PhantomData,
            kind: PhantomData,
        }
    }

    fn add(&mut self, id: String, config: NodeConfig) -> Node<'f> {
        self.definition.nodes.push(NodeDefinition {
            id,
            name: None,
            description: None,
            config,
            retry: None,
            timeout_ms: None,
            on_error: None,
            in_doubt: None,
        });
        // Nodes are only appended, so their index is valid for the life of the builder.
        Node::new(self.definition.nodes.len() - 1)
    }

    /// Returns the definition of a node. The index is valid: handles belong to one workflow, and nodes are never removed.
    fn definition_of(&mut self, node: Node<'f>) -> &mut NodeDefinition {
        // The lifetime `'f` ties the handle to this builder, so the index is in range.
        &mut self.definition.nodes[node.at]
    }

    fn id_of(&self, node: Node<'f>) -> String {
        self.definition.nodes[node.at].id.clone()
    }

    /// Sets a name for display.
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        self.definition.name = Some(name.into());
        self
    }

    /// Sets a description, for display and for models that call the workflow as an MCP tool.
    pub fn description(&mut self, description: impl Into<String>) -> &mut Self {
        self.definition.description = Some(description.into());
        self
    }

    /// Sets the JSON Schema of the input, which is checked when a run is started from outside.
    pub fn input_schema(&mut self, schema: Map<String, Value>) -> &mut Self {
        self.definition.input_schema = Some(schema);
        self
    }

    /// Returns the workflow's config: limits, token limit, compression, pinned context: `flow.config().token_limit = Some(8_000)`.
    pub fn config(&mut self) -> &mut WorkflowConfig {
        &mut self.definition.config
    }

    /// Declares a variable with its initial value. The returned definition has further settings: `flow.variable("total", 0).reduce
    /// = Some(ReducerWord::Sum.into())`.
    pub fn variable(&mut self, name: impl Into<String>, value: impl Into<Value>) -> &mut VariableDefinition {
        let variable = VariableDefinition {
            name: name.into(),
            variable_type: None,
            value: value.into(),
            scope: VariableScope::Thread,
            readonly: false,
            reduce: None,
            description: None,
        };
        let variables = &mut self.definition.variables;
        variables.push(variable);
        let last = variables.len() - 1;
        &mut variables[last]
    }

    /// Adds a trigger that watches this workflow's runs.
    pub fn trigger(&mut self, trigger: TriggerDefinition) -> &mut Self {
        self.definition.triggers.push(trigger);
        self
    }

    /// Adds an edge, by default without condition or weight: `flow.edge(a, b).when("output > 3").weight(2.0)`.
    pub fn edge(&mut self, from: impl Leaves<'f>, to: impl Enters<'f>) -> EdgeSettings<'_> {
        let edge = EdgeDefinition {
            id: None,
            source_node_id: self.id_of(from.node()),
            target_node_id: self.id_of(to.node()),
            edge_type: None,
            label: None,
            condition: None,
            weight: 0.0,
        };
        let edges = &mut self.definition.edges;
        edges.push(edge);
        let last = edges.len() - 1;
        EdgeSettings(&mut edges[last])
    }

    /// Adds a node of one step: [`Llm`], [`Code`], [`Assign`], [`Subgraph`], [`MapItems`], [`Context`], [`CallTool`], [`Wait`].
    pub fn node(&mut self, id: impl Into<String>, step: impl Into<Step>) -> Node<'f> {
        self.add(id.into(), step.into().0)
    }

    /// Adds a [node](Self::node) and an edge to it.
    pub fn then(&mut self, from: impl Leaves<'f>, id: impl Into<String>, step: impl Into<Step>) -> Node<'f> {
        let node = self.node(id, step);
        self.edge(from, node);
        node
    }

    /// Returns the settings of a node that are independent of its type: name, time limit, retries, error path.
    pub fn at(&mut self, node: impl Handle<'f>) -> NodeSettings<'_, 'f, K> {
        NodeSettings::new(self, node.node())
    }

    /// Adds a ROUTE; [`when`](Self::when) and [`otherwise`](Self::otherwise) add its targets.
    pub fn route(&mut self, id: impl Into<String>) -> Route<'f> {
        Route(self.add(id.into(), NodeConfig::Route(RouteConfig::default())))
    }

    /// Adds a target of a ROUTE with a condition. If several conditions hold, the one with the highest priority is taken, then the
    /// earliest.
    pub fn when(
        &mut self,
        route: Route<'f>,
        condition: impl Into<String>,
        target: impl Enters<'f>,
    ) -> RouteSettings<'_> {
        let target_node_id = self.id_of(target.node());
        RouteSettings::push(self.definition_of(route.0), condition.into(), target_node_id)
    }

    /// Adds the target of a ROUTE if no condition holds.
    pub fn otherwise(&mut self, route: Route<'f>, target: impl Enters<'f>) -> &mut Self {
        let target = self.id_of(target.node());
        // Always a route: only `route` creates this handle.
        if let NodeConfig::Route(config) = &mut self.definition_of(route.0).config {
            config.default_target_node_id = Some(target);
        }
        self
    }

    /// Adds a FORK; [`path`](Self::path) adds its paths, [`join`](Self::join) its JOIN.
    pub fn fork(&mut self, id: impl Into<String>) -> Fork<'f> {
        Fork(self.add(id.into(), NodeConfig::Fork(ForkConfig::default())))
    }

    /// Makes the paths of a FORK run one after the other.
    pub fn in_series(&mut self, fork: &Fork<'f>) -> &mut Self {
        // Always a fork: only `fork` creates this handle.
        if let NodeConfig::Fork(config) = &mut self.definition_of(fork.0).config {
            config.fork_strategy = ForkStrategy::Serial;
        }
        self
    }

    /// Adds a path of a FORK, which starts at `child`, and the edge to it.
    pub fn path(&mut self, fork: &mut Fork<'f>, id: impl Into<String>, child: impl Enters<'f>) -> Path<'f> {
        let (from, to) = (self.id_of(fork.0), self.id_of(child.node()));
        let mut number = 0;
        if let NodeConfig::Fork(config) = &mut self.definition_of(fork.0).config {
            number = config.fork_path_ids.len();
            config.fork_path_ids.push(id.into());
            config.child_node_ids.push(to.clone());
        }
        // The JSON format lists a path both in the fork and as an edge.
        self.definition.edges.push(EdgeDefinition {
            id: None,
            source_node_id: from,
            target_node_id: to,
            edge_type: None,
            label: None,
            condition: None,
            weight: 0.0,
        });
        Path { fork: fork.0, number }
    }

    /// Adds the JOIN of all paths of a FORK: a [`JoinWhen`] or, with more settings, a [`Join`].
    pub fn join(&mut self, id: impl Into<String>, fork: Fork<'f>, join: impl Into<Join<'f>>) -> Node<'f> {
        let paths = |node: Node<'f>| {
            let config = self.definition.nodes[node.at].config.as_fork();
            config.map_or(&[][..], |config| &config.fork_path_ids)
        };
        let Join { mut config, main } = join.into();
        // A path of another fork yields an id that the compilation refuses.
        config.main_path_id = main.and_then(|path| paths(path.fork).get(path.number).cloned());
        config.fork_path_ids = paths(fork.node()).to_vec();
        self.add(id.into(), NodeConfig::Join(config))
    }

    /// Adds a LOOP_START; [`loop_end`](Self::loop_end) closes the loop.
    pub fn loop_start(&mut self, id: impl Into<String>, repeated: Loop) -> LoopStart<'f> {
        let loop_id = repeated.0.loop_id.clone();
        let node = self.add(id.into(), NodeConfig::LoopStart(repeated.0));
        LoopStart { node, loop_id }
    }

    /// Adds the LOOP_END of a loop that ends only after its last item or at its limit.
    pub fn loop_end(&mut self, id: impl Into<String>, start: LoopStart<'f>) -> Node<'f> {
        self.close_loop(id.into(), start, None)
    }

    /// Adds the LOOP_END of a loop that also ends after an iteration in which an expression holds.
    pub fn loop_until(&mut self, id: impl Into<String>, start: LoopStart<'f>, holds: impl Into<String>) -> Node<'f> {
        self.close_loop(id.into(), start, Some(holds.into()))
    }

    fn close_loop(&mut self, id: String, start: LoopStart<'f>, break_condition: Option<String>) -> Node<'f> {
        let config = LoopEndConfig {
            loop_id: start.loop_id,
            break_condition,
        };
        self.add(id, NodeConfig::LoopEnd(config))
    }

    /// Adds a USER_INTERACTION, which waits without a limit unless [`expires`](Self::expires) or a similar method sets one.
    pub fn ask(&mut self, id: impl Into<String>, ask: Ask) -> Question<'f> {
        Question(self.add(id.into(), NodeConfig::UserInteraction(ask.into())))
    }

    /// Makes a question fail its node if there is no answer within a time.
    pub fn expires(&mut self, question: Question<'f>, after: Duration) -> &mut Self {
        self.unanswered(question, after, OnTimeout::Word(TimeoutWord::Fail), None)
    }

    /// Gives a question a default answer if there is no answer within a time. Null is refused when an engine is built with the
    /// workflow, because it counts as no answer in a workflow file.
    pub fn answers_itself(&mut self, question: Question<'f>, after: Duration, answer: impl Into<Value>) -> &mut Self {
        let answer = Some(answer.into());
        self.unanswered(question, after, OnTimeout::Word(TimeoutWord::Default), answer)
    }

    /// Routes a thread to another node if its question has no answer within a time.
    pub fn gives_up(&mut self, question: Question<'f>, after: Duration, target: impl Enters<'f>) -> &mut Self {
        let target_node_id = self.id_of(target.node());
        self.unanswered(
            question,
            after,
            OnTimeout::Target(TimeoutTarget { target_node_id }),
            None,
        )
    }

    fn unanswered(
        &mut self,
        question: Question<'f>,
        after: Duration,
        policy: OnTimeout,
        answer: Option<Value>,
    ) -> &mut Self {
        if let NodeConfig::UserInteraction(config) = &mut self.definition_of(question.0).config {
            config.timeout_ms = Some(milliseconds(after));
            config.on_timeout = Some(policy);
            config.default = answer;
        }
        self
    }
}

fn milliseconds(time: Duration) -> u64 {
    // A longer duration is as good as no limit. A shorter one must not become 0, which is no limit in a workflow file.
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Returns a time limit in seconds, at least one millisecond: 0 is no limit in a workflow file.
fn limit_seconds(time: Duration) -> f64 {
    time.max(Duration::from_millis(1)).as_secs_f64()
}
