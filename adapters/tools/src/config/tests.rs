//! Validation of config files.

#![allow(clippy::needless_pass_by_value)] // `json!` makes values, a borrow at every call says nothing

use super::*;
use serde_json::json;

fn faults(tool: Value) -> Vec<(String, String)> {
    let faults = tools_of(json!({ "tools": [tool] }), Path::new("")).expect_err("it has faults");
    faults.into_iter().map(|fault| (fault.pointer, fault.message)).collect()
}

fn tool(more: Value) -> Value {
    let mut tool = json!({"name": "t", "description": "d", "command": {"program": "p"}});
    for (name, value) in more.as_object().expect("a table") {
        tool[name] = value.clone();
    }
    tool
}

#[test]
fn an_unknown_field_suggests_the_nearest_valid_field() {
    for (wrong, pointer, part) in [
        (json!({"timeout_ms": 3}), "/timeout_ms", "did you mean `timeoutMs`?"),
        (
            json!({"timeout": 10}),
            "/timeout",
            "did you mean `timeoutMs`, in milliseconds?",
        ),
        (json!({"xyzzy": 3}), "/xyzzy", "the fields are name, description"),
        (
            json!({"command": {"program": "p", "arg": []}}),
            "/command/arg",
            "did you mean `args`?",
        ),
    ] {
        let found = faults(tool(wrong.clone()));
        assert_eq!(found.len(), 1, "{wrong}: {found:?}");
        assert!(found[0].0 == pointer && found[0].1.contains(part), "{found:?}");
    }
}

#[test]
fn a_command_or_request_of_a_wrong_type_is_reported_once() {
    for kind in ["command", "http"] {
        let mut wrong = json!({"name": "t", "description": "d"});
        wrong[kind] = json!("git log");
        let [(pointer, message)] = &faults(wrong)[..] else {
            panic!("{kind} is reported more or less than once");
        };
        assert_eq!(*pointer, format!("/{kind}"));
        assert!(
            message.starts_with(&format!("must be a table: {kind} = {{ ")),
            "{message}"
        );
    }
}

#[test]
fn a_wrong_value_is_reported_with_its_location() {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    for (wrong, pointer, part) in [
        (json!({"name": "a b"}), "/name", "letters"),
        (json!({"description": ""}), "/description", "empty"),
        (json!({"inputSchema": "x"}), "/inputSchema", "table"),
        (
            json!({"inputSchema": {"type": "string"}}),
            "/inputSchema/type",
            "object",
        ),
        (
            json!({"inputSchema": {"type": "object", "required": 5}}),
            "/inputSchema",
            "not a JSON Schema",
        ),
        (json!({"timeoutMs": 0}), "/timeoutMs", "from 1 to 86400000"),
        (json!({"maxOutputBytes": "many"}), "/maxOutputBytes", "whole number"),
        (json!({"approval": "asks"}), "/approval", "did you mean `ask`?"),
        (json!({"command": {"args": ["x"]}}), "/command/program", "missing"),
        (
            json!({"command": {"program": "p", "args": "x"}}),
            "/command/args",
            "list",
        ),
        (
            json!({"command": {"program": "p", "args": ["{{city"]}}),
            "/command/args/0",
            "no `}}`",
        ),
        (
            json!({"inputSchema": schema, "command": {"program": "p", "args": ["x", ["{{citty}}"]]}}),
            "/command/args/1/0",
            "did you mean `city`?",
        ),
        (
            json!({"command": {"program": "p", "okExitCodes": []}}),
            "/command/okExitCodes",
            "exit codes",
        ),
        (
            json!({"command": {"program": "p", "env": {"A": 1}}}),
            "/command/env/A",
            "text",
        ),
    ] {
        let found = faults(tool(wrong.clone()));
        assert_eq!(found.len(), 1, "{wrong}: {found:?}");
        assert!(found[0].0 == pointer && found[0].1.contains(part), "{wrong}: {found:?}");
    }
}

#[test]
fn the_fault_of_a_schema_does_not_quote_all_of_it() {
    let long = json!({"type": "object", "required": "x".repeat(100_000)});
    let found = faults(tool(json!({"inputSchema": long})));
    assert_eq!(found.len(), 1);
    let message = &found[0].1;
    assert!(message.len() < 500, "{}", message.len());
    assert!(message.starts_with("is not a JSON Schema: "), "{message}");
}

#[test]
fn an_argument_never_chooses_the_host() {
    let http = |url: &str| json!({"name": "t", "description": "d", "http": {"url": url}});
    for (url, part) in [
        ("{{input}}/x", "must begin with http"),
        ("https://{{input}}/x", "no host"),
        ("https://api{{input}}/x", "the host contains an argument"),
        ("https://user:{{input}}@api/x", "the host contains an argument"),
        ("ftp://host/x", "must begin with http"),
        ("https:///x/{{input}}", "no host"),
        ("https://a b/{{input}}", "not a URL"),
        ("https://api/x#{{input}}", "no `#`"),
    ] {
        let found = faults(http(url));
        assert_eq!(found.len(), 1, "{url}: {found:?}");
        assert!(
            found[0].0 == "/http/url" && found[0].1.contains(part),
            "{url}: {found:?}"
        );
    }
    for url in [
        "https://api/{{input}}",
        "http://127.0.0.1:80?q={{input}}",
        "https://api",
    ] {
        assert!(
            tools_of(json!({ "tools": [http(url)] }), Path::new("")).is_ok(),
            "{url}"
        );
    }
}

