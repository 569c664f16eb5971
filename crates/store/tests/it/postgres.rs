//! The shared engine: the contract, and what only a server can do.
//!
//! These tests need a server, which `scripts/postgres.sh run` starts; without one they are left out, and say so.

mod bounds;
mod given;
mod limits;
mod opening;
mod outage;
mod processes;
mod proxy;
mod steps;
mod threads;
mod tls;

mod contract {
    use amalgam_core::BoxFuture;

    use super::given::{Fresh, runtime};
    use crate::given::Engine;

    fn run(check: impl FnOnce(Engine) -> BoxFuture<'static, ()>) {
        let database = Fresh::make();
        runtime().block_on(async { check(database.store().await).await });
    }

    contract!(run, ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh");
}
