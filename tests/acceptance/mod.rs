//! Acceptance cases through the public API of the engine. Failure messages contain the id of the case.

mod called_workflows;
mod docs;
mod events;
mod first_output;
mod forks;
mod guarantees;
mod input_schemas;
mod interactions;
mod lifecycle;
mod loading;
mod loops;
mod nodes;
mod smoke;
mod source_tree;
mod tools;
mod variables;
