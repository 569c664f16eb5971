//! The protocol crate from outside.

mod requests;
mod round_trip;
