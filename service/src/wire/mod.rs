//! Conversions of events to the wire formats of front ends. They contain no other logic.

pub(super) mod agui;
pub(super) mod client_tools;
#[cfg(feature = "mcp")]
pub(super) mod elicitation;
pub(super) mod interrupts;
mod messages;
pub(super) mod ui_messages;

#[cfg(feature = "mcp")]
pub(super) use messages::output_text;

/// Returns the JSON pointer to a member of the root object.
fn pointer_to(member: &str) -> String {
    format!("/{}", member.replace('~', "~0").replace('/', "~1"))
}
