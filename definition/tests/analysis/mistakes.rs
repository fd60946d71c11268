//! Valid definitions that cannot work as meant: assignments in conditions, scripts without `return`, hidden, misspelt and dropped
//! variables.

use pirn_definition::analysis::Analysis;
use pirn_definition::definition::SourceFile;
use serde_json::{Value, json};

use super::fixtures::{analyse_files, analyse_json};

/// Returns the code, the pointer and the help of each warning.
fn told(analysis: &Analysis) -> Vec<(&str, &str, &str)> {
    let warnings = analysis.warnings.iter();
    warnings
        .map(|fault| {
            (
                fault.code.as_str(),
                &*fault.pointer,
                fault.help.as_deref().unwrap_or_default(),
            )
        })
        .collect()
}

/// A workflow with these nodes in a line, and a trigger.
fn line(nodes: &[Value], trigger: Option<Value>) -> Value {
    let mut all = vec![json!({"id": "s", "type": "START"})];
    all.extend_from_slice(nodes);
    all.push(json!({"id": "e", "type": "END"}));
    let edges: Vec<Value> = all
        .windows(2)
        .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}))
        .collect();
    json!({"id": "w", "nodes": all, "edges": edges, "triggers": trigger.into_iter().collect::<Vec<_>>(),
        "variables": [{"name": "failures", "value": 0, "scope": "global"}, {"name": "mine", "value": 0}]})
}

fn on_failure(condition: &str, action: &Value) -> Value {
    json!({"id": "t", "condition": {"eventType": "NODE_FAILED", "expression": condition}, "action": action})
}

#[test]
fn an_assignment_in_a_condition_is_a_warning() {
    let stop = json!({"type": "STOP_THREAD"});
    let route = |condition: &str| {
        let routes = json!([{"condition": condition, "targetNodeId": "a"}]);
        json!({"id": "w", "nodes": [{"id": "s", "type": "START"}, {"id": "a", "type": "END"}, {"id": "b", "type": "END"},
            {"id": "r", "type": "ROUTE", "config": {"routes": routes, "defaultTargetNodeId": "b"}}],
            "edges": [{"from": "s", "to": "r", "condition": condition}]})
    };
    let help = "use `==` to compare";
    let code = "INVALID_EXPRESSION";
    let (_, found) = analyse_json(&route("input.status = 'ok'"));
    let expected = [
        (code, "/edges/0/condition", help),
        (code, "/nodes/3/config/routes/0/condition", help),
    ];
    assert_eq!(told(&found), expected);
    let (_, found) = analyse_json(&line(&[], Some(on_failure("event.nodeId = 'x'", &stop))));
    assert_eq!(told(&found), [(code, "/triggers/0/condition/expression", help)]);

    let (_, found) = analyse_json(&route("input.status == 'ok' && input.a >= 1"));
    assert_eq!(told(&found), []);
    let (_, found) = analyse_json(&line(&[], Some(on_failure("event.nodeId == 'a=b'", &stop))));
    assert_eq!(told(&found), []);
}

#[test]
fn a_script_without_return_whose_output_is_read_is_a_warning() {
    let code = |text: &str| json!({"id": "sum", "type": "CODE", "config": {"code": text}});
    let then = |config: Value| json!({"id": "next", "type": "LLM", "config": config});
    let silent = code("const a = input.a + 1");
    for (nodes, reader) in [
        (vec![silent.clone()], "`e` reads it"),
        (vec![code("function main(input) { return input.x }")], "`e` reads it"),
        (
            vec![code(
                "// return the value\nconst f = x => { if (x) { return 'return' } }",
            )],
            "`e` reads it",
        ),
        (
            vec![silent.clone(), then(json!({"prompt": "Is {{output}} even?"}))],
            "`next` reads it",
        ),
        (
            vec![
                silent.clone(),
                then(json!({"prompt": "go"})),
                then(json!({"prompt": "Is {{sum}} even?"})),
            ],
            "other nodes read it",
        ),
    ] {
        let mut nodes = nodes;
        for (place, node) in nodes.iter_mut().enumerate().skip(2) {
            node["id"] = json!(format!("next{place}"));
        }
        let (_, found) = analyse_json(&line(&nodes, None));
        assert_eq!(
            told(&found),
            [(
                "INVALID_EXPRESSION",
                "/nodes/1/config/code",
                "write `return` before the value that the node produces"
            )]
        );
        assert!(
            found.warnings[0].message.ends_with(reader),
            "{}",
            found.warnings[0].message
        );
    }
    for nodes in [
        vec![code("return input.a + 1")],
        vec![code("throw new Error('no')")],
        vec![code("console.log(input)")],
        vec![code("for (const x of input) { if (x) { return x } }")],
        vec![code(
            "try { input.f(() => { return 1 }) } catch (error) { return error }",
        )],
        vec![code("return { f() { return 1 } }")],
        vec![silent, then(json!({"prompt": "What is the sum?"}))],
    ] {
        let (_, found) = analyse_json(&line(&nodes, None));
        assert_eq!(told(&found), [], "{nodes:?}");
    }
}

