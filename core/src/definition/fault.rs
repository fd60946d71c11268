//! Faults: a stable code, a sentence, and the place in the user's own text.

use std::fmt;

use serde::ser::{Serialize, SerializeStruct, Serializer};

macro_rules! fault_codes {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal,)*) => {
        /// The stable code of a fault or warning. `docs/validation-codes.md` shows a
        /// bad and a corrected example of each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FaultCode {
            $($(#[doc = $doc])* $name,)*
        }

        impl FaultCode {
            /// Every code, in declaration order.
            pub const ALL: &'static [FaultCode] = &[$(FaultCode::$name,)*];

            /// The upper-case word used in JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(FaultCode::$name => $word,)* }
            }
        }
    };
}

fault_codes! {
    /// The text is not JSON.
    InvalidJson = "INVALID_JSON",
    /// A size, a depth or a nesting is above its limit.
    LimitExceeded = "LIMIT_EXCEEDED",
    /// A key appears twice in one object, or once under its name and once under an alias.
    DuplicateField = "DUPLICATE_FIELD",
    /// An unknown field.
    UnknownField = "UNKNOWN_FIELD",
    /// A field that must be there is not.
    MissingField = "MISSING_FIELD",
    /// A value of the wrong type, or out of its range.
    InvalidValue = "INVALID_VALUE",
    /// Two workflows have one id.
    DuplicateWorkflowId = "DUPLICATE_WORKFLOW_ID",
    /// Two nodes of a workflow have one id.
    DuplicateNodeId = "DUPLICATE_NODE_ID",
    /// Two triggers that stand together have one id.
    DuplicateTriggerId = "DUPLICATE_TRIGGER_ID",
    /// An edge, route, `onError` or path names a node that is not there.
    UnknownNodeReference = "UNKNOWN_NODE_REFERENCE",
    /// An edge where none may be: into START, out of END, a condition on a FORK's edge.
    InvalidEdge = "INVALID_EDGE",
    /// No START.
    MissingStart = "MISSING_START",
    /// More than one START.
    MultipleStart = "MULTIPLE_START",
    /// No END.
    MissingEnd = "MISSING_END",
    /// The node can not be reached from the start.
    UnreachableNode = "UNREACHABLE_NODE",
    /// No END can be reached from the node.
    DeadEnd = "DEAD_END",
    /// A FORK's paths and children do not fit each other or the graph.
    InvalidForkPathIds = "INVALID_FORK_PATH_IDS",
    /// A path id appears twice in a workflow.
    DuplicateForkPathId = "DUPLICATE_FORK_PATH_ID",
    /// `mainPathId` is not one of the JOIN's paths.
    MainPathIdNotFound = "MAIN_PATH_ID_NOT_FOUND",
    /// A FORK and a JOIN share path ids but not all of them in one order.
    ForkJoinMismatch = "FORK_JOIN_MISMATCH",
    /// A FORK without JOIN.
    UnpairedFork = "UNPAIRED_FORK",
    /// A JOIN without FORK.
    UnpairedJoin = "UNPAIRED_JOIN",
    /// A branch can end, stop or leave before its JOIN, or the JOIN can be entered from outside.
    ForkJoinNotReachable = "FORK_JOIN_NOT_REACHABLE",
    /// Two loops of a workflow have one id.
    DuplicateLoopId = "DUPLICATE_LOOP_ID",
    /// A LOOP_START without LOOP_END.
    UnpairedLoopStart = "UNPAIRED_LOOP_START",
    /// A LOOP_END without LOOP_START.
    UnpairedLoopEnd = "UNPAIRED_LOOP_END",
    /// A loop can be left before its LOOP_END, or entered other than by its LOOP_START.
    LoopNotClosed = "LOOP_NOT_CLOSED",
    /// `joinStrategy` is missing or not one of the five.
    InvalidJoinStrategy = "INVALID_JOIN_STRATEGY",
    /// `threshold` is not an integer from 1 to the number of paths.
    InvalidThreshold = "INVALID_THRESHOLD",
    /// A time is negative, not a number, or above ten years.
    InvalidTimeout = "INVALID_TIMEOUT",
    /// A SUBGRAPH or a trigger names a workflow that is not there.
    UnknownWorkflowReference = "UNKNOWN_WORKFLOW_REFERENCE",
    /// Called sub-workflows call each other in a cycle.
    SubgraphCycle = "SUBGRAPH_CYCLE",
    /// A triggered sub-workflow has not its form, or something that needs one names another workflow.
    InvalidTriggeredWorkflow = "INVALID_TRIGGERED_WORKFLOW",
    /// A selection of messages that selects nothing or makes no sense.
    InvalidHistoryOptions = "INVALID_HISTORY_OPTIONS",
    /// A callback of CONTINUE_FROM_TRIGGER that contradicts itself.
    InvalidCallback = "INVALID_CALLBACK",
    /// A cron expression that cannot be read, a time zone that there is not, or an action that a schedule can not have.
    InvalidSchedule = "INVALID_SCHEDULE",
    /// An expression or script that does not parse, or is too long.
    InvalidExpression = "INVALID_EXPRESSION",
    /// A script names what is not there.
    UnknownName = "UNKNOWN_NAME",
    /// A template that does not parse.
    InvalidTemplate = "INVALID_TEMPLATE",
    /// A JSON Schema that is none: of an input, a reply or an answer.
    InvalidSchema = "INVALID_SCHEMA",
    /// A function that is not registered.
    UnknownFunction = "UNKNOWN_FUNCTION",
    /// A model profile that no engine is built with.
    InvalidProfile = "INVALID_PROFILE",
    /// A profile that is not there; a warning where no profile at all is configured.
    UnknownProfile = "UNKNOWN_PROFILE",
    /// Something that a budget limits, and of which nobody knows how much a model call may use at most.
    BudgetWithoutMaximum = "BUDGET_WITHOUT_MAXIMUM",
    /// A budget of money, and a profile without prices.
    BudgetWithoutPrices = "BUDGET_WITHOUT_PRICES",
    /// A tokenizer that is neither built in nor registered.
    UnknownTokenizer = "UNKNOWN_TOKENIZER",
    /// Warning: a tool that the config at hand does not give.
    UnknownTool = "UNKNOWN_TOOL",
    /// Warning: a compression strategy that is none of the built-in ones; nothing is compressed.
    UnknownStrategy = "UNKNOWN_STRATEGY",
    /// Warning: the program of a tool or of an MCP server is not on this machine.
    ProgramNotFound = "PROGRAM_NOT_FOUND",
    /// Warning: the older form, with `forkId` in place of `forkPathIds`.
    LegacyForm = "LEGACY_FORM",
    /// Warning: several options in one selection; the first in the documented order wins.
    AmbiguousHistoryOptions = "AMBIGUOUS_HISTORY_OPTIONS",
    /// Warning: an edge that is drawn but never taken.
    IgnoredEdge = "IGNORED_EDGE",
    /// Warning: whatever its paths do, the JOIN fails.
    JoinNeverSucceeds = "JOIN_NEVER_SUCCEEDS",
    /// Warning: fewer paths can complete than `threshold` asks for.
    ThresholdOutOfReach = "THRESHOLD_OUT_OF_REACH",
    /// Warning: the JOIN is decided before the path's turn comes.
    BranchNeverStarts = "BRANCH_NEVER_STARTS",
    /// Warning: a loop whose exits no run takes.
    LoopWithoutExit = "LOOP_WITHOUT_EXIT",
    /// Warning: a route or an edge that no run takes.
    UnreachableRoute = "UNREACHABLE_ROUTE",
    /// Warning: the event that the trigger waits for never happens.
    TriggerNeverFires = "TRIGGER_NEVER_FIRES",
    /// Warning: the trigger's action raises the event it waits for.
    TriggerFiresItself = "TRIGGER_FIRES_ITSELF",
    /// Warning: triggers start workflows in a cycle.
    WorkflowRing = "WORKFLOW_RING",
    /// Warning: nothing happens at `config.tokenLimit`.
    TokenLimitWithoutCompression = "TOKEN_LIMIT_WITHOUT_COMPRESSION",
    /// Warning: a system text that is new each time, so that no provider's cache serves the request.
    UncacheablePrompt = "UNCACHEABLE_PROMPT",
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for FaultCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Faults that are found in one file, or in one set of definitions; likewise warnings. Beyond them nothing is looked for.
pub const MAX_FAULTS: usize = 1_000;

/// Keeps the first [`MAX_FAULTS`], and says so where there are more.
pub(crate) fn bounded(faults: &mut Vec<Fault>, what: &str) {
    if faults.len() > MAX_FAULTS {
        faults.truncate(MAX_FAULTS);
        let mut last = faults[MAX_FAULTS - 1].clone();
        last.code = FaultCode::LimitExceeded;
        last.message = format!("more than {MAX_FAULTS} {what}: no more are looked for");
        last.help = None;
        faults.push(last);
    }
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    /// Bytes from the text's start.
    pub offset: usize,
    /// Bytes.
    pub length: usize,
}

/// One thing that is wrong, or that deserves a warning.
///
/// As JSON: `{code, message, pointer, line?, column?, file?, help?}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The faults.
    pub code: FaultCode,
    /// One sentence for a person.
    pub message: String,
    /// JSON pointer into the text as the user wrote it; into the definition where there is no text.
    pub pointer: String,
    /// The file's name, where there is one.
    pub file: Option<String>,
    /// The place in the file.
    pub position: Option<Position>,
    /// Advice on how to correct it.
    pub help: Option<String>,
}

impl Fault {
    /// The same fault with advice.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        if let Some(position) = self.position {
            write!(f, "{}:{}:", position.line, position.column)?;
        }
        if self.file.is_some() || self.position.is_some() {
            f.write_str(" ")?;
        }
        write!(f, "{}: {}", self.code, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Fault", 7)?;
        object.serialize_field("code", &self.code)?;
        object.serialize_field("message", &self.message)?;
        object.serialize_field("pointer", &self.pointer)?;
        if let Some(position) = self.position {
            object.serialize_field("line", &position.line)?;
            object.serialize_field("column", &position.column)?;
        }
        if let Some(file) = &self.file {
            object.serialize_field("file", file)?;
        }
        if let Some(help) = &self.help {
            object.serialize_field("help", help)?;
        }
        object.end()
    }
}
