//! Random plans, once as a script and once as a graph: the results are equal.

use proptest::prelude::*;
use serde_json::{Value, json};

use pirn_tests::world::{node, run_in, workflow};

use super::{Echo, engine, script};

/// A step of a plan. Its value is a string.
#[derive(Clone, Debug)]
enum Plan {
    Agent(u8),
    /// The steps in order; the value of the last.
    Sequence(Vec<Plan>),
    /// The values of all branches.
    Parallel(Vec<Plan>),
    /// The value of the branch that completes first.
    Any(Vec<Plan>),
}

fn plans() -> impl Strategy<Value = Plan> {
    // Delays are powers of two, so that no two branches end at the same time.
    let agent = (0..10_u8).prop_map(Plan::Agent);
    agent.prop_recursive(3, 10, 3, |inner| {
        let several = prop::collection::vec(inner, 1..4);
        prop_oneof![
            several.clone().prop_map(Plan::Sequence),
            several.clone().prop_map(Plan::Parallel),
            several.prop_map(Plan::Any),
        ]
    })
}

/// Numbers the agents of a plan. The number of an agent determines its delay.
fn numbered(plan: &mut Plan, next: &mut u8) {
    match plan {
        Plan::Agent(number) => {
            *number = *next;
            *next += 1;
        }
        Plan::Sequence(inner) | Plan::Parallel(inner) | Plan::Any(inner) => {
            for plan in inner {
                numbered(plan, next);
            }
        }
    }
}

fn prompt(number: u8) -> String {
    format!("SLOW {} of {number}", 1_u64 << number)
}

fn as_script(plan: &Plan) -> String {
    let functions = |inner: &[Plan]| {
        let each = inner.iter().map(|plan| format!("async () => {}", as_script(plan)));
        each.collect::<Vec<_>>().join(", ")
    };
    match plan {
        Plan::Agent(number) => format!("await agent('{}')", prompt(*number)),
        Plan::Sequence(inner) => {
            let steps = inner.iter().map(|plan| format!("last = {};", as_script(plan)));
            format!(
                "await (async () => {{ let last; {} return last }})()",
                steps.collect::<String>()
            )
        }
        Plan::Parallel(inner) => format!("await parallel([{}])", functions(inner)),
        Plan::Any(inner) => format!("await any([{}])", functions(inner)),
    }
}

/// Builds the plan as nodes of a graph. Returns the first and the last node.
fn as_graph(plan: &Plan, nodes: &mut Vec<Value>, ways: &mut Vec<String>) -> (String, String) {
    let id = format!("n{}", nodes.len());
    match plan {
        Plan::Agent(number) => {
            nodes.push(node(&id, "LLM", json!({ "prompt": prompt(*number) })));
            let text = format!("{id}t");
            let assign = json!({ "variableName": "last", "expression": "output.content" });
            nodes.push(node(&text, "VARIABLE", assign));
            ways.push(format!("{id}>{text}"));
            (id, text)
        }
        Plan::Sequence(inner) => {
            let parts: Vec<_> = inner.iter().map(|plan| as_graph(plan, nodes, ways)).collect();
            ways.extend(parts.windows(2).map(|pair| format!("{}>{}", pair[0].1, pair[1].0)));
            (parts[0].0.clone(), parts[parts.len() - 1].1.clone())
        }
        Plan::Parallel(inner) | Plan::Any(inner) => {
            let (join, after) = (format!("{id}j"), format!("{id}a"));
            let paths: Vec<String> = (0..inner.len()).map(|path| format!("{id}p{path}")).collect();
            let place = nodes.len();
            nodes.push(Value::Null);
            let parts: Vec<_> = inner.iter().map(|plan| as_graph(plan, nodes, ways)).collect();
            let children: Vec<_> = parts.iter().map(|part| part.0.clone()).collect();
            nodes[place] = node(&id, "FORK", json!({ "forkPathIds": paths, "childNodeIds": children }));
            let (strategy, value) = if let Plan::Any(_) = plan {
                ("ANY_COMPLETED", "Object.values(output.outputs)[0]".to_owned())
            } else {
                let all: Vec<_> = paths.iter().map(|path| format!("output.outputs.{path}")).collect();
                ("ALL_COMPLETED", format!("[{}]", all.join(", ")))
            };
            nodes.push(node(
                &join,
                "JOIN",
                json!({ "forkPathIds": paths, "joinStrategy": strategy }),
            ));
            nodes.push(node(
                &after,
                "VARIABLE",
                json!({ "variableName": "last", "expression": value }),
            ));
            for (path, part) in children.iter().zip(&parts) {
                ways.push(format!("{id}>{path}"));
                ways.push(format!("{}>{join}", part.1));
            }
            ways.push(format!("{join}>{after}"));
            (id, after)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_random_script_has_the_result_of_the_same_plan_as_a_graph(mut plan in plans()) {
        numbered(&mut plan, &mut 0);
        let code = format!("return {}", as_script(&plan));
        let of_script = run_in(engine(&Echo::default()), &script(&code, json!({})), Value::Null, Vec::new());
        let (mut nodes, mut ways) = (vec![node("start", "START", json!({}))], Vec::new());
        let (first, last) = as_graph(&plan, &mut nodes, &mut ways);
        nodes.push(node("end", "END", json!({})));
        ways.extend([format!("start>{first}"), format!("{last}>end")]);
        let ways: Vec<&str> = ways.iter().map(String::as_str).collect();
        let of_graph = run_in(engine(&Echo::default()), &workflow("main", &nodes, &ways), Value::Null, Vec::new());
        prop_assert_eq!(&of_graph.report.error, &None);
        prop_assert_eq!(&of_script.report.error, &None, "{}", code);
        prop_assert_eq!(&of_script.report.output, &of_graph.report.output, "{}", code);
        // A branch that is cancelled has no further cost in either form.
        prop_assert_eq!(of_script.report.elapsed_ms, of_graph.report.elapsed_ms, "{}", code);
        prop_assert_eq!(of_script.report.tokens.spent, of_graph.report.tokens.spent, "{}", code);
    }
}
