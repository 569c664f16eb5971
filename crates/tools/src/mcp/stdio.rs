//! MCP over the standard streams of a process that the operator configured: one message a line.
//!
//! The link owns the process: it starts it on first use without our environment, restarts it with growing delays after a
//! crash, and kills it when it is dropped.

mod process;

use std::{
    path::{Path, PathBuf},
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

/// How soon a process that has died may be started again; twice as long every time.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
const MAX_PATIENCE: Duration = Duration::from_secs(60);

/// Where a program is that a server is to be started as, by the `PATH` that it will have.
pub fn find_program(command: &str, path: Option<&str>) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| file.metadata().is_ok_and(|file| file.is_file() && is_executable(&file));
    if command.contains('/') {
        return Some(PathBuf::from(command)).filter(is_program);
    }
    path.unwrap_or(process::PLAIN_PATH).split(':').map(|folder| Path::new(folder).join(command)).find(is_program)
}

fn is_executable(file: &std::fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o111 != 0
}

/// A server in a process.
pub(super) struct StdioLink {
    settings: McpProcess,
    life: Mutex<Life>,
    changes: Arc<AtomicU64>,
}

#[derive(Default)]
struct Life {
    process: Option<Arc<Process>>,
    started_at: Option<Instant>,
    /// How often in a row it was started and did not last.
    deaths: u32,
}

impl StdioLink {
    pub(super) fn new(settings: McpProcess) -> Self {
        Self { settings, life: Mutex::default(), changes: Arc::default() }
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(super) async fn ask(&self, method: &'static str, params: Raw<'_>) -> Result<Json, Failure> {
        self.process().await?.ask(method, params).await
    }

    pub(super) async fn close(&self) {
        *self.life.lock().await = Life::default();
    }

    /// The running process. The first request starts it, and the others wait for that.
    async fn process(&self) -> Result<Arc<Process>, Failure> {
        let mut life = self.life.lock().await;
        if let Some(process) = &life.process
            && !process.is_dead()
        {
            return Ok(Arc::clone(process));
        }
        life.process = None;
        life.allow_start(Instant::now())?;
        // A start that is given up in the middle leaves nothing behind: what it has started is killed with it.
        let process = Process::start(&self.settings, Arc::clone(&self.changes))
            .map_err(|error| broken(format!("could not start `{}`: {error}", self.settings.command)))?;
        let introduction = process.ask("initialize", rpc::introduction().raw()).await?;
        rpc::agreed(introduction.raw())?;
        process.tell(rpc::notice("notifications/initialized", Raw::EMPTY_OBJECT)).await?;
        let process = Arc::new(process);
        life.process = Some(Arc::clone(&process));
        Ok(process)
    }
}

impl Life {
    /// Counts a start, or says that it is too early for one.
    fn allow_start(&mut self, now: Instant) -> Result<(), Failure> {
        if let Some(before) = self.started_at {
            let patience = FIRST_PATIENCE.saturating_mul(1 << self.deaths.min(10)).min(MAX_PATIENCE);
            let lasted = now.saturating_duration_since(before);
            if lasted < patience {
                return Err(broken("the MCP server has died and is not started again yet").into());
            }
            self.deaths = if lasted < MAX_PATIENCE { self.deaths + 1 } else { 0 };
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
        let mut life = Life::default();
        let starts: Vec<_> =
            (0..300).filter(|second| life.allow_start(begin + Duration::from_secs(*second)).is_ok()).collect();
        assert_eq!(starts, [0, 1, 3, 7, 15, 31, 63, 123, 124, 126, 130, 138, 154, 186, 246, 247, 249, 253, 261, 277]);
    }

    #[test]
    fn a_process_that_has_lasted_is_started_again_at_once() {
        let begin = Instant::now();
        let mut life = Life { process: None, started_at: Some(begin), deaths: 5 };
        assert!(life.allow_start(begin + Duration::from_secs(61)).is_ok());
        assert_eq!(life.deaths, 0);
    }
}
