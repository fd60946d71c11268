//! Replay: the recorded inputs produce equal effects, also if the run is serialized and deserialized after every input.

use serde_json::Value;

use crate::play::Play;

/// Rebuilds a run and compares it with the original.
#[track_caller]
pub(crate) fn check(bundle: &Value, played: &Play) {
    for is_stored in [false, true] {
        let again = Play::rebuilt(bundle, &played.told, is_stored);
        assert_eq!(again.did, played.did, "stored: {is_stored}");
        let report = |play: &Play| serde_json::to_string(&play.report).unwrap();
        assert_eq!(report(&again), report(played), "stored: {is_stored}");
    }
}
