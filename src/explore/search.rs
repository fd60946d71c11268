//! Selects the next schedule: depth-first search over the choices. Each schedule starts from the beginning and follows the choices
//! that lead to it.
//!
//! A state that was reached before by no more choices is not explored again: its continuations have been run, or will be when the
//! search returns to its first occurrence.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use pirn_actors::host::{Chance, Chooser, Pending};

use super::Choices;
use super::collected::Collected;

/// The search state, shared with the chooser of each schedule.
pub(super) struct Search {
    // Shared and not passed back and forth, because the host owns the chooser while a schedule runs.
    state: Rc<RefCell<State>>,
}

/// The choices that a schedule follows before it chooses freely.
#[derive(Clone)]
pub(super) struct Prefix {
    state: Rc<RefCell<State>>,
}

struct State {
    is_reduced: bool,
    /// Minimum number of choices that led to each state so far.
    visited: BTreeMap<u64, usize>,
    /// The choices to follow before free choices.
    prefix: Vec<usize>,
    dice: Option<Chance>,
    made: Vec<Choice>,
    end: End,
    /// Called at every choice; true ends the schedule.
    stop: Box<dyn FnMut() -> bool>,
    /// The events of the schedule, if they are collected.
    collected: Option<Collected>,
}

/// A choice that was made.
pub(super) struct Choice {
    pub(super) options: usize,
    pub(super) chosen: usize,
    /// The event that was chosen.
    pub(super) event: Pending,
    /// Hash of the state before the choice.
    pub(super) state: u64,
    /// Number of events that were raised before the choice, if they are collected.
    pub(super) raised: usize,
    /// True if the choice is part of a displayed order: there were alternatives, or the event is in a branch.
    pub(super) is_shown: bool,
}

/// Reason for the end of a schedule's choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The run ended or is deadlocked.
    Complete,
    /// The schedule reached the state with this hash, which was reached before.
    Visited(u64),
    /// A choice of the prefix did not exist in the repetition.
    Diverged,
    /// [`Explorer::interrupt_when`](super::Explorer::interrupt_when) ended the schedule.
    Stopped,
}

impl Search {
    pub(super) fn new(is_reduced: bool) -> Self {
        let state = State {
            is_reduced,
            visited: BTreeMap::new(),
            prefix: Vec::new(),
            dice: None,
            made: Vec::new(),
            end: End::Complete,
            stop: Box::new(|| false),
            collected: None,
        };
        Self {
            state: Rc::new(RefCell::new(state)),
        }
    }

    /// Creates a search that starts with these choices, and does not stop at known states.
    pub(super) fn following(choices: &Choices) -> Self {
        let search = Self::new(false);
        search.state.borrow_mut().prefix = choices.to_list();
        search
    }

    /// Sets the function that ends the current schedule when it returns true.
    pub(super) fn interrupt_when(&self, stop: Box<dyn FnMut() -> bool>) {
        self.state.borrow_mut().stop = stop;
    }

    /// Makes choices count the events that were raised before them.
    pub(super) fn count_events(&self, collected: Collected) {
        self.state.borrow_mut().collected = Some(collected);
    }

    /// Returns the choices of the last schedule.
    pub(super) fn made(&self) -> Ref<'_, [Choice]> {
        Ref::map(self.state.borrow(), |state| &state.made[..])
    }

    /// Returns whether the exploration must end.
    pub(super) fn is_stopped(&self) -> bool {
        let mut state = self.state.borrow_mut();
        state.end == End::Stopped || (state.stop)()
    }

    /// Returns the prefix of the next schedule.
    pub(super) fn next_prefix(&self) -> Prefix {
        self.prefix(None)
    }

    /// Returns the prefix of a random schedule with this seed.
    pub(super) fn random_prefix(&mut self, seed: u64) -> Prefix {
        // A sample chooses freely from its first choice.
        self.state.borrow_mut().prefix.clear();
        self.prefix(Some(Chance::new(seed)))
    }

    fn prefix(&self, dice: Option<Chance>) -> Prefix {
        let mut state = self.state.borrow_mut();
        state.dice = dice;
        state.made.clear();
        state.end = End::Complete;
        Prefix {
            state: Rc::clone(&self.state),
        }
    }

    /// Advances to the next untried choice. Returns false if there is none.
    pub(super) fn advance(&mut self) -> bool {
        let mut state = self.state.borrow_mut();
        // Depth first: the last choice with an untried alternative changes, and the choices before it stay.
        let Some(place) = state.made.iter().rposition(|made| made.chosen + 1 < made.options) else {
            return false;
        };
        let chosen = state.made[..place].iter().map(|made| made.chosen);
        let prefix = chosen.chain([state.made[place].chosen + 1]).collect();
        state.prefix = prefix;
        true
    }
}

