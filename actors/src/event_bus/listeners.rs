//! The subscribers of an arbiter. Private subscribers are stored per run, so that an event visits only those that may need it.

use std::sync::Arc;

use pirn_definition::event_type::EventType;
use pirn_events::event::{Event, EventMask};

use crate::protocol::bus::{ArbiterSubscriptions, ByRun, EndedRun, OfRun, RunInterest, Subscriber};
use crate::protocol::events::{Delivery, Undelivered};

/// See the module.
#[derive(Default)]
pub(crate) struct Listeners {
    of_all: Vec<Listener>,
    /// Private subscribers by run id. May include those of a later run with this id that started before the first was closed.
    of_runs: ByRun<Vec<Listener>>,
    /// Number of mask comparisons.
    #[cfg(test)]
    visits: u64,
}

impl Listeners {
    /// Adds a subscriber.
    pub(crate) fn add(&mut self, subscriber: Subscriber, interest: &ArbiterSubscriptions) {
        let of_run = subscriber.of_run.clone();
        let listener = Listener { subscriber, missed: 0 };
        let Some(OfRun { run_id, interest: own }) = of_run else {
            self.of_all.push(listener);
            interest.set_subscribers(union(&self.of_all));
            return interest.subscribed();
        };
        // Room for one: `push` would reserve room for four.
        let listeners = self.of_runs.entry(run_id).or_insert_with(|| Vec::with_capacity(1));
        listeners.push(listener);
        // The list may contain subscribers of an earlier run with this id; they must not widen this run's mask.
        own.subscribed(union(listeners.iter().filter(|listener| listener.is_of(&own))));
    }

    /// True if a subscriber listens to this type of event of the run.
    pub(crate) fn want(&self, run_id: &Arc<str>, wanted: EventType) -> bool {
        let of_run = self.of_runs.get(run_id).into_iter().flatten();
        let mut all = self.of_all.iter().chain(of_run);
        all.any(|listener| listener.subscriber.mask.contains(wanted))
    }

    /// Delivers an event to its subscribers.
    pub(crate) fn forward(&mut self, event: &Arc<Event>, interest: &ArbiterSubscriptions) {
        if !self.of_all.is_empty() {
            let before = self.of_all.len();
            #[cfg(test)]
            {
                self.visits += before as u64;
            }
            self.of_all.retain_mut(|listener| listener.take(event));
            // A union visits every subscriber, so it is computed only after a removal.
            if self.of_all.len() != before {
                interest.set_subscribers(union(&self.of_all));
            }
        }
        self.hand_on_in_run(event);
    }

    /// Delivers an event to the private subscribers of its run only.
    pub(crate) fn hand_on_in_run(&mut self, event: &Arc<Event>) {
        // Most often there is none, and a lookup would hash the run's id.
        if self.of_runs.is_empty() {
            return;
        }
        let Some(listeners) = self.of_runs.get_mut(&event.run_id) else {
            return;
        };
        #[cfg(test)]
        {
            self.visits += listeners.len() as u64;
        }
        let mut left = Vec::new();
        listeners.retain_mut(|listener| {
            let stays = listener.take(event);
            if !stays {
                // `of_run` is moved out, because the listener is dropped here and the event mask of its run is updated below.
                left.extend(listener.subscriber.of_run.take());
            }
            stays
        });
        for OfRun { interest, .. } in &left {
            interest.left(union(listeners.iter().filter(|listener| listener.is_of(interest))));
        }
        if listeners.is_empty() {
            self.of_runs.remove(&event.run_id);
        }
    }

    /// Removes the private subscribers of an ended run; dropping them ends their streams. Subscribers of a later run with this id
    /// stay.
    pub(crate) fn close(&mut self, ended: &EndedRun) {
        let (Some(own), Some(listeners)) = (&ended.interest, self.of_runs.get_mut(&ended.run_id)) else {
            return;
        };
        listeners.retain(|listener| !listener.is_of(own));
        if listeners.is_empty() {
            self.of_runs.remove(&ended.run_id);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.of_all.clear();
        self.of_runs.clear();
    }
}

fn union<'a>(listeners: impl IntoIterator<Item = &'a Listener>) -> EventMask {
    let masks = listeners.into_iter().map(|listener| listener.subscriber.mask);
    masks.fold(EventMask::NONE, EventMask::union)
}

