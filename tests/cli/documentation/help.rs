//! `--help`, `completions`, `man`, `--color`.

use std::path::Path;
use std::process::Command;

use crate::command::{pirn, pirn_in};
use crate::folder::Folder;

const COMMANDS: &[&str] = &[
    "init",
    "run",
    "runs",
    "sessions",
    "serve",
    "studio",
    "mcp",
    "validate",
    "explore",
    "chaos",
    "test",
    "graph",
    "context",
    "models",
    "schema",
    "skill",
    "tools",
    "completions",
    "man",
];

#[test]
fn every_command_has_examples_and_exit_codes_in_its_help() {
    let all = pirn(&["--help"]);
    assert!(
        all.stdout.contains("Exit codes: ") && all.stdout.contains("Examples:"),
        "{}",
        all.stdout
    );
    for command in COMMANDS {
        let help = pirn(&[command, "--help"]);
        assert_eq!(help.code, Some(0));
        assert!(all.stdout.contains(&format!("  {command} ")), "{command} is not listed");
        assert!(
            help.stdout.contains("Exit code") && help.stdout.contains("Example"),
            "{command}: {}",
            help.stdout
        );
        assert!(
            help.stdout.contains(&format!("pirn {command}")),
            "{command}: {}",
            help.stdout
        );
    }
}

#[test]
fn the_page_of_the_command_lists_every_command() {
    let page = std::fs::read_to_string(crate::command::root().join("docs/reference/cli.md")).expect("readable");
    let listed: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `pirn ")?.split('`').next())
        // This build has no feature of a shared server.
        .filter(|command| *command != "worker")
        .collect();
    assert_eq!(listed, COMMANDS);
}

#[test]
fn completions_and_the_man_page_have_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = pirn(&["completions", shell]);
        assert_eq!(script.code, Some(0), "{}", script.stderr);
        assert!(
            COMMANDS.iter().all(|command| script.stdout.contains(command)),
            "{shell}"
        );
    }
    let page = pirn(&["man"]).stdout;
    assert!(
        page.contains(".TH") && COMMANDS.iter().all(|command| page.contains(command)),
        "{page}"
    );
    let run = pirn(&["man", "run"]).stdout;
    assert!(run.contains("timeout") && run.contains("130"), "{run}");
    let none = pirn(&["man", "rnu"]);
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("there are init, run"), "{}", none.stderr);
}

/// Commands that print the completions of `pirn runs show `, given the file of the script and the store.
const COMPLETIONS_OF_IDS: &[(&str, &str)] = &[
    (
        "bash",
        "source \"$SCRIPT\"; COMP_WORDS=(pirn runs show --store \"$STORE\" ''); COMP_CWORD=5; _pirn_with_ids pirn '' \"$STORE\"
         printf '%s\\n' \"${COMPREPLY[@]}\"",
    ),
    (
        // The builtins of zsh's completion system exist only while a person types.
        "zsh",
        "compdef() { }; source \"$SCRIPT\"; compadd() { print -l -- \"${@[4,-1]}\" }
         words=(pirn runs show --store \"$STORE\" ''); CURRENT=6; _pirn",
    ),
    ("fish", "source $SCRIPT; complete -C \"pirn runs show --store $STORE \""),
];

#[test]
fn shells_complete_the_ids_of_the_runs_in_the_store() {
    let folder = Folder::new("help-ids").with(
        "main.json",
        r#"{"id": "main", "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END"}],
            "edges": [{"from": "start", "to": "end"}]}"#,
    );
    let store = folder.file("runs.db");
    for id in ["first", "second"] {
        let run = pirn_in(
            folder.path(),
            &["run", "main.json", "--store", &store, "--run-id", id],
            &[],
        );
        assert_eq!(run.code, Some(0), "{}", run.stderr);
    }
    let listed = pirn_in(folder.path(), &["runs", "list", "--ids", "--store", &store], &[]).stdout;
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let command = Path::new(env!("CARGO_BIN_EXE_pirn")).parent().expect("a folder");
    let path = format!("{}:{}", command.display(), std::env::var("PATH").unwrap_or_default());
    for (shell, completes) in COMPLETIONS_OF_IDS {
        let script = folder.file(shell);
        std::fs::write(&script, pirn(&["completions", shell]).stdout).expect("writable");
        let completed = Command::new(shell)
            .args(["-c", completes])
            .envs([("SCRIPT", &script), ("STORE", &store), ("PATH", &path)])
            .current_dir(folder.path())
            .output();
        let Ok(completed) = completed else {
            eprintln!("{shell} is not installed; its completion of ids was not tested");
            continue;
        };
        let (out, err) = (
            String::from_utf8_lossy(&completed.stdout),
            String::from_utf8_lossy(&completed.stderr),
        );
        assert_eq!((&*out, &*err), (&*listed, ""), "{shell}");
    }
}

#[test]
fn colours_are_shown_only_on_request() {
    let run = |color: &str| {
        let file = "../examples/tutorial/0-first.json";
        pirn(&["run", file, "--input", "1", "--color", color]).stderr
    };
    assert!(run("always").contains('\u{1b}'), "{}", run("always"));
    for without in ["auto", "never"] {
        assert!(!run(without).contains('\u{1b}'), "{without}");
    }
    let shown = |color: &str| pirn(&["validate", "seeds/none-such.json", "--color", color]).stderr;
    assert!(!shown("never").contains('\u{1b}'));
}

#[test]
fn wrong_usage_is_reported_as_json_under_output_json() {
    for arguments in [
        &["run", "x.json", "--output", "json", "--inptu", "1"][..],
        &["run", "nowhere.json", "--output", "json"],
        &["validate", "nowhere.json", "--output=json"],
        &["models", "check", "--profiles", "nowhere.toml", "--output", "json"],
        &["tools", "list", "--config", "nowhere.toml", "--output", "json"],
        &["run", "../examples/topic-of.json", "--input", "{", "--output", "json"],
        &[
            "run",
            "../examples/topic-of.json",
            "--workflow",
            "other",
            "--output",
            "json",
        ],
        &["explore", "nowhere.json", "--output", "json"],
    ] {
        let ended = pirn(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        let error = &ended.json()["error"];
        assert!(
            error["code"].is_string() && error["message"].is_string(),
            "{arguments:?}: {error}"
        );
        assert_eq!(ended.stderr, "", "{arguments:?}");
    }
}
