//! Rate limiter for requests, shared by all runs that use one profile or tool. It limits concurrent requests, and requests and
//! tokens a minute.
//!
//! 1. Runs take turns, and within a run requests start in FIFO order ([`FairQueue`]). No request overtakes the next one, so a
//!    large request is not starved by small ones.
//! 2. A request counts for one minute after its start: with an estimate of its tokens until it ends, then with the number that
//!    the provider reported.
//! 3. A request that exceeds the token limit alone starts when no other tokens count: it is delayed, never dropped.
//! 4. Every ticket must be returned by [`Gate::end`], waiting or started. A ticket that is not returned occupies its slot for
//!    ever, so callers tie it to a drop guard.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_definition::Millis;
use serde::{Deserialize, Serialize};

use super::window::{Window, WindowNo};
use crate::fair_queue::FairQueue;

/// The window in which a request and its tokens count.
const WINDOW: Millis = 60_000;

/// Limits of a gate; an absent limit is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateLimits {
    /// Maximum number of concurrent requests, at least 1.
    pub requests_at_once: Option<usize>,
    /// Maximum number of requests that start within a minute, at least 1.
    pub requests_per_minute: Option<usize>,
    /// Maximum number of tokens of the requests that started within a minute.
    pub tokens_per_minute: Option<u64>,
}

impl GateLimits {
    /// True if nothing is limited.
    pub fn is_none(&self) -> bool {
        self.requests_at_once.is_none() && self.requests_per_minute.is_none() && self.tokens_per_minute.is_none()
    }
}

/// Number of a request; increases with every request.
pub type TicketId = u64;

/// The rate limiter of one profile or tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    limits: GateLimits,
    next: TicketId,
    /// Estimated tokens of the waiting requests.
    waiting: FairQueue<u64>,
    /// Requests under way, with their numbers in the window; `None` if no limit counts by the minute.
    under_way: BTreeMap<TicketId, Option<WindowNo>>,
    window: Window,
    closed_until: Millis,
}

impl Gate {
    /// Creates a gate without requests.
    pub fn new(limits: GateLimits) -> Self {
        Self {
            limits,
            next: 0,
            waiting: FairQueue::default(),
            under_way: BTreeMap::new(),
            window: Window::default(),
            closed_until: 0,
        }
    }

    /// Starts a request of about `tokens` if no request waits and the limits allow it.
    pub fn start(&mut self, tokens: u64, now: Millis) -> Option<TicketId> {
        self.window.forget(over(now));
        if !self.waiting.is_empty() || !self.has_room(tokens, now) {
            return None;
        }
        let ticket = self.ticket();
        self.started(ticket, tokens, now);
        Some(ticket)
    }

    /// Enqueues a run's request of about `tokens`. The request waits until [`Gate::admit`] returns its ticket.
    pub fn ask(&mut self, run: &Arc<str>, tokens: u64) -> TicketId {
        let ticket = self.ticket();
        self.waiting.push(run, ticket, tokens);
        ticket
    }

    /// Starts the requests that the limits allow now, and returns their tickets in order.
    pub fn admit(&mut self, now: Millis) -> Vec<TicketId> {
        self.window.forget(over(now));
        let mut admitted = Vec::new();
        while let Some((ticket, &tokens)) = self.waiting.first() {
            if !self.has_room(tokens, now) {
                break;
            }
            self.waiting.pop(|_| true);
            self.started(ticket, tokens, now);
            admitted.push(ticket);
        }
        admitted
    }

    /// Returns the ticket of the next request.
    pub fn first(&self) -> Option<TicketId> {
        self.waiting.first().map(|(ticket, _)| ticket)
    }

