//! How the server listens: HTTPS with certificates that change, Unix sockets, and what systemd passes and is told.

mod systemd;
mod tls;
mod unix_sockets;
