//! A random walk: answers a thread in any order, wrongly, twice and late.

use std::collections::BTreeSet;
use std::sync::Arc;

use pirn_core::status::ThreadStatus;
use pirn_core::thread::{CancelReason, EffectId, Input, Outcome, TriggeredResult};
use pirn_definition::error::{RunError, RunErrorCode};
use proptest::prelude::*;
use serde_json::json;

use super::fixtures::{Wanted, World};
use super::kind::{KINDS, Kind, WEIGHTS};

/// Pairs of a state and the kind of input that the walk used in it.
pub(crate) type Tried = BTreeSet<(String, Kind)>;

/// Sends `steps` inputs, and every kind once more after the end.
pub(crate) fn walk(seed: u64, steps: usize, tried: &mut Tried) {
    let mut world = World::new(seed);
    let cancel_at = world.dice.below(steps + steps / 4);
    for step in 0..steps {
        let kind = if step == cancel_at {
            Kind::Cancel
        } else {
            world.draw(tried)
        };
        world.feed(kind, tried);
    }
    for kind in KINDS {
        world.feed(kind, tried);
    }
    world.feed(Kind::Cancel, tried);
    if ["Merging", "Compressing"]
        .iter()
        .any(|state| world.state().ends_with(state))
    {
        // The conversation completes a change that it has started; then the thread ends, whether the change succeeded or not.
        assert!(!world.ended, "in the middle of it");
        let kind = [Kind::Fits, Kind::Failed, Kind::Unfit][world.dice.below(3)];
        world.feed(kind, tried);
    }
    assert!(world.ended, "a cancelled thread ends");
    for kind in KINDS {
        world.feed(kind, tried);
    }
    world.check_end();
}

impl World {
    /// Draws a kind by weight; often one that is untried in this state.
    fn draw(&mut self, tried: &Tried) -> Kind {
        if self.dice.below(2) == 0 {
            let state = self.state();
            let is_asked = !self.awaited().is_empty();
            let is_limited = self.open.values().any(|wanted| matches!(wanted, Wanted::Limit));
            let can_be = |kind: Kind| match kind {
                Kind::Fits | Kind::Unfit | Kind::Failed => is_asked,
                Kind::Limit => is_limited,
                _ => true,
            };
            let is_new = |kind: &Kind| can_be(*kind) && !tried.contains(&(state.clone(), *kind));
            let untried = KINDS.into_iter().find(is_new);
            if let Some(kind) = untried {
                return kind;
            }
        }
        // If the thread is blocked: often an input that unblocks it.
        if self.dice.below(2) == 0 {
            match self.machine.status() {
                ThreadStatus::Created => return Kind::Start,
                ThreadStatus::Paused if self.dice.below(4) == 0 => return Kind::Resume,
                ThreadStatus::Paused if self.dice.below(2) == 0 => return Kind::Assign,
                _ if !self.held.is_empty() => return Kind::Triggered,
                _ => {}
            }
        }
        let all: u64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.dice.below(all as usize) as u64;
        for (kind, weight) in WEIGHTS {
            if drawn < weight {
                return kind;
            }
            drawn -= weight;
        }
        Kind::Fits
    }

    fn feed(&mut self, kind: Kind, tried: &mut Tried) {
        let Some(input) = self.input(kind) else { return };
        tried.insert((self.state(), kind));
        let changes_nothing = self.ended || kind == Kind::Stale;
        let before = changes_nothing.then(|| self.snapshot());
        let mut out = Vec::new();
        self.machine.step(self.environment, input, &mut out);
        if let Some(before) = before {
            assert!(out.is_empty(), "{kind:?} in {}: {out:?}", self.state());
            assert_eq!(before, self.snapshot(), "{kind:?} changes nothing");
        }
        for effect in out {
            self.take(effect);
        }
        assert_eq!(self.ended, self.machine.status().is_final());
        self.check_serde();
    }

    /// Returns an input of this kind, or none if the state has no effect to answer.
    fn input(&mut self, kind: Kind) -> Option<Input> {
        let awaited = self.awaited();
        let pick = |world: &mut Self, limits: bool| {
            let is_meant = |(id, wanted): &(&EffectId, &Wanted)| match wanted {
                Wanted::Limit => limits,
                _ => !limits && awaited.contains(id),
            };
            let ids: Vec<EffectId> = world.open.iter().filter(is_meant).map(|(id, _)| *id).collect();
            let id = *ids.get(world.dice.below(ids.len()))?;
            world.over.insert(id);
            world.open.remove(&id).map(|wanted| (id, wanted))
        };
        let answer = |effect, outcome| Some(Input::Answer { effect, outcome });
        match kind {
            Kind::Start => Some(Input::Start),
            Kind::Fits => {
                let (id, wanted) = pick(self, false)?;
                let outcome = self.outcome(&wanted);
                answer(id, outcome)
            }
            Kind::Unfit => {
                let (id, wanted) = pick(self, false)?;
                let outcome = match wanted {
                    Wanted::Elapsed => Outcome::Done,
                    _ => Outcome::Elapsed,
                };
                answer(id, outcome)
            }
            Kind::Failed => {
                let (id, _) = pick(self, false)?;
                answer(id, Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, "drawn")))
            }
            Kind::Stale => {
                // an effect that is answered, cancelled, or abandoned while its message was on its way to the conversation
                let given_up = self
                    .appends
                    .iter()
                    .filter(|id| self.open.contains_key(id) && !awaited.contains(id));
                let known: Vec<EffectId> = self.over.iter().chain(given_up).copied().collect();
                let id = known.get(self.dice.below(known.len())).copied();
                answer(id.unwrap_or(self.last_id + 7), Outcome::Value(Arc::default()))
            }
            Kind::Limit => {
                let (id, _) = pick(self, true)?;
                answer(id, Outcome::Elapsed)
            }
            Kind::Cancel => Some(Input::Cancel {
                reason: CancelReason::JoinDecided,
                trigger_depth: 0,
            }),
            Kind::Pause => Some(Input::Pause { trigger_depth: 0 }),
            Kind::Resume => Some(Input::Resume { trigger_depth: 0 }),
            Kind::Triggered => Some(self.triggered()),
            Kind::Assign => Some(Input::Assign {
                trigger_id: "t".into(),
                name: "v".into(),
                value: Arc::new(json!(self.dice.below(4))),
                trigger_depth: 1,
            }),
        }
    }

    fn triggered(&mut self) -> Input {
        let place = self.dice.below(self.held.len());
        let is_held = !self.held.is_empty();
        let firing = if is_held {
            self.held.swap_remove(place)
        } else {
            self.firing()
        };
        if !self.ended {
            self.firings.insert(firing, 0);
        }
        Input::Triggered {
            firing,
            result: TriggeredResult {
                variables: vec![("v".into(), Arc::new(json!(1)))],
                conversation: self.dice.below(2) == 0,
                holds: is_held,
                is_compression: self.dice.below(2) == 0,
                checks_limit: self.dice.below(2) == 0,
                trigger_depth: 1,
            },
        }
    }
}

proptest! {
    #[test]
    fn a_thread_meets_its_contract_for_any_inputs(seed in any::<u64>(), steps in 1..80_usize) {
        walk(seed, steps, &mut Tried::new());
    }
}
