//! Arbitrary text as template or expression is answered within its limits and leaves no state behind.

use std::sync::Arc;
use std::time::Duration;

use pirn_definition::error::RunErrorCode;
use pirn_definition::script::ScopeValues;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::template::Template;
use super::super::{ExpressionLimits, JsEvaluator, TextSyntax};
use super::{patient, value_in};

/// Pieces with a meaning for the template parser.
const BARS: &[&str] = &[
    "{{",
    "}}",
    "{{{",
    "}}}",
    "{{#if ",
    "{{/if}}",
    "{{#each ",
    "{{/each}}",
    "{{#with ",
    "{{/with}}",
    "{{else}}",
    "{{!--",
    "--}}",
    "{{&",
    "{{> ",
    "{{*inline ",
    "{{~",
    "~}}",
    "{{{{raw}}}}",
    "{{{{/raw}}}}",
    "(",
    ")",
    "[",
    "]",
    "[0]",
    ".",
    "../",
    "@index",
    "@root",
    "this",
    "list",
    "item",
    "text",
    "nodes",
    "input",
    "missing",
    "compress-messages",
    ".length",
    "len ",
    "lookup ",
    "json ",
    "eq ",
    " ",
    "\n",
    "|x|",
    " as |x i|",
    "\"",
    "'",
    "\\",
    "\\{{",
    "1",
    "-1",
    "1e999",
    "=",
    "null",
    "true",
    "é",
    "\u{0}",
    "\u{202e}",
    "日本",
];

/// Pieces with a meaning for JavaScript.
const SCRIPT: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "`",
    "${",
    "'",
    "\"",
    "\\",
    "/",
    "//",
    "/*",
    "*/",
    "=>",
    "=",
    "==",
    "===",
    "!",
    "?",
    "?.",
    ":",
    ";",
    ",",
    ".",
    "...",
    "+",
    "-",
    "**",
    "%",
    "<<",
    "&&",
    "||",
    "??",
    "++",
    "in",
    " of ",
    "new ",
    "this",
    "function",
    "class ",
    "async ",
    "await ",
    "yield ",
    "return ",
    "throw ",
    "try",
    "catch",
    "finally",
    "while",
    "for",
    "break ",
    "var ",
    "let ",
    "delete ",
    "typeof ",
    "void ",
    "with",
    "super",
    "import",
    "export ",
    "arguments",
    "constructor",
    "__proto__",
    "prototype",
    "Function",
    "eval",
    "globalThis",
    "Symbol",
    "Proxy",
    "Reflect",
    "Object",
    "Array",
    "JSON",
    "Math",
    "text",
    "list",
    "item",
    "input",
    "variables",
    "nodes",
    "{{text}}",
    "{{list",
    "}}",
    "1",
    "0",
    "1n",
    "1e999",
    "0x",
    "#",
    "@",
    "\n",
    " ",
    "é",
    "\u{2028}",
    "\u{0}",
    "日本",
];

fn made_of(pieces: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::collection::vec(prop::sample::select(pieces), 0..12).prop_map(|pieces| pieces.concat()),
        1 => "\\PC{0,40}",
    ]
}

fn seen() -> ScopeValues {
    let variables = json!({
        "text": "hello", "list": [1, "two", {"three": 3}], "item": {"name": "x", "list": [[], [0]]},
        "empty": "", "none": null, "zero": 0, "yes": true, "no": false, "nothing": [],
    });
    let named = |(name, value): (&String, &Value)| (name.as_str().into(), Arc::new(value.clone()));
    ScopeValues {
        input: Arc::new(json!({"a": [1, 2]})),
        variables: variables.as_object().expect("an object").iter().map(named).collect(),
        ..ScopeValues::default()
    }
}

