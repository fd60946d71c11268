//! The shipped actors under random and PCT orders (`pirn_tests::schedules`); a million of them run with
//! `cargo run --release -p pirn-tests --bin schedules -- 1000000`.

use pirn_tests::schedules::{Failure, Schedules};

#[test]
fn every_scene_holds_in_a_thousand_orders_each() {
    let schedules = Schedules::new();
    let count = 1_000 * schedules.names().len() as u64;
    for number in 0..count {
        if let Err(failure) = schedules.play(number) {
            let text = serde_json::to_string(&failure).unwrap_or_default();
            panic!("schedule {number}: {}\nreplay: {text}", failure.message);
        }
    }
}

#[test]
fn a_failure_is_had_again_from_what_was_written() {
    let failure = Failure {
        scene: "no such scene".to_owned(),
        seed: 7,
        choices: vec![0, 1],
        message: String::new(),
    };
    let text = serde_json::to_string(&failure).expect("JSON");
    let read: Failure = serde_json::from_str(&text).expect("as written");
    assert_eq!(read, failure);
    assert!(
        Schedules::new()
            .replay(&read)
            .is_err_and(|message| message.contains("no such scene"))
    );
}
