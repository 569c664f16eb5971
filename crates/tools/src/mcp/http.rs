//! MCP over streamable HTTP: one POST per message, answered as JSON or as an event stream.
//!
//! All requests use guarded egress. Requests carry the credential stored for the server, never the caller's.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;

use amalgam_core::{BankFault, ToolError};
use amalgam_protocol::{Json, Raw, Reader};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use secrecy::ExposeSecret as _;
use tokio::{runtime::Handle, task::JoinSet, time::timeout};

use super::McpSettings;
use super::rpc::{self, Failure, Message, broken};
use crate::egress::{Answer, Egress, check_url};
use crate::headers::{self, CallTrace};
use crate::secrets::Secrets;

/// The maximum size of one answer, including everything before its result.
const MAX_ANSWER_BYTES: usize = 2 * 1024 * 1024;
/// The maximum size of one message.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
/// The maximum number of replies to requests that a server sends during its answer.
const MAX_REPLIES: usize = 16;
const MAX_SESSION_BYTES: usize = 1024;
/// The maximum number of cancellations in progress. Without a cancellation the server completes work that is not
/// needed.
const MAX_CANCELLATIONS: usize = 32;
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server that refused `initialize` has to show that it uses the older transport.
const LEGACY_PROBE: Duration = Duration::from_secs(5);
const LEGACY: &str = "it speaks the legacy HTTP+SSE transport of MCP 2024-11-05, which is not supported; give the address of \
                      its streamable HTTP transport";
const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Headers that the MCP protocol defines; settings may not set them.
const OURS: [HeaderName; 4] = [header::CONTENT_TYPE, header::ACCEPT, SESSION_ID, PROTOCOL_VERSION];

/// A server with a URL.
pub(super) struct HttpLink {
    peer: Arc<Peer>,
    secrets: Secrets,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
    next_id: AtomicU64,
    /// Counts the server's change notifications.
    changes: AtomicU64,
    cancellations: Mutex<JoinSet<()>>,
}

struct Peer {
    egress: Arc<Egress>,
    url: String,
    headers: HeaderMap,
}

struct Session {
    id: Option<HeaderValue>,
    protocol: &'static str,
}

enum Reply {
    Answered(Json),
    /// The server does not know our session, so it has done nothing.
    UnknownSession,
}