    /// Returns the delay until the next request can start because time passes. `None` if no request waits, or if only the end of
    /// another request can make room.
    pub fn wake_after(&self, now: Millis) -> Option<Millis> {
        let (_, &tokens) = self.waiting.first()?;
        if self.closed_until > now {
            return Some(self.closed_until - now);
        }
        if !self.has_place() {
            return None;
        }
        // Number of other requests that the limit allows in the window.
        let most = self
            .limits
            .requests_per_minute
            .map_or(usize::MAX, |most| most.max(1) - 1);
        let limit = self.limits.tokens_per_minute.unwrap_or(u64::MAX);
        let left = self.window.last_to_leave(over(now), most, limit.saturating_sub(tokens));
        Some(left.map_or(0, |at| (at + WINDOW).saturating_sub(now)))
    }

    /// Ends a request, or removes it from the queue. `spent` is the number of tokens that the provider reported; without it the
    /// estimate is used. A request that never started counts nothing.
    pub fn end(&mut self, run: &str, ticket: TicketId, spent: Option<u64>) {
        let Some(counted) = self.under_way.remove(&ticket) else {
            self.waiting.remove(run, ticket);
            return;
        };
        if let (Some(counted), Some(spent)) = (counted, spent) {
            self.window.used_by(counted, spent);
        }
    }

    /// Blocks new requests until `until`, because the provider requested a pause.
    pub fn close_until(&mut self, until: Millis) {
        self.closed_until = self.closed_until.max(until);
    }

    /// Number of requests under way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Number of tokens that count at `now`.
    pub fn used(&self, now: Millis) -> u64 {
        self.window.after(over(now)).1
    }

    fn ticket(&mut self) -> TicketId {
        let ticket = self.next;
        self.next += 1;
        ticket
    }

    fn started(&mut self, ticket: TicketId, tokens: u64, at: Millis) {
        let counted = self.counts().then(|| self.window.push(at, tokens));
        self.under_way.insert(ticket, counted);
    }

    /// True if a limit counts by the minute.
    fn counts(&self) -> bool {
        self.limits.tokens_per_minute.is_some() || self.limits.requests_per_minute.is_some()
    }

    fn has_room(&self, tokens: u64, now: Millis) -> bool {
        self.closed_until <= now && self.has_place() && self.fits(self.window.after(over(now)), tokens)
    }

    fn has_place(&self) -> bool {
        self.limits
            .requests_at_once
            .is_none_or(|most| self.under_way.len() < most.max(1))
    }

    /// True if a request of `tokens` fits in a window with this number of requests and tokens.
    fn fits(&self, (requests, used): (usize, u64), tokens: u64) -> bool {
        let limit = self.limits.tokens_per_minute;
        let fits_tokens = limit.is_none_or(|limit| used == 0 || used.saturating_add(tokens) <= limit);
        let most = self.limits.requests_per_minute;
        fits_tokens && most.is_none_or(|most| requests < most.max(1))
    }
}

