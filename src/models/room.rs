//! The room of one profile, shared by all runs: carries a [`Gate`].

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{Either, select};
use pirn_actors::host::WorkClock;
use pirn_core::Millis;
use pirn_core::model_call::{Gate, GateLimits, TicketId};
use tokio::sync::Notify;

/// The queue of one profile's requests.
pub(super) struct Room {
    state: Mutex<State>,
}

struct State {
    gate: Gate,
    waiting: BTreeMap<TicketId, Arc<Notify>>,
}

/// A request's place at the gate, given back when it is dropped.
pub(super) struct Place {
    room: Arc<Room>,
    clock: WorkClock,
    ticket: TicketId,
    /// Tokens that it counts with from now on; none is the estimate.
    spent: Option<u64>,
}

impl Room {
    pub(super) fn new(limits: GateLimits) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                gate: Gate::new(limits),
                waiting: BTreeMap::new(),
            }),
        })
    }

    /// Waits until a request of about `tokens` may start.
    pub(super) async fn enter(self: &Arc<Self>, tokens: u64, clock: &WorkClock) -> Place {
        let called = Arc::new(Notify::new());
        let ticket = {
            let mut state = self.state();
            let ticket = state.gate.ask(tokens);
            state.waiting.insert(ticket, Arc::clone(&called));
            ticket
        };
        let mut place = Place {
            room: Arc::clone(self),
            clock: clock.clone(),
            ticket,
            // Until it starts it costs nothing.
            spent: Some(0),
        };
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
            match select(Box::pin(called.notified()), Box::pin(time)).await {
                Either::Left(_) | Either::Right(_) => {}
            }
        }
        place.spent = None;
        place
    }

    /// The provider asked everybody to come back no sooner than in `after` milliseconds.
    pub(super) fn close_for(&self, after: Millis, clock: &WorkClock) {
        self.state().gate.close_until(clock.now().saturating_add(after));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Calls who may start, and the first of the others where time alone may make room for it: only the first waits by
    /// the clock. `asking` looks for itself.
    fn admit(&mut self, now: Millis, asking: Option<TicketId>) {
        for ticket in self.gate.admit(now) {
            if let Some(called) = self.waiting.remove(&ticket) {
                called.notify_one();
            }
        }
        if let Some((ticket, called)) = self.waiting.first_key_value()
            && Some(*ticket) != asking
        {
            called.notify_one();
        }
    }

    fn wake_after(&self, ticket: TicketId, now: Millis) -> Option<Millis> {
        let (first, _) = self.waiting.first_key_value()?;
        if *first == ticket {
            self.gate.wake_after(now)
        } else {
            None
        }
    }
}

impl Place {
    /// Sets the tokens that the provider reported.
    pub(super) fn spent(&mut self, tokens: u64) {
        self.spent = Some(tokens);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.room.state();
        state.waiting.remove(&self.ticket);
        state.gate.end(self.ticket, self.spent);
        state.admit(self.clock.now(), None);
    }
}
