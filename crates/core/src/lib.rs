//! What a turn is and what happens next; pure, without clock, network or database.

mod fault;
mod ports;

pub use fault::{Fault, FaultKind};
pub use ports::{BoxFuture, Fetch, Fetched, Seal};
