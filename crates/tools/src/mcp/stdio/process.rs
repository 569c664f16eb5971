//! A running process and its pending requests.

use std::{
    collections::HashMap,
    io,
    process::Stdio,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use amalgam_core::ToolError;
use amalgam_protocol::{Json, Raw};
use bytes::Bytes;
use secrecy::ExposeSecret as _;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tracing::{debug, warn};

use super::super::McpProcess;
use super::super::rpc::{self, Failure, Message, broken};
use crate::text;

/// The maximum size of one message.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
/// Messages waiting to be written. When the queue is full, requests wait within their timeout, and replies are dropped.
const MAX_WAITING: usize = 32;
/// How much of a process's standard error is logged.
const MAX_STDERR_LINES: usize = 200;
const MAX_STDERR_LINE_BYTES: usize = 4 * 1024;
const MAX_COMPLAINT_CHARS: usize = 400;
pub(super) const PLAIN_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

type Answer = Result<Json, String>;

/// A process, killed when it is dropped.
pub(super) struct Process {
    out: mpsc::Sender<Bytes>,
    waiting: Arc<PendingAnswers>,
    next_id: AtomicU64,
    /// The tasks that own the process and its streams; aborted with it.
    _tasks: JoinSet<()>,
}

/// Pending requests; `None` once the process is dead.
struct PendingAnswers(Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>);

impl Process {
    pub(super) fn start(settings: &McpProcess, changes: Arc<AtomicU64>) -> io::Result<Self> {
        let mut command = Command::new(&settings.command);
        command.args(&settings.args).env_clear().env("PATH", PLAIN_PATH);
        command.envs(settings.env.iter().map(|(name, value)| (name, value.expose_secret())));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let taken = || io::Error::other("a stream of the process is missing");
        let stdin = child.stdin.take().ok_or_else(taken)?;
        let stdout = child.stdout.take().ok_or_else(taken)?;
        let stderr = child.stderr.take().ok_or_else(taken)?;
        let (out, queue) = mpsc::channel(MAX_WAITING);
        let waiting = Arc::new(PendingAnswers(Mutex::new(Some(HashMap::new()))));
        let mut tasks = JoinSet::new();
        tasks.spawn(write(stdin, queue));
        tasks.spawn(complain(stderr, settings.label.clone()));
        let reader =
            OutputReader { waiting: Arc::clone(&waiting), out: out.clone(), changes, label: settings.label.clone() };
        tasks.spawn(reader.read(child, stdout));
        Ok(Self { out, waiting, next_id: AtomicU64::new(1), _tasks: tasks })
    }

    pub(super) fn is_dead(&self) -> bool {
        self.waiting.calls().is_none()
    }

    pub(super) async fn ask(&self, method: &'static str, params: Raw<'_>) -> Result<Json, Failure> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiting.calls().as_mut().ok_or_else(died)?.insert(id, sender);
        let mut pending = PendingRequest { process: self, id, cancellable: false };
        self.send(rpc::request(id, method, params)).await?;
        // Unsent requests and `initialize` must not be cancelled.
        pending.cancellable = method != "initialize";
        let answer = receiver.await;
        pending.cancellable = false;
        answer.map_err(|_| died())?.map_err(Failure::Refused)
    }

    pub(super) async fn send(&self, message: Bytes) -> Result<(), ToolError> {
        self.out.send(message).await.map_err(|_| died())
    }
}

fn died() -> ToolError {
    broken("the process of the MCP server has ended")
}

impl PendingAnswers {
    fn calls(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Answer>>>> {
        // No change can panic half-way, so a poisoned lock is still consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pending request. Dropping it before the answer arrives notifies the process, if it still reads.
struct PendingRequest<'a> {
    process: &'a Process,
    id: u64,
    cancellable: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if let Some(calls) = self.process.waiting.calls().as_mut() {
            calls.remove(&self.id);
        }
        if self.cancellable {
            let _ = self.process.out.try_send(rpc::cancelled(self.id));
        }
    }
}

/// Writes whole messages only: a request that is dropped half-way must not leave an incomplete line.
async fn write(mut stdin: ChildStdin, mut queue: mpsc::Receiver<Bytes>) {
    while let Some(message) = queue.recv().await {
        let written = async {
            stdin.write_all(&message).await?;
            stdin.write_all(b"\n").await?;
            stdin.flush().await
        };
        if written.await.is_err() {
            return;
        }
    }
}

/// Reads the process's output.
struct OutputReader {
    waiting: Arc<PendingAnswers>,
    out: mpsc::Sender<Bytes>,
    changes: Arc<AtomicU64>,
    label: String,
}

impl OutputReader {
    async fn read(self, mut child: Child, stdout: ChildStdout) {
        let mut reader = BufReader::new(stdout);
        let mut buffer = Vec::new();
        let reason = loop {
            match line(&mut reader, &mut buffer, MAX_MESSAGE_BYTES).await {
                Ok(Line::Whole) => self.on_line(&buffer),
                Ok(Line::End) => break "its output has ended",
                Ok(Line::Overlong) => break "it sent a line that is too long",
                Err(_) => break "its output cannot be read",
            }
        };
        warn!(mcp.server = self.label, "MCP server {} is let go: {reason}", self.label);
        // Fails all pending requests and refuses new ones.
        self.waiting.calls().take();
        let _ = child.kill().await;
    }

    fn on_line(&self, line: &[u8]) {
        // A line that is not a message is ignored: some programs print a greeting.
        let Ok(whole) = Raw::parse(line.trim_ascii()) else { return };
        for message in rpc::messages(whole) {
            match message {
                Message::Answer { id, result } => {
                    let sender = self.waiting.calls().as_mut().and_then(|calls| calls.remove(&id));
                    if let Some(sender) = sender {
                        // The request may have been dropped just now.
                        let _ = sender.send(result.map(Json::from));
                    }
                }
                Message::Request { id, method } => {
                    let _ = self.out.try_send(rpc::reply(id, &method));
                }
                Message::Notification { method } if method == "notifications/tools/list_changed" => {
                    self.changes.fetch_add(1, Ordering::Relaxed);
                }
                Message::Notification { .. } => {}
            }
        }
    }
}

async fn complain(stderr: impl AsyncRead + Unpin, label: String) {
    let mut reader = BufReader::new(stderr);
    let mut buffer = Vec::new();
    let mut left = MAX_STDERR_LINES;
    // Read to its end: a process blocks when its standard error is not read.
    while let Ok(Line::Whole | Line::Overlong) = line(&mut reader, &mut buffer, MAX_STDERR_LINE_BYTES).await {
        if left > 0 {
            left -= 1;
            let words = text::printable(&String::from_utf8_lossy(&buffer), MAX_COMPLAINT_CHARS);
            debug!(mcp.server = label, "MCP server {label} says: {words}");
        }
    }
}

enum Line {
    Whole,
    /// Longer than the limit; the rest is read as the next line.
    Overlong,
    End,
}

async fn line<R: AsyncRead + Unpin>(reader: &mut BufReader<R>, buffer: &mut Vec<u8>, limit: usize) -> io::Result<Line> {
    buffer.clear();
    let read = reader.take(limit as u64).read_until(b'\n', buffer).await?;
    Ok(match buffer.last() {
        None => Line::End,
        Some(b'\n') => Line::Whole,
        Some(_) if read == limit => Line::Overlong,
        // The last line may have no newline.
        Some(_) => Line::Whole,
    })
}
