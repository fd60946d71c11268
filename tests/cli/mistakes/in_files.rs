//! Mistakes in workflow files and profiles, found by `pirn validate`.

use serde_json::{Value, json};

use super::{assert_reported, flow, forked, with, with_node, with_profile};
use crate::command::pirn_with;

/// Name of the mistake, the file, the exit code, and three expected parts of the message: the code or sentence, the location, the
/// fix.
type Mistake = (&'static str, Value, i32, [&'static str; 3]);

fn mistakes() -> Vec<Mistake> {
    let ask = || with_node("LLM", &json!({"prompt": "hi"}));
    let trigger = |condition: Value, action: Value| {
        let mut flow = flow();
        flow["triggers"] = json!([{"id": "t", "condition": condition, "action": action}]);
        flow
    };
    vec![
        (
            "an edge to a misspelt node",
            with(flow(), "/edges/0/to", json!("wrok")),
            1,
            ["unknown node `wrok`", "/edges/0/to", "did you mean `work`?"],
        ),
        (
            "a misspelt type",
            with_node("LMM", &json!({})),
            1,
            ["unknown node type `LMM`", "/nodes/1/type", "did you mean `LLM`?"],
        ),
        (
            "a misspelt field",
            with_node("LLM", &json!({"promt": "hi"})),
            1,
            [
                "unknown field `promt`",
                "/nodes/1/config/promt",
                "did you mean `prompt`?",
            ],
        ),
        (
            "a field that is missing",
            with_node("VARIABLE", &json!({"expression": "1"})),
            1,
            ["MISSING_FIELD", "/nodes/1/config", "`variableName` is missing"],
        ),
        (
            "a text for a number",
            with(flow(), "/config", json!({"maxSteps": "many"})),
            1,
            ["`maxSteps`", "/config/maxSteps", "expected a whole number"],
        ),
        (
            "no END",
            json!({"id": "x", "nodes": [{"id": "start", "type": "START"}], "edges": []}),
            1,
            ["MISSING_END", "/nodes", "the workflow has no END"],
        ),
        (
            "no START",
            json!({"id": "x", "nodes": [{"id": "end", "type": "END"}], "edges": []}),
            1,
            ["MISSING_START", "/nodes", "START"],
        ),
        (
            "one id for two nodes",
            with(flow(), "/nodes/2/id", json!("work")),
            1,
            ["DUPLICATE_NODE_ID", "/nodes/2/id", "another node has the id `work`"],
        ),
        (
            "an expression that does not parse",
            with_node("VARIABLE", &json!({"variableName": "n", "expression": "1 +"})),
            1,
            ["INVALID_EXPRESSION", "/nodes/1/config/expression", "SyntaxError"],
        ),
        (
            "a script that does not parse",
            with_node("CODE", &json!({"code": "const a = 1;\nreturn a +;"})),
            1,
            ["unexpected token", "/nodes/1/config/code", "line 2"],
        ),
        (
            "a script that ends too early",
            with_node("CODE", &json!({"code": "if (input) {\n  return 1"})),
            1,
            ["the script ends too early", "/nodes/1/config/code", "line 2, column 11"],
        ),
        (
            "a misspelt variable",
            with(
                with_node("VARIABLE", &json!({"variableName": "n", "expression": "totl + 1"})),
                "/variables",
                json!([{"name": "total", "value": 1}]),
            ),
            1,
            ["UNKNOWN_NAME", "/nodes/1/config/expression", "did you mean `total`?"],
        ),
        (
            "a misspelt name in a condition",
            with(flow(), "/edges/1/condition", json!("wrk > 1")),
            1,
            ["unknown name `wrk`", "/edges/1/condition", "did you mean `work`?"],
        ),
        (
            "a misspelt node",
            with_node(
                "VARIABLE",
                &json!({"variableName": "n", "expression": "1 + nodes.strt.x"}),
            ),
            1,
            [
                "unknown node `strt`",
                "/nodes/1/config/expression",
                "did you mean `start`?",
            ],
        ),
        (
            "a misspelt field of a reply",
            with(
                with_node("LLM", &json!({"prompt": "Hi"})),
                "/edges/1/condition",
                json!("nodes['work'].contents == 'Hi'"),
            ),
            1,
            [
                "the output of the LLM node `work` has no field `contents`",
                "/edges/1/condition",
                "its fields are `content`, `finishReason`, `usage`, `error`",
            ],
        ),
        (
            "a name that nobody knows",
            with_node("CODE", &json!({"code": "return ticket.id"})),
            1,
            [
                "unknown name `ticket`",
                "/nodes/1/config/code",
                "write `input.` before it",
            ],
        ),
        (
            "a variable that is not declared",
            with_node("CODE", &json!({"code": "counter = 1;\nreturn counter"})),
            1,
            ["unknown name `counter`", "/nodes/1/config/code", "let counter = ..."],
        ),
        (
            "a request from a script",
            with_node(
                "CODE",
                &json!({"code": "const page = await fetch('http://x');\nreturn page"}),
            ),
            1,
            ["unknown name `fetch`", "/nodes/1/config/code", "call an HTTP tool"],
        ),
        (
            "a module in a script",
            with_node("CODE", &json!({"code": "const fs = require('fs');\nreturn fs"})),
            1,
            ["unknown name `require`", "/nodes/1/config/code", "register a function"],
        ),
        (
            "a timer in a script",
            with_node("CODE", &json!({"code": "await new Promise(r => setTimeout(r, 5))"})),
            1,
            ["unknown name `setTimeout`", "/nodes/1/config/code", "WAIT node"],
        ),
        (
            "a trigger's condition that does not parse",
            trigger(
                json!({"eventType": "NODE_FAILED", "expression": "event.nodeId =="}),
                json!({"type": "STOP_THREAD"}),
            ),
            1,
            [
                "the expression ends too early",
                "/triggers/0/condition/expression",
                "INVALID_EXPRESSION",
            ],
        ),
        (
            "a trigger's condition over what it does not see",
            trigger(
                json!({"eventType": "NODE_FAILED", "expression": "evnt.nodeId == 'work'"}),
                json!({"type": "STOP_THREAD"}),
            ),
            1,
            [
                "unknown name `evnt`",
                "/triggers/0/condition/expression",
                "did you mean `event`?",
            ],
        ),
        (
            "a block of a template that does not end",
            with_node("LLM", &json!({"prompt": "a\n{{#if x}}a"})),
            1,
            [
                "the block `{{#if x}}` is not closed: `{{/if}}` is missing",
                "/nodes/1/config/prompt",
                "line 2, column 1",
            ],
        ),
        (
            "a block of a template that ends as another",
            with_node("LLM", &json!({"prompt": "{{#if x}}a{{/each}}"})),
            1,
            [
                "`{{/each}}` ends the block `{{#if x}}`",
                "/nodes/1/config/prompt",
                "expected `{{/if}}`",
            ],
        ),
        (
            "a tag of a template that does not end",
            with_node("LLM", &json!({"prompt": "Hello {{input.name, how are you?"})),
            1,
            ["INVALID_TEMPLATE", "/nodes/1/config/prompt", "`}}` is missing"],
        ),
        (
            "a misspelt helper",
            with_node("LLM", &json!({"prompt": "{{#eahc list}}a{{/eahc}}"})),
            1,
            [
                "there is no helper `eahc`",
                "/nodes/1/config/prompt",
                "did you mean `each`?",
            ],
        ),
        (
            "a misspelt profile",
            with_profile(
                with_node("LLM", &json!({"prompt": "hi", "profileId": "asistant"})),
                json!({"id": "assistant", "provider": "echo"}),
            ),
            1,
            [
                "unknown profile `asistant`",
                "/config/profileId",
                "did you mean `assistant`?",
            ],
        ),
        (
            "a misspelt provider",
            with_profile(ask(), json!({"id": "a", "provider": "opnai", "model": "m"})),
            1,
            ["INVALID_PROFILE", "/profiles/0/provider", "openai"],
        ),
        (
            "a misspelt field of a scripted response",
            with_profile(
                ask(),
                json!({"id": "a", "provider": "scripted", "responses": [{"contnt": "x"}]}),
            ),
            1,
            ["unknown field `contnt`", "/profiles/0/responses/0", "content"],
        ),
        (
            "a key in a file",
            with_profile(
                ask(),
                json!({"id": "a", "provider": "openai", "model": "m", "apiKey": "k-12345"}),
            ),
            1,
            [
                "must not contain the key",
                "/profiles/0/apiKey",
                "name the variable in `apiKeyEnv`",
            ],
        ),
        (
            "a strategy of a join that is none",
            with(forked(), "/nodes/4/config/joinStrategy", json!("ALL")),
            1,
            [
                "INVALID_JOIN_STRATEGY",
                "/nodes/4/config/joinStrategy",
                "expected one of ALL_COMPLETED",
            ],
        ),
        (
            "a threshold that no fork reaches",
            with(
                with(
                    forked(),
                    "/nodes/4/config/joinStrategy",
                    json!("SUCCESS_COUNT_THRESHOLD"),
                ),
                "/nodes/4/config/threshold",
                json!(3),
            ),
            1,
            ["INVALID_THRESHOLD", "/nodes/4/config/threshold", "from 1 to 2"],
        ),
        (
            "a threshold that is missing",
            with(
                forked(),
                "/nodes/4/config/joinStrategy",
                json!("SUCCESS_COUNT_THRESHOLD"),
            ),
            1,
            [
                "INVALID_THRESHOLD",
                "/nodes/4/config",
                "needs a `threshold` from 1 to 2",
            ],
        ),
        (
            "paths in another order",
            with(forked(), "/nodes/4/config/forkPathIds", json!(["b", "a"])),
            1,
            [
                "FORK_JOIN_MISMATCH",
                "/nodes/4/config/forkPathIds",
                "in their order: [a, b]",
            ],
        ),
        (
            "a join of other paths",
            with(forked(), "/nodes/4/config/forkPathIds", json!(["c", "d"])),
            1,
            [
                "UNPAIRED_FORK",
                "/nodes/1",
                "no JOIN has the path ids of the FORK `fork`",
            ],
        ),
        (
            "a path that starts at a misspelt node",
            with(forked(), "/nodes/1/config/childNodeIds", json!(["left", "rihgt"])),
            1,
            [
                "unknown node `rihgt`",
                "/nodes/1/config/childNodeIds/1",
                "did you mean `right`?",
            ],
        ),
        (
            "a main path that is none",
            with(forked(), "/nodes/4/config/mainPathId", json!("c")),
            1,
            ["MAIN_PATH_ID_NOT_FOUND", "/nodes/4/config/mainPathId", "[a, b]"],
        ),
        (
            "a misspelt path of the outputs of a join",
            with(
                forked(),
                "/nodes/5/config",
                json!({"output": "nodes.join.outputs.aa + nodes.join.outputs.b"}),
            ),
            0,
            [
                "the `outputs` of the JOIN `join` have no path `aa`",
                "/nodes/5/config/output",
                "did you mean `a`? its paths are",
            ],
        ),
        (
            "a misspelt workflow that is called",
            json!([
                with_node("SUBGRAPH", &json!({"subgraphId": "othr"})),
                with(flow(), "/id", json!("other"))
            ]),
            1,
            [
                "unknown workflow `othr`",
                "/0/nodes/1/config/subgraphId",
                "did you mean `other`?",
            ],
        ),
        (
            "a workflow that is in another file",
            with_node("SUBGRAPH", &json!({"subgraphId": "translate"})),
            1,
            [
                "unknown workflow `translate`",
                "/nodes/1/config/subgraphId",
                "give the file that defines it too",
            ],
        ),
        (
            "a misspelt event",
            trigger(json!({"eventType": "NODE_FAILD"}), json!({"type": "STOP_THREAD"})),
            1,
            [
                "NODE_FAILD",
                "/triggers/0/condition/eventType",
                "did you mean `NODE_FAILED`?",
            ],
        ),
        (
            "a custom event without a name",
            trigger(json!({"eventType": "CUSTOM"}), json!({"type": "STOP_THREAD"})),
            1,
            ["MISSING_FIELD", "/triggers/0/condition", "needs `eventName`"],
        ),
        (
            "a misspelt action",
            trigger(json!({"eventType": "NODE_FAILED"}), json!({"type": "STOP_TREAD"})),
            1,
            ["STOP_TREAD", "/triggers/0/action/type", "did you mean `STOP_THREAD`?"],
        ),
        (
            "a triggered workflow that is none",
            json!([
                trigger(
                    json!({"eventType": "NODE_FAILED"}),
                    json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "other"}})
                ),
                with(flow(), "/id", json!("other"))
            ]),
            1,
            [
                "INVALID_TRIGGERED_WORKFLOW",
                "triggeredWorkflowId",
                "it has no START_FROM_TRIGGER",
            ],
        ),
        (
            "code and function at once",
            with_node("CODE", &json!({"code": "return 1", "function": "f"})),
            1,
            [
                "INVALID_VALUE",
                "/nodes/1/config",
                "either `code` or `function`, not both",
            ],
        ),
        (
            "a time that is none",
            with_node("WAIT", &json!({"seconds": -1})),
            1,
            ["INVALID_TIMEOUT", "/nodes/1/config/seconds", "expected seconds from 0"],
        ),
        (
            "a misspelt code to retry on",
            with(
                flow(),
                "/nodes/1/retry",
                json!({"maxAttempts": 2, "retryOn": ["SCRIPT_EROR"]}),
            ),
            1,
            [
                "unknown error code `SCRIPT_EROR`",
                "/nodes/1/retry/retryOn/0",
                "did you mean `SCRIPT_ERROR`?",
            ],
        ),
        (
            "a misspelt node to go to on an error",
            with(flow(), "/nodes/1/onError", json!({"targetNodeId": "edn"})),
            1,
            [
                "unknown node `edn`",
                "/nodes/1/onError/targetNodeId",
                "did you mean `end`?",
            ],
        ),
        (
            "a misspelt target of a route",
            with_node(
                "ROUTE",
                &json!({"routes": [{"condition": "true", "targetNodeId": "edn"}]}),
            ),
            1,
            [
                "unknown node `edn`",
                "/nodes/1/config/routes/0/targetNodeId",
                "did you mean `end`?",
            ],
        ),
        (
            "a misspelt operation",
            with_node("CONTEXT_PROCESSOR", &json!({"operation": "trunkate", "keepLast": 1})),
            1,
            [
                "unknown operation",
                "/nodes/1/config/operation",
                "did you mean `truncate`?",
            ],
        ),
        (
            "a misspelt role",
            with_node(
                "CONTEXT_PROCESSOR",
                &json!({"operation": "insert", "messages": [{"role": "usr", "content": "x"}]}),
            ),
            1,
            [
                "expected one of system",
                "/nodes/1/config/messages/0/role",
                "did you mean `user`?",
            ],
        ),
        (
            "a misspelt strategy of a compression",
            with_node(
                "CONTEXT_PROCESSOR",
                &json!({"operation": "compress", "strategy": "sumarize"}),
            ),
            0,
            [
                "nothing is compressed",
                "/nodes/1/config/strategy",
                "did you mean `summarize`?",
            ],
        ),
        (
            "a tokenizer that nobody knows",
            with(flow(), "/config", json!({"tokenizer": "o2000k"})),
            1,
            ["UNKNOWN_TOKENIZER", "/config/tokenizer", "unknown tokenizer `o2000k`"],
        ),
        (
            "a selection of nothing",
            with_node(
                "CONTEXT_PROCESSOR",
                &json!({"operation": "replace", "target": {}, "replacement": "x"}),
            ),
            1,
            ["INVALID_HISTORY_OPTIONS", "/nodes/1/config/target", "lastN"],
        ),
        (
            "a limit of tokens without anything that compresses",
            with(flow(), "/config", json!({"tokenLimit": 100})),
            0,
            ["TOKEN_LIMIT_WITHOUT_COMPRESSION", "/config/tokenLimit", "help: "],
        ),
        (
            "a share of the limit that is none",
            with(flow(), "/config", json!({"compression": {"speculativeAt": 60}})),
            1,
            [
                "INVALID_VALUE",
                "/config/compression/speculativeAt",
                "above 0 and below 1",
            ],
        ),
        (
            "a compression that begins early in a node",
            with_node(
                "CONTEXT_PROCESSOR",
                &json!({"operation": "compress", "speculativeAt": 0.5}),
            ),
            1,
            ["INVALID_VALUE", "/nodes/1/config/speculativeAt", "config.compression"],
        ),
        (
            "a compression without a strategy",
            with_node("CONTEXT_PROCESSOR", &json!({"operation": "compress"})),
            0,
            ["UNKNOWN_STRATEGY", "/nodes/1/config", "config.compression.strategy"],
        ),
        (
            "a clock in a system text",
            with_node("LLM", &json!({"prompt": "go", "system": "It is {{input.now}}."})),
            0,
            ["UNCACHEABLE_PROMPT", "/nodes/1/config/system", "pinned context"],
        ),
    ]
}

