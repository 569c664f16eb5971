//! The client's bytes on their way to tungstenite, limited in size, memory and time.
//!
//! tungstenite allocates a frame by its declared length and collects a message before it returns it. Neither may depend
//! on the client's declaration alone, so this stream passes a long frame on as fragments and reserves the memory for a
//! fragment before tungstenite sees its head. tungstenite checks everything else about frames: invalid data passes
//! unchanged.

use std::{
    io::{self, Cursor},
    pin::Pin,
    task::{Context, Poll, ready},
};

use amalgam_core::{Fault, FaultKind};
use bytes::{BufMut, Bytes, BytesMut};
use tokio::{
    io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};
use tokio_tungstenite::tungstenite::protocol::frame::{
    FrameHeader,
    coding::{CloseCode, Control, Data, OpCode},
};

use crate::{
    body::{BodyLimits, Pace, too_large, too_much_text},
    request_memory::{RequestMemory, Reservation},
    text_share::TextShare,
};

/// The maximum number of bytes per read from the client.
const READ_BYTES: usize = 4 * 1024;

/// The maximum length of a frame that tungstenite sees.
pub(super) const FRAGMENT_BYTES: usize = 64 * 1024;

/// A stream with limited reads; writes pass through.
pub(super) struct BoundedStream<S> {
    stream: BufReader<S>,
    limits: BodyLimits,
    memory: RequestMemory,
    /// The part of a frame's head that has arrived.
    head: BytesMut,
    /// Bytes that tungstenite reads next: the head of a frame or of a fragment.
    next: Bytes,
    /// The frame whose payload is arriving.
    header: FrameHeader,
    /// Bytes of its payload after the current fragment.
    remaining: u64,
    /// Bytes of the current fragment that have not arrived.
    fragment: usize,
    /// The message that is arriving.
    message: Option<IncomingMessage>,
    /// The minimum speed of the current frame or message.
    pace: Option<Pace>,
    timer: Option<Pin<Box<Sleep>>>,
    received_at: Instant,
}

/// A message that tungstenite has received in part.
struct IncomingMessage {
    /// Bytes received.
    bytes: usize,
    /// The capacity of tungstenite's buffer for joined fragments, which doubles when it is full.
    capacity: usize,
    reservation: Reservation,
    /// Counts its text, unless its length is within the limit for text.
    text: Option<TextShare>,
}

impl<S: AsyncRead + Unpin> BoundedStream<S> {
    pub(super) fn new(stream: S, limits: BodyLimits, memory: &RequestMemory) -> Self {
        Self {
            stream: BufReader::with_capacity(READ_BYTES, stream),
            limits,
            memory: memory.clone(),
            head: BytesMut::new(),
            next: Bytes::new(),
            header: FrameHeader::default(),
            remaining: 0,
            fragment: 0,
            message: None,
            pace: None,
            timer: None,
            received_at: Instant::now(),
        }
    }

    /// When the client last sent something.
    pub(super) fn received_at(&self) -> Instant {
        self.received_at
    }

    /// The memory of the message that tungstenite has returned.
    pub(super) fn take_reservation(&mut self) -> Reservation {
        match self.message.take() {
            Some(message) => message.reservation,
            None => self.memory.reservation(),
        }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream.into_inner()
    }

    /// Waits until bytes are buffered or the client has closed its side, but no longer than a message may take.
    fn poll_buffered(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let has_started = self.message.is_some() || self.fragment > 0 || !self.head.is_empty();
        if !has_started {
            (self.pace, self.timer) = (None, None);
        }
        loop {
            let mut deadline = None;
            if has_started {
                let pace = self.pace.get_or_insert_with(|| Pace::new(self.limits.pause, self.received_at));
                let arrived = self.message.as_ref().map_or(0, |message| message.bytes) + self.head.len();
                deadline = Some(pace.deadline(arrived, Instant::now()).map_err(io::Error::other)?);
            }
            if !self.stream.buffer().is_empty() {
                return Poll::Ready(Ok(()));
            }
            if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_fill_buf(context) {
                self.received_at = Instant::now();
                return Poll::Ready(read.map(|_| ()));
            }
            let Some(deadline) = deadline else { return Poll::Pending };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            // The next iteration decides whether the client was too slow.
            ready!(timer.as_mut().poll(context));
        }
    }

