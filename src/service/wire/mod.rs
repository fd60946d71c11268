//! Other people's protocols as tables: what each event of a run becomes on their wire. Nothing is decided here.

pub(super) mod agui;
#[cfg(feature = "mcp")]
pub(super) mod elicitation;
pub(super) mod interrupts;
mod speech;
pub(super) mod ui_messages;

#[cfg(feature = "mcp")]
pub(super) use speech::output_text;
