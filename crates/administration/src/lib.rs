//! Administration of tenants and of all that belongs to them, for the HTTP API and the command line.
//!
//! A service checks the rights of its caller, reads and validates what it is given, and returns an object of the API: a serde
//! type that a wire sends as JSON and a command prints as JSON or in a table.

mod access;
pub mod agent_sessions;
pub mod approvals;
pub mod audit;
pub mod configs;
pub mod console;
pub mod conversations;
pub mod courses;
pub mod diagnosis;
mod fields;
pub mod keys;
pub mod knowledge;
pub mod limits;
mod list;
pub mod modes;
pub mod overview;
pub mod prices;
pub mod profiles;
pub mod reload;
mod request;
mod schemas;
pub mod seeding;
pub mod sessions;
pub mod system;
pub mod tenants;
pub mod tool_bank;
pub mod turn_list;
pub mod turns;
pub mod usage;
pub mod webhooks;

use amalgam_app::Application;
use amalgam_core::{Actor, Store};

pub use access::{operator, tenant_number, tenant_scope};
pub use fields::{UnixSeconds, Vocabulary, Word};
pub use list::{List, all_pages};
pub use schemas::schemas;

/// Access to tenants and to what they have in the store.
#[derive(Clone)]
pub struct Administration<'a> {
    /// Persistence.
    pub store: &'a dyn Store,
    /// Milliseconds since 1970.
    pub now_ms: u64,
    /// The actor of changes, for the audit.
    pub actor: Actor,
}

impl<'a> Administration<'a> {
    /// Access for this actor to tenants and to what they have in the store.
    pub fn new(app: &'a Application, actor: Actor) -> Self {
        Self { store: &*app.store, now_ms: app.clock.now_ms(), actor }
    }
}

/// The maximum size of a body with a short object.
pub const SMALL_BODY: usize = 64 * 1024;

/// The maximum size of a body with a prompt: a prompt may be long, and every character escaped.
pub const PROMPT_BODY: usize = 1024 * 1024;
