//! The engine from outside, with scripted models and a clock that does not advance by itself.

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
