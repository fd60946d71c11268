//! Properties of generated inputs, checked against simple reference models.
//!
//! Not here: acceptance cases ([`cases`](super::cases)).

mod batches;
mod checklists;
mod compressions;
mod facts;
mod histories;
mod prefixes;
mod requests;
mod results;
mod signals;