impl HttpLink {
    pub(super) fn new(egress: Arc<Egress>, settings: &McpSettings) -> Result<Self, BankFault> {
        let wrong = |field: &str, reason: String| BankFault { field: field.to_owned(), reason };
        let McpSettings { url, authorization, headers, .. } = settings;
        check_url(url).map_err(|reason| wrong("url", reason))?;
        let (mut headers, mut secrets) = headers::read(headers).map_err(|reason| wrong("headers", reason))?;
        if let Some(ours) = OURS.iter().find(|name| headers.contains_key(*name)) {
            return Err(wrong("headers", format!("`{ours}` belongs to the protocol")));
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(authorization) = authorization {
            let whole = with_scheme(authorization.expose_secret());
            let value = headers::value(&whole);
            let value = value.ok_or_else(|| wrong("authorization", "it is not usable".to_owned()))?;
            secrets.add(&whole.into());
            if headers.insert(header::AUTHORIZATION, value).is_some() {
                return Err(wrong("authorization", "it is among the headers too".to_owned()));
            }
        }
        let url = url.clone();
        Ok(Self {
            peer: Arc::new(Peer { egress, url, headers }),
            secrets,
            session: tokio::sync::Mutex::default(),
            next_id: AtomicU64::new(1),
            changes: AtomicU64::new(0),
            cancellations: Mutex::default(),
        })
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Sends a request, in a new session if the server has dropped ours.
    pub(super) async fn ask(
        &self,
        method: &'static str,
        params: Raw<'_>,
        trace: Option<CallTrace<'_>>,
    ) -> Result<Json, Failure> {
        for _ in 0..2 {
            let session = self.session().await?;
            match self.ask_in(&session, method, params, trace).await? {
                Reply::Answered(result) => return Ok(result),
                Reply::UnknownSession => self.forget(&session).await,
            }
        }
        Err(broken("the MCP server forgets its sessions at once").into())
    }

    /// Ends the session at the server.
    pub(super) async fn close(&self) {
        let Some(session) = self.session.lock().await.take() else { return };
        if session.id.is_some() {
            // Some servers do not let clients end sessions; they expire.
            let _ = timeout(CANCEL_TIMEOUT, self.peer.send(Method::DELETE, Some(&session), Bytes::new())).await;
        }
    }

    async fn ask_in(
        &self,
        session: &Arc<Session>,
        method: &'static str,
        params: Raw<'_>,
        trace: Option<CallTrace<'_>>,
    ) -> Result<Reply, Failure> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut pending = PendingRequest { link: self, session, id, ended: false };
        let answered = self.exchange(Some(session), id, rpc::request(id, method, params), trace).await;
        pending.ended = true;
        answered.map(|(_, reply)| reply)
    }

    /// The current session. The first request opens it, and the others wait for it.
    async fn session(&self) -> Result<Arc<Session>, Failure> {
        let mut session = self.session.lock().await;
        if let Some(session) = &*session {
            return Ok(Arc::clone(session));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = rpc::request(id, "initialize", rpc::initialize_params().raw());
        let (head, reply) = self.exchange(None, id, request, None).await?;
        let Reply::Answered(introduction) = reply else {
            return Err(broken("no MCP server is at this address").into());
        };
        let protocol = rpc::chosen_protocol(introduction.raw())?;
        let id = head.get(SESSION_ID).filter(|id| id.len() <= MAX_SESSION_BYTES && id.to_str().is_ok()).cloned();
        let opened = Arc::new(Session { id, protocol });
        let notification = rpc::notice("notifications/initialized", Raw::EMPTY_OBJECT);
        let answer = self.peer.send(Method::POST, Some(&opened), notification).await?;
        if !answer.head.status.is_success() {
            return Err(broken(format!("the MCP server answered with status {}", answer.head.status)).into());
        }
        *session = Some(Arc::clone(&opened));
        Ok(opened)
    }

    async fn forget(&self, forgotten: &Arc<Session>) {
        let mut session = self.session.lock().await;
        if session.as_ref().is_some_and(|session| Arc::ptr_eq(session, forgotten)) {
            *session = None;
        }
    }

    async fn exchange(
        &self,
        session: Option<&Session>,
        id: u64,
        request: Bytes,
        trace: Option<CallTrace<'_>>,
    ) -> Result<(HeaderMap, Reply), Failure> {
        let answer = self.peer.send_traced(Method::POST, session, request, trace).await?;
        let status = answer.head.status;
        if session.is_none() && status.is_client_error() && self.peer.is_legacy().await {
            return Err(ToolError::Unsupported(LEGACY).into());
        }
        if status == StatusCode::NOT_FOUND && session.is_none_or(|session| session.id.is_some()) {
            return Ok((HeaderMap::new(), Reply::UnknownSession));
        }
        if !status.is_success() {
            return Err(broken(format!("the MCP server answered with status {status}")).into());
        }
        let head = answer.head.headers.clone();
        let kind = head.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let result = match kind.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => self.read_stream(answer, session, id).await?,
            "application/json" => {
                let response = answer.collect().await.map_err(ToolError::from)?;
                let (found, _) = self.find_answer(response.body(), id)?;
                found.ok_or_else(|| broken("the MCP server answered something else"))?
            }
            _ => return Err(broken("the MCP server answered with neither JSON nor events").into()),
        };
        Ok((head, Reply::Answered(result)))
    }

    async fn read_stream(&self, mut answer: Answer, session: Option<&Session>, id: u64) -> Result<Json, Failure> {
        let mut reader = Reader::new(MAX_MESSAGE_BYTES);
        let mut replies_left = MAX_REPLIES;
        loop {
            let piece = answer.piece().await.map_err(ToolError::from)?;
            let at_end = piece.is_none();
            if let Some(piece) = piece {
                reader.push(piece);
            }
            while let Some(frame) = match at_end {
                true => reader.end(),
                false => reader.frame().map_err(|_| ToolError::TooLarge)?,
            } {
                // An event without data only marks a position in the stream.
                if frame.data.is_empty() {
                    continue;
                }
                let (found, replies) = self.find_answer(&frame.data, id)?;
                if let Some(found) = found {
                    return Ok(found);
                }
                for reply in replies.into_iter().take(replies_left) {
                    replies_left -= 1;
                    self.peer.send(Method::POST, session, reply).await?;
                }
            }
            if at_end {
                return Err(broken("the MCP server ended its stream before the answer").into());
            }
        }
    }

    /// Finds the answer in a text, and the replies to requests that the server sends before it.
    fn find_answer(&self, text: &[u8], id: u64) -> Result<(Option<Json>, Vec<Bytes>), Failure> {
        if text.len() > MAX_MESSAGE_BYTES {
            return Err(ToolError::TooLarge.into());
        }
        let text = std::str::from_utf8(text).map_err(|_| broken("the MCP server sent no UTF-8"))?;
        // A server that repeats our credential must not reveal it to the model.
        let text = self.secrets.hide(text);
        let whole =
            Raw::parse(text.as_bytes()).map_err(|error| broken(format!("the MCP server sent no JSON: {error}")))?;
        let (mut found, mut replies) = (None, Vec::new());
        for message in rpc::messages(whole) {
            match message {
                Message::Answer { id: other, result } if other == id => {
                    found = Some(Json::from(result.map_err(Failure::Refused)?));
                }
                Message::Request { id, method } => replies.push(rpc::reply(id, &method)),
                Message::Notification { method } if method == "notifications/tools/list_changed" => {
                    self.changes.fetch_add(1, Ordering::Relaxed);
                }
                Message::Answer { .. } | Message::Notification { .. } => {}
            }
        }
        Ok((found, replies))
    }

    /// Notifies the server that a request is cancelled. Called from a drop, so it only spawns the notification.
    fn notify_cancelled(&self, session: &Arc<Session>, id: u64) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut cancellations = self.cancellations.lock().unwrap_or_else(PoisonError::into_inner);
        while cancellations.try_join_next().is_some() {}
        if cancellations.len() >= MAX_CANCELLATIONS {
            return;
        }
        let (peer, session) = (Arc::clone(&self.peer), Arc::clone(session));
        let goodbye = async move {
            // Best effort: no request is left that could report the failure.
            let _ = timeout(CANCEL_TIMEOUT, peer.send(Method::POST, Some(&session), rpc::cancelled(id))).await;
        };
        cancellations.spawn_on(goodbye, &runtime);
    }
}

