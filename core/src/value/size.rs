//! Limits on the values that expressions and templates build: a loop that wraps or doubles a value must end in an error,
//! not in the end of the process.

use serde_json::Value;

use crate::error::ScriptFault;

/// Bytes that a template's text may come to.
pub const MAX_TEXT: usize = 16 << 20;

/// Levels of lists and objects that a value of a run may have: its input, an event, an answer, the arguments of a tool call,
/// a script's or function's result, a node's output.
///
/// serde_json reads JSON that is nested at most 127 levels deep. A record of a durable run has its value inside other objects and
/// lists: values of 118 levels and more were written and never read again. The room between leaves 27 levels for records, sessions,
/// reports and exported lines.
pub const MAX_LEVELS: usize = 100;

/// Bytes that an object of templates may come to.
const MAX_VALUE: usize = 64 << 20;

/// Bytes that a list entry or a field counts beside its text.
const PART: usize = 64;

/// Nesting depth of lists and objects in `value`, counted up to one more than [`MAX_LEVELS`].
pub(crate) fn levels(value: &Value) -> usize {
    levels_up_to(MAX_LEVELS, value)
}

fn levels_up_to(most: usize, value: &Value) -> usize {
    let inside = |value: &Value| most.checked_sub(1).map_or(0, |most| levels_up_to(most, value));
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => 1 + items.iter().map(inside).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(inside).max().unwrap_or(0),
    }
}

/// Bytes of memory that a value takes, estimated: the same on every machine and in every process.
pub(crate) fn memory(value: &Value) -> u64 {
    /// A value in its list, or behind its pointer.
    const VALUE: u64 = 32;
    /// Bytes of an allocation beside its content.
    const ALLOCATED: u64 = 16;
    /// A field of an object, beside its value and the text of its name.
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

/// The fault of a value that has more than [`MAX_LEVELS`].
pub(crate) fn too_deep() -> ScriptFault {
    ScriptFault::limit(TOO_DEEP.to_string())
}

/// The reason why a value is refused that has more than [`MAX_LEVELS`].
pub const TOO_DEEP: TooDeep = TooDeep;

/// See [`TOO_DEEP`].
#[derive(Clone, Copy, Debug)]
pub struct TooDeep;

impl std::fmt::Display for TooDeep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the value is nested more than {MAX_LEVELS} levels deep")
    }
}

/// True if `value` has more than [`MAX_LEVELS`].
pub fn is_too_deep(value: &Value) -> bool {
    levels(value) > MAX_LEVELS
}

/// True if one of the values of `fields` does, with the object around it.
pub fn has_too_deep(fields: &serde_json::Map<String, Value>) -> bool {
    fields.values().any(|value| levels(value) >= MAX_LEVELS)
}

/// The bytes left for a value that is put together from others.
pub(crate) struct ValueBudget(usize);

impl Default for ValueBudget {
    fn default() -> Self {
        Self(MAX_VALUE)
    }
}

impl ValueBudget {
    /// Takes room for `value`, which is to stand inside of so many lists and objects.
    ///
    /// # Errors
    /// `SCRIPT_LIMIT_EXCEEDED` where there is none.
    pub(crate) fn take(&mut self, value: &Value, inside: usize) -> Result<(), ScriptFault> {
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
