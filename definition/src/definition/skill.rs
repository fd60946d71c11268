//! Skills: folders with a `SKILL.md`, in the public format of Agent Skills.
//!
//! A definition contains the files of its skills: whoever reads the workflow file reads the folders too, so that a run, its replay and its
//! recovery need no folder.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name of the file with the head and the instructions of a skill.
pub const SKILL_FILE: &str = "SKILL.md";

/// Maximum number of skills of a node.
pub const MAX_SKILLS: usize = 64;

/// Maximum number of files of a skill.
pub const MAX_SKILL_FILES: usize = 256;

/// Maximum number of bytes of a skill's files.
pub const MAX_SKILL_BYTES: usize = 1 << 20;

/// Maximum number of characters of a skill's name and description, as in the public format.
const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1_024;

/// A skill of a workflow or an LLM node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Skill {
    /// The folder, relative to the workflow file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub folder: String,
    /// The text files of the folder by their path within it; one is `SKILL.md`.
    pub files: BTreeMap<String, String>,
}

/// The forms of a skill in a file.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) enum SkillEntry {
    /// The folder, relative to the workflow file.
    Folder(String),
    /// The files of the skill.
    Files(Skill),
}

/// Name and description of a skill, from the head of its `SKILL.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillHead {
    /// Name of the skill.
    pub name: String,
    /// Description: what the skill does, and when to use it.
    pub description: String,
}

impl Skill {
    /// Reads the head and the instructions of the skill.
    ///
    /// # Errors
    /// [`SkillError`] for a missing or malformed `SKILL.md`, and for too many or too large files.
    pub fn read(&self) -> Result<(SkillHead, &str), SkillError> {
        let text = self.files.get(SKILL_FILE).ok_or(SkillError::NoSkillFile)?;
        let bytes: usize = self.files.values().map(String::len).sum();
        if self.files.len() > MAX_SKILL_FILES || bytes > MAX_SKILL_BYTES {
            let files = self.files.len();
            return Err(SkillError::TooLarge { files, bytes });
        }
        let (head, body) = split(text).ok_or(SkillError::NoHead)?;
        let fields = fields(head)?;
        let field = |key: &'static str, most: usize| {
            let value = fields
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value.trim());
            let value = value.filter(|value| !value.is_empty());
            let value = value.ok_or(SkillError::NoField { key })?;
            if value.chars().count() > most {
                return Err(SkillError::LongField { key, most });
            }
            Ok(value.to_owned())
        };
        let (name, description) = (field("name", MAX_NAME)?, field("description", MAX_DESCRIPTION)?);
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !name.bytes().all(is_plain) {
            return Err(SkillError::Name { name });
        }
        Ok((SkillHead { name, description }, body))
    }
}

/// Reason that a skill cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkillError {
    /// The skill has no file [`SKILL_FILE`].
    #[error("it contains no {SKILL_FILE}")]
    NoSkillFile,
    /// The skill has more files or bytes than allowed.
    #[error("it has {files} files with {bytes} bytes, and a skill may have {MAX_SKILL_FILES} with {MAX_SKILL_BYTES}")]
    TooLarge {
        /// Number of files.
        files: usize,
        /// Number of bytes of all files.
        bytes: usize,
    },
    /// The file [`SKILL_FILE`] has no head.
    #[error("{SKILL_FILE} must start with a head between two lines `---`, which has `name` and `description`")]
    NoHead,
    /// A required field is missing or empty.
    #[error("the head of {SKILL_FILE} has no `{key}`")]
    NoField {
        /// Name of the field.
        key: &'static str,
    },
    /// A field occurs twice.
    #[error("the head of {SKILL_FILE} has `{key}` twice: remove one")]
    DuplicateField {
        /// Name of the field.
        key: String,
    },
    /// The value of a field is too long.
    #[error("`{key}` in the head of {SKILL_FILE} has more than {most} characters")]
    LongField {
        /// Name of the field.
        key: &'static str,
        /// Maximum number of characters.
        most: usize,
    },
    /// The name has other characters than lower-case letters, digits and `-`.
    #[error("the name `{name}` may have lower-case letters, digits and `-` only")]
    Name {
        /// Name of the skill.
        name: String,
    },
    /// A line of the head cannot be parsed.
    #[error("the line `{line}` in the head of {SKILL_FILE} is not of the form `key: value`")]
    Line {
        /// The line.
        line: String,
    },
}

/// Splits a text into its head, without the lines `---`, and the rest.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (first, after) = text.split_once('\n')?;
    if first.trim_end() != "---" {
        return None;
    }
    let mut at = 0;
    for line in after.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((&after[..at], after[at + line.len()..].trim_start_matches(['\r', '\n'])));
        }
        at += line.len();
    }
    None
}

