//! Every command in the pages runs from the repository's root and prints the documented output.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::command::root;

/// Returns the pages with commands that a reader types.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// A command with its expected exit code and its expected output; an empty string accepts any output.
struct Typed {
    place: String,
    command: String,
    code: i32,
    printed: String,
}

fn typed(path: &PathBuf) -> Vec<Typed> {
    let text = fs::read_to_string(path).expect("readable");
    let mut found: Vec<Typed> = Vec::new();
    let (mut is_open, mut goes_on, mut has_command) = (false, false, false);
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            is_open = line == "```console";
            has_command = false;
            goes_on = false;
        } else if is_open && goes_on {
            let last = found.last_mut().expect("a command");
            last.command.push(' ');
            last.command.push_str(line.trim().trim_end_matches('\\'));
            goes_on = line.ends_with('\\');
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_open) {
            let (command, code) = command.split_once(" # exit ").unwrap_or((command, "0"));
            goes_on = command.ends_with('\\');
            has_command = true;
            found.push(Typed {
                place: format!("{}:{}", path.display(), at + 1),
                command: command.trim_end_matches('\\').to_owned(),
                code: code.parse().expect("an exit code"),
                printed: String::new(),
            });
        } else if is_open && has_command {
            let last = found.last_mut().expect("a command");
            last.printed.push_str(line);
            last.printed.push('\n');
        }
    }
    found
}

#[cfg(unix)]
#[test]
fn every_command_in_the_pages_prints_the_documented_output() {
    let folder = PathBuf::from(env!("CARGO_BIN_EXE_pirn"));
    let folder = folder.parent().expect("a folder").display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let mut count = 0;
    for typed in pages().iter().flat_map(typed) {
        let command = typed.command.replace("cargo run -- ", "pirn ");
        // Sets the variable with which a script finds the binary.
        let command = command.replace("PIRN=\"cargo run --\"", "PIRN=pirn ");
        if !command.contains("pirn ") || command.starts_with("cargo ") {
            continue;
        }
        count += 1;
        let ended = Command::new("sh")
            .args(["-c", &command])
            .env("PATH", &path)
            .current_dir(root())
            .stdin(std::process::Stdio::null())
            .output()
            .expect("a shell");
        let (stdout, stderr) = (
            String::from_utf8_lossy(&ended.stdout),
            String::from_utf8_lossy(&ended.stderr),
        );
        assert_eq!(
            ended.status.code(),
            Some(typed.code),
            "{}: {command}\n{stdout}{stderr}",
            typed.place
        );
        assert!(
            typed.printed.is_empty() || stdout == typed.printed,
            "{}: {command}\n{stdout}",
            typed.place
        );
    }
    assert!(count >= 12, "{count} commands");
}
