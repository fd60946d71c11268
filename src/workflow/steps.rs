//! Configs of nodes. Alternatives that exclude each other have separate constructors.

use std::time::Duration;

use pirn_definition::definition::{
    AgentConfig, CodeConfig, CodeModeLimits, ContinueFromTriggerConfig, ConversationMode, DynamicConfig,
    HistoryCallback, HistoryCallbackMode, LlmConfig, LoopDataSource, LoopLimit, LoopStartConfig, NodeConfig,
    SubgraphConfig, ToolConfig, ToolEntry, ToolRoundLimit, UserInteractionConfig, VariableCallback, VariableConfig,
    VariableScope, VariableType, WaitConfig,
};
use serde_json::{Map, Value};

use super::Messages;

/// The config of a single-step node; [`WorkflowBuilder::node`](super::WorkflowBuilder::node) accepts values that convert to it.
#[derive(Clone, Debug)]
pub struct Step(pub(super) NodeConfig);

/// Setters of optional fields of the config that is the first field of `self`.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $field: impl Into<$type>) -> Self {
            self.0.$field = Some($field.into());
            self
        }
    )*};
}
pub(super) use setters;

/// Setters of JSON values that are expressions if they are strings.
macro_rules! value_setters {
    ($($(#[$doc:meta])* $field:ident,)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $field: impl Into<Value>) -> Self {
            self.0.$field = Some(match $field.into() {
                // A null member of a workflow file counts as absent, so null is written as an expression.
                Value::Null => Value::from("null"),
                value => value,
            });
            self
        }
    )*};
}
pub(super) use value_setters;

macro_rules! steps {
    ($($type:ident: $variant:ident,)*) => {$(
        impl From<$type> for Step {
            fn from(step: $type) -> Self {
                Self(NodeConfig::$variant(step.0))
            }
        }
    )*};
}

steps! {
    Llm: Llm,
    Code: Code,
    Assign: Variable,
    Subgraph: Subgraph,
    CallTool: Tool,
    Wait: Wait,
}

/// LLM: calls a model.
#[derive(Clone, Debug)]
pub struct Llm(LlmConfig);

impl Llm {
    /// Adds a rendered template to the conversation as a user message.
    pub fn prompt(prompt: impl Into<String>) -> Self {
        Self(LlmConfig {
            prompt: Some(prompt.into()),
            ..LlmConfig::default()
        })
    }

    /// Continues with the current conversation.
    pub fn go_on() -> Self {
        Self(LlmConfig::default())
    }

    setters! {
        /// Sets the profile's id, or a template of it (default: the default profile).
        profile_id: String,
        /// Sets texts, images and files that follow the prompt.
        parts: Value,
        /// Sets the template of a system message, used if the conversation has none.
        system: String,
        /// Sets parameters that override those of the profile.
        parameters: Map<String, Value>,
        /// Sets the maximum number of rounds of tool calls (default 10).
        max_tool_rounds: u32,
        /// Sets the policy for tool calls after the last allowed round (default `fail`).
        on_limit: ToolRoundLimit,
        /// Sets the reply format: `{ type: "json_schema", schema, name? }`.
        response_format: Value,
        /// Sets the rules for the workflows that the model writes and runs by the tool `run_workflow`.
        dynamic: Box<DynamicConfig>,
        /// Sets the limits of the scripts that the model runs by the tool `run_code`.
        code_limits: CodeModeLimits,
    }

    /// Sets the names of the tools that the model may call.
    #[must_use]
    pub fn tools(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.tools = names.into_iter().map(|name| ToolEntry::from(name.into())).collect();
        self
    }
}

/// CODE: runs JavaScript or a registered function.
#[derive(Clone, Debug)]
pub struct Code(CodeConfig);

impl Code {
    /// Runs the body of an async function in JavaScript.
    pub fn js(code: impl Into<String>) -> Self {
        Self(CodeConfig {
            code: Some(code.into()),
            ..CodeConfig::default()
        })
    }

