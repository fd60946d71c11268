//! Tools of models: consent to calls, scripts that call tools, workflows as tools.
//!
//! Not here: tools across crashes, which are in `durable::effects`.

mod consent;
mod run_code;
mod submitted_limits;
mod workflow_tools;
