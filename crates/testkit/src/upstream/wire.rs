//! HTTP/1.1 by hand: reads requests from a socket and sends the scripted replies.
//!
//! A library would prevent errors; here a body may be cut, split inside a character or never end. While a script runs,
//! the socket is also read, so that a disconnect is noticed at once.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::reply::{Framing, Opening, Reply, Step};
use super::{ReplyEnding, Request};

/// The reading half of a connection, with the received bytes that were not consumed yet.
pub(super) struct Incoming {
    socket: OwnedReadHalf,
    buffer: BytesMut,
}

impl Incoming {
    pub(super) fn new(socket: OwnedReadHalf) -> Self {
        Self { socket, buffer: BytesMut::new() }
    }

    /// The next request, or `None` when the peer closed the connection between two.
    pub(super) async fn request(&mut self) -> io::Result<Option<Request>> {
        let head_end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end;
            }
            if self.more().await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(malformed("a request head was cut")) };
            }
        };
        let head = self.buffer.split_to(head_end + 4);
        let head = std::str::from_utf8(&head).map_err(|_| malformed("a request head is not text"))?;
        let (method, path, headers) = parse_head(head)?;
        let body = self.body(&headers).await?;
        Ok(Some(Request { method, path, headers, body }))
    }

    /// Returns when the peer closes; bytes that it sends meanwhile are kept for the next request.
    pub(super) async fn closed(&mut self) {
        while let Ok(1..) = self.more().await {}
    }

    async fn body(&mut self, headers: &HeaderMap) -> io::Result<Bytes> {
        let header = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        if header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            return self.chunked_body().await;
        }
        match header("content-length") {
            Some(length) => {
                let length = length.parse().map_err(|_| malformed("content-length is not a number"))?;
                self.exactly(length).await
            }
            None => Ok(Bytes::new()),
        }
    }

    async fn chunked_body(&mut self) -> io::Result<Bytes> {
        let mut body = BytesMut::new();
        loop {
            let line_end = loop {
                if let Some(end) = find(&self.buffer, b"\r\n") {
                    break end;
                }
                if self.more().await? == 0 {
                    return Err(malformed("a chunked request body was cut"));
                }
            };
            let line = self.buffer.split_to(line_end + 2);
            let size = std::str::from_utf8(&line).ok().and_then(|line| usize::from_str_radix(line.trim(), 16).ok());
            let size = size.ok_or_else(|| malformed("a chunk size is not a number"))?;
            body.extend_from_slice(&self.exactly(size).await?);
            self.exactly(2).await?;
            if size == 0 {
                return Ok(body.freeze());
            }
        }
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Bytes> {
        while self.buffer.len() < length {
            if self.more().await? == 0 {
                return Err(malformed("a request body was cut"));
            }
        }
        Ok(self.buffer.split_to(length).freeze())
    }

    async fn more(&mut self) -> io::Result<usize> {
        self.socket.read_buf(&mut self.buffer).await
    }
}

/// Plays a reply. `ReplyEnding::PeerLeft` here means that a write failed.
pub(super) async fn play(reply: &Reply, socket: &mut OwnedWriteHalf) -> ReplyEnding {
    match try_play(reply, socket).await {
        Ok(ending) => ending,
        Err(_) => ReplyEnding::PeerLeft,
    }
}

async fn try_play(reply: &Reply, socket: &mut OwnedWriteHalf) -> io::Result<ReplyEnding> {
    tokio::time::sleep(reply.delay).await;
    if let Some(gate) = &reply.gate {
        gate.wait().await;
    }
    let sends = reply.rendered();
    // A script that cuts a body with a length still declares its full length.
    socket.write_all(&head(reply, sends.iter().map(Bytes::len).sum())).await?;
    let mut sends = sends.into_iter();
    for step in &reply.steps {
        match step {
            Step::Send(_) => {
                let bytes = sends.next().expect("every send was rendered");
                send(reply, bytes, socket).await?;
            }
            Step::Stall(pause) => tokio::time::sleep(*pause).await,
            Step::Hold(gate) => gate.wait().await,
            Step::Cut => return Ok(ReplyEnding::Cut),
            Step::Reset => {
                socket.as_ref().set_zero_linger()?;
                return Ok(ReplyEnding::Cut);
            }
            Step::Hang => std::future::pending().await,
        }
    }
    match reply.framing {
        Framing::Chunked => {
            socket.write_all(b"0\r\n\r\n").await?;
            Ok(ReplyEnding::Finished)
        }
        Framing::Length => Ok(ReplyEnding::Finished),
        Framing::UntilClose => {
            socket.shutdown().await?;
            Ok(ReplyEnding::Finished)
        }
    }
}

fn head(reply: &Reply, length: usize) -> Vec<u8> {
    let Opening::Head { status, headers } = &reply.opening else { return Vec::new() };
    let mut head = format!("HTTP/1.1 {status} Scripted\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match reply.framing {
        Framing::Chunked => head.push_str("transfer-encoding: chunked\r\n"),
        Framing::Length => head.push_str(&format!("content-length: {length}\r\n")),
        Framing::UntilClose => head.push_str("connection: close\r\n"),
    }
    head.push_str("\r\n");
    head.into_bytes()
}

async fn send(reply: &Reply, mut bytes: Bytes, socket: &mut OwnedWriteHalf) -> io::Result<()> {
    while bytes.has_remaining() {
        let piece = bytes.split_to(reply.split.unwrap_or(usize::MAX).min(bytes.len()));
        match reply.framing {
            Framing::Chunked => {
                let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
                chunk.extend_from_slice(&piece);
                chunk.extend_from_slice(b"\r\n");
                socket.write_all(&chunk).await?;
            }
            Framing::Length | Framing::UntilClose => socket.write_all(&piece).await?,
        }
        // Yields to the other connections and to the task that detects a disconnect, between two pieces.
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn parse_head(head: &str) -> io::Result<(String, String, HeaderMap)> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(path), Some("HTTP/1.1")) = (words.next(), words.next(), words.next()) else {
        return Err(malformed("the request line is not `METHOD PATH HTTP/1.1`"));
    };
    let mut headers = HeaderMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(|| malformed("a header has no colon"))?;
        let name = HeaderName::try_from(name).map_err(|_| malformed("a header name is not a name"))?;
        let value = HeaderValue::try_from(value.trim()).map_err(|_| malformed("a header value is not text"))?;
        headers.append(name, value);
    }
    Ok((method.to_owned(), path.to_owned(), headers))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
