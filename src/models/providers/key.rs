//! A provider's key: read when it is needed, shown to nobody.

use std::fmt;
use std::sync::Arc;

/// Where keys come from, by the name of an environment variable.
pub(super) type KeySource = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The process's environment.
pub(super) fn from_environment() -> KeySource {
    Arc::new(|name| std::env::var(name).ok())
}

/// A key. Neither `Debug` nor any error shows it.
#[derive(Clone)]
pub(super) struct Key {
    text: Option<String>,
}

impl Key {
    /// For a provider that needs none.
    pub(super) fn none() -> Self {
        Self { text: None }
    }

    /// The key a variable holds; blanks around it (a file's last line end) are not part of it.
    pub(super) fn of(source: &KeySource, variable: &str) -> Option<Self> {
        let text = source(variable)?;
        let text = text.trim();
        (!text.is_empty()).then(|| Self {
            text: Some(text.to_owned()),
        })
    }

    /// The key itself, for the request.
    pub(super) fn expose(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// `text` without the key in it: providers quote it back in their errors.
    pub(super) fn redact(&self, text: &str) -> String {
        match &self.text {
            Some(key) => text.replace(key.as_str(), "***"),
            None => text.to_owned(),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.text.is_some() { "Key(***)" } else { "Key(none)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_in_no_debug_and_in_no_text() {
        let source: KeySource = Arc::new(|name| (name == "MINE").then(|| " sk-123\n".to_owned()));
        let key = Key::of(&source, "MINE").expect("set");
        assert_eq!(key.expose(), Some("sk-123"));
        assert!(!format!("{key:?} {key:#?}").contains("sk-123"));
        assert_eq!(key.redact("bad key sk-123, sk-123"), "bad key ***, ***");
        assert!(Key::of(&source, "OTHER").is_none());
        assert_eq!(Key::none().redact("as it is"), "as it is");
    }
}
