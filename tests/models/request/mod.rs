//! Requests to a model: their parts, the history in them, and the rules of the formats.
//!
//! Not here: replies and failures, which are in the files of the parent folder, and hints for caches, which are in `prompt_cache`.

mod conversations;
mod llm_requests;
mod pairs;
mod reasoning;
mod requests;
mod valid_requests;