    /// Reads the head of a frame; `false` if the client has closed its side.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            ready!(self.poll_buffered(context))?;
            let Some(&byte) = self.stream.buffer().first() else { return Poll::Ready(Ok(false)) };
            Pin::new(&mut self.stream).consume(1);
            self.head.put_u8(byte);
            match FrameHeader::parse(&mut Cursor::new(&self.head)) {
                Ok(None) => continue,
                Ok(Some((header, length))) => self.begin_frame(header, length)?,
                // tungstenite reports the same error.
                Err(_) => self.next = self.head.split().freeze(),
            }
            return Poll::Ready(Ok(true));
        }
    }

    fn begin_frame(&mut self, header: FrameHeader, length: u64) -> io::Result<()> {
        let head = self.head.split().freeze();
        // tungstenite refuses the others: no extension uses the reserved bits, and a length has 63 bits.
        let is_valid = !(header.rsv1 || header.rsv2 || header.rsv3) && length <= i64::MAX as u64;
        match header.opcode {
            // tungstenite echoes the close code, and a close without one is answered as a normal one.
            OpCode::Control(Control::Close) if length == 0 => {
                let code = u16::from(CloseCode::Normal).to_be_bytes();
                let header = FrameHeader { mask: header.mask.map(|_| [0; 4]), ..header };
                self.next = [head_of(&header, code.len())?, code.to_vec()].concat().into();
            }
            OpCode::Data(Data::Binary) if is_valid => {
                let message = "Binary messages are not supported. Send text.";
                return Err(io::Error::other(Fault::new(FaultKind::UnsupportedMedia, message)));
            }
            OpCode::Data(_) if is_valid => {
                let whole = header.is_final && length <= self.limits.text_bytes as u64;
                let message = self.message.get_or_insert_with(|| IncomingMessage {
                    bytes: 0,
                    capacity: 0,
                    reservation: self.memory.reservation(),
                    text: (!whole).then(TextShare::default),
                });
                if length > self.limits.bytes.saturating_sub(message.bytes) as u64 {
                    return Err(io::Error::other(too_large(self.limits.bytes)));
                }
                (self.header, self.remaining) = (header, length);
                self.begin_fragment()?;
            }
            OpCode::Control(_) | OpCode::Data(_) => {
                (self.header, self.remaining, self.next) = (header, 0, head);
                self.fragment = usize::try_from(length).unwrap_or(usize::MAX);
            }
        }
        Ok(())
    }

    /// Passes the head of the next fragment on, once there is memory for its payload.
    fn begin_fragment(&mut self) -> io::Result<()> {
        let length = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(FRAGMENT_BYTES);
        self.remaining -= length as u64;
        let header = FrameHeader { is_final: self.header.is_final && self.remaining == 0, ..self.header.clone() };
        if let Some(message) = &mut self.message {
            message.reserve(length, header.is_final).map_err(io::Error::other)?;
        }
        self.next = head_of(&header, length)?.into();
        self.header.opcode = OpCode::Data(Data::Continue);
        self.fragment = length;
        Ok(())
    }

    /// Passes on the received part of the fragment.
    fn poll_payload(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_buffered(context))?;
        let length = self.stream.buffer().len().min(self.fragment).min(buffer.remaining());
        let bytes = self.stream.buffer().get(..length).unwrap_or_default();
        buffer.put_slice(bytes);
        if let (Some(message), OpCode::Data(_)) = (&mut self.message, self.header.opcode) {
            if let Some(text) = &mut message.text {
                let mask = self.header.mask.unwrap_or_default();
                let plain = bytes.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
                text.take(&plain.collect::<Vec<_>>());
                if text.bytes() > self.limits.text_bytes {
                    return Poll::Ready(Err(io::Error::other(too_much_text(self.limits.text_bytes))));
                }
            }
            message.bytes += length;
        }
        // The mask is rotated, so that the next byte's mask comes first.
        if let Some(mask) = &mut self.header.mask {
            mask.rotate_left(length % 4);
        }
        self.fragment -= length;
        Pin::new(&mut self.stream).consume(length);
        Poll::Ready(Ok(()))
    }
}

impl IncomingMessage {
    /// Reserves memory for another fragment: its read buffer, and the buffer to which it is appended.
    fn reserve(&mut self, length: usize, is_last: bool) -> Result<(), Fault> {
        let joined = self.bytes > 0 || !is_last;
        if joined && self.bytes + length > self.capacity {
            self.capacity = (self.bytes + length).max(2 * self.capacity);
        }
        self.reservation.expect(self.capacity + length)
    }
}

fn head_of(header: &FrameHeader, length: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    header.format(length as u64, &mut head).map_err(io::Error::other)?;
    Ok(head)
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.next.is_empty() {
                let length = self.next.len().min(buffer.remaining());
                buffer.put_slice(&self.next.split_to(length));
                return Poll::Ready(Ok(()));
            }
            if self.fragment > 0 {
                return self.poll_payload(context, buffer);
            }
            if self.remaining > 0 {
                self.begin_fragment()?;
            } else if !ready!(self.poll_head(context))? {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.stream.get_mut()).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_shutdown(context)
    }
}
