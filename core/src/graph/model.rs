//! The compiled graph: indices for names, every text to evaluate in one table, forks paired with joins.
//!
//! It is strict: what it holds has passed validation, and a machine that walks it needs no further checks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::definition::{
    AgentConfig, ContinueFromTriggerConfig, ConversationMode, FilterContext, ForkStrategy, ItemConversation,
    JoinStrategy, LoopLimit, MergeVariables, OnDecided, PinSection, ReducerWord, RetryPolicy, ToolRoundLimit,
    TriggerDefinition, TruncateContext, VariableDefinition, VariableScope, VariableType, WorkflowConfig,
};
use crate::definition::{CompressionConfig, ConversationHistoryOptions, InDoubt};
use crate::message::{Part, Role};

/// A node's place in [`Graph::nodes`].
pub type NodeIx = u32;
/// A text's place in [`Graph::snippets`].
pub type SnippetIx = u32;
/// A fork's place in [`Graph::forks`].
pub type ForkIx = u32;

/// A compiled workflow. Shared by every thread that walks it; nothing changes it.
#[derive(Debug)]
pub struct Graph {
    /// The workflow's id.
    pub workflow_id: Arc<str>,
    /// The workflow as it presents itself to who starts it.
    pub about: About,
    /// Number that no other graph of this process has: a key for caches of compiled scripts.
    pub uid: u64,
    /// The nodes, in file order.
    pub nodes: Vec<Node>,
    /// START or START_FROM_TRIGGER.
    pub start: NodeIx,
    /// True if it is a triggered sub-workflow.
    pub triggered: bool,
    /// Every expression, template and script in it.
    pub snippets: Vec<Snippet>,
    /// The FORK/JOIN pairs.
    pub forks: Vec<Fork>,
    /// Variables that exist before the first node.
    pub variables: Vec<VariableDefinition>,
    /// The reducers of those that have one.
    pub reducers: BTreeMap<Arc<str>, CompiledReducer>,
    /// The names of all variables that may be assigned in a run of it, by whatever workflow or trigger.
    pub variable_names: Arc<BTreeSet<Arc<str>>>,
    /// The CUSTOM events that its WAIT nodes name: a run keeps them for those.
    pub awaited_events: Vec<Arc<str>>,
    /// Triggers defined in the workflow.
    pub triggers: Vec<TriggerDefinition>,
    /// Limits and settings.
    pub config: WorkflowConfig,
    /// Node by the user's id.
    pub by_id: BTreeMap<Arc<str>, NodeIx>,
}

/// A workflow's name, version and description, and what its input is to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// For people.
    pub name: Option<String>,
    /// For people.
    pub version: Option<String>,
    /// For people, and for models that may start it.
    pub description: Option<String>,
    /// JSON Schema of the input.
    pub input_schema: Option<Map<String, Value>>,
}

impl Graph {
    /// The node at `ix`.
    pub fn node(&self, ix: NodeIx) -> &Node {
        &self.nodes[ix as usize]
    }
    /// The fork at `ix`.
    pub fn fork(&self, ix: ForkIx) -> &Fork {
        &self.forks[ix as usize]
    }
    /// True if a node of it is an LLM node.
    pub fn calls_models(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.kind, NodeKind::Llm(_)))
    }
    /// The reducer of a variable.
    pub fn reducer(&self, variable: &str) -> Option<CompiledReducer> {
        self.reducers.get(variable).copied()
    }
    /// The text at `ix`.
    pub fn snippet(&self, ix: SnippetIx) -> &Snippet {
        &self.snippets[ix as usize]
    }
}

/// A compiled reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompiledReducer {
    /// A ready-made one.
    Word(ReducerWord),
    /// An expression over `a` and `b`.
    Expression(SnippetIx),
}

/// A text that is evaluated at run time.
#[derive(Clone, Debug, PartialEq)]
pub struct Snippet {
    /// Its kind.
    pub kind: SnippetKind,
    /// As the user wrote it.
    pub source: Arc<str>,
}

/// The kind of a text: how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnippetKind {
    /// A JavaScript expression (with `{{path}}` allowed for a value).
    Expression,
    /// A template that gives text.
    Template,
    /// The body of a JavaScript async function.
    Code,
}

