//! Rules of the strict turn contract (AGN-034): requests, prompt context, modes, results and the response envelope.
//!
//! Pure functions: no waiting, no storage. The application and the wire read requests and write answers with them.

pub mod attachments;
pub mod composition;
pub mod context;
pub mod envelope;
mod fields;
mod fingerprint;
mod inputs;
pub mod modes;
pub mod request;
mod response_reader;
pub mod results;
mod upstream_outcome;
