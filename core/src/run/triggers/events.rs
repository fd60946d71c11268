//! Events raised in the name of a run's threads.

use std::sync::Arc;

use pirn_definition::event_type::EventType;
use pirn_events::event::{EventMask, Field, RaisedEvent};
use serde_json::{Value, json};

use crate::run::ThreadNo;
use crate::run::data::doubt::{DoubtReport, Doubts, UnresolvedEffect};
use crate::run::data::effect::Effect;
use crate::run::data::message::{FollowUp, ToThread};
use crate::run::state::RunMachine;
use crate::run::step::Step;
use crate::thread::Input;

impl RunMachine {
    /// Raises external events in the main thread's name.
    pub(in crate::run) fn raise(&mut self, events: Vec<RaisedEvent>, step: &mut Step<'_>) {
        let types = events.iter().fold(EventMask::NONE, |types, event| {
            types.union(EventMask::of(event.event_type))
        });
        // No test for subscribers: a later WAIT takes an event that was raised before it.
        step.note_watched(types);
        // One effect for all events: the numbers of the others follow from the first.
        let first = step.events + 1;
        step.events += events.len() as u64;
        step.out.push(Effect::EmitAll {
            first,
            graph: Arc::clone(self.graph_of(0)),
            thread_id: self.thread_id(0),
            events,
        });
        self.tell_raised(0, types, step);
    }

    /// Raises an event that a trigger derived from another event.
    pub(in crate::run) fn follow_up(&mut self, follow_up: FollowUp, step: &mut Step<'_>) {
        let FollowUp { thread, event } = follow_up;
        let types = EventMask::of(event.event_type);
        step.emit(self.graph_of(thread), &self.thread_id(thread), event);
        self.tell_raised(thread, types, step);
    }

    /// Raises the events of a recovery after a crash and records the effects in doubt.
    pub(in crate::run) fn recovered(&mut self, doubts: Vec<UnresolvedEffect>, step: &mut Step<'_>) {
        // Appended: a run may recover from several crashes, and its report lists the doubts of all.
        let mut reports = self.doubts.take().map_or_else(Vec::new, |doubts| doubts.0);
        for doubt in doubts {
            let report = DoubtReport {
                effect_id: doubt.key(&self.run_id),
                node_id: doubt.node_id,
                kind: doubt.kind,
                policy: doubt.policy,
                resolution: doubt.resolution,
            };
            self.emit(doubt.thread, EventType::EffectInDoubt, step, || {
                vec![
                    ("nodeId", json!(report.node_id)),
                    ("effectId", json!(report.effect_id)),
                    ("kind", json!(report.kind)),
                    ("policy", json!(report.policy)),
                    ("resolution", json!(report.resolution)),
                ]
            });
            reports.push(report);
        }
        self.doubts = Some(Box::new(Doubts(reports)));
    }

    /// Notifies a thread that events were raised in its name. If one of them may hold it, the thread checks at its next safe point.
    fn tell_raised(&mut self, thread: ThreadNo, types: EventMask, step: &Step<'_>) {
        // Most events can hold no thread: their thread needs no message.
        if step.listening.holding.intersects(types) {
            self.send(thread, ToThread::Input(Input::Raised));
        }
    }

    pub(in crate::run) fn emit(
        &mut self,
        thread: ThreadNo,
        event_type: EventType,
        step: &mut Step<'_>,
        fields: impl FnOnce() -> Vec<(&'static str, Value)>,
    ) {
        self.emit_caused(thread, 0, event_type, step, fields);
    }

    /// Raises an event like [`Self::emit`], with the trigger depth of its cause.
    pub(in crate::run) fn emit_caused<F: Into<Field>>(
        &mut self,
        thread: ThreadNo,
        trigger_depth: u32,
        event_type: EventType,
        step: &mut Step<'_>,
        fields: impl FnOnce() -> Vec<(&'static str, F)>,
    ) {
        // Before `fields` is called: events without a subscriber cost one test.
        if !step.listens(event_type) {
            return;
        }
        let Some(at) = self.tree.get(thread) else { return };
        // The larger depth counts, so that chains of triggers through a thread are bounded.
        let event = RaisedEvent::of(event_type, fields()).at_depth(at.trigger_depth.max(trigger_depth));
        step.emit(self.graphs.get(at.graph), &self.thread_id(thread), event);
        self.tell_raised(thread, EventMask::of(event_type), step);
    }
}
