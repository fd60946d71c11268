//! A run is what it was told: rebuilt from that, without an actor, it does the same, says the same and reports the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pirn::{Engine, Journal};
use pirn_core::run::{Begun, Effect, Told};

/// What the runs of an engine were told and did.
#[derive(Default)]
pub struct Recorder(Mutex<BTreeMap<Arc<str>, Recorded>>);

#[derive(Clone)]
struct Recorded {
    begun: Begun,
    /// As JSON: what is kept of a run is kept in writing.
    told: Vec<String>,
    did: Vec<String>,
}

impl Recorder {
    fn with(&self, run_id: &Arc<str>, record: impl FnOnce(&mut Recorded)) {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        record(runs.get_mut(run_id).expect("a run begins before anything else"));
    }

    /// Rebuilds every run of `engine`.
    ///
    /// # Panics
    /// Where one does something else the second time.
    #[track_caller]
    pub fn check(&self, engine: &Engine) {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (run_id, Recorded { begun, told, did }) in runs {
            let told: Vec<Told> = told
                .iter()
                .map(|told| serde_json::from_str(told).unwrap_or_else(|error| panic!("{error} in {told}")))
                .collect();
            let again: Vec<String> = engine.rebuild(begun, told).iter().map(in_words).collect();
            let same = did.iter().zip(&again).take_while(|(one, other)| one == other).count();
            assert_eq!(
                again.get(same),
                did.get(same),
                "run {run_id} was rebuilt and did something else at {same} of {}",
                did.len()
            );
        }
    }

    /// How many runs were recorded.
    pub fn runs(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn in_words(effect: &Effect) -> String {
    match effect {
        // Byte for byte as it is printed.
        Effect::Report(report) => serde_json::to_string(report).unwrap_or_else(|error| error.to_string()),
        Effect::Emit { event, .. } => format!("{effect:?} {}", serde_json::json!(event)),
        effect => format!("{effect:?}"),
    }
}

impl Journal for Recorder {
    fn begun(&self, begun: &Begun) {
        let recorded = Recorded {
            begun: begun.clone(),
            told: Vec::new(),
            did: Vec::new(),
        };
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.insert(Arc::clone(&begun.seed.run_id), recorded);
    }

    fn told(&self, run_id: &Arc<str>, told: &Told) {
        let text = serde_json::to_string(told).expect("what a run is told can be written down");
        self.with(run_id, |recorded| recorded.told.push(text));
    }

    fn did(&self, run_id: &Arc<str>, effect: &Effect) {
        self.with(run_id, |recorded| recorded.did.push(in_words(effect)));
    }
}
