//! People's answers and the items of a MAP are choice points of an exploration.

use std::collections::BTreeSet;

use pirn::explore::{Exploration, ExploreError, Explorer, explore};
use pirn::tools::{Verdict, tool_fn};
use pirn::{Engine, EngineBuilder};
use pirn_tests::world::{forked, line, node, workflow};
use serde_json::{Value, json};

fn explorer(bundle: &Value) -> Explorer {
    explore(Engine::builder().workflows(bundle.to_string()))
}

#[track_caller]
fn all(every: Explorer) -> Exploration {
    match every.run() {
        Ok(explored) => {
            assert!(explored.complete, "{explored}");
            explored
        }
        Err(error) => panic!("{error}"),
    }
}

fn outputs(explored: &Exploration) -> BTreeSet<String> {
    let outputs = explored.outcomes.iter().map(|outcome| outcome.output.to_string());
    outputs.collect()
}

fn ask(id: &str, config: Value) -> Value {
    let mut config = config;
    config["question"] = json!("Well?");
    node(id, "USER_INTERACTION", config)
}

fn note(id: &str, name: &str, expression: &str) -> Value {
    node(
        id,
        "VARIABLE",
        json!({"variableName": name, "expression": expression, "scope": "global"}),
    )
}

fn ends_with(mut workflow: Value, output: &str) -> Value {
    for node in workflow["nodes"].as_array_mut().into_iter().flatten() {
        if node["type"] == "END" {
            node["config"] = json!({ "output": output });
        }
    }
    workflow
}

/// Returns a workflow in which two people answer yes or no concurrently. Each answer is appended to the previous ones.
fn approval(join: &Value) -> Value {
    let person = |name: &str| {
        let said = format!("(said || '') + '{name}' + nodes.{name}.answer + ' '");
        vec![
            ask(name, json!({"choices": ["yes", "no"]})),
            note(&format!("note-{name}"), "said", &said),
        ]
    };
    let mut approval = ends_with(forked(&[person("ann"), person("bob")], false, join), "said");
    approval["variables"] = json!([{"name": "said", "type": "string", "scope": "global", "value": ""}]);
    approval
}

