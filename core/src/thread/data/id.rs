//! Thread ids.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Id of a thread: the run's id, a full stop, and the number of the thread in the run. Formatted on first access, because the ids
/// of most branches are never read.
///
/// ```
/// # use pirn_core::thread::ThreadId;
/// assert_eq!(&**ThreadId::new("run-1".into(), 7).text(), "run-1.7");
/// ```
#[derive(Clone, Debug)]
pub struct ThreadId {
    run_id: Arc<str>,
    no: u32,
    text: OnceLock<Arc<str>>,
}

impl ThreadId {
    /// Creates the id of thread number `no` of a run.
    pub fn new(run_id: Arc<str>, no: u32) -> Self {
        Self {
            run_id,
            no,
            text: OnceLock::new(),
        }
    }

    /// Returns the id as text.
    pub fn text(&self) -> &Arc<str> {
        self.text.get_or_init(|| Self::written(&self.run_id, self.no as usize))
    }

    /// Parses the number in a thread's id. Returns `None` if the id does not belong to the run.
    pub fn number(run_id: &str, thread_id: &str) -> Option<u32> {
        // A run id may itself contain full stops, so that the prefix is compared instead of splitting the id.
        let digits = thread_id.strip_prefix(run_id)?.strip_prefix('.')?;
        // Accept the canonical form only: `07` and `+7` parse as 7 but are not ids.
        if digits.starts_with('+') || (digits.starts_with('0') && digits.len() > 1) {
            return None;
        }
        // Fails for anything that is no number, and for a number that no run reaches.
        digits.parse().ok()
    }

    /// Formats the id of thread number `before`. Does not use `format!`, because a fork formats many ids.
    pub fn written(run_id: &str, before: usize) -> Arc<str> {
        /// Maximum number of digits of a 64-bit number.
        const MOST: usize = 20;
        let (mut digits, mut first, mut rest) = ([0; MOST], MOST, before);
        // The second condition writes one digit for the number 0.
        while rest > 0 || first == MOST {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        // One allocation for any number; the conversion to `Arc<str>` copies the text to its exact length.
        let mut text = String::with_capacity(run_id.len() + 1 + MOST);
        text.push_str(run_id);
        text.push('.');
        for digit in &digits[first..] {
            text.push(char::from(*digit));
        }
        text.into()
    }
}

/// Creates an id from its text.
impl From<&str> for ThreadId {
    fn from(text: &str) -> Self {
        let text = Arc::from(text);
        Self {
            // Never read: `text` is set, so that nothing is formatted. Sharing the text avoids an allocation.
            run_id: Arc::clone(&text),
            no: 0,
            text: text.into(),
        }
    }
}

impl Serialize for ThreadId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ThreadId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::from(&*text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_id_is_the_run_id_a_full_stop_and_the_number_of_earlier_threads() {
        for count in [0, 1, 9, 10, 99, 100, 101, 12_345, usize::MAX] {
            assert_eq!(&*ThreadId::written("run-1", count), format!("run-1.{count}"));
        }
    }

    #[test]
    fn a_thread_id_round_trips() {
        let id = ThreadId::new("r".into(), 12);
        let again: ThreadId = serde_json::from_value(serde_json::json!(id)).unwrap();
        assert_eq!(&**again.text(), "r.12");
    }
}