/// A compiled node.
#[derive(Debug)]
pub struct Node {
    /// The user's id.
    pub id: Arc<str>,
    /// The user's name for it.
    pub name: Option<Arc<str>>,
    /// Its type and compiled config.
    pub kind: NodeKind,
    /// The retry policy.
    pub retry: Option<RetryPolicy>,
    /// One attempt's time limit, milliseconds.
    pub timeout_ms: Option<u64>,
    /// The node to go on at after a failure.
    pub on_error: Option<NodeIx>,
    /// The policy for a call of it that is in doubt after a crash.
    pub in_doubt: Option<InDoubt>,
    /// Adjacency out, in the order they are tried: heaviest first, then list order.
    pub edges: Vec<Edge>,
}

impl Node {
    /// The workflow that it runs in threads of its own. A SUBGRAPH without edges only declares one.
    pub fn calls(&self) -> Option<&Arc<str>> {
        match &self.kind {
            NodeKind::Subgraph { workflow_id, .. } if !self.edges.is_empty() => Some(workflow_id),
            NodeKind::Map(map) => Some(&map.workflow_id),
            _ => None,
        }
    }
}

/// A compiled edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Absent: always satisfied.
    pub condition: Option<SnippetIx>,
    /// The node it leads to.
    pub target: NodeIx,
}

/// A value with evaluated parts: what `input` of CODE and SUBGRAPH compiles to.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueSpec {
    /// An expression.
    Expression(SnippetIx),
    /// A literal without templates.
    Literal(Arc<Value>),
    /// Text with templates. Where the whole text is one `{{path}}`, the value at the path as it is.
    Template(SnippetIx),
    /// A list.
    List(Vec<ValueSpec>),
    /// An object.
    Object(Vec<(Arc<str>, ValueSpec)>),
}

/// A node's type and compiled config.
#[derive(Debug)]
pub enum NodeKind {
    /// First node of a normal workflow.
    Start,
    /// First node of a triggered sub-workflow.
    StartFromTrigger,
    /// Ends the thread.
    End {
        /// Expression for the output.
        output: Option<SnippetIx>,
    },
    /// Evaluates and assigns.
    Variable {
        /// The name.
        name: Arc<str>,
        /// Its value.
        expression: SnippetIx,
        /// Checked and converted.
        variable_type: Option<VariableType>,
        /// The thread's or the run's.
        scope: VariableScope,
        /// True if it is the last assignment.
        readonly: bool,
    },
    /// Calls a model.
    Llm(LlmNode),
    /// Runs JavaScript.
    Script {
        /// The body.
        code: SnippetIx,
        /// Its `input`; absent: the thread's.
        input: Option<ValueSpec>,
    },
    /// Calls a registered function.
    Function {
        /// Its name.
        name: Arc<str>,
        /// Its input; absent: the thread's.
        input: Option<ValueSpec>,
    },
    /// Chooses the next node.
    Route {
        /// In the order they are tried.
        routes: Vec<(SnippetIx, NodeIx)>,
        /// The node to go to when none holds.
        default: Option<NodeIx>,
    },
    /// Starts the paths of a fork.
    Fork(ForkIx),
    /// Waits for a fork's paths; entered by the parent only, straight from its FORK.
    Join(ForkIx),
    /// Runs another workflow and waits.
    Subgraph {
        /// The workflow.
        workflow_id: Arc<str>,
        /// Its input; absent: the last node's output.
        input: Option<ValueSpec>,
        /// Expression over its output.
        output: Option<SnippetIx>,
        /// The origin of its conversation.
        conversation: ConversationMode,
        /// Makes it a sub-agent.
        agent: Option<AgentConfig>,
    },
    /// Runs another workflow for each item of a list.
    Map(Box<MapNode>),
    /// Changes the conversation.
    Context(ContextNode),
    /// Waits for a time, milliseconds.
    WaitTime(u64),
    /// Waits for an event.
    WaitEvent {
        /// Name of a CUSTOM event, or an event type's word.
        event: Arc<str>,
        /// Milliseconds.
        timeout_ms: Option<u64>,
    },
    /// Calls one tool.
    Tool {
        /// The tool's name.
        name: Arc<str>,
        /// Its arguments.
        arguments: ValueSpec,
        /// The thread variable that takes the result.
        assign_to: Option<Arc<str>>,
    },
    /// Asks a person.
    UserInteraction(Box<InteractionNode>),
    /// Begins a loop, or its next iteration.
    LoopStart(LoopNode),
    /// Ends an iteration.
    LoopEnd {
        /// The LOOP_START.
        start: NodeIx,
        /// Expression; the loop ends where it holds.
        break_condition: SnippetIx,
    },
    /// Last node of a triggered sub-workflow.
    ContinueFromTrigger(ContinueFromTriggerConfig),
}

