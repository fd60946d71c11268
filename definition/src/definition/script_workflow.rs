//! Workflows that are built from scripts: one for a script file, and one for each agent that a script starts.

use serde_json::{Map, Value, json};

use crate::script::{MetaFault, read_meta};

/// Options of an agent that a script starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentOptions {
    /// Profile of the model; absent: the default profile.
    pub profile_id: Option<String>,
    /// True if the request has a system message.
    pub has_system: bool,
    /// Tools that the agent may call.
    pub tools: Vec<String>,
    /// JSON Schema of the reply.
    pub schema: Option<Value>,
    /// Time limit in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Maximum number of rounds of tool calls.
    pub max_tool_rounds: Option<u32>,
}

/// Returns the source of an agent's workflow: START, LLM, END. Its input is `{prompt, system?}`, its output the text of the reply.
///
/// Equal options give equal sources, so that a thousand agents share one graph: the prompt is in the input.
pub fn agent_workflow(options: &AgentOptions) -> String {
    let mut config = Map::from_iter([("prompt".to_owned(), json!("{{input.prompt}}"))]);
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            config.insert(key.to_owned(), value);
        }
    };
    set("profileId", options.profile_id.as_ref().map(|id| json!(id)));
    set("system", options.has_system.then(|| json!("{{input.system}}")));
    set("tools", (!options.tools.is_empty()).then(|| json!(options.tools)));
    set("maxToolRounds", options.max_tool_rounds.map(|rounds| json!(rounds)));
    let format = options.schema.as_ref();
    set(
        "responseFormat",
        format.map(|schema| json!({ "type": "json_schema", "name": "result", "schema": schema })),
    );
    let mut agent = json!({ "id": "agent", "type": "LLM", "config": config });
    if let Some(timeout_ms) = options.timeout_ms {
        agent["timeoutMs"] = json!(timeout_ms);
    }
    let workflow = json!({
        "id": "agent",
        "nodes": [
            { "id": "start", "type": "START" },
            agent,
            { "id": "end", "type": "END", "config": { "output": "output.content" } },
        ],
        "edges": [{ "from": "start", "to": "agent" }, { "from": "agent", "to": "end" }],
    });
    workflow.to_string()
}

/// Returns the workflow START, SCRIPT, END of a script file.
///
/// `meta` may contain `name`, `description`, `inputSchema`, `profileId`, `models`, `tools`, `profiles`, `workflows`, `limits` and
/// `budget`, with the meaning of these fields in a workflow file. Other members are ignored. `id` is the id of a workflow whose
/// `meta` has no name.
///
/// # Errors
/// Fails if `meta` is not a literal.
pub fn workflow_of_script(id: &str, source: &str) -> Result<Value, MetaFault> {
    let mut meta = read_meta(source)?.unwrap_or_default();
    let name = meta.get("name").and_then(Value::as_str).map(str::to_owned);
    let mut config = Map::from_iter([("code".to_owned(), json!(source))]);
    for key in ["profileId", "models", "tools", "profiles", "workflows", "limits"] {
        if let Some(value) = meta.remove(key) {
            config.insert(key.to_owned(), value);
        }
    }
    let mut workflow = script_workflow(name.as_deref().unwrap_or(id), Value::Object(config));
    for key in ["description", "inputSchema"] {
        if let Some(value) = meta.remove(key) {
            workflow[key] = value;
        }
    }
    if let Some(budget) = meta.remove("budget") {
        workflow["config"] = json!({ "budget": budget });
    }
    Ok(workflow)
}

/// Returns the workflow START, SCRIPT, END with this config of the script.
#[allow(clippy::needless_pass_by_value, reason = "the config becomes part of the workflow")]
pub(crate) fn script_workflow(id: &str, config: Value) -> Value {
    json!({
        "id": id,
        "nodes": [
            { "id": "start", "type": "START" },
            { "id": "script", "type": "SCRIPT", "config": config },
            { "id": "end", "type": "END" },
        ],
        "edges": [{ "from": "start", "to": "script" }, { "from": "script", "to": "end" }],
    })
}
