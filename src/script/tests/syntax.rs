//! Texts are checked without being run.

use crate::script::TextSyntax;

#[test]
fn good_texts_pass_and_do_not_run() {
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
fn bad_texts_are_faults_that_say_where() {
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
    let fault = syntax.check_script("let a = 1;\nlet b = ;").unwrap_err();
    assert_eq!(fault.line, Some(2), "{fault:?}");
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
