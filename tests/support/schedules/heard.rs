//! Deliveries to a subscriber of a scene, and the checks on them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pirn_actors::engine::EngineShared;
use pirn_actors::events::{Deliver, Delivery, EventFilter, Subscription, Undelivered};
use pirn_definition::event_type::EventType;
use pirn_events::event::Event;

/// The deliveries, in order.
#[derive(Clone, Default)]
pub(super) struct Heard {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    deliveries: Vec<Delivery>,
    /// Number of deliveries accepted before `Undelivered::Full` is returned; rises by one each time.
    room: Option<usize>,
}

struct Ear(Heard);

impl Heard {
    /// Subscribes to a run from now on. With `room`, the buffer reports that it is full now and then, first after `room` events.
    pub(super) fn listen(engine: &Arc<EngineShared>, run_id: &str, room: Option<usize>) -> Self {
        let heard = Self::default();
        heard.with(|inner| inner.room = room);
        let filter = EventFilter {
            run_id: Some(run_id.to_owned()),
            types: Vec::new(),
        };
        engine.subscribe(filter, Box::new(Ear(heard.clone())));
        heard
    }

    /// A subscription for a run that has not started, from its first event.
    pub(super) fn subscription(&self) -> Subscription {
        Subscription {
            types: Vec::new(),
            after: 0,
            deliver: Box::new(Ear(self.clone())),
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The events that were delivered.
    pub(super) fn events(&self) -> Vec<Arc<Event>> {
        self.with(|inner| {
            let event = |delivery: &Delivery| match delivery {
                Delivery::Event(event) => Some(Arc::clone(event)),
                Delivery::Lagged(_) => None,
            };
            inner.deliveries.iter().filter_map(event).collect()
        })
    }

    /// Checks that the sequences of one run rise by one, except for the events reported as missed.
    pub(super) fn check_account(&self) -> Result<(), String> {
        self.with(|inner| {
            let (mut last, mut missed) = (None, 0);
            for delivery in &inner.deliveries {
                match delivery {
                    Delivery::Lagged(count) => missed += count,
                    Delivery::Event(event) => {
                        if let Some(last) = last
                            && event.sequence != last + 1 + missed
                        {
                            return Err(format!("after {last} and {missed} missed came {}", event.sequence));
                        }
                        (last, missed) = (Some(event.sequence), 0);
                    }
                }
            }
            Ok(())
        })
    }

    /// Checks that every thread that started ended exactly once, after its start.
    pub(super) fn check_threads(&self) -> Result<(), String> {
        let mut open: BTreeMap<String, bool> = BTreeMap::new();
        for event in self.events() {
            let is_open = match event.raised.event_type {
                EventType::ThreadStarted => true,
                EventType::ThreadCompleted | EventType::ThreadFailed | EventType::ThreadCancelled => false,
                _other => continue,
            };
            let before = open.insert(event.thread_id.to_string(), is_open);
            let is_wrong = if is_open {
                before.is_some()
            } else {
                before == Some(false)
            };
            if is_wrong {
                return Err(format!("thread {} starts or ends twice", event.thread_id));
            }
        }
        match open.iter().find(|(_, is_open)| **is_open) {
            Some((thread, _)) => Err(format!("thread {thread} never ended")),
            None => Ok(()),
        }
    }
}

impl Deliver for Ear {
    fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered> {
        self.0.with(|inner| {
            if let Some(room) = inner.room
                && inner.deliveries.len() % (room + 1) == room
                && matches!(delivery, Delivery::Event(_))
            {
                // A subscriber that reads a moment too late: the next delivery is accepted.
                inner.room = Some(room + 1);
                return Err(Undelivered::Full);
            }
            inner.deliveries.push(delivery);
            Ok(())
        })
    }

    fn end(&mut self, missed: u64) {
        self.0.with(|inner| inner.deliveries.push(Delivery::Lagged(missed)));
    }

    fn another(&self) -> Box<dyn Deliver> {
        Box::new(Self(self.0.clone()))
    }
}
