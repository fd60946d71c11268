//! The config file: `pirn.toml` next to the first workflow file, or the file that `--profiles` names.

pub(crate) mod service_settings;

use std::path::{Path, PathBuf};

use pirn::Profile;
use pirn::config::{ConfigError, ConfigText};
use pirn::faults::Faults;
use pirn::profiles::{FILE_NAME, ProfilesError, beside};
use pirn::tools::ToolsConfig;
use serde::Deserialize;

use crate::files;
use crate::output::failure::Failure;
use crate::output::redact;
use service_settings::ServiceSettings;

/// The argument that names the config file.
#[derive(clap::Args)]
pub(crate) struct ConfigFile {
    /// Model profiles and tools, TOML or JSON (default: PIRN_PROFILES of the environment, otherwise pirn.toml in the folder of the
    /// first workflow file, or in the current folder)
    #[arg(long, visible_alias = "config", value_name = "FILE")]
    profiles: Option<String>,
}

/// Reads the config file of a command that names none: that of PIRN_PROFILES, or `pirn.toml` in the current folder.
pub(crate) fn default_config() -> Result<Option<ConfigText>, Failure> {
    let none = ConfigFile { profiles: None };
    let text = none.path_here().map(read_text).transpose()?;
    text.as_ref().map(service).transpose()?;
    Ok(text)
}

fn from_environment() -> Option<PathBuf> {
    let named = std::env::var_os("PIRN_PROFILES").filter(|named| !named.is_empty());
    named.map(PathBuf::from)
}

/// Returns the failure of a command in a folder without a config.
fn no_config() -> Failure {
    let message = format!("there is no {FILE_NAME} in this folder");
    Failure::usage("NO_CONFIG", message)
        .with_help("name a config file with --profiles FILE or PIRN_PROFILES; `pirn init` writes one")
}

/// Returns the failure for a config file that is unreadable or invalid.
pub(crate) fn invalid_config(error: &impl ToString) -> Failure {
    Failure::usage("INVALID_CONFIG", error.to_string())
}

/// The contents of a config file.
#[derive(Default)]
pub(crate) struct Config {
    pub(crate) text: Option<ConfigText>,
    /// Model profiles; empty if any of them is invalid. Their faults are reported with those of the workflow files.
    pub(crate) profiles: Vec<Profile>,
    pub(crate) tools: ToolsConfig,
    pub(crate) faults: Faults,
    pub(crate) service: ServiceSettings,
}

impl ConfigFile {
    /// Returns the absolute path, as it is recorded in a store; `None` if there is no config file.
    pub(crate) fn place(&self, files: &[String]) -> Option<String> {
        let path = std::path::absolute(self.path(files)?).ok()?;
        Some(path.display().to_string())
    }

    /// Returns the path for a command without workflow files: `pirn.toml` in the current folder, if no other file is named.
    ///
    /// # Errors
    /// Fails if there is no config file.
    pub(crate) fn required(&self) -> Result<PathBuf, Failure> {
        self.path_here().ok_or_else(no_config)
    }

    fn path_here(&self) -> Option<PathBuf> {
        self.path(&[files::DEFAULT.to_owned()])
    }

    fn path(&self, files: &[String]) -> Option<PathBuf> {
        let named = self.profiles.as_ref().map(PathBuf::from).or_else(from_environment);
        match (named, files.first()) {
            (Some(path), _) => Some(path),
            (None, Some(first)) => beside(Path::new(first)),
            (None, None) => None,
        }
    }

    /// Reads the config file if there is one; `files` are the workflow files.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is invalid.
    pub(crate) fn read(&self, files: &[String]) -> Result<Option<Config>, Failure> {
        self.path(files).map(read).transpose()
    }

    /// Reads the config file; if none is named, reads the file at `place`.
    ///
    /// # Errors
    /// Fails as [`Self::read`] does.
    pub(crate) fn read_or(&self, place: Option<PathBuf>) -> Result<Option<Config>, Failure> {
        self.path(&[]).or(place).map(read).transpose()
    }
}

fn read_text(path: PathBuf) -> Result<ConfigText, Failure> {
    let text = ConfigText::read(path).map_err(|error| match &error {
        ConfigError::Unreadable { path, error: why } => {
            invalid_config(&format!("{error}{}", files::hint(&path.display().to_string(), why)))
        }
        _other => invalid_config(&error),
    })?;
    redact::hide_misplaced(text.written());
    Ok(text)
}

fn read(path: PathBuf) -> Result<Config, Failure> {
    let text = read_text(path)?;
    Ok(Config {
        service: service(&text)?,
        profiles: match text.profiles() {
            Ok(profiles) => profiles,
            Err(ProfilesError::Profiles { .. }) => Vec::new(),
            Err(error) => return Err(invalid_config(&error)),
        },
        tools: text.tools().map_err(|error| invalid_config(&error))?,
        faults: text.faults().map_err(|error| invalid_config(&error))?,
        text: Some(text),
    })
}

/// Reads the section `[service]`; without it, every setting is absent.
fn service(text: &ConfigText) -> Result<ServiceSettings, Failure> {
    let Some(section) = text.written().get("service") else {
        return Ok(ServiceSettings::default());
    };
    let read = ServiceSettings::deserialize(section);
    read.map_err(|error| invalid_config(&format!("{}: [service]: {error}", text.source().name)))
}
