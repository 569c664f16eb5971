//! The Amalgam server.
fn main() {}
