//! The requests of the last minute, in the order of their starts, with the tokens of each.
//!
//! A gate's queries cost O(log n): sums over the first requests come from a Fenwick tree, because a request's tokens may change when
//! the request ends.

use std::collections::VecDeque;

use pirn_definition::Millis;
use serde::{Deserialize, Serialize};

/// Maximum number of tokens that one request counts, so that sums of millions of requests do not overflow.
const MOST_TOKENS: u64 = 1 << 40;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    /// Start time of each request, never decreasing.
    starts: VecDeque<Millis>,
    /// Tokens of each request, preceded by the removed requests that are still in the tree.
    tokens: PrefixSums,
    /// Number of removed requests that are still in `tokens`.
    stale: usize,
    /// Number of removed requests that were also removed from `tokens`.
    gone: u64,
}

/// Number of a request, valid while the request is in the window.
pub(super) type WindowNo = u64;

impl Window {
    /// Adds a request with this number of tokens.
    pub(super) fn push(&mut self, at: Millis, tokens: u64) -> WindowNo {
        let at = self.starts.back().map_or(at, |last| at.max(*last));
        let no = self.gone + (self.stale + self.starts.len()) as u64;
        self.starts.push_back(at);
        self.tokens.push(tokens.min(MOST_TOKENS));
        no
    }

    /// Sets the number of tokens of a request if it is still in the window.
    pub(super) fn used_by(&mut self, no: WindowNo, tokens: u64) {
        let place = no.checked_sub(self.gone).and_then(|place| usize::try_from(place).ok());
        if let Some(place) = place.filter(|place| *place >= self.stale && *place < self.stale + self.starts.len()) {
            self.tokens.set(place, tokens.min(MOST_TOKENS));
        }
    }

    /// Removes the requests that started at `until` or before.
    pub(super) fn forget(&mut self, until: Option<Millis>) {
        while self.starts.front().is_some_and(|at| Some(*at) <= until) {
            self.starts.pop_front();
            self.stale += 1;
        }
        // A rebuild costs O(n log n) and follows at least n removals, so the amortised cost of a removal is O(log n).
        if self.stale > self.starts.len() {
            self.tokens.drop_first(self.stale);
            self.gone += self.stale as u64;
            self.stale = 0;
        }
    }

    /// Returns the number of requests that started after `until`, and their tokens.
    pub(super) fn after(&self, until: Option<Millis>) -> (usize, u64) {
        let over = self.over(until);
        let before = self.tokens.sum(self.stale + over);
        (self.starts.len() - over, self.tokens.total() - before)
    }

    /// Finds the earliest request after which at most `requests` requests with at most `tokens` tokens remain, and returns its
    /// start. `None` if no request after `until` has to leave the window.
    pub(super) fn last_to_leave(&self, until: Option<Millis>, requests: usize, tokens: u64) -> Option<Millis> {
        let over = self.over(until);
        let by_requests = self.starts.len().saturating_sub(requests);
        let too_many = self.tokens.total().saturating_sub(tokens);
        let by_tokens = self.tokens.first_with(too_many).saturating_sub(self.stale);
        let leave = by_requests.max(by_tokens);
        (leave > over).then(|| self.starts.get(leave - 1).copied())?
    }

    /// Returns the number of requests that started at `until` or before and are not removed.
    fn over(&self, until: Option<Millis>) -> usize {
        self.starts.partition_point(|at| Some(*at) <= until)
    }
}

/// A list of numbers and a Fenwick tree of its prefix sums.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct PrefixSums {
    numbers: Vec<u64>,
    /// Fenwick tree: the element `i - 1` is the sum of the last `width(i)` numbers up to the `i`th.
    sums: Vec<u64>,
    total: u64,
}

#[cfg(test)]
thread_local! {
    /// Number of sums that were read or written.
    pub(super) static VISITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts an access to a sum, for tests.
fn visit() {
    #[cfg(test)]
    VISITS.set(VISITS.get() + 1);
}

/// Number of elements that the sum at this 1-based index covers: its lowest set bit.
fn width(place: usize) -> usize {
    place & place.wrapping_neg()
}

impl PrefixSums {
    fn push(&mut self, number: u64) {
        self.numbers.push(number);
        let place = self.numbers.len();
        let sum = self.sum(place - 1) - self.sum(place - width(place)) + number;
        self.sums.push(sum);
        self.total += number;
    }

    fn set(&mut self, at: usize, number: u64) {
        let before = std::mem::replace(&mut self.numbers[at], number);
        self.total = self.total - before + number;
        let mut place = at + 1;
        while let Some(sum) = self.sums.get_mut(place - 1) {
            visit();
            *sum = *sum - before + number;
            place += width(place);
        }
    }

    fn total(&self) -> u64 {
        self.total
    }

    /// Returns the sum of the first `count` numbers.
    fn sum(&self, count: usize) -> u64 {
        let mut place = count;
        let mut sum = 0;
        while place > 0 {
            visit();
            sum += self.sums[place - 1];
            place -= width(place);
        }
        sum
    }

    /// Returns the smallest count of first numbers whose sum is at least `least`; at most the length.
    fn first_with(&self, least: u64) -> usize {
        if least == 0 {
            return 0;
        }
        let (mut place, mut left) = (0, least);
        let mut step = self.sums.len().next_power_of_two();
        while step > 0 {
            visit();
            if let Some(sum) = self.sums.get(place + step - 1)
                && *sum < left
            {
                place += step;
                left -= sum;
            }
            step /= 2;
        }
        (place + 1).min(self.sums.len())
    }

    fn drop_first(&mut self, count: usize) {
        let left = self.numbers.split_off(count.min(self.numbers.len()));
        *self = Self::default();
        for number in left {
            self.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn prefix_sums_equal_the_sums_of_the_numbers(
            numbers in prop::collection::vec(0..9_u64, 0..40),
            changes in prop::collection::vec((any::<usize>(), 0..9_u64), 0..20),
            dropped in 0..20_usize,
        ) {
            let (mut sums, mut plain) = (PrefixSums::default(), numbers.clone());
            for number in numbers {
                sums.push(number);
            }
            for (at, number) in changes {
                if let Some(at) = at.checked_rem(plain.len()) {
                    sums.set(at, number);
                    plain[at] = number;
                }
            }
            plain.drain(..dropped.min(plain.len()));
            sums.drop_first(dropped);
            prop_assert_eq!(sums.total(), plain.iter().sum::<u64>());
            for count in 0..=plain.len() {
                prop_assert_eq!(sums.sum(count), plain[..count].iter().sum::<u64>());
            }
            for least in 1..=sums.total() {
                let count = (0..=plain.len()).find(|count| plain[..*count].iter().sum::<u64>() >= least);
                prop_assert_eq!(Some(sums.first_with(least)), count);
            }
        }
    }
}
