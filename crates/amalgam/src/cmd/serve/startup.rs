//! Output of `serve` at the start: the first key, and the effective configuration.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;
use tracing::info;

use super::sockets::Listener;
use crate::cmd::console;
use crate::cmd::version::{COMMIT, VERSION};
use crate::tenancy::FirstKey;
use crate::terminal::print_stdout;
use amalgam_configuration::{Config, StoreUrl};

/// The file of the first key in the data folder.
const KEY_FILE: &str = "admin.key";

/// Outputs the first key of a new store: to the terminal, with a link that opens the console at this address, or to a
/// file that only this user can read. Output that is not a terminal is usually collected and stored, and a key must not
/// be stored there.
pub(super) fn hand_over_first_key(config: &Config, first: &FirstKey, address: &str) -> anyhow::Result<()> {
    let FirstKey { issued, console_link } = first;
    if io::stdout().is_terminal() {
        print_stdout(format_args!("admin key (shown once): {}", issued.key.expose_secret()))?;
        if let Some(token) = console_link {
            let link = console::link(address, token);
            print_stdout(format_args!("console (opens once, within 15 minutes): {link}"))?;
        }
        return Ok(());
    }
    let path = config.data.join(KEY_FILE);
    write_private(&path, issued.key.expose_secret())
        .with_context(|| format!("writing the administrator's key to {}", path.display()))?;
    print_stdout(format_args!("admin key written to {}", path.display()))?;
    Ok(())
}

/// Writes a file with mode 600 that replaces an older one only when it is complete.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = path.with_extension("key.new");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&temporary)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

/// Logs version, store, data folder, listeners, upstreams and limits.
pub(super) fn log_configuration(config: &Config, main: &Listener, admin: Option<&Listener>) {
    let store = match &config.store {
        StoreUrl::Sqlite(_) => "sqlite",
        StoreUrl::Postgres(_) => "postgres",
    };
    let commit = COMMIT.unwrap_or("unknown");
    let file = config.file.as_ref().map_or_else(|| "none".to_owned(), |file| file.display().to_string());
    info!(
        version = VERSION,
        commit,
        config = file,
        store,
        store.url = %config.store,
        data = %config.data.display(),
        "amalgam {VERSION} ({commit}), configuration file {file}, store {}, data folder {}",
        config.store,
        config.data.display(),
    );
    let administration = admin.map_or_else(|| main.shown(), Listener::shown);
    info!(
        listen = main.shown(),
        admin = administration,
        "listening on {}, administration on {administration}",
        main.shown()
    );
    log_reloadable(config);
}

/// Logs the upstreams and limits in force, at the start and after a reload.
pub(super) fn log_reloadable(config: &Config) {
    let upstreams = config.upstreams.iter().map(|upstream| match &upstream.remote {
        Some(remote) => format!("{} ({}, {})", upstream.name, upstream.kind.name(), remote.base_url),
        None => format!("{} (demo)", upstream.name),
    });
    let upstreams = upstreams.collect::<Vec<_>>().join(", ");
    info!("upstreams: {upstreams}; {} configured models, {} tenants", config.models.len(), config.tenants.len());
    let limits = &config.limits;
    info!(
        max_in_flight = limits.max_in_flight,
        max_queued = limits.max_queued,
        body_bytes = limits.body_bytes,
        max_connections = config.server.max_connections,
        "limits: {} turns at once, {} queued per tenant, a turn takes at most {:?}, a body {} bytes, {} connections",
        limits.max_in_flight,
        limits.max_queued,
        limits.turn_deadline,
        limits.body_bytes,
        config.server.max_connections,
    );
}
