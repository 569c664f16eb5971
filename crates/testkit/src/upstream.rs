//! A scripted HTTP server in place of a model provider, on a free port of the loopback interface.
//!
//! Every request is recorded in order of arrival together with how its reply ended. A reply is played once; a request
//! without one is answered with status 500 and `script is empty`, so that a test notices one call too many.

mod reply;
mod wire;

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::reply::{Gate, Reply};
use crate::record::Exchange;
use crate::serving::Serving;

/// How long a `wait_for_…` waits before it fails the test.
const PATIENCE: Duration = Duration::from_secs(40);

/// A running scripted server. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct Upstream {
    state: Arc<State>,
    serving: Serving,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method, in capitals.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The body without transfer coding.
    pub body: Bytes,
}

/// The end of the reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEnding {
    /// The whole script was sent.
    Finished,
    /// The script closed or reset the connection.
    Cut,
    /// The peer closed the connection before the script had ended.
    PeerLeft,
}

#[derive(Debug)]
struct State {
    /// The number of the upstream within the test.
    number: u64,
    script: Mutex<Script>,
    log: watch::Sender<Log>,
}

#[derive(Debug, Default)]
struct Script {
    queue: VecDeque<Reply>,
    always: Option<Reply>,
    paths: Vec<PathScript>,
}

#[derive(Debug)]
struct PathScript {
    suffix: String,
    queue: VecDeque<Reply>,
    always: Option<Always>,
}

/// The reply when a queue is empty.
enum Always {
    Same(Reply),
    Made(Box<dyn Fn(&Request) -> Reply + Send>),
}

#[derive(Debug, Default)]
struct Log {
    requests: Vec<Request>,
    endings: Vec<Option<ReplyEnding>>,
    unscripted: Vec<String>,
    malformed: Vec<String>,
    connections: usize,
    open_connections: usize,
}

impl Upstream {
    /// Starts a server with an empty script.
    pub fn start() -> Self {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(State { number, script: Mutex::default(), log: watch::Sender::default() });
        let serving = Arc::clone(&state);
        Self { state, serving: Serving::start(|listener| accept(listener, serving)) }
    }

    /// Starts a server that gives every request the same reply once its queue is empty.
    pub fn always(reply: Reply) -> Self {
        let upstream = Self::start();
        upstream.state.script().always = Some(reply);
        upstream
    }

    /// Starts a server with these replies.
    pub fn scripted(replies: impl IntoIterator<Item = Reply>) -> Self {
        let upstream = Self::start();
        upstream.state.script().queue.extend(replies);
        upstream
    }

