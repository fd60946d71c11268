//! Names of spans and attributes: those of OpenTelemetry's conventions for generative AI, and Pirn's.

/// The version of the conventions from which these names are taken.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";

/// Name of the instrumentation scope.
pub const SCOPE: &str = "pirn";

/// The operation of a span.
pub const OPERATION: &str = "gen_ai.operation.name";
/// A run, a called or a triggered sub-workflow.
pub const INVOKE_WORKFLOW: &str = "invoke_workflow";
/// A request to a model.
pub const CHAT: &str = "chat";
/// A tool call.
pub const EXECUTE_TOOL: &str = "execute_tool";

/// The provider of the model, by the conventions' name if they have one.
pub const PROVIDER_NAME: &str = "gen_ai.provider.name";
/// The model's name in the request.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";

/// The workflow's id.
pub const WORKFLOW_NAME: &str = "gen_ai.workflow.name";
/// The tool's name.
pub const TOOL_NAME: &str = "gen_ai.tool.name";
/// The model's id for a call.
pub const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
/// The arguments of the tool call; only if contents are exported.
pub const TOOL_CALL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
/// The tool's result; only if contents are exported.
pub const TOOL_CALL_RESULT: &str = "gen_ai.tool.call.result";
/// The model's reply; only if contents are exported.
pub const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
/// Tokens of the request, as the provider reported them, cached ones included.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Request tokens that were read from the provider's cache.
pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
/// Request tokens that were written to the provider's cache.
pub const CACHE_CREATION_TOKENS: &str = "gen_ai.usage.cache_creation.input_tokens";
/// Tokens of the reply, reasoning included.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// A stable error code.
pub const ERROR_TYPE: &str = "error.type";

/// The run.
pub const RUN_ID: &str = "pirn.run.id";
/// The thread.
pub const THREAD_ID: &str = "pirn.thread.id";
/// The node.
pub const NODE_ID: &str = "pirn.node.id";
/// The path of a fork.
pub const PATH_ID: &str = "pirn.path.id";
/// A JOIN's strategy.
pub const JOIN_STRATEGY: &str = "pirn.join.strategy";
/// The id of the profile that a request names.
pub const PROFILE_ID: &str = "pirn.profile.id";
/// Tokens of a request as Pirn counted them before it was sent.
pub const REQUEST_TOKENS: &str = "pirn.request.tokens";
