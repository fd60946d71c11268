//! The order of the runs of a session: one at a time, in the order in which they came.
//!
//! | input | the run | does |
//! |---|---|---|
//! | know | came in an earlier process | stands before all that came since, in its order; nobody carries it |
//! | enter | is new | stands last; refused where as many wait as may |
//! | enter again | goes on | is carried again, in its old place |
//! | ask | has entered | has its turn where it is first; else waits, or, new and behind one that nobody carries, is refused |
//! | leave | whatever it did | is gone; the next one has its turn where it asked |
//! | abandon | has entered | keeps its place, and nobody carries it |
//!
//! Invariants: of a session one run has its turn; a run has it once those before it are gone, and never before it asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The sessions that runs have, or wait for. `W` is whatever tells a run that it has its turn.
#[derive(Debug)]
pub struct SessionQueues<W> {
    by_id: BTreeMap<Arc<str>, VecDeque<Place<W>>>,
    max_waiting: usize,
}

/// A run of a session, and its place in the order of all that came.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionPlace {
    /// The session.
    pub session: Arc<str>,
    /// Rises with every run that comes.
    pub number: u64,
    /// The run.
    pub run: Arc<str>,
}

/// The answer to a run that asks.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionTurn<W> {
    /// It has its turn.
    Now(W),
    /// It is told later.
    Later,
    /// This run comes before it and nobody carries it: nothing says when that ends.
    Behind(Arc<str>),
}

/// As many runs wait for the session as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyWait(pub usize);

#[derive(Debug)]
struct Place<W> {
    run: Arc<str>,
    number: u64,
    stage: Stage<W>,
}

#[derive(Debug)]
enum Stage<W> {
    Abandoned,
    Entered,
    Waits(W),
    HasTurn,
}

impl<W> SessionQueues<W> {
    /// No runs yet; so many may wait for one session.
    pub fn new(max_waiting: usize) -> Self {
        Self {
            by_id: BTreeMap::new(),
            max_waiting,
        }
    }

    /// Runs of earlier processes that have not ended.
    pub fn know(&mut self, runs: impl IntoIterator<Item = SessionPlace>) {
        for place in runs {
            self.put(place, Stage::Abandoned);
        }
    }

    /// A run comes.
    ///
    /// # Errors
    /// Too many wait already.
    pub fn enter(&mut self, place: SessionPlace) -> Result<(), TooManyWait> {
        let before = self.by_id.get(&place.session).map_or(0, VecDeque::len);
        if before > self.max_waiting {
            return Err(TooManyWait(self.max_waiting));
        }
        self.put(place, Stage::Entered);
        Ok(())
    }

    /// A run comes back that nobody carried. It was let in before: no limit refuses it now.
    pub fn enter_again(&mut self, place: SessionPlace) {
        match self.find(&place.session, &place.run) {
            Some(known) => known.stage = Stage::Entered,
            None => self.put(place, Stage::Entered),
        }
    }

    /// A run asks for its turn. `is_new`: it came in this process.
    pub fn ask(&mut self, session: &str, run: &str, is_new: bool, waiter: W) -> SessionTurn<W> {
        let Some(queue) = self.by_id.get_mut(session) else {
            return SessionTurn::Now(waiter);
        };
        let Some(at) = queue.iter().position(|place| *place.run == *run) else {
            return SessionTurn::Now(waiter);
        };
        let abandoned = |place: &&Place<W>| matches!(place.stage, Stage::Abandoned);
        if let Some(before) = queue.iter().take(at).find(abandoned).filter(|_| is_new) {
            return SessionTurn::Behind(Arc::clone(&before.run));
        }
        if at == 0 {
            queue[0].stage = Stage::HasTurn;
            return SessionTurn::Now(waiter);
        }
        queue[at].stage = Stage::Waits(waiter);
        SessionTurn::Later
    }

