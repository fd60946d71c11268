//! Faults: a stable code, a sentence, and a position in the user's source.

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
    /// The source is not JSON.
    InvalidJson = "INVALID_JSON",
    /// A size, a depth or a nesting is above its limit.
    LimitExceeded = "LIMIT_EXCEEDED",
    /// A key appears twice in one object, or once under its name and once under an alias.
    DuplicateField = "DUPLICATE_FIELD",
    /// An unknown field.
    UnknownField = "UNKNOWN_FIELD",
    /// A required field is missing.
    MissingField = "MISSING_FIELD",
    /// A value of the wrong type, or out of its range.
    InvalidValue = "INVALID_VALUE",
    /// Two workflows have one id.
    DuplicateWorkflowId = "DUPLICATE_WORKFLOW_ID",
    /// Two nodes of a workflow have one id.
    DuplicateNodeId = "DUPLICATE_NODE_ID",
    /// Two triggers of one owner have one id.
    DuplicateTriggerId = "DUPLICATE_TRIGGER_ID",
    /// An edge, route, `onError` or path names a node that does not exist.
    UnknownNodeReference = "UNKNOWN_NODE_REFERENCE",
    /// An edge that is not allowed: into START, out of END, or with a condition on a FORK's edge.
    InvalidEdge = "INVALID_EDGE",
    /// The workflow has no START.
    MissingStart = "MISSING_START",
    /// More than one START.
    MultipleStart = "MULTIPLE_START",
    /// The workflow has no END.
    MissingEnd = "MISSING_END",
    /// The node can not be reached from the start.
    UnreachableNode = "UNREACHABLE_NODE",
    /// No END can be reached from the node.
    DeadEnd = "DEAD_END",
    /// A FORK's paths and children do not match each other or the graph.
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
    /// A SUBGRAPH or a trigger names a workflow that does not exist.
    UnknownWorkflowReference = "UNKNOWN_WORKFLOW_REFERENCE",
    /// Called sub-workflows call each other in a cycle.
    SubgraphCycle = "SUBGRAPH_CYCLE",
    /// A workflow does not have the form of a triggered sub-workflow, or a normal workflow is used as one.
    InvalidTriggeredWorkflow = "INVALID_TRIGGERED_WORKFLOW",
    /// A selection of messages that is empty or contradictory.
    InvalidHistoryOptions = "INVALID_HISTORY_OPTIONS",
    /// A callback of CONTINUE_FROM_TRIGGER that contradicts itself.
    InvalidCallback = "INVALID_CALLBACK",
    /// An invalid cron expression, an unknown time zone, or an action that a schedule cannot have.
    InvalidSchedule = "INVALID_SCHEDULE",
    /// An expression or script that does not parse, or is too long.
    InvalidExpression = "INVALID_EXPRESSION",
    /// A script uses an undefined name.
    UnknownName = "UNKNOWN_NAME",
    /// A template that does not parse.
    InvalidTemplate = "INVALID_TEMPLATE",
    /// An invalid JSON Schema of an input, a reply or an answer.
    InvalidSchema = "INVALID_SCHEMA",
    /// A function that is not registered.
    UnknownFunction = "UNKNOWN_FUNCTION",
    /// A model profile that an engine would refuse.
    InvalidProfile = "INVALID_PROFILE",
    /// An undefined profile; a warning if no profiles are configured.
    UnknownProfile = "UNKNOWN_PROFILE",
    /// A budget limits tokens or cost, and a model call has no known maximum of them.
    BudgetWithoutMaximum = "BUDGET_WITHOUT_MAXIMUM",
    /// A budget limits the cost, and a profile has no prices.
    BudgetWithoutPrices = "BUDGET_WITHOUT_PRICES",
    /// A tokenizer that is neither built in nor registered.
    UnknownTokenizer = "UNKNOWN_TOKENIZER",
    /// Warning: a tool that the current configuration does not provide.
    UnknownTool = "UNKNOWN_TOOL",
    /// Warning: a compression strategy that is not built in; nothing is compressed.
    UnknownStrategy = "UNKNOWN_STRATEGY",
    /// Warning: the program of a tool or of an MCP server is not installed on this machine.
    ProgramNotFound = "PROGRAM_NOT_FOUND",
    /// Warning: the legacy form, with `forkId` instead of `forkPathIds`.
    LegacyForm = "LEGACY_FORM",
    /// Warning: several options in one selection; the first in the documented order wins.
    AmbiguousHistoryOptions = "AMBIGUOUS_HISTORY_OPTIONS",
    /// Warning: an edge that is drawn but never taken.
    IgnoredEdge = "IGNORED_EDGE",
    /// Warning: the JOIN or MAP fails whatever its paths do.
    JoinNeverSucceeds = "JOIN_NEVER_SUCCEEDS",
    /// Warning: fewer paths can complete than `threshold` requires.
    ThresholdOutOfReach = "THRESHOLD_OUT_OF_REACH",
    /// Warning: the JOIN is decided before the path starts.
    BranchNeverStarts = "BRANCH_NEVER_STARTS",
    /// Warning: a loop without an exit that a run can take.
    LoopWithoutExit = "LOOP_WITHOUT_EXIT",
    /// Warning: a route or an edge that no run takes.
    UnreachableRoute = "UNREACHABLE_ROUTE",
    /// Warning: the event that the trigger watches is never raised.
    TriggerNeverFires = "TRIGGER_NEVER_FIRES",
    /// Warning: the trigger's action raises the event that the trigger watches.
    TriggerFiresItself = "TRIGGER_FIRES_ITSELF",
    /// Warning: triggers start workflows in a cycle.
    WorkflowRing = "WORKFLOW_RING",
    /// Warning: no trigger and no compression reacts to `config.tokenLimit`.
    TokenLimitWithoutCompression = "TOKEN_LIMIT_WITHOUT_COMPRESSION",
    /// Warning: the system prompt changes with each request, so that no provider's cache can serve it.
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

/// Maximum number of faults reported for one file or one set of definitions; likewise for warnings. The check stops there.
pub const MAX_FAULTS: usize = 1_000;

/// Truncates the list to [`MAX_FAULTS`], with a note if there were more.
pub(crate) fn bounded(faults: &mut Vec<Fault>, what: &str) {
    if faults.len() > MAX_FAULTS {
        faults.truncate(MAX_FAULTS);
        let mut last = faults[MAX_FAULTS - 1].clone();
        last.code = FaultCode::LimitExceeded;
        last.message = format!("more than {MAX_FAULTS} {what}: the check stopped here");
        last.help = None;
        faults.push(last);
    }
}

/// A position in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
    /// Offset from the start of the text, in bytes.
    pub offset: usize,
    /// Length in bytes.
    pub length: usize,
}

/// A fault or a warning.
///
/// As JSON: `{code, message, pointer, line?, column?, file?, help?}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Stable code.
    pub code: FaultCode,
    /// Description in one sentence, for display.
    pub message: String,
    /// JSON pointer into the source as the user wrote it; into the definition if there is no source.
    pub pointer: String,
    /// The file's name, if there is one.
    pub file: Option<String>,
    /// The position in the file.
    pub position: Option<Position>,
    /// Advice on how to correct it.
    pub help: Option<String>,
}

impl Fault {
    /// Adds advice.
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
