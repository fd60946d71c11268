//! A config file (`pirn.toml`, docs/models.md and docs/tools.md), read once: what it says of profiles, tools and faults,
//! and where it says that.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use pirn_core::definition::{Fault, FaultCode, Loaded, Profile, SourceFile};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::faults::{Faults, FaultsError, faults_of};
use crate::models::{ModelRegistry, ProfileFault};
use crate::profiles::{ProfilesError, list_of, profiles_of};
#[cfg(feature = "tools")]
use crate::tools::{ToolsConfig, ToolsError, tools_of};

/// Bytes that a config file may have.
const MAX_BYTES: u64 = 64 << 20;

/// A config file as it is written.
///
/// ```
/// use pirn::config::ConfigText;
/// let path = std::env::temp_dir().join(format!("pirn-doc-{}.toml", std::process::id()));
/// std::fs::write(&path, "[[profiles]]\nid = \"offline\"\nprovider = \"echo\"\n")?;
/// let config = ConfigText::read(&path)?;
/// assert_eq!(config.profiles()?[0].id, "offline");
/// assert!(config.tools()?.tools.is_empty());
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConfigText {
    path: PathBuf,
    source: SourceFile,
    is_toml: bool,
    written: Value,
}

impl ConfigText {
    /// Reads a file. The name's ending says whether it is TOML or JSON; without one both are tried.
    ///
    /// # Errors
    /// It can not be read, or is neither TOML nor JSON.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ProfilesError> {
        let path = path.as_ref().to_owned();
        let text = match File::open(&path).and_then(|file| read_text(file, MAX_BYTES)) {
            Ok(text) => text,
            Err(error) => return Err(ProfilesError::Unreadable { path, error }),
        };
        let text = text.trim_start_matches('\u{feff}');
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let read = if ending.eq_ignore_ascii_case("json") {
            json(text)
        } else if ending.eq_ignore_ascii_case("toml") {
            toml(text)
        } else {
            json(text).or_else(|_| toml(text))
        };
        match read {
            Ok((written, is_toml)) => Ok(Self {
                source: SourceFile::new(path.display().to_string(), text),
                path,
                is_toml,
                written,
            }),
            Err(message) => Err(ProfilesError::Malformed { path, message }),
        }
    }

    /// The text and its name, for messages that show it.
    pub fn source(&self) -> &SourceFile {
        &self.source
    }

    /// Its profiles, as [`load_profiles`](crate::profiles::load_profiles) gives them.
    ///
    /// # Errors
    /// As there.
    pub fn profiles(&self) -> Result<Vec<Profile>, ProfilesError> {
        let list = list_of(self.written.clone()).map_err(|message| ProfilesError::Malformed {
            path: self.path.clone(),
            message,
        })?;
        profiles_of(list).map_err(|faults| ProfilesError::Profiles {
            path: self.path.clone(),
            faults,
        })
    }

    /// Its tools, as [`load_tools`](crate::tools::load_tools) gives them.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "tools")]
    pub fn tools(&self) -> Result<ToolsConfig, ToolsError> {
        let folder = self.path.parent().unwrap_or_else(|| Path::new(""));
        tools_of(self.written.clone(), folder).map_err(|mut faults| {
            for fault in &mut faults {
                let pointer = format!("{}{}", fault.place, fault.pointer);
                fault.line = self.line_of(&pointer);
            }
            let path = self.path.clone();
            ToolsError::Entries { path, faults }
        })
    }

    /// Its `[faults]`, as [`load_faults`](crate::faults::load_faults) gives them.
    ///
    /// # Errors
    /// As there.
    pub fn faults(&self) -> Result<Faults, FaultsError> {
        faults_of(&self.written).map_err(|message| FaultsError {
            path: self.path.clone(),
            message,
        })
    }

    /// A fault at the value that `pointer` leads to, or at the deepest one on the way.
    fn fault(&self, code: FaultCode, pointer: &str, message: &str) -> Fault {
        if self.is_toml {
            let place = place_in_toml(&self.source.text, pointer);
            self.source.fault_in(code, pointer, place, message)
        } else {
            self.source.fault_at(code, pointer, message)
        }
    }

    /// The programs of its tools and MCP servers that are not on this machine, each at its place.
    #[cfg(feature = "tools")]
    pub(crate) fn missing_programs(&self) -> Vec<Fault> {
        let missing = self.tools().map(|tools| tools.missing_programs()).unwrap_or_default();
        let faults = missing.into_iter().map(|fault| {
            let pointer = format!("{}{}", fault.place, fault.pointer);
            self.fault(FaultCode::ProgramNotFound, &pointer, &fault.message)
        });
        faults.collect()
    }

    #[cfg(feature = "tools")]
    fn line_of(&self, pointer: &str) -> Option<u32> {
        let fault = self.fault(FaultCode::InvalidValue, pointer, "");
        fault.position.map(|position| position.line)
    }

    /// The ids of its profiles, in order, also of those that are wrong, and the way to the list.
    fn ids(&self) -> (&'static str, Vec<Option<&str>>) {
        let (way, list) = match &self.written {
            Value::Array(list) => ("", Some(list)),
            other => ("/profiles", other.get("profiles").and_then(Value::as_array)),
        };
        let list = list.into_iter().flatten();
        (way, list.map(|one| one.get("id").and_then(Value::as_str)).collect())
    }

    /// A profile's fault where it stands; none where the profile is not this file's.
    fn profile_fault(&self, fault: &ProfileFault) -> Option<Fault> {
        let (way, ids) = self.ids();
        let by_place = || fault.profile.strip_prefix('#')?.parse::<usize>().ok();
        // Where an id is there twice, the second one is wrong.
        let place = ids
            .iter()
            .rposition(|id| *id == Some(&*fault.profile))
            .or_else(by_place)?;
        let pointer = format!("{way}/{place}{}", fault.pointer);
        Some(self.fault(FaultCode::InvalidProfile, &pointer, &said(fault)))
    }
}

