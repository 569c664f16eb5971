//! The strict turn contract from outside: what IDE clients send and read, what models receive, and what outlives a process.
//!
//! Labels such as R034-15 name the rule that a test proves.

mod arrived;
mod continuations;
mod deaths;
mod desk;
mod guide;
mod inputs;
mod knowledge;
mod limits;
mod mishaps;
mod sessions;
mod streams;
mod turns;
mod validation;