    /// Calls a function that is registered with the engine by this name.
    pub fn function(name: impl Into<String>) -> Self {
        Self(CodeConfig {
            function: Some(name.into()),
            ..CodeConfig::default()
        })
    }

    value_setters! {
        /// Sets the input: a string is evaluated as an expression; other values are used directly.
        input,
    }
}

/// VARIABLE: evaluates an expression and assigns its value.
#[derive(Clone, Debug)]
pub struct Assign(VariableConfig);

impl Assign {
    /// Assigns to a variable in the scope in which the workflow declares it; an undeclared one belongs to the thread.
    pub fn to(variable_name: impl Into<String>, expression: impl Into<String>) -> Self {
        Self(VariableConfig {
            variable_name: variable_name.into(),
            expression: expression.into(),
            variable_type: None,
            scope: None,
            readonly: false,
        })
    }

    setters! {
        /// Sets the type against which the value is checked; a string that can be parsed as this type is converted.
        variable_type: VariableType,
    }

    /// Assigns to a variable of the run.
    #[must_use]
    pub fn global(mut self) -> Self {
        self.0.scope = Some(VariableScope::Global);
        self
    }

    /// Makes the variable read-only afterwards: later assignments fail with `READONLY_VARIABLE`.
    #[must_use]
    pub fn readonly(mut self) -> Self {
        self.0.readonly = true;
        self
    }
}

/// SUBGRAPH: executes another workflow and waits for it.
#[derive(Clone, Debug)]
pub struct Subgraph(SubgraphConfig);

impl Subgraph {
    /// Executes the workflow of this id.
    pub fn of(workflow_id: impl Into<String>) -> Self {
        Self(SubgraphConfig {
            subgraph_id: workflow_id.into(),
            input: None,
            output: None,
            conversation: ConversationMode::default(),
            agent: None,
        })
    }

    value_setters! {
        /// Sets the input: a string is evaluated as an expression; other values are used directly (default: the last output).
        input,
    }

    setters! {
        /// Sets an expression over the sub-workflow's output (default: that output).
        output: String,
        /// Makes the sub-workflow a sub-agent.
        agent: AgentConfig,
    }

    /// Sets the sub-workflow's conversation (default: a snapshot of the caller's).
    #[must_use]
    pub fn conversation(mut self, conversation: ConversationMode) -> Self {
        self.0.conversation = conversation;
        self
    }
}

/// TOOL: calls one tool, without a model.
#[derive(Clone, Debug)]
pub struct CallTool(ToolConfig);

impl CallTool {
    /// Calls the tool of this name.
    pub fn named(tool: impl Into<String>) -> Self {
        Self(ToolConfig {
            tool: tool.into(),
            ..ToolConfig::default()
        })
    }

    value_setters! {
        /// Sets the arguments: a string is evaluated as an expression; other values are used directly (default `{}`).
        arguments,
    }

    setters! {
        /// Sets the thread variable to which the result is assigned.
        assign_to: String,
    }
}

/// WAIT: a timer, or an event.
#[derive(Clone, Debug)]
pub struct Wait(WaitConfig);

impl Wait {
    /// Waits for a duration.
    pub fn time(time: Duration) -> Self {
        Self(WaitConfig {
            seconds: Some(time.as_secs_f64()),
            ..WaitConfig::default()
        })
    }

    /// Waits for an event: the name of a CUSTOM one, or an event type.
    pub fn event(name: impl Into<String>) -> Self {
        Self(WaitConfig {
            event: Some(name.into()),
            ..WaitConfig::default()
        })
    }

    /// Waits for an event, and fails with `NODE_TIMEOUT` if none arrives in time.
    pub fn event_within(name: impl Into<String>, limit: Duration) -> Self {
        Self(WaitConfig {
            event: Some(name.into()),
            timeout: Some(super::limit_seconds(limit)),
            ..WaitConfig::default()
        })
    }
}

