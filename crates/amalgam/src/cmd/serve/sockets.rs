//! The listening sockets of `serve`: bound here, or passed by systemd (socket activation).

use std::io;
use std::net::SocketAddr;

use amalgam_server::{AuthenticatedRouter, DrainReport, ListenerConfig, ListeningSocket, ServerTls};
use anyhow::Context as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use super::unix_socket::SocketFile;
use amalgam_configuration::ListenAddress;

/// The send buffer for a client that does not read. The system's default grows to megabytes.
const SEND_BUFFER: u32 = 128 * 1024;

/// The backlog of connections that wait to be accepted.
pub(super) const BACKLOG: u32 = 1024;

/// A listening socket with its address.
pub(super) struct Listener {
    socket: ListeningSocket,
    pub(super) address: ListenAddress,
    encrypted: bool,
    /// Removed with the listener.
    _file: Option<SocketFile>,
}

impl Listener {
    /// Binds an address.
    pub(super) fn bind(address: &ListenAddress, tls: Option<&ServerTls>) -> anyhow::Result<Self> {
        let describe = || format!("listening on {address}");
        match address {
            ListenAddress::Tcp(tcp) => Self::of_tcp(listen(*tcp).with_context(describe)?, tls),
            #[cfg(unix)]
            ListenAddress::Unix(path) => {
                let (listener, file) = SocketFile::bind(path).with_context(describe)?;
                let (socket, address) = (ListeningSocket::Unix(listener), address.clone());
                Ok(Self { socket, address, encrypted: false, _file: Some(file) })
            }
            #[cfg(not(unix))]
            ListenAddress::Unix(_) => anyhow::bail!("this system has no Unix sockets"),
        }
    }

    fn of_tcp(listener: TcpListener, tls: Option<&ServerTls>) -> anyhow::Result<Self> {
        let address = ListenAddress::Tcp(listener.local_addr().context("asking for the bound address")?);
        let socket = match tls {
            Some(tls) => ListeningSocket::Tls(listener, tls.clone()),
            None => ListeningSocket::Tcp(listener),
        };
        Ok(Self { socket, address, encrypted: tls.is_some(), _file: None })
    }

    /// The scheme of its URL.
    pub(super) fn scheme(&self) -> &'static str {
        if self.encrypted { "https" } else { "http" }
    }

    /// The address as standard output and the log show it: `http://127.0.0.1:8080`, `unix:/run/amalgam.sock`.
    pub(super) fn shown(&self) -> String {
        match &self.address {
            ListenAddress::Tcp(address) => format!("{}://{address}", self.scheme()),
            unix @ ListenAddress::Unix(_) => unix.to_string(),
        }
    }

    /// Serves until `stop` becomes true, and drains.
    pub(super) async fn serve(
        self,
        router: AuthenticatedRouter,
        config: ListenerConfig,
        mut stop: watch::Receiver<bool>,
    ) -> DrainReport {
        let shutdown = async move {
            // The sender exists as long as this waits.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        amalgam_server::serve(self.socket, router, config, shutdown).await
    }
}

/// Binds a TCP address; socket options set here apply to every accepted connection.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address.is_ipv4() {
        true => TcpSocket::new_v4(),
        false => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The sockets that a service manager passed: the first is for `listen`, the second for `admin_listen`.
#[derive(Default)]
pub(crate) struct PassedSockets {
    #[cfg(unix)]
    sockets: std::collections::VecDeque<PassedSocket>,
}

#[cfg(unix)]
enum PassedSocket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

#[cfg(unix)]
impl PassedSockets {
    /// Takes the sockets that `LISTEN_FDS` announces, and removes it from the environment: no other thread may run yet.
    pub(super) fn take() -> anyhow::Result<Self> {
        let mut passed = listenfd::ListenFd::from_env();
        let mut sockets = std::collections::VecDeque::new();
        for index in 0..passed.len() {
            let socket =
                match passed.take_tcp_listener(index) {
                    Ok(tcp) => tcp.map(PassedSocket::Tcp),
                    Err(_) => passed.take_unix_listener(index).map(|unix| unix.map(PassedSocket::Unix)).with_context(
                        || format!("socket {index} of LISTEN_FDS is neither a TCP nor a Unix stream socket"),
                    )?,
                };
            sockets.extend(socket);
        }
        Ok(Self { sockets })
    }

    /// The next socket, if one was passed. It must not be reachable by more callers than the configured address: the
    /// configuration decides whether callers need a key.
    pub(super) fn next(
        &mut self,
        key: &str,
        configured: &ListenAddress,
        tls: Option<&ServerTls>,
    ) -> anyhow::Result<Option<Listener>> {
        let Some(passed) = self.sockets.pop_front() else { return Ok(None) };
        let listener = match passed {
            PassedSocket::Tcp(listener) => {
                listener.set_nonblocking(true).context("preparing a passed socket")?;
                Listener::of_tcp(TcpListener::from_std(listener).context("preparing a passed socket")?, tls)?
            }
            PassedSocket::Unix(listener) => {
                let address = listener.local_addr().context("asking for the path of a passed socket")?;
                let path = address.as_pathname().map(Into::into).unwrap_or_default();
                listener.set_nonblocking(true).context("preparing a passed socket")?;
                let listener = tokio::net::UnixListener::from_std(listener).context("preparing a passed socket")?;
                let (socket, address) = (ListeningSocket::Unix(listener), ListenAddress::Unix(path));
                // The service manager owns the file.
                Listener { socket, address, encrypted: false, _file: None }
            }
        };
        if configured.is_local() && !listener.address.is_local() {
            anyhow::bail!(
                "the passed socket listens on {}, which other machines can reach, and `{key}` is {configured}; set `{key}` \
                 to the address of the socket",
                listener.address
            );
        }
        Ok(Some(listener))
    }
}

#[cfg(not(unix))]
impl PassedSockets {
    /// No sockets are passed on this system.
    pub(super) fn take() -> anyhow::Result<Self> {
        Ok(Self::default())
    }

    /// No socket.
    pub(super) fn next(
        &mut self,
        _key: &str,
        _configured: &ListenAddress,
        _tls: Option<&ServerTls>,
    ) -> anyhow::Result<Option<Listener>> {
        Ok(None)
    }
}
