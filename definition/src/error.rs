//! The errors of a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

macro_rules! run_error_codes {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal,)*) => {
        /// The stable code of a run error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum RunErrorCode {
            $($(#[doc = $doc])* #[serde(rename = $word)] $name,)*
        }

        impl RunErrorCode {
            /// Every code, in declaration order.
            pub const ALL: &'static [RunErrorCode] = &[$(RunErrorCode::$name,)*];

            /// The upper-case word used in JSON.
            #[inline]
            pub fn as_str(self) -> &'static str {
                match self { $(RunErrorCode::$name => $word,)* }
            }
        }
    };
}

run_error_codes! {
    /// A node failed; the cause gives the reason.
    NodeFailed = "NODE_FAILED",
    /// A node did not end within its `timeoutMs`.
    NodeTimeout = "NODE_TIMEOUT",
    /// JavaScript threw.
    ScriptError = "SCRIPT_ERROR",
    /// A script used an undefined name.
    UnknownName = "UNKNOWN_NAME",
    /// JavaScript ran over its memory, stack or time limit.
    ScriptLimitExceeded = "SCRIPT_LIMIT_EXCEEDED",
    /// A template named a path that does not exist.
    TemplateError = "TEMPLATE_ERROR",
    /// No route matched, and there is no default route.
    NoRouteMatched = "NO_ROUTE_MATCHED",
    /// No edge out of a node had a true condition.
    NoEdgeSatisfied = "NO_EDGE_SATISFIED",
    /// The join's strategy cannot succeed with the remaining paths.
    JoinConditionNotMet = "JOIN_CONDITION_NOT_MET",
    /// The join's timeout passed.
    JoinTimeout = "JOIN_TIMEOUT",
    /// The main path has no thread to take the conversation from.
    MainThreadNotFound = "MAIN_THREAD_NOT_FOUND",
    /// The main path's conversation could not be restored.
    ConversationManagerMergeFailed = "CONVERSATION_MANAGER_MERGE_FAILED",
    /// Two branches set one variable to different values under `mergeVariables: all`.
    VariableMergeConflict = "VARIABLE_MERGE_CONFLICT",
    /// A read-only variable was assigned.
    ReadonlyVariable = "READONLY_VARIABLE",
    /// A loop reached `maxIterations` with items left.
    LoopLimitExceeded = "LOOP_LIMIT_EXCEEDED",
    /// The list of a MAP is longer than `maxItems`.
    TooManyItems = "TOO_MANY_ITEMS",
    /// The thread took more than `maxSteps` nodes.
    MaxStepsExceeded = "MAX_STEPS_EXCEEDED",
    /// A budget refused a model call, which could exceed the remaining tokens, cost or number of calls.
    TokenBudgetExceeded = "TOKEN_BUDGET_EXCEEDED",
    /// The run holds more memory than its `limits.runBytes`.
    MemoryLimitExceeded = "MEMORY_LIMIT_EXCEEDED",
    /// A model call failed.
    ModelError = "MODEL_ERROR",
    /// A tool failed in a way that ends the node.
    ToolError = "TOOL_ERROR",
    /// The model requested tools after the last round that its node allows.
    ToolRoundsExceeded = "TOOL_ROUNDS_EXCEEDED",
    /// A sub-agent has no role.
    SubAgentRoleMissing = "SUB_AGENT_ROLE_MISSING",
    /// No workflow of the engine has this id.
    WorkflowNotFound = "WORKFLOW_NOT_FOUND",
    /// The input of a run, its id or its session's id is invalid.
    InvalidInput = "INVALID_INPUT",
    /// A run with this id exists.
    RunIdTaken = "RUN_ID_TAKEN",
    /// A limit of the engine refused the work.
    Overloaded = "OVERLOADED",
    /// The maximum number of runs waits for the session, or an earlier run of the session has no owner and must be resumed first.
    SessionBusy = "SESSION_BUSY",
    /// The store of a durable run failed. Effects that depend on unwritten records were not performed; the run can be resumed.
    StoreError = "STORE_ERROR",
    /// A replayed script requested another call than the recorded one.
    RunDiverged = "RUN_DIVERGED",
    /// An effect was started before its process crashed, has no recorded outcome, and its `inDoubt` policy does not repeat it.
    EffectInDoubt = "EFFECT_IN_DOUBT",
    /// The firings for events that triggers caused reached the run's `maxTriggeredEvents`.
    TriggeredEventsExceeded = "TRIGGERED_EVENTS_EXCEEDED",
    /// The run, thread or call was cancelled.
    Cancelled = "CANCELLED",
    /// An actor panicked; the panic was contained.
    ActorPanicked = "ACTOR_PANICKED",
}

