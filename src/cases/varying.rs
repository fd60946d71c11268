//! Parts of values that differ when a run is repeated: its times, and the numbers of its threads.

use std::ops::RangeInclusive;

use pirn_definition::Millis;
use serde_json::Value;

use crate::engine::durable::{Recording, RequestKey, SentMessage};
use crate::leaves::map_leaves;

/// Replaces the times and thread numbers of a run, so that a repeated run can be compared with the recorded one.
pub(super) struct Varying {
    /// Start of the ids of the run's threads.
    of_threads: String,
    /// Wall-clock times of the run; empty under virtual time, which is repeated exactly.
    times: RangeInclusive<Millis>,
}

impl Varying {
    /// Creates a value that replaces the thread numbers of a run.
    pub(super) fn of_threads(run_id: &str) -> Self {
        Self {
            of_threads: format!("{run_id}."),
            #[allow(clippy::reversed_empty_ranges)] // contains nothing
            times: 1..=0,
        }
    }

    /// Creates a value that replaces the thread numbers of a recorded run, and its times and those of a run that begins then and takes
    /// `elapsed_ms`.
    pub(super) fn of(recording: &Recording, elapsed_ms: Millis) -> Self {
        let mut varying = Self::of_threads(&recording.run_id);
        if recording.started_at > 0 {
            let end = recording.started_at.saturating_add(elapsed_ms);
            varying.times = recording.started_at..=recording.ended_at.max(end);
        }
        varying
    }

    /// Returns the value with the start of the run instead of each of its times, and `N` instead of thread numbers.
    pub(super) fn in_value(&self, value: &Value) -> Value {
        map_leaves(value, &|leaf| match leaf {
            Value::String(text) => Value::String(self.in_text(text)),
            Value::Number(number) if number.as_u64().is_some_and(|number| self.times.contains(&number)) => {
                Value::from(*self.times.start())
            }
            other => other.clone(),
        })
    }

    /// Returns the key of a request with [`Self::in_value`] of its messages.
    pub(super) fn in_key(&self, key: &RequestKey) -> RequestKey {
        let messages = key.messages.iter().map(|message| SentMessage {
            role: message.role,
            content: self.in_value(&message.content),
            tool_calls: message.tool_calls.iter().map(|call| self.in_value(call)).collect(),
        });
        RequestKey {
            messages: messages.collect(),
            ..key.clone()
        }
    }

    fn in_text(&self, text: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
            let (before, from) = rest.split_at(start);
            let end = from.find(|letter: char| !letter.is_ascii_digit());
            let (digits, after) = from.split_at(end.unwrap_or(from.len()));
            replaced.push_str(before);
            let in_front = text[..text.len() - from.len()].strip_suffix(self.of_threads.as_str());
            if in_front.is_some_and(|front| !front.ends_with(char::is_alphanumeric)) {
                replaced.push('N');
            } else if digits.parse().is_ok_and(|number| self.times.contains(&number)) {
                replaced.push_str(&self.times.start().to_string());
            } else {
                replaced.push_str(digits);
            }
            rest = after;
        }
        replaced + rest
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_and_thread_numbers_of_the_run_are_replaced_and_others_stay() {
        let recording = Recording {
            run_id: "r1".to_owned(),
            started_at: 1_796_004_687_800,
            ended_at: 1_796_004_687_900,
            ..Recording::default()
        };
        let varying = Varying::of(&recording, 200);
        for (value, expected) in [
            (json!(1_796_004_687_871_u64), json!(1_796_004_687_800_u64)),
            (json!(1_796_004_688_000_u64), json!(1_796_004_687_800_u64)),
            (json!(1_796_004_688_001_u64), json!(1_796_004_688_001_u64)),
            (json!([871, 1.5, null]), json!([871, 1.5, null])),
            (
                json!({"a": "at 1796004687871 in r1.12, 1.12 for1.2 xr1.3 [r1.4/2]"}),
                json!({"a": "at 1796004687800 in r1.N, 1.12 for1.2 xr1.3 [r1.N/2]"}),
            ),
        ] {
            assert_eq!(varying.in_value(&value), expected);
        }
        // Virtual time is repeated exactly.
        let virtual_time = Varying::of(&Recording::default(), 5);
        assert_eq!(virtual_time.in_value(&json!([1, "3"])), json!([1, "3"]));
    }
}
