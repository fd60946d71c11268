//! Runs rebuilt from their journal, for an engine that resumes or displays them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pirn_conversation::conversation::ModelRequest;
use pirn_core::run::{
    Diverged, DoubtKind, Effect, EventInterest, JournaledInput, Message, OpenEffects, ReplayStep, RunMachine, RunStart,
    Settings, ThreadNo, ToThread, TriggerProgress,
};
use pirn_core::thread::{self, Input, ModelChoice, Outcome};
use pirn_definition::Millis;
use pirn_definition::graph::{Graph, NodeIx};
use pirn_events::event::{Event, RaisedEvent, missed_event};
use serde_json::{Map, Value};

use super::environment::ActorEnvironment;
use super::inline_services::InlineServices;
use super::settings::SharedSettings;
use crate::journal::{Graphs, RunJournal};
use crate::protocol::bus::{ResumedEvents, Source};

/// A run after its last recorded input.
pub struct RebuiltRun {
    /// The run.
    pub machine: RunMachine,
    /// The configuration that it used.
    pub(crate) settings: Settings,
    /// The workflows that it can use.
    pub graphs: Graphs,
    /// Id of its workflow.
    pub(crate) workflow_id: Arc<str>,
    /// Metadata that the run's caller set, for models, tools and functions.
    pub(crate) metadata: Option<Arc<Map<String, Value>>>,
    /// The event types that had a subscriber.
    pub listening: EventInterest,
    /// Effects that no process has started: they follow from inputs that arrived while the run had no owner.
    pub not_begun: BTreeSet<(ThreadNo, thread::EffectId)>,
    /// The run had no owner when its last input arrived.
    pub is_uncarried: bool,
    /// Effects without an outcome.
    pub open: OpenEffects,
    /// Number of its inputs.
    pub steps: u64,
    /// Time of its last input, or of its start.
    pub at: Millis,
    /// Events of the run since its start.
    pub events: Vec<Arc<Event>>,
    /// Number of events before each open wait for an event.
    pub(crate) waits: BTreeMap<(ThreadNo, thread::EffectId), usize>,
    /// Time, node and kind of every external effect of a thread.
    asked: AskedFor,
    /// Requests that models have answered, by thread. Only the last user message of each is retained: whole requests would need
    /// memory quadratic in their number, because each repeats the history.
    pub(crate) answered: BTreeMap<ThreadNo, Vec<ModelAnswered>>,
    /// Actions of the trigger matcher.
    pub(crate) triggers: TriggerProgress,
}

/// Effect, node, request and chosen model.
type AnsweredRequest = (thread::EffectId, NodeIx, Arc<ModelRequest>, Option<Arc<ModelChoice>>);

/// External effects, keyed by thread and effect.
type AskedFor = BTreeMap<(ThreadNo, thread::EffectId), (Millis, Option<NodeIx>, Option<DoubtKind>)>;

/// A request that a model has answered.
pub(crate) struct ModelAnswered {
    pub(crate) graph: Arc<Graph>,
    pub(crate) node: NodeIx,
    pub(crate) request: Arc<ModelRequest>,
    pub(crate) choice: Option<Arc<ModelChoice>>,
}

/// A run that continues after an earlier process stopped executing it.
pub struct Resumed {
    /// The run as it was.
    pub rebuilt: RebuiltRun,
    /// Messages delivered before anything else.
    pub inputs: Vec<Message>,
    /// Journal of its further inputs.
    pub journal: Box<dyn RunJournal>,
}

/// An effect that a thread has requested.
pub struct AskedEffect {
    /// Time of the request.
    pub at: Millis,
    /// The node. None if the machine has no such thread.
    pub node_id: Option<Arc<str>>,
    /// Kind of the effect. None for waits and evaluations, which are repeated without a policy.
    pub kind: Option<DoubtKind>,
}

impl RebuiltRun {
    /// Returns the recorded seed of the random numbers that scripts draw.
    pub fn script_seed(&mut self) -> Option<u64> {
        self.settings.script_seed(|| None)
    }

