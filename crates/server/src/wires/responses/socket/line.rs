//! A WebSocket connection as messages: bounded in size and in the time that one may take to arrive.
//!
//! Listening may be given up at any point and taken up again; speaking may not, so that no frame is ever cut.

use std::{io, time::Duration};

use amalgam_core::Fault;
use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, timeout, timeout_at},
};

use super::frame::{Head, Opcode, Wrong, close_code, code, unmask, write_head};
use crate::{
    body::{BodyLimits, Collected, Pace, too_large},
    request_memory::RequestMemory,
};

/// Bytes that are read at once; more while a long message comes in.
const READ_BYTES: usize = 4 * 1024;
const READ_MORE: usize = 64 * 1024;

/// Room that is kept between two messages.
const KEPT_BYTES: usize = 16 * 1024;

/// How long the client may take to answer a close, and what of its messages is thrown away meanwhile.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 16 * 1024 * 1024;

/// Something that the client said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A whole message, valid UTF-8.
    Text(Bytes),
    /// A message that is not text has begun.
    Binary,
    /// Wants the same back.
    Ping(Bytes),
    /// Lives.
    Pong,
    /// Says farewell, with a code or without.
    Close(Option<u16>),
}

/// Why nothing more can be heard.
#[derive(Debug, thiserror::Error)]
pub(super) enum Deaf {
    /// The client left without a word.
    #[error("the client is gone")]
    Gone,
    /// It does not speak the protocol.
    #[error("the client broke the protocol: {0}")]
    Wrong(Wrong),
    /// Text that is none.
    #[error("a message is not UTF-8")]
    NotText,
    /// A message that is too large, comes too slowly, or finds no memory.
    #[error("a message was refused: {0}")]
    Refused(Fault),
}

/// One connection.
pub(super) struct Line<S> {
    stream: S,
    limits: BodyLimits,
    memory: RequestMemory,
    /// What was read and not understood yet.
    read: BytesMut,
    /// The frame whose payload is coming in.
    frame: Option<Frame>,
    /// The message so far.
    message: Option<Collected>,
    /// How fast the message or frame has to come that is not whole yet.
    pace: Option<Pace>,
    /// When something was heard last, whatever it was.
    heard_at: Instant,
    /// When the client was pinged last.
    pinged_at: Option<Instant>,
    /// What will be written next.
    write: Vec<u8>,
}

/// A frame on its way in.
struct Frame {
    head: Head,
    /// Bytes of its payload that have come.
    come: usize,
    /// The payload of a control frame; that of others goes to the message.
    control: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    pub(super) fn new(stream: S, limits: BodyLimits, memory: &RequestMemory) -> Self {
        Self {
            stream,
            limits,
            memory: memory.clone(),
            read: BytesMut::new(),
            frame: None,
            message: None,
            pace: None,
            heard_at: Instant::now(),
            pinged_at: None,
            write: Vec::new(),
        }
    }

    /// When something was heard last.
    pub(super) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// When the client was pinged last.
    pub(super) fn pinged_at(&self) -> Option<Instant> {
        self.pinged_at
    }

    /// The next thing that the client says. Nothing is lost when this is dropped.
    pub(super) async fn hear(&mut self) -> Result<Heard, Deaf> {
        loop {
            if let Some(heard) = self.understand()? {
                return Ok(heard);
            }
            let wanted = self.frame.as_ref().map_or(0, Frame::missing).clamp(READ_BYTES, READ_MORE);
            self.read.reserve(wanted);
            // What was read and not taken yet has come, too.
            let come = self.message.as_ref().map_or(0, Collected::len) + self.read.len();
            let deadline = self.pace.as_mut().map(|pace| pace.deadline(come, Instant::now())).transpose();
            let deadline = deadline.map_err(Deaf::Refused)?;
            let read = self.stream.read_buf(&mut self.read);
            let read = match deadline {
                None => read.await,
                Some(deadline) => match timeout_at(deadline, read).await {
                    Ok(read) => read,
                    // Whether that was too slow is for the next round to say.
                    Err(_) => continue,
                },
            };
            match read {
                Ok(0) | Err(_) => return Err(Deaf::Gone),
                Ok(_) => self.heard_at = Instant::now(),
            }
        }
    }

    /// Takes what it can from the bytes that were read.
    fn understand(&mut self) -> Result<Option<Heard>, Deaf> {
        let heard = self.frames();
        // A message, or a frame, that has begun and is not whole may not take for ever.
        match self.read.is_empty() && self.frame.is_none() && self.message.is_none() {
            true => self.pace = None,
            false => _ = self.pace.get_or_insert_with(|| Pace::new(self.limits.pause, self.heard_at)),
        }
        heard
    }

    fn frames(&mut self) -> Result<Option<Heard>, Deaf> {
        loop {
            let Some(frame) = &mut self.frame else {
                let head = Head::read(&self.read).map_err(Deaf::Wrong)?;
                let Some((head, size)) = head else { return Ok(None) };
                let _ = self.read.split_to(size);
                if let Some(heard) = self.begin(head)? {
                    return Ok(Some(heard));
                }
                continue;
            };
            let mut piece = self.read.split_to(self.read.len().min(frame.missing()));
            unmask(&mut piece, frame.head.mask, frame.come);
            frame.come += piece.len();
            match (&mut self.message, frame.head.opcode.is_control()) {
                (Some(message), false) => message.push(piece.freeze()).map_err(Deaf::Refused)?,
                // Only control frames come outside of a message.
                (_, _) => frame.control.unsplit(piece),
            }
            if frame.missing() > 0 {
                return Ok(None);
            }
            if let Some(frame) = self.frame.take()
                && let Some(heard) = self.end(frame)?
            {
                return Ok(Some(heard));
            }
        }
    }