/// A subscriber, and the number of events that it missed since its last delivery.
struct Listener {
    subscriber: Subscriber,
    missed: u64,
}

impl Listener {
    /// True if it is a private subscriber of the run with this interest.
    fn is_of(&self, own: &Arc<RunInterest>) -> bool {
        let of_run = self.subscriber.of_run.as_ref();
        of_run.is_some_and(|of_run| Arc::ptr_eq(&of_run.interest, own))
    }

    /// Delivers an event. Returns false if the subscriber is gone.
    fn take(&mut self, event: &Arc<Event>) -> bool {
        let Subscriber {
            mask, after, deliver, ..
        } = &mut self.subscriber;
        // A resumed run repeats events; the subscriber has received those up to `after`.
        if !mask.contains(event.raised.event_type) || event.sequence <= *after {
            return true;
        }
        // The count comes before the event, at the position of the gap.
        let lagged = (self.missed > 0).then_some(Delivery::Lagged(self.missed));
        let told = lagged.map_or(Ok(()), |lagged| deliver.deliver(lagged));
        if told.is_ok() {
            self.missed = 0;
        }
        match told.and_then(|()| deliver.deliver(Delivery::Event(Arc::clone(event)))) {
            Ok(()) => true,
            Err(Undelivered::Full) => {
                self.missed += 1;
                true
            }
            Err(Undelivered::Gone) => false,
        }
    }
}

impl Drop for Listener {
    /// Reports events missed at the end of the stream.
    fn drop(&mut self) {
        if self.missed > 0 {
            self.subscriber.deliver.end(self.missed);
        }
    }
}

#[cfg(test)]
mod tests {
    use pirn_events::event::RaisedEvent;

    use super::*;
    use crate::protocol::bus::BusMsg;
    use crate::protocol::events::Deliver;
    use crate::protocol::mailbox::mailbox;

    /// A subscriber that reads everything.
    #[derive(Clone)]
    struct Reader(std::sync::mpsc::Sender<Delivery>);

    impl Deliver for Reader {
        fn deliver(&mut self, delivery: Delivery) -> Result<(), Undelivered> {
            self.0.send(delivery).map_err(|_| Undelivered::Gone)
        }

        fn end(&mut self, _: u64) {}

        fn another(&self) -> Box<dyn Deliver> {
            Box::new(self.clone())
        }
    }

    fn event(run: &str, event_type: EventType) -> Arc<Event> {
        Arc::new(Event {
            sequence: 1,
            timestamp: 0,
            run_id: run.into(),
            workflow_id: "w".into(),
            thread_id: "t".into(),
            raised: RaisedEvent::new(event_type, []),
        })
    }

    /// An arbiter's subscribers, as runs and the engine add them.
    struct World {
        interest: ArbiterSubscriptions,
        listeners: Listeners,
    }

    impl World {
        fn new() -> Self {
            Self {
                interest: ArbiterSubscriptions::new(),
                listeners: Listeners::default(),
            }
        }

        fn add(&mut self, of_run: Option<OfRun>, mask: EventMask) -> std::sync::mpsc::Receiver<Delivery> {
            let (told, heard) = std::sync::mpsc::channel();
            let (bus, mut mail) = mailbox();
            let subscriber = Subscriber {
                of_run,
                mask,
                after: 0,
                deliver: Box::new(Reader(told)),
            };
            self.interest.subscribe(&bus, subscriber);
            let sent = futures::FutureExt::now_or_never(futures::StreamExt::next(&mut mail));
            let Some(Some(BusMsg::Subscribe(subscriber))) = sent else {
                panic!("a subscriber is sent to the bus");
            };
            self.listeners.add(subscriber, &self.interest);
            heard
        }
    }

