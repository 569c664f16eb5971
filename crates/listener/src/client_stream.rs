//! The client's stream, with a write timeout, and with bodies for hyper's own error responses.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::{head_guard::HeadGuard, reply, socket::ClientSocket};

/// A stream that disconnects a client which does not read.
pub struct ClientStream {
    stream: ClientSocket,
    /// Bytes that hyper read and did not use; they are read again first.
    unread: Bytes,
    write_timeout: Duration,
    max_head_bytes: usize,
    /// Runs while a write waits for the client; any progress ends it.
    write_timer: Option<Pin<Box<Sleep>>>,
    reply: Reply,
    heads: HeadGuard,
}

/// Whether hyper's response to an unreadable head is being replaced.
enum Reply {
    None,
    Sending { bytes: Vec<u8>, sent: usize },
    Sent,
}

impl ClientStream {
    pub(super) fn new(stream: ClientSocket, write_timeout: Duration, max_head_bytes: usize) -> Self {
        Self {
            stream,
            unread: Bytes::new(),
            write_timeout,
            max_head_bytes,
            write_timer: None,
            reply: Reply::None,
            heads: HeadGuard::new(),
        }
    }

    /// The stream, with its first bytes put back; they are checked like bytes that hyper reads.
    pub(super) fn beginning_with(mut self, mut bytes: Vec<u8>) -> Self {
        self.heads.check(&mut bytes);
        self.with_unread(bytes.into())
    }

    /// The stream, with bytes that were read too early put back.
    pub(super) fn with_unread(self, unread: Bytes) -> Self {
        Self { unread, ..self }
    }

    /// Whether the client got an error for its request head.
    pub(super) fn refused(&self) -> bool {
        matches!(self.reply, Reply::Sent)
    }

    /// Whether the client leaves written data unread.
    pub(super) fn is_stuck(&self) -> bool {
        self.write_timer.is_some()
    }

    pub(super) fn get_mut(&mut self) -> &mut ClientSocket {
        &mut self.stream
    }

    fn poll_send(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if matches!(self.reply, Reply::None)
            && let Some(refusal) = reply::automatic(slices)
        {
            self.reply = Reply::Sending { bytes: refusal.bytes(self.max_head_bytes), sent: 0 };
        }
        let Reply::Sending { bytes, sent } = &mut self.reply else {
            return Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        };
        while let Some(rest) = bytes.get(*sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => *sent += written,
            }
        }
        self.reply = Reply::Sent;
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    /// The result of a write, or an error if the client leaves it waiting for too long.
    fn poll_in_time<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match result {
            Poll::Ready(result) => {
                self.write_timer = None;
                Poll::Ready(result)
            }
            Poll::Pending => self.poll_write_timeout(context),
        }
    }

    /// Turns a write that has waited too long into an error.
    fn poll_write_timeout<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let write_timeout = self.write_timeout;
        let write_timer = self.write_timer.get_or_insert_with(|| Box::pin(sleep(write_timeout)));
        ready!(write_timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its response")))
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let length = self.unread.len().min(buffer.remaining());
            buffer.put_slice(&self.unread.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.heads.check(buffer.filled_mut().get_mut(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.poll_send(context, slices);
        self.poll_in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    // TLS has a buffer of its own: what was written to it waits for the client here.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.poll_in_time(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.poll_in_time(context, closed)
    }
}
