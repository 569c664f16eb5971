//! Persistence: the engines that keep what callers have, and the sealing of what leaves our hands and comes back.
//!
//! Every engine implements `amalgam_core::Store` and passes the same checks. A new one is a module here, a folder of
//! migrations, and a module of `tests/it`.

mod assistant;
mod bank;
mod execute;
mod knowledge;
pub mod migrate;
mod notifications;
mod pending_release;
pub mod postgres;
mod rows;
mod seal;
pub mod sqlite;

pub use seal::{KeyError, KeyId, KeyRing, MasterKey, Sealer};
