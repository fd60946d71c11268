//! Mistakes in command lines.

use super::{assert_reported, flow};
use crate::command::pirn_in;
use crate::folder::Folder;

#[test]
fn every_command_line_mistake_is_reported_with_a_remedy() {
    let folder = Folder::new("mistakes-line")
        .with("flow.json", &flow().to_string())
        .with("input.json", "{\"a\": 1}")
        .with("pirn.toml", "[[profiles]]\nid = \"assistant\"\nprovider = \"echo\"\n")
        .with("broken.toml", "[[profiles]\nid = 1\napiKey = \"very-secret\"\n")
        .with(
            "secret.toml",
            "[[profiles]]\nid = \"a\"\nprovider = \"openai\"\nmodel = \"m\"\napiKey = \"very-secret\" x\n",
        )
        .with("field.toml", "[[profile]]\nid = \"a\"\n")
        .with("service.toml", "[service]\nkeepEnded = 7\n");
    for (name, arguments, code, parts) in [
        ("no file", &["run", "flwo.json"][..], 2, &["cannot read flwo.json"][..]),
        (
            "a folder",
            &["run", "."],
            2,
            &["cannot read .", "it is a folder: name the file in it"],
        ),
        (
            "a text without quotes",
            &["run", "flow.json", "--input", "hello"],
            2,
            &["invalid --input", "help: ", "--input '\"hello\"'"],
        ),
        (
            "a file without @",
            &["run", "flow.json", "--input", "input.json"],
            2,
            &["invalid --input", "--input @input.json"],
        ),
        (
            "quotes that the shell has taken",
            &["run", "flow.json", "--input", "{a: 1}"],
            2,
            &["invalid --input", "single quotes around it"],
        ),
        (
            "a misspelt workflow",
            &["run", "flow.json", "--workflow", "flwo"],
            2,
            &["there is no workflow flwo; the files have flow", "did you mean flow?"],
        ),
        (
            "a misspelt option",
            &["run", "flow.json", "--inptu", "1"],
            2,
            &["--inptu", "--input"],
        ),
        (
            "a misspelt command",
            &["vaildate", "flow.json"],
            2,
            &["vaildate", "validate"],
        ),
        (
            "a misspelt profile",
            &["models", "check", "asistant"],
            2,
            &["there is no profile asistant", "did you mean assistant?"],
        ),
        (
            "a config that is no TOML",
            &["run", "flow.json", "--profiles", "broken.toml"],
            2,
            &["broken.toml", "line 1"],
        ),
        (
            "a field of a config that is none",
            &["run", "flow.json", "--profiles", "field.toml"],
            2,
            &["unknown field `profile`", "did you mean `profiles`?"],
        ),
        (
            "a wrong value for a service, in a command that is none",
            &["validate", "flow.json", "--profiles", "service.toml"],
            2,
            &["service.toml: [service]: ", "expected a string"],
        ),
        (
            "metadata without a value",
            &["run", "flow.json", "--metadata", "tenant"],
            2,
            &["'tenant' for '--metadata <NAME=VALUE>'", "the `=` is missing"],
        ),
        (
            "metadata that is said twice",
            &["run", "flow.json", "--metadata", "tenant=a", "--metadata", "tenant=b"],
            2,
            &["--metadata tenant= is given twice", "a name has one value"],
        ),
        (
            "a time that is none",
            &["run", "flow.json", "--timeout", "soon"],
            2,
            &["--timeout", "expected a number of seconds"],
        ),
    ] {
        assert_reported(name, &pirn_in(folder.path(), arguments, &[]), code, parts);
    }
    for output in ["text", "json"] {
        for config in ["secret.toml", "broken.toml"] {
            let ended = pirn_in(
                folder.path(),
                &["run", "flow.json", "--profiles", config, "--output", output],
                &[],
            );
            let said = format!("{}{}", ended.stdout, ended.stderr);
            assert!(ended.code == Some(2) && !said.contains("very-secret"), "{said}");
        }
    }
}

#[test]
fn a_command_on_a_store_refuses_a_wrong_setting_of_the_service() {
    let folder = Folder::new("mistakes-service").with("flow.json", &flow().to_string());
    let run = pirn_in(folder.path(), &["run", "flow.json", "--store", "runs.db"], &[]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let folder = folder.with("pirn.toml", "[service]\nkeepEnd = \"7d\"\n");
    let listed = pirn_in(folder.path(), &["runs", "list", "--store", "runs.db"], &[]);
    assert_reported(
        "a misspelt setting",
        &listed,
        2,
        &["pirn.toml: [service]: ", "`keepEnd`"],
    );
}

#[test]
fn the_layout_of_a_sub_agent_without_a_role_is_refused() {
    let input = br#"{"history": [{"role": "user", "content": "hi"}], "agent": "sub"}"#;
    let ended = crate::command::pirn_with(input, &["context", "layout"]);
    assert_eq!(ended.code, Some(1));
    let error = &ended.json()["error"];
    assert_eq!(
        (&error["code"], &error["pointer"]),
        (&"SUB_AGENT_ROLE_MISSING".into(), &"/pinned/role".into())
    );
}
