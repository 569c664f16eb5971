//! A small HTTP client for tests: one connection for each request, without retries and redirects.
//!
//! Calls return exactly what was received. Dropping an answer in the middle of its stream closes the connection, as a
//! user who presses Ctrl-C does.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::raw_connection::RawConnection;
use crate::record::Exchange;
use crate::sse::{self, SseEvent};

/// How long any single wait may take before it fails the test.
const PATIENCE: Duration = Duration::from_secs(90);

/// A client of one server.
#[derive(Clone, Debug)]
pub struct Client {
    authority: String,
    headers: Vec<(String, String)>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// The status.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    /// The body without transfer coding.
    pub body: Bytes,
}

/// An answer whose body is read event by event. Dropping it closes the connection.
#[derive(Debug)]
pub struct EventStream {
    /// The status.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    body: Incoming,
    reader: sse::Reader,
    ready: VecDeque<SseEvent>,
    ended: bool,
    exchange: Exchange,
    taken: u64,
    // Dropping the set aborts the task that drives the connection, and with it closes the socket.
    _connection: JoinSet<()>,
}

impl Client {
    /// A client for a server at `http://HOST:PORT`.
    pub fn new(url: &str) -> Self {
        match url.strip_prefix("http://") {
            Some(authority) => Self { authority: authority.trim_end_matches('/').to_owned(), headers: Vec::new() },
            None => panic!("`{url}` does not start with http://"),
        }
    }

    /// The same client with `Authorization: Bearer KEY` on every request.
    pub fn with_key(self, key: &str) -> Self {
        self.with_header("authorization", &format!("Bearer {key}"))
    }

    /// The same client with this header on every request, replacing one with the same name.
    pub fn with_header(self, name: &str, value: &str) -> Self {
        let mut client = self.without_header(name);
        client.headers.push((name.to_owned(), value.to_owned()));
        client
    }

    /// The same client without this header.
    pub fn without_header(mut self, name: &str) -> Self {
        self.headers.retain(|(present, _)| !present.eq_ignore_ascii_case(name));
        self
    }

    /// `GET`.
    pub async fn get(&self, path: &str) -> HttpAnswer {
        self.request(Method::GET, path, &[], Bytes::new()).await
    }

    /// `POST` with a JSON body.
    pub async fn post_json(&self, path: &str, body: &Value) -> HttpAnswer {
        self.post_raw(path, "application/json", body.to_string()).await
    }

    /// `POST` with any body.
    pub async fn post_raw(&self, path: &str, content_type: &str, body: impl Into<Bytes>) -> HttpAnswer {
        self.request(Method::POST, path, &[("content-type", content_type)], body.into()).await
    }

    /// Any request; the answer is read to its end.
    pub async fn request(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Bytes) -> HttpAnswer {
        self.open(method, path, headers, body).await.into_answer().await
    }

    /// `POST` with a JSON body; the answer is read as it arrives.
    pub async fn post_stream(&self, path: &str, body: &Value) -> EventStream {
        self.open(Method::POST, path, &[("content-type", "application/json")], body.to_string().into()).await
    }

    /// A request whose server may end in the middle of it: returns the error instead of failing the test.
    pub async fn try_request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<HttpAnswer, String> {
        self.try_open(method, path, headers, body).await?.try_into_answer().await
    }

    /// A request whose answer is read as it arrives, from a server that may end meanwhile.
    pub async fn try_stream(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<EventStream, String> {
        self.try_open(method, path, headers, body).await
    }

    /// `POST` with a JSON body; returns the chunks of the answer exactly as the server wrote them.
    pub async fn post_chunks(&self, path: &str, body: &Value) -> Vec<Bytes> {
        let body = body.to_string();
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            self.authority,
            body.len()
        );
        for (name, value) in &self.headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        request.push_str(&body);
        let mut socket = self.connect().await;
        let mut answer = Vec::new();
        within("a chunked answer", async {
            socket.write_all(request.as_bytes()).await.expect("the server takes the request");
            socket.read_to_end(&mut answer).await.expect("the server ends its answer in order");
        })
        .await;
        chunks(&answer)
    }

    /// A connection to the server, for tests that speak HTTP by hand.
    pub async fn connect(&self) -> RawConnection {
        match within("a connection", TcpStream::connect(&self.authority)).await {
            Ok(socket) => RawConnection::new(socket),
            Err(error) => panic!("cannot connect to {}: {error}", self.authority),
        }
    }

    async fn open(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Bytes) -> EventStream {
        match self.try_open(method, path, headers, body).await {
            Ok(opened) => opened,
            Err(problem) => panic!("{path}: {problem}"),
        }
    }

