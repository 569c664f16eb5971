//! An HTTP proxy: it opens tunnels (`CONNECT`) and forwards requests with an absolute URL in their request line.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::serving::Serving;

/// A running proxy. Every host name leads to this machine, so that a name that only the proxy resolves shows which side
/// resolved it.
#[derive(Debug)]
pub struct ConnectProxy {
    serving: Serving,
    heads: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone, Default)]
struct Rules {
    /// The only `Proxy-Authorization` that is accepted; `None` accepts every request.
    credentials: Option<String>,
    /// The status line that refuses a tunnel, such as `502 Bad Gateway`.
    refusal: Option<String>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl ConnectProxy {
    /// Starts a proxy that accepts every request.
    pub fn open() -> Self {
        Self::start(Rules::default())
    }

    /// Starts a proxy that requires this `Proxy-Authorization`, and refuses requests without it with 407.
    pub fn wanting(credentials: &str) -> Self {
        Self::start(Rules { credentials: Some(credentials.to_owned()), ..Rules::default() })
    }

    /// Starts a proxy that refuses every request with this status, such as `502 Bad Gateway`.
    pub fn refusing(status: &str) -> Self {
        Self::start(Rules { refusal: Some(status.to_owned()), ..Rules::default() })
    }

    fn start(rules: Rules) -> Self {
        let heads = Arc::clone(&rules.heads);
        Self { serving: Serving::start(move |listener| accept(listener, rules)), heads }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// The heads of the received requests: one for each tunnel, and one for each forwarded request.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn accept(listener: TcpListener, rules: Rules) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((socket, _)) = accepted else { continue };
                connections.spawn(serve(socket, rules.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection, all of whose requests are for the same server.
async fn serve(mut caller: TcpStream, rules: Rules) {
    caller.set_nodelay(true).expect("an open socket takes TCP_NODELAY");
    let mut buffer = Vec::new();
    let Some(head) = read_head(&mut caller, &mut buffer, &rules).await else { return };
    let refusal = match &rules.credentials {
        Some(wanted) if field(&head, "proxy-authorization") != Some(wanted) => "407 Proxy Authentication Required",
        _ => rules.refusal.as_deref().unwrap_or_default(),
    };
    if !refusal.is_empty() {
        let answer = format!("HTTP/1.1 {refusal}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let _ = caller.write_all(answer.as_bytes()).await;
        return;
    }
    let mut server = TcpStream::connect(("127.0.0.1", port(&head))).await.expect("the server behind the proxy listens");
    server.set_nodelay(true).expect("an open socket takes TCP_NODELAY");
    // Both connections end together.
    if head.starts_with("CONNECT ") {
        let _ = caller.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
        let _ = copy_bidirectional(&mut caller, &mut server).await;
        return;
    }
    let ((mut from_caller, mut to_caller), (mut from_server, mut to_server)) = (caller.split(), server.split());
    tokio::select! {
        _ = copy(&mut from_server, &mut to_caller) => {}
        () = forward(head, buffer, &mut from_caller, &mut to_server, &rules) => {}
    }
}

/// Forwards one request after the other, until the caller disconnects.
async fn forward(
    mut head: String,
    mut buffer: Vec<u8>,
    caller: &mut (impl AsyncRead + Unpin),
    server: &mut (impl AsyncWrite + Unpin),
    rules: &Rules,
) {
    loop {
        let length: usize = field(&head, "content-length").map_or(0, |length| length.parse().expect("a length"));
        while buffer.len() < length {
            match caller.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        let body: Vec<u8> = buffer.drain(..length).collect();
        let request = [forwarded(&head).into_bytes(), body].concat();
        if server.write_all(&request).await.is_err() {
            return;
        }
        match read_head(caller, &mut buffer, rules).await {
            Some(next) => head = next,
            None => return,
        }
    }
}

/// Reads the next head; bytes after it stay in the buffer.
async fn read_head(caller: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>, rules: &Rules) -> Option<String> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if caller.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer.drain(..end).collect()).expect("a head is text");
    rules.heads.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
    Some(head)
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
}

/// The port of the server that a request is for.
fn port(head: &str) -> u16 {
    let address = head.split(' ').nth(1).expect("a request line has a target");
    let authority = address.trim_start_matches("http://").split('/').next().unwrap_or_default();
    authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("the tests name ports")
}

/// The head for the origin server: with a path in its request line, and without headers for the proxy.
fn forwarded(head: &str) -> String {
    let (line, fields) = head.split_once("\r\n").expect("a head has a first line");
    let words: Vec<&str> = line.split(' ').collect();
    let [method, address, version] = words.as_slice() else { panic!("`{line}` is no request line") };
    let rest = address.strip_prefix("http://").unwrap_or_else(|| panic!("`{address}` is no whole address"));
    let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/");
    let kept = |field: &&str| !field.to_ascii_lowercase().starts_with("proxy-");
    format!("{method} {path} {version}\r\n{}", fields.split_inclusive("\r\n").filter(kept).collect::<String>())
}
