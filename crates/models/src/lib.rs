//! Upstreams: everything that answers as a model.

mod decode;
mod settings;
mod transport;

pub use settings::{Dialect, Key, SystemRole, ToolCalls, UpstreamKind, UpstreamSettings};