/// A compiled MAP.
#[derive(Debug)]
pub struct MapNode {
    /// The workflow.
    pub workflow_id: Arc<str>,
    /// The list.
    pub items: ValueSpec,
    /// The item's name in `input`.
    pub item_name: Arc<str>,
    /// The workflow's input; absent: the item.
    pub input: Option<ValueSpec>,
    /// Threads at once; absent: as the workflow's forks.
    pub concurrency: Option<u32>,
    /// The join of its threads. The parent's conversation stays as it is.
    pub join: JoinRule,
    /// The conversation of each thread.
    pub conversation: ItemConversation,
    /// Variables of the items' threads that come back.
    pub assign: Vec<Arc<str>>,
    /// Items at most.
    pub max_items: u32,
}

/// A compiled USER_INTERACTION.
#[derive(Debug)]
pub struct InteractionNode {
    /// Template.
    pub question: SnippetIx,
    /// Template: whom it is for.
    pub assignee: Option<SnippetIx>,
    /// JSON Schema of the answer.
    pub schema: Option<Arc<Map<String, Value>>>,
    /// The answers to choose from.
    pub choices: Option<Arc<Vec<Value>>>,
    /// The thread variable that takes the answer.
    pub assign_to: Option<Arc<str>>,
    /// Milliseconds; none: it waits for ever.
    pub timeout_ms: Option<u64>,
    /// The policy for that timeout.
    pub on_timeout: QuestionTimeout,
}

/// The policy where nobody has answered in time.
#[derive(Debug)]
pub enum QuestionTimeout {
    /// The node fails.
    Fail,
    /// This is the answer.
    Default(Arc<Value>),
    /// The thread goes on there.
    GoTo(NodeIx),
}

/// A compiled LOOP_START.
#[derive(Debug)]
pub struct LoopNode {
    /// The LOOP_END.
    pub end: NodeIx,
    /// The items; absent: the loop counts.
    pub iterable: Option<ValueSpec>,
    /// The thread variable that takes each item.
    pub variable: Option<Arc<str>>,
    /// Iterations at most.
    pub max_iterations: Option<u64>,
    /// The policy at that limit, with items left.
    pub on_limit: LoopLimit,
}

impl NodeKind {
    /// The type word users know: `CONTEXT_PROCESSOR`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Start => "START",
            Self::StartFromTrigger => "START_FROM_TRIGGER",
            Self::End { .. } => "END",
            Self::Variable { .. } => "VARIABLE",
            Self::Llm(_) => "LLM",
            Self::Script { .. } | Self::Function { .. } => "CODE",
            Self::Route { .. } => "ROUTE",
            Self::Fork(_) => "FORK",
            Self::Join(_) => "JOIN",
            Self::Subgraph { .. } => "SUBGRAPH",
            Self::Map(_) => "MAP",
            Self::Context(_) => "CONTEXT_PROCESSOR",
            Self::WaitTime(_) | Self::WaitEvent { .. } => "WAIT",
            Self::Tool { .. } => "TOOL",
            Self::UserInteraction(_) => "USER_INTERACTION",
            Self::LoopStart(_) => "LOOP_START",
            Self::LoopEnd { .. } => "LOOP_END",
            Self::ContinueFromTrigger(_) => "CONTINUE_FROM_TRIGGER",
        }
    }

    /// True if a thread leaves it without waiting for anybody.
    pub fn is_in_place(&self) -> bool {
        match self {
            Self::Start
            | Self::StartFromTrigger
            | Self::End { .. }
            | Self::Variable { .. }
            | Self::Function { .. }
            | Self::Route { .. }
            | Self::Join(_)
            | Self::Context(_)
            | Self::LoopStart(_)
            | Self::LoopEnd { .. }
            | Self::ContinueFromTrigger(_) => true,
            Self::Llm(_)
            | Self::Script { .. }
            | Self::Fork(_)
            | Self::Subgraph { .. }
            | Self::Map(_)
            | Self::UserInteraction(_)
            | Self::WaitTime(_)
            | Self::WaitEvent { .. }
            | Self::Tool { .. } => false,
        }
    }
}

