//! A run of another process, which is rebuilt further as its journal grows.

use std::sync::Arc;

use pirn_core::run::{Diverged, Effect, JournaledInput, Replay, ReplayStep, RunMachine, RunReport, RunStart, Settings};
use pirn_core::thread::Interaction;
use pirn_definition::Millis;
use pirn_events::event::{Event, RaisedEvent};
use serde_json::{Map, Value};

use super::environment::ActorEnvironment;
use super::inline_services::InlineServices;
use super::settings::SharedSettings;
use crate::journal::Graphs;
use crate::protocol::bus::Source;

/// Number of the newest events that later firings of triggers may refer to.
// A run has no turn while 1,024 events wait for the triggers, so the firing on an older event is recorded with few exceptions.
const RECENT_EVENTS: usize = 1_024;

/// A run as of the last input that was read from its journal.
pub struct FollowedRun {
    replay: Replay,
    /// Shared with the tokenizers of the machine.
    settings: SharedSettings,
    run_id: Arc<str>,
    metadata: Option<Arc<Map<String, Value>>>,
    graphs: Graphs,
    seen: SeenEffects,
}

/// Effects of a run that a reader needs.
#[derive(Default)]
struct SeenEffects {
    events: Vec<Arc<Event>>,
    report: Option<Arc<RunReport>>,
}

impl FollowedRun {
    pub(crate) fn new(
        services: &InlineServices,
        begun: RunStart,
        inputs: Vec<JournaledInput>,
        graphs: Graphs,
    ) -> Result<Self, Diverged> {
        let (run_id, metadata) = (Arc::clone(&begun.seed.run_id), begun.seed.metadata.clone());
        let settings = SharedSettings::new(Settings::rebuilding(!begun.seed.merges_assignments));
        let mut seen = SeenEffects::default();
        let mut env = ActorEnvironment::rebuilding(&run_id, metadata.as_ref(), services, (begun.listening, &settings));
        let saw = &mut |_: &RunMachine, step: ReplayStep<'_>| seen.saw(&run_id, step);
        let replay = Replay::new(begun, inputs, RECENT_EVENTS, &mut env, &ActorEnvironment::listen, saw)?;
        Ok(Self {
            replay,
            settings,
            run_id,
            metadata,
            graphs,
            seen,
        })
    }

    /// Continues with inputs that were recorded since. After an error the run must be rebuilt from its start.
    pub(crate) fn extend(&mut self, services: &InlineServices, inputs: Vec<JournaledInput>) -> Result<(), Diverged> {
        let (run_id, metadata, seen) = (&self.run_id, self.metadata.as_ref(), &mut self.seen);
        let listening = self.replay.listening();
        let mut env = ActorEnvironment::rebuilding(run_id, metadata, services, (listening, &self.settings));
        let saw = &mut |_: &RunMachine, step: ReplayStep<'_>| seen.saw(run_id, step);
        self.replay.extend(inputs, &mut env, &ActorEnvironment::listen, saw)
    }

    pub(crate) fn graphs(&self) -> &Graphs {
        &self.graphs
    }

    /// Takes the events since the last call.
    pub fn take_events(&mut self) -> Vec<Arc<Event>> {
        std::mem::take(&mut self.seen.events)
    }

    /// Returns the report, if the run has one.
    pub fn report(&self) -> Option<&Arc<RunReport>> {
        self.seen.report.as_ref()
    }

    /// Returns the open questions to people.
    pub fn interactions(&self) -> Vec<Interaction> {
        self.replay.machine().interactions()
    }
}

impl SeenEffects {
    fn saw(&mut self, run_id: &Arc<str>, step: ReplayStep<'_>) {
        let ReplayStep::Effects(at, effects) = step else {
            return;
        };
        for effect in effects.drain(..) {
            match effect {
                Effect::Emit {
                    sequence,
                    graph,
                    thread_id,
                    event,
                } => {
                    let source = source(run_id, &graph.workflow_id, &thread_id, at);
                    self.raise(&source, [(sequence, event)]);
                }
                Effect::EmitAll {
                    first,
                    graph,
                    thread_id,
                    events,
                } => {
                    let source = source(run_id, &graph.workflow_id, &thread_id, at);
                    self.raise(&source, (first..).zip(events));
                }
                Effect::Report(report) => self.report = Some(report),
                // Performed by the owner of the run.
                _ => {}
            }
        }
    }

    fn raise(&mut self, source: &Source, events: impl IntoIterator<Item = (u64, RaisedEvent)>) {
        let events = events.into_iter();
        let events = events.map(|(sequence, raised)| Arc::new(source.clone().event(sequence, raised)));
        self.events.extend(events);
    }
}

fn source(run_id: &Arc<str>, workflow_id: &Arc<str>, thread_id: &Arc<str>, timestamp: Millis) -> Source {
    Source {
        run_id: Arc::clone(run_id),
        workflow_id: Arc::clone(workflow_id),
        thread_id: Arc::clone(thread_id),
        timestamp,
    }
}
