//! The accounts of a run's budgets, and the model calls that draw on them.
//!
//! | what happens | to the call | to the accounts that it draws on |
//! |---|---|---|
//! | it is asked for, and fits | open | its most is reserved |
//! | it does not fit before open calls give back | waits | its most is claimed: later calls find that taken |
//! | it would not fit if they gave back all | refused | nothing |
//! | an open one ends, its use is known | gone | the reservation goes, the use counts |
//! | an open one ends, its use is not known | gone | all that it had reserved counts |
//! | one that waits is given up | gone | the claim goes |
//!
//! After each end, those that wait are looked at in the order in which they came. A call counts as one as soon as it is open:
//! that is never given back.
//!
//! Invariants: of an account, what is used and reserved is at most its limit, as long as no call uses more than it reserved; a
//! call waits only while an open one stands in its way; no later call takes what an earlier one waits for.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::ThreadNo;
use super::amount::{Amount, FigureKind, Limits, Most};
use crate::thread::{Effect, EffectId};

/// An account's place; those above it have lower ones.
pub(super) type AccountNo = u32;

/// One budget of one thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Account {
    /// The thread that it was opened for.
    pub(super) thread: ThreadNo,
    /// True if it is that of the thread as a path; else that of the workflow which the thread walks.
    pub(super) is_path: bool,
    /// The next one that its calls draw on too.
    parent: Option<AccountNo>,
    pub(super) limits: Limits,
    used: Amount,
    reserved: Amount,
    /// Of those that wait.
    claimed: Amount,
    /// The warning of each kind was told.
    warned: [bool; 3],
}

impl Account {
    /// The figure and its limit, where models are told of it.
    fn warning(&self, kind: FigureKind) -> Option<Figure> {
        let limit = self.limits.of_kind(kind)?;
        let used = self.used.of(kind);
        (used as f64 >= limit as f64 * self.limits.warn_at).then_some(Figure { kind, used, limit })
    }
}

/// A figure of an account, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figure {
    pub(super) kind: FigureKind,
    pub(super) used: u64,
    pub(super) limit: u64,
}

/// A call that is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Open {
    thread: ThreadNo,
    effect: EffectId,
    account: AccountNo,
    most: Most,
}

/// A call that waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Waiting {
    thread: ThreadNo,
    id: EffectId,
    account: AccountNo,
    most: Most,
    effect: Box<Effect>,
}

/// The reason that a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nobody knows the most that it may use of this, which is limited.
    Unbounded { account: AccountNo, kind: FigureKind },
    /// It needs so much, and more is used of the limit than leaves room for it.
    Short {
        account: AccountNo,
        figure: Figure,
        needs: u64,
    },
}

/// The answer to a call that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It is open: it begins.
    Begins,
    Waits,
    Refused(Refusal),
}

/// The calls that have waited and wait no more, in order.
#[derive(Clone, Debug)]
pub(super) enum Released {
    Begins(ThreadNo, Box<Effect>),
    Refused(ThreadNo, EffectId, Refusal),
}

/// The end of an open call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Settled {
    /// Figures that are told for the first time, and their accounts.
    pub(super) warnings: Vec<(AccountNo, Figure)>,
    /// It has used more than it had reserved: what it had reserved, and what it used.
    pub(super) overrun: Option<(Amount, Amount)>,
}

/// See the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ledger {
    accounts: Vec<Account>,
    /// The account that the calls of a thread draw on first; of threads that were looked for.
    of_thread: BTreeMap<ThreadNo, Option<AccountNo>>,
    /// By thread and effect.
    open: Vec<Open>,
    waiting: VecDeque<Waiting>,
    /// Asked for since the run was told something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lately: Vec<CallMost>,
    /// The first of those that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<(ThreadNo, EffectId)>,
    /// Asked for again until the run is told something: as it was the first time.
    #[serde(skip)]
    again: Vec<CallMost>,
}

