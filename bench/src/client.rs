//! One client connection and what it sends: a Responses request whose answer is read to its end and checked.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::answers::TOKENS;
use crate::requests::{self, Scenario, Storage, Wire};
use crate::sse::SseCount;

/// The key that every request carries.
pub(crate) const KEY: &str = "am_bench_0123456789abcdefghijklmnopqrstuv";

/// No answer takes longer than a paced stream by far; a server that hangs ends the run instead of stopping it.
const PATIENCE: Duration = Duration::from_secs(90);

/// Where a request goes and what it says, prepared once.
#[derive(Clone)]
pub(crate) struct Job {
    address: SocketAddr,
    authorization: String,
    wire: Wire,
    body: Bytes,
    streamed: bool,
    /// Sessions of the strict contract that no turn has used yet; each request takes one.
    sessions: Arc<Mutex<Vec<String>>>,
}

/// Counts the users of the assistant: each of its requests comes from a new one, so that none waits for another's turn
/// and no history grows during a measurement.
static USERS: AtomicU64 = AtomicU64::new(0);

impl Job {
    pub(crate) fn new(address: SocketAddr, prefix: &str, scenario: Scenario) -> Self {
        Self {
            address,
            authorization: format!("Bearer {KEY}"),
            wire: Wire::Responses,
            body: scenario.body(prefix, Storage::Unstored),
            streamed: scenario.streamed(),
            sessions: Arc::default(),
        }
    }

    /// The same question on another wire.
    pub(crate) fn on(self, wire: Wire) -> Self {
        match wire {
            Wire::Responses => self,
            Wire::Assistant | Wire::Execute => Self { wire, body: wire.body(), ..self },
        }
    }

    /// The same, stored or not.
    pub(crate) fn with_storage(address: SocketAddr, prefix: &str, scenario: Scenario, storage: Storage) -> Self {
        Self { body: scenario.body(prefix, storage), ..Self::new(address, prefix, scenario) }
    }

    /// A turn of a stored chain, behind `previous`.
    pub(crate) fn chained(address: SocketAddr, prefix: &str, previous: Option<&str>) -> Self {
        Self { body: requests::chained_body(prefix, previous), ..Self::new(address, prefix, Scenario::Plain) }
    }

    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.authorization = format!("Bearer {key}");
        self
    }

    fn request(&self) -> anyhow::Result<Request<Full<Bytes>>> {
        let (user, body) = match self.wire {
            Wire::Responses => (None, self.body.clone()),
            Wire::Assistant => (Some(format!("user-{}", USERS.fetch_add(1, Ordering::Relaxed))), self.body.clone()),
            Wire::Execute => {
                let session = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).pop();
                (None, requests::execute_body(&session.context("all opened sessions are used")?))
            }
        };
        self.post(self.wire.path(), user.as_deref(), body)
    }

    fn post(&self, path: &str, user: Option<&str>, body: Bytes) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, self.address.to_string())
            .header(AUTHORIZATION, &self.authorization)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, if self.streamed { "text/event-stream" } else { "application/json" });
        if let Some(user) = user {
            request = request.header("x-amalgam-user", user);
        }
        request.body(Full::new(body)).context("building the request")
    }
}

/// One client connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

/// What one exchange took. Times count from the moment the request was due.
pub(crate) struct Exchange {
    pub(crate) first_delta: Option<Duration>,
    pub(crate) whole: Duration,
    pub(crate) deltas: u64,
}

impl Connection {
    /// A connection to where the job goes.
    pub(crate) async fn open(job: &Job) -> anyhow::Result<Self> {
        let address = job.address;
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true).context("setting TCP_NODELAY")?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("starting HTTP")?;
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// Sends a request and returns its answer once a head has come that tells of success.
    pub(crate) async fn send(&mut self, job: &Job) -> anyhow::Result<Response<Incoming>> {
        self.send_request(job.request()?).await
    }

    /// Opens sessions of the strict contract for the requests of a job.
    pub(crate) async fn open_sessions(&mut self, job: &Job, count: usize) -> anyhow::Result<()> {
        for _ in 0..count {
            let request = job.post("/api/agent/sessions", None, Bytes::from_static(b"{}"))?;
            let answer = self.send_request(request).await?.into_body().collect().await?.to_bytes();
            let answer: Value = serde_json::from_slice(&answer).context("the session is no JSON")?;
            let id = answer["SessionId"].as_str().context("the session has no id")?;
            job.sessions.lock().unwrap_or_else(PoisonError::into_inner).push(id.to_owned());
        }
        Ok(())
    }

    async fn send_request(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await.context("the server closed the connection")?;
        let response = self.sender.send_request(request).await.context("sending the request")?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.into_body().collect().await.context("reading the refusal")?.to_bytes();
        let text: String = String::from_utf8_lossy(&body).chars().take(300).collect();
        bail!("answered {status}: {text}")
    }

    /// One request and its whole answer.
    pub(crate) async fn ask(&mut self, job: &Job) -> anyhow::Result<Bytes> {
        let response = self.send(job).await?;
        Ok(response.into_body().collect().await.context("reading the answer")?.to_bytes())
    }

    /// Some turns of a stored chain, one behind the other. The id of the last response.
    pub(crate) async fn turns(
        &mut self,
        address: SocketAddr,
        prefix: &str,
        mut chain: Option<String>,
        count: usize,
    ) -> anyhow::Result<Option<String>> {
        for _ in 0..count {
            let answer = self.ask(&Job::chained(address, prefix, chain.as_deref())).await?;
            let response: Value = serde_json::from_slice(&answer).context("the answer is no JSON")?;
            ensure!(response["status"] == "completed", "status is {}", response["status"]);
            let id = response["id"].as_str().context("the response has no id")?;
            chain = Some(id.to_owned());
        }
        Ok(chain)
    }

    /// One request, its answer read to the end and checked.
    pub(crate) async fn exchange(&mut self, job: &Job, due_at: Instant) -> anyhow::Result<Exchange> {
        let talk = async {
            let mut body = self.send(job).await?.into_body();
            let mut count = SseCount::default();
            let mut first_delta = None;
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.context("the answer broke off")?.into_data() else { continue };
                bytes += data.len();
                if job.streamed {
                    count.feed(&data);
                    if count.deltas > 0 && first_delta.is_none() {
                        first_delta = Some(due_at.elapsed());
                    }
                }
            }
            ensure!(bytes > 0, "the answer is empty");
            if job.streamed
                && let Some(complaint) = count.complaint(TOKENS as u64)
            {
                bail!(complaint);
            }
            Ok(Exchange { first_delta, whole: due_at.elapsed(), deltas: count.deltas })
        };
        match tokio::time::timeout(PATIENCE, talk).await {
            Ok(result) => result,
            Err(_) => bail!("no end of the answer within {PATIENCE:?}"),
        }
    }
}
