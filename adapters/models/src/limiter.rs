//! The limiter of resources that runs share, such as a profile's requests or a tool's calls, based on a [`Gate`].

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::select;
use pirn_actors::host::WorkClock;
use pirn_conversation::model_call::{Gate, GateLimits, TicketId};
use pirn_definition::Millis;
use tokio::sync::Notify;

/// Limits concurrent entries and entries per minute; runs take turns.
pub struct Limiter {
    state: Mutex<State>,
}

struct State {
    gate: Gate,
    waiting: BTreeMap<TicketId, Arc<Notify>>,
}

/// Permission to work, released on drop.
pub struct Permit {
    limiter: Arc<Limiter>,
    clock: WorkClock,
    run: Arc<str>,
    ticket: TicketId,
    /// Tokens to charge from now on; `None` charges the estimate.
    spent: Option<u64>,
}

impl Limiter {
    /// Creates a limiter with these limits.
    pub fn new(limits: GateLimits) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                gate: Gate::new(limits),
                waiting: BTreeMap::new(),
            }),
        })
    }

    /// Creates a limiter of concurrent entries only.
    pub fn of_places(at_once: usize) -> Arc<Self> {
        Self::new(GateLimits {
            requests_at_once: Some(at_once),
            ..GateLimits::default()
        })
    }

    /// Returns a permit for work that costs about `tokens`, or `None` if the run must wait for it.
    pub(super) fn try_enter(self: &Arc<Self>, run: &Arc<str>, tokens: u64, clock: &WorkClock) -> Option<Permit> {
        let ticket = self.state().gate.start(tokens, clock.now())?;
        Some(self.permit(run, ticket, clock))
    }

    /// Waits until a run may do work that costs about `tokens`.
    pub async fn enter(self: &Arc<Self>, run: &Arc<str>, tokens: u64, clock: &WorkClock) -> Permit {
        if let Some(permit) = self.try_enter(run, tokens, clock) {
            return permit;
        }
        let called = Arc::new(Notify::new());
        let ticket = {
            let mut state = self.state();
            let ticket = state.gate.ask(run, tokens);
            state.waiting.insert(ticket, Arc::clone(&called));
            ticket
        };
        let mut permit = self.permit(run, ticket, clock);
        // Work that has not started costs nothing.
        permit.spent(0);
        loop {
            let wake_after = {
                let mut state = self.state();
                state.admit(clock.now(), Some(ticket));
                if !state.waiting.contains_key(&ticket) {
                    break;
                }
                state.wake_after(ticket, clock.now())
            };
            let time = async {
                match wake_after {
                    Some(after) => clock.sleep(after).await,
                    None => pending().await,
                }
            };
            select(Box::pin(called.notified()), Box::pin(time)).await;
        }
        permit.spent = None;
        permit
    }

    fn permit(self: &Arc<Self>, run: &Arc<str>, ticket: TicketId, clock: &WorkClock) -> Permit {
        Permit {
            limiter: Arc::clone(self),
            clock: clock.clone(),
            run: Arc::clone(run),
            ticket,
            spent: None,
        }
    }

    /// Admits no entries for `after` milliseconds, as the provider has requested.
    pub fn close_for(&self, after: Millis, clock: &WorkClock) {
        self.state().gate.close_until(clock.now().saturating_add(after));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notifies the callers that may start, and the first of the others, which waits by the clock: only the first one can be
    /// admitted by the passage of time alone. `asking` is the caller itself, which needs no notification.
    fn admit(&mut self, now: Millis, asking: Option<TicketId>) {
        for ticket in self.gate.admit(now) {
            if let Some(called) = self.waiting.remove(&ticket) {
                called.notify_one();
            }
        }
        let first = self.gate.first().filter(|first| Some(*first) != asking);
        if let Some(called) = first.and_then(|first| self.waiting.get(&first)) {
            called.notify_one();
        }
    }

    fn wake_after(&self, ticket: TicketId, now: Millis) -> Option<Millis> {
        if self.gate.first() == Some(ticket) {
            self.gate.wake_after(now)
        } else {
            None
        }
    }
}

impl Permit {
    /// Sets the number of tokens that the provider reported.
    pub fn spent(&mut self, tokens: u64) {
        self.spent = Some(tokens);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.limiter.state();
        state.waiting.remove(&self.ticket);
        state.gate.end(&self.run, self.ticket, self.spent);
        if !state.waiting.is_empty() {
            state.admit(self.clock.now(), None);
        }
    }
}
