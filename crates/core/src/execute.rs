//! Rules of the strict turn contract (AGN-034): requests, prompt context, modes, results and the response envelope.
//!
//! Nothing here waits or stores; the door reads a request with it, and writes its answer with it.

pub mod attachments;
pub mod context;
pub mod envelope;
mod fields;
pub mod fingerprint;
mod inputs;
pub mod modes;
pub mod request;
mod response_reader;
pub mod results;
mod upstream_outcome;
