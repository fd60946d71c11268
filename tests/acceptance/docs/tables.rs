//! Compares the tables of the reference with the code: complete, and without invented entries.

use std::collections::{BTreeMap, BTreeSet};

use pirn::{EventType, RunErrorCode};
use pirn_definition::definition::{NodeConfig, schema};
use serde_json::Value;

use super::page;

/// Returns the cells of each table row between a heading and the next heading of any depth.
fn rows_below(page: &str, heading: &str) -> Vec<Vec<String>> {
    let mut lines = page.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "there is no heading {heading}");
    let own = lines.take_while(|line| !line.starts_with('#'));
    let rows = own.filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        row.trim_matches('|')
            .split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect()
    })
    .collect()
}

/// Returns the names between back ticks in a cell.
fn names(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn first_names(rows: &[Vec<String>]) -> BTreeSet<String> {
    rows.iter().flat_map(|row| names(&row[0])).collect()
}

/// Returns the canonical fields of a type in the schema, without aliases.
fn fields(name: &str) -> BTreeSet<String> {
    let schema = schema();
    let mut fields = BTreeSet::new();
    if let Some(operation) = name.strip_prefix("operation ") {
        collect(form_of(&schema, operation), &mut fields);
        fields.remove("operation");
        return fields;
    }
    let def = &schema["$defs"][name];
    assert!(def.is_object(), "the schema has no {name}");
    collect(def, &mut fields);
    fields
}

/// Returns the schema of one operation of CONTEXT_PROCESSOR, in the form that the reference shows.
fn form_of<'s>(schema: &'s Value, operation: &str) -> &'s Value {
    let operations = schema["$defs"]["ContextOperation"]["oneOf"]
        .as_array()
        .expect("a choice");
    let forms = operations
        .iter()
        .flat_map(|one| one["anyOf"].as_array().into_iter().flatten());
    let has_name = |form: &&Value| {
        let words = form["properties"]["operation"]["enum"].as_array();
        words.is_some_and(|words| words.iter().any(|word| word == operation))
            && form["properties"].get(operation).is_none()
    };
    forms
        .into_iter()
        .find(has_name)
        .unwrap_or_else(|| panic!("the schema has no {operation}"))
}

fn collect(def: &Value, fields: &mut BTreeSet<String>) {
    for (name, _) in def["properties"].as_object().into_iter().flatten() {
        fields.insert(name.clone());
    }
    for part in ["allOf", "anyOf", "oneOf"] {
        for inner in def[part].as_array().into_iter().flatten() {
            collect(inner, fields);
        }
    }
}

/// Aliases that the reference does not list: other forms of the documented fields.
const OTHER_FORMS: &[&str] = &[
    "$schema",
    "variable",
    "data",
    "from",
    "to",
    "defaultValue",
    "forkId",
    "forkPaths",
    "joinId",
    "status",
];

