//! Budget accounts of a run, and admission of the model calls that draw on them.
//!
//! | event | state of the call | effect on each account in its chain |
//! |---|---|---|
//! | request that fits | open | its maximum is reserved |
//! | request that fits only after reservations are released | waiting | its maximum is claimed: later calls cannot take it |
//! | request that would not fit even then | refused | none |
//! | an open call ends with reported usage | removed | the reservation is released, the usage is counted |
//! | an open call ends without reported usage | removed | the whole reservation is counted as usage |
//! | a waiting call is cancelled | removed | the claim is released |
//!
//! After each end, waiting calls are examined in FIFO order. A call increments the call count when it opens; the count is never
//! decremented. An account in which a call does not fit blocks every later call that draws on it. If it blocks all later calls,
//! the scan stops there, unless one of them is due to be refused.
//!
//! Invariants:
//! - In each account, usage plus reservations is at most the limit, provided that no call uses more than it reserved.
//! - A call waits only while an open call blocks it.
//! - A later call never takes budget that an earlier call waits for.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::amount::{Amount, FigureKind, Limits, MaximumUsage};
use crate::run::ThreadNo;
use crate::thread::{Effect, EffectId};

/// Index of an account. A parent has a lower index than its children.
pub(in crate::run) type AccountNo = u32;

/// A budget of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::run) struct Account {
    /// Thread for which the account was opened.
    pub(in crate::run) thread: ThreadNo,
    /// True for the budget of the thread's path, false for the budget of the workflow that the thread walks.
    pub(in crate::run) is_path: bool,
    /// Parent account, which is charged for the same calls.
    parent: Option<AccountNo>,
    pub(in crate::run) limits: Limits,
    used: Amount,
    reserved: Amount,
    /// Sum of the maxima of waiting calls.
    claimed: Amount,
    /// True for each kind whose warning was already returned.
    warned: [bool; 3],
    /// Number of waiting calls that draw on this account.
    #[serde(default)]
    waiting: usize,
    /// Amounts that waiting calls need, for each limited kind, with the number of calls that need each amount.
    #[serde(default)]
    needs: [BTreeMap<u64, usize>; 3],
}

impl Account {
    /// Adds the claim of a waiting call.
    fn claim(&mut self, needs: Amount) {
        self.claimed = self.claimed.plus(needs);
        self.waiting += 1;
        for (kind, counts) in FigureKind::ALL.into_iter().zip(&mut self.needs) {
            // A kind without a limit refuses no call.
            if self.limits.of_kind(kind).is_some() {
                *counts.entry(needs.of(kind)).or_default() += 1;
            }
        }
    }

    /// Removes the claim of a call that stopped waiting.
    fn unclaim(&mut self, needs: Amount) {
        self.claimed = self.claimed.minus(needs);
        self.waiting -= 1;
        for (kind, counts) in FigureKind::ALL.into_iter().zip(&mut self.needs) {
            // Vacant only for a kind without a limit, which `claim` skips.
            if let Entry::Occupied(mut count) = counts.entry(needs.of(kind)) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    /// Returns true if a waiting call needs more than usage leaves of the limit, so that it can never open.
    fn refuses(&self) -> bool {
        FigureKind::ALL.into_iter().zip(&self.needs).any(|(kind, counts)| {
            // The largest need is enough, and is found without a visit of all waiting calls.
            let most = counts.last_key_value().map(|(most, _)| *most);
            let exceeds = |limit, most| self.used.of(kind).saturating_add(most) > limit;
            self.limits
                .of_kind(kind)
                .zip(most)
                .is_some_and(|(limit, most)| exceeds(limit, most))
        })
    }

    /// Returns the figure and its limit if usage has reached the warning threshold.
    fn warning(&self, kind: FigureKind) -> Option<Figure> {
        let limit = self.limits.of_kind(kind)?;
        let used = self.used.of(kind);
        // The comparison decides only about a warning, so that the rounding of large figures is harmless.
        (used as f64 >= limit as f64 * self.limits.warn_at).then_some(Figure { kind, used, limit })
    }
}

/// Usage of an account in one kind, with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) struct Figure {
    pub(in crate::run) kind: FigureKind,
    pub(in crate::run) used: u64,
    pub(in crate::run) limit: u64,
}

/// An open call.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Open {
    account: AccountNo,
    most: MaximumUsage,
}

/// A waiting call.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Waiting {
    thread: ThreadNo,
    id: EffectId,
    account: AccountNo,
    most: MaximumUsage,
    effect: Box<Effect>,
}

