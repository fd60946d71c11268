//! Advice for texts, fields and values that belong to another format, another object or another type.

/// Maximum length of a value that advice repeats.
const LONGEST: usize = 40;

/// Returns advice for a text that is not JSON, by the format that it probably has.
pub(super) fn of_text(name: &str, text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim);
    let Some(first) = lines.find(|line| !line.is_empty() && !line.starts_with('#')) else {
        return Some("the file has no content; `pirn init FOLDER` writes an example".to_owned());
    };
    let key = |sign: char| {
        let (key, _) = first.split_once(sign)?;
        let is_word = |part: &str| {
            !part.is_empty()
                && part
                    .chars()
                    .all(|letter| letter.is_alphanumeric() || "_-.".contains(letter))
        };
        Some(is_word(key.trim().trim_matches('"')))
    };
    let is_table = first.starts_with('[')
        && first.ends_with(']')
        && first
            .trim_matches(['[', ']'])
            .starts_with(|letter: char| letter.is_ascii_alphabetic());
    if is_table || key('=') == Some(true) {
        return Some(format!(
            "this is TOML. A config file is passed with --profiles {name}, together with a workflow file, which is JSON"
        ));
    }
    if first == "---" || first.starts_with("- ") || (key(':') == Some(true) && !first.starts_with('"')) {
        return Some("this is YAML, and a workflow file is JSON: convert it, for example with `yq -o json`".to_owned());
    }
    None
}

/// Returns advice for an unknown field if the suggestion of the most similar name would be wrong.
pub(super) fn of_field(word: &str, known: &[&str]) -> Option<String> {
    let has = |name: &str| known.contains(&name);
    let is_in = |limits: &Limits| {
        limits.fields.contains(&word) && has("limits") && limits.beside.iter().take(2).all(|field| has(field))
    };
    if LIMITS.iter().any(is_in) {
        return Some(format!("write it in `limits`: {{\"limits\": {{\"{word}\": ...}}}}"));
    }
    let is_beside = |limits: &Limits| limits.fields == known && limits.beside.contains(&word);
    if LIMITS.iter().any(is_beside) {
        return Some(format!(
            "`{word}` belongs beside `limits`, in the object that contains it"
        ));
    }
    let text = match word {
        "timeoutMs" if has("timeout") && !has("timeoutMs") => {
            r#"the limit here is `timeout`, in seconds: 30000 ms are `"timeout": 30`"#
        }
        "timeout" if has("timeoutMs") && !has("timeout") => {
            r#"the limit here is `timeoutMs`, in milliseconds: 30 s are `"timeoutMs": 30000`"#
        }
        "profiles" if has("nodes") && has("edges") => {
            r#"profiles are beside the workflow: {"workflows": [{...}], "profiles": [...]}, or in pirn.toml"#
        }
        "source" if has("sourceNodeId") => "did you mean `from`?",
        "target" if has("sourceNodeId") => "did you mean `to`?",
        _ => return None,
    };
    Some(text.to_owned())
}

/// The fields of an object `limits`, and those of the object that contains it.
struct Limits {
    fields: &'static [&'static str],
    beside: &'static [&'static str],
}

/// Objects `limits` of a workflow's `config`, of SCRIPT, and of `dynamic` of LLM.
const LIMITS: [Limits; 3] = [
    Limits {
        fields: &["runBytes"],
        beside: &[
            "maxSteps",
            "maxConcurrentBranches",
            "maxDepth",
            "maxTriggeredEvents",
            "timeoutMs",
            "tokenLimit",
            "tokenizer",
            "compression",
            "pinned",
            "fromEnd",
            "artifactTokens",
            "maxArtifactBytes",
            "skills",
            "recall",
            "budget",
            "maxAgents",
            "maxNested",
        ],
    },
    Limits {
        fields: &["agents", "concurrency", "calls", "resultBytes", "timeMs"],
        beside: &[
            "code",
            "file",
            "input",
            "profileId",
            "models",
            "tools",
            "profiles",
            "workflows",
        ],
    },
    Limits {
        fields: &["agents", "depth", "concurrency", "tokens", "cost", "timeMs"],
        beside: &["allow", "consent", "profiles", "tools"],
    },
];

