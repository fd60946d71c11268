//! Acceptance cases by id, and properties against reference models of the SPEC.

mod case_compression;
mod case_machine;
mod case_marks;
mod case_operation;
mod case_pinned;
mod case_select;
mod case_tokens;
mod notation;
mod random_batches;
mod random_compressions;
mod random_facts;
mod random_histories;
mod random_prefixes;
mod random_requests;
mod random_results;
mod random_signals;
mod slopes;
