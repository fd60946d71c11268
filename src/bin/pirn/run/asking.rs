//! The thread that asks the person at the terminal, one thing after the other.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::sync::mpsc::{Sender, channel};

use super::prompt_gate::{self, PromptGate};
use crate::visible::visible_line;

/// Asks, and does something with what is typed.
type Job = Box<dyn FnOnce(&PromptGate) + Send>;

/// A way to the person at the terminal.
#[derive(Clone)]
pub(super) struct Asking(Sender<Job>);

impl Asking {
    /// None where no person is at a terminal.
    pub(super) fn start(gate: &PromptGate) -> Option<Self> {
        if !stdin().is_terminal() {
            return None;
        }
        let (sender, jobs) = channel::<Job>();
        let gate = gate.clone();
        let thread = std::thread::Builder::new().name("pirn-asking".to_owned());
        let started = thread.spawn(move || {
            for job in jobs {
                job(&gate);
            }
        });
        started.ok().map(|_| Self(sender))
    }

    /// Asks when it is its turn.
    pub(super) fn ask(&self, job: impl FnOnce(&PromptGate) + Send + 'static) {
        // The thread ends with the process, or panicked: then nobody is asked any more.
        self.0.send(Box::new(job)).unwrap_or(());
    }
}

/// Writes a line for the person who is asked.
pub(super) fn say(line: &str) {
    // Where stderr is gone nobody is there to be asked, and the line that follows says so.
    let _ = writeln!(stderr().lock(), "{}", visible_line(line));
}

/// A line that was typed after these words; none at the end of the input.
pub(super) fn line_after(words: &str) -> Option<String> {
    let mut line = String::new();
    write!(stderr().lock(), "{}", visible_line(words)).ok()?;
    stderr().flush().ok()?;
    match stdin().read_line(&mut line) {
        Ok(0) | Err(_) => {
            // The end of the input ends no line.
            prompt_gate::put(&[String::new()]);
            None
        }
        Ok(_) => Some(line.trim().to_owned()),
    }
}
