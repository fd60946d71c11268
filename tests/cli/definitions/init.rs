//! `pirn init`.

use std::fs;

use crate::command::pirn_in;
use crate::folder::Folder;

#[test]
fn a_new_folder_is_valid_and_its_printed_commands_work() {
    let folder = Folder::new("init");
    let written = pirn_in(folder.path(), &["init", "hello"], &[]);
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    let commands: Vec<&str> = written
        .stdout
        .lines()
        .filter_map(|line| line.split_once("pirn "))
        .map(|pair| pair.1)
        .collect();
    assert_eq!(commands.len(), 2, "{}", written.stdout);
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        let ended = pirn_in(folder.path(), &words, &[]);
        assert_eq!(ended.code, Some(0), "{command}: {}{}", ended.stdout, ended.stderr);
    }
    let ran = pirn_in(
        &folder.path().join("hello"),
        &["run", "workflow.json", "--input", "@input.json"],
        &[],
    );
    assert!(ran.stdout.starts_with("Hello!"), "{}{}", ran.stdout, ran.stderr);
    let workflow = fs::read_to_string(folder.path().join("hello/workflow.json")).expect("written");
    assert!(workflow.contains(r#""$schema": "./pirn.schema.json""#), "{workflow}");
    assert!(folder.path().join("hello/pirn.schema.json").is_file());
}

#[test]
fn init_overwrites_nothing_and_writes_all_files_or_none() {
    let folder = Folder::new("init-again").with("pirn.toml", "# mine\n");
    let ended = pirn_in(folder.path(), &["init"], &[]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("pirn.toml") && ended.stderr.contains("help: "),
        "{}",
        ended.stderr
    );
    assert_eq!(folder.read("pirn.toml"), "# mine\n");
    assert!(!folder.path().join("workflow.json").exists());
}
