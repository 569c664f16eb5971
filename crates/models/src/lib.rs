//! Upstreams: everything that answers as a model.

mod anthropic;
mod chat;
mod decode;
mod demo;
mod embeddings;
mod estimate;
mod reasoning_seal;
mod recovery;
mod registry;
mod responses;
mod settings;
mod template;
#[cfg(test)]
mod testing;
mod token_calibration;
mod tokens;
mod transport;

pub use anthropic::Anthropic;
pub use chat::Chat;
pub use demo::Demo;
pub use registry::UpstreamRegistry;
pub use responses::Responses;
pub use settings::{
    Dialect, Key, ReplayReasoning, StructuredOutput, SystemRole, ToolCalls, UpstreamKind, UpstreamSettings,
};
pub use transport::{Proxies, Proxy, reach};
