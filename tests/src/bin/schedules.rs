//! Plays schedules: `cargo run --release -p pirn-tests --bin schedules -- 1000000 [FIRST]`, and those that failed again:
//! `... -- replay FILE`. A failure is written to `schedule-N.json` in the working directory.

use std::process::ExitCode;

use pirn_tests::schedules::{Failure, Schedules};

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

fn play(schedules: &Schedules, count: &str, first: &str) -> ExitCode {
    let (Ok(count), Ok(first)) = (count.parse::<u64>(), first.parse::<u64>()) else {
        eprintln!("COUNT and FIRST are numbers");
        return ExitCode::from(2);
    };
    let mut failed = 0_u32;
    for number in first..first.saturating_add(count) {
        let Err(failure) = schedules.play(number) else { continue };
        failed += 1;
        let path = format!("schedule-{number}.json");
        eprintln!(
            "schedule {number} ({}, seed {}): {}",
            failure.scene, failure.seed, failure.message
        );
        match serde_json::to_string(&failure).map(|text| std::fs::write(&path, text)) {
            Ok(Ok(())) => eprintln!("  again: schedules replay {path}"),
            Ok(Err(error)) => eprintln!("  {path}: {error}"),
            Err(error) => eprintln!("  {path}: {error}"),
        }
    }
    println!(
        "{count} schedules of {} scenes, {failed} failed",
        schedules.names().len()
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn replay(schedules: &Schedules, path: &str) -> ExitCode {
    let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let failure = read.and_then(|text| serde_json::from_str::<Failure>(&text).map_err(|error| error.to_string()));
    match failure {
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::from(2)
        }
        Ok(failure) => match schedules.replay(&failure) {
            Ok(()) => {
                println!("it does not fail any more");
                ExitCode::SUCCESS
            }
            Err(message) => {
                println!("{}, seed {}: {message}", failure.scene, failure.seed);
                ExitCode::FAILURE
            }
        },
    }
}
