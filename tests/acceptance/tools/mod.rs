//! Tools of models: consent to calls, scripts that call tools, workflows as tools.
//!
//! Not here: tools across crashes, which are in `durable::effects`.

mod consent;
mod run_code;
mod workflow_tools;
