//! `--help`, `completions`, `man`, `--color`.

use crate::command::pirn;

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
