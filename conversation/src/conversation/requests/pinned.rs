//! Converts the pinned context to up to four user messages, in a fixed order.

use std::fmt::Write as _;

use pirn_definition::definition::{FolderNotes, Pinned, PinnedText, TodoItem, TodoStatus, UsefulInfo};
use pirn_definition::message::{Message, Role};

/// Returns the messages: role definition, TODO list, useful information, folder notes. Absent and empty sections are skipped. Equal
/// contexts give equal messages.
pub fn pinned_messages(pinned: &Pinned) -> Vec<Message> {
    // An empty section is like an absent one: providers reject blank messages.
    let role = pinned.role.as_ref().filter(|role| !role.is_empty());
    let sections = [
        role.map(|role| format!("## Agent Role Definition\n\n{role}")),
        pinned
            .todo
            .as_ref()
            .and_then(|todo| text_of(todo, |items| todo_list(items))),
        pinned
            .useful_info
            .as_ref()
            .and_then(|info| text_of(info, |facts| useful_info(facts))),
        pinned
            .folder_notes
            .as_ref()
            .and_then(|notes| text_of(notes, folder_notes)),
    ];
    sections
        .into_iter()
        .flatten()
        .map(|text| Message::new(Role::User, text))
        .collect()
}

fn text_of<T>(section: &PinnedText<T>, render: impl Fn(&T) -> Option<String>) -> Option<String> {
    match section {
        PinnedText::Text(text) => (!text.is_empty()).then(|| text.clone()),
        PinnedText::Structured(structured) => render(structured),
    }
}

fn todo_list(items: &[TodoItem]) -> Option<String> {
    // A heading without entries would be sent in every request.
    if items.is_empty() {
        return None;
    }
    let mut text = "## TODO List\n".to_owned();
    for item in items {
        let mark = match item.status {
            TodoStatus::Pending => "[ ]",
            TodoStatus::InProgress => "[~]",
            TodoStatus::Completed => "[x]",
        };
        // Cannot fail: writing to a `String` is infallible.
        write!(text, "\n- {mark} {}", item.content).unwrap_or_default();
    }
    Some(text)
}

fn useful_info(facts: &[UsefulInfo]) -> Option<String> {
    // A heading without entries would be sent in every request.
    if facts.is_empty() {
        return None;
    }
    let mut text = "## Useful Information\n".to_owned();
    for fact in facts {
        let place = match (&fact.file, &fact.lines) {
            (Some(file), Some(lines)) => format!("`{file}:{lines}`: "),
            (Some(file), None) => format!("`{file}`: "),
            (None, Some(lines)) => format!("lines {lines}: "),
            (None, None) => String::new(),
        };
        // Cannot fail: writing to a `String` is infallible.
        write!(text, "\n- {place}{}", fact.text).unwrap_or_default();
    }
    Some(text)
}

fn folder_notes(notes: &FolderNotes) -> Option<String> {
    let mut text = "## Folder Notes".to_owned();
    // Folders without notes are skipped, so that the map may have entries and the text none.
    let mut any = false;
    for (folder, lines) in notes.iter().filter(|(_, lines)| !lines.is_empty()) {
        any = true;
        // Cannot fail: writing to a `String` is infallible.
        write!(text, "\n\n### {folder}\n").unwrap_or_default();
        for line in lines {
            write!(text, "\n- {line}").unwrap_or_default();
        }
    }
    any.then_some(text)
}