    /// Returns an effect that was requested, with or without an outcome.
    pub fn asked(&self, thread: ThreadNo, effect: thread::EffectId) -> Option<AskedEffect> {
        let (at, node, kind) = *self.asked.get(&(thread, effect))?;
        let graph = self.machine.origin(thread).map(|(_, graph)| graph);
        let node_id = graph.zip(node).map(|(graph, node)| Arc::clone(&graph.node(node).id));
        Some(AskedEffect { at, node_id, kind })
    }

    /// Returns the run's events for reconnecting subscribers, and the answers to waits that missed their event.
    pub(crate) fn events_again(&mut self) -> (ResumedEvents, Vec<Message>) {
        // Moved, because a resumed run needs these events only for the bus.
        let events = std::mem::take(&mut self.events);
        let missed = self.waits.iter().filter_map(|((thread, id), before)| {
            let (_, thread::Effect::WaitEvent { event: wanted, .. }) = self.open.threads.get(&(*thread, *id))? else {
                return None;
            };
            // Only events after the start of the wait.
            let event = missed_event(wanted, events.get(*before..).unwrap_or_default())?;
            let outcome = Outcome::Event {
                sequence: event.sequence,
                event: event.lazy_json(),
            };
            let answer = Input::Answer { effect: *id, outcome };
            Some(Message::Thread(*thread, ToThread::Input(answer)))
        });
        let missed = missed.collect();
        let again = ResumedEvents {
            run_id: Arc::clone(self.machine.run_id()),
            sequence: events.len() as u64,
            events,
            triggers: std::mem::take(&mut self.triggers),
        };
        (again, missed)
    }
}

impl InlineServices {
    /// Replays a run with these models, tools and workflows.
    pub(crate) fn replay(
        &self,
        begun: RunStart,
        inputs: impl IntoIterator<Item = JournaledInput>,
        saw: &mut dyn FnMut(&RunMachine, ReplayStep<'_>),
    ) -> Result<(RunMachine, Settings), Diverged> {
        let run_id = Arc::clone(&begun.seed.run_id);
        let metadata = begun.seed.metadata.clone();
        let settings = SharedSettings::new(Settings::rebuilding(!begun.seed.merges_assignments));
        let mut env = ActorEnvironment::rebuilding(&run_id, metadata.as_ref(), self, (begun.listening, &settings));
        let machine = RunMachine::replay(begun, inputs, &mut env, ActorEnvironment::listen, saw)?;
        Ok((machine, settings.into_inner()))
    }
}

/// Facts collected during a replay that a resuming engine needs.
#[derive(Default)]
pub(crate) struct ReplayFacts {
    run_id: Arc<str>,
    open: OpenEffects,
    events: Vec<Arc<Event>>,
    waits: BTreeMap<(ThreadNo, thread::EffectId), usize>,
    asked: AskedFor,
    answered: BTreeMap<ThreadNo, Vec<AnsweredRequest>>,
    triggers: TriggerProgress,
    not_begun: BTreeSet<(ThreadNo, thread::EffectId)>,
    is_uncarried: bool,
    steps: u64,
    at: Option<Millis>,
    listening: EventInterest,
}

impl ReplayFacts {
    pub(crate) fn new(begun: &RunStart) -> Self {
        Self {
            run_id: Arc::clone(&begun.seed.run_id),
            listening: begun.listening,
            is_uncarried: begun.uncarried,
            ..Self::default()
        }
    }

    pub(crate) fn saw(&mut self, replayed: ReplayStep<'_>) {
        // Before the match, which takes the effects.
        self.open.saw(&replayed);
        self.triggers.saw(&replayed);
        match replayed {
            ReplayStep::Input(input) => {
                self.steps += 1;
                self.at = Some(input.at);
                self.listening = input.listening;
                self.is_uncarried = input.uncarried;
                // An owner at this input has started all earlier effects.
                if !input.uncarried {
                    self.not_begun.clear();
                }
            }
            ReplayStep::Effects(at, effects) => effects.drain(..).for_each(|effect| self.did(at, effect)),
        }
    }

