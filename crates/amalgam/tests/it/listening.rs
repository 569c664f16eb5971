//! How the server listens: HTTPS with certificates that change, Unix sockets, and the protocol with systemd.

mod systemd;
mod tls;
mod unix_sockets;
