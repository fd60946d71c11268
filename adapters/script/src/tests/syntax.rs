//! Snippets are checked without being run.

use pirn_definition::definition::{FaultCode, SourceFile, load};
use pirn_definition::graph::{CompileContext, compile_loaded};
use serde_json::json;

use crate::TextSyntax;

#[test]
fn valid_sources_pass_the_check_without_running() {
    let syntax = TextSyntax::default();
    for expression in [
        "a",
        "a + b",
        "{{a}} * {{b-c}}",
        "x => x",
        "({a: 1})",
        "a, b",
        "'{{a}}' + 1",
        "1 // why",
        "`${a}`",
        "(() => { for (;;) {} })()",
    ] {
        assert_eq!(syntax.check_expression(expression), Ok(()), "{expression}");
    }
    for script in [
        "",
        "return 1",
        "await f()",
        "const a = 1; // end",
        "for (;;) {}",
        "let x = {}\nreturn x",
    ] {
        assert_eq!(syntax.check_script(script), Ok(()), "{script}");
    }
    for template in [
        "",
        "{{a}}",
        "{{#if a}}x{{else}}y{{/if}}",
        "{{json a}}",
        "{{nodes[\"x\"].y}}",
        "a } b",
        "{{#each l}}{{this}}{{@index}}{{/each}}",
    ] {
        assert_eq!(syntax.check_template(template), Ok(()), "{template}");
    }
}

#[test]
fn a_module_statement_is_a_fault_that_says_what_to_write() {
    let syntax = TextSyntax::default();
    for (script, expected) in [
        ("import fs from 'fs'\nreturn 1", "a script cannot import modules"),
        ("import { x } from 'y'", "a script cannot import modules"),
        ("const a = 1\nexport default a", "`return` its result"),
        ("export { a }", "`return` its result"),
        ("export const b = 2", "`return` its result"),
    ] {
        let fault = syntax.check_script(script).expect_err(script);
        assert!(fault.message.contains(expected), "{script}: {fault:?}");
    }
    assert_eq!(syntax.check_script("const exported = 1; return exported"), Ok(()));
}

#[test]
fn invalid_sources_are_faults_with_a_location() {
    let syntax = TextSyntax::default();
    for expression in [
        "",
        "a +",
        "1) + (2",
        "1] + [2",
        "'(') + (1",
        "`(`) + (1",
        "/(/.x) + (1",
        "1 <!-- (\n) + (1",
        "1 /* ( */) + (1",
        "(a) + b) * (c",
        "a b",
        "if (a) b",
        "return 1",
        "let a = 1",
        "a; b",
        "1 /*",
        "'a",
        "{{a b}}",
        "await x",
        "...a",
    ] {
        assert!(syntax.check_expression(expression).is_err(), "{expression}");
    }
    for script in ["return (", "}", "} {", "let a; let a;", "await = 1 +"] {
        assert!(syntax.check_script(script).is_err(), "{script}");
    }
    for template in [
        "{{#if a}}x",
        "{{a",
        "{{/if}}",
        "{{#nope a}}{{/nope}}",
        "{{nope a}}",
        "{{> partial}}",
        "{{#each}}x{{/if}}",
    ] {
        assert!(syntax.check_template(template).is_err(), "{template}");
    }
    for (template, line, column, part) in [
        ("a\n {{#if a}}x", 2, 2, "`{{#if a}}` is not closed"),
        ("{{a", 1, 1, "`{{a` is not closed"),
        ("{{a {{b}}", 1, 1, "`}}` is missing"),
        ("x{{/if}}", 1, 2, "was not opened"),
        ("{{#each l}}{{#if a}}{{/each}}", 1, 21, "expected `{{/if}}`"),
        ("a {{else}} b", 1, 3, "is outside of a block"),
        ("a {{}}", 1, 3, "a tag is empty"),
        ("a\nb {{a..b c=}}", 2, 3, "invalid tag"),
        ("{{json a}} {{jsno b}}", 1, 14, "did you mean `json`"),
        ("{{len (jsno b)}}", 1, 8, "did you mean `json`"),
    ] {
        let fault = syntax.check_template(template).unwrap_err();
        assert!(fault.message.contains(part), "{template:?}: {fault:?}");
        assert_eq!(
            (fault.line, fault.column),
            (Some(line), Some(column)),
            "{template:?}: {fault:?}"
        );
    }
    for (kind, text, line, column, part) in [
        ("script", "let a = 1;\nlet b = ;", 2, 9, "unexpected token"),
        ("script", "if (a) {\n  b(", 2, 5, "the script ends too early"),
        ("script", "a();\n}", 2, 2, "has no opening"),
        ("script", "const \u{e9} = '\u{65e5}'; const = 1", 1, 22, "SyntaxError"),
        ("expression", "1 +", 1, 4, "the expression ends too early"),
        ("expression", "a b", 1, 3, "SyntaxError"),
        (
            "expression",
            "Hello {{input.name}}",
            1,
            7,
            "SyntaxError: unexpected `{{`",
        ),
        ("expression", "1) + (2", 1, 2, "has no opening bracket"),
        ("expression", "{{a}} + * 2", 1, 9, "unexpected token"),
        ("expression", "f(a b)", 1, 5, "SyntaxError"),
    ] {
        let checked = match kind {
            "script" => syntax.check_script(text),
            _ => syntax.check_expression(text),
        };
        let fault = checked.unwrap_err();
        assert!(fault.message.contains(part), "{text:?}: {fault:?}");
        assert_eq!(
            (fault.line, fault.column),
            (Some(line), Some(column)),
            "{text:?}: {fault:?}"
        );
    }
}

