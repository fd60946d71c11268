//! A config file (`pirn.toml`, docs/models.md and docs/tools.md), read once, with locations of its values.
//! [`profiles`](crate::profiles), [`tools`](crate::tools) and [`faults`](crate::faults) read its sections.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use pirn_definition::definition::{Fault, FaultCode, SourceFile, json_from_str};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum size of a config file in bytes.
// Far above any config. The limit only stops a path to a device or a log file from filling the memory.
const MAX_BYTES: u64 = 64 << 20;

/// A parsed config file with its source.
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

/// Errors of a config file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// The file is neither TOML nor JSON, or not `{profiles: [...]}`.
    #[error("{}: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason, with its location if known.
        message: String,
    },
}

/// Returns each fault after a line break and two spaces.
pub(crate) fn indented(faults: &[impl Display]) -> String {
    faults
        .iter()
        .flat_map(|fault| ["\n  ".to_owned(), fault.to_string()])
        .collect()
}

impl ConfigText {
    /// Reads a file as TOML or JSON, by the extension of its name; without an extension both are tried.
    ///
    /// # Errors
    /// The file cannot be read, or is neither TOML nor JSON.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref().to_owned();
        let text = match File::open(&path).and_then(|file| read_text(file, MAX_BYTES)) {
            Ok(text) => text,
            Err(error) => return Err(ConfigError::Unreadable { path, error }),
        };
        // Some editors write a byte order mark, which is not part of the text.
        let text = text.trim_start_matches('\u{feff}');
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let read = if ending.eq_ignore_ascii_case("json") {
            json(text)
        } else if ending.eq_ignore_ascii_case("toml") {
            toml(text)
        } else {
            // JSON first: a JSON object is never valid TOML. If both fail, the error is that of TOML, the usual format.
            json(text).or_else(|_| toml(text))
        };
        match read {
            Ok((written, is_toml)) => Ok(Self {
                source: SourceFile::new(path.display().to_string(), text),
                path,
                is_toml,
                written,
            }),
            Err(message) => Err(ConfigError::Malformed { path, message }),
        }
    }

    /// Returns the source and its name, for messages that quote it.
    pub fn source(&self) -> &SourceFile {
        &self.source
    }

    /// Returns the file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the parsed content.
    pub fn written(&self) -> &Value {
        &self.written
    }

    /// Creates a fault at the value that `pointer` refers to, or at its deepest existing ancestor.
    pub(crate) fn fault(&self, code: FaultCode, pointer: &str, message: &str) -> Fault {
        if self.is_toml {
            let place = place_in_toml(&self.source.text, pointer);
            self.source.fault_in(code, pointer, place, message)
        } else {
            self.source.fault_at(code, pointer, message)
        }
    }

    /// Returns the line of the value that `pointer` refers to.
    #[cfg(feature = "tools")]
    pub(crate) fn line_of(&self, pointer: &str) -> Option<u32> {
        let fault = self.fault(FaultCode::InvalidValue, pointer, "");
        fault.position.map(|position| position.line)
    }
}

/// Reads text of at most `limit` bytes, so that an endless source (a device, a pipe) does not fill the memory.
///
/// # Errors
/// The source cannot be read, is longer, or is not UTF-8. The message is meant for display.
pub fn read_text(source: impl Read, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    // Reading one byte more than allowed distinguishes a source that is too long from one of exactly this size.
    source.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let message = format!("it has more than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is not UTF-8 text (byte {place})"),
        )
    })
}

fn json(text: &str) -> Result<(Value, bool), String> {
    let read = json_from_str(text).map_err(|error| error.to_string())?;
    Ok((read, false))
}

fn toml(text: &str) -> Result<(Value, bool), String> {
    let read = toml::from_str(text).map_err(|error| error.to_string())?;
    Ok((read, true))
}

/// Returns the byte range of the value at a JSON pointer, or of its deepest existing ancestor.
fn place_in_toml(text: &str, pointer: &str) -> Range<usize> {
    // Parsed a second time for its spans, because a fault is rare and the value without spans is smaller.
    let Ok(root) = DeTable::parse(text) else { return 0..0 };
    let mut steps = pointer.split('/').skip(1);
    let first = steps.next().and_then(|key| root.get_ref().get(key));
    let Some(mut here) = first else { return 0..0 };
    for step in steps {
        // A missing field is reported at the object that lacks it.
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