impl Peer {
    async fn send(&self, method: Method, session: Option<&Session>, body: Bytes) -> Result<Answer, ToolError> {
        self.send_traced(method, session, body, None).await
    }

    async fn send_traced(
        &self,
        method: Method,
        session: Option<&Session>,
        body: Bytes,
        trace: Option<CallTrace<'_>>,
    ) -> Result<Answer, ToolError> {
        let mut headers = self.headers.clone();
        headers::pass_trace(&mut headers, trace);
        if let Some(session) = session {
            headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(session.protocol));
            if let Some(id) = &session.id {
                headers.insert(SESSION_ID, id.clone());
            }
        }
        Ok(self.egress.open(method, &self.url, headers, body, MAX_ANSWER_BYTES).await?)
    }
}

impl Peer {
    /// Whether the server uses the transport that streamable HTTP replaced: it refuses a POST to its address, and
    /// answers a GET with a stream whose first event names the address for messages.
    async fn is_legacy(&self) -> bool {
        let probe = async {
            let mut answer = self.send(Method::GET, None, Bytes::new()).await.ok()?;
            let kind = answer.head.headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
            if !answer.head.status.is_success() || !kind.starts_with("text/event-stream") {
                return None;
            }
            let mut reader = Reader::new(MAX_MESSAGE_BYTES);
            while let Some(piece) = answer.piece().await.ok()? {
                reader.push(piece);
                if let Some(frame) = reader.frame().ok()? {
                    return Some(frame.event.as_deref() == Some(b"endpoint"));
                }
            }
            None
        };
        timeout(LEGACY_PROBE, probe).await.ok().flatten().unwrap_or(false)
    }
}

/// A token without a scheme is a bearer token.
fn with_scheme(authorization: &str) -> String {
    let authorization = authorization.trim();
    match authorization.contains(' ') {
        true => authorization.to_owned(),
        false => format!("Bearer {authorization}"),
    }
}

/// A pending request. Dropping it before the answer arrives notifies the server.
struct PendingRequest<'a> {
    link: &'a HttpLink,
    session: &'a Arc<Session>,
    id: u64,
    ended: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.link.notify_cancelled(self.session, self.id);
        }
    }
}