/// Returns the latest start time that counts no more.
fn over(now: Millis) -> Option<Millis> {
    now.checked_sub(WINDOW)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RUNS: [&str; 3] = ["a", "b", "c"];

    fn run(which: usize) -> Arc<str> {
        RUNS[which].into()
    }

    fn gate(requests_at_once: Option<usize>, tokens_per_minute: Option<u64>) -> Gate {
        Gate::new(GateLimits {
            requests_at_once,
            requests_per_minute: None,
            tokens_per_minute,
        })
    }

    #[test]
    fn requests_per_minute_are_limited() {
        let mut gate = Gate::new(GateLimits {
            requests_per_minute: Some(2),
            ..GateLimits::default()
        });
        let tickets: Vec<TicketId> = (0..4).map(|_| gate.ask(&run(0), 1)).collect();
        assert_eq!(gate.admit(0), tickets[..2]);
        gate.end(RUNS[0], tickets[0], Some(0));
        assert_eq!(gate.admit(10_000), [0; 0], "one that has ended counts for its minute");
        assert_eq!(gate.wake_after(10_000), Some(50_000));
        assert_eq!(gate.admit(60_000), tickets[2..]);
    }

    #[test]
    fn concurrent_requests_are_limited_and_the_next_starts_when_one_ends() {
        let mut gate = gate(Some(2), None);
        let tickets: Vec<TicketId> = (0..4).map(|_| gate.ask(&run(0), 1)).collect();
        assert_eq!(gate.admit(0), tickets[..2]);
        assert_eq!(gate.wake_after(0), None, "only an end makes room");
        gate.end(RUNS[0], tickets[0], None);
        assert_eq!(gate.admit(0), tickets[2..3]);
        gate.end(RUNS[0], tickets[3], None);
        gate.end(RUNS[0], tickets[1], None);
        assert_eq!(gate.admit(0), [0; 0], "who stopped waiting is not admitted");
        assert_eq!(gate.under_way(), 1);
    }

    #[test]
    fn tokens_per_minute_are_limited_by_reported_usage() {
        let mut gate = gate(None, Some(100));
        let first = gate.ask(&run(0), 60);
        let second = gate.ask(&run(0), 60);
        assert_eq!(gate.admit(0), [first]);
        assert_eq!(gate.wake_after(1_000), Some(59_000));
        gate.end(RUNS[0], first, Some(30));
        assert_eq!(gate.admit(1_000), [second]);
        gate.end(RUNS[0], second, None);
        let third = gate.ask(&run(0), 20);
        assert_eq!(gate.admit(2_000), [0; 0]);
        assert_eq!(gate.wake_after(2_000), Some(58_000), "the first expires at 60 s");
        assert_eq!(gate.admit(60_000), [third]);
    }

    #[test]
    fn a_request_over_the_token_limit_is_delayed_and_not_lost() {
        let mut gate = gate(None, Some(100));
        let (small, large, later) = (gate.ask(&run(0), 10), gate.ask(&run(0), 500), gate.ask(&run(0), 1));
        assert_eq!(gate.admit(0), [small]);
        gate.end(RUNS[0], small, None);
        assert_eq!(gate.wake_after(0), Some(60_000));
        assert_eq!(gate.admit(60_000), [large]);
        assert_eq!(
            gate.admit(60_000),
            [0; 0],
            "no later call overtakes, and no other call fits"
        );
        gate.end(RUNS[0], large, None);
        assert_eq!(gate.admit(120_000), [later]);
    }

    #[test]
    fn a_pause_requested_by_the_provider_delays_every_request() {
        let mut gate = gate(None, None);
        gate.close_until(5_000);
        gate.close_until(3_000);
        let ticket = gate.ask(&run(0), 1);
        assert_eq!(gate.admit(4_999), [0; 0]);
        assert_eq!(gate.wake_after(4_000), Some(1_000));
        assert_eq!(gate.admit(5_000), [ticket]);
    }

    #[test]
    fn a_run_with_one_request_waits_for_at_most_one_request_of_a_busy_run() {
        let mut gate = gate(Some(1), None);
        let many: Vec<TicketId> = (0..5000).map(|_| gate.ask(&run(0), 1)).collect();
        assert_eq!(gate.admit(0), many[..1]);
        let one = gate.ask(&run(1), 1);
        gate.end(RUNS[0], many[0], None);
        assert_eq!(gate.admit(0), many[1..2], "its neighbour waited before it");
        gate.end(RUNS[0], many[1], None);
        assert_eq!(gate.admit(0), [one]);
        gate.end(RUNS[1], one, None);
        assert_eq!(gate.admit(0), many[2..3]);
    }

    #[test]
    fn the_cost_of_a_request_does_not_grow_with_the_window() {
        let mut gate = Gate::new(GateLimits {
            requests_at_once: None,
            requests_per_minute: Some(20_000),
            tokens_per_minute: Some(1_000_000),
        });
        let visits = || crate::model_call::window::VISITS.get();
        let tickets: Vec<TicketId> = (0..10_000).filter_map(|at| gate.start(100, at)).collect();
        assert_eq!((tickets.len(), gate.used(10_000)), (10_000, 1_000_000));
        let large = gate.ask(&run(0), 500_000);
        let before = visits();
        for ticket in &tickets {
            gate.end(RUNS[1], *ticket, Some(100));
            assert_eq!(gate.admit(10_000), [0; 0]);
            assert_eq!(gate.wake_after(10_000), Some(54_999), "5,000 have to leave");
        }
        assert!(
            visits() - before < 10_000 * 100,
            "{} sums for 10,000 ends",
            visits() - before
        );
        assert_eq!(gate.admit(64_999), [large]);
    }

    #[test]
    fn no_request_overtakes_waiting_requests() {
        let mut gate = gate(Some(1), None);
        let first = gate.start(1, 0).unwrap();
        assert_eq!(gate.start(1, 0), None, "there is no place");
        let waiting = gate.ask(&run(0), 1);
        gate.end(RUNS[1], first, None);
        assert_eq!(gate.start(1, 0), None, "another waits");
        assert_eq!(gate.admit(0), [waiting]);
        assert_eq!(gate.under_way(), 1);
    }

    #[derive(Clone, Debug)]
    enum Move {
        Ask(usize, u64),
        End(usize, Option<u64>),
        Pass(Millis),
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            (0..RUNS.len(), 1u64..80).prop_map(|(run, size)| Move::Ask(run, size)),
            (0usize..20, proptest::option::of(0u64..120)).prop_map(|(which, spent)| Move::End(which, spent)),
            (0u64..40_000).prop_map(Move::Pass),
        ];
        proptest::collection::vec(one, 1..60)
    }

    proptest! {
        /// The oracle stores every start and counts from the definition of the limits.
        #[test]
        fn requests_stay_within_the_limits_and_in_order(moves in moves(), at_once in 1usize..4, a_minute in 1usize..6, tokens in 50u64..150) {
            let mut gate = Gate::new(GateLimits {
                requests_at_once: Some(at_once),
                requests_per_minute: Some(a_minute),
                tokens_per_minute: Some(tokens),
            });
            let (mut now, mut asked): (_, Vec<(TicketId, u64, usize)>) = (0, Vec::new());
            let mut started: Vec<(TicketId, Millis, u64)> = Vec::new();
            let mut ended = Vec::new();
            let mut admitted_ever: Vec<(TicketId, usize)> = Vec::new();
            for step in moves {
                let first = gate.first();
                match step {
                    Move::Ask(which, size) => asked.push((gate.ask(&run(which), size), size, which)),
                    Move::End(which, spent) => if let Some(&(ticket, _, of)) = asked.get(which) && !ended.contains(&ticket) {
                        gate.end(RUNS[of], ticket, spent);
                        ended.push(ticket);
                        if let (Some(entry), Some(spent)) = (started.iter_mut().find(|one| one.0 == ticket), spent) {
                            entry.2 = spent;
                        }
                    },
                    Move::Pass(by) => now += by,
                }
                for ticket in gate.admit(now) {
                    let (_, size, of) = asked.iter().find(|one| one.0 == ticket).copied().unwrap();
                    let used: u64 = started.iter().filter(|one| one.1 + 60_000 > now).map(|one| one.2).sum();
                    prop_assert!(used == 0 || used + size <= tokens, "{} + {} > {}", used, size, tokens);
                    let recent = started.iter().filter(|one| one.1 + 60_000 > now).count();
                    prop_assert!(recent < a_minute, "{} requests in a minute", recent);
                    let before = admitted_ever.iter().rfind(|one| one.1 == of);
                    prop_assert!(before.is_none_or(|before| before.0 < ticket), "a run's requests change places");
                    prop_assert!(!ended.contains(&ticket));
                    started.push((ticket, now, size));
                    admitted_ever.push((ticket, of));
                    let under_way = started.iter().filter(|one| !ended.contains(&one.0)).count();
                    prop_assert!(under_way <= at_once);
                }
                // The next request stays the next one.
                if let Some(first) = first && !ended.contains(&first) && !started.iter().any(|one| one.0 == first) {
                    prop_assert_eq!(gate.first(), Some(first));
                }
                // No request is lost: after `wake_after` the next one is admitted, or there is no free slot.
                if let Some(after) = gate.wake_after(now) {
                    let mut later = gate.clone();
                    prop_assert!(!later.admit(now + after).is_empty());
                }
            }
        }
    }
}
