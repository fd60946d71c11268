use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use pirn_loom_tests::single_flight::SingleFlight;

use crate::model;

#[test]
fn one_holder_at_a_time_and_the_key_is_free_afterwards() {
    model(|| {
        let flights = SingleFlight::new();
        let holders = Arc::new(AtomicUsize::new(0));
        let fly = |flights: SingleFlight<u8>, holders: Arc<AtomicUsize>| {
            if let Ok(flight) = flights.try_begin(1) {
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                holders.fetch_sub(1, Ordering::SeqCst);
                drop(flight);
            }
        };
        let (other, count) = (flights.clone(), Arc::clone(&holders));
        let flying = thread::spawn(move || fly(other, count));
        fly(flights.clone(), holders);
        flying.join().unwrap();
        assert!(flights.try_begin(1).is_ok());
    });
}
