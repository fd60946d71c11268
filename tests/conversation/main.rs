//! Conversations in a real engine: histories, compressions, and what becomes of them where a part breaks.

mod broken_compressions;
mod histories;
mod lost_conversations;
mod ready_made;
mod speculative;
mod summaries;
