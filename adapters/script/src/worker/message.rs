//! Messages between an engine and its worker: a head and its values, each a separate JSON document, so that a value may be nested
//! as deeply as elsewhere.
//!
//! A frame consists of the number of parts, and the length and bytes of each part; numbers are 32 bits, little endian.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::sync::Arc;

use pirn_definition::error::RunErrorCode;
use pirn_definition::script::{Names, ScopeValues, ScriptFault};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Logs;
use crate::quickjs::live_script::Upkeep;

/// Maximum parts of a frame; a snippet uses fewer values.
const MAX_PARTS: u32 = 1 << 20;

pub(super) struct WorkerMessage<H> {
    pub(super) head: H,
    pub(super) parts: Vec<Value>,
}

/// A message from an engine.
#[derive(Serialize, Deserialize)]
pub(super) enum Request {
    Value {
        source: Arc<str>,
        time_ms: u64,
        seen: ScopeManifest,
    },
    Truth {
        source: Arc<str>,
        time_ms: u64,
        seen: ScopeManifest,
    },
    Code {
        source: Arc<str>,
        time_ms: u64,
        memory: usize,
        stack: usize,
        seed: Option<u64>,
        functions: Vec<Arc<str>>,
        /// True for a script workflow: its state is the last part.
        is_workflow: bool,
        seen: ScopeManifest,
    },
    /// Continues the script workflow of the last request: its new inputs are the part.
    Resume { time_ms: u64 },
    /// The return value of a called function: a part, or an error.
    Returned { error: Option<String> },
}

/// A message from a worker.
#[derive(Serialize, Deserialize)]
pub(super) enum Reply {
    /// The script ended, or a step of a script workflow; a part is the result.
    Done {
        logs: Lines,
        /// Set if the script workflow is cached for [`Request::Resume`].
        upkeep: Option<Upkeep>,
    },
    /// There is no script workflow to continue.
    Gone,
    Fault {
        code: RunErrorCode,
        message: String,
        details: Option<Value>,
        logs: Lines,
    },
    /// The script calls a host function; the parts are its arguments.
    Call { name: Arc<str> },
}

/// The log of a script.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Lines {
    lines: Vec<(String, String)>,
    dropped: u64,
}

/// Names of the values visible to a snippet, in the order of a frame's parts.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct ScopeManifest {
    input: bool,
    output: bool,
    event: bool,
    variables: Vec<Arc<str>>,
    nodes: Vec<Arc<str>>,
    known: Vec<Arc<str>>,
}

impl ScopeManifest {
    /// Returns the values of a scope that a snippet with these names can see.
    pub(super) fn scope(names: &Names, values: &ScopeValues) -> (Self, Vec<Value>) {
        let names_one_of = |wanted: &[&str]| names.bare().any(|name| wanted.contains(&&**name));
        let seen = Self {
            input: names_one_of(&["input"]),
            output: names_one_of(&["output", "result"]),
            event: names_one_of(&["event"]) && values.event.is_some(),
            variables: values.variables.keys().cloned().collect(),
            nodes: values.nodes.keys().cloned().collect(),
            known: values.known.iter().cloned().collect(),
        };
        let fixed = [
            seen.input.then_some(&values.input),
            seen.output.then_some(&values.output),
            values.event.as_ref().filter(|_| seen.event),
        ];
        let all = fixed.into_iter().flatten();
        let all = all.chain(values.variables.values()).chain(values.nodes.values());
        let parts = all.map(|value| (**value).clone()).collect();
        (seen, parts)
    }

    pub(super) fn values(self, parts: Vec<Value>) -> ScopeValues {
        let mut parts = parts.into_iter().map(Arc::new);
        let mut next = |is_there: bool| is_there.then(|| parts.next()).flatten();
        let (input, output, event) = (next(self.input), next(self.output), next(self.event));
        let mut named = |names: Vec<Arc<str>>| names.into_iter().zip(parts.by_ref()).collect();
        ScopeValues {
            input: input.unwrap_or_default(),
            output: output.unwrap_or_default(),
            event,
            variables: named(self.variables),
            nodes: named(self.nodes),
            known: self.known.into_iter().collect(),
        }
    }
}

impl<H: Serialize + DeserializeOwned> WorkerMessage<H> {
    pub(super) fn write(&self, to: &mut impl Write) -> Result<()> {
        let length = |length: usize| u32::try_from(length).map_err(|_| broken("a value is too large"));
        to.write_all(&length(self.parts.len() + 1)?.to_le_bytes())?;
        let mut bytes = serde_json::to_vec(&self.head)?;
        let mut parts = self.parts.iter();
        loop {
            to.write_all(&length(bytes.len())?.to_le_bytes())?;
            to.write_all(&bytes)?;
            let Some(part) = parts.next() else { break };
            bytes.clear();
            serde_json::to_writer(&mut bytes, part)?;
        }
        to.flush()
    }