/// A compiled LLM node.
#[derive(Debug)]
pub struct LlmNode {
    /// The profile's id, where it is no template.
    pub profile_id: Option<Arc<str>>,
    /// Template; joins the conversation as a user message.
    pub prompt: Option<SnippetIx>,
    /// Template; the request's system message where the conversation has none.
    pub system: Option<SnippetIx>,
    /// WorkflowNames of tools.
    pub tools: Vec<Arc<str>>,
    /// Laid over the profile's parameters, where there are no templates in them.
    pub parameters: Option<Arc<Map<String, Value>>>,
    /// The pieces of the user message, after the prompt.
    pub parts: Vec<PartSpec>,
    /// The profile and the parameters, where they are evaluated.
    pub choice: Option<Box<ChoiceSpec>>,
    /// Rounds of tool calls.
    pub max_tool_rounds: u32,
    /// The policy once they are used up.
    pub on_limit: ToolRoundLimit,
    /// Structured output.
    pub response_format: Option<Arc<Value>>,
}

impl LlmNode {
    /// True if more than its prompt and its system text is evaluated.
    pub fn is_computed(&self) -> bool {
        self.choice.is_some() || self.parts.iter().any(|part| matches!(part, PartSpec::Computed(_)))
    }
}

/// A piece of an LLM node's user message.
#[derive(Debug)]
pub enum PartSpec {
    /// As it stands in the definition; every message shares it.
    Literal(Part),
    /// A piece, or a list of them, with templates in its strings; or an expression that gives one.
    Computed(ValueSpec),
}

/// The profile and the parameters of an LLM node as they are evaluated.
#[derive(Debug)]
pub struct ChoiceSpec {
    /// Template of the profile's id.
    pub profile: Option<SnippetIx>,
    /// The parameters.
    pub parameters: Option<ValueSpec>,
}

/// A message whose content is a template.
#[derive(Clone, Copy, Debug)]
pub struct TemplateMessage {
    /// The speaker.
    pub role: Role,
    /// Template.
    pub content: SnippetIx,
    /// Kept by every compression.
    pub pin: bool,
}

/// A compiled CONTEXT_PROCESSOR.
#[derive(Debug)]
pub enum ContextNode {
    /// Adds messages.
    Insert {
        /// The messages, as templates.
        messages: Vec<TemplateMessage>,
        /// Index among the visible; negative from the end.
        position: i64,
    },
    /// Puts messages in the place of others.
    Replace {
        /// The messages to replace; absent: all.
        target: Option<ConversationHistoryOptions>,
        /// The messages put in their place.
        messages: Vec<TemplateMessage>,
    },
    /// Keeps or removes from an end.
    Truncate(TruncateContext),
    /// Removes all.
    Clear {
        /// But not system messages.
        keep_system: bool,
    },
    /// Keeps what matches.
    Filter(FilterContext),
    /// Compresses.
    Compress(CompressionConfig),
    /// Sets a section of the pinned context.
    Pin {
        /// The section.
        section: PinSection,
        /// Its value; text is a template.
        value: ValueSpec,
    },
}

/// A FORK and its JOIN.
#[derive(Debug)]
pub struct Fork {
    /// The FORK node.
    pub fork_node: NodeIx,
    /// The JOIN node.
    pub join_node: NodeIx,
    /// The paths, in order.
    pub paths: Vec<ForkPath>,
    /// Serial or parallel.
    pub strategy: ForkStrategy,
    /// The compiled config of the JOIN.
    pub join: JoinRule,
}

/// One path of a fork.
#[derive(Clone, Debug, PartialEq)]
pub struct ForkPath {
    /// The user's id, shown everywhere.
    pub id: Arc<str>,
    /// `workflow/fork-node/path`: unique among all workflows of an engine.
    pub global_id: Arc<str>,
    /// The first node of the path.
    pub child: NodeIx,
}

/// The compiled config of a JOIN. Serialisable because the machine that follows it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinRule {
    /// When it succeeds.
    pub strategy: JoinStrategy,
    /// For SUCCESS_COUNT_THRESHOLD.
    pub threshold: u32,
    /// Milliseconds; none: wait for ever.
    pub timeout_ms: Option<u64>,
    /// The main path's place in `paths`.
    pub main_path: usize,
    /// True if the user named it.
    pub main_path_explicit: bool,
    /// The rest, once decided.
    pub on_decided: OnDecided,
    /// Thread variables that come back.
    pub merge_variables: MergeVariables,
}
