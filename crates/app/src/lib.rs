//! What the program does, without HTTP: turns from any wire, idempotency, the tenant assistant, the strict contract.
//!
//! A wire parses its requests, calls this layer, and renders the result. The command line does the same.

mod app;
pub mod assistant;
pub mod chat_completions;
pub mod compaction;
mod current;
pub mod embeddings;
pub mod execute;
pub mod idempotency;
mod ids;
pub mod knowledge;
pub mod model_cards;
mod tenant_configs;
pub mod token_count;
pub mod turns;

pub use app::{Application, Limits};
pub use current::CurrentApplication;
pub use ids::{is_id, no_such_cursor, not_found};
pub use tenant_configs::{ConfigDraft, ReadConfigs, StoredConfig, TenantConfigs};
