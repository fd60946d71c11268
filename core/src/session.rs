//! Queue of the runs of each session: runs execute one at a time, in the order in which they entered. The rows are the methods of
//! [`SessionQueues`].
//!
//! | method | called when | effect |
//! |---|---|---|
//! | `know` | the process starts | adds an unfinished run of an earlier process at its stored position, as abandoned (no owner) |
//! | `enter` | a new run is admitted | appends the run; refused if more than `max_waiting` runs are queued |
//! | `enter_again` | a run is resumed | the run has an owner again and is at its old position |
//! | `ask` | a run is ready to start | grants the turn to the first run; else waits, or refuses a new run that is behind an abandoned one |
//! | `leave` | a run has ended | removes the run; the next run gets the turn if it waits for it |
//! | `abandon` | an owner drops a run that has not ended | the run stays at its position, without an owner |
//!
//! Invariants: at most one run of a session has the turn. A run gets the turn after all runs before it have left, and only after
//! it requested the turn.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Queues of all sessions. `W` is the waiter that notifies a run of its turn.
#[derive(Debug)]
pub struct SessionQueues<W> {
    by_id: BTreeMap<Arc<str>, VecDeque<Place<W>>>,
    max_waiting: usize,
}

/// A run of a session and its position in the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionPlace {
    /// The session.
    pub session: Arc<str>,
    /// Position in the queue; increases with every run that enters.
    pub number: u64,
    /// The run.
    pub run: Arc<str>,
}

/// The answer to a request for the turn.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionTurn<W> {
    /// The run has the turn.
    Now(W),
    /// The run waits; its waiter is notified later.
    Later,
    /// This earlier run has no owner, so nothing bounds the wait: it must be resumed or cancelled first.
    Behind(Arc<str>),
}

