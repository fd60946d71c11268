//! Compiled graph: indices instead of names, one table of snippets, and FORKs paired with JOINs.
//!
//! A graph has passed validation, so a machine that executes it needs no further checks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::submitted::code_mode::CodeRules;
use super::submitted::dynamic::DynamicRules;
use crate::definition::{
    AgentConfig, ContinueFromTriggerConfig, ConversationMode, FilterContext, ForkStrategy, ItemConversation,
    JoinStrategy, LoopLimit, MergeVariables, OnDecided, PinSection, ReducerWord, RetryPolicy, ScriptLimits,
    ToolRoundLimit, TriggerDefinition, TruncateContext, VariableDefinition, VariableScope, VariableType,
    WorkflowConfig,
};
use crate::definition::{
    CompressionConfig, ConversationHistoryOptions, InDoubt, SKILL_FILE, ToolDefinition, ToolEntry,
};
use crate::message::{Part, Role};

/// Index in [`Graph::nodes`].
pub type NodeIx = u32;
/// Index in [`Graph::snippets`].
pub type SnippetIx = u32;
/// Index in [`Graph::forks`].
pub type ForkIx = u32;

/// A compiled workflow, immutable and shared by all threads that execute it.
#[derive(Debug)]
pub struct Graph {
    /// The workflow's id.
    pub workflow_id: Arc<str>,
    /// Description of the workflow for its callers.
    pub about: About,
    /// Source of a workflow that was written during a run; `None` for a registered one.
    pub source: Option<Arc<str>>,
    /// Number of the graph, unique in the process: a key for caches of compiled scripts.
    pub uid: u64,
    /// The nodes, in file order.
    pub nodes: Vec<Node>,
    /// Index of the node START or START_FROM_TRIGGER.
    pub start: NodeIx,
    /// True if the workflow is a triggered sub-workflow.
    pub triggered: bool,
    /// Expressions, templates and scripts of the workflow.
    pub snippets: Vec<Snippet>,
    /// The FORK/JOIN pairs.
    pub forks: Vec<Fork>,
    /// Variables declared before the first node runs.
    pub variables: Vec<VariableDefinition>,
    /// Reducers of the variables that have one.
    pub reducers: BTreeMap<Arc<str>, CompiledReducer>,
    /// Names of all variables that any workflow or trigger may assign in a run of this graph.
    pub variable_names: Arc<BTreeSet<Arc<str>>>,
    /// CUSTOM events that its WAIT nodes and scripts name; a run retains these events.
    pub awaited_events: Vec<Arc<str>>,
    /// Triggers defined in the workflow.
    pub triggers: Vec<TriggerDefinition>,
    /// Limits and settings.
    pub config: WorkflowConfig,
    /// Node index by the user's id.
    pub by_id: BTreeMap<Arc<str>, NodeIx>,
}

/// A workflow's name, version, description and input schema.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// Name for display.
    pub name: Option<String>,
    /// Version for display.
    pub version: Option<String>,
    /// Description for display, and for models that may start the workflow.
    pub description: Option<String>,
    /// JSON Schema of the input.
    pub input_schema: Option<Map<String, Value>>,
}

/// Argument with the input of a workflow whose input is no object.
const INPUT: &str = "input";

impl About {
    /// True if the input of the workflow is an object: the arguments of a call are the input then.
    fn takes_object(&self) -> bool {
        let kind = self.input_schema.as_ref().map(|schema| schema.get("type"));
        kind.is_none_or(|kind| kind.is_some_and(|kind| kind == "object"))
    }

    /// Returns the JSON Schema of the arguments with which a model calls the workflow: always an object, as providers require.
    pub fn argument_schema(&self) -> Value {
        match &self.input_schema {
            None => json!({"type": "object"}),
            Some(schema) if self.takes_object() => Value::Object(schema.clone()),
            Some(schema) => json!({"type": "object", "properties": {INPUT: schema}, "required": [INPUT]}),
        }
    }

    /// Returns the input of the workflow for these arguments of a call.
    pub fn input_of(&self, arguments: &Value) -> Value {
        match arguments {
            Value::Null if self.takes_object() => json!({}),
            arguments if self.takes_object() => arguments.clone(),
            arguments => arguments.get(INPUT).cloned().unwrap_or_default(),
        }
    }
}

