//! Connections that go on in another protocol after one request.
//!
//! hyper hands back socket and buffer once it has written a 101. What follows runs where the connection ran: in the same
//! task, under the same cap, with the same patience for a client that does not read, and until the same drain ends.

use std::{
    fmt,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use amalgam_core::BoxFuture;
use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

use super::socket::Socket;

/// What goes on with a connection.
type Successor = Box<dyn FnOnce(Switched) -> BoxFuture<'static, ()> + Send>;

/// The way to another protocol: among the extensions of a request that asks for one.
#[derive(Clone, Default)]
pub(crate) struct Switch(Arc<Mutex<Option<Successor>>>);

impl Switch {
    /// Says what goes on with the connection once the answer to this request, which has to be a 101, was written.
    pub(crate) fn to<F>(&self, successor: impl FnOnce(Switched) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let successor: Successor = Box::new(|switched| Box::pin(successor(switched)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(successor);
    }

    pub(super) fn take(&self) -> Option<Successor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Switch")
    }
}

/// A connection after its switch.
pub(crate) struct Switched {
    /// Both directions.
    pub(crate) stream: SwitchedStream,
    /// Turns true when the server is about to end.
    pub(crate) draining: watch::Receiver<bool>,
}

/// The client's socket, and what of it was read too early.
pub(crate) struct SwitchedStream {
    early: Bytes,
    socket: Socket,
}

impl SwitchedStream {
    pub(super) fn new(early: Bytes, socket: Socket) -> Self {
        Self { early, socket }
    }
}

impl AsyncRead for SwitchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut self.socket).poll_read(context, buffer);
        }
        let length = self.early.len().min(buffer.remaining());
        buffer.put_slice(self.early.get(..length).unwrap_or_default());
        self.early.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SwitchedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