/// Fields, and the names that they have in other workflow systems.
const SYNONYMS: [(&str, &[&str]); 20] = [
    ("arguments", &["args", "params", "parameters", "input"]),
    ("breakCondition", &["condition", "until"]),
    ("choices", &["options"]),
    ("code", &["script", "source", "body"]),
    ("concurrency", &["parallelism"]),
    ("condition", &["if", "when"]),
    ("expression", &["value"]),
    ("initialDelayMs", &["delay"]),
    ("input", &["args", "arguments", "inputs", "params", "parameters"]),
    ("items", &["collection", "each", "list", "over"]),
    ("loopId", &["id", "name"]),
    ("maxIterations", &["count", "iterations", "limit", "times"]),
    ("output", &["result", "return", "value"]),
    ("prompt", &["message", "messages", "text", "user"]),
    ("question", &["message", "prompt", "text", "title"]),
    ("routes", &["branches", "cases", "conditions"]),
    ("subgraphId", &["workflow", "workflowId"]),
    ("system", &["instructions", "systemMessage", "systemPrompt"]),
    ("targetNodeId", &["goto", "next", "target", "then"]),
    ("variableName", &["name"]),
];

/// Returns the field of the list `known` for which other workflow systems use the name `word`.
pub(super) fn synonym(word: &str, known: &[&'static str]) -> Option<&'static str> {
    let named = |field: &str| {
        SYNONYMS
            .iter()
            .any(|(own, words)| *own == field && words.contains(&word))
    };
    known.iter().copied().find(|field| named(field))
}

/// Returns the word of the list `known` for which other languages use `word`.
pub(super) fn of_word(word: &str, known: &[&'static str]) -> Option<&'static str> {
    let meant = match word.to_ascii_lowercase().as_str() {
        "int" | "integer" | "float" | "double" => "number",
        "bool" => "boolean",
        "str" | "text" => "string",
        "list" => "array",
        "dict" | "json" | "map" => "object",
        "all" => "ALL_COMPLETED",
        "any" | "first" => "ANY_COMPLETED",
        _ => return None,
    };
    known.iter().copied().find(|word| *word == meant)
}

/// Returns advice for an unknown field in the `config` of a node, if it belongs elsewhere or has another name there.
pub(super) fn of_config_field(word: &str, known: &[&'static str]) -> Option<String> {
    let has = |name: &str| known.contains(&name);
    let text = match word {
        "retry" | "retries" | "maxRetries" | "maxAttempts" => {
            r#"retries belong to the node, beside `config`: "retry": {"maxAttempts": 3}"#
        }
        "timeout" | "timeoutMs" | "timeoutSeconds" if !has("timeout") && !has("timeoutMs") => {
            r#"the time limit belongs to the node, beside `config`: 5 s are "timeoutMs": 5000"#
        }
        "onError" | "inDoubt" | "name" | "description" if synonym(word, known).is_none() => {
            return Some(format!("`{word}` belongs to the node, beside `config`"));
        }
        "temperature" | "maxTokens" | "max_tokens" | "topP" | "top_p" | "topK" | "top_k" | "seed" | "stop"
            if has("prompt") && has("parameters") =>
        {
            return Some(format!("write it in `parameters`: {{\"{word}\": ...}}"));
        }
        "model" | "provider" if has("profileId") => {
            "a node names a profile by `profileId`, and the profile has the model; `pirn init FOLDER` writes an example"
        }
        "condition" | "while" | "until" if has("dataSource") => {
            "a loop ends when the `breakCondition` of its LOOP_END is true, or after `maxIterations`"
        }
        "ms" | "milliseconds" | "delayMs" | "durationMs" if has("seconds") => {
            r#"the duration is `seconds`: 500 ms are "seconds": 0.5"#
        }
        "duration" | "delay" | "minutes" if has("seconds") => {
            r#"the duration is `seconds`: 5 minutes are "seconds": 300"#
        }
        "paths" | "branches" if has("forkPathIds") => {
            "`forkPathIds` lists the ids of the paths, and `childNodeIds` their first nodes in the same order"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// Returns the node type that corresponds to a type of other workflow systems.
pub(super) fn of_type(word: &str) -> Option<&'static str> {
    Some(match word.to_lowercase().as_str() {
        "agent" | "ai" | "chat" | "completion" | "model" | "prompt" => "LLM",
        "assign" | "assignment" | "set" | "set_variable" => "VARIABLE",
        "begin" | "entry" => "START",
        "branch" | "choice" | "condition" | "conditional" | "decision" | "if" | "switch" => "ROUTE",
        "approval" | "human" | "human_in_the_loop" | "input" | "interrupt" | "question" => "USER_INTERACTION",
        "api" | "http" | "mcp" | "request" | "webhook" => "TOOL",
        "call" | "sub_workflow" | "subflow" | "subworkflow" | "workflow" => "SUBGRAPH",
        "delay" | "pause" | "sleep" | "timer" => "WAIT",
        "exit" | "finish" | "return" | "stop" => "END",
        "expression" | "function" | "javascript" | "js" | "python" | "transform" => "CODE",
        "for" | "loop" | "repeat" | "while" => "LOOP_START",
        "for_each" | "foreach" | "iterate" => "MAP",
        "aggregate" | "gather" | "merge" => "JOIN",
        "parallel" | "split" => "FORK",
        _ => return None,
    })
}

/// Returns advice for an unknown field of a node: most are fields of the node's type.
pub(super) fn of_node_field(known: &[&str]) -> Option<&'static str> {
    let is_node = ["config", "onError", "inDoubt"].iter().all(|name| known.contains(name));
    is_node
        .then_some(r#"a field of the node's type belongs into `config`: {"id": ..., "type": ..., "config": {...}}; "#)
}

/// Returns advice for a value with quotes that its type does not have, or without quotes that it needs.
pub(super) fn of_value(message: &str) -> Option<String> {
    let (expected, found) = message.split_once(", found ")?;
    if let Some(text) = found.strip_prefix("string \"").and_then(|rest| rest.strip_suffix('"')) {
        let is_plain = matches!(
            serde_json::from_str(text),
            Ok(serde_json::Value::Number(_) | serde_json::Value::Bool(_))
        );
        return (is_plain && !expected.ends_with("text")).then(|| format!("write it without quotes: {text}"));
    }
    let (_, value) = found.split_once('`')?;
    let value = value.strip_suffix('`').filter(|value| value.len() <= LONGEST)?;
    expected
        .ends_with("expected text")
        .then(|| format!("put it into double quotes: \"{value}\""))
}

/// Returns the form of the value of a field, for a value of another type.
pub(super) fn of_form(key: &str, message: &str) -> Option<&'static str> {
    let (expected, found) = message.split_once(", found ")?;
    let is_structure = matches!(found, "an object" | "a list");
    match key {
        "output" | "expression" if expected == "expected text" && is_structure => {
            Some(r#"write an expression in quotes: "{ total: input.a + 1 }""#)
        }
        "retry" if expected == "expected an object" => Some(r#"write `"retry": {"maxAttempts": 3}`"#),
        "onError" if expected == "expected an object" => {
            Some(r#"write `"onError": {"targetNodeId": "ID"}`, with the node that continues after a failure"#)
        }
        _ if key.ends_with("Ms") && found.starts_with("string ") => {
            Some("write milliseconds without quotes: 5 s are 5000")
        }
        "seconds" | "timeout" if found.starts_with("string ") => {
            Some("write seconds without quotes: 5 minutes are 300")
        }
        _ => None,
    }
}

/// Returns the form of a list of a workflow.
pub(super) fn of_list(key: &str) -> Option<String> {
    let form = match key {
        "nodes" => r#"[{"id": "start", "type": "START"}, {"id": "end", "type": "END"}]"#,
        "edges" => r#"[{"from": "start", "to": "end"}]"#,
        "variables" => r#"[{"name": "total", "value": 0}]"#,
        "triggers" => r#"[{"id": "t", "condition": {"eventType": "NODE_FAILED"}, "action": {"type": "STOP_THREAD"}}]"#,
        _ => return None,
    };
    Some(format!("`\"{key}\": {form}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_another_format_is_recognised() {
        for (text, format) in [
            ("", "no content"),
            ("\n# only a comment\n", "no content"),
            ("[[profiles]]\nid = 1", "TOML"),
            ("# x\nid = \"w\"", "TOML"),
            ("id: w\nnodes:", "YAML"),
            ("---\nid: w", "YAML"),
            ("- id: w", "YAML"),
        ] {
            let advice = of_text("w.json", text).expect("advice");
            assert!(advice.contains(format), "{text}: {advice}");
        }
        for text in ["{\"id\": 1,}", "[1,", "{'id': 1}", "\"a\": 1", "[{\"id\" 1}]"] {
            assert_eq!(of_text("w.json", text), None, "{text}");
        }
    }

    #[test]
    fn quotes_are_advised_only_if_they_mend_the_value() {
        for (message, advice) in [
            (
                "expected a number, found string \"30\"",
                Some("write it without quotes: 30"),
            ),
            (
                "expected a boolean, found string \"true\"",
                Some("write it without quotes: true"),
            ),
            ("expected a number, found string \"many\"", None),
            (
                "expected text, found integer `7`",
                Some("put it into double quotes: \"7\""),
            ),
            ("expected a list, found integer `7`", None),
            ("expected text, found a list", None),
        ] {
            assert_eq!(of_value(message).as_deref(), advice, "{message}");
        }
    }
}