/// The most that a model call may use, as it was when its budgets were asked for it. It depends on the profiles, which may be others
/// when the run is rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallMost {
    thread: ThreadNo,
    effect: EffectId,
    /// None: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    /// Millionths of a millionth of the currency; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pico: Option<u64>,
}

impl Ledger {
    /// The most of the calls that were asked for since the run was told something.
    pub(super) fn lately(&self) -> &[CallMost] {
        &self.lately
    }

    /// The first of those that was refused.
    pub(super) fn refused(&self) -> Option<(ThreadNo, EffectId)> {
        self.refused
    }

    /// These calls are asked for again.
    pub(super) fn expect(&mut self, again: &[CallMost]) {
        self.again = again.to_vec();
    }

    /// The run is told something.
    pub(super) fn told(&mut self) {
        self.lately.clear();
        self.refused = None;
        self.again.clear();
    }

    /// The most that a call may use: as it was, where it is asked for again, else as `ask` says.
    pub(super) fn most_of(&mut self, thread: ThreadNo, effect: EffectId, ask: impl FnOnce() -> Most) -> Most {
        let mut again = self.again.iter();
        let known = again.find(|known| (known.thread, known.effect) == (thread, effect));
        let most = known.map_or_else(ask, |known| Most {
            tokens: known.tokens,
            pico: known.pico,
        });
        let Most { tokens, pico } = most;
        self.lately.push(CallMost {
            thread,
            effect,
            tokens,
            pico,
        });
        most
    }

    /// True if the accounts of a thread are known.
    pub(super) fn knows(&self, thread: ThreadNo) -> bool {
        self.of_thread.contains_key(&thread)
    }

    /// The account that the calls of a thread draw on first, where it is known and there is one.
    pub(super) fn first_account(&self, thread: ThreadNo) -> Option<AccountNo> {
        self.of_thread.get(&thread).copied().flatten()
    }

    /// The calls of a thread draw on this account first.
    pub(super) fn draws_on(&mut self, thread: ThreadNo, account: Option<AccountNo>) {
        self.of_thread.insert(thread, account);
    }

    /// A new account, whose calls draw on `parent` too.
    pub(super) fn open_account(
        &mut self,
        thread: ThreadNo,
        is_path: bool,
        parent: Option<AccountNo>,
        limits: Limits,
    ) -> AccountNo {
        self.accounts.push(Account {
            thread,
            is_path,
            parent,
            limits,
            used: Amount::default(),
            reserved: Amount::default(),
            claimed: Amount::default(),
            warned: [false; 3],
        });
        (self.accounts.len() - 1) as AccountNo
    }

    pub(super) fn account(&self, no: AccountNo) -> Option<&Account> {
        self.accounts.get(no as usize)
    }

    /// The figures of a thread's own account as a workflow: those that are limited.
    pub(super) fn figures(&self, thread: ThreadNo) -> impl Iterator<Item = Figure> {
        let own = |account: &&Account| account.thread == thread && !account.is_path;
        let account = self.accounts.iter().find(own);
        account.into_iter().flat_map(|account| {
            FigureKind::ALL.into_iter().filter_map(|kind| {
                Some(Figure {
                    kind,
                    used: account.used.of(kind),
                    limit: account.limits.of_kind(kind)?,
                })
            })
        })
    }

    /// The figures that a model is told whose call draws on this account first.
    pub(super) fn warnings(&self, account: AccountNo) -> impl Iterator<Item = (&Account, Figure)> {
        let figures = |account| {
            FigureKind::ALL
                .into_iter()
                .filter_map(move |kind| Account::warning(account, kind))
        };
        self.chain(account)
            .filter_map(|no| self.account(no))
            .flat_map(move |account| figures(account).map(move |figure| (account, figure)))
    }

    /// The account and those above it.
    fn chain(&self, account: AccountNo) -> impl Iterator<Item = AccountNo> {
        std::iter::successors(Some(account), |no| self.account(*no)?.parent)
    }