#[test]
fn the_fields_of_every_type_are_those_of_the_schema() {
    let reference = |page: &str| format!("docs/reference/{page}.md");
    let documented: &[(&str, &str, &str)] = &[
        ("workflow", "## WorkflowDefinition", "WorkflowDefinition"),
        ("workflow", "## WorkflowConfig", "WorkflowConfig"),
        ("workflow", "## RetryPolicy", "RetryPolicy"),
        ("workflow", "## EdgeDefinition", "EdgeDefinition"),
        ("variables", "## VariableDefinition", "VariableDefinition"),
        ("triggers", "## TriggerDefinition", "TriggerDefinition"),
        ("triggers", "## TriggerCondition", "TriggerCondition"),
        ("triggers", "## ScheduleDefinition", "ScheduleDefinition"),
        ("triggers", "### EXECUTE_TRIGGERED_SUBGRAPH", "ExecuteTriggeredSubgraph"),
        (
            "compression",
            "### ConversationHistoryOptions",
            "ConversationHistoryOptions",
        ),
        ("nodes", "## END", "EndConfig"),
        ("nodes", "## VARIABLE", "VariableConfig"),
        ("nodes", "## LLM", "LlmConfig"),
        ("nodes", "## CODE", "CodeConfig"),
        ("nodes", "## SCRIPT", "ScriptConfig"),
        ("nodes", "## ROUTE", "RouteConfig"),
        ("nodes", "### Route", "Route"),
        ("nodes", "## FORK", "ForkConfig"),
        ("nodes", "## JOIN", "JoinConfig"),
        ("nodes", "## SUBGRAPH", "SubgraphConfig"),
        ("nodes", "### AgentConfig", "AgentConfig"),
        ("nodes", "## MAP", "MapConfig"),
        ("nodes", "### insert", "operation insert"),
        ("nodes", "### replace", "operation replace"),
        ("nodes", "### truncate", "operation truncate"),
        ("nodes", "### clear", "operation clear"),
        ("nodes", "### filter", "operation filter"),
        ("nodes", "### compress", "operation compress"),
        ("nodes", "### pin", "operation pin"),
        ("nodes", "## WAIT", "WaitConfig"),
        ("nodes", "## TOOL", "ToolConfig"),
        ("nodes", "## USER_INTERACTION", "UserInteractionConfig"),
        ("nodes", "## LOOP_START", "LoopStartConfig"),
        ("nodes", "## LOOP_END", "LoopEndConfig"),
        ("nodes", "## CONTINUE_FROM_TRIGGER", "ContinueFromTriggerConfig"),
    ];
    let mut wrong = Vec::new();
    for (name, heading, type_name) in documented {
        let listed = first_names(&rows_below(&page(&reference(name)), heading));
        let known = fields(type_name);
        let missing: Vec<&String> = known
            .iter()
            .filter(|field| !listed.contains(*field) && !OTHER_FORMS.contains(&field.as_str()))
            .collect();
        let made_up: Vec<&String> = listed.iter().filter(|field| !known.contains(*field)).collect();
        if !missing.is_empty() || !made_up.is_empty() {
            wrong.push(format!("{heading}: missing {missing:?}, made up {made_up:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_node_type_has_its_section_with_an_example() {
    let nodes = page("docs/reference/nodes.md");
    let schema = schema();
    let variants = schema["$defs"]["NodeDefinition"].to_string();
    let sections: Vec<(&str, &str)> = nodes
        .split("\n## ")
        .skip(1)
        .map(|section| section.split_once('\n').expect("more than a heading"))
        .collect();
    for (node_type, section) in &sections {
        assert!(
            variants.contains(&format!("\"{node_type}\"")),
            "there is no type {node_type}"
        );
        assert!(
            section.contains("```json,workflow") || section.contains("The example is under"),
            "{node_type} has no example"
        );
        assert!(
            section.contains("utput") || section.contains("JOIN with the same") || node_type.contains("TRIGGER"),
            "{node_type} does not say what its output is"
        );
    }
    let documented: BTreeSet<&str> = sections.iter().map(|(node_type, _)| *node_type).collect();
    let known: BTreeSet<&str> = NodeConfig::TYPES.into_iter().collect();
    assert_eq!(documented, known);
}

#[test]
fn every_run_error_code_is_explained() {
    let listed = first_names(&rows_below(&page("docs/reference/errors.md"), "# Run errors"));
    let known: BTreeSet<String> = RunErrorCode::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    assert_eq!(listed, known);
}

#[test]
fn every_event_type_is_listed() {
    let rows = rows_below(&page("docs/reference/events.md"), "# Events");
    let listed: BTreeSet<String> = first_names(&rows)
        .into_iter()
        .filter(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        .collect();
    let known: BTreeSet<String> = EventType::ALL.iter().map(|one| one.as_str().to_owned()).collect();
    assert_eq!(listed, known);
}

/// Checks that the page lists every field of the demo's events.
#[test]
fn no_event_has_a_field_that_is_not_listed() {
    let page = page("docs/reference/events.md");
    let rows = rows_below(&page, "# Events");
    let fields: BTreeMap<String, BTreeSet<String>> = rows
        .iter()
        .filter(|row| row.len() == 3)
        .map(|row| (names(&row[0]).remove(0), names(&row[2]).into_iter().collect()))
        .collect();
    let own = [
        "type",
        "sequence",
        "timestamp",
        "runId",
        "workflowId",
        "threadId",
        "eventName",
        "triggerDepth",
    ];
    let workflows = ["examples/tutorial/3-fork.json", "examples/tutorial/4-compress.json"];
    let mut seen = BTreeSet::new();
    for path in workflows {
        let text = std::fs::read_to_string(super::root().join(path)).expect("readable");
        let engine = pirn::Engine::builder()
            .file(path, text)
            .simulated(1)
            .build()
            .expect("valid");
        let mut prepared = engine.run(path[20..].trim_end_matches(".json")).input("x");
        let events = prepared.blocking_events(&[], 10_000);
        let run = prepared.start().expect("admitted");
        run.outcome_blocking();
        engine.shutdown_blocking(std::time::Duration::ZERO);
        for heard in events {
            let pirn::SubscriptionItem::Event(event) = heard else {
                panic!("missed events")
            };
            let shown = event.to_json();
            let kind = shown["type"].as_str().expect("a type").to_owned();
            let listed = &fields[&kind];
            for (field, _) in shown.as_object().expect("an object") {
                assert!(
                    own.contains(&field.as_str()) || listed.contains(field),
                    "{kind}: {field} is not listed"
                );
            }
            seen.insert(kind);
        }
    }
    assert!(seen.len() >= 15, "{seen:?}");
}

#[test]
fn every_template_helper_is_explained() {
    let templates = page("docs/reference/templates.md");
    for helper in pirn::script::template_helpers() {
        let is_there = [
            format!("#{helper} "),
            format!("{{{{{helper} "),
            format!("`{helper}`"),
            format!("({helper} "),
            format!("{{{{{{{{{helper}}}}}}}}}"),
        ];
        assert!(is_there.iter().any(|form| templates.contains(form)), "{helper}");
    }
}

#[test]
fn every_join_strategy_and_compression_strategy_is_explained() {
    let schema = schema();
    let joins = page("docs/reference/joins.md");
    for strategy in schema["$defs"]["JoinStrategy"]["enum"].as_array().expect("words") {
        let strategy = strategy.as_str().expect("a word");
        assert!(
            strategy.chars().any(char::is_lowercase) || joins.contains(&format!("`{strategy}`")),
            "{strategy}"
        );
    }
    let listed = first_names(&rows_below(&page("docs/reference/compression.md"), "## Strategies"));
    let known = [
        "checklist",
        "clear_tool_results",
        "keep_recent",
        "keep_system_recent",
        "sliding_window",
        "summarize",
    ];
    let known = known.map(str::to_owned);
    assert_eq!(listed, known.into());
}

#[test]
fn every_trigger_action_is_explained() {
    let listed = first_names(&rows_below(&page("docs/reference/triggers.md"), "## Actions"));
    let actions = schema()["$defs"]["TriggerAction"].to_string();
    for action in &listed {
        assert!(
            actions.contains(&format!("\"{action}\"")),
            "there is no action {action}"
        );
    }
    assert_eq!(listed.len(), 8);
}
