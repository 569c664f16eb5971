//! HTTP: listener, layers, authentication, wires.

mod app;
mod auth;
mod body;
mod layers;
mod listener;
mod origins;
mod proxies;
mod request_memory;
#[cfg(test)]
mod testing;
mod text_share;
mod wires;

pub use app::{App, ServerParts};
pub use auth::{
    Auth, AuthParts, ConfiguredKey, Issued, JwksPlace, JwtSettings, KeyOrder, Pepper, PepperError, SEALED_MEMORIES,
    is_user, issue, memory_context,
};
pub use body::{BodyLimits, expect_json, read as read_body};
pub use layers::Entrance;
pub use listener::{ConnectionKey, DrainReport, ListenerConfig, Peer, serve};
pub use origins::AllowedOrigins;
pub use proxies::{Network, NotANetwork, TrustedProxies};
pub use request_memory::RequestMemory;
pub use wires::{
    BankScope, ModeListing, Modes, ROUTES, RouteInfo, ToolBank, Trial, TrialError, administration, approval_status,
    decision_outcome, doors, openapi, router, show_approval, show_collection, show_document,
};