#[test]
fn a_trigger_that_hides_a_global_variable_or_misspells_it_is_a_warning() {
    let set = |parameters: Value| {
        on_failure(
            "event.attempt > 1",
            &json!({"type": "SET_VARIABLE", "parameters": parameters}),
        )
    };
    let at = "/triggers/0/action/parameters";
    let name = "/triggers/0/action/parameters/variableName";
    for (parameters, expected) in [
        (
            json!({"variableName": "failures", "value": 1}),
            Some(("MISSING_FIELD", at, "add `\"scope\": \"global\"`")),
        ),
        (
            json!({"variableName": "failurs", "value": 1}),
            Some(("UNKNOWN_NAME", name, "did you mean `failures`?")),
        ),
        (json!({"variableName": "failures", "value": 1, "scope": "global"}), None),
        (json!({"variableName": "failures", "value": 1, "scope": "thread"}), None),
        (json!({"variableName": "mine", "value": 1}), None),
        (json!({"variableName": "other", "value": 1}), None),
    ] {
        let (_, found) = analyse_json(&line(&[], Some(set(parameters.clone()))));
        assert_eq!(told(&found), expected.into_iter().collect::<Vec<_>>(), "{parameters}");
    }
    // The variable is read.
    let reader = json!({"id": "n", "type": "CODE", "config": {"code": "let a = 1;\nfailurs; return a"}});
    let (_, found) = analyse_json(&line(
        &[reader],
        Some(set(json!({"variableName": "failurs", "value": 1}))),
    ));
    assert_eq!(told(&found), []);
}

#[test]
fn a_placeholder_in_another_notation_is_a_warning_in_every_template() {
    let node = |kind: &str, config: Value| json!({"id": "n", "type": kind, "config": config});
    for (node, pointer) in [
        (
            node("LLM", json!({"prompt": "Hi {input.name}"})),
            "/nodes/1/config/prompt",
        ),
        (
            node("LLM", json!({"prompt": "{% if input.vip %}Hi{% endif %}"})),
            "/nodes/1/config/prompt",
        ),
        (
            node("TOOL", json!({"tool": "x", "arguments": {"q": ["${input.q}"]}})),
            "/nodes/1/config/arguments/q/0",
        ),
        (
            node(
                "CONTEXT_PROCESSOR",
                json!({"operation": "insert", "messages": [{"role": "user", "content": "{output}"}]}),
            ),
            "/nodes/1/config/messages/0/content",
        ),
        (
            node("USER_INTERACTION", json!({"question": "{variables.mine}?"})),
            "/nodes/1/config/question",
        ),
    ] {
        let (_, found) = analyse_json(&line(&[node], None));
        let told: Vec<_> = told(&found)
            .into_iter()
            .map(|(code, pointer, _)| (code, pointer))
            .collect();
        assert_eq!(told, [("INVALID_TEMPLATE", pointer)]);
    }
    let notify = json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "{event.nodeId} failed"}});
    let (_, found) = analyse_json(&line(&[], Some(on_failure("true", &notify))));
    assert_eq!(
        told(&found),
        [(
            "INVALID_TEMPLATE",
            "/triggers/0/action/parameters/message",
            "write `{{event.nodeId}}`"
        )]
    );
    let expression = node("TOOL", json!({"tool": "x", "arguments": "({ q: `${input.q}` })"}));
    let (_, found) = analyse_json(&line(&[expression], None));
    assert_eq!(told(&found), []);
}

