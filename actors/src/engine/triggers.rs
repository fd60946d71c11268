//! The triggers of an engine. Every arbiter's matcher has all of them, and receives all changes in one order.

use std::sync::{Arc, PoisonError};

use pirn_definition::definition::TriggerDefinition;
use pirn_definition::graph::Graph;
use pirn_events::trigger::{Owner, TriggerState};
use pirn_sync::{Completion, Quota, Registry};

use super::EngineShared;
use crate::answer::Answer;
use crate::protocol::matcher::{MatcherMsg, TriggerRefused};
use crate::protocol::supervisor::SupervisorMsg;

impl EngineShared {
    /// Registers a graph and its triggers. New runs use it instead of an earlier graph with this id.
    pub fn register(self: &Arc<Self>, graph: &Arc<Graph>) {
        let id = graph.workflow_id.to_string();
        let owner = Owner::Workflow(Arc::clone(&graph.workflow_id));
        // Running runs hold their own `Arc` of the map and are not affected.
        let before = Arc::make_mut(&mut *self.graphs.write().unwrap_or_else(PoisonError::into_inner))
            .insert(id, Arc::clone(graph));
        // Schedules start after the graph is registered, because a schedule may start a run of it at once.
        self.schedules_of(&owner, &graph.triggers);
        let earlier = before.iter().flat_map(|graph| graph.event_triggers());
        // Equal triggers stay, with the counts of the running runs.
        if earlier.clone().eq(graph.event_triggers()) {
            return;
        }
        let removed: Vec<String> = earlier.map(|trigger| trigger.id.clone()).collect();
        let added: Vec<Arc<TriggerDefinition>> = graph.event_triggers().cloned().map(Arc::new).collect();
        // Sent before the change, so that most runs set their own triggers before the registered ones are replaced.
        for run in self.runs.list() {
            run.do_send(SupervisorMsg::KeepTriggers(Arc::clone(&graph.workflow_id)));
        }
        let _one_change = self.trigger_changes.lock().unwrap_or_else(PoisonError::into_inner);
        for arbiter in 0..self.spawner.arbiters() {
            let (owner, removed, added) = (owner.clone(), removed.clone(), added.clone());
            // Removals and additions are one job, so that no event is matched between them.
            self.on_arbiter(arbiter, move |local| {
                for id in removed {
                    let owner = owner.clone();
                    local.matcher.do_send(MatcherMsg::Remove { owner, id });
                }
                for definition in added {
                    local.matcher.do_send(MatcherMsg::Add {
                        owner: owner.clone(),
                        definition,
                        quota: None,
                        answer: Answer::new(|_| ()),
                    });
                }
            });
        }
    }

    /// Adds a trigger that watches every run. All arbiters give equal answers: an error if the id is in use.
    pub fn add_trigger(&self, definition: TriggerDefinition) -> Vec<Completion<Result<(), TriggerRefused>>> {
        let limit = definition.max_triggers.filter(|limit| *limit > 0);
        // Shared by the matchers of all arbiters: a count for each would multiply the limit by their number.
        let quota = limit.map(|limit| Arc::new(Quota::new(limit)));
        let definition = Arc::new(definition);
        self.change_triggers(move |answer| MatcherMsg::Add {
            owner: Owner::Engine,
            definition: Arc::clone(&definition),
            quota: quota.clone(),
            answer,
        })
    }

    /// Like [`EngineShared::add_trigger`], replacing a trigger with this id.
    pub fn replace_trigger(self: &Arc<Self>, definition: TriggerDefinition) {
        self.replace_schedule(&definition);
        {
            // Released before `add_trigger` below, which locks again.
            let _one_change = self.trigger_changes.lock().unwrap_or_else(PoisonError::into_inner);
            for arbiter in 0..self.spawner.arbiters() {
                let (owner, id) = (Owner::Engine, definition.id.clone());
                self.on_arbiter(arbiter, move |local| {
                    local.matcher.do_send(MatcherMsg::Remove { owner, id });
                });
            }
        }
        if definition.schedule.is_some() {
            return;
        }
        // The answers are not needed: the id was removed before, so the trigger is added.
        drop(self.add_trigger(definition));
    }

    /// Answered by each arbiter once all earlier registrations are active there.
    pub fn triggers_in_place(&self) -> Vec<Completion<()>> {
        self.change_triggers(MatcherMsg::InPlace)
    }

    /// Enables or disables a trigger. Every arbiter answers whether its state changed, or none if the trigger does not exist.
    pub fn enable_trigger(&self, owner: &Owner, id: &str, enabled: bool) -> Vec<Completion<Option<bool>>> {
        let (owner, id) = (owner.clone(), id.to_owned());
        self.change_triggers(move |answer| MatcherMsg::Enable {
            owner: owner.clone(),
            id: id.clone(),
            enabled,
            answer,
        })
    }

    /// Returns the triggers of an owner from each arbiter, with their numbers of firings there.
    pub fn triggers(&self, owner: &Owner) -> Vec<Completion<Vec<TriggerState>>> {
        let owner = owner.clone();
        self.change_triggers(move |answer| MatcherMsg::States {
            owner: owner.clone(),
            answer,
        })
    }

    fn change_triggers<T: Clone + Send + Sync + 'static>(
        &self,
        message: impl Fn(Answer<T>) -> MatcherMsg + Clone + Send + 'static,
    ) -> Vec<Completion<T>> {
        let _one_change = self.trigger_changes.lock().unwrap_or_else(PoisonError::into_inner);
        self.ask_every_arbiter(move |local, answer| local.matcher.do_send(message(answer)))
    }
}