    /// A run is done with its session, whether it had its turn or not. The next one's turn, where that has asked.
    pub fn leave(&mut self, session: &str, run: &str) -> Option<W> {
        let queue = self.by_id.get_mut(session)?;
        queue.retain(|place| *place.run != *run);
        let Some(first) = queue.front_mut() else {
            self.by_id.remove(session);
            return None;
        };
        match std::mem::replace(&mut first.stage, Stage::HasTurn) {
            Stage::Waits(waiter) => Some(waiter),
            stage @ (Stage::Abandoned | Stage::Entered | Stage::HasTurn) => {
                first.stage = stage;
                None
            }
        }
    }

    /// Nobody carries a run any more that has not ended: those behind it wait for it.
    pub fn abandon(&mut self, session: &str, run: &str) {
        if let Some(place) = self.find(session, run) {
            place.stage = Stage::Abandoned;
        }
    }

    /// A run that comes before this one and that nobody carries.
    pub fn abandoned_before(&self, session: &str, run: &str) -> Option<&Arc<str>> {
        let queue = self.by_id.get(session)?;
        let before = queue.iter().take_while(|place| *place.run != *run);
        let mut abandoned = before.filter(|place| matches!(place.stage, Stage::Abandoned));
        abandoned.next().map(|place| &place.run)
    }

    fn find(&mut self, session: &str, run: &str) -> Option<&mut Place<W>> {
        let queue = self.by_id.get_mut(session)?;
        queue.iter_mut().find(|place| *place.run == *run)
    }