#[test]
fn every_mistake_in_a_file_is_reported_with_location_and_remedy() {
    let mistakes = mistakes();
    assert!(mistakes.len() >= 40, "{}", mistakes.len());
    for (name, file, code, parts) in &mistakes {
        let text = format!("{file:#}");
        let ended = pirn_with(text.as_bytes(), &["validate", "-"]);
        assert_reported(name, &ended, *code, parts);
        // The JSON output reports this too, with line and column.
        let report = pirn_with(text.as_bytes(), &["validate", "-", "--output", "json"]).json();
        let told = [&report["errors"], &report["warnings"]];
        let first = told
            .into_iter()
            .find_map(|list| list.get(0))
            .expect("something is told");
        assert!(first["line"].is_u64() && first["column"].is_u64(), "{name}: {first}");
    }
}

#[test]
fn invalid_json_is_reported_with_location_and_reason() {
    for (name, text, parts) in [
        (
            "a comma too many",
            r#"{"id": "w", "nodes": [],}"#,
            ["INVALID_JSON", "1:24", "a comma before `}`"],
        ),
        ("single quotes", "{'id': 'w'}", ["INVALID_JSON", "1:2", "double quotes"]),
        (
            "a comment",
            "{\"id\": \"w\" // x\n}",
            ["INVALID_JSON", "1:12", "JSON has no comments"],
        ),
        ("nothing", "", ["INVALID_JSON", "1:1", "expected a value"]),
    ] {
        assert_reported(name, &pirn_with(text.as_bytes(), &["validate", "-"]), 1, &parts);
    }
}
