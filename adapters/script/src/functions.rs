//! The interface between CODE and its host: functions and the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_core::thread::ScriptLogs;
use serde_json::Value;

/// A host function that CODE can call by name. It runs on the script's thread, and its time counts as the script's; an error is
/// thrown in the script.
pub type HostFunction = Arc<dyn Fn(Vec<Value>) -> Result<Value, String> + Send + Sync>;

/// Functions of the host by name.
#[derive(Clone, Default)]
pub struct HostFunctions(BTreeMap<Arc<str>, HostFunction>);

impl HostFunctions {
    /// Returns the functions with this one added: `functions.with("double", |arguments| ...)`.
    #[must_use]
    pub fn with(
        mut self,
        name: impl Into<Arc<str>>,
        function: impl Fn(Vec<Value>) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.insert(name, Arc::new(function));
        self
    }

    /// Adds a function, replacing one of equal name.
    pub fn insert(&mut self, name: impl Into<Arc<str>>, function: HostFunction) {
        self.0.insert(name.into(), function);
    }

    /// Returns the names, in order.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// Calls a function.
    ///
    /// # Errors
    /// Fails if the function fails or does not exist.
    pub fn call(&self, name: &str, arguments: Vec<Value>) -> Result<Value, String> {
        match self.0.get(name) {
            Some(function) => function(arguments),
            None => Err("there is no such function".to_owned()),
        }
    }
}

impl std::fmt::Debug for HostFunctions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The log of a script, written by `console.log` and similar functions: the first lines, and the number of dropped ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    lines: Vec<(Arc<str>, String)>,
    bytes: usize,
    dropped: u64,
}

impl Logs {
    /// Maximum number of retained lines.
    pub const MOST_LINES: usize = 100;
    /// Maximum number of retained bytes.
    pub const MOST_BYTES: usize = 64 << 10;

    /// Converts the logs to the form that the engine receives.
    pub(super) fn into_script_logs(self) -> ScriptLogs {
        ScriptLogs {
            lines: self.lines,
            dropped: self.dropped,
        }
    }

    /// Returns each line with its level (`log`, `info`, `warn`, `error`, `debug`), in order.
    pub fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.lines.iter().map(|(level, line)| (level.as_ref(), line.as_str()))
    }

    /// Returns the number of dropped lines.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    #[cfg(feature = "javascript")]
    pub(super) fn add(&mut self, level: &str, line: &str) {
        if self.lines.len() >= Self::MOST_LINES || self.bytes + line.len() > Self::MOST_BYTES {
            self.dropped += 1;
            return;
        }
        self.bytes += line.len();
        self.lines.push((level.into(), line.to_owned()));
    }

    /// Adds to the number of dropped lines.
    #[cfg(feature = "javascript")]
    pub(super) fn drop_more(&mut self, lines: u64) {
        self.dropped = self.dropped.saturating_add(lines);
    }
}
