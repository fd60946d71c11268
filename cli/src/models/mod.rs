//! `pirn models check`: checks which profiles work, and their capabilities.

mod probe;

use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use pirn::profiles::load_profiles;
use pirn::{Engine, Profile};
use pirn_definition::definition::nearest;
use serde_json::json;

use self::probe::ProbeResult;
use crate::config::{ConfigFile, invalid_config};
use crate::output::failure::Failure;
use crate::output::sanitize::sanitize;
use crate::output::terminal::{FAILED, Output, answer, json_text};

/// Arguments of `pirn models`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn models check
  pirn models check assistant --profiles models.toml --output json

Exit codes: 0 every checked profile answers, 1 one does not, 2 wrong usage or an unreadable file.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Call each profile's model: is it reachable, is the key accepted, does it answer, stream and call tools?
    Check(CheckArgs),
}

#[derive(clap::Args)]
struct CheckArgs {
    /// Check only this profile
    profile: Option<String>,
    #[command(flatten)]
    config: ConfigFile,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Args {
    pub(crate) fn output(&self) -> Output {
        let Command::Check(args) = &self.command;
        args.output
    }
}

/// Returns 0 if every checked profile answers.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Check(args) => check(args),
    }
}

fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let path = args.config.required()?;
    let profiles = load_profiles(&path).map_err(|error| invalid_config(&error))?;
    let chosen: Vec<&Profile> = profiles
        .iter()
        .filter(|profile| args.profile.as_ref().is_none_or(|id| profile.id == *id))
        .collect();
    if chosen.is_empty() {
        return Err(no_profile(args.profile.as_deref(), &path, &profiles));
    }
    // Check all profiles first, so that an invalid one is not reported as one that does not answer.
    if let Err(error) = Engine::builder().profiles(profiles.iter().cloned()).build() {
        return Err(Failure::failed("INVALID_PROFILE", error.to_string()));
    }
    let checked: Vec<ProbeResult> = chosen.into_iter().map(probe::check).collect();
    let code = if checked.iter().all(ProbeResult::works) {
        0
    } else {
        FAILED
    };
    let text = match args.output {
        Output::Text => sanitize(&checked.iter().map(ProbeResult::as_text).collect::<Vec<_>>().join("\n")).into_owned(),
        Output::Json => json_text(json!({ "profiles": checked })),
    };
    Ok(answer(&text, code))
}

fn no_profile(id: Option<&str>, path: &Path, profiles: &[Profile]) -> Failure {
    let ids = || profiles.iter().map(|profile| profile.id.as_str());
    let list = ids().collect::<Vec<_>>().join(", ");
    let Some(id) = id else {
        return Failure::usage("UNKNOWN_PROFILE", format!("{} has no profile", path.display()));
    };
    let failure = Failure::usage(
        "UNKNOWN_PROFILE",
        format!("there is no profile {id}; {} has: {list}", path.display()),
    );
    match nearest(id, ids()) {
        Some(near) => failure.with_help(format!("did you mean {near}?")),
        None => failure,
    }
}
