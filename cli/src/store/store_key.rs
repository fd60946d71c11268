//! Keys of an encrypted store: the file that `--key-file` names, PIRN_STORE_KEY, or the file that `[store]` of the config names.

use std::fs::File;
use std::path::{Path, PathBuf};

use pirn::config::{ConfigText, read_text};
use pirn::store::StoreKeys;
use serde::Deserialize;

use crate::config::{default_config, invalid_config};
use crate::output::failure::Failure;

/// The environment variable with keys.
const VARIABLE: &str = "PIRN_STORE_KEY";

/// Maximum size of a key file in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// The argument that names the keys of a store.
#[derive(Clone, clap::Args)]
pub(crate) struct KeyArgs {
    /// Encrypt the store file with the first key of this file; further keys only decrypt (default: PIRN_STORE_KEY of the environment,
    /// otherwise keyFile of [store] in the config file)
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// The section `[store]` of a config file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoreSettings {
    /// Path of a key file, relative to the config file.
    key_file: Option<PathBuf>,
}

impl KeyArgs {
    /// Returns the keys; none for a store without encryption.
    ///
    /// # Errors
    /// Fails if a named file cannot be read, or if it or the variable has no valid keys.
    pub(crate) fn keys(&self, config: Option<&ConfigText>) -> Result<Option<StoreKeys>, Failure> {
        if let Some(file) = &self.key_file {
            return read(file).map(Some);
        }
        if let Some(text) = from_environment() {
            let keys = text.parse();
            return keys.map(Some).map_err(|error| invalid(&format!("{VARIABLE}: {error}")));
        }
        let default;
        let config = if config.is_some() {
            config
        } else {
            default = default_config()?;
            default.as_ref()
        };
        let file = config.map(file_of).transpose()?.flatten();
        file.map(|file| read(&file)).transpose()
    }

    #[cfg(feature = "cluster")]
    /// Refuses keys for a store on a server, because the server encrypts its files.
    pub(crate) fn refuse(&self) -> Result<(), Failure> {
        let given = if self.key_file.is_some() {
            "--key-file"
        } else if from_environment().is_some() {
            VARIABLE
        } else {
            return Ok(());
        };
        let message = format!("{given} encrypts a store file, not a store on a server");
        Err(Failure::usage("USAGE", message)
            .with_help("configure the encryption of that server, and remove the key (docs/security.md)"))
    }
}

fn from_environment() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|text| !text.is_empty())
}

/// Returns the key file that a config names.
fn file_of(config: &ConfigText) -> Result<Option<PathBuf>, Failure> {
    let Some(section) = config.written().get("store") else {
        return Ok(None);
    };
    let name = &config.source().name;
    let settings = StoreSettings::deserialize(section);
    let settings = settings.map_err(|error| invalid_config(&format!("{name}: [store]: {error}")))?;
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    Ok(settings.key_file.map(|file| folder.join(file)))
}

fn read(file: &Path) -> Result<StoreKeys, Failure> {
    let shown = file.display();
    let text = File::open(file).and_then(|file| read_text(file, MAX_BYTES));
    let text = text.map_err(|error| {
        Failure::usage("UNREADABLE_FILE", format!("cannot read the key file {shown}: {error}"))
            .with_help("create one with a new key: openssl rand -hex 32")
    })?;
    text.parse().map_err(|error| invalid(&format!("{shown}: {error}")))
}

fn invalid(message: &str) -> Failure {
    Failure::usage("STORE_KEY", message).with_help("create a key with: openssl rand -hex 32")
}
