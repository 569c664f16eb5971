//! The engine from outside, with models that do as they are told and a clock that stands still.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; the lint spares only test functions themselves"
)]

mod context_window;
mod kept;
mod model;
mod simulation;
mod tooled;
mod tools;
mod turns;
