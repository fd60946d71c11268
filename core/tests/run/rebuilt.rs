//! Replay: the recorded inputs produce equal effects, also if the run is serialized and deserialized after every input.

use serde_json::Value;

use super::harness::Harness;

/// Rebuilds a run and compares it with the original.
#[track_caller]
pub(crate) fn check(bundle: &Value, played: &Harness) {
    for is_stored in [false, true] {
        let again = Harness::rebuilt(bundle, &played.inputs, is_stored);
        assert_eq!(again.effect_log, played.effect_log, "stored: {is_stored}");
        let report = |harness: &Harness| serde_json::to_string(&harness.report).unwrap();
        assert_eq!(report(&again), report(played), "stored: {is_stored}");
    }
}
