//! Persistence: the store over any SQL engine, and the sealing of values that clients return later.
//!
//! [`SqlStore`] implements `amalgam_core::Store`. The rules and the row formats are here, once; an engine
//! (`amalgam-store-sqlite`, `amalgam-store-postgres`) supplies connections, its statements, and the writes and reads of
//! turns. The contract tests in `tests/it` run on every engine.

mod agents;
mod approvals;
mod audit;
pub mod backup;
pub mod bank;
mod catalogue;
mod console;
mod conversations;
pub mod courses;
mod engine;
mod execute;
pub mod files;
mod knowledge;
pub mod limits;
pub mod migrate;
mod modes;
pub mod notifications;
mod pending_release;
pub mod private_files;
mod response_settings;
pub mod rows;
mod seal;
pub mod session_queue;
mod sessions;
pub mod sql;
mod statements;
mod steps;
mod store;
mod tenancy;
mod tenant_cache;
mod threads;
pub mod transfer;
mod turn_details;
pub mod turn_list;
mod values;
mod webhooks;

pub use engine::{EngineQueries, Query, Repeat, RowReader, SqlConnection, SqlEngine, TenantKey, Work};
pub use knowledge::{IndexSyntax, Question};
pub use seal::{KeyError, KeyId, KeyRing, MasterKey, Sealer};
pub use statements::SqlStatements;
pub use store::SqlStore;
pub use values::{FromColumn, SqlRow, SqlValue};