impl Graph {
    /// Returns the node at `ix`.
    #[inline]
    pub fn node(&self, ix: NodeIx) -> &Node {
        &self.nodes[ix as usize]
    }
    /// Returns the fork at `ix`.
    #[inline]
    pub fn fork(&self, ix: ForkIx) -> &Fork {
        &self.forks[ix as usize]
    }
    /// Returns the triggers that watch events. Schedules start runs at times instead.
    pub fn event_triggers(&self) -> impl Iterator<Item = &TriggerDefinition> + Clone {
        self.triggers.iter().filter(|trigger| trigger.schedule.is_none())
    }
    /// True if the graph has an LLM node.
    #[inline]
    pub fn calls_models(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.kind, NodeKind::Llm(_)))
    }
    /// Returns the reducer of a variable.
    #[inline]
    pub fn reducer(&self, variable: &str) -> Option<CompiledReducer> {
        self.reducers.get(variable).copied()
    }
    /// Returns the snippet at `ix`.
    #[inline]
    pub fn snippet(&self, ix: SnippetIx) -> &Snippet {
        &self.snippets[ix as usize]
    }
}

/// A compiled reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompiledReducer {
    /// A built-in reducer.
    Word(ReducerWord),
    /// An expression over `a` and `b`.
    Expression(SnippetIx),
}

/// Source text that is evaluated at run time.
#[derive(Clone, Debug, PartialEq)]
pub struct Snippet {
    /// Kind of the snippet.
    pub kind: SnippetKind,
    /// Source as the user wrote it.
    pub source: Arc<str>,
}

/// Kind of a snippet, which determines its parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnippetKind {
    /// A JavaScript expression (`{{path}}` is allowed as a value).
    Expression,
    /// A template that renders to text.
    Template,
    /// The body of a JavaScript async function.
    Code,
    /// The body of a JavaScript async function that calls the host functions of a SCRIPT.
    Workflow,
}

/// A compiled node.
#[derive(Debug)]
pub struct Node {
    /// The user's id.
    pub id: Arc<str>,
    /// The user's display name.
    pub name: Option<Arc<str>>,
    /// Type of the node, with the compiled config.
    pub kind: NodeKind,
    /// The retry policy.
    pub retry: Option<RetryPolicy>,
    /// Time limit of each attempt, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The node where the thread continues after a failure.
    pub on_error: Option<NodeIx>,
    /// Policy for a call of this node that is in doubt after a crash.
    pub in_doubt: Option<InDoubt>,
    /// Outgoing edges in the order of evaluation: highest weight first, then list order.
    pub edges: Vec<Edge>,
}

impl Node {
    /// Returns the workflow that the node runs in separate threads. A SUBGRAPH without edges only declares one.
    #[inline]
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
    /// Condition of the edge; `None` is always satisfied.
    pub condition: Option<SnippetIx>,
    /// Target node.
    pub target: NodeIx,
}