/// Error of a run: a pointer to its [facts](ErrorFacts), which keeps every `Result` small.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunError(Box<ErrorFacts>);

/// Content of a [`RunError`]: the code, its location, and its cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorFacts {
    /// Stable code.
    pub code: RunErrorCode,
    /// Description in one sentence, for display.
    pub message: String,
    /// The node in which the error occurred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<Arc<str>>,
    /// The thread in which the error occurred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<Arc<str>>,
    /// The fork path in which the error occurred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_id: Option<Arc<str>>,
    /// Facts a program can use: every path's status for a join, the path missing from a template, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Error that caused this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RunError>,
}

impl RunError {
    /// Creates an error with a code and a sentence, without a location or cause.
    pub fn new(code: RunErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorFacts {
            code,
            message: message.into(),
            node_id: None,
            thread_id: None,
            path_id: None,
            details: None,
            cause: None,
        }))
    }

    /// Returns the facts by value.
    pub fn into_facts(self) -> ErrorFacts {
        *self.0
    }

    /// Adds facts for a program.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, cause: RunError) -> Self {
        self.cause = Some(cause);
        self
    }
}

impl std::ops::Deref for RunError {
    type Target = ErrorFacts;

    #[inline]
    fn deref(&self) -> &ErrorFacts {
        &self.0
    }
}

impl std::ops::DerefMut for RunError {
    #[inline]
    fn deref_mut(&mut self) -> &mut ErrorFacts {
        &mut self.0
    }
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)?;
        if let Some(node) = &self.node_id {
            write!(f, " (node {node})")?;
        }
        Ok(())
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause
            .as_ref()
            .map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

/// Error of evaluating an expression, a template or a script; `into()` converts it to a [`RunError`].
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptFault {
    /// `SCRIPT_ERROR`, `UNKNOWN_NAME`, `SCRIPT_LIMIT_EXCEEDED`, `TEMPLATE_ERROR`, or `CANCELLED` if the evaluation was stopped.
    pub code: RunErrorCode,
    /// Description in one sentence, for display.
    pub message: String,
    /// Facts for a program: `{"path"}` of a missing path, `{"name"}` of an unknown name, `{"line", "column"}` of a thrown error,
    /// and `{"expression"}` if an expression threw it.
    pub details: Option<Value>,
}

impl ScriptFault {
    /// JavaScript threw, or returned a value that JSON cannot represent.
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            code: RunErrorCode::ScriptError,
            message: message.into(),
            details: None,
        }
    }

    /// A limit on time, memory, stack or size was hit.
    pub fn limit(message: impl Into<String>) -> Self {
        Self {
            code: RunErrorCode::ScriptLimitExceeded,
            message: message.into(),
            details: None,
        }
    }

    /// A template could not be rendered.
    pub fn template(message: impl Into<String>) -> Self {
        Self {
            code: RunErrorCode::TemplateError,
            message: message.into(),
            details: None,
        }
    }

    /// The evaluation was cancelled.
    pub fn cancelled() -> Self {
        Self {
            code: RunErrorCode::Cancelled,
            message: "the script was stopped".into(),
            details: None,
        }
    }

    /// Creates the error for a name that is not defined.
    pub fn unknown_name(name: &str) -> Self {
        Self {
            code: RunErrorCode::UnknownName,
            message: format!("unknown name `{name}`"),
            details: Some(json!({ "name": name })),
        }
    }

    /// The path of a `{{path}}` does not exist; `code` is the code of its kind of source.
    pub fn missing_path(code: RunErrorCode, path: &str) -> Self {
        Self {
            code,
            message: format!("`{path}` does not exist"),
            details: Some(json!({ "path": path })),
        }
    }
}

impl std::fmt::Display for ScriptFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}

impl std::error::Error for ScriptFault {}

impl From<ScriptFault> for RunError {
    fn from(fault: ScriptFault) -> Self {
        let error = RunError::new(fault.code, fault.message);
        match fault.details {
            Some(details) => error.with_details(details),
            None => error,
        }
    }
}