#[test]
fn a_tool_has_exactly_one_kind_and_a_unique_name() {
    assert!(
        faults(json!({"name": "t", "description": "d"}))[0]
            .1
            .contains("`command` or `http`")
    );
    assert!(
        faults(tool(json!({"http": {"url": "http://a"}})))[0]
            .1
            .contains("not both")
    );
    let twice = tools_of(json!({"tools": [tool(json!({})), tool(json!({}))]}), Path::new("")).expect_err("twice");
    assert_eq!((twice[0].entry.as_str(), twice[0].pointer.as_str()), ("t", "/name"));
    let nameless = tools_of(json!({"tools": [7, {"command": {"program": "p"}}]}), Path::new("")).expect_err("nameless");
    let entries: Vec<&str> = nameless.iter().map(|fault| fault.entry.as_str()).collect();
    assert_eq!(
        entries,
        ["tools #0", "tools #1", "tools #1"],
        "all faults at once: {nameless:?}"
    );
}

#[test]
fn paths_are_relative_to_the_folder_of_the_file_and_bare_names_are_not() {
    let read = |program: &str| {
        let file = json!({"tools": [tool(json!({"command": {"program": program, "cwd": "sub"}}))]});
        let config = tools_of(file, Path::new("/etc/flows")).expect("it is right");
        match config.tools[0].kind.clone() {
            Kind::Command(command) => (command.program, command.cwd),
            Kind::Http(_) => panic!("it is a command"),
        }
    };
    let sub = Some(Path::new("/etc/flows/sub").to_owned());
    assert_eq!(read("git"), ("git".into(), sub.clone()));
    assert_eq!(read("bin/x"), ("/etc/flows/bin/x".into(), sub.clone()));
    assert_eq!(read("/bin/x"), ("/bin/x".into(), sub));
}

#[test]
fn a_file_without_a_tools_section_has_no_tools() {
    for file in [json!([]), json!({}), json!({"profiles": []})] {
        assert!(tools_of(file, Path::new("")).expect("fine").tools.is_empty());
    }
}

#[test]
fn every_documentation_example_is_valid() {
    let text = include_str!("../../../../docs/tools.md");
    let blocks = text
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let mut count = 0;
    for block in blocks {
        let written: Value = toml::from_str(block).unwrap_or_else(|error| panic!("{error}: {block}"));
        if let Err(faults) = tools_of(written, Path::new("")) {
            panic!("{block}: {faults:?}");
        }
        count += 1;
    }
    assert!(count >= 2);
}

#[cfg(feature = "mcp")]
#[test]
fn a_fault_of_a_server_is_reported_with_its_location() {
    let server = |more: Value| {
        let mut server = json!({"id": "s", "command": "p"});
        for (name, value) in more.as_object().expect("a table") {
            server[name] = value.clone();
        }
        server
    };
    for (wrong, pointer, part) in [
        (json!({"id": "a.b"}), "/id", "characters"),
        (json!({"prefix": "a.b"}), "/prefix", "characters"),
        (json!({"arg": []}), "/arg", "did you mean `args`?"),
        (json!({"headers": {}}), "/headers", "unknown field"),
        (json!({"url": "http://a"}), "", "not both"),
        (json!({"restarts": -1}), "/restarts", "from 0"),
        (json!({"startTimeoutMs": 0}), "/startTimeoutMs", "from 1"),
    ] {
        let faults =
            tools_of(json!({"mcpServers": [server(wrong.clone())]}), Path::new("")).expect_err("it has faults");
        assert_eq!(faults.len(), 1, "{wrong}: {faults:?}");
        assert!(
            faults[0].pointer == pointer && faults[0].message.contains(part),
            "{wrong}: {faults:?}"
        );
    }
    let oauth = |more: Value| {
        let mut oauth = json!({"tokenUrl": "https://a.example/t", "clientId": "c", "clientSecretEnv": "S"});
        for (name, value) in more.as_object().expect("a table") {
            oauth[name] = value.clone();
        }
        json!({"id": "s", "url": "https://a.example", "oauth": oauth})
    };
    for (wrong, pointer, part) in [
        (json!({"id": "s"}), "", "needs a `command` or a `url`"),
        (json!({"id": "s", "url": "ftp://a"}), "/url", "must begin with"),
        (
            json!({"id": "s", "url": "http://a", "args": []}),
            "/args",
            "unknown field",
        ),
        (
            json!({"id": "s", "url": "http://a", "headersEnv": {"a b": "X"}}),
            "/headersEnv/a b",
            "header name",
        ),
        (
            oauth(json!({"tokenURL": "x"})),
            "/oauth/tokenURL",
            "did you mean `tokenUrl`?",
        ),
        (
            oauth(json!({"tokenUrl": "http://a.example/t"})),
            "/oauth/tokenUrl",
            "must begin with https://",
        ),
        (oauth(json!({"clientSecretEnv": ""})), "/oauth/clientSecretEnv", ""),
        (oauth(json!({"clientAuth": "body"})), "/oauth/clientAuth", "basic, post"),
        (
            {
                let mut both = oauth(json!({}));
                both["headersEnv"] = json!({"authorization": "TOKEN"});
                both
            },
            "/oauth",
            "`Authorization`",
        ),
    ] {
        let faults = tools_of(json!({ "mcpServers": [wrong] }), Path::new("")).expect_err("it has faults");
        assert!(
            faults.len() == 1 && faults[0].pointer == pointer && faults[0].message.contains(part),
            "{faults:?}"
        );
    }
    let twice = tools_of(
        json!({"mcpServers": [server(json!({})), server(json!({}))]}),
        Path::new(""),
    )
    .expect_err("twice");
    assert_eq!(twice[0].pointer, "/id");
}
