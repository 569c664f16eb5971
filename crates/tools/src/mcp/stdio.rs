//! MCP over the standard streams of a configured process: one message per line.
//!
//! The link owns the process: it starts it on first use without our environment, restarts it with growing delays after
//! a crash, and kills it when it is dropped.

mod process;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use amalgam_protocol::{Json, Raw};
use tokio::{sync::Mutex, time::Instant};

use self::process::Process;
use super::McpProcess;
use super::rpc::{self, Failure, broken};

/// The delay before a dead process is restarted; it doubles every time.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Finds the program of a server, with the `PATH` that the process will have.
pub fn find_program(command: &str, path: Option<&str>) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| file.metadata().is_ok_and(|file| file.is_file() && is_executable(&file));
    if command.contains(std::path::is_separator) {
        return Some(PathBuf::from(command)).filter(is_program);
    }
    std::env::split_paths(path.unwrap_or(process::PLAIN_PATH)).map(|folder| folder.join(command)).find(is_program)
}

#[cfg(unix)]
fn is_executable(file: &std::fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o111 != 0
}

/// Other systems have no such permission: starting the program shows whether it is one.
#[cfg(not(unix))]
fn is_executable(_: &std::fs::Metadata) -> bool {
    true
}

/// A server in a process.
pub(super) struct StdioLink {
    settings: McpProcess,
    lifecycle: Mutex<Lifecycle>,
    changes: Arc<AtomicU64>,
}

#[derive(Default)]
struct Lifecycle {
    process: Option<Arc<Process>>,
    started_at: Option<Instant>,
    /// Starts in a row after which the process died soon.
    early_deaths: u32,
}

impl StdioLink {
    pub(super) fn new(settings: McpProcess) -> Self {
        Self { settings, lifecycle: Mutex::default(), changes: Arc::default() }
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(super) async fn ask(&self, method: &'static str, params: Raw<'_>) -> Result<Json, Failure> {
        self.process().await?.ask(method, params).await
    }

    pub(super) async fn close(&self) {
        *self.lifecycle.lock().await = Lifecycle::default();
    }

    /// The running process. The first request starts it, and the others wait for it.
    async fn process(&self) -> Result<Arc<Process>, Failure> {
        let mut lifecycle = self.lifecycle.lock().await;
        if let Some(process) = &lifecycle.process
            && !process.is_dead()
        {
            return Ok(Arc::clone(process));
        }
        lifecycle.process = None;
        lifecycle.allow_start(Instant::now())?;
        // If this future is dropped during the start, the process is killed with it.
        let process = Process::start(&self.settings, Arc::clone(&self.changes))
            .map_err(|error| broken(format!("could not start `{}`: {error}", self.settings.command)))?;
        let introduction = process.ask("initialize", rpc::initialize_params().raw()).await?;
        rpc::chosen_protocol(introduction.raw())?;
        process.send(rpc::notice("notifications/initialized", Raw::EMPTY_OBJECT)).await?;
        let process = Arc::new(process);
        lifecycle.process = Some(Arc::clone(&process));
        Ok(process)
    }
}

impl Lifecycle {
    /// Counts a start, or refuses it before the delay is over.
    fn allow_start(&mut self, now: Instant) -> Result<(), Failure> {
        if let Some(before) = self.started_at {
            let delay = FIRST_DELAY.saturating_mul(1 << self.early_deaths.min(10)).min(MAX_DELAY);
            let lasted = now.saturating_duration_since(before);
            if lasted < delay {
                return Err(broken("the MCP server has died and is not started again yet").into());
            }
            self.early_deaths = if lasted < MAX_DELAY { self.early_deaths + 1 } else { 0 };
        }
        self.started_at = Some(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_path_or_by_that_of_its_environment() {
        assert!(find_program("sh", None).is_some());
        assert!(find_program("/bin/sh", Some("/nonexistent")).is_some());
        assert_eq!(find_program("sh", Some("/nonexistent:/etc")), None);
        assert_eq!(find_program("/etc/passwd", None), None, "nothing that could be run");
        assert_eq!(find_program("/etc", None), None);
    }

    #[test]
    fn a_process_that_keeps_dying_is_started_less_and_less_often() {
        let begin = Instant::now();
        let mut lifecycle = Lifecycle::default();
        let starts: Vec<_> =
            (0..300).filter(|second| lifecycle.allow_start(begin + Duration::from_secs(*second)).is_ok()).collect();
        assert_eq!(starts, [0, 1, 3, 7, 15, 31, 63, 123, 124, 126, 130, 138, 154, 186, 246, 247, 249, 253, 261, 277]);
    }

    #[test]
    fn a_process_that_has_lasted_is_started_again_at_once() {
        let begin = Instant::now();
        let mut lifecycle = Lifecycle { process: None, started_at: Some(begin), early_deaths: 5 };
        assert!(lifecycle.allow_start(begin + Duration::from_secs(61)).is_ok());
        assert_eq!(lifecycle.early_deaths, 0);
    }
}