#[test]
fn a_variable_node_that_misspells_a_declared_variable_is_a_warning() {
    let set =
        |name: &str| json!({"id": "set", "type": "VARIABLE", "config": {"variableName": name, "expression": "1"}});
    let place = "/nodes/1/config/variableName";
    for (name, expected) in [
        ("failurs", Some(("UNKNOWN_NAME", place, "did you mean `failures`?"))),
        ("failures", None),
        ("mine", None),
    ] {
        let mut flow = line(&[set(name)], None);
        flow["variables"] = json!([{"name": "failures", "value": 0}]);
        let (_, found) = analyse_json(&flow);
        assert_eq!(told(&found), expected.into_iter().collect::<Vec<_>>(), "{name}");
    }
    // The variable is read.
    let reader = json!({"id": "n", "type": "CODE", "config": {"code": "return failurs"}});
    let mut flow = line(&[set("failurs"), reader], None);
    flow["variables"] = json!([{"name": "failures", "value": 0}]);
    let (_, found) = analyse_json(&flow);
    assert_eq!(told(&found), []);
}

#[test]
fn an_unknown_field_of_the_previous_output_is_a_warning() {
    let ask = json!({"id": "ask", "type": "LLM", "config": {"prompt": "hi"}});
    let flow = |output: &str, condition: &str| {
        let route = json!({"id": "r", "type": "ROUTE"});
        let mut flow = line(&[ask.clone(), route], None);
        flow["nodes"][3]["config"] = json!({ "output": output });
        flow["edges"][1]["condition"] = json!(condition);
        flow
    };
    let (_, found) = analyse_json(&flow("output.text", "output.contnt == 'x'"));
    let places: Vec<(&str, &str)> = told(&found)
        .iter()
        .map(|(code, pointer, _)| (*code, *pointer))
        .collect();
    assert_eq!(
        places,
        [
            ("UNKNOWN_NAME", "/edges/1/condition"),
            ("UNKNOWN_NAME", "/nodes/3/config/output")
        ]
    );
    assert!(
        found.warnings[0]
            .help
            .as_deref()
            .unwrap_or_default()
            .starts_with("did you mean `content`?")
    );
    let (_, found) = analyse_json(&flow(
        "output.content + output.toString()",
        "output.usage.total > 1 && input.text",
    ));
    assert_eq!(told(&found), []);

    // The last node can follow either node.
    let mut flow = flow("output.text", "input.a");
    flow["nodes"]
        .as_array_mut()
        .expect("nodes")
        .push(json!({"id": "c", "type": "CODE", "config": {"code": "return {text: 1}"}}));
    flow["edges"]
        .as_array_mut()
        .expect("edges")
        .extend([json!({"from": "ask", "to": "c"}), json!({"from": "c", "to": "e"})]);
    let (_, found) = analyse_json(&flow);
    assert_eq!(told(&found), []);
}

