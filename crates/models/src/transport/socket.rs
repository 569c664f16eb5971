//! The socket under a connection to an upstream, which the system watches only for somebody who waits.
//!
//! A burst reaches us as many small segments, each of which wakes a thread of the runtime that watches its socket, also while
//! whoever reads the stream rests. So the socket is taken out of the runtime's hands for the rest, and read directly afterwards. It
//! is given back as soon as somebody waits for it again. TLS, where there is any, is above.

use std::{
    io::{self, ErrorKind, IoSlice, Read},
    net,
    pin::Pin,
    task::{Context, Poll, ready},
};

use amalgam_core::is_resting;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// So many full reads may follow each other while nobody waits: an upstream that is never silent does not keep the thread.
const READS: u8 = 32;

/// A socket that can be left alone for a while.
pub(super) struct Socket {
    io: Io,
    /// Full reads in a row, or [`READS`] where it is known that nothing is left.
    reads: u8,
}

enum Io {
    /// The runtime wakes whoever waits for it.
    Watched(TcpStream),
    /// Nobody waits for it.
    Left(net::TcpStream),
    /// It could not be handed from one to the other.
    Lost,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { io: Io::Watched(stream), reads: 0 }
    }

    /// Gives it to the runtime. What has arrived meanwhile is announced like anything else.
    fn watch(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if matches!(self.io, Io::Left(_))
            && let Io::Left(stream) = std::mem::replace(&mut self.io, Io::Lost)
        {
            self.io = Io::Watched(TcpStream::from_std(stream)?);
        }
        match &mut self.io {
            Io::Watched(stream) => Ok(Pin::new(stream)),
            Io::Left(_) | Io::Lost => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Takes it back.
    fn leave(&mut self) -> io::Result<()> {
        if matches!(self.io, Io::Watched(_))
            && let Io::Watched(stream) = std::mem::replace(&mut self.io, Io::Lost)
        {
            self.io = Io::Left(stream.into_std()?);
        }
        Ok(())
    }

    /// Reads while the runtime does not watch. Pending means that nothing is there, and nothing more.
    fn look(mut stream: &net::TcpStream, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            match stream.read(buffer.initialize_unfilled()) {
                Ok(length) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let resting = is_resting(context);
        if resting {
            this.leave()?;
            if this.reads >= READS {
                this.reads = 0;
                return Poll::Pending;
            }
        }
        let before = buffer.filled().len();
        let mut read = match &this.io {
            Io::Left(stream) => Self::look(stream, buffer),
            Io::Watched(_) | Io::Lost => Poll::Pending,
        };
        if read.is_pending() {
            this.reads = 0;
            if !resting {
                read = this.watch()?.poll_read(context, buffer);
            }
        }
        ready!(read)?;
        // The next look need not find out what a read that was not full has told.
        this.reads = match buffer.filled().len() > before && buffer.remaining() > 0 {
            true => READS,
            false => this.reads.saturating_add(1),
        };
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.watch()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch()?.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Watched(stream) => Pin::new(stream).poll_flush(context),
            // What is written to a socket is gone.
            Io::Left(_) | Io::Lost => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch()?.poll_shutdown(context)
    }
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
