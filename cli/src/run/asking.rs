//! A thread that prompts the person at the terminal, for one job at a time.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::sync::mpsc::{Sender, channel};

use super::prompt_gate::{self, PromptGate};
use crate::sanitize::sanitize_line;

/// A job that prompts, and processes the line that was typed.
type Job = Box<dyn FnOnce(&PromptGate) + Send>;

/// Handle of the prompting thread.
#[derive(Clone)]
pub(super) struct Asking(Sender<Job>);

impl Asking {
    /// Starts the thread; `None` if no person is at a terminal.
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

    /// Queues a job: it prompts when all earlier jobs are done.
    pub(super) fn ask(&self, job: impl FnOnce(&PromptGate) + Send + 'static) {
        // Ignore the error: the thread has panicked, so it prompts for nothing more.
        self.0.send(Box::new(job)).unwrap_or(());
    }
}

/// Writes a line to the person at the terminal.
pub(super) fn say(line: &str) {
    // Ignore the error: without stderr, writing the next prompt fails, and that ends the questions.
    let _ = writeln!(stderr().lock(), "{}", sanitize_line(line));
}

/// Prints a prompt and reads a line; `None` at the end of the input.
pub(super) fn line_after(words: &str) -> Option<String> {
    let mut line = String::new();
    write!(stderr().lock(), "{}", sanitize_line(words)).ok()?;
    stderr().flush().ok()?;
    match stdin().read_line(&mut line) {
        Ok(0) | Err(_) => {
            // End the prompt's line: the end of the input has no line break.
            prompt_gate::put(&[String::new()]);
            None
        }
        Ok(_) => Some(line.trim().to_owned()),
    }
}