/// A text that is not yet in memory, of at most `limit` bytes: what has no end (a device, a pipe) does not fill it.
///
/// # Errors
/// It can not be read, has more bytes, or is not UTF-8: said in words for a person.
pub fn read_text(source: impl Read, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let message = format!("it has more than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is no text in UTF-8 (byte {place})"),
        )
    })
}

/// Everything that is wrong with the profiles of these files and of the config: what an engine would not be built with, each
/// at its place. Asks no network and reads no key. Providers are the built-in ones: a program that brings models of its own
/// has them checked by [`EngineBuilder::build`](crate::EngineBuilder::build).
pub fn profile_faults(loaded: &Loaded, config: Option<&ConfigText>) -> Vec<Fault> {
    let mut profiles = Vec::new();
    let mut wrong = Vec::new();
    match config.map(ConfigText::profiles) {
        Some(Ok(list)) => profiles = list,
        Some(Err(ProfilesError::Profiles { faults, .. })) => wrong = faults,
        // No list of profiles: whoever reads the file says so.
        Some(Err(ProfilesError::Unreadable { .. } | ProfilesError::Malformed { .. })) | None => {}
    }
    profiles.extend(loaded.profiles.iter().map(|profile| profile.value.clone()));
    if wrong.is_empty()
        && let Err(faults) = ModelRegistry::new(profiles)
    {
        wrong = faults;
    }
    // The loader has said that a key has no place in a file.
    let is_told = |fault: &ProfileFault| fault.pointer == "/apiKey" && !loaded.faults.is_empty();
    let told = wrong.iter().filter(|fault| !is_told(fault));
    told.map(|fault| located(fault, loaded, config)).collect()
}

/// Parameters of profiles that their providers have no place for, each at its place.
pub fn profile_warnings(loaded: &Loaded, config: Option<&ConfigText>) -> Vec<Fault> {
    let configured = config.and_then(|config| config.profiles().ok()).unwrap_or_default();
    let in_files = loaded.profiles.iter().map(|profile| profile.value.clone());
    let mut found = Vec::new();
    for profile in configured.into_iter().chain(in_files) {
        let warnings = crate::models::warnings(&profile);
        found.extend(warnings.iter().map(|warning| located(warning, loaded, config)));
        if let Some(name) = profile.tokenizer.as_ref().filter(|name| !crate::tokens::is_known(name)) {
            let (message, help) = crate::tokens::unknown(name);
            let warning = located(
                &ProfileFault::new(profile.id.as_str(), "/tokenizer", message),
                loaded,
                config,
            );
            let code = FaultCode::UnknownTokenizer;
            found.push(Fault { code, ..warning }.with_help(help));
        }
    }
    found
}

/// A fault where its profile stands.
fn located(fault: &ProfileFault, loaded: &Loaded, config: Option<&ConfigText>) -> Fault {
    let own = loaded.profiles.iter().rev().find(|one| one.value.id == fault.profile);
    let in_files = own.map(|one| {
        one.origin
            .fault_at(FaultCode::InvalidProfile, &fault.pointer, said(fault))
    });
    in_files
        .or_else(|| config?.profile_fault(fault))
        .unwrap_or_else(|| Fault {
            code: FaultCode::InvalidProfile,
            message: said(fault),
            pointer: fault.pointer.clone(),
            file: None,
            position: None,
            help: None,
        })
}

fn said(fault: &ProfileFault) -> String {
    if fault.pointer.is_empty() {
        format!("profile `{}`: {}", fault.profile, fault.message)
    } else {
        fault.to_string()
    }
}

fn json(text: &str) -> Result<(Value, bool), String> {
    let read = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok((read, false))
}

fn toml(text: &str) -> Result<(Value, bool), String> {
    let read = toml::from_str(text).map_err(|error| error.to_string())?;
    Ok((read, true))
}

/// The bytes of what a pointer leads to, or of the deepest value on the way that is there.
fn place_in_toml(text: &str, pointer: &str) -> Range<usize> {
    let Ok(root) = DeTable::parse(text) else { return 0..0 };
    let mut steps = pointer.split('/').skip(1);
    let first = steps.next().and_then(|key| root.get_ref().get(key));
    let Some(mut here) = first else { return 0..0 };
    for step in steps {
        let Some(next) = part(here.get_ref(), step) else { break };
        here = next;
    }
    here.span()
}

fn part<'a, 'i>(value: &'a DeValue<'i>, step: &str) -> Option<&'a Spanned<DeValue<'i>>> {
    match (value.as_table(), value.as_array()) {
        (Some(table), _) => table.get(step),
        (None, Some(list)) => list.get(step.parse::<usize>().ok()?),
        (None, None) => None,
    }
}
