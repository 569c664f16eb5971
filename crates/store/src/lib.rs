//! Sealing: what leaves our hands and comes back is encrypted and bound to whom it belongs.
//!
//! This crate is also the home of persistence; no storage engine exists in it yet, and nothing is stored.

mod seal;

pub use seal::{KeyError, MasterKey, Sealer};
