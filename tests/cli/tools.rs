//! Tools of a config file, in `pirn run`.

use serde_json::{Value, json};

use crate::command::{pirn, root};
use crate::folder::Folder;

/// Returns the result of each call.
fn answers(folder: &Folder, more: &[&str]) -> Vec<String> {
    let file = folder.file("main.json");
    let ended = pirn(&[&["run", &file, "--output", "json"][..], more].concat());
    let report = ended.json();
    assert_eq!(report["status"], "COMPLETED", "{}", ended.stderr);
    let messages = report["conversation"]["messages"].as_array().expect("a list").iter();
    let results = messages.filter(|message| message["role"] == "tool");
    results
        .map(|message| message["content"].as_str().expect("text").to_owned())
        .collect()
}

/// The tool of a config that counts words.
pub(crate) const COUNT: &str = r#"
[[tools]]
name = "count"
description = "Counts the words of a text"
inputSchema = { type = "object", properties = { text = { type = "string" } }, required = ["text"] }
command = { program = "wc", args = ["-w"], stdin = "{{text}}" }
"#;

#[test]
fn tools_of_the_config_file_answer_the_model() {
    let made = json!([
        {"id": "1", "name": "count", "arguments": {"text": "one two; three"}},
        {"id": "2", "name": "count", "arguments": {}},
    ]);
    let folder = Folder::calling("beside", COUNT, &["count"], &made);
    let said = answers(&folder, &[]);
    assert_eq!(said[0].trim(), "3");
    assert_eq!(said[1], "wrong arguments for `count`: arguments.text is missing");
}

#[test]
fn a_call_that_needs_consent_is_refused_without_a_terminal_unless_allowed_by_options() {
    let config = COUNT.replace("name = \"count\"", "name = \"count\"\napproval = \"ask\"");
    let made = json!([{"id": "1", "name": "count", "arguments": {"text": "one two"}}]);
    let folder = Folder::calling("consent", &config, &["count"], &made);
    assert!(answers(&folder, &[])[0].contains("there is no terminal"));
    assert!(answers(&folder, &["--approve", "each"])[0].contains("there is no terminal"));
    assert!(answers(&folder, &["--virtual-time"])[0].contains("questions are not shown under virtual time"));
    assert_eq!(answers(&folder, &["--approve", "none"])[0].trim(), "2");
    assert_eq!(answers(&folder, &["--answer", "ask=allow"])[0].trim(), "2");
    let edited = r#"ask={"decision": "allow", "arguments": {"text": "one two three"}}"#;
    assert!(answers(&folder, &["--answer", edited])[0].trim().ends_with('3'));
}

#[test]
fn a_workflow_that_a_model_wrote_is_refused_without_a_terminal_unless_allowed_by_an_option() {
    let file = root().join("examples/dynamic/dynamic.json").display().to_string();
    let run = |more: &[&str]| {
        let ended = pirn(&[&["run", &file, "--input", "\"tea\"", "--output", "json"][..], more].concat());
        assert!(!ended.stderr.contains("unknown tool"), "{}", ended.stderr);
        let report = ended.json();
        let messages = report["conversation"]["messages"].as_array().expect("a list");
        let result = messages
            .iter()
            .find(|message| message["role"] == "tool")
            .expect("a result");
        result["content"].as_str().expect("text").to_owned()
    };
    assert!(run(&[]).contains("there is no terminal"));
    assert!(run(&["--approve", "none"]).contains("Coffee has more caffeine"));
    assert!(run(&["--answer", "plan=allow"]).contains("Coffee has more caffeine"));
}

#[test]
fn a_question_of_a_script_ends_its_run_without_a_terminal_unless_answered_by_an_option() {
    let folder = Folder::new("script-asks").with("main.js", "return await ask('Which colour?')");
    let file = folder.file("main.js");
    let ended = pirn(&["run", &file]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("waits for an answer (there is no terminal): Which colour?"),
        "{}",
        ended.stderr
    );
}

