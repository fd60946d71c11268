//! The configs of nodes. What excludes each other has a constructor each.

use std::time::Duration;

use pirn_core::definition::{
    AgentConfig, CodeConfig, ContinueFromTriggerConfig, ConversationMode, HistoryCallback, HistoryCallbackMode,
    LlmConfig, LoopDataSource, LoopLimit, LoopStartConfig, NodeConfig, SubgraphConfig, ToolConfig, ToolRoundLimit,
    UserInteractionConfig, VariableCallback, VariableConfig, VariableScope, VariableType, WaitConfig,
};
use serde_json::{Map, Value};

use super::Messages;

/// The config of a node that does one thing; [`WorkflowBuilder::node`](super::WorkflowBuilder::node) takes what becomes one.
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
    /// With a template that joins the conversation as a user message.
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
        /// A profile's id, or a template that gives one (the default profile).
        profile_id: String,
        /// Texts, images and files after the prompt.
        parts: Value,
        /// Template; the system message where the conversation has none.
        system: String,
        /// Laid over the profile's parameters.
        parameters: Map<String, Value>,
        /// Rounds of tool calls (10).
        max_tool_rounds: u32,
        /// Policy for tool calls after the last allowed round (`fail`).
        on_limit: ToolRoundLimit,
        /// `{ type: "json_schema", schema, name? }`.
        response_format: Value,
    }

    /// Names of the tools that the model may call.
    #[must_use]
    pub fn tools(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.tools = names.into_iter().map(Into::into).collect();
        self
    }
}

/// CODE: runs JavaScript or a registered function.
#[derive(Clone, Debug)]
pub struct Code(CodeConfig);

impl Code {
    /// The body of an async function in JavaScript.
    pub fn js(code: impl Into<String>) -> Self {
        Self(CodeConfig {
            code: Some(code.into()),
            ..CodeConfig::default()
        })
    }

    /// A function that the engine was given by this name.
    pub fn function(name: impl Into<String>) -> Self {
        Self(CodeConfig {
            function: Some(name.into()),
            ..CodeConfig::default()
        })
    }

    setters! {
        /// Its input: text is an expression, anything else is taken as it is.
        input: Value,
    }
}

/// VARIABLE: evaluates an expression and assigns its value.
#[derive(Clone, Debug)]
pub struct Assign(VariableConfig);

impl Assign {
    /// To a variable, in the scope that the workflow declares for it; one that is not declared is the thread's.
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
        /// Type that the value is checked against; a string that can be parsed as this type is converted.
        variable_type: VariableType,
    }

    /// To a variable of the run.
    #[must_use]
    pub fn global(mut self) -> Self {
        self.0.scope = Some(VariableScope::Global);
        self
    }

    /// For the last time: later assignments are `READONLY_VARIABLE`.
    #[must_use]
    pub fn readonly(mut self) -> Self {
        self.0.readonly = true;
        self
    }
}

/// SUBGRAPH: runs another workflow and waits.
#[derive(Clone, Debug)]
pub struct Subgraph(SubgraphConfig);

impl Subgraph {
    /// The workflow of this id.
    pub fn of(workflow_id: impl Into<String>) -> Self {
        Self(SubgraphConfig {
            subgraph_id: workflow_id.into(),
            input: None,
            output: None,
            conversation: ConversationMode::default(),
            agent: None,
        })
    }

    setters! {
        /// Its input: text is an expression, anything else is taken as it is (the last output).
        input: Value,
        /// Expression over its output (that output).
        output: String,
        /// Makes it a sub-agent.
        agent: AgentConfig,
    }

    /// Its conversation (a snapshot of the caller's).
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
    /// The tool of this name.
    pub fn named(tool: impl Into<String>) -> Self {
        Self(ToolConfig {
            tool: tool.into(),
            ..ToolConfig::default()
        })
    }

    setters! {
        /// Its arguments: text is an expression, anything else is taken as it is (`{}`).
        arguments: Value,
        /// The thread variable that takes the result.
        assign_to: String,
    }
}

/// WAIT: a timer, or an event.
#[derive(Clone, Debug)]
pub struct Wait(WaitConfig);

impl Wait {
    /// So long.
    pub fn time(time: Duration) -> Self {
        Self(WaitConfig {
            seconds: Some(time.as_secs_f64()),
            ..WaitConfig::default()
        })
    }

    /// Until an event: the name of a CUSTOM one, or an event type.
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
            timeout: Some(limit.as_secs_f64()),
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

    /// Over a list as [`Loop::over`], each item in a thread variable.
    pub fn over_as(loop_id: impl Into<String>, iterable: impl Into<Value>, variable_name: impl Into<String>) -> Self {
        let mut repeated = Self::over(loop_id, iterable);
        if let Some(source) = &mut repeated.0.data_source {
            source.variable_name = Some(variable_name.into());
        }
        repeated
    }

    /// From 0 on, until something ends it.
    pub fn counting(loop_id: impl Into<String>) -> Self {
        Self(LoopStartConfig {
            loop_id: loop_id.into(),
            ..LoopStartConfig::default()
        })
    }

    /// Iterations at most; what happens with items left.
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
    /// A question, which is a template.
    pub fn question(question: impl Into<String>) -> Self {
        Self(UserInteractionConfig {
            question: question.into(),
            ..UserInteractionConfig::default()
        })
    }

    setters! {
        /// JSON Schema of the answer.
        schema: Map<String, Value>,
        /// Template: whom it is for.
        assignee: String,
        /// The thread variable that takes the answer.
        assign_to: String,
    }

    /// The answers to choose from.
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

/// CONTINUE_FROM_TRIGGER: what the main thread gets.
#[derive(Clone, Debug, Default)]
pub struct Back(ContinueFromTriggerConfig);

impl Back {
    /// Neither variables nor messages.
    pub fn new() -> Self {
        Self::default()
    }

    /// These variables.
    #[must_use]
    pub fn variables(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.variable_callback = Some(VariableCallback {
            include_variables: Some(names.into_iter().map(Into::into).collect()),
            include_all: false,
        });
        self
    }

    /// All variables.
    #[must_use]
    pub fn all_variables(mut self) -> Self {
        self.0.variable_callback = Some(VariableCallback {
            include_variables: None,
            include_all: true,
        });
        self
    }

    /// These messages, at the end of the main thread's history or in its place.
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
