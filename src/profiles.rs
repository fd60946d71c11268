//! Reads profiles from a file: `pirn.toml` in the workflow's folder, or `--profiles FILE`.

use std::path::{Path, PathBuf};

use pirn_definition::definition::{Profile, json_from_value, nearest};
use pirn_models::ProfileFault;
use serde_json::{Map, Value};

use crate::config::{ConfigError, ConfigText, indented};

/// Name of the file looked up in a workflow's folder.
pub const FILE_NAME: &str = "pirn.toml";

/// Sections of a config file that are read elsewhere ([`crate::tools`], [`crate::faults`], the `pirn` command).
const ELSEWHERE: &[&str] = &["tools", "mcpServers", "faults", "service", "store", "$schema"];

/// Reasons why profiles cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfilesError {
    /// The file cannot be read or parsed.
    #[error(transparent)]
    File(#[from] ConfigError),
    /// Profiles in the file are invalid.
    #[error("{}:{}", path.display(), indented(faults))]
    Profiles {
        /// The file.
        path: PathBuf,
        /// All faults; a profile without an id is identified by its position.
        faults: Vec<ProfileFault>,
    },
}

impl ConfigText {
    /// Returns the file's profiles, as [`load_profiles`] does.
    ///
    /// # Errors
    /// Like [`load_profiles`].
    pub fn profiles(&self) -> Result<Vec<Profile>, ProfilesError> {
        let path = || self.path().to_owned();
        let list = list_of(self.written().clone());
        let list = list.map_err(|message| ConfigError::Malformed { path: path(), message })?;
        profiles_of(list).map_err(|faults| ProfilesError::Profiles { path: path(), faults })
    }
}

/// Returns the `pirn.toml` in the folder of a workflow's file, if it exists.
pub fn beside(workflow: &Path) -> Option<PathBuf> {
    Some(workflow.with_file_name(FILE_NAME)).filter(|path| path.is_file())
}

/// Reads the profiles of a file: `[[profiles]]` in TOML, `{"profiles": [...]}` or a list in JSON. The extension of the name selects
/// the format; without one both are tried. Unknown fields are preserved for the profile's provider.
///
/// # Errors
/// [`ProfilesError`]. A key in the file (`apiKey`) is an error: files contain the name of an environment variable instead.
pub fn load_profiles(path: impl AsRef<Path>) -> Result<Vec<Profile>, ProfilesError> {
    ConfigText::read(path)?.profiles()
}

fn list_of(written: Value) -> Result<Vec<Value>, String> {
    let mut fields = match written {
        Value::Array(list) => return Ok(list),
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err("it must be {profiles: [...]} or a list of profiles".to_owned());
        }
    };
    let profiles = fields.remove("profiles");
    // A misspelled section would be ignored silently otherwise.
    if let Some(unknown) = fields.keys().find(|name| !ELSEWHERE.contains(&name.as_str())) {
        let known = ELSEWHERE.iter().copied().chain(["profiles"]);
        let meant = nearest(unknown, known).map_or_else(
            || "the file holds `profiles`, `tools`, `mcpServers`, `faults`, `service` and `store`".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        return Err(format!("unknown field `{unknown}`; {meant}"));
    }
    match profiles {
        // A file may contain only tools or faults.
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err("`profiles` must be a list: in TOML, each profile begins with [[profiles]]".to_owned()),
    }
}

fn profiles_of(list: Vec<Value>) -> Result<Vec<Profile>, Vec<ProfileFault>> {
    let mut faults = Vec::new();
    let mut profiles = Vec::with_capacity(list.len());
    for (place, value) in list.into_iter().enumerate() {
        let id = value.get("id").and_then(Value::as_str);
        // `check::fault_in` parses this form to find the profile in the file.
        let id = id.map_or_else(|| format!("#{place}"), str::to_owned);
        // Before the profile is parsed, so that no error message can quote the key.
        if let Some(pointer) = value.as_object().and_then(key_in) {
            let message = "a key must not be in a file: name its environment variable in `apiKeyEnv`";
            faults.push(ProfileFault::new(id, pointer, message));
            continue;
        }
        match json_from_value::<Profile>(value) {
            Ok(profile) => profiles.push(profile),
            Err(error) => {
                let pointer = error.pointer().unwrap_or_default();
                faults.push(ProfileFault::new(id, pointer, error.message()));
            }
        }
    }
    if faults.is_empty() { Ok(profiles) } else { Err(faults) }
}

/// Returns the pointer to an API key in a profile, in any spelling, including its parameters.
fn key_in(profile: &Map<String, Value>) -> Option<String> {
    let key_among = |fields: &Map<String, Value>| fields.keys().find(|name| is_key(name)).cloned();
    if let Some(name) = key_among(profile) {
        return Some(format!("/{name}"));
    }
    let name = key_among(profile.get("parameters")?.as_object()?)?;
    Some(format!("/parameters/{name}"))
}

