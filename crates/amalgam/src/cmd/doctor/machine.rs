//! Checks of the machine: clocks, open files, free disk space, proxies and the expiry of certificates.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use amalgam_store::backup::free_bytes;
use amalgam_store_postgres::Postgres;
use http::Uri;
use jiff::Timestamp;
use rustix::process::{Resource, getrlimit};
use secrecy::ExposeSecret as _;

use super::Finding;
use crate::cmd::serve::certificates;
use crate::command_context::now_ms;
use crate::storage;
use amalgam_configuration::{Config, DisplayedValue, Setting, StoreUrl, TlsFiles};

/// 2026-01-01: no version of this program is older.
const EARLIEST_MS: u64 = 1_767_225_600_000;
/// Clocks that differ by more are not synchronised.
const APART_MS: u64 = 2_000;
/// A clock that moved by more than the time that passed was set meanwhile.
const JUMP_MS: u64 = 500;
/// A file with a later time was written by a clock that was ahead, or the clock of this machine is slow.
const FUTURE_MS: u64 = 60_000;
/// Certificates are renewed weeks before they expire.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);
/// With less free space the store may refuse writes within a day.
const LITTLE_SPACE: u64 = 1 << 30;
/// With less free space the store is about to refuse writes.
const NO_SPACE: u64 = 64 << 20;
/// Open files besides connections of callers: the store, logs, listeners, programs of tools, connections to upstreams.
const OTHER_FILES: u64 = 512;

/// Compares the clock with the time that passes while other checks run.
pub(super) struct ClockWatch {
    began_ms: u64,
    began: Instant,
}

impl ClockWatch {
    pub(super) fn start() -> Self {
        Self { began_ms: now_ms(), began: Instant::now() }
    }

    /// The finding about the clock.
    pub(super) async fn finding(self, config: &Config) -> Finding {
        let asked = now_ms();
        let (other_ms, file_ms) = match &config.store {
            StoreUrl::Sqlite(path) => (None, written_ms(path)),
            StoreUrl::Postgres(url) => {
                let clock = Postgres::clock_ms(url.expose_secret(), &storage::options(config.pool)).await;
                (clock.ok().and_then(|at| u64::try_from(at).ok()), None)
            }
        };
        let now = now_ms();
        let passed_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let seen = ClockReadings {
            now_ms: now,
            drift_ms: now.abs_diff(self.began_ms.saturating_add(passed_ms)),
            // The other clock was read during the request; subtracting the request's duration leaves the certain
            // difference.
            apart_ms: other_ms.map(|other| other.abs_diff(asked.midpoint(now)).saturating_sub(now.abs_diff(asked))),
            newest_file_ms: file_ms,
        };
        seen.finding()
    }
}

