//! Programs of tools that leave processes behind, outside of their process group.

#[cfg(not(target_os = "linux"))]
pub(crate) const TESTS: &[(&str, fn())] = &[];
#[cfg(target_os = "linux")]
pub(crate) use linux::TESTS;

#[cfg(target_os = "linux")]
mod linux {
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use pirn::Engine;
    use pirn::tools::{ToolRegistry, tools_of};
    use serde_json::json;

    pub(crate) const TESTS: &[(&str, fn())] = &[(
        "child processes of a program end with it, also outside of its process group",
        child_processes,
    )];

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap_or(());
        }
    }

    /// Checks that no process of a script survives: each holds a pipe open, whose end is reached when the last one has exited.
    fn child_processes() {
        for (name, script) in [
            // An orphan in a new session.
            ("orphan", "setsid sleep 600 & echo done"),
            // The parent lives, and the call times out.
            ("child", "setsid sleep 600; echo done"),
            // A program without the mark in its environment, whose ancestors are running.
            ("unmarked", "env -i setsid sh -c 'sleep 600; true'; echo done"),
            // Each process starts the next one and ends.
            (
                "chain",
                "setsid sh -c 'setsid sh -c \"setsid sleep 600 &\" &' & echo done",
            ),
            // A chain of twelve such processes.
            (
                "long chain",
                "HOP='test $N = 0 && exec sleep 600; N=$((N - 1)) setsid sh -c \"$HOP\" &' N=12 sh -c 'eval \"$HOP\"' & echo done",
            ),
        ] {
            let folder = Folder(std::env::temp_dir().join(format!("pirn-leavers-{name}-{}", std::process::id())));
            std::fs::create_dir_all(&folder.0).expect("writable");
            let pipe = folder.0.join("pipe");
            assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
            let script = format!("exec 3>'{}'; echo up >&3; {script} >/dev/null", pipe.display())
                .replace("done >/dev/null", "done");
            let (gone, heard) = channel();
            std::thread::spawn(move || gone.send(std::fs::read_to_string(pipe)).unwrap_or(()));
            let config = json!({"tools": [{"name": "leave", "description": "leaves", "inputSchema": {"type": "object"}, "timeoutMs": 2_000,
                "command": {"program": "sh", "args": ["-c", script]}}]});
            let config = tools_of(config, Path::new("")).unwrap_or_else(|faults| panic!("{faults:?}"));
            let mut tools = ToolRegistry::new();
            tools.configure(config);
            let workflow = json!({"id": "leaves",
                "nodes": [{"id": "s", "type": "START"}, {"id": "n", "type": "TOOL", "config": {"tool": "leave"}}, {"id": "e", "type": "END"}],
                "edges": [{"from": "s", "to": "n"}, {"from": "n", "to": "e"}]});
            let engine = Engine::builder().tools(tools).workflows(workflow.to_string()).build();
            let engine = engine.unwrap_or_else(|error| panic!("{error}"));
            engine.run("leaves").start().expect("it starts").outcome_blocking();
            let left = heard.recv_timeout(Duration::from_secs(20));
            assert!(
                left.is_ok_and(|read| read.is_ok_and(|text| text == "up\n")),
                "{name}: somebody is left"
            );
            engine.shutdown_blocking(Duration::from_secs(5));
        }
    }
}
