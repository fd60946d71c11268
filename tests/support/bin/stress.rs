//! Stress: many host threads against real engines, with conservation checks. Exits with 1 if one fails.
//!
//! `cargo run -p pirn-tests --bin stress -- --seconds 60`

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use pirn_tests::stress::{Config, run};

/// Real engines under load from many host threads
#[derive(Parser)]
struct Args {
    /// Seconds after which no new round starts
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Rounds at most
    #[arg(long, default_value_t = u64::MAX)]
    rounds: u64,
    /// Runs a round
    #[arg(long, default_value_t = 2_000)]
    runs: u64,
    /// Engines at once
    #[arg(long, default_value_t = 2)]
    engines: usize,
    /// Host threads that start runs, and as many that wait for them
    #[arg(long, default_value_t = 8)]
    hosts: usize,
    /// Seed of the actions on each run; random and printed if omitted
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds after which a run that has not ended counts as lost
    #[arg(long, default_value_t = 60)]
    patience: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(drawn);
    let stop = Arc::new(AtomicBool::new(false));
    hear_ctrl_c(&stop);
    let config = Config {
        seed,
        runs: args.runs,
        rounds: args.rounds,
        time: Duration::from_secs(args.seconds),
        engines: args.engines,
        hosts: args.hosts,
        patience: Duration::from_secs(args.patience),
    };
    let mut out = std::io::stdout();
    // A closed stdout is no reason to stop.
    let _ = writeln!(out, "seed {seed}");
    let books = run(&config, &stop, |round, books| {
        let _ = writeln!(
            std::io::stderr(),
            "round {round}: {} runs, {} events, {} violations, {:?} KiB",
            books.started,
            books.heard,
            books.violations.len(),
            books.resident_kib.unwrap_or_default()
        );
    });
    let _ = write!(out, "{books}");
    let _ = writeln!(out, "seed {seed}");
    if books.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A random seed, from the standard library's hasher.
fn drawn() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// The first Ctrl-C stops the load and prints the summary; a second one exits at once.
fn hear_ctrl_c(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    let listen = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else {
            return;
        };
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                if stop.swap(true, Ordering::Relaxed) {
                    std::process::exit(130);
                }
            }
        });
    };
    // Without this thread, Ctrl-C kills the process.
    let _ = std::thread::Builder::new().name("ctrl-c".to_owned()).spawn(listen);
}
