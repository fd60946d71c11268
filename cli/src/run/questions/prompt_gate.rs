//! Shares the terminal between prompts and lines: while a prompt is open, lines are buffered.

use std::io::{Write, stderr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A terminal that prompts and lines share.
#[derive(Clone, Default)]
pub(in crate::run) struct PromptGate {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_open: bool,
    waiting: Vec<String>,
}

impl PromptGate {
    /// Writes lines at once, or buffers them while a prompt is open.
    pub(in crate::run) fn write(&self, lines: &[String]) {
        let mut state = self.state();
        if state.is_open {
            state.waiting.extend_from_slice(lines);
        } else {
            put(lines);
        }
    }

    /// Runs a prompt; lines that arrive during it are written after it.
    pub(in crate::run) fn ask<T>(&self, question: impl FnOnce() -> T) -> T {
        self.state().is_open = true;
        // The lock is not held while the person types, so `write` can buffer lines.
        let answer = question();
        let mut state = self.state();
        state.is_open = false;
        put(&std::mem::take(&mut state.waiting));
        answer
    }

    /// Closes an open prompt without an answer: buffered lines are written, starting on a new line.
    pub(in crate::run) fn clear(&self) {
        let mut state = self.state();
        if state.is_open {
            state.is_open = false;
            put(&[String::new()]);
            put(&std::mem::take(&mut state.waiting));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes lines at once.
pub(in crate::run) fn put(lines: &[String]) {
    let mut out = stderr().lock();
    for line in lines {
        // Ignore the error: without stderr the lines have no reader.
        let _ = writeln!(out, "{line}");
    }
}
