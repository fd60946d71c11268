//! The shipped actors under random and PCT schedules (`pirn_tests::schedules`). `cargo run --release -p pirn-tests --bin
//! schedules -- 1000000` runs a million of them.

use pirn_tests::schedules::Schedules;

#[test]
fn every_scenario_holds_in_a_thousand_orders() {
    let schedules = Schedules::new();
    let count = 1_000 * schedules.names().len() as u64;
    for number in 0..count {
        if let Err(failure) = schedules.play(number) {
            let text = serde_json::to_string(&failure).unwrap_or_default();
            panic!("schedule {number}: {}\nreplay: {text}", failure.message);
        }
    }
}
