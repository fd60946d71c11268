//! Templates.

use super::*;

fn scope_of_templates() -> ScopeValues {
    let variables = json!({"name": "Ada", "list": [{"n": 1}, {"n": 2}], "none": null, "no": false, "o": {"a": 1.0}});
    let mut scope = scope(&variables, &json!({"q": "why"}));
    scope.output = Arc::new(json!(["last"]));
    scope.nodes = [(
        Arc::from("compress-messages"),
        Arc::new(json!({"content": "<short> & \"sweet\""})),
    )]
    .into();
    scope
}

fn text(template: &str) -> Result<String, ScriptFault> {
    patient().text_of(template, &scope_of_templates()).map_err(fault)
}

#[test]
fn templates_resolve_names_like_expressions() {
    for (template, expected) in [
        ("plain } text", "plain } text"),
        ("{{compress-messages.content}}", "<short> & \"sweet\""),
        ("{{{compress-messages.content}}}!", "<short> & \"sweet\"!"),
        ("{{name}} asks {{input.q}}: {{output}}", "Ada asks why: [\"last\"]"),
        (
            "{{nodes[\"compress-messages\"].content}}{{list[1].n}}",
            "<short> & \"sweet\"2",
        ),
        (
            "{{#if name}}{{nodes[\"compress-messages\"].content}}{{list[1].n}}{{/if}}",
            "<short> & \"sweet\"2",
        ),
        ("{{variables.name}}{{#if no}}x{{else}}y{{/if}}", "Aday"),
        ("{{#each list}}{{@index}}={{n}};{{/each}}{{list.length}}", "0=1;1=2;2"),
        ("{{#each list}}{{this}}{{../name}}{{/each}}", "{\"n\":1}Ada{\"n\":2}Ada"),
        (
            "{{json o}} {{o}} {{#if o}}{{o}}{{/if}}",
            "{\"a\":1.0} {\"a\":1.0} {\"a\":1.0}",
        ),
        ("{{o.a}}{{#if o}}{{o.a}}{{/if}}", "11"),
        ("{{none}}|{{no}}|{{#if missing}}a{{else}}b{{/if}}", "|false|b"),
        (
            "{{#with o}}{{a}}{{/with}}{{#each variables.list as |item|}}{{item.n}}{{/each}}",
            "112",
        ),
        ("\\{{name}} {{! comment }}{{name}}", "{{name}} Ada"),
        ("{{#if (eq name 'Ada')}}yes{{/if}}", "yes"),
    ] {
        assert_eq!(text(template).as_deref(), Ok(expected), "{template}");
    }
}

#[test]
fn white_space_in_a_tag_is_that_of_a_template_without_blocks() {
    for space in ["\u{a0}", "\u{2028}", "\u{3000}", "\u{c}", "\u{b}"] {
        for tag in [
            "{{name}}",
            "<{{list[1].n}}>",
            "{{nodes[\"compress-messages\"].content}}",
        ] {
            let spaced = tag
                .replace("{{", &format!("{{{{{space}"))
                .replace("}}", &format!("{space}}}}}"));
            let expected = text(tag);
            assert!(expected.is_ok(), "{expected:?}");
            assert_eq!(text(&spaced), expected, "{spaced:?}");
            assert_eq!(
                text(&format!("{{{{#if no}}}}x{{{{/if}}}}{spaced}")),
                expected,
                "{spaced:?} with a block"
            );
        }
    }
}

#[test]
fn a_missing_path_is_an_error_and_never_renders_undefined() {
    for (template, path) in [
        ("{{user.name}}", "user.name"),
        ("{{input.other}}", "input.other"),
        ("{{#if name}}{{user.name}}{{/if}}", "user.name"),
        ("{{#each list}}{{m}}{{/each}}", "m"),
        ("{{json missing}}", "missing"),
        ("{{#each missing}}x{{/each}}", "missing"),
        ("{{#if (gt input.n 3)}}a{{/if}}", "input.n"),
        ("{{#if (not (eq name user.name))}}a{{/if}}", "user.name"),
        ("{{#each list}}{{#if (lt n m)}}a{{/if}}{{/each}}", "m"),
        ("{{#if (gt input.length 3)}}a{{/if}}", "input.length"),
        ("{{len missing}}", "missing"),
        ("{{lookup missing 0}}", "missing"),
        ("{{lookup list missing}}", "missing"),
        ("{{lookup input 5}}", "input.5"),
        ("{{lookup list 2}}", "list.2"),
        ("{{variables.x.y}}{{#if no}}{{/if}}", "variables.x.y"),
    ] {
        let fault = text(template).unwrap_err();
        assert_eq!(fault.code, RunErrorCode::TemplateError, "{template}");
        assert_eq!(fault.details, Some(json!({ "path": path })), "{template}: {fault}");
        assert!(fault.message.contains(path), "{template}: {fault}");
    }
}

