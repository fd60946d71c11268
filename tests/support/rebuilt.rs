//! Checks that a run rebuilt from its recorded inputs, without an actor, repeats every effect, event and report.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pirn::{Engine, Graphs, Journal, RunJournal};
use pirn_core::run::{Effect, JournaledInput, RunStart};

/// A journal in memory: the inputs and effects of every run of an engine.
#[derive(Default)]
pub struct Recorder(Runs);

type Runs = Arc<Mutex<BTreeMap<Arc<str>, Recorded>>>;

#[derive(Clone)]
struct Recorded {
    begun: RunStart,
    /// The inputs as JSON, so that the check also covers their serialization.
    inputs: Vec<String>,
    did: Vec<String>,
}

impl Recorder {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Recorded>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rebuilds every run of `engine`.
    ///
    /// # Panics
    /// Panics if a rebuilt run has another effect than the recorded one.
    #[track_caller]
    pub fn check(&self, engine: &Engine) {
        let runs = self.runs().clone();
        for (run_id, Recorded { begun, inputs, did }) in runs {
            let inputs: Vec<JournaledInput> = inputs
                .iter()
                .map(|input| serde_json::from_str(input).unwrap_or_else(|error| panic!("{error} in {input}")))
                .collect();
            let again = engine
                .rebuild(begun, inputs)
                .unwrap_or_else(|diverged| panic!("run {run_id}: {diverged}"));
            let again: Vec<String> = again.iter().map(described).collect();
            let same = did.iter().zip(&again).take_while(|(one, other)| one == other).count();
            assert_eq!(
                again.get(same),
                did.get(same),
                "run {run_id} was rebuilt and did something else at {same} of {}",
                did.len()
            );
        }
    }

    /// Number of runs recorded.
    pub fn count(&self) -> usize {
        self.runs().len()
    }
}

fn described(effect: &Effect) -> String {
    let text = text_of(effect);
    match effect {
        // A workflow that was written during the run is compiled again, as in another process. Its graph has a new number.
        Effect::Emit { graph, .. } if graph.source.is_some() => text.replace(&format!("uid: {},", graph.uid), ""),
        _ => text,
    }
}

fn text_of(effect: &Effect) -> String {
    match effect {
        // As JSON, byte for byte.
        Effect::Report(report) => serde_json::to_string(report).unwrap_or_else(|error| error.to_string()),
        Effect::Emit { event, .. } => format!("{effect:?} {}", serde_json::json!(event)),
        effect => format!("{effect:?}"),
    }
}

impl Journal for Recorder {
    fn begun(&self, begun: &RunStart, _: &Graphs) -> Box<dyn RunJournal> {
        let recorded = Recorded {
            begun: begun.clone(),
            inputs: Vec::new(),
            did: Vec::new(),
        };
        let run_id = Arc::clone(&begun.seed.run_id);
        self.runs().insert(Arc::clone(&run_id), recorded);
        let runs = Arc::clone(&self.0);
        Box::new(RecordedRun { runs, run_id })
    }
}

struct RecordedRun {
    runs: Runs,
    run_id: Arc<str>,
}

impl RecordedRun {
    fn with(&self, record: impl FnOnce(&mut Recorded)) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        record(runs.get_mut(&self.run_id).expect("a run begins before anything else"));
    }
}

impl RunJournal for RecordedRun {
    fn record(&mut self, input: &JournaledInput) {
        let text = serde_json::to_string(input).expect("an input is serializable");
        self.with(|recorded| recorded.inputs.push(text));
    }

    fn did(&mut self, effect: &Effect) {
        self.with(|recorded| recorded.did.push(described(effect)));
    }
}
