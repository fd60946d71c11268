//! Tests of conversations.
//!
//! - `case_*`: acceptance cases of the SPEC. The id of a case is in the test's name or in the message of its assertion.
//!   `marks` and `operation`: D and E; `select`: C; `machine`, `compression` and `tokens`: H; `pinned`: I.
//! - `random_*`: properties of generated inputs, checked against simple reference models.
//! - `growth`: complexity, measured in operations.

mod case_compression;
mod case_machine;
mod case_marks;
mod case_operation;
mod case_pinned;
mod case_select;
mod case_tokens;
mod growth;
mod notation;
mod random_batches;
mod random_checklists;
mod random_compressions;
mod random_facts;
mod random_histories;
mod random_prefixes;
mod random_requests;
mod random_results;
mod random_signals;