/// A value with evaluated parts: the compiled `input` of CODE and SUBGRAPH.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueSpec {
    /// An expression.
    Expression(SnippetIx),
    /// A literal without templates.
    Literal(Arc<Value>),
    /// Text with templates. If the text is a single `{{path}}`, the value at the path unchanged.
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
    /// Evaluates an expression and assigns the result to a variable.
    Variable {
        /// Name of the variable.
        name: Arc<str>,
        /// Expression for the new value.
        expression: SnippetIx,
        /// Type to which the value is converted.
        variable_type: Option<VariableType>,
        /// Scope of the variable.
        scope: VariableScope,
        /// True if later assignments are refused.
        readonly: bool,
    },
    /// Calls a model.
    Llm(LlmNode),
    /// Runs JavaScript.
    Script {
        /// Body of the script.
        code: SnippetIx,
        /// `input` of the script; absent: the thread's.
        input: Option<ValueSpec>,
    },
    /// Runs a script that starts agents, workflows and tools.
    Orchestration(Box<ScriptNode>),
    /// Calls a registered function.
    Function {
        /// Name of the function.
        name: Arc<str>,
        /// Input of the function; absent: the thread's.
        input: Option<ValueSpec>,
    },
    /// Chooses the next node.
    Route {
        /// Routes in the order of evaluation.
        routes: Vec<(SnippetIx, NodeIx)>,
        /// The node to continue at if no route matches.
        default: Option<NodeIx>,
    },
    /// Starts the paths of a fork.
    Fork(ForkIx),
    /// Waits for a fork's paths. Only the parent enters the JOIN, directly from its FORK.
    Join(ForkIx),
    /// Runs another workflow and waits.
    Subgraph {
        /// Id of the workflow.
        workflow_id: Arc<str>,
        /// Input of the called workflow; absent: the last node's output.
        input: Option<ValueSpec>,
        /// Expression over the called workflow's output.
        output: Option<SnippetIx>,
        /// Origin of the called workflow's conversation.
        conversation: ConversationMode,
        /// Sub-agent as which the called workflow runs.
        agent: Option<AgentConfig>,
    },
    /// Runs another workflow for each item of a list.
    Map(Box<MapNode>),
    /// Changes the conversation.
    Context(ContextNode),
    /// Waits for a time, in milliseconds.
    WaitTime(u64),
    /// Waits for an event.
    WaitEvent {
        /// Name of a CUSTOM event, or an event type's word.
        event: Arc<str>,
        /// Time limit in milliseconds.
        timeout_ms: Option<u64>,
    },
    /// Calls one tool.
    Tool {
        /// The tool's name.
        name: Arc<str>,
        /// Arguments of the tool.
        arguments: ValueSpec,
        /// Thread variable that receives the result.
        assign_to: Option<Arc<str>>,
    },
    /// Asks a person a question.
    UserInteraction(Box<InteractionNode>),
    /// Starts a loop, or its next iteration.
    LoopStart(LoopNode),
    /// Ends an iteration.
    LoopEnd {
        /// Index of the LOOP_START.
        start: NodeIx,
        /// Expression; the loop ends if it is true.
        break_condition: SnippetIx,
    },
    /// Last node of a triggered sub-workflow.
    ContinueFromTrigger(ContinueFromTriggerConfig),
}

/// A compiled SCRIPT.
#[derive(Debug)]
pub struct ScriptNode {
    /// Body of the script.
    pub code: SnippetIx,
    /// Value of `args`; absent: the thread's input.
    pub input: Option<ValueSpec>,
    /// Profile of agents that name none.
    pub profile_id: Option<Arc<str>>,
    /// Profiles by the agents' option `model`.
    pub models: BTreeMap<String, String>,
    /// Tools that the script and its agents may call.
    pub tools: Vec<Arc<str>>,
    /// Profiles that agents may name; absent: all.
    pub profiles: Option<Vec<String>>,
    /// Registered workflows that the script may start; absent: all.
    pub workflows: Option<Vec<String>>,
    /// Limits of the script.
    pub limits: ScriptLimits,
    /// Maximum bytes of the output of a script of `run_code`, which calls tools only; `None` for other scripts.
    pub tool_result_bytes: Option<u64>,
}

/// A compiled MAP.
#[derive(Debug)]
pub struct MapNode {
    /// Id of the workflow.
    pub workflow_id: Arc<str>,
    /// The list.
    pub items: ValueSpec,
    /// The item's name in `input`.
    pub item_name: Arc<str>,
    /// The workflow's input; absent: the item.
    pub input: Option<ValueSpec>,
    /// Maximum number of concurrent threads; absent: the limit of the workflow's forks.
    pub concurrency: Option<u32>,
    /// Join of the items' threads. The parent's conversation is unchanged.
    pub join: JoinRule,
    /// The conversation of each thread.
    pub conversation: ItemConversation,
    /// Variables of the items' threads to merge.
    pub assign: Vec<Arc<str>>,
    /// Maximum number of items.
    pub max_items: u32,
}

/// A compiled USER_INTERACTION.
#[derive(Debug)]
pub struct InteractionNode {
    /// Template.
    pub question: SnippetIx,
    /// Template of the question's addressee.
    pub assignee: Option<SnippetIx>,
    /// JSON Schema of the answer.
    pub schema: Option<Arc<Map<String, Value>>>,
    /// The answers to choose from.
    pub choices: Option<Arc<Vec<Value>>>,
    /// Thread variable that receives the answer.
    pub assign_to: Option<Arc<str>>,
    /// Time limit in milliseconds; `None` for no limit.
    pub timeout_ms: Option<u64>,
    /// Policy after the timeout.
    pub on_timeout: QuestionTimeout,
}

