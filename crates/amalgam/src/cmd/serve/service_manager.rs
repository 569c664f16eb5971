//! Messages to systemd (`sd_notify`): ready, reloading, stopping, alive. Without `NOTIFY_SOCKET` they do nothing.

use std::time::Duration;

use tracing::warn;

/// The states of the service.
#[derive(Debug, Clone, Copy)]
pub(super) enum ServiceState {
    /// Requests are accepted.
    Ready,
    /// The configuration is read again; `Ready` follows.
    Reloading,
    /// No new requests are accepted.
    Stopping,
}

/// Notifies systemd of the state of the service. A failure is logged: the service works without it.
pub(super) fn notify(state: ServiceState) {
    #[cfg(unix)]
    {
        use sd_notify::NotifyState;
        let sent = match state {
            ServiceState::Ready => sd_notify::notify(&[NotifyState::Ready]),
            // `Type=notify-reload` compares the time with that of its request.
            ServiceState::Reloading => match NotifyState::monotonic_usec_now() {
                Ok(now) => sd_notify::notify(&[NotifyState::Reloading, now]),
                Err(_) => sd_notify::notify(&[NotifyState::Reloading]),
            },
            ServiceState::Stopping => sd_notify::notify(&[NotifyState::Stopping]),
        };
        if let Err(error) = sent {
            warn!("systemd could not be told that the service is {state:?}: {error}");
        }
    }
    #[cfg(not(unix))]
    let _ = state;
}

/// Notifies the watchdog twice per interval, if systemd has one. Stops with the runtime that polls it, so that systemd
/// restarts a process that hangs.
pub(super) async fn feed_watchdog() {
    #[cfg(unix)]
    if let Some(interval) = sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero()) {
        let mut ticks = tokio::time::interval((interval / 2).max(Duration::from_millis(1)));
        loop {
            ticks.tick().await;
            if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]) {
                warn!("systemd could not be told that the service is alive: {error}");
            }
        }
    }
    std::future::pending().await
}
