//! SPEC section 4 in a real engine: branches are threads, and joins are decided by strategy, time and cancellation.

mod decisions;
mod iterations;
mod losers;
mod maps;
mod merges;
mod reducers;
mod turns;

use pirn_tests::world::{Ran, code, forked, run, wait};
use serde_json::Value;

/// The end of a branch.
#[derive(Clone, Copy)]
enum Ends {
    Completes(u32),
    Fails(u32),
    Never,
}
use Ends::{Completes, Fails, Never};

/// A wait, then a value or a throw.
fn branch(place: usize, ends: Ends) -> Vec<Value> {
    let (ms, last) = match ends {
        Completes(ms) => (ms, format!("return {{from: {place}}}")),
        Fails(ms) => (ms, "throw new Error('broken')".to_owned()),
        Never => (3_600_000, "return 'late'".to_owned()),
    };
    vec![wait(&format!("w{place}"), ms), code(&format!("c{place}"), &last)]
}

fn joined(ends: &[Ends], serial: bool, join: &Value) -> Ran {
    let branches: Vec<Vec<Value>> = (0..).zip(ends).map(|(place, ends)| branch(place, *ends)).collect();
    run(&forked(&branches, serial, join), Value::Null)
}
