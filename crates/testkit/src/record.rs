//! Records what a test sends and receives, so that two servers can be compared (`scripts/compare-turns.sh`).
//!
//! `AMALGAM_RECORD` names a folder. Each test appends its exchanges to one file there, named after the test: a line of JSON
//! with the sizes, then the bytes that were sent, then the bytes that were received. The bytes are recorded as they are; the
//! script that compares two recordings replaces ids and times.

use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use http::HeaderMap;
use serde_json::{Map, Value, json};

/// The file of this test; `None` if nothing is recorded.
static FILE: LazyLock<Option<Mutex<File>>> = LazyLock::new(open);

/// Numbers exchanges by their beginnings, because they are written when they end; also polls and their attempts.
static COUNTER: AtomicU64 = AtomicU64::new(0);

tokio::task_local! {
    /// The poll that the current exchange belongs to, and the number of the attempt.
    static ATTEMPT: (u64, u64);
}

/// One exchange with a server, written when it is dropped.
#[derive(Debug)]
pub(crate) struct Exchange(Option<Box<Entry>>);

#[derive(Debug)]
struct Entry {
    head: Map<String, Value>,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Exchange {
    /// Begins an exchange of this channel: `client`, `connection` or the number of an upstream.
    pub(crate) fn begin(channel: impl Into<Value>) -> Self {
        let head = |channel| {
            let mut head = Map::new();
            head.insert("channel".to_owned(), channel);
            head.insert("begun".to_owned(), json!(next_number()));
            if let Ok((poll, attempt)) = ATTEMPT.try_with(|attempt| *attempt) {
                head.insert("poll".to_owned(), json!([poll, attempt]));
            }
            head
        };
        let entry = || Entry { head: head(channel.into()), sent: Vec::new(), received: Vec::new() };
        Self(FILE.is_some().then(|| Box::new(entry())))
    }

    /// Adds a fact to the line before the bytes.
    pub(crate) fn note(&mut self, name: &str, value: impl Into<Value>) {
        if let Some(entry) = &mut self.0 {
            entry.head.insert(name.to_owned(), value.into());
        }
    }

    /// Adds bytes of the request.
    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        if let Some(entry) = &mut self.0 {
            entry.sent.extend_from_slice(bytes);
        }
    }

    /// Adds the first line and the headers of the request.
    pub(crate) fn sent_head(&mut self, line: &str, headers: &HeaderMap) {
        if let Some(entry) = &mut self.0 {
            write_head(&mut entry.sent, line, headers);
        }
    }

    /// Adds bytes of the answer.
    pub(crate) fn received(&mut self, bytes: &[u8]) {
        if let Some(entry) = &mut self.0 {
            entry.received.extend_from_slice(bytes);
        }
    }

    /// Adds the first line and the headers of the answer.
    pub(crate) fn received_head(&mut self, line: &str, headers: &HeaderMap) {
        if let Some(entry) = &mut self.0 {
            write_head(&mut entry.received, line, headers);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let (Some(mut entry), Some(file)) = (self.0.take(), &*FILE) else { return };
        entry.head.insert("sent".to_owned(), json!(entry.sent.len()));
        entry.head.insert("received".to_owned(), json!(entry.received.len()));
        let line = Value::Object(entry.head).to_string();
        let bytes = [line.as_bytes(), b"\n", &entry.sent, &entry.received, b"\n"].concat();
        // One write, so that a killed test leaves only whole exchanges.
        file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes).expect("the recording can be written");
    }
}

/// A request that a test repeats until its answer is the expected one. How often it has to depends on the machine, so only
/// the last attempt is compared.
#[derive(Debug)]
pub struct Polling(u64);

impl Polling {
    /// Begins with no attempt.
    #[expect(clippy::new_without_default, reason = "two of them are never the same")]
    pub fn new() -> Self {
        Self(next_number())
    }

    /// Makes one attempt; its exchanges are marked.
    pub async fn attempt<F: Future>(&self, look: F) -> F::Output {
        ATTEMPT.scope((self.0, next_number()), look).await
    }
}

fn next_number() -> u64 {
    COUNTER.fetch_add(1, Ordering::Relaxed)
}

fn write_head(bytes: &mut Vec<u8>, line: &str, headers: &HeaderMap) {
    bytes.extend_from_slice(format!("{line}\r\n").as_bytes());
    for (name, value) in headers {
        bytes.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    bytes.extend_from_slice(b"\r\n");
}

#[expect(clippy::disallowed_methods, reason = "the environment of the test run says whether it is recorded")]
fn open() -> Option<Mutex<File>> {
    let folder = PathBuf::from(std::env::var_os("AMALGAM_RECORD")?);
    // nextest starts a process for each test: `… NAME --exact`.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.iter().find(|argument| !argument.starts_with('-'));
    let Some(name) = name.filter(|_| arguments.iter().any(|argument| argument == "--exact")) else {
        panic!("AMALGAM_RECORD needs a process for each test, as `cargo nextest run` starts them");
    };
    let path = folder.join(name.replace("::", "."));
    match File::options().create(true).append(true).open(&path) {
        Ok(file) => Some(Mutex::new(file)),
        Err(error) => panic!("{} cannot be written: {error}", path.display()),
    }
}
