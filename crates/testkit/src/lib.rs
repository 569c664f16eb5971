//! Scripted upstream, test client, the real binary as a child process, and checkers for its answers.
//!
//! The server does not link this crate, and this crate does not use the server's reader, writer or types: a checker of
//! the wire must not share its mistakes. A failed check panics with a full sentence.
#![expect(clippy::panic, reason = "a test kit reports by failing the test that uses it")]

mod amalgam;
mod certificates;
mod client;
mod database;
mod front;
mod proxy;
mod raw_connection;
mod record;
mod secure_connection;
mod serving;
mod upstream;

pub mod check;
pub mod spec;
pub mod sse;

pub use amalgam::{Amalgam, Exit, Home, Setup, binary};
pub use certificates::Certificates;
pub use client::{Client, EventStream, HttpAnswer};
pub use database::Database;
pub use front::Front;
pub use proxy::ConnectProxy;
pub use raw_connection::RawConnection;
pub use record::Polling;
pub use secure_connection::{SecureConnection, TlsVersion};
pub use upstream::{Gate, Reply, ReplyEnding, Request, Upstream};