#[test]
fn an_approval_of_two_people_has_every_answer_in_every_order() {
    let explored = all(explorer(&approval(&json!({"joinStrategy": "ALL_COMPLETED"}))));
    let mut expected = BTreeSet::new();
    for (ann, bob) in [("yes", "yes"), ("yes", "no"), ("no", "yes"), ("no", "no")] {
        expected.insert(json!(format!("ann{ann} bob{bob} ")).to_string());
        expected.insert(json!(format!("bob{bob} ann{ann} ")).to_string());
    }
    assert_eq!(outputs(&explored), expected, "{explored}");
    let shown = explored
        .outcomes
        .iter()
        .find(|outcome| outcome.output == "bobno annyes ");
    let shown = shown.map(|outcome| outcome.order.clone());
    let order = [r#"p1/bob answer "no""#, r#"p0/ann answer "yes""#].map(str::to_owned);
    assert_eq!(shown, Some(order.to_vec()));
}

#[test]
fn an_approval_decided_by_the_first_of_two_answers_is_detected() {
    // The first answer decides the join, so the other person's answer is missing in each output.
    let explored = all(explorer(&approval(&json!({"joinStrategy": "ANY_COMPLETED"}))));
    let expected = ["annyes ", "annno ", "bobyes ", "bobno "];
    let expected: BTreeSet<String> = expected.iter().map(|said| json!(said).to_string()).collect();
    assert_eq!(outputs(&explored), expected, "{explored}");
}

#[test]
fn a_question_gets_the_values_of_its_schema_or_the_given_answers() {
    let asked = |config: Value| ends_with(line("main", &[ask("ask", config)]), "nodes.ask.answer");
    let told = |explorer: Explorer| outputs(&all(explorer)).into_iter().collect::<Vec<_>>();
    let schema = |schema: Value| asked(json!({ "schema": schema }));
    assert_eq!(told(explorer(&asked(json!({})))), [r#""answer""#]);
    assert_eq!(told(explorer(&schema(json!({"type": "boolean"})))), ["false", "true"]);
    assert_eq!(told(explorer(&schema(json!({"enum": [1, 2, 3]})))), ["1", "2", "3"]);
    let number = schema(json!({"type": "number"}));
    assert_eq!(told(explorer(&number)), ["null"], "nobody knows one: it waits for ever");
    assert_eq!(told(explorer(&number).answer("ask", 7).answer("ask", 8)), ["7", "8"]);
}

#[test]
fn the_time_limit_of_a_question_is_a_choice_if_timeouts_are_explored() {
    let config = json!({"timeoutMs": 500, "onTimeout": "default", "default": "late"});
    let bundle = ends_with(line("main", &[ask("ask", config)]), "nodes.ask.answer");
    let explorer = || explorer(&bundle).answer("ask", "yes");
    let told = |explorer: Explorer| outputs(&all(explorer)).into_iter().collect::<Vec<_>>();
    assert_eq!(told(explorer()), [r#""yes""#]);
    assert_eq!(told(explorer().timeouts(true)), [r#""late""#, r#""yes""#]);
}

#[test]
fn a_withdrawn_question_gets_no_answer() {
    let nap = vec![node("nap", "WAIT", json!({"seconds": 1}))];
    let asked = vec![ask("ask", json!({"choices": ["yes"]}))];
    let bundle = forked(&[asked, nap], false, &json!({"joinStrategy": "ANY_COMPLETED"}));
    let explored = all(explorer(&bundle));
    assert_eq!(explored.outcomes.len(), 2, "{explored}");
    assert!(
        explored.outcomes.iter().all(|outcome| outcome.error.is_none()),
        "{explored}"
    );
}

fn marked() -> EngineBuilder {
    let say = |_: Value| std::future::ready(Ok::<_, String>("done".to_owned()));
    let tool = node("pay", "TOOL", json!({"tool": "pay", "arguments": {}}));
    let refused = node(
        "no",
        "VARIABLE",
        json!({"variableName": "paid", "expression": "'refused'"}),
    );
    let mut tool = tool;
    tool["onError"] = json!({"targetNodeId": "no"});
    let mut bundle = workflow(
        "main",
        &[
            node("start", "START", json!({})),
            tool,
            refused,
            node("end", "END", json!({"output": "variables.paid || 'paid'"})),
        ],
        &["start>pay>end", "no>end"],
    );
    bundle["id"] = json!("main");
    Engine::builder()
        .workflows(bundle.to_string())
        .tool(tool_fn("pay", "pays", json!({"type": "object"}), say))
        .approve_tools(|_| Verdict::Ask("money".to_owned()))
}

#[test]
fn a_tool_that_needs_consent_is_allowed_and_refused() {
    let explored = all(explore(marked()));
    let statuses: BTreeSet<&str> = explored
        .outcomes
        .iter()
        .map(|outcome| outcome.status.as_str())
        .collect();
    assert!(!statuses.contains("RUNNING"), "{explored}");
    assert_eq!(explored.outcomes.len(), 2, "{explored}");
}

#[test]
fn the_items_of_a_map_end_in_every_order() {
    let item = workflow(
        "item",
        &[
            node("start", "START", json!({})),
            node("nap", "WAIT", json!({"seconds": 1})),
            note("note", "said", "(said || '') + input"),
            node("end", "END", json!({})),
        ],
        &["start>nap>note>end"],
    );
    let map = node("map", "MAP", json!({"items": "[1, 2, 3]", "subgraphId": "item"}));
    let main = ends_with(line("main", &[map]), "said");
    let explored = all(explorer(&json!({"workflows": [main, item]})));
    let expected = ["123", "132", "213", "231", "312", "321"];
    let expected: BTreeSet<String> = expected.iter().map(|said| json!(said).to_string()).collect();
    assert_eq!(outputs(&explored), expected, "{explored}");
}

#[test]
fn an_answer_that_every_question_refuses_fails_the_exploration() {
    let asked = |config: Value| ends_with(line("main", &[ask("ask", config)]), "nodes.ask.answer");
    let bundle = asked(json!({"choices": ["l", "r"]}));
    for answers in [&["z"][..], &["l", "z"]] {
        let explorer = answers
            .iter()
            .fold(explorer(&bundle), |explorer, answer| explorer.answer("ask", *answer));
        let error = explorer.run().expect_err("z is no choice");
        assert!(
            matches!(&error, ExploreError::AnswerRefused { node_id, reason }
                if node_id == "ask" && reason == r#"expected one of "l", "r""#),
            "{error}"
        );
    }
    let number = asked(json!({"schema": {"type": "number"}}));
    let error = explorer(&number).answer("ask", "seven").run().expect_err("no number");
    assert!(matches!(error, ExploreError::AnswerRefused { .. }), "{error}");
    let error = explore(marked()).answer("pay", "maybe").run().expect_err("no decision");
    assert!(matches!(error, ExploreError::AnswerRefused { .. }), "{error}");
}

#[test]
fn each_question_of_a_node_gets_the_answers_that_it_accepts() {
    let size = ends_with(line("size", &[ask("ask", json!({"choices": ["s"]}))]), "output.answer");
    let call = node("call", "SUBGRAPH", json!({"subgraphId": "size"}));
    let main = line("main", &[ask("ask", json!({"choices": ["red", "blue"]})), call]);
    let main = ends_with(main, "nodes.ask.answer + output");
    let bundle = json!({"workflows": [main, size]});
    let explored = all(explorer(&bundle).answer("ask", "red").answer("ask", "s"));
    assert_eq!(
        outputs(&explored),
        BTreeSet::from([json!("reds").to_string()]),
        "{explored}"
    );
}
