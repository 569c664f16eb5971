//! What every engine promises, and what each of them promises alone.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "helpers of tests; the lints spare only test functions themselves"
)]

#[macro_use]
mod contract;
mod given;
mod postgres;
mod sqlite;