    /// A call asks to begin.
    pub(super) fn ask(
        &mut self,
        thread: ThreadNo,
        id: EffectId,
        account: AccountNo,
        most: Most,
        effect: &Effect,
    ) -> Asked {
        if let Some(refusal) = self.refusal(account, most) {
            self.refused.get_or_insert((thread, id));
            return Asked::Refused(refusal);
        }
        if self.fits(account, most.amount()) {
            self.begin(thread, id, account, most);
            return Asked::Begins;
        }
        self.claim(account, most.amount());
        self.waiting.push_back(Waiting {
            thread,
            id,
            account,
            most,
            effect: Box::new(effect.clone()),
        });
        Asked::Waits
    }

    /// The reason that a call can not be made, whatever the open ones give back.
    fn refusal(&self, account: AccountNo, most: Most) -> Option<Refusal> {
        let needs = most.amount();
        self.chain(account).find_map(|no| {
            let account = self.account(no)?;
            let is_unbounded = |kind: &FigureKind| account.limits.of_kind(*kind).is_some() && !most.is_known(*kind);
            if let Some(kind) = FigureKind::ALL.into_iter().find(is_unbounded) {
                return Some(Refusal::Unbounded { account: no, kind });
            }
            let kind = account.limits.exceeded_by(account.used.plus(needs))?;
            let figure = Figure {
                kind,
                used: account.used.of(kind),
                limit: account.limits.of_kind(kind)?,
            };
            Some(Refusal::Short {
                account: no,
                figure,
                needs: needs.of(kind),
            })
        })
    }

    /// True if there is room for it beside what is open and what waits.
    fn fits(&self, account: AccountNo, needs: Amount) -> bool {
        self.chain(account).filter_map(|no| self.account(no)).all(|account| {
            let taken = account.used.plus(account.reserved).plus(account.claimed);
            account.limits.exceeded_by(taken.plus(needs)).is_none()
        })
    }

    fn claim(&mut self, account: AccountNo, amount: Amount) {
        self.each(account, |account| account.claimed = account.claimed.plus(amount));
    }

    fn each(&mut self, account: AccountNo, mut change: impl FnMut(&mut Account)) {
        let mut next = Some(account);
        while let Some(account) = next.and_then(|no| self.accounts.get_mut(no as usize)) {
            change(account);
            next = account.parent;
        }
    }

    fn begin(&mut self, thread: ThreadNo, effect: EffectId, account: AccountNo, most: Most) {
        let reserved = most.amount();
        self.each(account, |account| {
            account.used.calls = account.used.calls.saturating_add(1);
            account.reserved = account.reserved.plus(Amount { calls: 0, ..reserved });
        });
        let place = self
            .open
            .partition_point(|open| (open.thread, open.effect) < (thread, effect));
        let open = Open {
            thread,
            effect,
            account,
            most,
        };
        self.open.insert(place, open);
    }

    /// An open call has ended. `used`: what it has used, none where nobody knows. None if it is not open.
    pub(super) fn settle(&mut self, thread: ThreadNo, effect: EffectId, used: Option<Amount>) -> Option<Settled> {
        let place = self
            .open
            .binary_search_by_key(&(thread, effect), |open| (open.thread, open.effect));
        let open = self.open.remove(place.ok()?);
        let reserved = Amount {
            calls: 0,
            ..open.most.amount()
        };
        let used = used.unwrap_or(reserved);
        self.each(open.account, |account| {
            account.reserved = account.reserved.minus(reserved);
        });
        let is_over = |kind: FigureKind| open.most.is_known(kind) && used.of(kind) > reserved.of(kind);
        let is_overrun = is_over(FigureKind::Tokens) || is_over(FigureKind::Cost);
        Some(Settled {
            warnings: self.count(open.account, used),
            overrun: is_overrun.then_some((reserved, used)),
        })
    }

