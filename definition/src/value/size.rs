//! Limits on the values that expressions and templates build: a loop that wraps or doubles a value must end with an error, not
//! with a crash of the process.

use serde_json::Value;

use crate::error::ScriptFault;

/// Maximum size of a template's text, in bytes.
pub const MAX_TEXT: usize = 16 << 20;

/// Maximum nesting depth of lists and objects in a value of a run: its input, an event, an answer, the arguments of a tool call,
/// a script's or function's result, a node's output.
///
/// serde_json refuses JSON that is nested more than 127 levels deep. A record of a durable run contains the value inside other
/// objects and lists: values of 118 and more levels could be written, but not read again. The difference leaves 27 levels for
/// records, sessions, reports and exported lines.
pub const MAX_LEVELS: usize = 100;

/// Maximum size of an object of templates, in bytes.
const MAX_VALUE: usize = 64 << 20;

/// Bytes that a list entry or a field counts in addition to its text.
const PART: usize = 64;

/// Returns the nesting depth of lists and objects in `value`, counted up to one more than [`MAX_LEVELS`].
pub fn levels(value: &Value) -> usize {
    levels_up_to(MAX_LEVELS, value)
}

/// Returns the nesting depth of lists and objects in `value`, counted up to one more than `most`, which also bounds the recursion.
pub(crate) fn levels_up_to(most: usize, value: &Value) -> usize {
    let inside = |value: &Value| most.checked_sub(1).map_or(0, |most| levels_up_to(most, value));
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => 1 + items.iter().map(inside).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(inside).max().unwrap_or(0),
    }
}

/// Estimates the memory of a value in bytes. The estimate is equal on all machines and in all processes.
pub fn memory(value: &Value) -> u64 {
    /// An element of a list, or the target of a pointer.
    const VALUE: u64 = 32;
    /// Overhead of an allocation.
    const ALLOCATED: u64 = 16;
    /// A field of an object, without its value and the text of its name.
    const FIELD: u64 = 48;
    VALUE
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => ALLOCATED + text.len() as u64,
            Value::Array(items) => ALLOCATED + items.iter().map(memory).sum::<u64>(),
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| FIELD + name.len() as u64 + memory(value);
                ALLOCATED + fields.iter().map(field).sum::<u64>()
            }
        }
}

/// Returns the fault of a value that has more than [`MAX_LEVELS`].
pub fn too_deep() -> ScriptFault {
    ScriptFault::limit(TOO_DEEP.to_string())
}

/// The only value of [`TooDeep`].
pub const TOO_DEEP: TooDeep = TooDeep;

/// Error of a value that has more than [`MAX_LEVELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value is nested more than {MAX_LEVELS} levels deep")]
pub struct TooDeep;

/// True if `value` has more than [`MAX_LEVELS`].
#[inline]
pub fn is_too_deep(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_)) && levels(value) > MAX_LEVELS
}

/// True if one of the values of `fields`, with the object around it, has more than [`MAX_LEVELS`].
pub fn has_too_deep(fields: &serde_json::Map<String, Value>) -> bool {
    fields.values().any(|value| levels(value) >= MAX_LEVELS)
}

/// Remaining size in bytes of a value that is built from others.
#[derive(Debug)]
pub struct ValueBudget(usize);

impl Default for ValueBudget {
    fn default() -> Self {
        Self(MAX_VALUE)
    }
}

impl ValueBudget {
    /// Subtracts the size of `value`, which will be nested in `inside` lists and objects.
    ///
    /// # Errors
    /// `SCRIPT_LIMIT_EXCEEDED` if the remaining size is too small.
    pub fn take(&mut self, value: &Value, inside: usize) -> Result<(), ScriptFault> {
        let mut rest = Vec::new();
        self.take_one(value, inside, &mut rest)?;
        while let Some((value, inside)) = rest.pop() {
            self.take_one(value, inside, &mut rest)?;
        }
        Ok(())
    }

    fn take_one<'a>(
        &mut self,
        value: &'a Value,
        inside: usize,
        rest: &mut Vec<(&'a Value, usize)>,
    ) -> Result<(), ScriptFault> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.spend(PART),
            Value::String(text) => self.spend(PART + text.len()),
            Value::Array(_) | Value::Object(_) if inside >= MAX_LEVELS => Err(too_deep()),
            Value::Array(items) => {
                rest.extend(items.iter().map(|item| (item, inside + 1)));
                self.spend(PART)
            }
            Value::Object(fields) => {
                rest.extend(fields.values().map(|field| (field, inside + 1)));
                self.spend(PART + fields.keys().map(String::len).sum::<usize>())
            }
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), ScriptFault> {
        self.0 = self
            .0
            .checked_sub(bytes)
            .ok_or_else(|| ScriptFault::limit(format!("the value takes more than {MAX_VALUE} bytes")))?;
        Ok(())
    }
}
