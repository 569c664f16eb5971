//! Listening sockets and the connections that they accept: TCP, TLS over TCP, and Unix sockets.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::tls::ServerTls;

/// The address of all peers of a Unix socket: they are on this machine, so the rules for loopback callers apply.
#[cfg(unix)]
const UNIX_PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A socket that accepts connections.
#[derive(Debug)]
pub enum ListeningSocket {
    /// TCP without encryption.
    Tcp(TcpListener),
    /// HTTPS.
    Tls(TcpListener, ServerTls),
    /// A Unix socket. Its peers count as callers from 127.0.0.1.
    #[cfg(unix)]
    Unix(UnixListener),
}

impl From<TcpListener> for ListeningSocket {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl ListeningSocket {
    pub(super) async fn accept(&self) -> io::Result<(AcceptedSocket, SocketAddr)> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                (AcceptedSocket::Tcp(stream), peer)
            }
            Self::Tls(listener, tls) => {
                let (stream, peer) = listener.accept().await?;
                (AcceptedSocket::Tls(stream, tls.acceptor()), peer)
            }
            #[cfg(unix)]
            Self::Unix(listener) => (AcceptedSocket::Unix(listener.accept().await?.0), UNIX_PEER),
        })
    }
}

/// An accepted connection before its TLS handshake, if it has one.
pub(super) enum AcceptedSocket {
    Tcp(TcpStream),
    Tls(TcpStream, TlsAcceptor),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl AcceptedSocket {
    /// Completes the TLS handshake. The caller limits its time.
    pub(super) async fn establish(self) -> io::Result<ClientSocket> {
        match self {
            Self::Tcp(stream) => {
                without_delay(&stream);
                Ok(ClientSocket::Tcp(stream))
            }
            Self::Tls(stream, acceptor) => {
                without_delay(&stream);
                // Boxed, so that connections without TLS have small futures.
                Ok(ClientSocket::Tls(Box::new(Box::pin(acceptor.accept(stream)).await?)))
            }
            #[cfg(unix)]
            Self::Unix(stream) => Ok(ClientSocket::Unix(stream)),
        }
    }
}

/// Without this option a stream of small events waits for the client's acknowledgements. Setting it fails only on a closed
/// socket, which the first read reports.
fn without_delay(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
}

/// The byte stream of a connection.
pub(crate) enum ClientSocket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(unix)]
    Unix(UnixStream),
}

macro_rules! each {
    ($socket:expr, $stream:ident => $result:expr) => {
        match $socket {
            ClientSocket::Tcp($stream) => $result,
            ClientSocket::Tls($stream) => $result,
            #[cfg(unix)]
            ClientSocket::Unix($stream) => $result,
        }
    };
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(&mut *self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(&mut *self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(&mut *self, stream => Pin::new(stream).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        each!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut *self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut *self, stream => Pin::new(stream).poll_shutdown(context))
    }
}
