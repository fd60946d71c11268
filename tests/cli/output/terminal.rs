//! `pirn run` on a terminal: consent to tool calls, and lines that are redrawn.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};
use serde_json::{Value, json};

use crate::folder::Folder;

/// Time limit of every wait.
const LIMIT: Duration = Duration::from_secs(30);
const ROWS: u16 = 40;

/// A program on a pseudo-terminal, and the screen that a person would see.
pub(crate) struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    /// Chunks of output. The channel closes when no process has the terminal open.
    pieces: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    _master: Box<dyn portable_pty::MasterPty + Send>,
}

impl Terminal {
    fn start(columns: u16, arguments: &[&str]) -> Self {
        Self::of(ROWS, columns, arguments)
    }

    fn of(rows: u16, columns: u16, arguments: &[&str]) -> Self {
        let size = PtySize {
            rows,
            cols: columns,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_pirn"));
        command.args(arguments);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        let child = pair.slave.spawn_command(command).expect("the binary is built");
        let mut reader = pair.master.try_clone_reader().expect("readable");
        let (told, pieces) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Some systems report the end of a terminal as an error.
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                if told.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            keys: pair.master.take_writer().expect("writable"),
            pieces,
            screen: vt100::Parser::new(nonzero(rows), nonzero(columns), 1_000),
            _master: pair.master,
        }
    }

    /// Starts the demo.
    pub(crate) fn demo(columns: u16, more: &[&str]) -> Self {
        let root = crate::command::root();
        let at = |name: &str| root.join("examples/support-desk").join(name).display().to_string();
        let (workflow, conversation, pinned) = (at("workflow.json"), at("conversation.json"), at("pinned.json"));
        let input = format!("@{}", at("ticket.json"));
        let arguments = [
            "run",
            &workflow,
            "--conversation",
            &conversation,
            "--pinned",
            &pinned,
            "--input",
            &input,
        ];
        // The screen has enough rows that nothing scrolls away.
        Self::of(200, columns, &[&arguments, more].concat())
    }

    pub(crate) fn screen(&self) -> &vt100::Screen {
        self.screen.screen()
    }

    fn shown(&self) -> String {
        self.screen.screen().contents()
    }

    /// Returns the screen line by line, without the empty lines at its end.
    pub(crate) fn lines(&self) -> Vec<String> {
        let screen = self.screen.screen();
        let (_, columns) = screen.size();
        let rows = screen.rows(0, columns.get()).map(|row| row.trim_end().to_owned());
        let mut lines: Vec<String> = rows.collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    /// Reads until the screen shows `text`.
    #[track_caller]
    fn shows(&mut self, text: &str) {
        while !self.shown().contains(text) {
            match self.pieces.recv_timeout(LIMIT) {
                Ok(piece) => self.screen.process(&piece),
                Err(error) => panic!("{text:?} is not shown ({error}):\n{}", self.shown()),
            }
        }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal is there");
        self.keys.flush().expect("the terminal is there");
    }

    /// Waits for the program's exit and returns its exit code. `each` receives the screen after every chunk.
    #[track_caller]
    pub(crate) fn ends(&mut self, mut each: impl FnMut(&[String])) -> u32 {
        loop {
            match self.pieces.recv_timeout(LIMIT) {
                Ok(piece) => self.screen.process(&piece),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end:\n{}", self.shown()),
            }
            each(&self.lines());
        }
        self.child.wait().expect("it has ended").exit_code()
    }
}

fn nonzero(cells: u16) -> std::num::NonZero<u16> {
    std::num::NonZero::new(cells).expect("a terminal has cells")
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // After a failed test the process may still be running.
        self.child.kill().unwrap_or(());
    }
}

/// Returns a workflow whose model calls a tool that requires consent and then replies `done`.
fn asks_first(name: &str) -> Folder {
    let config = r#"
[[tools]]
name = "greet"
description = "Greets"
approval = "ask"
inputSchema = { type = "object", properties = { whom = { type = "string" } }, required = ["whom"] }
command = { program = "echo", args = ["hello {{whom}}"] }
"#;
    let call = json!({"id": "1", "name": "greet", "arguments": {"whom": "the\u{7} world"}});
    Folder::calling(name, config, &["greet"], &json!([call]))
}

