//! The pinned context.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// The sections of the pinned context, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum PinSection {
    /// Role definition.
    Role,
    /// TODO list.
    Todo,
    /// Useful information.
    UsefulInfo,
    /// Folder notes.
    FolderNotes,
}

impl PinSection {
    /// All sections, in their order.
    pub const ALL: [Self; 4] = [Self::Role, Self::Todo, Self::UsefulInfo, Self::FolderNotes];

    /// Returns the name of the section in files, requests and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::Todo => "todo",
            Self::UsefulInfo => "usefulInfo",
            Self::FolderNotes => "folderNotes",
        }
    }
}

/// Pinned context: absent sections are skipped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pinned {
    /// Role definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// TODO list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo: Option<PinnedText<Vec<TodoItem>>>,
    /// Useful information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub useful_info: Option<PinnedText<Vec<UsefulInfo>>>,
    /// Folder notes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder_notes: Option<PinnedText<FolderNotes>>,
}

impl Pinned {
    /// Sets a section; `null` removes it.
    ///
    /// # Errors
    /// Fails if the value does not have the section's form.
    pub fn set<'v, D: Deserializer<'v>>(&mut self, section: PinSection, value: D) -> Result<(), D::Error> {
        match section {
            PinSection::Role => self.role = Option::deserialize(value)?,
            PinSection::Todo => self.todo = Option::deserialize(value)?,
            PinSection::UsefulInfo => self.useful_info = Option::deserialize(value)?,
            PinSection::FolderNotes => self.folder_notes = Option::deserialize(value)?,
        }
        Ok(())
    }
}

/// Literal text, or a structured form.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum PinnedText<T> {
    /// Literal text.
    Text(String),
    /// A structured form, which is rendered.
    Structured(T),
}

/// A TODO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TodoItem {
    /// The task.
    pub content: String,
    /// Progress of the TODO.
    #[serde(default)]
    pub status: TodoStatus,
}

/// The progress of a TODO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// The TODO is not started.
    #[default]
    #[serde(alias = "todo", alias = "open")]
    Pending,
    /// The TODO is in progress.
    #[serde(alias = "inProgress", alias = "doing")]
    InProgress,
    /// The TODO is done.
    #[serde(alias = "done")]
    Completed,
}

/// A useful fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UsefulInfo {
    /// File that contains the fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Lines of the file, such as `"10-20"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<String>,
    /// The fact.
    pub text: String,
}

/// Notes by folder.
pub type FolderNotes = BTreeMap<String, Vec<String>>;
