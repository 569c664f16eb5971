//! HTTP: listener, layers, authentication, wires.

mod app;
mod auth;
mod body;
mod layers;
mod metrics;
mod origins;
mod rate_limits;
mod request_log;
mod request_memory;
#[cfg(test)]
mod testing;
mod text_share;
mod wires;

pub use amalgam_listener::{
    CertificateFiles, ConnectionKey, DrainReport, ListenerConfig, ListeningSocket, Peer, RefusalMeter, RefusalReason,
    ServerTls, TlsError, TrustedProxies, Validity, serve,
};
pub use app::{App, CurrentApp, ServerParts};
pub use auth::{Auth, AuthParts, JwtSettings};
pub use body::{BodyLimits, expect_json, read as read_body};
pub use layers::AuthenticatedRouter;
pub use metrics::{BuildInfo, MetricSources, Metrics};
pub use origins::AllowedOrigins;
pub use request_log::{RequestLog, RequestLogSettings};
pub use request_memory::RequestMemory;
pub use wires::{ROUTES, RouteInfo, administration, metrics, metrics_text, openapi, router, without_administration};
