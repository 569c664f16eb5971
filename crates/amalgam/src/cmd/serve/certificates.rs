//! The server's certificate: loaded at the start, and read again when its files change.

use std::time::Duration;

use amalgam_core::Clock as _;
use amalgam_server::{CertificateFiles, ServerTls, TlsError};
use anyhow::Context as _;
use tracing::{info, warn};

use crate::wire_up::SystemClock;
use amalgam_configuration::TlsFiles;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_secs(2);

/// A warning is logged this long before the certificate expires.
const NOTICE: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Reads the certificate of the configuration.
pub(super) fn load(files: &TlsFiles) -> anyhow::Result<ServerTls> {
    let TlsFiles { certificate, key } = files.clone();
    let tls =
        ServerTls::load(CertificateFiles { certificate, key }).context("loading the certificate of [server.tls]")?;
    log_validity(&tls);
    Ok(tls)
}

/// When the certificate of these files is valid, from and until, since 1970. The error says why it cannot be used.
pub(in crate::cmd) fn period(files: &TlsFiles) -> Result<(Duration, Duration), String> {
    let TlsFiles { certificate, key } = files.clone();
    let tls = ServerTls::load(CertificateFiles { certificate, key }).map_err(|error| causes(&error))?;
    let validity = tls.validity();
    Ok((Duration::from_secs(validity.not_before), Duration::from_secs(validity.not_after)))
}

/// Reads the files again, and uses the new certificate for new connections if it is valid.
pub(super) async fn refresh(tls: Option<&ServerTls>) {
    let Some(tls) = tls.cloned() else { return };
    // The file system may be slow.
    let reading = tokio::task::spawn_blocking(move || {
        let refreshed = tls.refresh();
        (tls, refreshed)
    });
    let Ok((tls, refreshed)) = reading.await else { return };
    match refreshed {
        Ok(false) => {}
        Ok(true) => {
            info!("the certificate has changed; new connections use it");
            log_validity(&tls);
        }
        Err(error) => warn!("the new certificate cannot be used, the old one stays in force: {}", causes(&error)),
    }
}

/// Watches the files as long as it is polled.
pub(super) async fn watch(tls: Option<&ServerTls>) {
    if tls.is_none() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(INTERVAL).await;
        refresh(tls).await;
    }
}

fn log_validity(tls: &ServerTls) {
    let (validity, now) = (tls.validity(), SystemClock.now_ms() / 1000);
    match validity.expires {
        expires if now > validity.not_after => {
            warn!(expires, "the certificate of [server.tls] has expired on {expires}")
        }
        expires if now < validity.not_before => {
            warn!(expires, "the certificate of [server.tls] is not valid yet: the clock of this machine may be wrong");
        }
        expires if now + NOTICE.as_secs() > validity.not_after => {
            warn!(expires, "the certificate of [server.tls] expires on {expires}");
        }
        expires => info!(expires, "the certificate of [server.tls] is valid until {expires}"),
    }
}

fn causes(error: &TlsError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