/// Policy if a question is not answered in time.
#[derive(Debug)]
pub enum QuestionTimeout {
    /// The node fails.
    Fail,
    /// The node completes with this answer.
    Default(Arc<Value>),
    /// The thread continues at this node.
    GoTo(NodeIx),
}

/// A compiled LOOP_START.
#[derive(Debug)]
pub struct LoopNode {
    /// Index of the LOOP_END.
    pub end: NodeIx,
    /// The items; absent: the loop counts.
    pub iterable: Option<ValueSpec>,
    /// Thread variable that receives each item.
    pub variable: Option<Arc<str>>,
    /// Maximum number of iterations.
    pub max_iterations: Option<u64>,
    /// Policy at that limit if items are left.
    pub on_limit: LoopLimit,
}

impl NodeKind {
    /// Returns the type word of workflow files: `CONTEXT_PROCESSOR`.
    #[inline]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Start => "START",
            Self::StartFromTrigger => "START_FROM_TRIGGER",
            Self::End { .. } => "END",
            Self::Variable { .. } => "VARIABLE",
            Self::Llm(_) => "LLM",
            Self::Script { .. } | Self::Function { .. } => "CODE",
            Self::Orchestration(_) => "SCRIPT",
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

    /// True if a thread leaves the node without waiting.
    #[inline]
    pub fn is_inline(&self) -> bool {
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
            | Self::Orchestration(_)
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
    /// The profile's id, if it is not a template.
    pub profile_id: Option<Arc<str>>,
    /// Template of a user message, which is appended to the conversation.
    pub prompt: Option<SnippetIx>,
    /// Template of the request's system message, used if the conversation has none.
    pub system: Option<SnippetIx>,
    /// Names of tools. A deferred tool is an entry that [`ToolEntry::deferred_name`] reads.
    pub tools: Vec<Arc<str>>,
    /// Skills that the model may read.
    pub skills: Option<Box<NodeSkills>>,
    /// True if the tools of the run's client are offered; `None`: in the main thread only.
    pub client_tools: Option<bool>,
    /// Overrides the profile's parameters; absent if the parameters contain templates.
    pub parameters: Option<Arc<Map<String, Value>>>,
    /// The pieces of the user message, after the prompt.
    pub parts: Vec<PartSpec>,
    /// The profile and the parameters, if they contain templates.
    pub choice: Option<Box<ChoiceSpec>>,
    /// Maximum number of tool rounds.
    pub max_tool_rounds: u32,
    /// Policy after the last round.
    pub on_limit: ToolRoundLimit,
    /// Format of a structured reply.
    pub response_format: Option<Arc<Value>>,
    /// Rules for submitted workflows, if the node has the tool `run_workflow`.
    pub dynamic: Option<Box<DynamicRules>>,
    /// Rules for scripts, if the node has the tool `run_code`.
    pub code: Option<Box<CodeRules>>,
}

/// Skills of an LLM node.
#[derive(Debug)]
pub struct NodeSkills {
    /// Files of each skill by path, by the name of the skill. The head of `SKILL.md` is removed.
    pub by_name: BTreeMap<String, BTreeMap<String, String>>,
    /// Definition of `read_skill`, which lists the skills.
    pub definitions: Arc<Vec<ToolDefinition>>,
}

impl NodeSkills {
    /// Returns a file of a skill: `{name, file?}`.
    ///
    /// # Errors
    /// Returns a sentence that names the skills or files that exist.
    pub fn read(&self, arguments: &Value) -> Result<String, String> {
        let listed =
            |names: &mut dyn Iterator<Item = &String>| names.map(String::as_str).collect::<Vec<_>>().join(", ");
        let name = arguments["name"].as_str().unwrap_or_default();
        let Some(files) = self.by_name.get(name) else {
            return Err(format!(
                "there is no skill `{name}`; there are: {}",
                listed(&mut self.by_name.keys())
            ));
        };
        let others = || listed(&mut files.keys().filter(|file| *file != SKILL_FILE));
        // Keys of a map: a path that leaves the folder is not among them.
        match arguments["file"].as_str() {
            Some(file) => match files.get(file.strip_prefix("./").unwrap_or(file)) {
                Some(text) => Ok(text.clone()),
                None => Err(format!(
                    "the skill `{name}` has no text file `{file}`; there are: {}",
                    listed(&mut files.keys())
                )),
            },
            None if files.len() > 1 => Ok(format!("{}\n\n(Files of the skill: {})", files[SKILL_FILE], others())),
            None => Ok(files[SKILL_FILE].clone()),
        }
    }
}

impl LlmNode {
    /// True if the tool of this name is deferred in this node.
    pub fn defers(&self, name: &str) -> bool {
        let mut tools = self.tools.iter();
        // A name that is listed without `deferred` too is not deferred. The order of both does not matter.
        let is_plain = self.tools.iter().any(|listed| ToolEntry::includes(listed, name));
        !is_plain
            && tools
                .any(|listed| ToolEntry::deferred_name(listed).is_some_and(|listed| ToolEntry::includes(listed, name)))
    }