#[test]
fn ten_thousand_expressions_are_checked_in_one_realm() {
    let syntax = TextSyntax::default();
    for n in 0..10_000 {
        assert_eq!(
            syntax.check_expression(&format!("variables.v{n} > {n} && input.x")),
            Ok(())
        );
    }
}

#[test]
fn a_variable_that_nothing_assigns_is_a_warning_with_a_suggestion() {
    let warnings = |expression: &str, prompt: &str| {
        let file = json!({"id": "w", "variables": [{"name": "total", "value": 0}],
            "nodes": [{"id": "s", "type": "START"}, {"id": "ask", "type": "LLM", "config": {"prompt": prompt}},
                {"id": "set", "type": "VARIABLE", "config": {"variableName": "count", "expression": expression}}, {"id": "e", "type": "END"}],
            "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "set"}, {"from": "set", "to": "e"}]});
        let loaded = load(&SourceFile::new("w.json", file.to_string()));
        let syntax = TextSyntax::default();
        let compiled = compile_loaded(
            &loaded,
            &CompileContext {
                syntax: &syntax,
                ..CompileContext::default()
            },
        );
        assert_eq!(compiled.faults, [], "{expression}, {prompt}");
        let found = compiled
            .warnings
            .into_iter()
            .filter(|warning| warning.code == FaultCode::UnknownName);
        found
            .map(|warning| (warning.pointer, warning.help.unwrap_or_default()))
            .collect::<Vec<_>>()
    };
    let help = || "did you mean `total`?".to_owned();
    for expression in ["variables.totl > 1", "variables['totl']", "1 + variables?.totl"] {
        let expected = [("/nodes/2/config/expression".to_owned(), help())];
        assert_eq!(warnings(expression, "p"), expected, "{expression}");
    }
    let expected = [("/nodes/1/config/prompt".to_owned(), help())];
    assert_eq!(warnings("1", "{{variables.totl}}"), expected);
    for expression in [
        "variables.total + variables.count",
        "variables.totl ?? 0",
        "variables['totl'] || 0",
        "variables.hasOwnProperty('x')",
    ] {
        assert_eq!(
            warnings(expression, "{{variables.total}} {{count}}"),
            [],
            "{expression}"
        );
    }
}
