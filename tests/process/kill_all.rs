//! `kill_all` ends every child process. After it, this process can start no child, so that no test that starts one may be in this
//! binary.

use std::path::Path;
use std::time::Duration;

use pirn::tools::{McpServers, kill_all, tools_of};
use serde_json::json;

#[test]
fn an_exiting_process_ends_every_child_process_and_starts_no_further_one() {
    let folder = std::env::temp_dir().join(format!("pirn-kill-all-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("writable");
    let pipe = folder.join("pipe");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .expect("mkfifo");
    assert!(made.success());
    // A server that never answers and its child both hold the pipe open.
    let script = format!("exec 3>'{}'; echo up >&3; (sleep 600) & sleep 600", pipe.display());
    let config =
        json!({"mcpServers": [{"id": "x", "command": "sh", "args": ["-c", script], "startTimeoutMs": 60_000}]});
    let config = tools_of(config, Path::new("")).expect("it is right");
    let again = config.clone();
    let starting = std::thread::spawn(move || McpServers::start_blocking(config.mcp_servers));
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        use std::io::{BufRead, BufReader};
        let mut lines = BufReader::new(std::fs::File::open(pipe).expect("opened")).lines();
        told.send(lines.next().is_some()).expect("somebody waits");
        told.send(lines.next().is_some()).expect("somebody waits");
    });
    let hear = || heard.recv_timeout(Duration::from_secs(20));
    assert_eq!(hear(), Ok(true));
    kill_all();
    assert_eq!(hear(), Ok(false), "every writer is gone");
    let faults = starting.join().expect("it ends").expect_err("it was killed");
    assert!(faults[0].message.contains("signal: 9"), "{faults:?}");
    let refused = McpServers::start_blocking(again.mcp_servers).expect_err("no more");
    assert!(refused[0].message.contains("about to exit"), "{refused:?}");
    std::fs::remove_dir_all(&folder).unwrap_or(());
}