/// Reason that a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum CallRefusal {
    /// The call has no known maximum of `kind`, and the account limits this kind.
    Unbounded { account: AccountNo, kind: FigureKind },
    /// The call needs `needs`, and current usage leaves less than that of the limit.
    Short {
        account: AccountNo,
        figure: Figure,
        needs: u64,
    },
}

/// Decision about a requested call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum CallDecision {
    /// The call is open and may start.
    Begins,
    Waits,
    Refused(CallRefusal),
}

/// Waiting calls that opened or were refused, in FIFO order.
#[derive(Clone, Debug)]
pub(in crate::run) enum ReleasedCalls {
    Begins(ThreadNo, Box<Effect>),
    Refused(ThreadNo, EffectId, CallRefusal),
}

/// Result of ending an open call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::run) struct CallSettlement {
    /// Figures that reached their warning threshold for the first time, with their accounts.
    pub(in crate::run) warnings: Vec<(AccountNo, Figure)>,
    /// Reserved and used amounts, if the call used more than it reserved.
    pub(in crate::run) overrun: Option<(Amount, Amount)>,
}

/// Accounts and calls. The module documentation has the transition table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct Ledger {
    accounts: Vec<Account>,
    /// First account on which each thread's calls draw; `None` if there is none. Filled at the first lookup.
    of_thread: BTreeMap<ThreadNo, Option<AccountNo>>,
    open: BTreeMap<ThreadNo, BTreeMap<EffectId, Open>>,
    /// Waiting calls by ticket: iteration is FIFO.
    waiting: BTreeMap<u64, Waiting>,
    /// Tickets of the waiting calls, by thread and effect.
    places: BTreeMap<ThreadNo, BTreeMap<EffectId, u64>>,
    next: u64,
    /// Set if a waiting call may now be refused. The next `release` must then examine every waiting call.
    refuses: bool,
    /// Maxima computed since the last input of the run that are not in the journal yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lately: Vec<CallMaximum>,
    /// During replay: maxima read from the journal, in the order of the first execution. Valid until the next input.
    #[serde(skip)]
    again: VecDeque<CallMaximum>,
    /// Number of calls examined by `release`.
    #[cfg(test)]
    #[serde(skip)]
    visits: usize,
}

/// Maximum usage of a model call, as computed at its first request. The value is journaled because it depends on the profiles,
/// which may have changed by the time the run is rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallMaximum {
    thread: ThreadNo,
    effect: EffectId,
    /// Tokens; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    /// Cost in trillionths (1e-12) of the currency unit; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pico: Option<u64>,
}

impl Ledger {
    /// Takes the maxima that were computed since the last input or the last call of this method.
    pub(in crate::run) fn take_lately(&mut self) -> Vec<CallMaximum> {
        std::mem::take(&mut self.lately)
    }

    /// Provides the journaled maxima for the calls that a replay requests again.
    pub(in crate::run) fn expect(&mut self, again: Vec<CallMaximum>) {
        self.again.extend(again);
    }

    /// Clears both lists when the run receives an input.
    pub(in crate::run) fn next_input(&mut self) {
        // A journal has taken the list by now. Without one, nothing does, and the list would grow.
        self.lately.clear();
        self.again.clear();
    }

    /// Returns the maximum of a call: the journaled value during a replay, else the result of `ask`.
    pub(in crate::run) fn most_of(
        &mut self,
        thread: ThreadNo,
        effect: EffectId,
        ask: impl FnOnce() -> MaximumUsage,
    ) -> MaximumUsage {
        let is_it = |known: &CallMaximum| (known.thread, known.effect) == (thread, effect);
        let known = match self.again.front() {
            // A replay requests calls in the recorded order, so that a search of the list is rarely needed.
            Some(next) if is_it(next) => self.again.pop_front(),
            _ => self.again.iter().copied().find(is_it),
        };
        let most = known.map_or_else(ask, |known| MaximumUsage {
            tokens: known.tokens,
            pico: known.pico,
        });
        // A journaled maximum is not journaled again.
        if known.is_none() {
            let MaximumUsage { tokens, pico } = most;
            self.lately.push(CallMaximum {
                thread,
                effect,
                tokens,
                pico,
            });
        }
        most
    }

    /// Returns true if the thread's first account has been looked up.
    pub(in crate::run) fn knows(&self, thread: ThreadNo) -> bool {
        self.of_thread.contains_key(&thread)
    }

    /// Returns the first account on which the thread's calls draw, if it was looked up and exists.
    pub(in crate::run) fn first_account(&self, thread: ThreadNo) -> Option<AccountNo> {
        self.of_thread.get(&thread).copied().flatten()
    }