/// The items and limits of a loop.
#[derive(Clone, Debug)]
pub struct Loop(pub(super) LoopStartConfig);

impl Loop {
    /// Iterates over a list, an object, the numbers of a range, the characters of a string, or the result of an expression.
    pub fn over(loop_id: impl Into<String>, iterable: impl Into<Value>) -> Self {
        let mut repeated = Self::counting(loop_id);
        repeated.0.data_source = Some(LoopDataSource {
            iterable: iterable.into(),
            variable_name: None,
        });
        repeated
    }

    /// Iterates over a list as [`Loop::over`] does, with each item in a thread variable.
    pub fn over_as(loop_id: impl Into<String>, iterable: impl Into<Value>, variable_name: impl Into<String>) -> Self {
        let mut repeated = Self::over(loop_id, iterable);
        if let Some(source) = &mut repeated.0.data_source {
            source.variable_name = Some(variable_name.into());
        }
        repeated
    }

    /// Counts from 0 until another condition ends the loop.
    pub fn counting(loop_id: impl Into<String>) -> Self {
        Self(LoopStartConfig {
            loop_id: loop_id.into(),
            ..LoopStartConfig::default()
        })
    }

    /// Sets the maximum number of iterations, and what happens if items remain.
    #[must_use]
    pub fn at_most(mut self, iterations: u64, then: LoopLimit) -> Self {
        self.0.max_iterations = Some(iterations);
        self.0.on_limit = then;
        self
    }
}

/// USER_INTERACTION: a question for a person.
#[derive(Clone, Debug)]
pub struct Ask(UserInteractionConfig);

impl Ask {
    /// Asks a question, which is a template.
    pub fn question(question: impl Into<String>) -> Self {
        Self(UserInteractionConfig {
            question: question.into(),
            ..UserInteractionConfig::default()
        })
    }

    setters! {
        /// Sets the JSON Schema of the answer.
        schema: Map<String, Value>,
        /// Sets a template of the person to whom the question is assigned.
        assignee: String,
        /// Sets the thread variable to which the answer is assigned.
        assign_to: String,
    }

    /// Sets the possible answers.
    #[must_use]
    pub fn choices(mut self, choices: impl IntoIterator<Item = impl Into<Value>>) -> Self {
        self.0.choices = Some(choices.into_iter().map(Into::into).collect());
        self
    }
}

impl From<Ask> for UserInteractionConfig {
    fn from(ask: Ask) -> Self {
        ask.0
    }
}

/// CONTINUE_FROM_TRIGGER: the values returned to the main thread.
#[derive(Clone, Debug, Default)]
pub struct Back(ContinueFromTriggerConfig);

impl Back {
    /// Returns neither variables nor messages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns these variables to the main thread.
    #[must_use]
    pub fn variables(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.variable_callback = Some(VariableCallback {
            include_variables: Some(names.into_iter().map(Into::into).collect()),
            include_all: false,
        });
        self
    }

    /// Returns all variables to the main thread.
    #[must_use]
    pub fn all_variables(mut self) -> Self {
        self.0.variable_callback = Some(VariableCallback {
            include_variables: None,
            include_all: true,
        });
        self
    }

    /// Appends these messages to the main thread's history, or replaces it with them.
    #[must_use]
    pub fn messages(mut self, mode: HistoryCallbackMode, messages: Messages) -> Self {
        let options = messages.options();
        self.0.conversation_history_callback = Some(HistoryCallback {
            mode: Some(mode),
            last_n: options.last_n,
            last_n_by_role: options.last_n_by_role,
            by_role: options.by_role,
            range: options.range,
            range_by_role: options.range_by_role,
        });
        self
    }
}

impl From<Back> for ContinueFromTriggerConfig {
    fn from(back: Back) -> Self {
        back.0
    }
}
