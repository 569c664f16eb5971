//! The tools crate from outside.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; the lint spares only test functions themselves"
)]

mod bank;
mod calls;
mod egress;
mod http;
mod mcp_http;
mod mcp_stdio;
mod registry;
mod registry_mcp;
