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
            pub fn as_str(self) -> &'static str {
                match self { $(RunErrorCode::$name => $word,)* }
            }
        }
    };
}

run_error_codes! {
    /// A node failed; the cause says why.
    NodeFailed = "NODE_FAILED",
    /// A node did not end within its `timeoutMs`.
    NodeTimeout = "NODE_TIMEOUT",
    /// JavaScript threw.
    ScriptError = "SCRIPT_ERROR",
    /// A script named what is not there.
    UnknownName = "UNKNOWN_NAME",
    /// JavaScript ran over its memory, stack or time limit.
    ScriptLimitExceeded = "SCRIPT_LIMIT_EXCEEDED",
    /// A template named a path that does not exist.
    TemplateError = "TEMPLATE_ERROR",
    /// No route held and there is no default.
    NoRouteMatched = "NO_ROUTE_MATCHED",
    /// No edge out of a node held.
    NoEdgeSatisfied = "NO_EDGE_SATISFIED",
    /// The join's strategy can no longer succeed.
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
    /// The current turn alone is over the token limit.
    TokenBudgetExceeded = "TOKEN_BUDGET_EXCEEDED",
    /// The run holds more memory than its `limits.runBytes`.
    MemoryLimitExceeded = "MEMORY_LIMIT_EXCEEDED",
    /// The model answered with an error.
    ModelError = "MODEL_ERROR",
    /// A tool failed in a way that ends the node.
    ToolError = "TOOL_ERROR",
    /// The model still asks for tools after the last round that its node allows.
    ToolRoundsExceeded = "TOOL_ROUNDS_EXCEEDED",
    /// A sub-agent has no role.
    SubAgentRoleMissing = "SUB_AGENT_ROLE_MISSING",
    /// No workflow of the engine has this id.
    WorkflowNotFound = "WORKFLOW_NOT_FOUND",
    /// The input of a run is invalid, or the id that it or its session is to have.
    InvalidInput = "INVALID_INPUT",
    /// There is a run of this id already.
    RunIdTaken = "RUN_ID_TAKEN",
    /// A limit of the engine refused the work.
    Overloaded = "OVERLOADED",
    /// As many runs wait for the session as may, or one that comes before waits for somebody to go on with it.
    SessionBusy = "SESSION_BUSY",
    /// The store of a durable run failed: what was not durable was not told, and the run can be resumed.
    StoreError = "STORE_ERROR",
    /// An effect had begun when its process ended, and its `inDoubt` says that it is not done again.
    EffectInDoubt = "EFFECT_IN_DOUBT",
    /// Triggers have fired as often for what triggers caused as the run's `maxTriggeredEvents` allows.
    TriggeredEventsExceeded = "TRIGGERED_EVENTS_EXCEEDED",
    /// Stopped by someone.
    Cancelled = "CANCELLED",
    /// An actor died of a panic; it was contained.
    ActorPanicked = "ACTOR_PANICKED",
}

/// An error of a run: a pointer to its [facts](ErrorFacts), because whatever can go wrong has room for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunError(Box<ErrorFacts>);

/// The content of a [`RunError`]: the code, where it arose, and what caused it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorFacts {
    /// Stable code.
    pub code: RunErrorCode,
    /// One sentence for a person.
    pub message: String,
    /// The node it arose in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<Arc<str>>,
    /// The thread it arose in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<Arc<str>>,
    /// The fork path it arose in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_id: Option<Arc<str>>,
    /// Facts a program can use: every path's status for a join, the path missing from a template, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Its cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RunError>,
}

impl RunError {
    /// An error with a code and a sentence, nothing else known yet.
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

    /// The facts, to be taken apart.
    pub fn into_facts(self) -> ErrorFacts {
        *self.0
    }

    /// The same error with facts for a program.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The same error with its cause.
    #[must_use]
    pub fn caused_by(mut self, cause: RunError) -> Self {
        self.cause = Some(cause);
        self
    }
}

impl std::ops::Deref for RunError {
    type Target = ErrorFacts;

    fn deref(&self) -> &ErrorFacts {
        &self.0
    }
}

impl std::ops::DerefMut for RunError {
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

/// The error of evaluating an expression, a template or a script; `into()` makes it a [`RunError`].
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptFault {
    /// `SCRIPT_ERROR`, `UNKNOWN_NAME`, `SCRIPT_LIMIT_EXCEEDED`, `TEMPLATE_ERROR` or, where it was stopped, `CANCELLED`.
    pub code: RunErrorCode,
    /// One sentence for a person.
    pub message: String,
    /// Facts for a program: `{"path"}` of a missing path, `{"name"}` of an unknown name, `{"line", "column"}` of a thrown error,
    /// and `{"expression"}` where an expression threw it.
    pub details: Option<Value>,
}

impl ScriptFault {
    /// JavaScript threw, or gave what JSON cannot hold.
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

    /// Stopped by someone.
    pub fn cancelled() -> Self {
        Self {
            code: RunErrorCode::Cancelled,
            message: "the script was stopped".into(),
            details: None,
        }
    }

    /// Nothing is called `name`.
    pub fn unknown_name(name: &str) -> Self {
        Self {
            code: RunErrorCode::UnknownName,
            message: format!("unknown name `{name}`"),
            details: Some(json!({ "name": name })),
        }
    }

    /// The path `path` of a `{{path}}` does not exist; `code` says in which kind of text.
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