    async fn try_open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<EventStream, String> {
        let mut request = http::Request::builder().method(method).uri(path);
        let names_host = |name: &str| name.eq_ignore_ascii_case("host");
        if !self.headers.iter().any(|(name, _)| names_host(name)) && !headers.iter().any(|(name, _)| names_host(name)) {
            request = request.header("host", &self.authority);
        }
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let overridden = |name: &str| headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        for (name, value) in own.filter(|(name, _)| !overridden(name)).chain(headers.iter().copied()) {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body.clone())).expect("the test wrote a proper request");
        let mut exchange = Exchange::begin("client");
        exchange.sent_head(&format!("{} {path}", request.method()), request.headers());
        exchange.sent(&body);

        let socket = within("a connection", TcpStream::connect(&self.authority)).await;
        let socket = socket.map_err(|error| format!("cannot connect to {}: {error}", self.authority))?;
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(1 << 20)
            .handshake(TokioIo::new(socket))
            .await
            .expect("an HTTP/1.1 client needs nothing from its peer");
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // A failure of the connection is also reported by the request or its body.
            let _ = connection.await;
        });
        let response = within("an answer", sender.send_request(request)).await;
        let response = response.map_err(|error| format!("no answer: {error:?}"))?;
        let (head, body) = response.into_parts();
        exchange.received_head(head.status.as_str(), &head.headers);
        Ok(EventStream {
            status: head.status,
            headers: head.headers,
            body,
            reader: sse::Reader::default(),
            ready: VecDeque::new(),
            ended: false,
            exchange,
            taken: 0,
            _connection: driver,
        })
    }
}

impl HttpAnswer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("the answer ({}) is not JSON: {error}: {}", self.status, self.text()),
        }
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The frames of the body.
    pub fn events(&self) -> Vec<SseEvent> {
        sse::events(&self.body)
    }

    /// The JSON of the frames of the body, which must end in `[DONE]`.
    pub fn json_events(&self) -> Vec<Value> {
        sse::json_events(&self.body)
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl EventStream {
    /// The next event, or `None` after the last one.
    pub async fn next_event(&mut self) -> Option<SseEvent> {
        match self.try_next_event().await {
            Ok(event) => event,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// The next event, or `None` after the last one, of a stream that may break off.
    pub async fn try_next_event(&mut self) -> Result<Option<SseEvent>, String> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.taken += 1;
                self.exchange.note("taken", self.taken);
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            match within("the next event", self.body.frame()).await {
                None => {
                    self.ended = true;
                    self.exchange.note("whole", true);
                    self.reader.finish()?;
                }
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    self.exchange.received(&data);
                    self.ready.extend(self.reader.push(&data)?);
                }
                Some(Err(error)) => return Err(format!("the stream broke off: {error:?}")),
            }
        }
    }

    /// Reads until an event of this type, and returns its JSON.
    pub async fn next_of_type(&mut self, event_type: &str) -> Value {
        loop {
            match self.next_event().await {
                Some(event) if event.event.as_deref() == Some(event_type) => return event.json(),
                Some(_) => {}
                None => panic!("the stream ended without `{event_type}`"),
            }
        }
    }

    /// All remaining events.
    pub async fn rest(mut self) -> Vec<SseEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next_event().await {
            events.push(event);
        }
        events
    }

    /// The whole answer, for a request that was refused instead of streamed. Does not contain events that were read
    /// before.
    pub async fn into_answer(self) -> HttpAnswer {
        match self.try_into_answer().await {
            Ok(answer) => answer,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// The same, from a server that may end meanwhile.
    pub async fn try_into_answer(mut self) -> Result<HttpAnswer, String> {
        let body = within("the end of an answer", self.body.collect()).await;
        let body = body.map_err(|error| format!("the answer ({}) broke off: {error:?}", self.status))?.to_bytes();
        self.exchange.received(&body);
        self.exchange.note("whole", true);
        Ok(HttpAnswer { status: self.status, headers: self.headers, body })
    }
}

async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited {} s for {what}", PATIENCE.as_secs()),
    }
}

fn chunks(answer: &[u8]) -> Vec<Bytes> {
    let mut rest = BytesMut::from(answer);
    let line = |rest: &mut BytesMut| {
        let end = rest.windows(2).position(|window| window == b"\r\n").expect("the answer has whole lines");
        let line = rest.split_to(end);
        rest.advance(2);
        String::from_utf8_lossy(&line).to_ascii_lowercase()
    };
    let mut chunked = false;
    loop {
        match line(&mut rest) {
            head if head.is_empty() => break,
            head => chunked |= head == "transfer-encoding: chunked",
        }
    }
    assert!(chunked, "the answer is not chunked: {:?}", String::from_utf8_lossy(answer));
    let mut chunks = Vec::new();
    loop {
        let size = usize::from_str_radix(&line(&mut rest), 16).expect("a chunk starts with its size");
        if size == 0 {
            return chunks;
        }
        chunks.push(rest.split_to(size).freeze());
        rest.advance(2);
    }
}
