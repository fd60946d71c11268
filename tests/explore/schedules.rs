//! The shipped actors under random and PCT schedules (`pirn_tests::schedules`). `cargo run --release -p pirn-tests --bin
//! schedules -- 1000000` runs a million of them.

use std::cell::Cell;
use std::rc::Rc;

use pirn_tests::schedules::{Again, Failure, SceneKind, Schedules, Strategy};

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

/// A scene with a defect: of ten requests the last must not come first.
const BROKEN: &[SceneKind] = &[SceneKind {
    name: "the last comes first",
    engines: || vec![pirn::Engine::builder().workflows(pirn_tests::world::line("main", &[]).to_string())],
    play: |stage, seed, order| {
        let first = Rc::new(Cell::new(None));
        let played = stage.play(seed, order, |scene| {
            for number in 0..10 {
                let first = Rc::clone(&first);
                scene.soon(move |_| first.set(first.get().or(Some(number))));
            }
            Ok(())
        });
        played.map_err(|error| error.to_string())?;
        match first.get() {
            Some(9) => Err(format!("9 came first with seed {seed}")),
            Some(_) | None => Ok(()),
        }
    },
}];

fn first_failure(schedules: &Schedules, strategy: Strategy) -> Failure {
    let mut failures = (0..1_000).filter_map(|number| schedules.play(number).err());
    let found = failures.find(|failure| failure.strategy == strategy);
    found.expect("one of ten comes first in some of a thousand orders")
}

#[test]
fn a_failure_is_reproduced_from_its_serialized_form() {
    let schedules = Schedules::of(BROKEN);
    for strategy in [Strategy::Random, Strategy::Priorities] {
        let failure = first_failure(&schedules, strategy);
        let written = serde_json::to_string(&failure).expect("JSON");
        let read: Failure = serde_json::from_str(&written).expect("as written");
        assert_eq!(read, failure);
        assert_eq!(schedules.replay(&read), Ok(Again::Same), "{written}");
    }
}

#[test]
fn a_replay_distinguishes_another_failure_a_fixed_one_and_an_inapplicable_one() {
    let schedules = Schedules::of(BROKEN);
    let failure = first_failure(&schedules, Strategy::Random);
    let other = Failure {
        message: "something else".to_owned(),
        ..failure.clone()
    };
    assert_eq!(schedules.replay(&other), Ok(Again::Other(failure.message.clone())));
    let mut holds = failure.clone();
    holds.choices.fill(0);
    assert_eq!(schedules.replay(&holds), Ok(Again::Holds { fits: true }));
    let mut astray = holds;
    astray.choices.push(0);
    assert_eq!(schedules.replay(&astray), Ok(Again::Holds { fits: false }));
    let unknown = Failure {
        scene: "no such scene".to_owned(),
        ..failure
    };
    assert!(
        schedules
            .replay(&unknown)
            .is_err_and(|message| message.contains("no such scene"))
    );
}