impl Prefix {
    pub(super) fn made(&self) -> Ref<'_, [Choice]> {
        Ref::map(self.state.borrow(), |state| &state.made[..])
    }

    pub(super) fn end(&self) -> End {
        let state = self.state.borrow();
        // The run ended before it had made the choices that led to its state the last time.
        if state.end == End::Complete && state.made.len() < state.prefix.len() {
            return End::Diverged;
        }
        state.end
    }
}

impl Chooser for Prefix {
    fn choose(&mut self, options: &[Pending], state: u64) -> Option<usize> {
        let mut search = self.state.borrow_mut();
        // At every choice and not only between schedules: one schedule of a long loop may take seconds.
        if (search.stop)() {
            search.end = End::Stopped;
            return None;
        }
        let place = search.made.len();
        let chosen = match (search.prefix.get(place).copied(), &search.dice) {
            (Some(chosen), _) => {
                // The prefix was recorded with more options at this choice.
                if chosen >= options.len() {
                    search.end = End::Diverged;
                    return None;
                }
                chosen
            }
            // Samples ignore known states: their purpose is to reach orders that the search has not visited.
            (None, Some(dice)) => dice.below(options.len()),
            (None, None) => {
                // A shorter way to a known state is followed, so that the reported orders are the shortest.
                if search.is_reduced && search.visited.get(&state).is_some_and(|known| *known <= place) {
                    search.end = End::Visited(state);
                    return None;
                }
                search.visited.insert(state, place);
                0
            }
        };
        let event = options.get(chosen)?.clone();
        let made = Choice {
            options: options.len(),
            chosen,
            // A step without an alternative outside of branches happens in every order, so it does not distinguish orders.
            is_shown: options.len() > 1 || event.is_branch,
            event,
            state,
            raised: search.collected.as_ref().map_or(0, Collected::count),
        };
        search.made.push(made);
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pirn_actors::host::AwaitKind;

    use super::*;

    fn option(name: &str) -> Pending {
        Pending {
            thread: name.into(),
            is_branch: true,
            node: Arc::from(""),
            what: AwaitKind::Start,
            answer: None,
        }
    }

    /// Executes an order of `names`. The state is the set of completed ones.
    fn play(names: &[&str], prefix: &mut Prefix) -> bool {
        let mut left: Vec<&str> = names.to_vec();
        while !left.is_empty() {
            let options: Vec<Pending> = left.iter().map(|name| option(name)).collect();
            let state = left.iter().map(|name| 1_u64 << name.len()).sum();
            let Some(chosen) = prefix.choose(&options, state) else {
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
            whole += usize::from(play(names, &mut search.next_prefix()));
            if !search.advance() {
                return (all, whole);
            }
        }
    }

    #[test]
    fn without_reduction_every_order_is_run() {
        assert_eq!(schedules(&["1", "22", "333", "4444"], false), (24, 24));
    }

    #[test]
    fn with_reduction_every_state_is_explored_once() {
        // 2^4 states and 4 * 2^3 steps between them: one schedule for the first order, and one for each other step. The last state
        // has no choices, so each of the four states before it is left once.
        assert_eq!(schedules(&["1", "22", "333", "4444"], true), (4 * 8 - 16 + 2, 4));
    }

    #[test]
    fn a_choice_missing_from_the_replay_is_reported_as_divergence() {
        let mut search = Search::new(false);
        assert!(play(&["1", "22"], &mut search.next_prefix()));
        assert!(search.advance());
        let mut prefix = search.next_prefix();
        assert!(!play(&["1"], &mut prefix));
        assert_eq!(prefix.end(), End::Diverged);
    }
}
