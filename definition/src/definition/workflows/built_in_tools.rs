//! Built-in tools: a run answers them from its own state, without an external call, and does not journal the answer.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::definition::WorkflowConfig;

/// A built-in tool. Its name is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BuiltInTool {
    /// `read_artifact {id, range? | grep?, from?}`: returns a part of a large result.
    ReadArtifact,
    /// `recall {query, from?}`: searches archived messages for words of the query.
    Recall,
    /// `run_workflow {graph | script, input?}`: runs a workflow that the model writes, in a child thread.
    RunWorkflow,
    /// `run_code {code}`: runs a script that calls the other tools of the node.
    RunCode,
    /// `tool_search {query}`: reveals deferred tools.
    ToolSearch,
    /// `read_skill {name, file?}`: returns a file of a skill.
    ReadSkill,
}

impl BuiltInTool {
    /// All built-in tools.
    pub const ALL: [Self; 6] = [
        Self::ReadArtifact,
        Self::Recall,
        Self::RunWorkflow,
        Self::RunCode,
        Self::ToolSearch,
        Self::ReadSkill,
    ];

    /// Returns the name in model requests and in `tools`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadArtifact => "read_artifact",
            Self::Recall => "recall",
            Self::RunWorkflow => "run_workflow",
            Self::RunCode => "run_code",
            Self::ToolSearch => "tool_search",
            Self::ReadSkill => "read_skill",
        }
    }

    /// Returns the tool with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns the setting that enables the tool.
    pub fn setting(self) -> &'static str {
        match self {
            Self::ReadArtifact => "set `config.artifactTokens`",
            Self::Recall => "set `config.recall`",
            Self::ToolSearch => "set `deferred` of an entry of `tools`, which adds it",
            Self::RunWorkflow | Self::RunCode => "name it in `tools`",
            Self::ReadSkill => "set `skills`, which adds it",
        }
    }

    /// Returns true if the conversation answers the tool.
    pub fn reads_conversation(self) -> bool {
        match self {
            Self::ReadArtifact | Self::Recall => true,
            Self::RunWorkflow | Self::RunCode | Self::ToolSearch | Self::ReadSkill => false,
        }
    }

    /// True if the workflow enables the tool for all nodes with tools.
    pub fn is_offered(self, config: &WorkflowConfig) -> bool {
        match self {
            Self::ReadArtifact => config.artifact_tokens.is_some(),
            Self::Recall => config.recall == Some(true),
            // Enabled by each node: in its `tools`, by its deferred tools, or by its skills.
            Self::RunWorkflow | Self::RunCode | Self::ToolSearch | Self::ReadSkill => false,
        }
    }

    /// Returns the description for the model.
    pub fn description(self) -> &'static str {
        match self {
            Self::ReadArtifact => {
                "Reads part of a tool result that is shown only as a preview. `id` is the artifact's id in the preview. `range` \
                 returns the characters from `start` up to `end`; `grep` returns the lines that contain a string (not a \
                 pattern; letter case is ignored). Without either, the text is read from its start. A long answer is split \
                 into pages; each page states the arguments of the next one."
            }
            Self::Recall => {
                "Searches earlier messages of this conversation that were removed by compression, and returns those that contain \
                 the most words of `query`. A long answer is split into pages; each page states the `from` of the next one."
            }
            Self::RunWorkflow => {
                "Runs a workflow of agents that you write, and returns its output. Submit either a graph or a script. `graph` is {\"nodes\": [{\"id\", \"type\", \
                 \"config\"}], \"edges\": [{\"from\", \"to\"}]}. Exactly one node has the type START. Node types: START; LLM \
                 {prompt, system?, tools?}; CODE {code: body of a JavaScript function}; FORK and JOIN {joinStrategy} around \
                 concurrent paths; END {output?: expression}. Templates such as {{input.topic}} in a prompt read `input`; \
                 {{output.content}} is the reply of the LLM node before. Example: {\"nodes\": [{\"id\": \"s\", \"type\": \
                 \"START\"}, {\"id\": \"a\", \"type\": \"LLM\", \"config\": {\"prompt\": \"Summarize {{input.topic}}\"}}, \
                 {\"id\": \"e\", \"type\": \"END\", \"config\": {\"output\": \"output.content\"}}], \"edges\": [{\"from\": \"s\", \
                 \"to\": \"a\"}, {\"from\": \"a\", \"to\": \"e\"}]}. If the graph has faults, they are returned with JSON \
                 pointers into `graph`: correct them and call again. A person may have to approve the plan."
            }
            Self::RunCode => {
                "Runs JavaScript that calls your other tools, and returns its return value. Use it for many calls, or if only a part of \
                 their results matters: the results stay in the script. `code` is the body of an async function. It has \
                 `await tools.NAME(args)` for the tools listed below, parallel([fn...]) (null for a failed function), \
                 pipeline(items, ...stages), any([fn...]), sleep(ms) and console.log(...), whose lines are returned too. A failed or refused \
                 call throws an error. There are no files, no network and no other functions. Example: \
                 `const pages = await parallel(ids.map(id => () => tools.read({ id }))); \
                 return pages.filter(page => page && page.title)`. Return only what you need."
            }
            Self::ToolSearch => {
                "Finds more tools. The tools below exist, but cannot be called before a search has revealed them: search for a name \
                 of the list, or for words that describe what you need. A search reveals up to five tools, which can be called from \
                 the next reply on."
            }
            Self::ReadSkill => {
                "Reads a skill: instructions for a kind of task, written by people. Read the skill that fits a task before you start \
                 it, and follow its instructions. Without `file`, the instructions are returned; with `file`, another file of the \
                 skill, which they name. The skills are:"
            }
        }
    }

    /// Returns the JSON Schema of the arguments.
    pub fn parameters(self) -> Value {
        let from = json!({"type": "integer", "minimum": 0, "description": "Number of matches to skip, as stated by the previous page"});
        match self {
            Self::ReadArtifact => json!({
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "range": {
                        "type": "object",
                        "properties": {
                            "start": {"type": "integer", "minimum": 0},
                            "end": {"type": "integer", "minimum": 0},
                        },
                        "required": ["start"],
                        "additionalProperties": false,
                    },
                    "grep": {"type": "string", "minLength": 1},
                    "from": from,
                },
                "required": ["id"],
                "additionalProperties": false,
            }),
            Self::Recall => json!({
                "type": "object",
                "properties": {"query": {"type": "string", "minLength": 1}, "from": from},
                "required": ["query"],
                "additionalProperties": false,
            }),
            Self::RunWorkflow => json!({
                "type": "object",
                "properties": {
                    "graph": {"type": "object", "description": "The workflow as a graph"},
                    "script": {"type": "string", "description": "The workflow as a script"},
                    "input": {"description": "Input of the workflow"},
                },
                "additionalProperties": false,
            }),
            Self::RunCode => json!({
                "type": "object",
                "properties": {"code": {"type": "string", "description": "Body of a JavaScript async function"}},
                "required": ["code"],
                "additionalProperties": false,
            }),
            Self::ToolSearch => json!({
                "type": "object",
                "properties": {"query": {"type": "string", "minLength": 1}},
                "required": ["query"],
                "additionalProperties": false,
            }),
            Self::ReadSkill => json!({
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "Name of the skill"},
                    "file": {"type": "string", "description": "Path of a file within the skill"},
                },
                "required": ["name"],
                "additionalProperties": false,
            }),
        }
    }
}