    fn of(run: &str, interest: &Arc<RunInterest>) -> OfRun {
        OfRun {
            run_id: run.into(),
            interest: Arc::clone(interest),
        }
    }

    #[test]
    fn an_event_visits_only_the_subscribers_of_its_run() {
        let mut world = World::new();
        let own: Vec<Arc<RunInterest>> = (0..10_000).map(|_| Arc::default()).collect();
        let heard: Vec<_> = own
            .iter()
            .enumerate()
            .map(|(run, own)| world.add(Some(of(&format!("r{run}"), own)), EventMask::ALL))
            .collect();
        for run in 0..10_000 {
            let event = event(&format!("r{run}"), EventType::Custom);
            world.listeners.forward(&event, &world.interest);
        }
        assert_eq!(world.listeners.visits, 10_000, "one subscriber an event");
        assert!(heard.iter().all(|heard| heard.try_iter().count() == 1));
        world.listeners.close(&ended("r7", &own[7]));
        assert!(heard[7].recv().is_err(), "an ended run closes its subscriptions");
        assert!(
            heard[8]
                .try_recv()
                .is_err_and(|error| error == std::sync::mpsc::TryRecvError::Empty)
        );
    }

    fn ended(run: &str, interest: &Arc<RunInterest>) -> EndedRun {
        EndedRun {
            run_id: run.into(),
            interest: Some(Arc::clone(interest)),
        }
    }

    #[test]
    fn the_end_of_a_run_does_not_close_subscribers_of_a_later_run_with_its_id() {
        let mut world = World::new();
        let (first, second): (Arc<RunInterest>, Arc<RunInterest>) = Default::default();
        let before = world.add(Some(of("r", &first)), EventMask::ALL);
        let after = world.add(Some(of("r", &second)), EventMask::of(EventType::Custom));
        assert_eq!(first.mask(), EventMask::ALL);
        assert_eq!(second.mask(), EventMask::of(EventType::Custom));
        world.listeners.close(&ended("r", &first));
        assert!(before.recv().is_err());
        world.listeners.forward(&event("r", EventType::Custom), &world.interest);
        assert_eq!(after.try_iter().count(), 1);
    }

    #[test]
    fn a_subscriber_of_one_run_does_not_make_other_runs_build_events() {
        let mut world = World::new();
        let own: Arc<RunInterest> = Arc::default();
        let _heard = world.add(Some(of("r", &own)), EventMask::ALL);
        assert_eq!(own.mask(), EventMask::ALL);
        assert_eq!(world.interest.listening(), EventMask::NONE);
        assert!(!world.listeners.want(&"other".into(), EventType::Custom));
    }

    #[test]
    fn the_interest_of_a_run_is_the_union_of_its_open_subscriptions() {
        let mut world = World::new();
        let own: Arc<RunInterest> = Arc::default();
        let narrow = EventMask::of(EventType::Custom);
        let kept = world.add(Some(of("r", &own)), narrow);
        let gone = world.add(Some(of("r", &own)), EventMask::ALL);
        drop(gone);
        world
            .listeners
            .forward(&event("r", EventType::NodeStarted), &world.interest);
        assert_eq!(own.mask(), narrow, "the other reads no more");
        drop(kept);
        world.listeners.forward(&event("r", EventType::Custom), &world.interest);
        assert_eq!(own.mask(), EventMask::NONE);
        assert!(world.listeners.of_runs.is_empty());
    }

    #[test]
    fn the_interest_in_all_runs_ends_with_its_subscribers() {
        let mut world = World::new();
        let heard = world.add(None, EventMask::ALL);
        assert_eq!(world.interest.listening(), EventMask::ALL);
        drop(heard);
        world.listeners.forward(&event("r", EventType::Custom), &world.interest);
        assert_eq!(world.interest.listening(), EventMask::NONE);
    }
}
