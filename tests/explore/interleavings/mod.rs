//! Events, triggers, appends and compressions in a thousand orders (SPEC sections 5 to 7): in every order, no message is lost or
//! duplicated, and the main thread takes the path that it takes without triggers.

mod cast;
mod invariants;
mod shapes;
mod stopped;
mod waits;

use pirn::{Message, Role};
use pirn_tests::world::run_in;
use serde_json::Value;

use cast::{Notes, engine};
use invariants::Coverage;
use shapes::Shape;

fn turns(count: u64) -> Vec<Message> {
    let mut messages = vec![Message::new(Role::System, "You are kind.")];
    for turn in 0..count {
        messages.push(Message::new(Role::User, format!("asked {turn} ~ and more words")));
        messages.push(Message::new(
            Role::Assistant,
            format!("answered {turn} ~ and more words"),
        ));
    }
    messages
}

fn check_seed(seed: u64) -> Coverage {
    let shape = Shape::of(seed);
    let notes = Notes::default();
    let ran = run_in(engine(seed, &notes), &shape.bundle, Value::Null, turns(shape.turns));
    let alone = Notes::default();
    let plain = run_in(engine(seed, &alone), &shape.plain, Value::Null, turns(shape.turns));
    invariants::check(seed, &shape, &ran, &plain, &notes)
}

/// Runs a quarter of the thousand seeds; the quarters are separate tests, which run in parallel.
fn quarter(number: u64) {
    let mut all = Coverage::default();
    for seed in number * 250..(number + 1) * 250 {
        all.add(&check_seed(seed));
    }
    all.assert_exercised();
}

#[test]
fn no_message_is_lost_or_doubled_in_seeds_below_250() {
    quarter(0);
}

#[test]
fn no_message_is_lost_or_doubled_in_seeds_below_500() {
    quarter(1);
}

#[test]
fn no_message_is_lost_or_doubled_in_seeds_below_750() {
    quarter(2);
}

#[test]
fn no_message_is_lost_or_doubled_in_seeds_below_1000() {
    quarter(3);
}
