//! The recorded configuration of a durable run, see [`Settings`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pirn_conversation::conversation::{Estimator, Tokenizer};
use pirn_core::run::{Setting, Settings};
use pirn_definition::message::Part;
use serde_json::json;

/// Configuration of one run. Shared with its tokenizers, which may count on any thread.
#[derive(Clone, Default)]
pub(crate) struct SharedSettings(Arc<Mutex<Settings>>);

impl SharedSettings {
    pub(crate) fn new(settings: Settings) -> Self {
        Self(Arc::new(Mutex::new(settings)))
    }

    /// Locks the configuration. Poisoning is ignored: a panic of a tokenizer or profile cannot interrupt a change.
    pub(crate) fn get(&self) -> MutexGuard<'_, Settings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_fresh(&self) -> Vec<Setting> {
        self.get().take_fresh()
    }

    pub(crate) fn into_inner(self) -> Settings {
        // Taken out of the mutex, because tokenizers may hold clones.
        std::mem::take(&mut *self.get())
    }

    /// Wraps a tokenizer so that its counts are recorded.
    pub(crate) fn tokenizer(&self, name: Arc<str>, inner: Arc<dyn Tokenizer>) -> Arc<dyn Tokenizer> {
        Arc::new(RecordedTokenizer {
            name,
            inner,
            is_of_0_2_0: self.get().is_of_0_2_0,
            settings: self.clone(),
        })
    }
}

/// A tokenizer that returns recorded counts, and records those of `inner`.
struct RecordedTokenizer {
    name: Arc<str>,
    inner: Arc<dyn Tokenizer>,
    is_of_0_2_0: bool,
    settings: SharedSettings,
}

impl RecordedTokenizer {
    fn counted(&self, text: &str, count: impl FnOnce() -> u64) -> u64 {
        self.settings.get().count(Settings::digest(&self.name, text), count)
    }
}

impl Tokenizer for RecordedTokenizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn count(&self, text: &str) -> u64 {
        if *self.name == *Estimator::NAME {
            // The estimator is deterministic, so its counts need not be recorded.
            return if self.is_of_0_2_0 {
                Estimator::count_of_0_2_0(text)
            } else {
                Estimator.count(text)
            };
        }
        self.counted(text, || self.inner.count(text))
    }

    fn count_media(&self, part: &Part) -> u64 {
        // The provider of the profile determines the count.
        self.counted(&json!(part).to_string(), || self.inner.count_media(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_a_run_of_version_0_2_0_are_estimated_as_then() {
        let text = "καλημέρα নমস্কার 0123456789abcdef0123456789abcdef word 你好";
        let count = |is_of_0_2_0| {
            let settings = Settings::rebuilding(is_of_0_2_0);
            let tokenizer = SharedSettings::new(settings).tokenizer(Estimator::NAME.into(), Arc::new(Estimator));
            tokenizer.count(text)
        };
        // In quarters: 15 Greek and Bengali characters at 2, 36 letters and digits and 4 spaces at 1, 2 Chinese characters at 4.
        assert_eq!(count(true), (15_u64 * 2 + 36 + 4 + 8).div_ceil(4));
        assert_eq!(count(false), Estimator.count(text));
        assert!(count(false) > count(true));
    }
}
