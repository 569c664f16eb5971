use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::*;

/// Fails a few times before it accepts, like a process that ran out of descriptors.
struct Exhausted {
    listener: ListeningSocket,
    failures: u32,
}

impl Accept for Exhausted {
    async fn accept(&mut self) -> io::Result<(AcceptedSocket, SocketAddr)> {
        const EMFILE: i32 = 24;
        if self.failures > 0 {
            self.failures -= 1;
            return Err(io::Error::from_raw_os_error(EMFILE));
        }
        Accept::accept(&mut self.listener).await
    }
}

#[tokio::test]
async fn running_out_of_sockets_does_not_end_the_loop() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(|| async { "here" }));
    let (stop, stopped) = oneshot::channel::<()>();
    let served = JoinSet::from_iter([serve_from(
        Exhausted { listener: listener.into(), failures: 3 },
        router,
        ListenerConfig::default(),
        async move {
            let _ = stopped.await;
        },
    )]);

    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("here"), "{answer}");

    stop.send(()).unwrap();
    let reports = served.join_all().await;
    assert_eq!(reports[0].dropped, 0);
}

#[tokio::test(start_paused = true)]
async fn pauses_between_failed_accepts_grow_and_stay_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let mut acceptor = Acceptor {
        source: Exhausted { listener: listener.into(), failures: 10 },
        refusals: JoinSet::new(),
        oldest: VecDeque::new(),
        pause: None,
    };
    let started = Instant::now();
    let (accepted, _client) = tokio::join!(acceptor.next(), client);
    drop(accepted);
    // 10 + 20 + ... + 640 ms, then three times one second.
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(4_270) && waited < Duration::from_millis(4_400), "{waited:?}");
}
