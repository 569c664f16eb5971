//! HTTP: listener, layers, authentication, wires.

mod app;
mod auth;
mod body;
mod layers;
mod listener;
mod wires;

pub use app::{App, Limits};
pub use auth::{Auth, Tenant};
pub use body::{BodyLimits, expect_json, read as read_body};
pub use layers::Entrance;
pub use listener::{DrainReport, ListenerConfig, Peer, serve};
pub use wires::{ROUTES, RouteInfo, openapi, router};
