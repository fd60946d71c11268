//! A reply slot that always answers: with a value, or with [`Lost`] when it is dropped unused.
//!
//! Every effect must be answered exactly once. Work that panics, is aborted or never answers drops the slot, and the drop
//! answers.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The reply slot was dropped: its work panicked, was aborted, or did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the work ended without an answer")]
pub struct Lost;

/// A one-shot reply slot.
///
/// ```
/// # use pirn_actors::answer::{Answer, Lost};
/// let (told, heard) = std::sync::mpsc::channel();
/// let forgotten = Answer::new({ let told = told.clone(); move |result| told.send(result).unwrap_or(()) });
/// Answer::new(move |result| told.send(result).unwrap_or(())).give(7);
/// drop(forgotten);
/// assert_eq!(heard.iter().collect::<Vec<_>>(), [Ok(7), Err(Lost)]);
/// ```
#[must_use = "dropping an Answer reports it as lost"]
pub struct Answer<T> {
    tell: Option<ReplyCallback<T>>,
}

type ReplyCallback<T> = Box<dyn FnOnce(Result<T, Lost>) + Send>;

impl<T> Answer<T> {
    /// A slot that passes its answer to `tell`. `tell` runs on the thread that answers or drops, possibly during unwinding, so it
    /// should only send. A panic in it is caught and logged.
    pub fn new(tell: impl FnOnce(Result<T, Lost>) + Send + 'static) -> Self {
        Self {
            tell: Some(Box::new(tell)),
        }
    }

    /// Sends the answer.
    pub fn give(mut self, value: T) {
        self.settle(Ok(value));
    }

    fn settle(&mut self, result: Result<T, Lost>) {
        // After `give`, the drop of `self` comes here a second time and finds no callback.
        let Some(tell) = self.tell.take() else { return };
        // The slot may be dropped during unwinding, where a panic that escapes aborts the process.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| tell(result))) {
            let message = crate::panic_text::panic_message(payload);
            tracing::error!(message, "an answer panicked on its way");
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        self.settle(Err(Lost));
    }
}

impl<T> std::fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    type Replies = Arc<Mutex<Vec<Result<u32, Lost>>>>;

    fn slot() -> (Answer<u32>, Replies) {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let answer = Answer::new({
            let heard = Arc::clone(&heard);
            move |result| {
                if let Ok(mut heard) = heard.lock() {
                    heard.push(result);
                }
            }
        });
        (answer, heard)
    }

    #[test]
    fn a_given_answer_is_delivered_once() {
        let (answer, heard) = slot();
        answer.give(3);
        assert_eq!(*heard.lock().expect("not poisoned"), [Ok(3)]);
    }

    #[test]
    fn a_dropped_answer_is_delivered_as_lost() {
        let (answer, heard) = slot();
        drop(answer);
        assert_eq!(*heard.lock().expect("not poisoned"), [Err(Lost)]);
    }

    #[test]
    fn an_answer_held_by_panicking_work_is_delivered_as_lost() {
        let (answer, heard) = slot();
        let work = catch_unwind(AssertUnwindSafe(move || {
            let _held = answer;
            panic!("work broke");
        }));
        assert!(work.is_err());
        assert_eq!(*heard.lock().expect("not poisoned"), [Err(Lost)]);
    }

    #[test]
    fn a_panic_in_the_delivery_of_a_lost_answer_does_not_abort_the_process() {
        let work = catch_unwind(|| {
            let _held = Answer::<u32>::new(|_| panic!("the way broke"));
            panic!("work broke");
        });
        assert!(work.is_err());
    }
}
