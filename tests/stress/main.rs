//! A short stress: the long one is `cargo run -p pirn-tests --bin stress -- --seconds 600`.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pirn_tests::stress::{Config, run};

#[test]
fn under_load_every_run_ends_once_and_every_event_is_accounted_for() {
    let config = Config {
        seed: 20_261_121,
        runs: 300,
        rounds: 3,
        time: Duration::from_mins(10),
        engines: 2,
        hosts: 4,
        patience: Duration::from_mins(1),
    };
    let books = run(&config, &AtomicBool::new(false), |_, _| ());
    assert!(books.violations.is_empty(), "seed {}\n{books}", config.seed);
    assert_eq!(books.rounds, 3);
    assert!(
        books.started > 450 && books.heard > 1_000 && books.missed > 0,
        "{books}"
    );
}