#[test]
fn len_counts_entries_and_the_characters_that_length_counts() {
    for (template, expected) in [
        ("{{len list}} {{len o}} {{len name}}", "2 1 3"),
        ("{{len \"\u{65e5}\u{672c}\"}} {{len \"\u{1f600}\"}}", "2 2"),
        ("{{#if (eq (len name) name.length)}}equal{{/if}}", "equal"),
    ] {
        assert_eq!(text(template).as_deref(), Ok(expected), "{template}");
    }
    for (template, found) in [
        ("{{len 5}}", "`5`"),
        ("{{len no}}", "`false`"),
        ("{{len none}}", "`null`"),
    ] {
        let fault = text(template).unwrap_err();
        assert_eq!(fault.code, RunErrorCode::TemplateError, "{template}");
        assert!(
            fault.message.contains("`len` needs a list") && fault.message.contains(found),
            "{fault}"
        );
    }
}

#[test]
fn lookup_returns_an_entry_by_index_or_name() {
    assert_eq!(text("{{lookup (lookup list 1) \"n\"}}").as_deref(), Ok("2"));
}

#[test]
fn a_helper_without_enough_values_is_an_error_that_names_the_helper() {
    for (template, message) in [
        ("{{#if (gt name)}}a{{/if}}", "the helper `gt` has no value number 2"),
        ("{{lookup list}}", "the helper `lookup` has no value number 2"),
    ] {
        let fault = text(template).unwrap_err();
        assert_eq!(fault.code, RunErrorCode::TemplateError, "{template}");
        assert!(fault.message.contains(message), "{template}: {fault}");
    }
}

#[test]
fn a_template_of_one_path_returns_the_value_itself() {
    let graph = snippets(&["{{list}}", "{{ output }}", "x{{name}}", "{{#if no}}{{/if}}"]);
    let mut evaluator = patient();
    let values: Vec<Value> = (0..4)
        .map(|ix| {
            evaluator
                .template_value(&graph, ix, &scope_of_templates())
                .unwrap()
                .as_ref()
                .clone()
        })
        .collect();
    assert_eq!(
        values,
        [json!([{"n": 1}, {"n": 2}]), json!(["last"]), json!("xAda"), json!("")]
    );
}

#[test]
fn snippets_are_cached_by_graph_and_index() {
    let (one, mut other) = (
        snippets(&["name + 1", "{{name}}"]),
        snippets(&["name + 2", "<{{name}}>"]),
    );
    other.uid = 2;
    let mut evaluator = patient();
    for _ in 0..2 {
        assert_eq!(*evaluator.value(&one, 0, &scope_of_templates()).unwrap(), json!("Ada1"));
        assert_eq!(
            *evaluator.value(&other, 0, &scope_of_templates()).unwrap(),
            json!("Ada2")
        );
        assert_eq!(evaluator.text(&one, 1, &scope_of_templates()).unwrap(), "Ada");
        assert_eq!(evaluator.text(&other, 1, &scope_of_templates()).unwrap(), "<Ada>");
        assert_eq!(evaluator.truth(&one, 0, &scope_of_templates()), Ok(true));
    }
}

/// Creates a graph that contains only snippets.
fn snippets(texts: &[&str]) -> pirn_definition::graph::Graph {
    use pirn_definition::graph::{Snippet, SnippetKind};

    pirn_definition::graph::Graph {
        workflow_id: "w".into(),
        about: pirn_definition::graph::About::default(),
        source: None,
        uid: 1,
        nodes: Vec::new(),
        start: 0,
        triggered: false,
        snippets: texts
            .iter()
            .map(|text| Snippet {
                kind: SnippetKind::Expression,
                source: (*text).into(),
            })
            .collect(),
        forks: Vec::new(),
        variables: Vec::new(),
        reducers: std::collections::BTreeMap::new(),
        awaited_events: Vec::new(),
        variable_names: Arc::default(),
        triggers: Vec::new(),
        config: pirn_definition::definition::WorkflowConfig::default(),
        by_id: std::collections::BTreeMap::new(),
    }
}