    /// Records the first account on which the thread's calls draw.
    pub(in crate::run) fn draws_on(&mut self, thread: ThreadNo, account: Option<AccountNo>) {
        self.of_thread.insert(thread, account);
    }

    /// Opens an account. Its calls draw on `parent` too.
    pub(in crate::run) fn open_account(
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

    pub(in crate::run) fn account(&self, no: AccountNo) -> Option<&Account> {
        self.accounts.get(no as usize)
    }

    /// Returns the limited figures of the account of the workflow that this thread walks.
    pub(in crate::run) fn figures(&self, thread: ThreadNo) -> impl Iterator<Item = Figure> {
        let own = |account: &&Account| account.thread == thread && !account.is_path;
        // A scan: only reports need it.
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

    /// Returns the figures that reached their warning threshold in this account and those above it. They are added to the request
    /// of the model.
    pub(in crate::run) fn warnings(&self, account: AccountNo) -> impl Iterator<Item = (&Account, Figure)> {
        let figures = |account| {
            FigureKind::ALL
                .into_iter()
                .filter_map(move |kind| Account::warning(account, kind))
        };
        self.chain(account)
            .filter_map(|no| self.account(no))
            .flat_map(move |account| figures(account).map(move |figure| (account, figure)))
    }

    /// Returns the token limit with the smallest remainder among this account and its parents, and the tokens used of it.
    pub(in crate::run) fn token_limit(&self, account: AccountNo) -> Option<(u64, u64)> {
        let accounts = self.chain(account).filter_map(|no| self.account(no));
        let limits = accounts.filter_map(|account| {
            let limit = account.limits.of_kind(FigureKind::Tokens)?;
            Some((limit, account.used.of(FigureKind::Tokens)))
        });
        limits.min_by_key(|(limit, used)| limit.saturating_sub(*used))
    }

    /// Returns the account and its ancestors.
    fn chain(&self, account: AccountNo) -> impl Iterator<Item = AccountNo> {
        std::iter::successors(Some(account), |no| self.account(*no)?.parent)
    }

    /// Requests a model call: opens it, queues it or refuses it.
    pub(in crate::run) fn ask(
        &mut self,
        thread: ThreadNo,
        id: EffectId,
        account: AccountNo,
        most: MaximumUsage,
        effect: &Effect,
    ) -> CallDecision {
        // First, because a call that can never open must not wait.
        if let Some(refusal) = self.refusal(account, most) {
            return CallDecision::Refused(refusal);
        }
        // All waiting calls are earlier than this one.
        let claimed = |_, account: &Account| account.claimed;
        if self.find_obstacle(account, most.amount(), claimed).is_none() {
            self.begin(thread, id, account, most);
            return CallDecision::Begins;
        }
        self.each(account, |account| account.claim(most.amount()));
        self.places.entry(thread).or_default().insert(id, self.next);
        // Copied only here: a call that opens at once is sent by the caller.
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
        CallDecision::Waits
    }

    /// Returns the reason that the call can never open, even if all open calls released their reservations.
    fn refusal(&self, account: AccountNo, most: MaximumUsage) -> Option<CallRefusal> {
        let needs = most.amount();
        self.chain(account).find_map(|no| {
            let account = self.account(no)?;
            let is_unbounded = |kind: &FigureKind| account.limits.of_kind(*kind).is_some() && !most.is_known(*kind);
            if let Some(kind) = FigureKind::ALL.into_iter().find(is_unbounded) {
                return Some(CallRefusal::Unbounded { account: no, kind });
            }
            // Without reservations and claims: those may be released, usage is final.
            let kind = account.limits.exceeded_by(account.used.plus(needs))?;
            let figure = Figure {
                kind,
                used: account.used.of(kind),
                limit: account.limits.of_kind(kind)?,
            };
            Some(CallRefusal::Short {
                account: no,
                figure,
                needs: needs.of(kind),
            })
        })
    }

    /// Returns the first account in the chain without room for the call after usage, reservations and claims.
    fn find_obstacle(
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

    fn begin(&mut self, thread: ThreadNo, effect: EffectId, account: AccountNo, most: MaximumUsage) {
        let reserved = most.amount();
        let mut refuses = false;
        self.each(account, |account| {
            // A call counts when it is sent, whatever its end.
            account.used.calls = account.used.calls.saturating_add(1);
            account.reserved = account.reserved.plus(Amount { calls: 0, ..reserved });
            // The higher count of calls may leave too little for a waiting call.
            refuses |= account.refuses();
        });
        self.refuses |= refuses;
        self.open
            .entry(thread)
            .or_default()
            .insert(effect, Open { account, most });
    }

    /// Ends an open call. `used` is `None` if its usage is unknown. Returns `None` if the call is not open.
    pub(in crate::run) fn settle(
        &mut self,
        thread: ThreadNo,
        effect: EffectId,
        used: Option<Amount>,
    ) -> Option<CallSettlement> {
        let open = take(&mut self.open, thread, effect)?;
        let reserved = Amount {
            calls: 0,
            ..open.most.amount()
        };
        let used = used.unwrap_or(reserved);
        self.each(open.account, |account| {
            account.reserved = account.reserved.minus(reserved);
        });
        // An unknown maximum reserved 0, and any usage would exceed it.
        let is_over = |kind: FigureKind| open.most.is_known(kind) && used.of(kind) > reserved.of(kind);
        let is_overrun = is_over(FigureKind::Tokens) || is_over(FigureKind::Cost);
        Some(CallSettlement {
            warnings: self.count(open.account, used),
            overrun: is_overrun.then_some((reserved, used)),
        })
    }

    /// Counts usage without a reservation. Returns the figures that reached their warning threshold for the first time.
    pub(in crate::run) fn count(&mut self, account: AccountNo, used: Amount) -> Vec<(AccountNo, Figure)> {
        let mut refuses = false;
        self.each(account, |account| {
            account.used = account.used.plus(used);
            refuses |= account.refuses();
        });
        self.refuses |= refuses;
        // Collected, because the accounts are changed in the loop.
        let chain: Vec<AccountNo> = self.chain(account).collect();
        let mut warnings = Vec::new();
        for no in chain {
            let Some(account) = self.accounts.get_mut(no as usize) else {
                continue;
            };
            for (place, kind) in FigureKind::ALL.into_iter().enumerate() {
                if let Some(figure) = account.warning(kind)
                    // Each account warns once of each kind.
                    && !std::mem::replace(&mut account.warned[place], true)
                {
                    warnings.push((no, figure));
                }
            }
        }
        warnings
    }

    /// Cancels a queued call. Returns true if the call was still queued and never sent.
    pub(in crate::run) fn cancel_call(&mut self, thread: ThreadNo, effect: EffectId) -> bool {
        let place = self.places.get(&thread).and_then(|places| places.get(&effect));
        place.copied().is_some_and(|place| self.take_waiting(place).is_some())
    }

    /// Removes a call from the queue, with its claims.
    fn take_waiting(&mut self, place: u64) -> Option<Waiting> {
        let taken = self.waiting.remove(&place)?;
        take(&mut self.places, taken.thread, taken.id);
        let needs = taken.most.amount();
        // Also before the call opens: its need moves from the claims to the reservations.
        self.each(taken.account, |account| account.unclaim(needs));
        Some(taken)
    }

    /// Returns the thread's calls: the open ones, then the waiting ones in FIFO order.
    pub(in crate::run) fn calls_of(&self, thread: ThreadNo) -> Vec<EffectId> {
        let open = self.open.get(&thread).into_iter().flat_map(BTreeMap::keys);
        let mut waiting: Vec<(u64, EffectId)> = self
            .places
            .get(&thread)
            .into_iter()
            .flatten()
            .map(|(id, place)| (*place, *id))
            .collect();
        // The map is ordered by effect. The tickets restore the order of the requests.
        waiting.sort_unstable();
        open.copied().chain(waiting.into_iter().map(|(_, id)| id)).collect()
    }

    /// Opens or refuses waiting calls after budget was released, and returns them in FIFO order.
    pub(in crate::run) fn release(&mut self) -> Vec<ReleasedCalls> {
        let mut released = Vec::new();
        // Claims of the earlier calls that remain waiting, and their number, by account. A call must leave room for those only.
        let mut before: BTreeMap<AccountNo, (Amount, usize)> = BTreeMap::new();
        let (mut from, mut looked_at) = (0, 0);
        while let Some((&place, waiting)) = self.waiting.range(from..).next() {
            #[cfg(test)]
            {
                self.visits += 1;
            }
            // The scan continues by ticket, because the map is changed during the scan.
            from = place + 1;
            let (account, most) = (waiting.account, waiting.most);
            if let Some(refusal) = self.refusal(account, most) {
                let Waiting { thread, id, .. } = *waiting;
                // Removes its claim too, which would block later requests.
                self.take_waiting(place);
                released.push(ReleasedCalls::Refused(thread, id, refusal));
                continue;
            }
            let claimed = |no, _: &Account| before.get(&no).map_or(Amount::default(), |(claimed, _)| *claimed);
            let Some(in_the_way) = self.find_obstacle(account, most.amount(), claimed) else {
                if let Some(waiting) = self.take_waiting(place) {
                    let Waiting { thread, id, effect, .. } = waiting;
                    self.begin(thread, id, account, most);
                    released.push(ReleasedCalls::Begins(thread, effect));
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
            // Every later call draws on the blocked account, so that none can open: skip them. Without this a MAP of n items costs
            // n² visits.
            if !self.refuses && later == self.waiting.len() - looked_at {
                return released;
            }
        }
        // Every waiting call was examined: those that could not open any more were refused.
        self.refuses = false;
        released
    }
}

/// Removes a call of a thread from the map.
fn take<T>(calls: &mut BTreeMap<ThreadNo, BTreeMap<EffectId, T>>, thread: ThreadNo, effect: EffectId) -> Option<T> {
    let own = calls.get_mut(&thread)?;
    let taken = own.remove(&effect);
    // Most threads have one call at a time: the map would otherwise keep an entry for every thread.
    if own.is_empty() {
        calls.remove(&thread);
    }
    taken
}

#[cfg(test)]
mod tests {
    use pirn_definition::definition::Budget;
    use proptest::prelude::*;

    use super::*;
    use crate::thread::TimerPurpose;

    /// State of a call in the module's table.
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

    /// Reference model: recomputes every sum from all calls, in request order.
    struct Oracle {
        limits: Vec<Option<u64>>,
        parents: Vec<Option<usize>>,
        calls: Vec<Call>,
    }

    impl Oracle {
        fn chain(&self, account: usize) -> Vec<usize> {
            std::iter::successors(Some(account), |no| self.parents[*no]).collect()
        }

        /// Returns true if `most` exceeds the remainder of an account in the chain; `taken` is the amount that each call takes.
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

        /// Decides a waiting call: opened (`Some(true)`), refused (`Some(false)`) or still waiting (`None`).
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
        /// Each call belongs to a separate thread, which draws on one of the accounts.
        #[test]
        fn calls_start_wait_and_are_refused_like_the_reference_ledger(
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
                    let bound = MaximumUsage { tokens: Some(most), pico: None };
                    let asked = ledger.ask(place as ThreadNo, id, account as AccountNo, bound, &effect(id));
                    let begins = match asked {
                        CallDecision::Begins => Some(true),
                        CallDecision::Waits => None,
                        CallDecision::Refused(_) => Some(false),
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
                let had_waited = used.is_none() && ledger.cancel_call(thread, id);
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
                        ReleasedCalls::Begins(thread, _) => (thread, true),
                        ReleasedCalls::Refused(thread, ..) => (thread, false),
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

    /// Models the items of a MAP under one budget, which admits ten of them at once.
    #[test]
    fn the_end_of_a_call_visits_only_the_calls_that_may_start() {
        let mut ledger = Ledger::default();
        let budget = |tokens| Budget {
            tokens: Some(tokens),
            ..Budget::default()
        };
        let whole = ledger.open_account(0, false, None, Limits::of(&budget(200_000), 1.0));
        let bound = |tokens| MaximumUsage {
            tokens: Some(tokens),
            pico: None,
        };
        let mut open = VecDeque::new();
        for item in 0..10_000 {
            let path = ledger.open_account(item, true, Some(whole), Limits::of(&budget(30_000), 1.0));
            match ledger.ask(item, 0, path, bound(20_000), &effect(0)) {
                CallDecision::Begins => open.push_back(item),
                asked => assert_eq!(asked, CallDecision::Waits),
            }
        }
        assert_eq!(open.len(), 10);
        let mut started = 10;
        while let Some(item) = open.pop_front() {
            // Usage is small, so that all items get their turn.
            let used = Amount {
                tokens: 1,
                ..Amount::default()
            };
            assert!(ledger.settle(item, 0, Some(used)).is_some());
            for released in ledger.release() {
                match released {
                    ReleasedCalls::Begins(item, _) => {
                        open.push_back(item);
                        started += 1;
                    }
                    ReleasedCalls::Refused(..) => {}
                }
            }
            if started > 9_000 {
                break;
            }
        }
        assert!(started > 9_000);
        assert!(ledger.visits <= 3 * 10_000, "{} calls were looked at", ledger.visits);
        for item in 9_000..10_000 {
            ledger.cancel_call(item, 0);
            ledger.release();
        }
        assert!(ledger.visits <= 4 * 10_000, "{} calls were looked at", ledger.visits);
    }

    #[test]
    fn a_repeated_call_has_its_recorded_bound() {
        let most = |tokens| MaximumUsage {
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
        again.next_input();
        assert_eq!(again.most_of(7, 0, || most(0)), most(0));
    }
}