    fn put(&mut self, place: SessionPlace, stage: Stage<W>) {
        let SessionPlace { session, number, run } = place;
        let queue = self.by_id.entry(session).or_default();
        let at = queue.partition_point(|place| place.number < number);
        queue.insert(at, Place { run, number, stage });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX_WAITING: usize = 3;

    #[derive(Clone, Debug)]
    enum Op {
        Know(u8),
        Enter(u8),
        EnterAgain(usize),
        Ask(usize),
        Leave(usize),
        Abandon(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            1 => (0..2_u8).prop_map(Op::Know),
            4 => (0..2_u8).prop_map(Op::Enter),
            1 => any::<usize>().prop_map(Op::EnterAgain),
            5 => any::<usize>().prop_map(Op::Ask),
            3 => any::<usize>().prop_map(Op::Leave),
            1 => any::<usize>().prop_map(Op::Abandon),
        ]
    }

    /// A run as the rule sees it.
    #[derive(Clone, Debug)]
    struct Run {
        place: SessionPlace,
        is_carried: bool,
        is_new: bool,
        has_asked: bool,
    }

    /// The runs that have not left, whoever came first last in no order: the rule looks at all of them.
    #[derive(Debug, Default)]
    struct Oracle(Vec<Run>);

    impl Oracle {
        fn before<'a>(&'a self, run: &'a Run) -> impl Iterator<Item = &'a Run> {
            let place = &run.place;
            let is_before =
                move |other: &&Run| other.place.session == place.session && other.place.number < place.number;
            self.0.iter().filter(is_before)
        }

        fn with_turn(&self) -> Vec<Arc<str>> {
            let has_turn = |run: &&Run| run.is_carried && run.has_asked && self.before(run).next().is_none();
            let mut runs: Vec<_> = self
                .0
                .iter()
                .filter(has_turn)
                .map(|run| Arc::clone(&run.place.run))
                .collect();
            runs.sort();
            runs
        }
    }

    fn place(session: u8, number: u64) -> SessionPlace {
        SessionPlace {
            session: format!("s{session}").into(),
            number,
            run: format!("r{number}").into(),
        }
    }

    proptest! {
        #[test]
        fn runs_of_a_session_have_their_turn_one_after_the_other_in_the_order_in_which_they_came(ops in prop::collection::vec(op(), 0..80)) {
            let mut queues = SessionQueues::<Arc<str>>::new(MAX_WAITING);
            let mut oracle = Oracle::default();
            // Those that have been told that it is their turn, and have not left.
            let mut told: Vec<Arc<str>> = Vec::new();
            // Known ones came before every one that is new.
            let (mut known, mut new) = (0, 1_000);
            for op in ops {
                let pick = |at: usize| (!oracle.0.is_empty()).then(|| at % oracle.0.len());
                match op {
                    Op::Know(session) => {
                        known += 1;
                        let at = place(session, known);
                        // Told at once, before anybody asks.
                        if !oracle.0.iter().any(|run| run.place.session == at.session) {
                            queues.know([at.clone()]);
                            oracle.0.push(Run { place: at, is_carried: false, is_new: false, has_asked: false });
                        }
                    }
                    Op::Enter(session) => {
                        new += 1;
                        let at = place(session, new);
                        let there = oracle.0.iter().filter(|run| run.place.session == at.session).count();
                        let entered = queues.enter(at.clone());
                        prop_assert_eq!(entered.is_ok(), there <= MAX_WAITING);
                        if entered.is_ok() {
                            oracle.0.push(Run { place: at, is_carried: true, is_new: true, has_asked: false });
                        }
                    }
                    Op::EnterAgain(at) => if let Some(at) = pick(at).filter(|at| !oracle.0[*at].is_carried) {
                        let run = &mut oracle.0[at];
                        (run.is_carried, run.is_new, run.has_asked) = (true, false, false);
                        queues.enter_again(run.place.clone());
                    },
                    Op::Ask(at) => if let Some(at) = pick(at).filter(|at| oracle.0[*at].is_carried && !oracle.0[*at].has_asked) {
                        let run = oracle.0[at].clone();
                        let abandoned = oracle.before(&run).filter(|other| !other.is_carried).min_by_key(|other| other.place.number);
                        let behind = abandoned.filter(|_| run.is_new).map(|other| Arc::clone(&other.place.run));
                        match queues.ask(&run.place.session, &run.place.run, run.is_new, Arc::clone(&run.place.run)) {
                            SessionTurn::Now(run) => {
                                oracle.0[at].has_asked = true;
                                told.push(run);
                            }
                            SessionTurn::Later => oracle.0[at].has_asked = true,
                            SessionTurn::Behind(found) => prop_assert_eq!(Some(found), behind.clone()),
                        }
                        prop_assert!(behind.is_none() || !oracle.0[at].has_asked);
                    },
                    Op::Leave(at) => if let Some(at) = pick(at) {
                        let run = oracle.0.remove(at).place;
                        told.retain(|told| *told != run.run);
                        told.extend(queues.leave(&run.session, &run.run));
                    },
                    Op::Abandon(at) => if let Some(at) = pick(at) {
                        let run = &mut oracle.0[at];
                        (run.is_carried, run.has_asked) = (false, false);
                        told.retain(|told| *told != run.place.run);
                        queues.abandon(&run.place.session, &run.place.run);
                    },
                }
                told.sort();
                prop_assert_eq!(&told, &oracle.with_turn());
            }
            for run in std::mem::take(&mut oracle.0) {
                queues.leave(&run.place.session, &run.place.run);
            }
            prop_assert!(queues.by_id.is_empty(), "nothing is kept of sessions that nobody has");
        }
    }

    #[test]
    fn so_many_wait_and_one_more_is_refused() {
        let mut queues = SessionQueues::<()>::new(1);
        assert_eq!(queues.enter(place(0, 1)), Ok(()));
        assert_eq!(queues.enter(place(0, 2)), Ok(()));
        assert_eq!(queues.enter(place(0, 3)), Err(TooManyWait(1)));
        assert_eq!(queues.enter(place(1, 4)), Ok(()), "another session");
        queues.leave("s0", "r1");
        assert_eq!(queues.enter(place(0, 5)), Ok(()));
    }
}
