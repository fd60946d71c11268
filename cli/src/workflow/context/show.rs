//! Prints a conversation of any format for people: one line per message, brackets around blocks, names of archived batches, and a
//! bar for the tokens.

use std::fmt::Write;
use std::io::{IsTerminal, stdout};
use std::sync::Arc;

use pirn_conversation::conversation::{Conversation, CountedMessage, Estimator, MarkMap, tool_blocks};
use pirn_definition::message::{Message, Role};
use serde_json::{Value, json};

use super::input::{BadInput, any_form, conversation as conversation_of};
use crate::output::sanitize::sanitize_line;

const TEXT_WIDTH: usize = 64;
const BAR_WIDTH: u64 = 12;

/// Reads a conversation in any format, and formats it.
pub(super) fn conversation(text: &str) -> Result<String, BadInput> {
    let read = any_form(text)?;
    let messages = read.messages.into_iter().map(Arc::new).collect();
    let history = conversation_of(messages, read.mark_map, &Estimator)?;
    Ok(Page {
        coloured: stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        text: String::new(),
    }
    .of(&history))
}

struct Page {
    coloured: bool,
    text: String,
}

impl Page {
    fn of(mut self, history: &Conversation) -> String {
        let all: Vec<CountedMessage> = history.complete().iter().cloned().collect();
        let widest = all.iter().map(|counted| counted.tokens).max().unwrap_or_default();
        let brackets = brackets(&all);
        let visible = history.visible();
        let marks = history.mark_map();
        for (at, counted) in all.iter().enumerate() {
            self.headings(marks, at);
            let seen = visible.stretches().iter().any(|stretch| stretch.contains(&at));
            self.message(at, brackets[at], counted, widest, seen);
        }
        self.headings(marks, all.len());
        let line = format!(
            "{} of {} messages visible, {} tokens",
            visible.len(),
            all.len(),
            history.visible_tokens()
        );
        self.line(&line, "1");
        self.text
    }

    /// Adds headings of the batches and set-aside ranges that start at `at`.
    fn headings(&mut self, marks: &MarkMap, at: usize) {
        for (boundary, batch) in marks.batch_boundaries.iter().zip(&marks.boundary_to_batch) {
            if *boundary == at {
                let current = if *batch == marks.current_batch {
                    "visible"
                } else {
                    "archived"
                };
                self.line(&format!("batch {batch} ({current})"), "1");
            }
        }
        if marks.set_aside.iter().any(|(start, _)| *start == at) {
            self.line("excluded by a rollback", "2");
        }
    }

    fn message(&mut self, at: usize, bracket: char, counted: &CountedMessage, widest: u64, seen: bool) {
        let message = &counted.message;
        let filled = (counted.tokens.saturating_mul(BAR_WIDTH))
            .div_ceil(widest.max(1))
            .min(BAR_WIDTH);
        let bar: String = (0..BAR_WIDTH)
            .map(|cell| if cell < filled { '█' } else { '·' })
            .collect();
        let line = format!(
            "{at:>5} {bracket} {role:<9} {bar} {tokens:>6}  {text}",
            role = message.role.as_str(),
            tokens = counted.tokens,
            text = one_line(message)
        );
        let colour = match (seen, message.role) {
            (false, _) => "2",
            (true, Role::System) => "35",
            (true, Role::User) => "32",
            (true, Role::Assistant) => "36",
            (true, Role::Tool) => "33",
        };
        self.line(&line, colour);
    }

    fn line(&mut self, line: &str, colour: &str) {
        let line = line.trim_end();
        let written = if self.coloured {
            writeln!(self.text, "\u{1b}[{colour}m{line}\u{1b}[0m")
        } else {
            writeln!(self.text, "{line}")
        };
        written.unwrap_or_default();
    }
}

/// Returns the brackets that connect the messages of each tool block.
fn brackets(messages: &[CountedMessage]) -> Vec<char> {
    let mut brackets = vec![' '; messages.len()];
    for block in tool_blocks(messages) {
        let (first, last) = (block.start, block.end - 1);
        brackets[block].fill('│');
        brackets[last] = '└';
        brackets[first] = if first == last { '[' } else { '┌' };
    }
    brackets
}

/// Formats a message in one line.
fn one_line(message: &Message) -> String {
    let mut text = String::new();
    if message.sub_agent_internal {
        text.push_str("(internal) ");
    }
    if let Some(call) = &message.tool_call_id {
        write!(text, "{call}: ").unwrap_or_default();
    }
    for call in message.tool_calls.iter().filter(|_| message.asks_for_tools()) {
        write!(text, "{}({}) = {}  ", call.name, short(&call.arguments), call.id).unwrap_or_default();
    }
    text.push_str(&message.content);
    clipped(&text, TEXT_WIDTH)
}

fn short(arguments: &Value) -> String {
    if *arguments == json!({}) || arguments.is_null() {
        return String::new();
    }
    clipped(&arguments.to_string(), 24)
}

fn clipped(text: &str, width: usize) -> String {
    let mut clipped: String = text.chars().take(width).collect();
    if text.chars().nth(width).is_some() {
        clipped.push('…');
    }
    sanitize_line(&clipped)
}
