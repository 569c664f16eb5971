//! Upstreams: the adapters of model APIs, and the transport to them.

mod anthropic;
mod chat;
mod decode;
mod demo;
mod embeddings;
mod estimate;
mod messages_fields;
mod names;
mod reasoning_seal;
mod recovery;
mod registry;
mod responses;
mod settings;
mod template;
#[cfg(test)]
mod testing;
mod transport;

pub use anthropic::Anthropic;
pub use chat::Chat;
pub use demo::Demo;
pub use names::{ConfiguredModel, DefaultModel, ModelNames, ModelNamesSettings};
pub use responses::Responses;
pub use settings::{
    Dialect, Key, ReplayReasoning, StructuredOutput, SystemRole, ToolCalls, UpstreamKind, UpstreamSettings,
};
pub use transport::{Proxies, Proxy, reach};
