//! Tool kinds, and the one way out to addresses that callers name.
//!
//! So far only the way out is here.

mod egress;

pub use egress::{Allowed, AllowedError, Egress, EgressConfig, EgressError, Limits, Resolve, SystemResolver};