#[test]
fn an_agent_of_a_script_is_shown_with_its_label() {
    let code = "await agent('Hello', { label: 'greet' }); return await agent('Bye')";
    let folder = Folder::new("labels").with("main.js", code);
    let ended = pirn(&["run", &folder.file("main.js")]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    for line in ["called greet: completed", "called agent: completed"] {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
}

#[test]
fn an_invalid_config_does_not_run_and_a_missing_tool_is_named() {
    let made = json!([{"id": "1", "name": "count", "arguments": {"text": "x"}}]);
    let broken = Folder::calling("broken", &COUNT.replace("stdin =", "stdni ="), &["count"], &made);
    let ended = pirn(&["run", &broken.file("main.json")]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("`count`, /command/stdni: unknown field `stdni`; did you mean `stdin`?"),
        "{}",
        ended.stderr
    );
    let missing = Folder::calling("missing", COUNT, &["coutn"], &made);
    let ended = pirn(&["run", &missing.file("main.json")]);
    assert!(
        ended.stderr.contains("node ask names the unknown tool coutn"),
        "{}",
        ended.stderr
    );
}

#[test]
fn tools_of_a_config_are_listed_and_called_from_the_command_line() {
    let folder = Folder::calling("list", COUNT, &[], &json!([]));
    let config = folder.file("pirn.toml");
    let text = pirn(&["tools", "list", "--config", &config]);
    assert_eq!(
        text.stdout,
        "count (command wc)\n  Counts the words of a text\n    text: string\n"
    );
    let listed = pirn(&["tools", "list", "--config", &config, "--output", "json"]).json();
    assert_eq!(
        listed["tools"][0],
        json!({
            "name": "count", "description": "Counts the words of a text", "source": "command wc",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
            "timeoutMs": 60_000, "maxParallel": 8, "approval": "never", "approvalTimeoutMs": null,
        })
    );
    let called = pirn(&["tools", "call", "count", r#"{"text": "one two"}"#, "--config", &config]);
    assert_eq!((called.code, called.stdout.trim()), (Some(0), "2"));
    let elsewhere = Folder::new("list-elsewhere");
    let by_variable = [("PIRN_PROFILES", config.as_str())];
    let called = crate::command::pirn_in(elsewhere.path(), &["tools", "list"], &by_variable);
    assert_eq!(
        (called.code, &called.stdout),
        (Some(0), &text.stdout),
        "{}",
        called.stderr
    );
    for (arguments, code, words) in [
        (
            &["tools", "call", "count", "--config", &config][..],
            1,
            "arguments.text is missing",
        ),
        (
            &["tools", "call", "coutn", "--config", &config],
            2,
            "there is no tool coutn; there are: count",
        ),
        (&["tools", "call", "count", "{", "--config", &config], 2, "not JSON"),
        (&["tools", "list", "--config", "none.toml"], 2, "none.toml"),
    ] {
        let ended = pirn(arguments);
        assert!(
            ended.code == Some(code) && ended.stderr.contains(words),
            "{arguments:?}: {}",
            ended.stderr
        );
    }
}

#[test]
fn validate_checks_tools_and_profiles_like_run() {
    const SERVER: &str = "[[mcpServers]]\nid = \"files\"\ncommand = \"sh\"\n";
    let config = format!("{COUNT}\n{SERVER}\n[[profiles]]\nid = \"other\"\nprovider = \"echo\"\n");
    let folder = Folder::calling(
        "validate",
        &config,
        &["count", "coutn", "files_read", "git_*"],
        &json!([]),
    );
    let file = folder.file("main.json");
    let checked = pirn(&["validate", &file, "--output", "json"]);
    assert_eq!(checked.code, Some(0), "warnings leave it valid: {}", checked.stderr);
    let warnings = checked.json()["warnings"].clone();
    let found: Vec<(&Value, &Value)> = warnings
        .as_array()
        .expect("a list")
        .iter()
        .map(|warning| (&warning["code"], &warning["pointer"]))
        .collect();
    let pointer = |tool: u8| json!(format!("/workflows/0/nodes/1/config/tools/{tool}"));
    let code = json!("UNKNOWN_TOOL");
    assert_eq!(found, [(&code, &pointer(1)), (&code, &pointer(3))]);
    assert_eq!((&warnings[0]["line"], &warnings[0]["file"]), (&json!(1), &json!(file)));
    let shown = pirn(&["validate", &file]).stdout;
    for part in ["did you mean `count`?", "unknown tool `git_*`", "main.json:1:"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }

    let elsewhere = folder.file("other.toml");
    std::fs::write(&elsewhere, "").expect("writable");
    let count = |arguments: &[&str]| {
        let checked = pirn(&[&["validate", &file, "--output", "json"], arguments].concat());
        ["errors", "warnings"].map(|list| checked.json()[list].as_array().map_or(0, Vec::len))
    };
    assert_eq!(count(&["--profiles", &elsewhere]), [0, 4], "that config has no tools");
    std::fs::write(
        &file,
        std::fs::read_to_string(&file)
            .expect("readable")
            .replace("script\",\"prompt", "other\",\"prompt"),
    )
    .expect("writable");
    assert_eq!(count(&[]), [0, 2], "the profile is the config's");
    assert_eq!(count(&["--config", &elsewhere]), [1, 4], "and no other's");
    std::fs::remove_file(folder.file("pirn.toml")).expect("there");
    assert_eq!(count(&[]), [1, 0], "without a config, tools may come from code");

    std::fs::write(&elsewhere, "[[tools]]\nname = 5\n").expect("writable");
    let wrong = pirn(&["validate", &file, "--profiles", &elsewhere]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(2), ""));
    assert!(wrong.stderr.contains("must be a text"), "{}", wrong.stderr);
}

#[cfg(unix)]
#[test]
fn a_server_that_does_not_start_ends_the_command_with_its_stderr() {
    let config = "[[mcpServers]]\nid = \"bad\"\ncommand = \"sh\"\nargs = [\"-c\", \"echo no licence >&2; exit 4\"]\n";
    let folder = Folder::calling("server", config, &[], &json!([]));
    let (config, workflow) = (folder.file("pirn.toml"), folder.file("main.json"));
    for arguments in [&["tools", "list", "--config", &config][..], &["run", &workflow]] {
        let ended = pirn(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        assert!(
            ended
                .stderr
                .contains("MCP server `bad`: exit status: 4; stderr: no licence"),
            "{}",
            ended.stderr
        );
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_every_child_process() {
    use std::io::Write;
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    // The program and its child have a pipe open. Its reader reaches the end of the file when the last of them has exited.
    let script = "exec 3>\"$1\"; echo up >&3; (sleep 600) & sleep 600";
    let made = json!([{"id": "1", "name": "hold", "arguments": {}}]);
    // Messages from a client of `pirn mcp`.
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": {"name": "client", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "main", "arguments": {"input": 1}}}),
    ];
    // If the program is an MCP server, the signal arrives while it starts.
    for (name, signal, command, is_server) in [
        ("int", "-INT", &["run", "main.json"][..], false),
        ("term", "-TERM", &["run", "main.json"], false),
        ("hand", "-INT", &["tools", "call", "hold"], false),
        ("mcp", "-TERM", &["mcp", "main.json"], false),
        ("mcp-hup", "-HUP", &["mcp", "main.json"], false),
        ("run-starts", "-HUP", &["run", "main.json"], true),
        ("list-starts", "-INT", &["tools", "list"], true),
        ("mcp-starts", "-INT", &["mcp", "main.json"], true),
        (
            "serve-starts",
            "-TERM",
            &["serve", "main.json", "--listen", "127.0.0.1:0"],
            true,
        ),
    ] {
        let folder = Folder::calling(name, "", &["hold"], &made);
        let pipe = folder.file("pipe");
        let config = if is_server {
            format!("[[mcpServers]]\nid = \"hold\"\ncommand = \"sh\"\nargs = ['-c', '{script}', \"sh\", '{pipe}']\n")
        } else {
            format!(
                "[[tools]]\nname = \"hold\"\ndescription = \"Holds a pipe\"\ncommand = {{ program = \"sh\", args = ['-c', '{script}', \"sh\", '{pipe}'] }}\n"
            )
        };
        std::fs::write(folder.file("pirn.toml"), config).expect("writable");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        let mut child = crate::command::start_in(folder.path(), command, &[]);
        if command[0] == "mcp" {
            let stdin = child.stdin.as_mut().expect("piped");
            for message in &messages {
                writeln!(stdin, "{message}").expect("it reads");
            }
        }
        let (told, heard) = channel();
        std::thread::spawn(move || {
            use std::io::{BufRead, BufReader};
            let mut lines = BufReader::new(std::fs::File::open(pipe).expect("opened")).lines();
            let up = lines.next().expect("a line").expect("UTF-8");
            told.send(up).expect("somebody waits");
            told.send(format!("{} more", lines.count())).expect("somebody waits");
        });
        let hear = || heard.recv_timeout(Duration::from_secs(20));
        assert_eq!(hear().as_deref(), Ok("up"));
        let killed = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(killed.success());
        assert_eq!(hear().as_deref(), Ok("0 more"), "every writer is gone");
        // The client of `pirn mcp` keeps its end of the pipe open.
        let _stdin = child.stdin.take();
        let ended = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{name}: {said}");
        assert!(!is_server || !said.contains("hold"), "{name}: {said}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn processes_that_tools_leave_behind_do_not_stay_in_the_process_table() {
    const CONFIG: &str = r#"
[[tools]]
name = "leave"
description = "Leaves processes behind, in its group and in a session of their own"
inputSchema = { type = "object" }
command = { program = "sh", args = ["-c", "sleep 30 >&- 2>&- & setsid true & env -i setsid sleep 0.01 >&- 2>&- &"] }

[[tools]]
name = "count"
description = "Counts the children of Pirn that have ended"
inputSchema = { type = "object" }
command = { program = "sh", args = ["-c", "n=0; for f in /proc/[0-9]*/stat; do { read -r line <$f; } 2>&- || continue; set -- ${line##*) }; if [ $1 = Z ] && [ $2 = $PPID ]; then n=$((n+1)); fi; done; echo $n"] }
"#;
    let mut responses: Vec<Value> = (0..8)
        .map(|_| json!({"toolCalls": [{"name": "leave", "arguments": {}}]}))
        .collect();
    responses.extend([
        json!({"toolCalls": [{"name": "count", "arguments": {}}]}),
        json!({"content": "done"}),
    ]);
    let ask = json!({"profileId": "m", "prompt": "go", "tools": ["leave", "count"], "maxToolRounds": 20});
    let file = json!({
        "workflows": [{"id": "w", "edges": [{"from": "s", "to": "a"}, {"from": "a", "to": "e"}], "nodes": [
            {"id": "s", "type": "START"}, {"id": "a", "type": "LLM", "config": ask}, {"id": "e", "type": "END"}]}],
        "profiles": [{"id": "m", "provider": "scripted", "responses": responses}],
    });
    let folder = Folder::new("left-behind")
        .with("main.json", &file.to_string())
        .with("pirn.toml", CONFIG);
    let said = answers(&folder, &[]);
    assert_eq!(said.len(), 9, "{said:?}");
    // The three processes of the last call may not be reaped yet.
    let ended: usize = said[8].trim().parse().expect("a number");
    assert!(ended <= 3, "{said:?}");
}

#[test]
fn an_invalid_tool_is_reported_with_its_line() {
    let good = "[[tools]]\nname = \"good\"\ndescription = \"d\"\ncommand = { program = \"p\" }\n\n";
    let cases = [
        (
            "[[tools]]\nname = \"bad\"\ndescription = \"d\"\ncomand = { program = \"p\" }\n",
            "line 9: `bad`, /comand",
        ),
        (
            "[[tools]]\nname = \"bad\"\ndescription = 7\ncommand = { program = \"p\" }\n",
            "line 8: `bad`, /description",
        ),
        (
            "[[tools]]\nname = \"good\"\ndescription = \"d\"\ncommand = { program = \"p\" }\n",
            "line 7: `good`, /name: another tool",
        ),
        ("[[mcpServers]]\nid = \"bad\"\ncommand = 7\n", "line 8: `bad`, /command"),
    ];
    for (at, (wrong, told)) in cases.into_iter().enumerate() {
        let folder = Folder::calling(&format!("line-{at}"), &format!("{good}{wrong}"), &[], &json!([]));
        for arguments in [["tools", "list"], ["validate", "main.json"]] {
            let ended = crate::command::pirn_in(folder.path(), &arguments, &[]);
            assert_eq!(ended.code, Some(2), "{}", ended.stderr);
            assert!(ended.stderr.contains(told), "{told}: {}", ended.stderr);
        }
    }
    let json = r#"{"tools": [
        {"name": "bad", "description": "d",
         "comand": {"program": "p"}}]}"#;
    let folder = Folder::new("line-json").with("config.json", json);
    let ended = crate::command::pirn_in(folder.path(), &["tools", "list", "--config", "config.json"], &[]);
    assert!(ended.stderr.contains("line 3: `bad`, /comand"), "{}", ended.stderr);
}
