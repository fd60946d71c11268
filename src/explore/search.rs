//! Which schedule is run next: depth first over the choices, each schedule from the start by the choices that lead to it.
//!
//! A state that was met before, by no longer a way, is not gone into again: whatever can follow has been tried, or will
//! be when the search comes back to where it was first met.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use pirn_actors::host::{Chance, Chooser, Pending};

/// The search, shared with the chooser that follows it.
pub(super) struct Search {
    state: Rc<RefCell<State>>,
}

/// The way of one schedule.
#[derive(Clone)]
pub(super) struct Way {
    state: Rc<RefCell<State>>,
}

struct State {
    is_reduced: bool,
    /// The shortest way to each state so far.
    met: BTreeMap<u64, usize>,
    /// The choices to follow, then go on freely.
    prefix: Vec<usize>,
    dice: Option<Chance>,
    made: Vec<Made>,
    end: End,
}

/// A choice that was made.
pub(super) struct Made {
    options: usize,
    chosen: usize,
    /// What it was.
    pub(super) what: String,
    /// Whether it belongs to an order that is shown: there was a choice, or it happened in a branch.
    pub(super) is_shown: bool,
}

/// How a schedule's choices ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The run ended, or can go no further.
    Whole,
    /// A state was met that was met before.
    Met,
    /// A choice was not there the second time.
    Astray,
}

impl Search {
    pub(super) fn new(is_reduced: bool) -> Self {
        let state = State {
            is_reduced,
            met: BTreeMap::new(),
            prefix: Vec::new(),
            dice: None,
            made: Vec::new(),
            end: End::Whole,
        };
        Self {
            state: Rc::new(RefCell::new(state)),
        }
    }

    /// The next schedule.
    pub(super) fn next_way(&self) -> Way {
        self.way(None)
    }

    /// A schedule that `seed` draws.
    pub(super) fn random_way(&mut self, seed: u64) -> Way {
        self.state.borrow_mut().prefix.clear();
        self.way(Some(Chance::new(seed)))
    }

    fn way(&self, dice: Option<Chance>) -> Way {
        let mut state = self.state.borrow_mut();
        state.dice = dice;
        state.made.clear();
        state.end = End::Whole;
        Way {
            state: Rc::clone(&self.state),
        }
    }

    /// Turns to the next choice that has not been tried; false where there is none.
    pub(super) fn advance(&mut self) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(place) = state.made.iter().rposition(|made| made.chosen + 1 < made.options) else {
            return false;
        };
        let chosen = state.made[..place].iter().map(|made| made.chosen);
        let prefix = chosen.chain([state.made[place].chosen + 1]).collect();
        state.prefix = prefix;
        true
    }
}

impl Way {
    pub(super) fn made(&self) -> Ref<'_, [Made]> {
        Ref::map(self.state.borrow(), |state| &state.made[..])
    }

    pub(super) fn end(&self) -> End {
        let state = self.state.borrow();
        if state.end == End::Whole && state.made.len() < state.prefix.len() {
            return End::Astray;
        }
        state.end
    }
}

impl Chooser for Way {
    fn choose(&mut self, options: &[Pending], state: u64) -> Option<usize> {
        let mut search = self.state.borrow_mut();
        let place = search.made.len();
        let chosen = match (search.prefix.get(place).copied(), &search.dice) {
            (Some(chosen), _) => {
                if chosen >= options.len() {
                    search.end = End::Astray;
                    return None;
                }
                chosen
            }
            (None, Some(dice)) => dice.below(options.len()),
            (None, None) => {
                if search.is_reduced && search.met.get(&state).is_some_and(|known| *known <= place) {
                    search.end = End::Met;
                    return None;
                }
                search.met.insert(state, place);
                0
            }
        };
        let what = options.get(chosen)?;
        let made = Made {
            options: options.len(),
            chosen,
            what: what.to_string(),
            is_shown: options.len() > 1 || what.is_branch,
        };
        search.made.push(made);
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pirn_actors::host::Asked;

    use super::*;

    fn option(name: &str) -> Pending {
        Pending {
            thread: name.into(),
            is_branch: true,
            node: Arc::from(""),
            what: Asked::Start,
        }
    }

    /// Plays the orders of `names`, with a state that is the set of those that are over.
    fn play(names: &[&str], way: &mut Way) -> bool {
        let mut left: Vec<&str> = names.to_vec();
        while !left.is_empty() {
            let options: Vec<Pending> = left.iter().map(|name| option(name)).collect();
            let state = left.iter().map(|name| 1_u64 << name.len()).sum();
            let Some(chosen) = way.choose(&options, state) else {
                return false;
            };
            left.remove(chosen);
        }
        true
    }

    fn schedules(names: &[&str], is_reduced: bool) -> (usize, usize) {
        let mut search = Search::new(is_reduced);
        let (mut all, mut whole) = (0, 0);
        loop {
            all += 1;
            whole += usize::from(play(names, &mut search.next_way()));
            if !search.advance() {
                return (all, whole);
            }
        }
    }

    #[test]
    fn without_the_reduction_every_order_is_run() {
        assert_eq!(schedules(&["1", "22", "333", "4444"], false), (24, 24));
    }

    #[test]
    fn every_state_is_gone_into_once_with_it() {
        // 2^4 states and 4 * 2^3 steps between them: one schedule for the first way, one for each other step. At the end
        // nothing is left to choose, so each of the four states before it is gone out of.
        assert_eq!(schedules(&["1", "22", "333", "4444"], true), (4 * 8 - 16 + 2, 4));
    }

    #[test]
    fn a_choice_that_is_not_there_again_is_noticed() {
        let mut search = Search::new(false);
        assert!(play(&["1", "22"], &mut search.next_way()));
        assert!(search.advance());
        let mut way = search.next_way();
        assert!(!play(&["1"], &mut way));
        assert_eq!(way.end(), End::Astray);
    }
}