#[test]
fn a_variable_that_ends_with_its_branch_although_a_later_node_reads_it_is_a_warning() {
    let forked = |branch: Vec<Value>, join: Value, output: &str, scope: &str| {
        let mut nodes = vec![
            json!({"id": "s", "type": "START"}),
            json!({"id": "f", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": [branch[0]["id"], "other"]}}),
            json!({"id": "other", "type": "CODE", "config": {"code": "return 1"}}),
            json!({"id": "j", "type": "JOIN", "config": join}),
            json!({"id": "e", "type": "END", "config": {"output": output}}),
        ];
        let mut edges: Vec<Value> = branch
            .windows(2)
            .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}))
            .collect();
        let last = branch[branch.len() - 1]["id"].clone();
        let first = branch[0]["id"].clone();
        let links = [
            ("s", json!("f")),
            ("f", first),
            ("f", json!("other")),
            ("other", json!("j")),
            ("j", json!("e")),
        ];
        edges.extend(links.map(|(from, to)| json!({"from": from, "to": to})));
        edges.push(json!({"from": last, "to": "j"}));
        nodes.extend(branch);
        json!({"id": "w", "nodes": nodes, "edges": edges, "variables": [{"name": "found", "value": null, "scope": scope}]})
    };
    let set = |expression: &str| json!({"id": "set", "type": "VARIABLE", "config": {"variableName": "found", "expression": expression}});
    let ask = json!({"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Which?", "assignTo": "found"}});
    let reads = json!({"id": "next", "type": "LLM", "config": {"prompt": "Check {{found}}."}});
    let join = || json!({"forkPathIds": ["a", "b"], "joinStrategy": "ALL_COMPLETED"});
    let merging =
        |paths: &str| json!({"forkPathIds": ["a", "b"], "joinStrategy": "ALL_COMPLETED", "mergeVariables": paths});
    for lost in [
        forked(vec![set("1")], join(), "found", "thread"),
        forked(vec![set("found + 1")], join(), "({ was: variables.found })", "thread"),
        forked(vec![ask], join(), "'it is {{found}}'", "thread"),
    ] {
        let (_, found) = analyse_json(&lost);
        let help =
            "add `\"mergeVariables\": \"all\"`, or read the outputs of the branches in `output.outputs` of the JOIN";
        assert_eq!(told(&found), [("MISSING_FIELD", "/nodes/3/config", help)], "{lost}");
    }
    for kept in [
        forked(vec![set("1")], merging("all"), "found", "thread"),
        forked(vec![set("1")], merging("none"), "found", "thread"),
        forked(vec![set("1")], join(), "found", "global"),
        forked(vec![set("1")], join(), "output", "thread"),
        forked(vec![set("1"), reads], join(), "found", "thread"),
    ] {
        let (_, found) = analyse_json(&kept);
        assert_eq!(told(&found), [], "{kept}");
    }
}

#[test]
fn a_map_of_a_literal_list_that_is_too_short_for_its_strategy_is_a_warning() {
    let never = [("JOIN_NEVER_SUCCEEDS", "/workflows/0/nodes/1/config/joinStrategy", "")];
    let threshold = [("THRESHOLD_OUT_OF_REACH", "/workflows/0/nodes/1/config/threshold", "")];
    for (items, strategy, expected) in [
        (json!([1]), "SUCCESS_COUNT_THRESHOLD", &threshold[..]),
        (json!({"a": "{{input}}"}), "SUCCESS_COUNT_THRESHOLD", &threshold),
        (json!([1, "{{input}}"]), "SUCCESS_COUNT_THRESHOLD", &[]),
        (json!("[1]"), "SUCCESS_COUNT_THRESHOLD", &[]),
        (json!([]), "ANY_COMPLETED", &never),
        (json!([]), "ANY_FAILED", &never),
        (json!([]), "ALL_COMPLETED", &[]),
        (json!([]), "ALL_FAILED", &[]),
    ] {
        let config = json!({"items": items, "subgraphId": "one", "joinStrategy": strategy, "threshold": 2});
        let mut one = line(&[], None);
        one["id"] = json!("one");
        let map = line(&[json!({"id": "map", "type": "MAP", "config": config})], None);
        let (_, found) = analyse_json(&json!({ "workflows": [map, one] }));
        assert_eq!(told(&found), expected, "{config}");
    }
}

#[test]
fn a_script_workflow_without_return_is_a_warning() {
    let warnings = |code: &str| analyse_files(&[SourceFile::new("w.js", code)]).1.warnings.len();
    for code in [
        "await agent('a')",
        "// only a comment",
        "export const meta = { name: 'm' }",
        "const all = await parallel([1, 2].map(n => () => { return agent(`n ${n}`) }))",
        "const x = Math.log(args.n)",
        "async function main() { return await agent('a') }",
    ] {
        assert_eq!(warnings(code), 1, "{code}");
    }
    for code in [
        "return await agent('a')",
        "if (args) { return 1 }",
        "await agent('a'); log('done')",
        "throw new Error('no')",
        "try { return 1 } finally { await sleep(1) }",
        "for (const n of args) switch (n) { case 1: return n }",
        "const a = args / 2; label: { return a } /x/",
        "if (args)\n  // a comment\n  return 1",
        "do { return 1 } while (true)",
        "lbl: for (;;) { if (f(() => { return 1 })) { return 2 } }",
        "if (await agent('a')) { return 1 } else { return 2 }",
        "if ((() => { return 1 })()) { return 2 }",
    ] {
        assert_eq!(warnings(code), 0, "{code}");
    }
}