/// When a file was last written.
fn written_ms(path: &Path) -> Option<u64> {
    let written = path.metadata().ok()?.modified().ok()?;
    u64::try_from(written.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// The measurements of the clock.
struct ClockReadings {
    now_ms: u64,
    drift_ms: u64,
    apart_ms: Option<u64>,
    newest_file_ms: Option<u64>,
}

impl ClockReadings {
    fn finding(&self) -> Finding {
        const CHECK: &str = "clock";
        const HINT: &str = "synchronise the clock, for example with chrony or systemd-timesyncd";
        let now = day_and_time(Duration::from_millis(self.now_ms));
        if self.now_ms < EARLIEST_MS {
            return Finding::fail(CHECK, format!("it says {now}, which is before this program existed"), HINT);
        }
        if let Some(apart) = self.apart_ms.filter(|apart| *apart > APART_MS) {
            return Finding::warn(CHECK, format!("it says {now}, {apart} ms apart from PostgreSQL's clock"), HINT);
        }
        if self.newest_file_ms.is_some_and(|file| file > self.now_ms.saturating_add(FUTURE_MS)) {
            return Finding::warn(CHECK, format!("it says {now}, and the database was written later than that"), HINT);
        }
        if self.drift_ms > JUMP_MS {
            let detail = format!("it moved {} ms more or less than the time that passed", self.drift_ms);
            return Finding::warn(CHECK, detail, HINT);
        }
        match self.apart_ms {
            Some(apart) => Finding::ok(CHECK, format!("{now}, {apart} ms apart from PostgreSQL's clock")),
            None => Finding::ok(CHECK, now),
        }
    }
}

/// Whether as many connections can be open as the configuration allows.
pub(super) fn open_files(config: &Config) -> Finding {
    let wanted = (config.server.max_connections as u64).saturating_add(OTHER_FILES);
    file_limit(getrlimit(Resource::Nofile).current, wanted)
}

fn file_limit(limit: Option<u64>, wanted: u64) -> Finding {
    const CHECK: &str = "open files";
    match limit {
        Some(limit) if limit < wanted => {
            let detail = format!("this user may open {limit} files; server.max_connections needs about {wanted}");
            let hint = "raise the limit ('ulimit -n', LimitNOFILE= of a systemd unit), or lower server.max_connections";
            Finding::warn(CHECK, detail, hint)
        }
        Some(limit) => Finding::ok(CHECK, format!("{limit} are allowed")),
        None => Finding::ok(CHECK, "no limit"),
    }
}

/// Whether the disk of the data folder has enough free space.
pub(super) fn disk_space(folder: &Path) -> Finding {
    const CHECK: &str = "disk space";
    match free_bytes(folder) {
        Ok(free) => space(free, &folder.display().to_string()),
        Err(error) => {
            Finding::warn(CHECK, format!("{}: {error}", folder.display()), "check whether the file system is mounted")
        }
    }
}

fn space(free: u64, folder: &str) -> Finding {
    const CHECK: &str = "disk space";
    const HINT: &str = "make room: on a full disk turns that are to be stored are refused with 503";
    let detail = format!("{} MiB are free at {folder}", free >> 20);
    match free {
        ..NO_SPACE => Finding::fail(CHECK, detail, HINT),
        NO_SPACE..LITTLE_SPACE => Finding::warn(CHECK, detail, HINT),
        _ => Finding::ok(CHECK, detail),
    }
}

/// Which proxy variables are set, and for which upstreams they apply.
pub(super) fn proxies(config: &Config, settings: &[Setting]) -> Finding {
    const CHECK: &str = "proxies";
    let names = ["http_proxy", "https_proxy", "no_proxy"];
    let set: Vec<String> = settings
        .iter()
        .filter(|setting| names.contains(&setting.key.as_str()))
        .filter_map(|setting| match &setting.value {
            DisplayedValue::Value(value) => {
                Some(format!("{}={}", setting.key.to_ascii_uppercase(), value.as_str().unwrap_or_default()))
            }
            DisplayedValue::Unset(_) => None,
        })
        .collect();
    if set.is_empty() {
        return Finding::ok(CHECK, "HTTP_PROXY, HTTPS_PROXY and NO_PROXY are not set");
    }
    let (mut proxied, mut direct, mut local) = (Vec::new(), Vec::new(), Vec::new());
    for upstream in &config.upstreams {
        let Some(remote) = &upstream.remote else { continue };
        match config.proxies.for_upstream(&remote.base_url) {
            Some(_) if is_local(&remote.base_url) => local.push(upstream.name.as_str()),
            Some(_) => proxied.push(upstream.name.as_str()),
            None => direct.push(upstream.name.as_str()),
        }
    }
    let list = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    proxied.extend(&local);
    let detail = format!("{}; through a proxy: {}; directly: {}", set.join(" "), list(&proxied), list(&direct));
    match local.is_empty() {
        true => Finding::ok(CHECK, detail),
        false => {
            let hint = format!("{} is on this machine: name its host in NO_PROXY", list(&local));
            Finding::warn(CHECK, detail, hint)
        }
    }
}

fn is_local(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The finding about the validity of an upstream's certificate, which ends at this time since 1970.
pub(super) fn certificate(upstream: &str, until: Duration) -> Finding {
    let check = format!("certificate of {upstream}");
    let left = until.saturating_sub(Duration::from_millis(now_ms()));
    let detail = format!("valid until {}, {} more days", formatted(until, "%Y-%m-%d"), left.as_secs() / 86_400);
    match left < SOON {
        true => Finding::warn(&check, detail, "have it renewed: calls of this upstream fail once it has expired"),
        false => Finding::ok(&check, detail),
    }
}

/// Whether the certificate of `[server.tls]` can be used with its key, and how long it is valid.
pub(super) fn server_certificate(files: &TlsFiles) -> Finding {
    const CHECK: &str = "certificate of [server.tls]";
    let (from, until) = match certificates::period(files) {
        Ok(period) => period,
        Err(error) => {
            let hint = "the server does not start with these files: correct their paths, rights or contents";
            return Finding::fail(CHECK, error, hint);
        }
    };
    let now = Duration::from_millis(now_ms());
    let left = until.saturating_sub(now);
    let detail = format!("valid until {}, {} more days", formatted(until, "%Y-%m-%d"), left.as_secs() / 86_400);
    if now < from {
        return Finding::fail(CHECK, "it is not valid yet", "check the clock of this machine");
    }
    match left {
        Duration::ZERO => Finding::fail(CHECK, "it has expired", "renew it: callers refuse the server's connections"),
        left if left < SOON => Finding::warn(CHECK, detail, "renew it: callers refuse the server once it has expired"),
        _ => Finding::ok(CHECK, detail),
    }
}

fn day_and_time(at: Duration) -> String {
    formatted(at, "%Y-%m-%d %H:%M:%S UTC")
}

fn formatted(at: Duration, format: &str) -> String {
    let time = i64::try_from(at.as_secs()).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| "an unknown time".to_owned(), |time| time.strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    fn clock(change: impl FnOnce(&mut ClockReadings)) -> (Status, String) {
        let mut seen =
            ClockReadings { now_ms: EARLIEST_MS + 1, drift_ms: 3, apart_ms: None, newest_file_ms: Some(EARLIEST_MS) };
        change(&mut seen);
        let finding = seen.finding();
        (finding.status, finding.detail)
    }

    #[test]
    fn a_clock_is_compared_with_the_servers_with_files_and_with_the_time_that_passes() {
        assert_eq!(clock(|_| ()), (Status::Ok, "2026-01-01 00:00:00 UTC".to_owned()));
        assert_eq!(clock(|seen| seen.now_ms = 1_000).0, Status::Fail);
        assert_eq!(clock(|seen| seen.drift_ms = 3_600_000).0, Status::Warn);
        assert_eq!(clock(|seen| seen.newest_file_ms = Some(EARLIEST_MS + 3_600_000)).0, Status::Warn);
        assert_eq!(clock(|seen| seen.apart_ms = Some(40)).0, Status::Ok);
        let (status, detail) = clock(|seen| seen.apart_ms = Some(90_000));
        assert!(status == Status::Warn && detail.contains("90000 ms apart from PostgreSQL"), "{detail}");
    }

    #[test]
    fn limits_of_files_and_disks_are_told_by_their_size() {
        assert_eq!(file_limit(Some(1024), 10_512).status, Status::Warn);
        assert_eq!(file_limit(Some(65_536), 10_512).status, Status::Ok);
        assert_eq!(file_limit(None, 10_512).status, Status::Ok);
        assert_eq!(space(10 << 20, "x").status, Status::Fail);
        assert_eq!(space(500 << 20, "x").status, Status::Warn);
        assert_eq!(space(5 << 30, "x").status, Status::Ok);
    }

    #[test]
    fn a_certificate_that_expires_within_two_weeks_is_a_warning() {
        let status = |left| certificate("x", Duration::from_millis(now_ms()) + left).status;
        assert_eq!((status(SOON / 2), status(SOON * 2)), (Status::Warn, Status::Ok));
    }

    #[test]
    fn hosts_of_this_machine_are_known() {
        for local in ["http://localhost:1/v1", "http://127.0.0.1/", "http://[::1]:8/"] {
            assert!(is_local(local), "{local}");
        }
        assert!(!is_local("https://example.com") && !is_local("no address"));
    }
}
