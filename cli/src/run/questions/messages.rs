//! Lines that a person types while a run executes: messages to the run's model.

use futures::executor::block_on;
use pirn::{MessageRefused, RunHandle, When};

use super::asking::{self, say};

/// Sends each further line of stdin to the run, until the run has ended. Lines that answer a question are not sent.
pub(in crate::run) fn send_typed(run: &RunHandle) {
    let run = run.clone();
    asking::read_lines(move |line| {
        if line.is_empty() {
            return true;
        }
        match block_on(run.say(line, When::BeforeNextRequest)) {
            Ok(()) => true,
            Err(refused) => {
                say(&format!("not sent: {line}: {refused}"));
                refused != MessageRefused::Ended
            }
        }
    });
}
