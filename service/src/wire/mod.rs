//! Conversions of events to the wire formats of front ends. They contain no other logic.

pub(super) mod agui;
#[cfg(feature = "mcp")]
pub(super) mod elicitation;
pub(super) mod interrupts;
mod messages;
pub(super) mod ui_messages;

#[cfg(feature = "mcp")]
pub(super) use messages::output_text;
