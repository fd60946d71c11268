//! The output of a node.

use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::size::{MAX_LEVELS, levels, memory, too_deep};
use crate::error::RunError;

/// The output of a node. An output can be built on first read: the output of a JOIN of many branches has many strings, and the
/// nodes after it usually read a few or none.
///
/// ```
/// # use pirn_definition::value::Output;
/// # use serde_json::json;
/// let output = Output::later(1, || json!({"made": "now"}));
/// assert_eq!(**output.value(), json!({"made": "now"}));
/// assert_eq!(**Output::from(json!(1)).value(), json!(1));
/// assert_eq!(**Output::default().value(), json!(null));
/// ```
#[derive(Clone, Default)]
pub struct Output(Representation);

#[derive(Clone, Default)]
enum Representation {
    /// Null, without an allocation: the initial output of a thread.
    #[default]
    Nothing,
    Value(Arc<Value>),
    Later(Arc<LazyValue>),
}

struct LazyValue {
    levels: usize,
    memory: u64,
    value: LazyLock<Arc<Value>, Box<dyn FnOnce() -> Arc<Value> + Send>>,
}

impl Output {
    /// Creates a value that is built once, when it is first read. `levels` is an upper bound of its nesting depth of lists and
    /// objects.
    pub fn later(levels: usize, make: impl FnOnce() -> Value + Send + 'static) -> Self {
        Self::later_of((levels, 0), make)
    }

    /// As [`Self::later`], with the memory that the value takes, in bytes.
    pub fn later_of((levels, memory): (usize, u64), make: impl FnOnce() -> Value + Send + 'static) -> Self {
        let value = LazyLock::new(Box::new(|| Arc::new(make())) as Box<_>);
        Self(Representation::Later(Arc::new(LazyValue { levels, memory, value })))
    }

    /// Returns the memory of the value in bytes. The result does not depend on whether the value has been built.
    #[inline]
    pub fn memory(&self) -> u64 {
        match &self.0 {
            Representation::Nothing => 0,
            Representation::Value(value) => memory(value),
            Representation::Later(later) => later.memory,
        }
    }

    /// Returns the address of the shared allocation; `None` for null, which has no allocation.
    #[inline]
    pub fn address(&self) -> Option<usize> {
        match &self.0 {
            Representation::Nothing => None,
            Representation::Value(value) => Some(Arc::as_ptr(value) as usize),
            Representation::Later(later) => Some(Arc::as_ptr(later) as usize),
        }
    }

    /// Returns the nesting depth of lists and objects, or an upper bound; counted up to one more than [`MAX_LEVELS`]. A value
    /// that has not been built is not built for this.
    #[inline]
    pub fn levels(&self) -> usize {
        match &self.0 {
            Representation::Nothing => 0,
            Representation::Value(value) => levels(value),
            Representation::Later(later) => later.levels,
        }
    }

    /// Returns the output if it may be the output of a node.
    ///
    /// # Errors
    /// `SCRIPT_LIMIT_EXCEEDED` beyond [`MAX_LEVELS`]: a loop that wraps its earlier value must not overflow the stack.
    #[inline]
    pub fn within_limits(self) -> Result<Self, RunError> {
        if self.levels() > MAX_LEVELS {
            return Err(too_deep().into());
        }
        Ok(self)
    }

    /// Returns the value, and builds it if necessary.
    #[inline]
    pub fn value(&self) -> &Arc<Value> {
        static NOTHING: LazyLock<Arc<Value>> = LazyLock::new(Arc::default);
        match &self.0 {
            Representation::Nothing => &NOTHING,
            Representation::Value(value) => value,
            Representation::Later(later) => &later.value,
        }
    }
}

impl From<Arc<Value>> for Output {
    #[inline]
    fn from(value: Arc<Value>) -> Self {
        Self(Representation::Value(value))
    }
}

impl From<Value> for Output {
    #[inline]
    fn from(value: Value) -> Self {
        Arc::new(value).into()
    }
}

impl PartialEq for Output {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Output {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_lazy_output_is_made_once_on_first_access() {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let output = Output::later(0, || Value::from(MADE.fetch_add(1, Ordering::Relaxed)));
        let copy = output.clone();
        assert_eq!(MADE.load(Ordering::Relaxed), 0);
        assert_eq!(**output.value(), 0);
        assert_eq!(**copy.value(), 0);
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_output_is_stored_as_its_value() {
        let output = Output::later(2, || serde_json::json!({"a": [1]}));
        let text = serde_json::to_string(&output).unwrap();
        assert_eq!(text, r#"{"a":[1]}"#);
        assert_eq!(serde_json::from_str::<Output>(&text).unwrap(), output);
    }
}
