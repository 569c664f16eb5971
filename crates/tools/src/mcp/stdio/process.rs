//! A running process and the requests that wait for it.

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

/// The most that one message may have.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
/// Messages that wait to be written. When it is full, requests wait in their own time, and replies are dropped.
const MAX_WAITING: usize = 32;
/// How much of a process's standard error is logged.
const MAX_COMPLAINTS: usize = 200;
const MAX_COMPLAINT_BYTES: usize = 4 * 1024;
const MAX_COMPLAINT_CHARS: usize = 400;
pub(super) const PLAIN_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

type Answer = Result<Json, String>;

/// Dropping it kills the process.
pub(super) struct Process {
    out: mpsc::Sender<Bytes>,
    waiting: Arc<Waiting>,
    next_id: AtomicU64,
    /// They own the process and its streams, and end with this.
    _tasks: JoinSet<()>,
}

/// Requests without an answer; nothing once the process is dead.
struct Waiting(Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>);

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
        let waiting = Arc::new(Waiting(Mutex::new(Some(HashMap::new()))));
        let mut tasks = JoinSet::new();
        tasks.spawn(write(stdin, queue));
        tasks.spawn(complain(stderr, settings.label.clone()));
        let inbox = Inbox { waiting: Arc::clone(&waiting), out: out.clone(), changes, label: settings.label.clone() };
        tasks.spawn(inbox.read(child, stdout));
        Ok(Self { out, waiting, next_id: AtomicU64::new(1), _tasks: tasks })
    }

    pub(super) fn is_dead(&self) -> bool {
        self.waiting.calls().is_none()
    }

    pub(super) async fn ask(&self, method: &'static str, params: Raw<'_>) -> Result<Json, Failure> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiting.calls().as_mut().ok_or_else(died)?.insert(id, sender);
        let mut interest = Interest { process: self, id, told: false };
        self.tell(rpc::request(id, method, params)).await?;
        // What was never sent, and the introduction, are not to be cancelled.
        interest.told = method != "initialize";
        let answer = receiver.await;
        interest.told = false;
        answer.map_err(|_| died())?.map_err(Failure::Said)
    }

    pub(super) async fn tell(&self, message: Bytes) -> Result<(), ToolError> {
        self.out.send(message).await.map_err(|_| died())
    }
}

fn died() -> ToolError {
    broken("the process of the MCP server has ended")
}

impl Waiting {
    fn calls(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Answer>>>> {
        // Every change is whole before anything could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pending request. Dropping it before the answer arrives notifies the process, if it still reads.
struct Interest<'a> {
    process: &'a Process,
    id: u64,
    told: bool,
}

impl Drop for Interest<'_> {
    fn drop(&mut self) {
        if let Some(calls) = self.process.waiting.calls().as_mut() {
            calls.remove(&self.id);
        }
        if self.told {
            let _ = self.process.out.try_send(rpc::cancelled(self.id));
        }
    }
}

/// Writes whole messages only: a request that is given up in the middle must not leave half a line.
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

/// What comes from the process.
struct Inbox {
    waiting: Arc<Waiting>,
    out: mpsc::Sender<Bytes>,
    changes: Arc<AtomicU64>,
    label: String,
}

impl Inbox {
    async fn read(self, mut child: Child, stdout: ChildStdout) {
        let mut reader = BufReader::new(stdout);
        let mut buffer = Vec::new();
        let reason = loop {
            match line(&mut reader, &mut buffer, MAX_MESSAGE_BYTES).await {
                Ok(Line::Whole) => self.look(&buffer),
                Ok(Line::End) => break "its output has ended",
                Ok(Line::Overlong) => break "it sent a line that is too long",
                Err(_) => break "its output cannot be read",
            }
        };
        warn!(mcp.server = self.label, "MCP server {} is let go: {reason}", self.label);
        // This fails all pending requests, and no new one can start.
        self.waiting.calls().take();
        let _ = child.kill().await;
    }

    fn look(&self, line: &[u8]) {
        // A line that is no message is noise: some programs greet people on their output.
        let Ok(whole) = Raw::parse(line.trim_ascii()) else { return };
        for message in rpc::messages(whole) {
            match message {
                Message::Answer { id, result } => {
                    let sender = self.waiting.calls().as_mut().and_then(|calls| calls.remove(&id));
                    if let Some(sender) = sender {
                        // It may have gone in this moment.
                        let _ = sender.send(result.map(Json::from));
                    }
                }
                Message::Request { id, method } => {
                    let _ = self.out.try_send(rpc::reply(id, &method));
                }
                Message::Notice { method } if method == "notifications/tools/list_changed" => {
                    self.changes.fetch_add(1, Ordering::Relaxed);
                }
                Message::Notice { .. } => {}
            }
        }
    }
}

async fn complain(stderr: impl AsyncRead + Unpin, label: String) {
    let mut reader = BufReader::new(stderr);
    let mut buffer = Vec::new();
    let mut left = MAX_COMPLAINTS;
    // Read to its end in any case: a process blocks when its standard error is not read.
    while let Ok(Line::Whole | Line::Overlong) = line(&mut reader, &mut buffer, MAX_COMPLAINT_BYTES).await {
        if left > 0 {
            left -= 1;
            let words = text::printable(&String::from_utf8_lossy(&buffer), MAX_COMPLAINT_CHARS);
            debug!(mcp.server = label, "MCP server {label} says: {words}");
        }
    }
}

enum Line {
    Whole,
    /// More than the limit; the rest comes as the next one.
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
        // The last one has no end.
        Some(_) => Line::Whole,
    })
}
