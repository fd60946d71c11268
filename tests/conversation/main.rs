//! Conversations in a real engine: histories and compressions, and their state after failures.

mod broken_compressions;
mod histories;
mod lost_conversations;
mod ready_made;
mod speculative;
mod summaries;
