//! The signals of `serve`: stop and reload. Systems without Unix signals have Ctrl-C.

use anyhow::Context as _;

/// The signals that this process listens for.
pub(super) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hang_up: tokio::signal::unix::Signal,
}

/// The request of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessSignal {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

#[cfg(unix)]
impl Signals {
    pub(super) fn new() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("listening for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("listening for SIGINT")?,
            hang_up: signal(SignalKind::hangup()).context("listening for SIGHUP")?,
        })
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            _ = self.terminate.recv() => ProcessSignal::Stop,
            _ = self.interrupt.recv() => ProcessSignal::Stop,
            _ = self.hang_up.recv() => ProcessSignal::Reload,
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {})
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> ProcessSignal {
        if tokio::signal::ctrl_c().await.context("listening for Ctrl-C").is_err() {
            // Without a handler the system ends the process.
            std::future::pending::<()>().await;
        }
        ProcessSignal::Stop
    }
}