/// Reads the top-level fields of a head: plain and quoted texts, and block texts (`|`, `>`). Values of other forms, such as the map
/// `metadata`, are read as the text of their lines, which no field that Pirn uses has.
fn fields(head: &str) -> Result<Vec<(String, String)>, SkillError> {
    let mut fields: Vec<(String, String)> = Vec::new();
    let mut lines = head.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || SkillError::Line {
            line: line.trim_end().to_owned(),
        };
        let (key, value) = line
            .split_once(':')
            .filter(|_| !line.starts_with([' ', '\t', '-']))
            .ok_or_else(wrong)?;
        let value = value.trim();
        // The items of a list need no indentation.
        let is_item =
            |line: &str| (value.is_empty() || value.starts_with('#')) && (line == "-" || line.starts_with("- "));
        let mut more = Vec::new();
        while let Some(next) =
            lines.next_if(|next| next.starts_with([' ', '\t']) || next.trim().is_empty() || is_item(next))
        {
            more.push(next.trim());
        }
        let text = match value.trim_end_matches(['-', '+']) {
            "|" => more.join("\n"),
            ">" | "" => more.join(" "),
            _ => unquoted(std::iter::once(value).chain(more).collect::<Vec<_>>().join(" ").trim()).ok_or_else(wrong)?,
        };
        let key = key.trim().to_owned();
        if fields.iter().any(|(other, _)| *other == key) {
            return Err(SkillError::DuplicateField { key });
        }
        fields.push((key, text));
    }
    Ok(fields)
}

/// Returns a plain or quoted text. A comment after the text is removed.
fn unquoted(text: &str) -> Option<String> {
    let is_comment =
        |rest: &str| rest.is_empty() || rest.trim_start_matches([' ', '\t']).starts_with('#') && !rest.starts_with('#');
    if let Some(rest) = text.strip_prefix('\'') {
        // Two quotes are a quote in the text.
        let (mut inner, mut rest) = (String::new(), rest);
        loop {
            let (piece, after) = rest.split_once('\'')?;
            inner.push_str(piece);
            let Some(more) = after.strip_prefix('\'') else {
                return is_comment(after).then_some(inner);
            };
            inner.push('\'');
            rest = more;
        }
    }
    if text.starts_with('"') {
        // Escapes of JSON are those of YAML that texts in heads use.
        let mut texts = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let inner = texts.next()?.ok()?;
        return is_comment(&text[texts.byte_offset()..]).then_some(inner);
    }
    Some(text.split(" #").next().unwrap_or_default().trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(text: &str) -> Skill {
        let files = BTreeMap::from([(SKILL_FILE.to_owned(), text.to_owned())]);
        Skill {
            folder: "s".to_owned(),
            files,
        }
    }

    #[test]
    fn the_head_of_a_skill_is_read_in_every_form_of_its_texts() {
        for (written, description) in [
            ("description: Reads PDF files. # why", "Reads PDF files."),
            ("description: 'It''s: a test'", "It's: a test"),
            ("description: \"quoted \\\"text\\\"\"", "quoted \"text\""),
            ("description: >-\n  two\n  lines", "two lines"),
            ("description: |\n  two\n  lines", "two\nlines"),
            ("description: starts\n  and goes on", "starts and goes on"),
            ("description: 'It''s' # why", "It's"),
            ("description: \"a \\u00fc\" # why", "a ü"),
            ("allowed-tools:\n- Read\n- Grep: x\ndescription: d", "d"),
        ] {
            for end in ["\n", "\r\n"] {
                let text = format!("---\nname: pdf\nlicense: MIT\nmetadata:\n  author: x\n{written}\n---\n\n# Body\n")
                    .replace('\n', end);
                let skill = skill(&text);
                let (head, body) = skill.read().unwrap_or_else(|why| panic!("{why}: {text}"));
                assert_eq!(
                    (&*head.name, &*head.description.replace('\r', "")),
                    ("pdf", description)
                );
                assert_eq!(body.trim_end(), "# Body");
            }
        }
    }

    #[test]
    fn a_malformed_skill_states_its_fault() {
        for (text, part) in [
            ("# no head", "must start with a head"),
            ("---\nname: x\n", "must start with a head"),
            ("---\nname: x\n---\n", "no `description`"),
            ("---\ndescription: x\n---\n", "no `name`"),
            ("---\nname: Big Name\ndescription: x\n---\n", "lower-case"),
            ("---\nname: x\ndescription: \"open\n---\n", "not of the form"),
            ("---\nname: x\ndescription: 'a' b\n---\n", "not of the form"),
            ("---\nname: x\n- item\ndescription: y\n---\n", "not of the form"),
            ("---\n- list\n---\n", "not of the form"),
            ("---\nname: x\ndescription: y\nname: z\n---\n", "`name` twice"),
            (
                &format!("---\nname: x\ndescription: {}\n---\n", "y".repeat(1_025)),
                "more than 1024",
            ),
        ] {
            let why = skill(text).read().unwrap_err().to_string();
            assert!(why.contains(part), "{text}: {why}");
        }
        assert!(Skill::default().read().unwrap_err().to_string().contains("no SKILL.md"));
        assert!(skill("--- \nname: x\ndescription: y\n--- \n").read().is_ok());
        let mut large = skill("---\nname: x\ndescription: y\n---\n");
        large.files.insert("big".to_owned(), "z".repeat(MAX_SKILL_BYTES));
        assert!(large.read().unwrap_err().to_string().contains("bytes"));
    }
}
