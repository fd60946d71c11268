//! A set of subscribers that one publisher reads at every event, with a gapless sequence.
//!
//! Invariants:
//! 1. The sequence starts at 0 and grows by one with every event, whether or not anybody listens.
//! 2. A subscription knows the first sequence it gets. It gets that one and every later one, each once and in order,
//!    until it is dropped: joining the set and reading the sequence are one step under the lock.
//! 3. The set is copied to be changed, so the publisher takes it with one pointer; it holds no lock while it hands
//!    events out. A subscription dropped meanwhile may still be handed the event under way, but no later one.
//! 4. There is one publisher, and publishing needs it exclusively: no two events can overtake each other.
//!
//! No deadlock: `changes` is always taken before `current` and never by the publisher; neither is held while a
//! subscriber is called or dropped, so a subscriber may subscribe, unsubscribe and publish elsewhere.

use std::fmt;

use crate::prim::{Arc, Mutex, lock};

/// An empty set at sequence 0: the side that publishes, and the side that subscribes.
///
/// ```
/// let (mut publisher, subscriptions) = pirn_sync::subscriptions();
/// let seen = std::sync::Mutex::new(Vec::new());
/// let subscription = subscriptions.subscribe("a");
/// publisher.publish(|sequence, name| seen.lock().unwrap().push((sequence, *name)));
/// assert_eq!((subscription.from(), seen.into_inner().unwrap()), (0, vec![(0, "a")]));
/// ```
pub fn subscriptions<S>() -> (Publisher<S>, Subscriptions<S>) {
    let current = Current {
        sequence: 0,
        members: Arc::new(Vec::new()),
    };
    let shared = Arc::new(Shared {
        changes: Mutex::new(0),
        current: Mutex::new(current),
    });
    let publisher = Publisher {
        shared: Arc::clone(&shared),
    };
    (publisher, Subscriptions { shared })
}

struct Shared<S> {
    /// Held while a changed set is made, so that no change is lost. Holds the last subscription's number.
    changes: Mutex<u64>,
    current: Mutex<Current<S>>,
}

struct Current<S> {
    /// Of the next event.
    sequence: u64,
    members: Members<S>,
}

type Members<S> = Arc<Vec<(u64, Arc<S>)>>;

/// Hands events out, one after another.
pub struct Publisher<S> {
    shared: Arc<Shared<S>>,
}

impl<S> Publisher<S> {
    /// Numbers an event and hands it to everybody who is subscribed now, in the order they subscribed. Gives the
    /// sequence.
    pub fn publish(&mut self, mut hand: impl FnMut(u64, &S)) -> u64 {
        let (sequence, members) = {
            let mut current = lock(&self.shared.current);
            let sequence = current.sequence;
            current.sequence += 1;
            (sequence, Arc::clone(&current.members))
        };
        for (_, member) in members.iter() {
            hand(sequence, member);
        }
        sequence
    }

    /// Whether nobody is subscribed, so that an event need not be made to be handed out.
    pub fn nobody_listens(&self) -> bool {
        lock(&self.shared.current).members.is_empty()
    }

    /// The sequence that the next event gets.
    pub fn next_sequence(&self) -> u64 {
        lock(&self.shared.current).sequence
    }
}

impl<S> fmt::Debug for Publisher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("next_sequence", &self.next_sequence())
            .finish_non_exhaustive()
    }
}

/// Where one subscribes. Clones are the same set.
pub struct Subscriptions<S> {
    shared: Arc<Shared<S>>,
}

impl<S> Subscriptions<S> {
    /// Joins the set until the subscription is dropped. Joining and leaving copy the set.
    pub fn subscribe(&self, subscriber: S) -> Subscription<S> {
        let subscriber = Arc::new(subscriber);
        let mut last = lock(&self.shared.changes);
        *last += 1;
        let id = *last;
        let early = mutant!("subscriptions: reads the sequence before it joins").then(|| self.shared.sequence());
        let old = self.shared.members();
        if mutant!("subscriptions: two changes at once") {
            drop(last);
            last = lock(&self.shared.changes);
        }
        let mut members = Vec::with_capacity(old.len() + 1);
        members.extend(old.iter().cloned());
        members.push((id, subscriber));
        let (sequence, old) = self.shared.swap(members);
        drop(last);
        drop(old);
        let shared = Arc::clone(&self.shared);
        let from = early.unwrap_or(sequence);
        Subscription { shared, id, from }
    }

    /// How many are subscribed.
    pub fn len(&self) -> usize {
        self.shared.members().len()
    }

    /// Whether nobody is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<S> Shared<S> {
    fn members(&self) -> Members<S> {
        Arc::clone(&lock(&self.current).members)
    }

    fn sequence(&self) -> u64 {
        lock(&self.current).sequence
    }

    /// Puts a changed set in, and gives the first sequence it is for and the old set, to be dropped unlocked.
    fn swap(&self, members: Vec<(u64, Arc<S>)>) -> (u64, Members<S>) {
        let members = Arc::new(members);
        let mut current = lock(&self.current);
        let old = std::mem::replace(&mut current.members, members);
        (current.sequence, old)
    }
}

impl<S> Clone for Subscriptions<S> {
    fn clone(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        Self { shared }
    }
}

impl<S> fmt::Debug for Subscriptions<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriptions").field("len", &self.len()).finish()
    }
}

/// A place in the set. Drop it to leave.
#[must_use = "dropping the subscription ends it"]
pub struct Subscription<S> {
    shared: Arc<Shared<S>>,
    id: u64,
    from: u64,
}

impl<S> Subscription<S> {
    /// The sequence of the first event it gets.
    pub fn from(&self) -> u64 {
        self.from
    }
}

impl<S> Drop for Subscription<S> {
    fn drop(&mut self) {
        if mutant!("subscriptions: leaving changes nothing") {
            return;
        }
        let changes = lock(&self.shared.changes);
        let old = self.shared.members();
        let members = old.iter().filter(|(id, _)| *id != self.id).cloned().collect();
        let swapped = self.shared.swap(members);
        drop(changes);
        // The last owners of the subscriber, perhaps: it is dropped with no lock held.
        drop((old, swapped));
    }
}

impl<S> fmt::Debug for Subscription<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}
