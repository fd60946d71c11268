//! A script workflow whose realm is cached between its steps.

use std::sync::Arc;
use std::time::Duration;

use pirn_definition::script::{ScopeValues, ScriptFault};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::realm::{Realm, Run, WorkflowStep};
use crate::StopFlag;
use crate::deadline::{computed, now};

/// An evaluated script that waits for results.
pub(crate) struct LiveScript {
    realm: Realm,
    source: Arc<str>,
    now: Option<f64>,
    /// State of `Math.random`.
    random: Option<u64>,
    bytes: usize,
}

/// Limits of one step.
pub(crate) struct StepLimits {
    pub(crate) time: Duration,
    pub(crate) stop: StopFlag,
}

/// Resources of a script that is cached.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Upkeep {
    /// Bytes that its values do not exceed.
    pub(crate) bytes: usize,
    /// Time that the step used.
    pub(crate) used: Duration,
}

/// Smallest measured size of a script.
const LEAST_BYTES: usize = 1 << 19;

impl LiveScript {
    /// Evaluates a script from its start, in a fresh realm. Returns the answer and whether the script waits for results.
    pub(crate) fn start(
        realm: Realm,
        source: &Arc<str>,
        state: &Value,
        limits: StepLimits,
    ) -> (Self, Result<Value, ScriptFault>, Option<Upkeep>) {
        let mut script = Self {
            realm,
            source: Arc::clone(source),
            now: state.get("now").and_then(Value::as_f64),
            random: state.get("seed").and_then(Value::as_u64),
            bytes: LEAST_BYTES,
        };
        let (result, upkeep) = script.step(limits, |realm, source, run| realm.workflow(source, state, run));
        (script, result, upkeep)
    }

    /// Continues the script with the results since the last step. Returns the answer, and the upkeep if the script waits for more
    /// results.
    pub(crate) fn resume(&mut self, more: &Value, limits: StepLimits) -> (Result<Value, ScriptFault>, Option<Upkeep>) {
        self.step(limits, |realm, _, run| realm.resume(more, run))
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Returns the realm of a script that is not continued.
    pub(crate) fn into_realm(self) -> Realm {
        self.realm
    }

    fn step(
        &mut self,
        limits: StepLimits,
        body: impl FnOnce(&mut Realm, &str, Run) -> Result<WorkflowStep, ScriptFault>,
    ) -> (Result<Value, ScriptFault>, Option<Upkeep>) {
        let run = Run {
            scope: ScopeValues::default(),
            unknown: Vec::new(),
            paths: Arc::default(),
            seed: self.random,
            now: self.now,
            time: limits.time,
            stop: Some(limits.stop),
        };
        // CPU time, because a busy machine does not make the script itself slower.
        let (real, cpu) = (now(), computed());
        let step = body(&mut self.realm, &self.source, run);
        let used = computed().zip(cpu).map(|(after, before)| after.saturating_sub(before));
        let used = used.unwrap_or_else(|| real.elapsed());
        let WorkflowStep { answer, random } = match step {
            Ok(step) => step,
            Err(fault) => return (Err(fault), None),
        };
        if self.realm.is_spent() || !answer["end"].is_null() {
            return (Ok(answer), None);
        }
        self.random = random;
        self.bytes = self.realm.bytes_at_most(self.bytes);
        let bytes = self.bytes;
        (Ok(answer), Some(Upkeep { bytes, used }))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_live_script_can_move_to_another_thread() {
        fn moves<T: Send>() {}
        moves::<super::LiveScript>();
    }
}