    /// A frame begins: whether it may is known from its head.
    fn begin(&mut self, head: Head) -> Result<Option<Heard>, Deaf> {
        match (head.opcode, &self.message) {
            (Opcode::Binary, _) => return Ok(Some(Heard::Binary)),
            (Opcode::Text, Some(_)) => return Err(Deaf::Wrong("a message begins inside another one")),
            (Opcode::Continuation, None) => return Err(Deaf::Wrong("nothing is continued")),
            (Opcode::Text, None) => {
                let length = usize::try_from(head.length).unwrap_or(usize::MAX);
                self.message = Some(Collected::new(self.limits, &self.memory, length));
            }
            (Opcode::Continuation, Some(_)) | (Opcode::Ping | Opcode::Pong | Opcode::Close, _) => {}
        }
        let come = self.message.as_ref().map_or(0, Collected::len);
        if !head.opcode.is_control() && head.length > (self.limits.bytes - come) as u64 {
            return Err(Deaf::Refused(too_large(self.limits.bytes)));
        }
        self.frame = Some(Frame { head, come: 0, control: BytesMut::new() });
        Ok(None)
    }

    /// A frame is whole.
    fn end(&mut self, frame: Frame) -> Result<Option<Heard>, Deaf> {
        if frame.head.last && !(frame.head.opcode.is_control() && self.message.is_some()) {
            // What follows has its own time.
            self.pace = None;
        }
        Ok(match frame.head.opcode {
            Opcode::Ping => Some(Heard::Ping(frame.control.freeze())),
            Opcode::Pong => Some(Heard::Pong),
            Opcode::Close => Some(Heard::Close(close_code(&frame.control).map_err(Deaf::Wrong)?)),
            Opcode::Text | Opcode::Binary | Opcode::Continuation if !frame.head.last => None,
            Opcode::Text | Opcode::Binary | Opcode::Continuation => match self.message.take() {
                Some(message) => Some(text(message.into_bytes())?),
                None => Some(Heard::Text(Bytes::new())),
            },
        })
    }

    /// Adds a text to what will be written, from pieces that follow one another.
    pub(super) fn say(&mut self, pieces: &[&[u8]]) {
        write_head(&mut self.write, Opcode::Text, pieces.iter().map(|piece| piece.len()).sum());
        pieces.iter().for_each(|piece| self.write.extend_from_slice(piece));
    }

    /// Writes what was said. Comes back when the system has taken it: a client that does not read makes its caller wait,
    /// until the socket's own patience is over. Has to be awaited to its end.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.write).await?;
        self.write.clear();
        self.write.shrink_to(KEPT_BYTES);
        self.stream.flush().await
    }

    /// Answers a ping. Has to be awaited to its end.
    pub(super) async fn pong(&mut self, payload: &[u8]) -> io::Result<()> {
        self.control(Opcode::Pong, payload).await
    }

    /// Asks for a sign of life. Has to be awaited to its end.
    pub(super) async fn ping(&mut self) -> io::Result<()> {
        self.pinged_at = Some(Instant::now());
        self.control(Opcode::Ping, b"").await
    }

    async fn control(&mut self, opcode: Opcode, payload: &[u8]) -> io::Result<()> {
        write_head(&mut self.write, opcode, payload.len());
        self.write.extend_from_slice(payload);
        self.flush().await
    }

    /// Says farewell and waits a moment for the answer: a socket that is closed with bytes unread takes what it has sent
    /// last with it. `reason` has at most 123 bytes.
    pub(super) async fn close(mut self, code: u16, reason: &str) {
        let payload = [&code.to_be_bytes(), reason.as_bytes()].concat();
        if self.control(Opcode::Close, &payload).await.is_ok() {
            let _ = timeout(LINGER, self.linger()).await;
        }
    }

    async fn linger(&mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let mut total = 0;
        while total < LINGER_BYTES {
            self.read.clear();
            self.read.reserve(READ_BYTES);
            match self.stream.read_buf(&mut self.read).await? {
                0 => break,
                read => total += read,
            }
        }
        Ok(())
    }

    /// Answers the client's own farewell.
    pub(super) async fn close_too(mut self, said: Option<u16>) {
        let payload = said.unwrap_or(code::NORMAL).to_be_bytes();
        if self.control(Opcode::Close, &payload).await.is_ok() {
            let _ = self.stream.shutdown().await;
        }
    }
}

impl Frame {
    /// Bytes of its payload that have not come.
    fn missing(&self) -> usize {
        usize::try_from(self.head.length).unwrap_or(usize::MAX) - self.come
    }
}

/// A whole message.
fn text(message: Bytes) -> Result<Heard, Deaf> {
    match std::str::from_utf8(&message) {
        Ok(_) => Ok(Heard::Text(message)),
        Err(_) => Err(Deaf::NotText),
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
