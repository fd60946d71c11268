//! Tokens and costs of a run, and the budgets that limit them.
//!
//! Not here: tokens that a provider's cache saved, which are in `prompt_cache`.

mod budgets;
mod costs;
mod spending;
