//! A TCP connection for tests that write HTTP or WebSocket frames by hand. It is recorded like the exchanges of the client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::record::Exchange;

/// An open connection. Dropping it closes the socket.
#[derive(Debug)]
pub struct RawConnection {
    socket: TcpStream,
    exchange: Exchange,
}

impl RawConnection {
    /// Takes over a connected socket.
    pub fn new(socket: TcpStream) -> Self {
        Self { socket, exchange: Exchange::begin("connection") }
    }

    /// Reads without taking the bytes off the socket.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.peek(buffer).await
    }
}

impl AsyncRead for RawConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (filled, room) = (buffer.filled().len(), buffer.remaining());
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        let new = buffer.filled().get(filled..).unwrap_or_default();
        self.exchange.received(new);
        if new.is_empty() && room > 0 {
            self.exchange.note("whole", true);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RawConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(context, bytes))?;
        self.exchange.sent(bytes.get(..written).unwrap_or_default());
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
