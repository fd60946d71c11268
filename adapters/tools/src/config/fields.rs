//! Reads a table of a config file field by field. Every fault is recorded with its location, an unknown field with the most similar
//! known one.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use pirn_definition::definition::{nearest, variable_name_fault};
use serde_json::{Map, Value};

use super::ConfigFault;

/// A table in the process of reading. [`Fields::finish`] reports the fields that were not read.
pub(super) struct Fields<'a> {
    entry: &'a str,
    pointer: String,
    left: Map<String, Value>,
    known: Vec<&'static str>,
    faults: &'a mut Vec<ConfigFault>,
}

impl<'a> Fields<'a> {
    /// Creates a reader of the table `fields` at `pointer` in the entry `entry` (a tool's or a server's name).
    pub(super) fn new(
        entry: &'a str,
        pointer: impl Into<String>,
        fields: Map<String, Value>,
        faults: &'a mut Vec<ConfigFault>,
    ) -> Self {
        Self {
            entry,
            pointer: pointer.into(),
            left: fields,
            known: Vec::new(),
            faults,
        }
    }

    /// Records a fault at the field `name`, or at the table if the name is empty.
    pub(super) fn fault(&mut self, name: &str, message: impl Into<String>) {
        let pointer = if name.is_empty() {
            self.pointer.clone()
        } else {
            format!("{}/{name}", self.pointer)
        };
        self.faults.push(ConfigFault::new(self.entry, pointer, message));
    }

    /// Returns whether a field exists and was not read yet.
    pub(super) fn has(&self, name: &str) -> bool {
        self.left.contains_key(name)
    }

    /// Marks fields as read: the fault of the table was already reported.
    #[cfg(feature = "mcp")]
    pub(super) fn forget(&mut self, names: &[&'static str]) {
        self.known.extend(names);
        for name in names {
            self.left.remove(*name);
        }
    }

    /// Returns the value of a field.
    pub(super) fn value(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.left.remove(name)
    }

    /// A text.
    pub(super) fn text(&mut self, name: &'static str) -> Option<String> {
        match self.value(name)? {
            Value::String(text) => Some(text),
            _other => {
                self.fault(name, "must be a text");
                None
            }
        }
    }

    /// Reads a required string that must not be empty.
    pub(super) fn required(&mut self, name: &'static str) -> String {
        let is_there = self.has(name);
        let text = self.text(name);
        match text {
            Some(text) if !text.is_empty() => text,
            Some(_) => {
                self.fault(name, "must not be empty");
                String::new()
            }
            None => {
                if !is_there {
                    self.fault(name, format!("`{name}` is missing"));
                }
                String::new()
            }
        }
    }

    /// Reads a list of strings.
    pub(super) fn texts(&mut self, name: &'static str) -> Vec<String> {
        let Some(value) = self.value(name) else {
            return Vec::new();
        };
        self.texts_of(name, value)
    }

    fn texts_of(&mut self, name: &str, value: Value) -> Vec<String> {
        let Value::Array(list) = value else {
            self.fault(name, "must be a list of texts");
            return Vec::new();
        };
        let mut texts = Vec::with_capacity(list.len());
        for (place, item) in list.into_iter().enumerate() {
            match item {
                Value::String(text) => texts.push(text),
                _other => self.fault(&format!("{name}/{place}"), "must be a text"),
            }
        }
        texts
    }

    /// Reads the required name of an environment variable.
    #[cfg(feature = "mcp")]
    pub(super) fn variable(&mut self, name: &'static str) -> String {
        let text = self.required(name);
        // An empty name is already reported as missing.
        if let Some(fault) = variable_name_fault(&text).filter(|_| !text.is_empty()) {
            self.fault(name, fault);
        }
        text
    }

    /// Reads a list of names of environment variables.
    pub(super) fn variables(&mut self, name: &'static str) -> Vec<String> {
        let texts = self.texts(name);
        for (place, text) in texts.iter().enumerate() {
            if let Some(fault) = variable_name_fault(text) {
                self.fault(&format!("{name}/{place}"), fault);
            }
        }
        texts
    }

    /// Reads a table of strings.
    pub(super) fn text_table(&mut self, name: &'static str) -> BTreeMap<String, String> {
        let Some(value) = self.value(name) else {
            return BTreeMap::new();
        };
        let Value::Object(table) = value else {
            self.fault(name, "must be a table of texts");
            return BTreeMap::new();
        };
        let mut texts = BTreeMap::new();
        for (key, value) in table {
            match value {
                Value::String(text) => {
                    texts.insert(key, text);
                }
                _other => self.fault(&format!("{name}/{key}"), "must be a text"),
            }
        }
        texts
    }

    /// Reads an integer within `range`.
    pub(super) fn number(&mut self, name: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.value(name)?;
        let number = value.as_u64().filter(|number| range.contains(number));
        if number.is_none() {
            self.fault(
                name,
                format!("must be a whole number from {} to {}", range.start(), range.end()),
            );
        }
        number
    }

    /// True or false.
    pub(super) fn flag(&mut self, name: &'static str) -> Option<bool> {
        let value = self.value(name)?;
        let flag = value.as_bool();
        if flag.is_none() {
            self.fault(name, "must be true or false");
        }
        flag
    }

    /// Reads one of `words` and returns its index.
    pub(super) fn word(&mut self, name: &'static str, words: &[&'static str]) -> Option<usize> {
        let text = self.text(name)?;
        let place = words.iter().position(|word| *word == text);
        if place.is_none() {
            let near = nearest(&text, words.iter().copied());
            let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            self.fault(name, format!("`{text}` is not one of {}{meant}", words.join(", ")));
        }
        place
    }

    /// Reads a table, to be read by another `Fields`. A fault shows `example`.
    pub(super) fn table(&mut self, name: &'static str, example: &str) -> Option<Map<String, Value>> {
        match self.value(name)? {
            Value::Object(table) => Some(table),
            _other => {
                self.fault(name, format!("must be a table: {example}"));
                None
            }
        }
    }

    /// Reads the fields of a nested table.
    pub(super) fn within<T>(
        &mut self,
        name: &str,
        table: Map<String, Value>,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> T {
        let mut fields = Fields::new(self.entry, format!("{}/{name}", self.pointer), table, self.faults);
        let value = read(&mut fields);
        fields.finish();
        value
    }

    /// Records faults for all fields that were not read.
    pub(super) fn finish(mut self) {
        self.note_unknown();
    }

    fn note_unknown(&mut self) {
        for name in std::mem::take(&mut self.left).into_iter().map(|(name, _)| name) {
            let near = nearest(&name, self.known.iter().copied());
            let meant = near.map_or_else(
                || format!("the fields are {}", self.known.join(", ")),
                // The value of `timeout` is probably in seconds.
                |near| {
                    if near.ends_with("Ms") && !name.to_lowercase().ends_with("ms") {
                        format!("did you mean `{near}`, in milliseconds?")
                    } else {
                        format!("did you mean `{near}`?")
                    }
                },
            );
            self.fault(&name.clone(), format!("unknown field `{name}`; {meant}"));
        }
    }
}
