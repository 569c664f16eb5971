//! HTTP requests of commands to a running server, one connection each.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, task::JoinSet, time::timeout};

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
    target: (String, u16),
    /// What the paths of the server begin with.
    pub(crate) prefix: String,
}

impl ServerAddress {
    /// Reads the address of a server.
    pub(crate) fn read(url: &str) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("'{url}' is not an address"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => bail!("only http is supported; use the server's plain HTTP address behind the TLS proxy"),
            _ => bail!("'{url}' is not an address such as http://127.0.0.1:8080"),
        }
        let authority = uri.authority().context("an address has a host")?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self {
            target: (host, authority.port_u16().unwrap_or(80)),
            authority: authority.as_str().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

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
    let (host, port) = &place.target;
    let connecting = timeout(CONNECT, TcpStream::connect((host.as_str(), *port)));
    let stream = connecting.await.map_err(|_| anyhow::anyhow!("no answer within {CONNECT:?}"));
    let stream = stream.and_then(|stream| Ok(stream?)).with_context(|| format!("connecting to {}", place.authority))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // What goes wrong shows where the answer is read.
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

    #[test]
    fn a_server_is_reached_by_its_address() {
        let place = ServerAddress::read("http://[::1]:9/behind/").unwrap();
        let expected = ServerAddress {
            authority: "[::1]:9".to_owned(),
            target: ("::1".to_owned(), 9),
            prefix: "/behind".to_owned(),
        };
        assert_eq!(place, expected);
        let place = ServerAddress::read("http://example.com").unwrap();
        assert_eq!((place.target, place.prefix.as_str()), (("example.com".to_owned(), 80), ""));
        for wrong in ["https://example.com", "example.com", "ftp://example.com", "http://", "not an address"] {
            assert!(ServerAddress::read(wrong).is_err(), "{wrong}");
        }
    }
}