fn is_key(name: &str) -> bool {
    // All spellings (`api_key`, `API-Key`) are refused, because a misspelled one would still be a key in a file.
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    plain.eq_ignore_ascii_case("apikey")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of_json(text: &str) -> Result<Vec<Value>, String> {
        let read: Result<Value, _> = serde_json::from_str(text);
        read.map_err(|error| error.to_string()).and_then(list_of)
    }

    fn of_toml(text: &str) -> Result<Vec<Value>, String> {
        let read: Result<Value, _> = toml::from_str(text);
        read.map_err(|error| error.to_string()).and_then(list_of)
    }

    const TOML: &str = r#"
        [[profiles]]
        id = "mine"
        provider = "scripted"
        apiKeyEnv = "MY_KEY"
        tokenLimit = 4000
        parameters = { temperature = 0.5 }
        [[profiles.responses]]
        content = "hi"
        delayMs = 20
    "#;

    #[test]
    fn toml_and_json_files_give_equal_profiles() {
        let profile = json!({
            "id": "mine", "provider": "scripted", "apiKeyEnv": "MY_KEY", "tokenLimit": 4000,
            "parameters": {"temperature": 0.5}, "responses": [{"content": "hi", "delayMs": 20}],
        });
        let wrapped = json!({ "profiles": [profile] }).to_string();
        let list = json!([profile]).to_string();
        let read = of_toml(TOML).unwrap();
        assert_eq!(of_json(&wrapped).unwrap(), read);
        assert_eq!(of_json(&list).unwrap(), read);

        let profiles = profiles_of(read).unwrap();
        assert_eq!(profiles[0].api_key_env.as_deref(), Some("MY_KEY"));
        assert_eq!(profiles[0].token_limit, Some(4000));
        // Unknown fields are the provider's.
        assert_eq!(profiles[0].rest["responses"][0]["content"], json!("hi"));
    }

    #[test]
    fn an_empty_file_has_no_profiles() {
        assert_eq!(of_toml("# nothing yet"), Ok(Vec::new()));
        assert_eq!(of_json("{}"), Ok(Vec::new()));
    }

    #[test]
    fn a_file_without_a_valid_list_of_profiles_is_refused() {
        for (text, part) in [
            ("{\"profile\": []}", "unknown field `profile`"),
            ("{\"profiles\": {}}", "must be a list"),
            ("7", "must be {profiles"),
            ("{", "line 1"),
        ] {
            let message = of_json(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
        assert!(of_toml("[[profiles]\n").unwrap_err().contains("line 1"));
    }

    #[test]
    fn a_key_is_never_read_from_a_file() {
        let faults = profiles_of(vec![
            json!({"id": "a", "provider": "p", "apiKey": "sk-1"}),
            json!({"id": "b", "provider": "p", "api_key": "sk-2"}),
            json!({"provider": "p", "parameters": {"APIKey": "sk-3"}}),
            json!({"id": "d", "provider": "p", "apiKeyEnv": "FINE"}),
        ])
        .unwrap_err();
        let found: Vec<(&str, &str)> = faults
            .iter()
            .map(|one| (one.profile.as_str(), one.pointer.as_str()))
            .collect();
        assert_eq!(
            found,
            [("a", "/apiKey"), ("b", "/api_key"), ("#2", "/parameters/APIKey")]
        );
        assert!(
            faults
                .iter()
                .all(|fault| fault.message.contains("apiKeyEnv") && !fault.message.contains("sk-"))
        );
    }

    #[test]
    fn every_wrong_profile_is_named() {
        let wrong = vec![
            json!({"id": "a"}),
            json!(5),
            json!({"id": "c", "provider": "p", "tokenLimit": "many"}),
        ];
        let faults = profiles_of(wrong).unwrap_err();
        let found: Vec<&str> = faults.iter().map(|fault| fault.profile.as_str()).collect();
        assert_eq!(found, ["a", "#1", "c"]);
        assert!(faults[0].message.contains("provider"), "{}", faults[0]);
    }

    #[test]
    fn the_file_extension_selects_the_parser() {
        let folder = std::env::temp_dir().join(format!("pirn-profiles-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let list = r#"[{"id": "j", "provider": "echo"}]"#;
        let ids = |path: &Path| load_profiles(path).map(|all| all.into_iter().map(|one| one.id).collect::<Vec<_>>());
        assert_eq!(beside(&folder.join("flow.json")), None);
        let toml_file = write(FILE_NAME, TOML);
        assert_eq!(beside(&folder.join("flow.json")), Some(toml_file.clone()));
        assert_eq!(ids(&toml_file).unwrap(), ["mine"]);
        assert_eq!(ids(&write("p.JSON", list)).unwrap(), ["j"]);
        assert_eq!(ids(&write("bare", list)).unwrap(), ["j"]);
        assert_eq!(ids(&write("bare", TOML)).unwrap(), ["mine"]);
        let malformed = load_profiles(write("wrong.toml", list)).unwrap_err();
        assert!(
            matches!(malformed, ProfilesError::File(ConfigError::Malformed { .. }))
                && malformed.to_string().contains("wrong.toml")
        );
        let unreadable = load_profiles(folder.join("absent.toml")).unwrap_err();
        assert!(matches!(
            unreadable,
            ProfilesError::File(ConfigError::Unreadable { .. })
        ));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
