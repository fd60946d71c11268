//! Acceptance cases through the public API of the engine. Failure messages contain the id of the case.

mod called_workflows;
mod consent;
mod contributing;
mod crates_picture;
mod docs;
mod file_cycles;
mod first_output;
mod forks;
mod guarantees;
mod house;
mod input_schemas;
mod interactions;
mod lifecycle;
mod listeners;
mod loading;
mod loops;
mod module_docs;
mod mutants;
mod nodes;
mod semantics;
mod smoke;
mod triggered;
mod triggers;
mod validation_codes;
mod variables;
mod waits;
