//! HTTP: listener, layers, authentication, wires.

mod body;
mod listener;

pub use body::{BodyLimits, expect_json, read as read_body};
pub use listener::{DrainReport, ListenerConfig, Peer, serve};
