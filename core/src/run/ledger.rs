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
//! that is never given back. An account in which a call does not fit stands in the way of every later call that draws on it: where all
//! the later ones do, they are not looked at, unless one of them is to be refused.
//!
//! Invariants: of an account, what is used and reserved is at most its limit, as long as no call uses more than it reserved; a
//! call waits only while an open one stands in its way; no later call takes what an earlier one waits for.

use std::collections::btree_map::Entry;
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
    /// Number of calls that wait and draw on it.
    #[serde(default)]
    waiting: usize,
    /// Of each kind that is limited: what the calls that wait need, and how many need so much.
    #[serde(default)]
    needs: [BTreeMap<u64, usize>; 3],
}

impl Account {
    /// A call that draws on it waits.
    fn claim(&mut self, needs: Amount) {
        self.claimed = self.claimed.plus(needs);
        self.waiting += 1;
        for (kind, counts) in FigureKind::ALL.into_iter().zip(&mut self.needs) {
            if self.limits.of_kind(kind).is_some() {
                *counts.entry(needs.of(kind)).or_default() += 1;
            }
        }
    }

    /// A call that draws on it waits no more.
    fn unclaim(&mut self, needs: Amount) {
        self.claimed = self.claimed.minus(needs);
        self.waiting -= 1;
        for (kind, counts) in FigureKind::ALL.into_iter().zip(&mut self.needs) {
            if let Entry::Occupied(mut count) = counts.entry(needs.of(kind)) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    /// True if a call that waits needs more than is left.
    fn refuses(&self) -> bool {
        FigureKind::ALL.into_iter().zip(&self.needs).any(|(kind, counts)| {
            let most = counts.last_key_value().map(|(most, _)| *most);
            let exceeds = |limit, most| self.used.of(kind).saturating_add(most) > limit;
            self.limits
                .of_kind(kind)
                .zip(most)
                .is_some_and(|(limit, most)| exceeds(limit, most))
        })
    }

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
    open: BTreeMap<ThreadNo, BTreeMap<EffectId, Open>>,
    /// In the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    /// The places of those.
    places: BTreeMap<ThreadNo, BTreeMap<EffectId, u64>>,
    next: u64,
    /// A call that waits may have to be refused.
    refuses: bool,
    /// Asked for since the run was told something, and not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lately: Vec<CallMost>,
    /// Asked for again until the run is told something: as it was the first time, and in that order.
    #[serde(skip)]
    again: VecDeque<CallMost>,
    /// Number of calls that were looked at again.
    #[cfg(test)]
    #[serde(skip)]
    visits: usize,
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
    /// The most of the calls that were asked for since the run was told something, or this was called.
    pub(super) fn take_lately(&mut self) -> Vec<CallMost> {
        std::mem::take(&mut self.lately)
    }

    /// These calls are asked for again.
    pub(super) fn expect(&mut self, again: Vec<CallMost>) {
        self.again.extend(again);
    }

    /// The run is told something.
    pub(super) fn told(&mut self) {
        self.lately.clear();
        self.again.clear();
    }

    /// The most that a call may use: as it was, where it is asked for again, else as `ask` says.
    pub(super) fn most_of(&mut self, thread: ThreadNo, effect: EffectId, ask: impl FnOnce() -> Most) -> Most {
        let is_it = |known: &CallMost| (known.thread, known.effect) == (thread, effect);
        let known = match self.again.front() {
            Some(next) if is_it(next) => self.again.pop_front(),
            _ => self.again.iter().copied().find(is_it),
        };
        let most = known.map_or_else(ask, |known| Most {
            tokens: known.tokens,
            pico: known.pico,
        });
        if known.is_none() {
            let Most { tokens, pico } = most;
            self.lately.push(CallMost {
                thread,
                effect,
                tokens,
                pico,
            });
        }
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
            waiting: 0,
            needs: Default::default(),
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
            return Asked::Refused(refusal);
        }
        let claimed = |_, account: &Account| account.claimed;
        if self.stands_in_the_way(account, most.amount(), claimed).is_none() {
            self.begin(thread, id, account, most);
            return Asked::Begins;
        }
        self.each(account, |account| account.claim(most.amount()));
        self.places.entry(thread).or_default().insert(id, self.next);
        let effect = Box::new(effect.clone());
        self.waiting.insert(
            self.next,
            Waiting {
                thread,
                id,
                account,
                most,
                effect,
            },
        );
        self.next += 1;
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

    /// The account that has no room for it beside what is open and what is claimed.
    fn stands_in_the_way(
        &self,
        account: AccountNo,
        needs: Amount,
        claimed: impl Fn(AccountNo, &Account) -> Amount,
    ) -> Option<AccountNo> {
        self.chain(account).find(|no| {
            self.account(*no).is_some_and(|account| {
                let taken = account.used.plus(account.reserved).plus(claimed(*no, account));
                account.limits.exceeded_by(taken.plus(needs)).is_some()
            })
        })
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
        let mut refuses = false;
        self.each(account, |account| {
            account.used.calls = account.used.calls.saturating_add(1);
            account.reserved = account.reserved.plus(Amount { calls: 0, ..reserved });
            refuses |= account.refuses();
        });
        self.refuses |= refuses;
        self.open
            .entry(thread)
            .or_default()
            .insert(effect, Open { account, most });
    }

    /// An open call has ended. `used`: what it has used, none where nobody knows. None if it is not open.
    pub(super) fn settle(&mut self, thread: ThreadNo, effect: EffectId, used: Option<Amount>) -> Option<Settled> {
        let open = take(&mut self.open, thread, effect)?;
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
        let mut refuses = false;
        self.each(account, |account| {
            account.used = account.used.plus(used);
            refuses |= account.refuses();
        });
        self.refuses |= refuses;
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
        let place = self.places.get(&thread).and_then(|places| places.get(&effect));
        place.copied().is_some_and(|place| self.take_waiting(place).is_some())
    }

    /// A call waits no more.
    fn take_waiting(&mut self, place: u64) -> Option<Waiting> {
        let taken = self.waiting.remove(&place)?;
        take(&mut self.places, taken.thread, taken.id);
        let needs = taken.most.amount();
        self.each(taken.account, |account| account.unclaim(needs));
        Some(taken)
    }

    /// The calls of a thread, open or waiting.
    pub(super) fn calls_of(&self, thread: ThreadNo) -> Vec<EffectId> {
        let open = self.open.get(&thread).into_iter().flat_map(BTreeMap::keys);
        let mut waiting: Vec<(u64, EffectId)> = self
            .places
            .get(&thread)
            .into_iter()
            .flatten()
            .map(|(id, place)| (*place, *id))
            .collect();
        waiting.sort_unstable();
        open.copied().chain(waiting.into_iter().map(|(_, id)| id)).collect()
    }

    /// Those that wait and can go on, or never can, now that something has been given back.
    pub(super) fn release(&mut self) -> Vec<Released> {
        let mut released = Vec::new();
        // Those that were looked at and still wait: what they claim of an account, and how many.
        let mut before: BTreeMap<AccountNo, (Amount, usize)> = BTreeMap::new();
        let (mut from, mut looked_at) = (0, 0);
        while let Some((&place, waiting)) = self.waiting.range(from..).next() {
            #[cfg(test)]
            {
                self.visits += 1;
            }
            from = place + 1;
            let (account, most) = (waiting.account, waiting.most);
            if let Some(refusal) = self.refusal(account, most) {
                let Waiting { thread, id, .. } = *waiting;
                self.take_waiting(place);
                released.push(Released::Refused(thread, id, refusal));
                continue;
            }
            let claimed = |no, _: &Account| before.get(&no).map_or(Amount::default(), |(claimed, _)| *claimed);
            let Some(in_the_way) = self.stands_in_the_way(account, most.amount(), claimed) else {
                if let Some(waiting) = self.take_waiting(place) {
                    let Waiting { thread, id, effect, .. } = waiting;
                    self.begin(thread, id, account, most);
                    released.push(Released::Begins(thread, effect));
                }
                continue;
            };
            looked_at += 1;
            for no in self.chain(account) {
                let (claimed, count) = before.entry(no).or_default();
                *claimed = claimed.plus(most.amount());
                *count += 1;
            }
            let drawing = self.account(in_the_way).map_or(0, |account| account.waiting);
            let later = drawing - before.get(&in_the_way).map_or(0, |(_, count)| *count);
            if !self.refuses && later == self.waiting.len() - looked_at {
                return released;
            }
        }
        self.refuses = false;
        released
    }
}

/// Takes a call of a thread out.
fn take<T>(calls: &mut BTreeMap<ThreadNo, BTreeMap<EffectId, T>>, thread: ThreadNo, effect: EffectId) -> Option<T> {
    let own = calls.get_mut(&thread)?;
    let taken = own.remove(&effect);
    if own.is_empty() {
        calls.remove(&thread);
    }
    taken
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
            node: 0,
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

    /// As the items of a MAP under one budget, of which so many may be under way at once.
    #[test]
    fn an_end_looks_at_the_calls_that_may_begin_and_not_at_all_that_wait() {
        let mut ledger = Ledger::default();
        let budget = |tokens| Budget {
            tokens: Some(tokens),
            ..Budget::default()
        };
        let whole = ledger.open_account(0, false, None, Limits::of(&budget(200_000), 1.0));
        let bound = |tokens| Most {
            tokens: Some(tokens),
            pico: None,
        };
        let mut open = VecDeque::new();
        for item in 0..10_000 {
            let path = ledger.open_account(item, true, Some(whole), Limits::of(&budget(30_000), 1.0));
            match ledger.ask(item, 0, path, bound(20_000), &effect(0)) {
                Asked::Begins => open.push_back(item),
                asked => assert_eq!(asked, Asked::Waits),
            }
        }
        assert_eq!(open.len(), 10);
        let mut begun = 10;
        while let Some(item) = open.pop_front() {
            // So little is used that all have their turn.
            let used = Amount {
                tokens: 1,
                ..Amount::default()
            };
            assert!(ledger.settle(item, 0, Some(used)).is_some());
            for released in ledger.release() {
                match released {
                    Released::Begins(item, _) => {
                        open.push_back(item);
                        begun += 1;
                    }
                    Released::Refused(..) => {}
                }
            }
            if begun > 9_000 {
                break;
            }
        }
        assert!(begun > 9_000);
        assert!(ledger.visits <= 3 * 10_000, "{} calls were looked at", ledger.visits);
        for item in 9_000..10_000 {
            ledger.give_up(item, 0);
            ledger.release();
        }
        assert!(ledger.visits <= 4 * 10_000, "{} calls were looked at", ledger.visits);
    }

    #[test]
    fn a_call_is_asked_for_again_as_it_was_in_the_order_of_the_first_time() {
        let most = |tokens| Most {
            tokens: Some(tokens),
            pico: None,
        };
        let mut first = Ledger::default();
        for call in 0..100 {
            first.most_of(call, 0, || most(u64::from(call)));
        }
        let mut again = Ledger::default();
        again.expect(first.take_lately());
        for call in (0..50).chain([51, 50]).chain(52..100) {
            assert_eq!(again.most_of(call, 0, || most(0)), most(u64::from(call)));
        }
        again.told();
        assert_eq!(again.most_of(7, 0, || most(0)), most(0));
    }
}
