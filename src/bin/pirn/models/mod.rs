//! `pirn models check`: which profiles work, and what they can do.

mod probe;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use pirn::profiles::{FILE_NAME, load_profiles};
use pirn::{Engine, Profile};
use serde_json::json;

use self::probe::Checked;
use crate::config::no_config;
use crate::terminal::{FAILED, Output, USAGE, answer, complain};

/// Arguments of `pirn models`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Ask each profile's model: is it reachable, is the key accepted, does it answer, stream and call tools?
    Check(CheckArgs),
}

#[derive(clap::Args)]
struct CheckArgs {
    /// Only this profile
    profile: Option<String>,
    /// TOML or JSON (default: pirn.toml here)
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
}

/// Ends with 0 where every profile that was asked answers.
pub(crate) fn run(args: &Args) -> ExitCode {
    match &args.command {
        Command::Check(args) => check(args),
    }
}

fn check(args: &CheckArgs) -> ExitCode {
    let path = args.profiles.clone().unwrap_or_else(|| PathBuf::from(FILE_NAME));
    if args.profiles.is_none() && !path.is_file() {
        return complain(&no_config(), USAGE);
    }
    let profiles = match load_profiles(&path) {
        Ok(profiles) => profiles,
        Err(error) => return complain(&error.to_string(), USAGE),
    };
    let chosen: Vec<&Profile> = profiles
        .iter()
        .filter(|profile| args.profile.as_ref().is_none_or(|id| profile.id == *id))
        .collect();
    if chosen.is_empty() {
        let ids: Vec<&str> = profiles.iter().map(|profile| profile.id.as_str()).collect();
        let wanted = args.profile.as_deref().unwrap_or("of any kind");
        let message = format!(
            "there is no profile {wanted}; {} has: {}",
            path.display(),
            ids.join(", ")
        );
        return complain(&message, USAGE);
    }
    // All at once, so that a fault is not taken for a profile that does not answer.
    if let Err(error) = Engine::builder().profiles(profiles.iter().cloned()).build() {
        return complain(&error.to_string(), FAILED);
    }
    let checked: Vec<Checked> = chosen.into_iter().map(probe::check).collect();
    let code = if checked.iter().all(Checked::works) { 0 } else { FAILED };
    let text = match args.output {
        Output::Text => checked.iter().map(Checked::as_text).collect::<Vec<_>>().join("\n"),
        Output::Json => format!("{:#}\n", json!({ "profiles": checked })),
    };
    answer(&text, code)
}