    fn did(&mut self, at: Millis, effect: Effect) {
        match effect {
            Effect::Emit {
                sequence,
                graph,
                thread_id,
                event,
            } => self.raise(at, &graph.workflow_id, &thread_id, (sequence, event)),
            Effect::EmitAll {
                first,
                graph,
                thread_id,
                events,
            } => {
                for numbered in (first..).zip(events) {
                    self.raise(at, &graph.workflow_id, &thread_id, numbered);
                }
            }
            Effect::Thread { thread, effect } => self.asked(at, thread, &effect),
            Effect::ThreadEnded { thread } => {
                // An ended thread calls no model, so its sessions need not be restored.
                self.answered.remove(&thread);
            }
            // `open` has those without an outcome; the others leave nothing that a resumed run needs.
            Effect::Begin { .. }
            | Effect::AwaitSession
            | Effect::LeaveSession(_)
            | Effect::Drop { .. }
            | Effect::AwaitTriggers { .. }
            | Effect::SetTimer { .. }
            | Effect::StopTimer { .. }
            | Effect::StartRun(_)
            | Effect::CallTrigger { .. }
            | Effect::QuiesceTriggers
            | Effect::Report(_)
            | Effect::Settled => {}
        }
    }

    fn raise(
        &mut self,
        timestamp: Millis,
        workflow_id: &Arc<str>,
        thread_id: &Arc<str>,
        (sequence, raised): (u64, RaisedEvent),
    ) {
        let source = Source {
            run_id: Arc::clone(&self.run_id),
            workflow_id: Arc::clone(workflow_id),
            thread_id: Arc::clone(thread_id),
            timestamp,
        };
        self.events.push(Arc::new(source.event(sequence, raised)));
    }

    fn asked(&mut self, at: Millis, thread: ThreadNo, effect: &thread::Effect) {
        let (id, node) = match effect {
            thread::Effect::Model {
                id,
                node,
                request,
                choice,
                ..
            } => {
                let requests = self.answered.entry(thread).or_default();
                requests.push((*id, *node, Arc::new(request.last_said()), choice.clone()));
                (*id, Some(*node))
            }
            thread::Effect::Tool { id, node, .. }
            | thread::Effect::Function { id, node, .. }
            | thread::Effect::Script { id, node, .. }
            | thread::Effect::ScriptStep { id, node, .. }
            | thread::Effect::Evaluate { id, node, .. }
            | thread::Effect::Timer { id, node, .. }
            | thread::Effect::Ask { id, node, .. } => (*id, Some(*node)),
            thread::Effect::WaitEvent { id, node, .. } => {
                self.waits.insert((thread, *id), self.events.len());
                (*id, Some(*node))
            }
            // The run's machine answers the other effects itself.
            _ => return,
        };
        if self.is_uncarried {
            self.not_begun.insert((thread, id));
        }
        self.asked.insert((thread, id), (at, node, DoubtKind::of(effect)));
    }

    pub(crate) fn rebuilt(
        self,
        (machine, settings): (RunMachine, Settings),
        graphs: Graphs,
        (begun_at, metadata): (Millis, Option<Arc<Map<String, Value>>>),
    ) -> RebuiltRun {
        let Self {
            run_id: _,
            open,
            events,
            mut waits,
            asked,
            answered,
            triggers,
            not_begun,
            is_uncarried,
            listening,
            steps,
            at,
        } = self;
        // Only an open wait can have missed an event.
        waits.retain(|wait, _| open.threads.contains_key(wait));
        let answered = answered.into_iter().filter_map(|(thread, requests)| {
            let graph = Arc::clone(machine.live(thread)?.graph());
            let requests = requests
                .into_iter()
                // A request without an answer is sent again, which moves the session on.
                .filter(|(id, ..)| !open.threads.contains_key(&(thread, *id)));
            let requests = requests.map(|(_, node, request, choice)| ModelAnswered {
                choice,
                graph: Arc::clone(&graph),
                node,
                request,
            });
            Some((thread, requests.collect()))
        });
        let answered = answered.collect();
        RebuiltRun {
            workflow_id: machine
                .origin(0)
                .map(|(_, graph)| Arc::clone(&graph.workflow_id))
                .unwrap_or_default(),
            machine,
            settings,
            graphs,
            metadata,
            listening,
            not_begun,
            is_uncarried,
            open,
            steps,
            at: at.unwrap_or(begun_at),
            events,
            waits,
            asked,
            answered,
            triggers,
        }
    }
}
