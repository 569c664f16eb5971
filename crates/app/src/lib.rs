//! What the program does, without HTTP: turns from any wire, idempotency, the tenant assistant, the strict contract.
//!
//! A wire reads its requests, hands them to this layer, and renders what comes back. The command line uses it the same way.

mod app;
pub mod assistant;
pub mod compaction;
pub mod execute;
pub mod idempotency;
mod ids;
pub mod knowledge;
mod tenant_configs;
pub mod token_count;
pub mod turns;

pub use app::{Application, Limits};
pub use ids::{is_id, not_found};
pub use tenant_configs::{ConfigDraft, StoredConfig, TenantConfigs};