    /// True if parts other than the prompt and the system text are evaluated.
    #[inline]
    pub fn is_computed(&self) -> bool {
        self.choice.is_some() || self.parts.iter().any(|part| matches!(part, PartSpec::Computed(_)))
    }
}

/// A part of an LLM node's user message.
#[derive(Debug)]
pub enum PartSpec {
    /// A literal part of the definition, shared by every message.
    Literal(Part),
    /// A part, or a list of parts, with templates in its strings; or an expression that returns one.
    Computed(ValueSpec),
}

/// Profile and parameters of an LLM node that contain templates.
#[derive(Debug)]
pub struct ChoiceSpec {
    /// Template of the profile's id.
    pub profile: Option<SnippetIx>,
    /// The parameters.
    pub parameters: Option<ValueSpec>,
}

/// A message with a template as its content.
#[derive(Clone, Copy, Debug)]
pub struct TemplateMessage {
    /// Role of the speaker.
    pub role: Role,
    /// Template.
    pub content: SnippetIx,
    /// True to retain the message in every compression.
    pub pin: bool,
}

/// A compiled CONTEXT_PROCESSOR.
#[derive(Debug)]
pub enum ContextNode {
    /// Adds messages.
    Insert {
        /// The messages, as templates.
        messages: Vec<TemplateMessage>,
        /// Index among the visible messages; negative values count from the end.
        position: i64,
    },
    /// Replaces messages by others.
    Replace {
        /// The messages to replace; absent: all.
        target: Option<ConversationHistoryOptions>,
        /// The replacement.
        messages: Vec<TemplateMessage>,
    },
    /// Retains or removes messages at one end.
    Truncate(TruncateContext),
    /// Removes all messages.
    Clear {
        /// True to retain system messages.
        keep_system: bool,
    },
    /// Retains the messages that match.
    Filter(FilterContext),
    /// Compresses the conversation.
    Compress(CompressionConfig),
    /// Sets a section of the pinned context.
    Pin {
        /// The section.
        section: PinSection,
        /// Value of the section; text is a template.
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
    /// Scheduling of the paths.
    pub strategy: ForkStrategy,
    /// The compiled config of the JOIN.
    pub join: JoinRule,
}

/// A path of a fork.
#[derive(Clone, Debug, PartialEq)]
pub struct ForkPath {
    /// The user's id, shown in outputs and errors.
    pub id: Arc<str>,
    /// `workflow/fork-node/path`: unique among all workflows of an engine.
    pub global_id: Arc<str>,
    /// The first node of the path.
    pub child: NodeIx,
}

/// The compiled config of a JOIN. Serialisable, because it is part of the state of the fork's machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinRule {
    /// Condition under which the JOIN succeeds.
    pub strategy: JoinStrategy,
    /// Required number of completed paths for SUCCESS_COUNT_THRESHOLD.
    pub threshold: u32,
    /// Time limit in milliseconds; `None` for no limit.
    pub timeout_ms: Option<u64>,
    /// Index of the main path in `paths`.
    pub main_path: usize,
    /// True if the user named the main path.
    pub main_path_explicit: bool,
    /// Policy for the paths that have not ended when the JOIN is decided.
    pub on_decided: OnDecided,
    /// Branches whose thread variables are merged.
    pub merge_variables: MergeVariables,
}
