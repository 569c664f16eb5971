//! One message to a server, and the events of its answer.

use std::time::Duration;

use amalgam_protocol::{Frame, Reader};
use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, task::JoinSet, time::timeout};

/// Where messages go.
const PATH: &str = "/api/v2/ai-agent/respond/";
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest silence of a server; it shows that it is alive more often than that.
const SILENCE: Duration = Duration::from_secs(120);
/// The longest event.
const LONGEST: usize = 16 * 1024 * 1024;

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerAddress {
    /// Host and port as they stand in the address.
    authority: String,
    /// Where to connect to.
    target: (String, u16),
    /// What the paths of the server begin with.
    prefix: String,
}

impl ServerAddress {
    /// Reads the address of a server.
    pub(super) fn read(url: &str) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("'{url}' is not an address"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => bail!("chat supports http only; use the server's plain HTTP address behind the TLS proxy"),
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

/// Something that happens while an assistant answers.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// A part of the text.
    Delta(String),
    /// A tool runs.
    ToolCall { name: String, arguments: String },
    /// The whole answer: a JSON object as it was sent.
    Done(String),
    /// There is none.
    Failed(String),
}

/// An answer that comes.
pub(super) struct Call {
    body: Incoming,
    reader: Reader,
    /// Drives the connection, and ends with this.
    _connection: JoinSet<()>,
}

impl Call {
    /// Sends a message.
    pub(super) async fn start(
        place: &ServerAddress,
        key: Option<&str>,
        user: Option<&str>,
        body: &Value,
    ) -> anyhow::Result<Self> {
        let request = Request::post(format!("{}{PATH}", place.prefix))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream");
        let (response, tasks) = send(place, key, user, request, Bytes::from(body.to_string())).await?;
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            let body = timeout(SILENCE, body.collect()).await.context("the server did not answer in time")??.to_bytes();
            bail!(super::refusal(head.status, &body));
        }
        Ok(Self { body, reader: Reader::new(LONGEST), _connection: tasks })
    }

    /// The next event that matters; nothing when the answer is over.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            while let Some(frame) = self.reader.frame()? {
                if let Some(event) = event(&frame) {
                    return Ok(Some(event));
                }
            }
            let Some(piece) = timeout(SILENCE, self.body.frame()).await.context("the server did not answer in time")?
            else {
                return Ok(None);
            };
            if let Ok(data) = piece.context("reading the answer")?.into_data() {
                self.reader.push(data);
            }
        }
    }
}

/// Reads something from the server: its status, and the JSON that it gave, if it was any.
pub(super) async fn get(
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
async fn send(
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

fn event(frame: &Frame) -> Option<Event> {
    let data: Value = serde_json::from_slice(&frame.data).ok()?;
    let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
    match frame.event.as_deref()? {
        b"message.delta" => Some(Event::Delta(text("delta"))),
        b"tool_call" => Some(Event::ToolCall { name: text("name"), arguments: text("arguments") }),
        b"done" => Some(Event::Done(String::from_utf8_lossy(&frame.data).into_owned())),
        b"error" => Some(Event::Failed(text("detail"))),
        _ => None,
    }
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

    #[test]
    fn events_are_known_by_their_names_and_others_pass_by() {
        let frame = |name: &'static str, data: &'static str| Frame {
            event: Some(Bytes::from_static(name.as_bytes())),
            data: Bytes::from_static(data.as_bytes()),
        };
        let delta = event(&frame("message.delta", r#"{"delta": "Hi"}"#));
        assert_eq!(delta, Some(Event::Delta("Hi".to_owned())));
        let call = Event::ToolCall { name: "find".to_owned(), arguments: "{}".to_owned() };
        assert_eq!(event(&frame("tool_call", r#"{"id": "1", "name": "find", "arguments": "{}"}"#)), Some(call));
        let done = r#"{"session_id": 1, "message": "Hi"}"#;
        assert_eq!(event(&frame("done", done)), Some(Event::Done(done.to_owned())));
        assert_eq!(event(&frame("error", r#"{"detail": "No."}"#)), Some(Event::Failed("No.".to_owned())));
        assert_eq!(event(&frame("tool_result", "{}")), None);
        assert_eq!(event(&frame("done", "{")), None);
    }
}
