//! Decisions of a definition's triggers on the events of a replayed run.
//!
//! A replay does not evaluate triggers: the record contains what they did. To compare two definitions, this module evaluates the
//! triggers of another definition on the same events.

use std::sync::Arc;

use pirn_definition::Millis;
use pirn_definition::definition::{TriggerAction, TriggerDefinition};
use pirn_definition::error::ScriptFault;
use pirn_definition::graph::{Evaluator, Graph, Unevaluated};
use pirn_definition::script::ScopeValues;
use pirn_events::event::Event;
use pirn_events::trigger::{FireResult, Owner, TriggerMachine, WatchingTrigger};
use serde_json::{Map, Value, json};

use super::trigger_progress::{Matching, TriggerProgress};
use crate::run::data::effect::Effect;

/// Decision of a trigger on an event that it watches.
#[derive(Clone, Debug, PartialEq)]
pub struct TriggerDecision {
    /// Sequence number of the event.
    pub sequence: u64,
    /// Name of the trigger, as in [`TriggerMachine::name_of`].
    pub trigger: Arc<str>,
    condition: Condition,
    does: Value,
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Holds,
    /// The condition needs a script thread, so that only the record shows its result.
    Unknown(Value),
}

impl TriggerDecision {
    /// Returns the decision as JSON, given what triggers did in the recorded run (`acted`). Two definitions for which this is equal
    /// on all events have decided alike.
    pub fn made(&self, acted: &TriggerProgress) -> Value {
        let matching = acted.about(self.sequence, &self.trigger);
        let mut made = Map::new();
        made.insert("trigger".to_owned(), json!(self.trigger));
        made.insert("event".to_owned(), json!(self.sequence));
        // The source text stands for the unknown result: two decisions are equal only if their expressions are.
        if let Condition::Unknown(condition) = &self.condition {
            made.insert("condition".to_owned(), condition.clone());
        }
        // For an unknown condition the record shows the result: a trigger that has been matched and has not fired did nothing.
        // An event that has yet to be matched is compared too: it has passed, so the trigger would fire later than in a run of
        // the new definition.
        if self.condition == Condition::Holds || matching != Matching::Over {
            made.insert("does".to_owned(), self.does.clone());
        }
        Value::Object(made)
    }
}

/// Evaluator for the triggers of one definition.
pub struct TriggerDecisions {
    run_id: Arc<str>,
    machine: TriggerMachine,
    evaluator: Box<dyn Evaluator>,
}

impl std::fmt::Debug for TriggerDecisions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TriggerDecisions")
            .field("run_id", &self.run_id)
            .field("machine", &self.machine)
            .finish_non_exhaustive()
    }
}