/// The maximum number of runs waits for the session.
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
    /// Creates empty queues that admit up to `max_waiting` waiting runs for each session.
    pub fn new(max_waiting: usize) -> Self {
        Self {
            by_id: BTreeMap::new(),
            max_waiting,
        }
    }

    /// Adds unfinished runs of earlier processes, without owners.
    pub fn know(&mut self, runs: impl IntoIterator<Item = SessionPlace>) {
        for place in runs {
            self.put(place, Stage::Abandoned);
        }
    }

    /// Appends a new run.
    ///
    /// # Errors
    /// The maximum number of runs waits for the session.
    pub fn enter(&mut self, place: SessionPlace) -> Result<(), TooManyWait> {
        let before = self.by_id.get(&place.session).map_or(0, VecDeque::len);
        // The first run of the queue does not count as waiting.
        if before > self.max_waiting {
            return Err(TooManyWait(self.max_waiting));
        }
        self.put(place, Stage::Entered);
        Ok(())
    }

    /// Gives a resumed run an owner again. The limit does not apply, because the run was admitted before.
    pub fn enter_again(&mut self, place: SessionPlace) {
        match self.find(&place.session, &place.run) {
            Some(known) => known.stage = Stage::Entered,
            None => self.put(place, Stage::Entered),
        }
    }

    /// Requests the turn for a run. `is_new`: the run entered in this process.
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

    /// Removes a run from its session, with or without the turn. Returns the waiter of the next run if that run waits for its
    /// turn.
    pub fn leave(&mut self, left: &SessionPlace) -> Option<W> {
        let queue = self.by_id.get_mut(&left.session)?;
        // Also by the number: a new run that is refused because its id is taken leaves the position of the other run alone.
        queue.retain(|place| place.run != left.run || place.number != left.number);
        let Some(first) = queue.front_mut() else {
            self.by_id.remove(&left.session);
            return None;
        };
        // A run that has not requested its turn gets it later, from `ask`.
        match std::mem::replace(&mut first.stage, Stage::HasTurn) {
            Stage::Waits(waiter) => Some(waiter),
            stage @ (Stage::Abandoned | Stage::Entered | Stage::HasTurn) => {
                first.stage = stage;
                None
            }
        }
    }

    /// Marks an unfinished run as having no owner. The runs behind it continue to wait for it.
    pub fn abandon(&mut self, session: &str, run: &str) {
        if let Some(place) = self.find(session, run) {
            place.stage = Stage::Abandoned;
        }
    }

    /// Returns the first run that is before this one and has no owner.
    pub fn abandoned_before(&self, session: &str, run: &str) -> Option<&Arc<str>> {
        let queue = self.by_id.get(session)?;
        let before = queue.iter().take_while(|place| *place.run != *run);
        let mut abandoned = before.filter(|place| matches!(place.stage, Stage::Abandoned));
        abandoned.next().map(|place| &place.run)
    }

    /// Returns true if no run is before this one.
    pub fn is_first(&self, session: &str, run: &str) -> bool {
        let first = self.by_id.get(session).and_then(VecDeque::front);
        first.is_none_or(|first| *first.run == *run)
    }

    /// Returns the runs of a session that have an owner, in their order.
    pub fn owned(&self, session: &str) -> Vec<Arc<str>> {
        let queue = self.by_id.get(session).into_iter().flatten();
        let owned = queue.filter(|place| !matches!(place.stage, Stage::Abandoned));
        owned.map(|place| Arc::clone(&place.run)).collect()
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

    /// A run in the oracle.
    #[derive(Clone, Debug)]
    struct Run {
        place: SessionPlace,
        is_carried: bool,
        is_new: bool,
        has_asked: bool,
    }

    /// Oracle: the runs that have not left, unordered. Each check scans all of them.
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
        fn the_runs_of_a_session_get_their_turn_one_by_one_in_arrival_order(ops in prop::collection::vec(op(), 0..80)) {
            let mut queues = SessionQueues::<Arc<str>>::new(MAX_WAITING);
            let mut oracle = Oracle::default();
            // Runs that were granted the turn and have not left.
            let mut granted: Vec<Arc<str>> = Vec::new();
            // Runs of an earlier process have lower numbers than every new run.
            let (mut known, mut new) = (0, 1_000);
            for op in ops {
                let pick = |at: usize| (!oracle.0.is_empty()).then(|| at % oracle.0.len());
                match op {
                    Op::Know(session) => {
                        known += 1;
                        let at = place(session, known);
                        // `know` is called at the start of a process, before any run requests its turn.
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
                                granted.push(run);
                            }
                            SessionTurn::Later => oracle.0[at].has_asked = true,
                            SessionTurn::Behind(found) => prop_assert_eq!(Some(found), behind.clone()),
                        }
                        prop_assert!(behind.is_none() || !oracle.0[at].has_asked);
                    },
                    Op::Leave(at) => if let Some(at) = pick(at) {
                        let run = oracle.0.remove(at).place;
                        granted.retain(|granted| *granted != run.run);
                        granted.extend(queues.leave(&run));
                    },
                    Op::Abandon(at) => if let Some(at) = pick(at) {
                        let run = &mut oracle.0[at];
                        (run.is_carried, run.has_asked) = (false, false);
                        granted.retain(|granted| *granted != run.place.run);
                        queues.abandon(&run.place.session, &run.place.run);
                    },
                }
                granted.sort();
                prop_assert_eq!(&granted, &oracle.with_turn());
            }
            for run in std::mem::take(&mut oracle.0) {
                queues.leave(&run.place);
            }
            prop_assert!(queues.by_id.is_empty(), "sessions without a run are removed");
        }
    }

    #[test]
    fn a_refused_run_with_the_id_of_another_one_leaves_its_position() {
        let mut queues = SessionQueues::new(2);
        queues.enter(place(0, 1)).expect("the first");
        assert_eq!(queues.ask("s0", "r1", true, "first"), SessionTurn::Now("first"));
        let same_id = SessionPlace {
            number: 2,
            ..place(0, 1)
        };
        queues.enter(same_id.clone()).expect("room");
        queues.enter(place(0, 3)).expect("room");
        assert_eq!(queues.leave(&same_id), None);
        assert_eq!(
            queues.ask("s0", "r3", true, "third"),
            SessionTurn::Later,
            "the first run has the turn"
        );
        assert_eq!(queues.leave(&place(0, 1)), Some("third"));
    }

    #[test]
    fn the_runs_with_an_owner_are_listed_in_their_order() {
        let mut queues = SessionQueues::<()>::new(2);
        assert!(queues.is_first("s0", "r1"), "the session has no run");
        for number in 1..=3 {
            queues.enter(place(0, number)).expect("room");
        }
        queues.abandon("s0", "r2");
        assert_eq!(queues.owned("s0"), ["r1".into(), "r3".into()]);
        assert!(queues.is_first("s0", "r1") && !queues.is_first("s0", "r2"));
        queues.leave(&place(0, 1));
        assert!(queues.is_first("s0", "r2"));
        assert_eq!(queues.owned("s1"), Vec::<Arc<str>>::new());
    }

    #[test]
    fn a_run_over_the_waiting_limit_is_refused() {
        let mut queues = SessionQueues::<()>::new(1);
        assert_eq!(queues.enter(place(0, 1)), Ok(()));
        assert_eq!(queues.enter(place(0, 2)), Ok(()));
        assert_eq!(queues.enter(place(0, 3)), Err(TooManyWait(1)));
        assert_eq!(queues.enter(place(1, 4)), Ok(()), "another session");
        queues.leave(&place(0, 1));
        assert_eq!(queues.enter(place(0, 5)), Ok(()));
    }
}