/// A template that the oracle below can render.
#[derive(Clone, Debug)]
enum Part {
    Text(&'static str),
    Show(&'static str),
    If(bool, &'static str, Vec<Part>, Vec<Part>),
    Each(&'static str),
}

const NAMES: &[&str] = &[
    "text",
    "list",
    "item.name",
    "item.list",
    "empty",
    "none",
    "zero",
    "yes",
    "no",
    "nothing",
    "input.a",
    "variables.text",
    "missing",
    "item.missing",
];

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let name = || prop::sample::select(NAMES);
    let leaf = prop_oneof![
        prop::sample::select(&["a ", "b\n", "}", "{ ", "é"][..]).prop_map(Part::Text),
        name().prop_map(Part::Show),
        name().prop_map(Part::Each),
    ];
    let part = leaf.prop_recursive(3, 24, 4, move |inner| {
        let inside = || prop::collection::vec(inner.clone(), 0..4);
        (any::<bool>(), name(), inside(), inside())
            .prop_map(|(is_if, name, then, otherwise)| Part::If(is_if, name, then, otherwise))
    });
    prop::collection::vec(part, 0..5)
}

fn written(parts: &[Part]) -> String {
    let one = |part: &Part| match part {
        Part::Text(text) => (*text).to_owned(),
        Part::Show(name) => format!("{{{{{name}}}}}"),
        Part::Each(name) => format!("{{{{#each {name}}}}}<{{{{@index}}}}>{{{{/each}}}}"),
        Part::If(is_if, name, then, otherwise) => {
            let (block, then, otherwise) = (if *is_if { "if" } else { "unless" }, written(then), written(otherwise));
            format!("{{{{#{block} {name}}}}}{then}{{{{else}}}}{otherwise}{{{{/{block}}}}}")
        }
    };
    parts.iter().map(one).collect()
}

/// Returns the value of a name, or `None` if it is not defined.
fn named(name: &str) -> Option<Value> {
    let scope = seen();
    let mut parts = name.split('.');
    let mut first = parts.next().expect("a name");
    if first == "variables" {
        first = parts.next().expect("a variable");
    }
    let mut value = match first {
        "input" => scope.input.as_ref().clone(),
        name => scope
            .variables
            .iter()
            .find(|(other, _)| &***other == name)?
            .1
            .as_ref()
            .clone(),
    };
    for part in parts {
        value = value.get(part)?.clone();
    }
    Some(value)
}

fn holds(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(value) => value.as_f64() != Some(0.0),
        Value::String(value) => !value.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// Returns the text of a rendered template, or `None` if it shows an undefined value.
fn rendered(parts: &[Part]) -> Option<String> {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Text(piece) => text.push_str(piece),
            Part::Show(name) => match named(name)? {
                Value::String(value) => text.push_str(&value),
                Value::Null => {}
                other => text.push_str(&other.to_string()),
            },
            Part::Each(name) => match named(name)? {
                Value::Array(items) => text.extend((0..items.len()).map(|place| format!("<{place}>"))),
                _ => return None,
            },
            Part::If(is_if, name, then, otherwise) => {
                let holds = named(name).is_some_and(|value| holds(&value));
                text.push_str(&rendered(if holds == *is_if { then } else { otherwise })?);
            }
        }
    }
    Some(text)
}

proptest! {
    #[test]
    fn any_string_is_a_template_or_a_fault(source in made_of(BARS)) {
        let Ok(template) = Template::compile(&source) else {
            prop_assert!(Template::check(&source).is_err(), "both say the same");
            return Ok(());
        };
        prop_assert!(Template::check(&source).is_ok(), "both say the same");
        match template.render(&seen(), None) {
            Ok(text) => prop_assert!(!text.contains("undefined") && !text.contains("[object"), "{text}"),
            Err(fault) => prop_assert!(
                matches!(fault.code, RunErrorCode::TemplateError | RunErrorCode::ScriptLimitExceeded),
                "{fault:?}"
            ),
        }
    }

    #[test]
    fn a_template_renders_the_concatenation_of_its_parts(parts in parts()) {
        let source = written(&parts);
        let template = Template::compile(&source).expect("it is well formed");
        prop_assert_eq!(template.render(&seen(), None).ok(), rendered(&parts), "{}", source);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_string_is_an_expression_or_a_fault_and_leaves_no_state(sources in prop::collection::vec(made_of(SCRIPT), 1..4)) {
        let mut evaluator = JsEvaluator::new(ExpressionLimits { time: Duration::from_millis(200), ..ExpressionLimits::default() });
        let scope = seen();
        for source in &sources {
            let checked = TextSyntax::default().check_expression(source);
            if let Err(fault) = value_in(&mut evaluator, source, &scope) {
                let code = fault.code;
                prop_assert!(
                    matches!(code, RunErrorCode::ScriptError | RunErrorCode::UnknownName | RunErrorCode::ScriptLimitExceeded | RunErrorCode::TemplateError),
                    "{source:?}: {fault:?}"
                );
            } else {
                prop_assert!(checked.is_ok(), "what runs has passed validation: {source:?} {checked:?}");
            }
        }
        let after = value_in(&mut evaluator, "[text, [1, 2].map(x => x + 1), typeof leaked]", &scope);
        prop_assert_eq!(after, Ok(json!(["hello", [2, 3], "undefined"])));
    }
}

/// Nesting deeper than any stack must be refused or evaluated without a crash.
#[test]
fn deeply_nested_templates_and_expressions_do_not_overflow_the_stack() {
    let around = |open: &str, middle: &str, close: &str, depth: usize| {
        [open.repeat(depth), middle.to_owned(), close.repeat(depth)].concat()
    };
    for depth in [10, 1_000, 50_000] {
        let templates = [
            around("{{#if yes}}", "x", "{{/if}}", depth),
            around("{{#each nothing}}", "", "{{/each}}", depth),
            format!("{{{{len {}}}}}", around("(len ", "text", ")", depth)),
            format!("{{{{text{}}}}}", ".[x]".repeat(depth)),
            format!("{{{{text{}}}}}", "[0]".repeat(depth)),
            format!("{{{{{}text}}}}", "../".repeat(depth)),
            "{{#if yes}}".repeat(depth),
            "{{else if yes}}".repeat(depth),
            "{{".repeat(depth),
        ];
        for source in templates {
            if let Ok(template) = Template::compile(&source) {
                let _ = template.render(&seen(), None);
            }
        }
        let expressions = [
            around("(", "1", ")", depth),
            around("[", "1", "]", depth),
            around("!", "yes", "", depth),
            around("-(", "1", ")", depth),
            around("yes && (", "1", ")", depth),
            format!("1{}", " + 1".repeat(depth)),
            format!("yes{}", " ? 1 : yes".repeat(depth)),
            format!("text{}", ".x".repeat(depth)),
            format!("text{}", "['x']".repeat(depth)),
            around("(() => ", "1", ")()", depth),
            around("{{", "text", "}}", depth),
        ];
        for source in expressions {
            let _ = TextSyntax::default().check_expression(&source);
            let _ = value_in(&mut patient(), &source, &seen());
        }
    }
}

#[test]
fn a_template_stops_at_its_size_limit() {
    let mut scope = seen();
    scope
        .variables
        .insert("many".into(), Arc::new(json!(vec!["0123456789"; 1_000])));
    let each = ["", "../", "../../", "../../../"]
        .map(|up| ["{{#each ", up, "variables.many}}"].concat())
        .concat();
    let template = Template::compile(&format!("{each}{}", "{{/each}}".repeat(4))).expect("well formed");
    let fault = template
        .render(&scope, None)
        .expect_err("ten to the twelfth turns that write nothing");
    assert_eq!(fault.code, RunErrorCode::ScriptLimitExceeded, "{fault:?}");
    let long = format!("{}{{{{#each list}}}}{{{{@index}}}}{{{{/each}}}}", "x".repeat(17 << 20));
    let fault = Template::compile(&long)
        .expect("well formed")
        .render(&scope, None)
        .expect_err("too long");
    assert_eq!(fault.code, RunErrorCode::ScriptLimitExceeded, "{fault:?}");
}

#[test]
fn nested_helpers_that_double_their_output_stop_at_the_limit() {
    let nested = |inner: &str| (0..40).fold(inner.to_owned(), |inside, _| format!("(json {inside})"));
    for source in [
        format!("{{{{len {}}}}}", nested("text")),
        format!("{{{{json {}}}}}", nested("text")),
        format!("{{{{#if (eq text {})}}}}x{{{{/if}}}}", nested("text")),
    ] {
        let template = Template::compile(&source).expect("well formed");
        let fault = template.render(&seen(), None).expect_err(&source);
        assert_eq!(fault.code, RunErrorCode::ScriptLimitExceeded, "{fault:?}");
    }
}
