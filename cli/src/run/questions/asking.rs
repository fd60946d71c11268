//! Threads that prompt the person at the terminal, for one job at a time, and that read lines without a prompt.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::prompt_gate::{self, PromptGate};
use crate::output::sanitize::sanitize_line;

/// A job that prompts, and processes the line that was typed.
type Job = Box<dyn FnOnce(&PromptGate) + Send>;

/// Handle of the prompting thread.
#[derive(Clone)]
pub(in crate::run) struct Asking(Sender<Job>);

impl Asking {
    /// Starts the thread; `None` if no person is at a terminal.
    pub(in crate::run) fn start(gate: &PromptGate) -> Option<Self> {
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
    pub(in crate::run) fn ask(&self, job: impl FnOnce(&PromptGate) + Send + 'static) {
        // Ignore the error: the thread has panicked, so it prompts for nothing more.
        self.0.send(Box::new(job)).unwrap_or(());
    }
}

/// Writes a line to the person at the terminal.
pub(in crate::run) fn say(line: &str) {
    // Ignore the error: without stderr, writing the next prompt fails, and that ends the questions.
    let _ = writeln!(stderr().lock(), "{}", sanitize_line(line));
}

/// The thread that reads every line of stdin, if there is one. A prompt then receives its line from this thread: two readers would
/// compete for the lines.
static READER: OnceLock<Mutex<Reader>> = OnceLock::new();

#[derive(Default)]
struct Reader {
    /// Prompt that waits for the next line.
    prompt: Option<Sender<String>>,
    /// The input has ended.
    is_over: bool,
}

/// Makes every prompt from now on wait for [`read_lines`]. Called before the first prompt may appear.
pub(in crate::run) fn expect_lines() {
    READER.get_or_init(Mutex::default);
}

/// Starts a thread that passes each line of stdin to `typed`, except those that a prompt waits for. It ends with the input, or when
/// `typed` returns false: a later prompt then receives no line.
pub(in crate::run) fn read_lines(typed: impl Fn(&str) -> bool + Send + 'static) {
    let reader = READER.get_or_init(Mutex::default);
    let read = move || {
        let mut goes_on = true;
        while goes_on && let Some(line) = line() {
            match lock(reader).prompt.take() {
                // Ignore the error: the prompt is gone.
                Some(prompt) => prompt.send(line).unwrap_or(()),
                None => goes_on = typed(&line),
            }
        }
        let mut reader = lock(reader);
        reader.is_over = true;
        reader.prompt = None;
    };
    let thread = std::thread::Builder::new().name("pirn-lines".to_owned());
    if thread.spawn(read).is_err() {
        lock(reader).is_over = true;
    }
}

fn lock(reader: &Mutex<Reader>) -> MutexGuard<'_, Reader> {
    // Ignore poisoning: every critical section preserves the invariants.
    reader.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a line of stdin; `None` at the end of the input.
fn line() -> Option<String> {
    let mut line = String::new();
    match stdin().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim().to_owned()),
    }
}

/// Waits for the line that the reading thread receives next.
fn next_line(reader: &Mutex<Reader>) -> Option<String> {
    let (sender, next) = channel();
    let mut reader = lock(reader);
    if reader.is_over {
        return None;
    }
    reader.prompt = Some(sender);
    // The reading thread needs the lock to pass the line.
    drop(reader);
    next.recv().ok()
}

/// Prints a prompt and reads a line; `None` at the end of the input.
pub(in crate::run) fn line_after(words: &str) -> Option<String> {
    write!(stderr().lock(), "{}", sanitize_line(words)).ok()?;
    stderr().flush().ok()?;
    let typed = READER.get().map_or_else(line, next_line);
    if typed.is_none() {
        // End the prompt's line: the end of the input has no line break.
        prompt_gate::put(&[String::new()]);
    }
    typed
}