impl TriggerDecisions {
    /// Creates the evaluator for a run of `main`, with the triggers of these workflows and the standalone ones.
    pub fn new<'a>(
        run_id: &Arc<str>,
        main: &Graph,
        graphs: impl IntoIterator<Item = &'a Arc<Graph>>,
        outside: impl IntoIterator<Item = TriggerDefinition>,
        evaluator: Box<dyn Evaluator>,
    ) -> Self {
        let mut machine = TriggerMachine::default();
        if let Some(most) = main.config.max_triggered_events {
            machine.set_budget(run_id, most);
        }
        let inside = graphs.into_iter().flat_map(|graph| {
            let owner = Owner::Workflow(Arc::clone(&graph.workflow_id));
            let triggers = graph.triggers.iter().cloned();
            triggers.map(move |trigger| (owner.clone(), trigger))
        });
        let outside = outside.into_iter().map(|trigger| (Owner::Engine, trigger));
        for (owner, trigger) in inside.chain(outside) {
            // A schedule fires at times, not on events of the run.
            if trigger.schedule.is_none() {
                // Cannot fail: the loader of the definition has checked the ids.
                let _ = machine.add(owner, Arc::new(trigger));
            }
        }
        Self {
            run_id: Arc::clone(run_id),
            machine,
            evaluator,
        }
    }

    /// Returns the decisions on the events of an effect, in evaluation order.
    pub fn on(&mut self, at: Millis, effect: &Effect) -> Vec<TriggerDecision> {
        let Some(emitted) = effect.emitted() else {
            return Vec::new();
        };
        let interest = self.machine.interest();
        // Most events have a type that no trigger watches: no `Event` is built for them.
        let watched = emitted
            .numbered()
            .filter(|(_, raised)| interest.contains(raised.event_type));
        let events: Vec<Event> = watched.map(|event| emitted.event(&self.run_id, at, event)).collect();
        events.iter().flat_map(|event| self.meet(event)).collect()
    }

    fn meet(&mut self, event: &Event) -> Vec<TriggerDecision> {
        let watchers = self.machine.candidates(event);
        let decides = |watcher| self.decide(watcher, event);
        watchers.into_iter().filter_map(decides).collect()
    }

    fn decide(&mut self, watcher: WatchingTrigger, event: &Event) -> Option<TriggerDecision> {
        let definition = Arc::clone(self.machine.definition(watcher)?);
        let trigger = self.machine.name_of(watcher)?;
        let scope = ScopeValues {
            event: Some(Arc::new(event.to_json())),
            ..ScopeValues::default()
        };
        let expression = definition.condition.expression.as_deref();
        // An answered expression was proved true by the index, and is not evaluated.
        let truth = match expression.filter(|_| !watcher.is_answered) {
            None => Ok(true),
            Some(expression) => self.evaluator.truth_of(expression, &scope),
        };
        let (condition, does) = match truth {
            Ok(false) => return None,
            // A failed condition is a decision too: the run reports it as TRIGGER_FAILED. It counts as no firing.
            Err(Unevaluated::Fault(fault)) => (Condition::Holds, failed(&fault)),
            Ok(true) => match self.machine.fire(watcher.key, event) {
                FireResult::Refused => return None,
                FireResult::Fired { .. } => (Condition::Holds, self.does(&definition.action, &scope)),
                FireResult::TooDeep => (Condition::Holds, json!("TOO_DEEP")),
                FireResult::Exhausted { .. } => (Condition::Holds, json!("EXHAUSTED")),
            },
            // The number of allowed firings matters too, and the number so far is unknown.
            Err(Unevaluated::Later) => {
                let condition = json!({"expression": expression, "maxTriggers": definition.max_triggers});
                (Condition::Unknown(condition), self.does(&definition.action, &scope))
            }
        };
        Some(TriggerDecision {
            sequence: event.sequence,
            trigger,
            condition,
            does,
        })
    }

    /// Returns the action with evaluated templates. A template that needs a script thread is returned as source text.
    fn does(&mut self, action: &TriggerAction, scope: &ScopeValues) -> Value {
        let (field, evaluated) = match action {
            TriggerAction::SetVariable {
                expression: Some(expression),
                ..
            } => {
                let value = self.evaluator.value_of(expression, scope);
                ("value", value.map(Arc::unwrap_or_clone))
            }
            TriggerAction::SendNotification { message, .. } => {
                let text = self.evaluator.text_of(message, scope);
                ("message", text.map(Value::String))
            }
            // Other actions have no template: their definition is all that they do.
            _ => return json!(action),
        };
        let value = match evaluated {
            Ok(value) => value,
            Err(Unevaluated::Fault(fault)) => failed(&fault),
            Err(Unevaluated::Later) => return json!(action),
        };
        let mut action = json!(action);
        if let Some(parameters) = action["parameters"].as_object_mut() {
            // Replaced by the value: two expressions with equal values have decided alike.
            parameters.remove("expression");
            parameters.insert(field.to_owned(), value);
        }
        action
    }
}

fn failed(fault: &ScriptFault) -> Value {
    json!({"failed": {"code": fault.code, "message": fault.message}})
}
