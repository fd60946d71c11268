//! Conversations in a real engine: histories and compressions, and their state after failures.

mod built_in_compressions;
mod compaction_kit;
mod failed_compressions;
mod histories;
mod lost_conversations;
mod speculative;
mod summaries;
