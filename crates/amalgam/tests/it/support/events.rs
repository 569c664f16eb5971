//! Event streams of doors with numbers of their own, read as they arrive: names, numbers and data.
//!
//! Frames of these doors have ids and there may be comments between them, which the strict reader of the canonical door
//! refuses. HTTP is spoken by hand, so that a test can leave in the middle.

use std::{collections::VecDeque, time::Duration};

use amalgam_testkit::{Client, RawConnection};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// How long a test waits for the next bytes. It is no promise: the machine may have other things to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) data: Value,
}

impl Event {
    /// A frame without the empty line behind it; nothing for a comment.
    pub(crate) fn read(frame: &str) -> Option<Self> {
        let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        if frame.lines().all(|line| line.starts_with(':')) {
            return None;
        }
        Some(Self {
            name: field("event").expect("a frame has a name").to_owned(),
            id: field("id").and_then(|id| id.parse().ok()).expect("a frame has a number"),
            data: serde_json::from_str(field("data").expect("a frame has data")).expect("the data is JSON"),
        })
    }
}

/// A stream that is being read. Dropping it closes the connection.
pub(crate) struct Events {
    /// Status line and headers.
    pub(crate) head: String,
    socket: RawConnection,
    /// Bytes of the body that belong to no whole frame yet.
    rest: String,
    ready: VecDeque<Event>,
    /// Bytes on the wire that belong to no whole chunk yet.
    raw: Vec<u8>,
}

impl Events {
    /// Asks and reads the head.
    pub(crate) async fn open(client: &Client, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Self {
        let mut socket = client.connect().await;
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        socket.write_all(request.as_bytes()).await.expect("the server takes the request");
        let mut raw = Vec::new();
        let end = loop {
            if let Some(end) = raw.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            assert!(more(&mut socket, &mut raw).await, "the answer ends in its head");
        };
        let body = raw.split_off(end + 4);
        let head = String::from_utf8_lossy(&raw).into_owned();
        Self { head, socket, rest: String::new(), ready: VecDeque::new(), raw: body }
    }

    /// A header of the answer.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The next frame; nothing after the last one.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if !self.chunk() && !more(&mut self.socket, &mut self.raw).await {
                assert!(self.rest.trim().is_empty(), "the stream ends in the middle of a frame: {}", self.rest);
                return None;
            }
        }
    }

    /// All frames that are left.
    pub(crate) async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// Takes one whole chunk from the wire, if there is one.
    fn chunk(&mut self) -> bool {
        let Some(line) = self.raw.windows(2).position(|window| window == b"\r\n") else { return false };
        let size = String::from_utf8_lossy(&self.raw[..line]).into_owned();
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk begins with its size");
        if self.raw.len() < line + 2 + size + 2 {
            return false;
        }
        let chunk: Vec<u8> = self.raw.drain(..line + 2 + size + 2).skip(line + 2).take(size).collect();
        // The server writes whole frames.
        self.rest.push_str(std::str::from_utf8(&chunk).expect("a chunk holds whole characters"));
        while let Some((frame, rest)) = self.rest.split_once("\n\n") {
            self.ready.extend(Event::read(frame));
            self.rest = rest.to_owned();
        }
        true
    }
}

async fn more(socket: &mut RawConnection, raw: &mut Vec<u8>) -> bool {
    let read = tokio::time::timeout(PATIENCE, socket.read_buf(raw)).await;
    read.expect("the stream goes on").expect("the server ends its answer in order") > 0
}