    /// Something was used that nothing was reserved for.
    pub(super) fn count(&mut self, account: AccountNo, used: Amount) -> Vec<(AccountNo, Figure)> {
        self.each(account, |account| account.used = account.used.plus(used));
        let chain: Vec<AccountNo> = self.chain(account).collect();
        let mut warnings = Vec::new();
        for no in chain {
            let Some(account) = self.accounts.get_mut(no as usize) else {
                continue;
            };
            for (place, kind) in FigureKind::ALL.into_iter().enumerate() {
                if let Some(figure) = account.warning(kind)
                    && !std::mem::replace(&mut account.warned[place], true)
                {
                    warnings.push((no, figure));
                }
            }
        }
        warnings
    }

    /// A call is given up. True if it had waited: it was never made.
    pub(super) fn give_up(&mut self, thread: ThreadNo, effect: EffectId) -> bool {
        let is_it = |waiting: &Waiting| (waiting.thread, waiting.id) == (thread, effect);
        let place = self.waiting.iter().position(is_it);
        let Some(given_up) = place.and_then(|place| self.waiting.remove(place)) else {
            return false;
        };
        let claimed = given_up.most.amount();
        self.each(given_up.account, |account| {
            account.claimed = account.claimed.minus(claimed);
        });
        true
    }

    /// The calls of a thread, open or waiting.
    pub(super) fn calls_of(&self, thread: ThreadNo) -> Vec<EffectId> {
        let from = self.open.partition_point(|open| open.thread < thread);
        let open = self.open.iter().skip(from).take_while(|open| open.thread == thread);
        let waiting = self.waiting.iter().filter(|waiting| waiting.thread == thread);
        open.map(|open| open.effect)
            .chain(waiting.map(|waiting| waiting.id))
            .collect()
    }

