//! The tenant's assistant from outside: what front ends send and read, what models receive, and what is stored.
//!
//! Labels such as RNCC-05 name the rule that a test proves.

mod answers;
mod browsers;
mod campus;
mod door;
mod guide;
mod health;
mod history;
mod limits;
mod mishaps;
mod prompts;
mod racing;
mod requests;
mod scopes;
mod settings;
mod streams;
mod tools;
mod wires;