/// Returns the answers to the tool's calls from the run's events.
fn answered(events: &str) -> Vec<String> {
    let text = std::fs::read_to_string(events).expect("written");
    let events = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|event: &Value| {
            ["TOOL_CALL_COMPLETED", "TOOL_CALL_FAILED"].contains(&event["type"].as_str().unwrap_or(""))
        });
    events
        .map(|event| event["result"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn shown_completed(lines: &[String]) -> bool {
    lines.iter().any(|line| line.contains("  main completed in "))
}

const QUESTION: &str = "run it? [y]es, [e]dit, or a reason to refuse:";

#[test]
fn a_call_runs_if_allowed_at_the_terminal_and_else_the_model_gets_the_reason() {
    for (name, typed, answer) in [
        ("yes", "y\n", "hello the\u{7} world"),
        ("no", "\n", "the call of `greet` was refused: the user refused"),
        (
            "why",
            "wrong person\n",
            "the call of `greet` was refused: the user refused: wrong person",
        ),
        // The end of the input (Ctrl-D).
        (
            "end",
            "\u{4}",
            "the call of `greet` was refused: no answer on the terminal",
        ),
    ] {
        let folder = asks_first(name);
        let events = folder.file("events.jsonl");
        let mut terminal = Terminal::start(100, &["run", &folder.file("main.json"), "--events", &events]);
        terminal.shows(QUESTION);
        let shown = terminal.shown();
        assert!(shown.contains("? greet {\"whom\":\"the\\u0007 world\"}"), "{shown}");
        assert!(
            terminal
                .lines()
                .iter()
                .any(|line| line.starts_with("  for node ask, thread ")),
            "{shown}"
        );
        terminal.types(typed);
        assert_eq!(terminal.ends(|_| {}), 0, "{name}: {}", terminal.shown());
        let answers = answered(&events);
        assert_eq!(answers.iter().map(|text| text.trim_end()).collect::<Vec<_>>(), [answer]);
        let lines = terminal.lines();
        let has = |line: &str| lines.iter().any(|shown| shown == line);
        assert!(
            has("  0.0 s  main: ask calls greet {\"whom\":\"the\\u0007 world\"}"),
            "a line of its own: {lines:#?}"
        );
        assert!(shown_completed(&lines) && has("  \"content\": \"done\","), "{lines:#?}");
    }
}

#[test]
fn a_calls_arguments_can_be_edited_at_the_terminal_until_they_are_valid() {
    let folder = asks_first("edit");
    let events = folder.file("events.jsonl");
    let mut terminal = Terminal::start(100, &["run", &folder.file("main.json"), "--events", &events]);
    terminal.shows(QUESTION);
    for (typed, said) in [("{", "not JSON"), ("{\"who\": 1}", "\"whom\"")] {
        terminal.types("e\n");
        terminal.shows("arguments, as JSON: ");
        terminal.types(&format!("{typed}\n"));
        terminal.shows(said);
    }
    terminal.types("e\n");
    terminal.types("{\"whom\": \"Ada\"}\n");
    assert_eq!(terminal.ends(|_| {}), 0, "{}", terminal.shown());
    assert_eq!(answered(&events), ["hello Ada\n"]);
}

#[test]
fn a_question_at_the_terminal_is_repeated_until_the_answer_is_valid() {
    let workflow = json!({"id": "asks", "nodes": [
        {"id": "s", "type": "START"},
        {"id": "color", "type": "USER_INTERACTION", "config": {"question": "Which color?", "choices": ["red", "blue"]}},
        {"id": "e", "type": "END", "config": {"output": "output.answer"}}],
        "edges": [{"from": "s", "to": "color"}, {"from": "color", "to": "e"}]});
    let folder = Folder::new("questions").with("main.json", &workflow.to_string());
    let mut terminal = Terminal::start(100, &["run", &folder.file("main.json")]);
    terminal.shows("  > ");
    terminal.types("green\n");
    terminal.shows("expected one of \"red\", \"blue\"");
    terminal.types("2\n");
    assert_eq!(terminal.ends(|_| {}), 0, "{}", terminal.shown());
    let lines = terminal.lines();
    for line in ["? Which color?", "  1) red", "  2) blue"] {
        assert!(lines.iter().any(|shown| shown == line), "{line}: {lines:#?}");
    }
    assert!(
        lines.iter().any(|shown| shown.ends_with("asks: answered: blue")),
        "{lines:#?}"
    );
}

#[test]
fn an_elicitation_of_a_tool_is_answered_field_by_field_at_the_terminal() {
    let Some(server) = crate::servers::everything() else {
        return;
    };
    let config = format!(
        "[[mcpServers]]\nid = \"ev\"\ncommand = \"node\"\nargs = ['{}', \"stdio\"]\n",
        server.display()
    );
    let call = json!({"id": "1", "name": "ev_trigger-elicitation-request", "arguments": {}});
    for (name, declines) in [("elicits", false), ("elicits-in-vain", true)] {
        let folder = Folder::calling(name, &config, &["ev_*"], &json!([call]));
        let events = folder.file("events.jsonl");
        // The terminal is wide enough for each question to fit on one line.
        let mut terminal = Terminal::start(200, &["run", &folder.file("main.json"), "--events", &events]);
        terminal.shows("? ev_trigger-elicitation-request asks: ");
        terminal.shows("  name (Your full, legal name; empty declines): ");
        if declines {
            terminal.types("\n");
        } else {
            terminal.types("Ada\n");
            terminal.shows("; y or n): ");
            terminal.types("maybe\n");
            terminal.shows("    expected y or n");
            terminal.types("y\n\n\n\n\n");
            terminal.shows("  integer (");
            terminal.types("1000\n");
            terminal.shows("    expected a whole number from 1 to 100");
            terminal.types("7\n\n");
            terminal.shows("3) Joey, 4) Chandler");
            terminal.types("3\n");
            terminal.shows("several with commas");
            terminal.types("Piano, 5\n");
            terminal.shows("2) Green Lantern");
            terminal.types("Green Lantern\n\n\n");
        }
        assert_eq!(terminal.ends(|_| {}), 0, "{}", terminal.shown());
        let answer = answered(&events).remove(0);
        if declines {
            assert!(answer.contains("declined"), "{answer}");
            continue;
        }
        for part in ["Ada", "Joey", "hero-2", "7", "Piano", "Bass"] {
            assert!(answer.contains(part), "{part}: {answer}");
        }
    }
}

#[test]
fn ctrl_c_at_a_consent_question_ends_the_run_without_the_call() {
    let folder = asks_first("ctrl-c");
    let events = folder.file("events.jsonl");
    let mut terminal = Terminal::start(100, &["run", &folder.file("main.json"), "--events", &events]);
    terminal.shows(QUESTION);
    terminal.types("\u{3}");
    assert_eq!(terminal.ends(|_| {}), 130, "{}", terminal.shown());
    // A terminal discards pending output when an interrupt is typed, so the test checks the events and not the screen.
    let told = std::fs::read_to_string(&events).expect("written");
    assert!(told.contains("\"THREAD_CANCELLED\""), "{told}");
    assert_eq!(answered(&events), [""; 0]);
}

#[test]
fn a_workflow_that_a_model_wrote_is_shown_at_the_terminal_and_runs_if_allowed() {
    let file = crate::command::root()
        .join("examples/dynamic/dynamic.json")
        .display()
        .to_string();
    for (answer, told) in [("y\r", "compare"), ("too dear\r", "the user refused: too dear")] {
        let mut terminal = Terminal::of(100, 120, &["run", &file, "--input", "\"tea\"", "--output", "json"]);
        terminal.shows("run it?");
        for part in ["May this workflow run?", "up to 3 agents", "both<br/>FORK", "n0 --> n1"] {
            assert!(terminal.shown().contains(part), "{part}: {}", terminal.shown());
        }
        terminal.types(answer);
        assert_eq!(terminal.ends(|_| {}), 0, "{}", terminal.shown());
        assert!(terminal.shown().contains(told), "{told}: {}", terminal.shown());
    }
}

/// Returns a workflow with `count` waiting branches, each a little longer than the previous one, whose names exceed the width of
/// a narrow terminal.
fn many_branches(name: &str, count: usize) -> Folder {
    let paths: Vec<String> = (0..count)
        .map(|at| format!("a-branch-with-quite-a-long-name-{at:02}"))
        .collect();
    let waits = paths.iter().enumerate().map(|(at, path)| {
        let seconds = 0.2 + 0.03 * f64::from(u32::try_from(at).unwrap_or(0));
        json!({"id": format!("wait-{path}"), "type": "WAIT", "config": {"seconds": seconds}})
    });
    let ids: Vec<String> = paths.iter().map(|path| format!("wait-{path}")).collect();
    let mut nodes = vec![
        json!({"id": "s", "type": "START"}),
        json!({"id": "f", "type": "FORK", "config": {"forkPathIds": paths, "childNodeIds": ids}}),
        json!({"id": "j", "type": "JOIN", "config": {"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED"}}),
        json!({"id": "e", "type": "END", "config": {"output": "'all waited'"}}),
    ];
    nodes.extend(waits);
    let mut edges = vec![json!({"from": "s", "to": "f"}), json!({"from": "j", "to": "e"})];
    for id in &ids {
        edges.extend([json!({"from": "f", "to": id}), json!({"from": id, "to": "j"})]);
    }
    let workflow = json!({"id": "main", "nodes": nodes, "edges": edges});
    Folder::new(name).with("main.json", &workflow.to_string())
}

#[test]
fn redrawn_lines_fit_the_terminal_and_are_erased() {
    for (columns, count) in [(120, 20), (80, 20), (80, 10)] {
        let folder = many_branches(&format!("moves-{columns}-{count}"), count);
        let mut terminal = Terminal::start(columns, &["run", &folder.file("main.json")]);
        let mut most = 0;
        let code = terminal.ends(|lines| {
            let waiting = lines.iter().filter(|line| line.contains(" · "));
            most = most.max(waiting.count());
            let main = lines.iter().filter(|line| line.contains("main · j")).count();
            assert!(main <= 1, "drawn over the line before: {lines:#?}");
        });
        let lines = terminal.lines();
        assert_eq!(code, 0, "{lines:#?}");
        assert!((2..=8).contains(&most), "{most} lines moved");
        assert!(
            lines.iter().all(|line| !line.contains('·') && !line.contains('…')),
            "{lines:#?}"
        );
        // No line is missing or duplicated.
        let text = joined(&lines);
        assert!(lines[0].ends_with("  main: started"), "{lines:#?}");
        let forks = format!("main: f forks into {count} branches: a-branch");
        assert!(text.contains(&forks) && text.contains(" more"), "{text}");
        assert!(
            text.contains(&format!(
                "main: j joined by ALL_COMPLETED: {count} of {count} completed"
            )),
            "{text}"
        );
        let branches = text.matches("branch a-branch-with-quite-a-long-name-").count();
        assert_eq!(branches, if count > 12 { 0 } else { count }, "{text}");
        assert_eq!(text.matches("main completed in ").count(), 1, "{text}");
        assert_eq!(lines.last().map(String::as_str), Some("all waited"));
    }
}

/// Joins wrapped lines. A continuation line is indented further than the widest time.
fn joined(lines: &[String]) -> String {
    let mut text = String::new();
    for line in lines {
        if line.starts_with("          ") {
            text.push(' ');
            text.push_str(line.trim_start());
        } else {
            text.push('\n');
            text.push_str(line);
        }
    }
    text
}

/// The demo at two widths: no line exceeds the terminal, the replies of a trigger's model and of a loser are folded, and the
/// progress has at most 75 lines.
#[test]
fn the_demo_is_short_and_fits_the_terminal() {
    for columns in [80, 120] {
        let mut terminal = Terminal::demo(columns, &[]);
        let code = terminal.ends(|_| {});
        let lines = terminal.lines();
        assert_eq!(code, 0, "{lines:#?}");
        let end = lines.iter().position(|line| line == "{").expect("the result");
        let progress = &lines[..end];
        assert!(progress.len() <= 75, "{} lines: {progress:#?}", progress.len());
        let text = joined(progress);
        assert!(
            text.contains("characters; --verbose shows them)"),
            "the summary: {text}"
        );
        assert!(!text.contains("No objections"), "the loser: {text}");
        assert!(
            text.contains("8 threads (1 main, 6 branches, 1 triggered; 7 completed, 1 cancelled)"),
            "{text}"
        );
        assert!(text.contains("1 compression saved "), "{text}");
    }
}
