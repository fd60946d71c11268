//! Handlers that show the details of a run or workflow: steps, threads, model requests, drawings, possible orders of ends.
//!
//! Not here: reports, events and lists of runs, which are in `api::runs` and `api::run_list`.

pub(super) mod drawings;
pub(super) mod history;
pub(super) mod orders;
pub(super) mod requests;