    /// Those that wait and can go on, or never can, now that something has been given back.
    pub(super) fn release(&mut self) -> Vec<Released> {
        let waiting = std::mem::take(&mut self.waiting);
        for waiting in &waiting {
            self.each(waiting.account, |account| account.claimed = Amount::default());
        }
        let mut released = Vec::new();
        for waiting in waiting {
            let Waiting {
                thread,
                id,
                account,
                most,
                ..
            } = waiting;
            if let Some(refusal) = self.refusal(account, most) {
                released.push(Released::Refused(thread, id, refusal));
            } else if self.fits(account, most.amount()) {
                self.begin(thread, id, account, most);
                released.push(Released::Begins(thread, waiting.effect));
            } else {
                self.claim(account, most.amount());
                self.waiting.push_back(waiting);
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::definition::Budget;
    use crate::thread::TimerPurpose;

    /// A call as the words of the module have it.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum State {
        Open,
        Waits,
        Gone,
    }

    #[derive(Clone, Copy, Debug)]
    struct Call {
        account: usize,
        most: u64,
        state: State,
        used: u64,
    }

    /// Every sum anew, over all calls in the order in which they came.
    struct Oracle {
        limits: Vec<Option<u64>>,
        parents: Vec<Option<usize>>,
        calls: Vec<Call>,
    }

    impl Oracle {
        fn chain(&self, account: usize) -> Vec<usize> {
            std::iter::successors(Some(account), |no| self.parents[*no]).collect()
        }

        /// True if `most` is too much for an account, of which `taken` counts what a call takes.
        fn is_short(&self, account: usize, most: u64, taken: impl Fn(usize, &Call) -> u64) -> bool {
            self.chain(account).into_iter().any(|no| {
                let draws = |call: &&(usize, &Call)| self.chain(call.1.account).contains(&no);
                let calls: Vec<(usize, &Call)> = self.calls.iter().enumerate().collect();
                let sum: u64 = calls
                    .iter()
                    .filter(draws)
                    .map(|(place, call)| taken(*place, call))
                    .sum();
                self.limits[no].is_some_and(|limit| sum + most > limit)
            })
        }

        /// A call that waits goes on (true), is refused (false), or waits.
        fn look(&mut self, place: usize) -> Option<bool> {
            let Call { account, most, .. } = self.calls[place];
            if self.is_short(account, most, |_, call| call.used) {
                self.calls[place].state = State::Gone;
                return Some(false);
            }
            let taken = |other: usize, call: &Call| match call.state {
                State::Open => call.used + call.most,
                State::Waits if other < place => call.most,
                State::Waits | State::Gone => call.used,
            };
            if self.is_short(account, most, taken) {
                return None;
            }
            self.calls[place].state = State::Open;
            Some(true)
        }
    }

    fn effect(id: EffectId) -> Effect {
        Effect::Timer {
            id,
            after_ms: 0,
            purpose: TimerPurpose::Wait,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        /// Each call is by itself a thread, which draws on one of the accounts.
        #[test]
        fn calls_begin_wait_and_are_refused_as_the_table_says(
            accounts in prop::collection::vec((prop::option::of(20..200_u64), any::<usize>()), 1..6),
            steps in prop::collection::vec((0..4_u8, any::<usize>(), 1..80_u64), 1..60),
        ) {
            let mut ledger = Ledger::default();
            let mut oracle = Oracle { limits: Vec::new(), parents: Vec::new(), calls: Vec::new() };
            for (place, (limit, parent)) in accounts.iter().enumerate() {
                let parent = (place > 0).then(|| parent % place);
                let limits = Budget { tokens: *limit, ..Budget::default() };
                ledger.open_account(0, false, parent.map(|no| no as AccountNo), Limits::of(&limits, 0.5));
                oracle.limits.push(*limit);
                oracle.parents.push(parent);
            }
            for (what, which, most) in steps {
                if what < 2 {
                    let (account, place) = (which % accounts.len(), oracle.calls.len());
                    oracle.calls.push(Call { account, most, state: State::Waits, used: 0 });
                    let expected = oracle.look(place);
                    let id = place as EffectId;
                    let bound = Most { tokens: Some(most), pico: None };
                    let asked = ledger.ask(place as ThreadNo, id, account as AccountNo, bound, &effect(id));
                    let begins = match asked {
                        Asked::Begins => Some(true),
                        Asked::Waits => None,
                        Asked::Refused(_) => Some(false),
                    };
                    prop_assert_eq!(begins, expected);
                    continue;
                }
                if oracle.calls.is_empty() {
                    continue;
                }
                let place = which % oracle.calls.len();
                let (thread, id, call) = (place as ThreadNo, place as EffectId, oracle.calls[place]);
                let used = (what == 2).then(|| most % (call.most + 1));
                let had_waited = used.is_none() && ledger.give_up(thread, id);
                prop_assert_eq!(had_waited, used.is_none() && call.state == State::Waits);
                if call.state == State::Open {
                    let amount = used.map(|tokens| Amount { tokens, ..Amount::default() });
                    prop_assert!(ledger.settle(thread, id, amount).is_some());
                    oracle.calls[place].used = used.unwrap_or(call.most);
                }
                if call.state == State::Open || had_waited {
                    oracle.calls[place].state = State::Gone;
                }
                let released: Vec<(ThreadNo, bool)> = ledger
                    .release()
                    .into_iter()
                    .map(|released| match released {
                        Released::Begins(thread, _) => (thread, true),
                        Released::Refused(thread, ..) => (thread, false),
                    })
                    .collect();
                let mut expected = Vec::new();
                for place in 0..oracle.calls.len() {
                    if oracle.calls[place].state == State::Waits
                        && let Some(begins) = oracle.look(place)
                    {
                        expected.push((place as ThreadNo, begins));
                    }
                }
                prop_assert_eq!(released, expected);
                let is_open = oracle.calls.iter().any(|call| call.state == State::Open);
                prop_assert!(is_open || ledger.waiting.is_empty(), "nothing waits for ever");
            }
        }
    }
}
