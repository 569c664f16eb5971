//! The upstreams from outside, each against a scripted server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; the lint spares only test functions themselves"
)]

mod anthropic;
mod chat;
mod responses;
