//! Random faults by configured rates.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pirn_actors::host::Chance;
use pirn_actors::ports::{AskedCall, ModelCall, Ports};
use pirn_definition::error::{RunError, RunErrorCode};

use super::inject::{End, Fate, FaultSource, inject};
use super::{Faults, Rates};

/// Wraps the models and tools of an engine; `seed` determines which calls fail, in the order of the calls.
pub(crate) fn inject_configured(ports: &mut Ports, faults: Faults, seed: u64) {
    // No wrapper, so that an engine without faults pays nothing for each call.
    if !faults.is_empty() {
        let chance = Mutex::new(Chance::new(seed));
        inject(ports, Arc::new(Dice { faults, chance }));
    }
}

/// Random generator, used when a call is made: under virtual time the order is determined by the seed.
struct Dice {
    faults: Faults,
    chance: Mutex<Chance>,
}

impl FaultSource for Dice {
    fn model_call(&self, profile_id: &str, _: &ModelCall) -> Fate<RunError> {
        self.fate(&self.faults.models, profile_id, |message| {
            RunError::new(RunErrorCode::ModelError, message)
        })
    }

    fn tool_call(&self, asked: &AskedCall) -> Fate<String> {
        self.fate(&self.faults.tools, &asked.call.name, |message| message)
    }
}

impl Dice {
    fn fate<F>(&self, rates: &BTreeMap<String, Rates>, name: &str, failure: impl FnOnce(String) -> F) -> Fate<F> {
        let Some(rates) = rates.get(name).or_else(|| rates.get("*")) else {
            return Fate::good();
        };
        let chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        // 53 bits: the resolution of a double between 0 and 1.
        let drawn = || (chance.next() >> 11) as f64 / (1_u64 << 53) as f64;
        // Every call draws three numbers whatever its rates are, so that a changed rate does not shift the faults of later calls.
        let (late, end) = (drawn(), drawn());
        let (from, to) = rates.late_ms;
        // The range includes both ends. If it contains every value, their number overflows, so the addition saturates.
        let spread = to.saturating_sub(from).saturating_add(1);
        let late_ms = from + chance.next() % spread.max(1);
        let fails = |after_ms, message| End::Fails {
            after_ms,
            failure: failure(message),
        };
        Fate {
            late_ms: if late < rates.late { late_ms } else { 0 },
            end: if end < rates.fail {
                fails(None, "a fault of the configuration: it failed".to_owned())
            } else if end < rates.fail + rates.stall {
                let after = rates.stall_ms;
                fails(
                    Some(after),
                    format!("a fault of the configuration: no answer in {after} ms"),
                )
            } else {
                End::Good
            },
        }
    }
}
