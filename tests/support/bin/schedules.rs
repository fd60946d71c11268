//! Plays schedules: `cargo run --release -p pirn-tests --bin schedules -- 1000000 [FIRST]`. Replays a failed one:
//! `... -- replay FILE`. A failure is written to `schedule-N.json` in the working directory; the search stops after ten.

use std::process::ExitCode;

use pirn_tests::schedules::{Again, Failure, Schedules, Strategy};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let schedules = Schedules::new();
    match arguments[..] {
        ["replay", path] => replay(&schedules, path),
        [count] => play(&schedules, count, "0"),
        [count, first] => play(&schedules, count, first),
        _ => {
            eprintln!("usage: schedules COUNT [FIRST] | schedules replay FILE");
            ExitCode::from(2)
        }
    }
}

/// Failures after which the search stops: one fault usually fails in many orders.
const ENOUGH: u32 = 10;

/// Schedules between two progress lines.
const STRIDE: u64 = 100_000;

fn play(schedules: &Schedules, count: &str, first: &str) -> ExitCode {
    let (Ok(count), Ok(first)) = (count.parse::<u64>(), first.parse::<u64>()) else {
        eprintln!("COUNT and FIRST are numbers");
        return ExitCode::from(2);
    };
    let (mut played, mut failed) = (0_u64, 0_u32);
    for number in first..first.saturating_add(count) {
        let outcome = schedules.play(number);
        played += 1;
        if played.is_multiple_of(STRIDE) {
            eprintln!("{played} schedules, {failed} failed");
        }
        let Err(failure) = outcome else { continue };
        failed += 1;
        write(number, &failure);
        if failed == ENOUGH {
            eprintln!("that is enough");
            break;
        }
    }
    println!(
        "{played} schedules of {} scenes, {failed} failed",
        schedules.names().len()
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn write(number: u64, failure: &Failure) {
    let path = format!("schedule-{number}.json");
    eprintln!("schedule {number}, {}", described(failure, &failure.message));
    match serde_json::to_string(failure).map(|text| std::fs::write(&path, text)) {
        Ok(Ok(())) => eprintln!("  again: schedules replay {path}"),
        Ok(Err(error)) => eprintln!("  {path}: {error}"),
        Err(error) => eprintln!("  {path}: {error}"),
    }
}

fn described(failure: &Failure, message: &str) -> String {
    let strategy = match failure.strategy {
        Strategy::Random => "random",
        Strategy::Priorities => "priorities",
    };
    format!("{} (seed {}, {strategy}): {message}", failure.scene, failure.seed)
}

fn replay(schedules: &Schedules, path: &str) -> ExitCode {
    let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let failure = read.and_then(|text| serde_json::from_str::<Failure>(&text).map_err(|error| error.to_string()));
    let again = failure.and_then(|failure| Ok((schedules.replay(&failure)?, failure)));
    match again {
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::from(2)
        }
        Ok((Again::Same, failure)) => {
            println!("the same failure: {}", described(&failure, &failure.message));
            ExitCode::FAILURE
        }
        Ok((Again::Other(message), failure)) => {
            println!("another failure: {}", described(&failure, &message));
            println!("it was: {}", failure.message);
            ExitCode::FAILURE
        }
        Ok((Again::Holds { fits: true }, _)) => {
            println!("it does not fail any more");
            ExitCode::SUCCESS
        }
        Ok((Again::Holds { fits: false }, _)) => {
            println!("it does not fail, but the run took another way than the one that is written down");
            ExitCode::SUCCESS
        }
    }
}