    /// Reads a frame of at most `most` bytes.
    pub(super) fn read(from: &mut impl Read, most: usize) -> Result<Self> {
        let count = number(from)?;
        if count == 0 || count > MAX_PARTS {
            return Err(broken("a message of no parts, or too many"));
        }
        let mut left = most;
        let mut part = || -> Result<Vec<u8>> {
            let length = number(from)? as usize;
            left = left
                .checked_sub(length)
                .ok_or_else(|| broken("a message is too large"))?;
            let mut bytes = Vec::new();
            // Allocate for received bytes only, not for the announced length, which is not trusted.
            let read = from.by_ref().take(length as u64).read_to_end(&mut bytes)?;
            if read < length {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            Ok(bytes)
        };
        let head = serde_json::from_slice(&part()?)?;
        let parts = (1..count)
            .map(|_| Ok(serde_json::from_slice(&part()?)?))
            .collect::<Result<Vec<Value>>>()?;
        Ok(Self { head, parts })
    }
}

impl WorkerMessage<Reply> {
    pub(super) fn done(value: Value, logs: &Logs) -> Self {
        Self::done_and_kept(value, logs, None)
    }

    pub(super) fn done_and_kept(value: Value, logs: &Logs, upkeep: Option<Upkeep>) -> Self {
        let logs = Lines::of(logs);
        Self {
            head: Reply::Done { logs, upkeep },
            parts: vec![value],
        }
    }

    pub(super) fn fault(fault: ScriptFault) -> Self {
        Self::fault_after(fault, &Logs::default())
    }

    pub(super) fn fault_after(fault: ScriptFault, logs: &Logs) -> Self {
        let ScriptFault { code, message, details } = fault;
        let logs = Lines::of(logs);
        Self {
            head: Reply::Fault {
                code,
                message,
                details,
                logs,
            },
            parts: Vec::new(),
        }
    }

    pub(super) fn logs(&self) -> Logs {
        let (Reply::Done { logs, .. } | Reply::Fault { logs, .. }) = &self.head else {
            return Logs::default();
        };
        let mut kept = Logs::default();
        for (level, line) in &logs.lines {
            kept.add(level, line);
        }
        kept.drop_more(logs.dropped);
        kept
    }

    /// The result.
    pub(super) fn value(self) -> std::result::Result<Value, ScriptFault> {
        match (self.head, self.parts.into_iter().next()) {
            (Reply::Done { .. }, Some(value)) => Ok(value),
            (
                Reply::Fault {
                    code, message, details, ..
                },
                _,
            ) => Err(ScriptFault { code, message, details }),
            (Reply::Done { .. } | Reply::Call { .. } | Reply::Gone, _) => {
                Err(ScriptFault::limit("its process returned no answer"))
            }
        }
    }
}

impl Lines {
    fn of(logs: &Logs) -> Self {
        Self {
            lines: logs.lines().map(|(level, line)| (level.into(), line.into())).collect(),
            dropped: logs.dropped(),
        }
    }
}

fn number(from: &mut impl Read) -> Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn broken(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn frame(parts: Vec<Value>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let head = Request::Returned { error: None };
        WorkerMessage { head, parts }.write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_frame_round_trips() {
        let deep = (0..120).fold(json!("deep"), |inside, _| json!([inside]));
        let parts = vec![json!({"a": [1, 2.5, null]}), json!("\u{1f600}\n"), deep];
        let read = WorkerMessage::<Request>::read(&mut frame(parts.clone()).as_slice(), 1 << 20).unwrap();
        assert!(matches!(read.head, Request::Returned { error: None }));
        assert_eq!(read.parts, parts);
    }

    #[test]
    fn an_invalid_frame_is_an_error_and_allocates_nothing() {
        let good = frame(vec![json!([1, 2, 3])]);
        for end in 0..good.len() {
            assert!(
                WorkerMessage::<Request>::read(&mut &good[..end], 1 << 20).is_err(),
                "{end}"
            );
        }
        for bytes in [[0, 0, 0, 0], [255, 255, 255, 255]] {
            assert!(WorkerMessage::<Request>::read(&mut bytes.as_slice(), 1 << 20).is_err());
        }
        let huge = [1, 0, 0, 0, 255, 255, 255, 127, b'{'];
        assert!(WorkerMessage::<Request>::read(&mut huge.as_slice(), usize::MAX).is_err());
        assert!(WorkerMessage::<Request>::read(&mut good.as_slice(), 5).is_err());
    }

    #[test]
    fn a_scope_round_trips() {
        let value = |value: Value| Arc::new(value);
        let values = ScopeValues {
            input: value(json!(1)),
            output: value(json!(2)),
            event: Some(value(json!(3))),
            variables: [("v".into(), value(json!(4))), ("w".into(), value(json!(5)))].into(),
            nodes: [("n".into(), value(json!(6)))].into(),
            known: ["later".into()].into(),
        };
        let (seen, parts) = ScopeManifest::scope(&Names::of("input + result + event + v + w + n"), &values);
        assert_eq!(seen.values(parts), values);
        let (seen, parts) = ScopeManifest::scope(&Names::of("v"), &values);
        let arrived = seen.values(parts);
        assert_eq!(
            (&*arrived.input, &*arrived.output, arrived.event),
            (&json!(null), &json!(null), None)
        );
        assert_eq!(arrived.variables, values.variables);
    }
}
