//! HTTP requests of commands to a running server: over TCP, TLS or a Unix socket, one connection each.

mod tls;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    task::JoinSet,
    time::timeout,
};

use tls::Trust;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest silence of a server; it shows that it is alive more often than that.
pub(crate) const SILENCE: Duration = Duration::from_secs(120);

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerAddress {
    /// Host and port as they stand in the address.
    authority: String,
    /// Where to connect to.
    target: Target,
    /// What the paths of the server begin with.
    pub(crate) prefix: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Tcp { host: String, port: u16, tls: Option<Trust> },
    Unix(PathBuf),
}

impl ServerAddress {
    /// Reads the address of a server: `http://…`, `https://…` or `unix:PATH`.
    pub(crate) fn read(url: &str) -> anyhow::Result<Self> {
        if let Some(path) = url.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            let target = Target::Unix(path.into());
            return Ok(Self { authority: "localhost".to_owned(), target, prefix: String::new() });
        }
        let uri: Uri = url.parse().with_context(|| format!("'{url}' is not an address"))?;
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => (Some(Trust::Authorities), 443),
            _ => bail!("'{url}' is not an address such as http://127.0.0.1:8080"),
        };
        let authority = uri.authority().context("an address has a host")?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self {
            target: Target::Tcp { host, port: authority.port_u16().unwrap_or(port), tls },
            authority: authority.as_str().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// The same server, if it shows exactly the certificate in this file. Has no effect without TLS.
    pub(crate) fn with_certificate(mut self, certificate: &Path) -> Self {
        if let Target::Tcp { tls: Some(trust), .. } = &mut self.target {
            *trust = Trust::Certificate(certificate.to_owned());
        }
        self
    }

    async fn connect(&self) -> anyhow::Result<Box<dyn Connection>> {
        match &self.target {
            Target::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Target::Tcp { host, port, tls } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                match tls {
                    None => Ok(Box::new(stream)),
                    Some(trust) => Ok(Box::new(tls::connect(stream, host, trust).await?)),
                }
            }
        }
    }

    /// The address in messages.
    fn shown(&self) -> String {
        match &self.target {
            Target::Unix(path) => path.display().to_string(),
            Target::Tcp { .. } => self.authority.clone(),
        }
    }
}

trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Reads something from the server: its status, and the JSON that it gave, if it was any.
pub(crate) async fn get(
    place: &ServerAddress,
    key: Option<&str>,
    user: Option<&str>,
    path: &str,
) -> anyhow::Result<(StatusCode, Value)> {
    let request = Request::get(format!("{}{path}", place.prefix)).header(header::ACCEPT, "application/json");
    let (response, _connection) = send(place, key, user, request, Bytes::new()).await?;
    let (head, body) = response.into_parts();
    let body = timeout(SILENCE, body.collect()).await.context("the server did not answer in time")??.to_bytes();
    Ok((head.status, serde_json::from_slice(&body).unwrap_or_default()))
}

/// Sends a request over a connection of its own, which ends with the tasks.
pub(crate) async fn send(
    place: &ServerAddress,
    key: Option<&str>,
    user: Option<&str>,
    mut request: http::request::Builder,
    body: Bytes,
) -> anyhow::Result<(Response<Incoming>, JoinSet<()>)> {
    let stream = timeout(CONNECT, place.connect()).await.map_err(|_| anyhow::anyhow!("no answer within {CONNECT:?}"));
    let stream = stream.and_then(|stream| stream).with_context(|| format!("connecting to {}", place.shown()))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // An error also appears where the answer is read.
        let _ = connection.await;
    });
    request = request
        .header(header::HOST, &place.authority)
        .header(header::USER_AGENT, concat!("amalgam/", env!("CARGO_PKG_VERSION")));
    if let Some(key) = key {
        request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
    }
    if let Some(user) = user {
        request = request.header("x-amalgam-user", user);
    }
    let request = request.body(Full::new(body)).context("building the request")?;
    let response =
        timeout(SILENCE, sender.send_request(request)).await.context("the server did not answer in time")??;
    Ok((response, tasks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, tls: Option<Trust>) -> Target {
        Target::Tcp { host: host.to_owned(), port, tls }
    }

    #[test]
    fn a_server_is_reached_by_its_address() {
        let place = ServerAddress::read("http://[::1]:9/behind/").unwrap();
        let expected = ServerAddress {
            authority: "[::1]:9".to_owned(),
            target: tcp("::1", 9, None),
            prefix: "/behind".to_owned(),
        };
        assert_eq!(place, expected);
        let place = ServerAddress::read("http://example.com").unwrap();
        assert_eq!((place.target, place.prefix.as_str()), (tcp("example.com", 80, None), ""));
        let place = ServerAddress::read("https://example.com").unwrap();
        assert_eq!(place.target, tcp("example.com", 443, Some(Trust::Authorities)));
        let pinned = place.with_certificate(Path::new("a.pem"));
        assert_eq!(pinned.target, tcp("example.com", 443, Some(Trust::Certificate("a.pem".into()))));
        let place = ServerAddress::read("unix:/run/amalgam.sock").unwrap();
        assert_eq!((place.shown().as_str(), place.authority.as_str()), ("/run/amalgam.sock", "localhost"));
        for wrong in ["example.com", "ftp://example.com", "http://", "not an address", "unix:"] {
            assert!(ServerAddress::read(wrong).is_err(), "{wrong}");
        }
    }
}