    /// A loopback address without a listener.
    pub fn unused_address() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        listener.local_addr().expect("a bound listener has an address")
    }

    /// Adds a reply to the queue for all paths without a queue of their own.
    ///
    /// `GET …/models` never takes a reply from it: a server that lists models by itself would use up the script.
    pub fn enqueue(&self, reply: Reply) {
        self.state.script().queue.push_back(reply);
    }

    /// Adds a reply for requests whose path (without query) ends in `suffix`.
    pub fn enqueue_for(&self, suffix: &str, reply: Reply) {
        self.state.script().path(suffix).queue.push_back(reply);
    }

    /// Sets the reply to every request whose path ends in `suffix` once the queue of the path is empty.
    pub fn always_for(&self, suffix: &str, reply: Reply) {
        self.state.script().path(suffix).always = Some(Always::Same(reply));
    }

    /// Sets a function that makes the reply to every request whose path ends in `suffix`, once the queue of the path is
    /// empty.
    pub fn answer_for(&self, suffix: &str, answer: impl Fn(&Request) -> Reply + Send + 'static) {
        self.state.script().path(suffix).always = Some(Always::Made(Box::new(answer)));
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The value of `base_url` in a configuration: `http://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address())
    }

    /// All requests so far, in order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.state.log.borrow().requests.clone()
    }

    /// The request that arrived as number `index`, from 0.
    pub fn request(&self, index: usize) -> Request {
        let log = self.state.log.borrow();
        match log.requests.get(index) {
            Some(request) => request.clone(),
            None => panic!("request {index} was asked for and {} arrived", log.requests.len()),
        }
    }

    /// The requests from number `index` on, in order of arrival.
    pub fn requests_from(&self, index: usize) -> Vec<Request> {
        self.state.log.borrow().requests.get(index..).unwrap_or_default().to_vec()
    }

    /// Sets the reply to every request from now on, once the queue is empty.
    pub fn from_now_on(&self, reply: Reply) {
        self.state.script().always = Some(reply);
    }

    /// Method and path of the requests that found no reply.
    pub fn unscripted(&self) -> Vec<String> {
        self.state.log.borrow().unscripted.clone()
    }

    /// The errors of requests that could not be read.
    pub fn malformed(&self) -> Vec<String> {
        self.state.log.borrow().malformed.clone()
    }

    /// How many queued replies have not been requested yet.
    pub fn replies_left(&self) -> usize {
        let script = self.state.script();
        script.queue.len() + script.paths.iter().map(|path| path.queue.len()).sum::<usize>()
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> usize {
        self.state.log.borrow().connections
    }

    /// How many connections are open now.
    pub fn open_connections(&self) -> usize {
        self.state.log.borrow().open_connections
    }

    /// Waits until `n` requests have arrived in full, and returns all that have.
    pub async fn wait_for_requests(&self, n: usize) -> Vec<Request> {
        let enough = move |log: &Log| (log.requests.len() >= n).then(|| log.requests.clone());
        match self.wait(enough).await {
            Some(requests) => requests,
            None => panic!("waited for {n} requests and {} arrived", self.requests().len()),
        }
    }

    /// Waits until the reply to request `index` has ended, and returns how.
    pub async fn wait_for_end(&self, index: usize) -> ReplyEnding {
        match self.wait(move |log| log.endings.get(index).copied().flatten()).await {
            Some(ending) => ending,
            None => panic!("waited for the end of request {index} and it is still under way or never came"),
        }
    }

    /// Waits until the peer has closed the connection of request `index` while its reply was still playing.
    pub async fn wait_for_disconnect(&self, index: usize) {
        let ending = self.wait_for_end(index).await;
        assert_eq!(ending, ReplyEnding::PeerLeft, "the reply to request {index} ended before the peer left");
    }

    /// Waits until no connection is open.
    pub async fn wait_for_idle(&self) {
        if self.wait(|log| (log.open_connections == 0).then_some(())).await.is_none() {
            panic!("waited for all connections to close and {} are open", self.open_connections());
        }
    }

    /// Waits on the server's own runtime: a test that pauses its clock must not skip over the patience.
    async fn wait<T: Send + 'static>(&self, mut ready: impl FnMut(&Log) -> Option<T> + Send + 'static) -> Option<T> {
        let mut log = self.state.log.subscribe();
        let waiting = self.serving.runtime().spawn(async move {
            let found = async {
                loop {
                    if let Some(found) = ready(&log.borrow_and_update()) {
                        return found;
                    }
                    log.changed().await.expect("the server holds the log while it runs");
                }
            };
            tokio::time::timeout(PATIENCE, found).await.ok()
        });
        waiting.await.expect("the condition does not panic")
    }
}

impl Request {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("the body of {} {} is not JSON: {error}: {:?}", self.method, self.path, self.body),
        }
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl State {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no test panics while it holds the script")
    }
}

impl Script {
    fn path(&mut self, suffix: &str) -> &mut PathScript {
        let index = match self.paths.iter().position(|path| path.suffix == suffix) {
            Some(index) => index,
            None => {
                self.paths.push(PathScript { suffix: suffix.to_owned(), queue: VecDeque::new(), always: None });
                self.paths.len() - 1
            }
        };
        &mut self.paths[index]
    }

    fn reply_to(&mut self, request: &Request) -> Option<Reply> {
        let path = request.path.split('?').next().unwrap_or_default();
        if let Some(own) = self.paths.iter_mut().find(|own| path.ends_with(&own.suffix)) {
            return own.queue.pop_front().or_else(|| own.always.as_ref().map(|always| always.reply_to(request)));
        }
        if request.method == "GET" && path.ends_with("/models") {
            return None;
        }
        self.queue.pop_front().or_else(|| self.always.clone())
    }
}

impl Always {
    fn reply_to(&self, request: &Request) -> Reply {
        match self {
            Self::Same(reply) => reply.clone(),
            Self::Made(make) => make(request),
        }
    }
}

impl fmt::Debug for Always {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same(reply) => reply.fmt(formatter),
            Self::Made(_) => formatter.write_str("made of the request"),
        }
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A peer may disconnect before it is accepted.
                let Ok((socket, _)) = accepted else { continue };
                state.log.send_modify(|log| {
                    log.connections += 1;
                    log.open_connections += 1;
                });
                let state = Arc::clone(&state);
                connections.spawn(async move {
                    serve(socket, &state).await;
                    state.log.send_modify(|log| log.open_connections -= 1);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(socket: TcpStream, state: &State) {
    socket.set_nodelay(true).expect("an open socket takes TCP_NODELAY");
    let (reading, mut writing) = socket.into_split();
    let mut incoming = wire::Incoming::new(reading);
    loop {
        let request = match incoming.request().await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => {
                state.log.send_modify(|log| log.malformed.push(error.to_string()));
                return;
            }
        };
        let mut exchange = Exchange::begin(state.number);
        exchange.sent_head(&format!("{} {}", request.method, request.path), &request.headers);
        exchange.sent(&request.body);
        drop(exchange);
        let reply = state.script().reply_to(&request);
        let last = request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let mut index = 0;
        state.log.send_modify(|log| {
            index = log.requests.len();
            if reply.is_none() {
                log.unscripted.push(format!("{} {}", request.method, request.path));
            }
            log.requests.push(request);
            log.endings.push(None);
        });
        let reply = reply.unwrap_or_else(|| Reply::bytes("text/plain", "script is empty").with_status(500));
        let ending = tokio::select! {
            biased;
            ending = wire::play(&reply, &mut writing) => ending,
            () = incoming.closed() => ReplyEnding::PeerLeft,
        };
        if ending == ReplyEnding::Cut {
            // The socket closes before the test is notified, so the test finds it closed. Dropping the writing half
            // would first shut the connection down in order, which a reset must not do.
            writing.forget();
            drop(incoming);
            state.log.send_modify(|log| log.endings[index] = Some(ending));
            return;
        }
        state.log.send_modify(|log| log.endings[index] = Some(ending));
        if ending == ReplyEnding::PeerLeft || reply.closes() || last {
            return;
        }
    }
}
