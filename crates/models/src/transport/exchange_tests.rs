use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{super::client::Client, *};

/// An upstream of one test, which the test plays byte for byte.
struct Server(TcpListener);

impl Server {
    async fn start() -> (Self, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        (Self(listener), Client::new(address, None, Duration::from_secs(5)).unwrap())
    }

    async fn accept(&self) -> TcpStream {
        self.0.accept().await.unwrap().0
    }
}

/// Reads a request of [`ask`].
async fn hear(stream: &mut TcpStream) {
    let mut heard = vec![0; HEAD.len() + BODY.len()];
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, [HEAD, BODY].concat());
}

const HEAD: &[u8] = b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\n";
const BODY: &[u8] = b"ask!";

async fn ask(client: &Client) -> Result<(u16, Vec<u8>), ModelError> {
    whole(client.request(&Bytes::from_static(HEAD), &Bytes::from_static(BODY)).await?).await
}

async fn whole((head, mut body): (Head, Body)) -> Result<(u16, Vec<u8>), ModelError> {
    let mut bytes = Vec::new();
    while poll_fn(|context| body.poll_fill(context, &mut bytes)).await.map_err(|_| ModelError::CutShort)?
        == BodyRead::Data
    {}
    assert!(body.is_over());
    Ok((head.status, bytes))
}

const ANSWERS: [&str; 4] = [
    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\na: b\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    "HTTP/1.1 204 No Content\r\n\r\n",
];

#[tokio::test]
async fn answers_that_come_whole_or_byte_by_byte_are_the_same_on_one_connection() {
    let (server, client) = Server::start().await;
    let upstream = async {
        let mut stream = server.accept().await;
        stream.set_nodelay(true).unwrap();
        for answer in ANSWERS {
            hear(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            hear(&mut stream).await;
            for byte in answer.as_bytes() {
                stream.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    };
    let caller = async {
        for answer in ANSWERS {
            let expected = if answer.contains(" 204 ") { (204, vec![]) } else { (200, b"hello".to_vec()) };
            assert_eq!(ask(&client).await.unwrap(), expected, "{answer}");
            assert_eq!(ask(&client).await.unwrap(), expected, "{answer}");
        }
    };
    tokio::join!(upstream, caller);
}

#[tokio::test]
async fn a_body_without_an_end_of_its_own_lasts_until_the_close() {
    let (server, client) = Server::start().await;
    let upstream = async {
        let mut stream = server.accept().await;
        hear(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhel").await.unwrap();
        stream.write_all(b"lo").await.unwrap();
    };
    let (answer, ()) = tokio::join!(ask(&client), upstream);
    assert_eq!(answer.unwrap(), (200, b"hello".to_vec()));
}

#[tokio::test]
async fn a_body_that_is_cut_or_wrongly_framed_is_an_error() {
    let (server, client) = Server::start().await;
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n",
    ] {
        let upstream = async {
            let mut stream = server.accept().await;
            hear(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let (answered, ()) = tokio::join!(ask(&client), upstream);
        assert!(matches!(answered, Err(ModelError::CutShort)), "{answer}: {answered:?}");
    }
}

#[tokio::test]
async fn interim_answers_without_end_are_refused() {
    let (server, client) = Server::start().await;
    let upstream = async {
        let mut stream = server.accept().await;
        hear(&mut stream).await;
        // Until the client has closed.
        while stream.write_all(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1000)).await.is_ok() {}
    };
    let (answer, ()) = tokio::join!(ask(&client), upstream);
    assert!(matches!(answer, Err(ModelError::TooLarge(_))), "{answer:?}");
}

#[tokio::test]
async fn a_connection_is_left_when_the_upstream_closed_it_or_said_more_than_its_answer() {
    let (server, client) = Server::start().await;
    for after in ["", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad"] {
        let upstream = async {
            let mut stream = server.accept().await;
            hear(&mut stream).await;
            stream.write_all(format!("{}{after}", ANSWERS[0]).as_bytes()).await.unwrap();
            match after {
                "" => drop(stream),
                _ => assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "the client closes it"),
            }
        };
        let (answer, ()) = tokio::join!(ask(&client), upstream);
        assert_eq!(answer.unwrap(), (200, b"hello".to_vec()));
    }
    // Not an error, not a further try of the transport: a new connection.
    let upstream = async {
        let mut stream = server.accept().await;
        hear(&mut stream).await;
        stream.write_all(ANSWERS[1].as_bytes()).await.unwrap();
    };
    let (answer, ()) = tokio::join!(ask(&client), upstream);
    assert_eq!(answer.unwrap(), (200, b"hello".to_vec()));
}

#[tokio::test]
async fn a_request_that_may_have_been_acted_on_is_not_sent_again_behind_the_callers_back() {
    let (server, client) = Server::start().await;
    let upstream = async {
        let mut stream = server.accept().await;
        hear(&mut stream).await;
        stream.write_all(ANSWERS[0].as_bytes()).await.unwrap();
        hear(&mut stream).await;
    };
    let caller = async { (ask(&client).await, ask(&client).await) };
    let ((first, second), ()) = tokio::join!(caller, upstream);
    assert_eq!(first.unwrap(), (200, b"hello".to_vec()));
    assert!(matches!(second, Err(ModelError::Unreachable(_))), "{second:?}");
}

#[tokio::test]
async fn an_answer_that_comes_before_the_request_was_taken_is_read() {
    let (server, client) = Server::start().await;
    let large = Bytes::from(vec![b'x'; 32 * 1024 * 1024]);
    let head = Bytes::from(format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", large.len()));
    let upstream = async {
        let mut stream = server.accept().await;
        stream.read_exact(&mut [0; 8]).await.unwrap();
        let refusal = "HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 3\r\n\r\nno!";
        stream.write_all(refusal.as_bytes()).await.unwrap();
        stream
    };
    let caller = async { whole(client.request(&head, &large).await.unwrap()).await };
    let (answer, _stream) = tokio::join!(caller, upstream);
    assert_eq!(answer.unwrap(), (413, b"no!".to_vec()));
}

#[tokio::test]
async fn a_request_is_sent_to_its_end_although_the_answer_has_begun() {
    let (server, client) = Server::start().await;
    let large = Bytes::from(vec![b'x'; 32 * 1024 * 1024]);
    let head = Bytes::from(format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", large.len()));
    let all = head.len() + large.len();
    let upstream = async {
        let mut stream = server.accept().await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe").await.unwrap();
        let mut taken = 0;
        let mut room = vec![0; 64 * 1024];
        while taken < all {
            taken += stream.read(&mut room).await.unwrap();
        }
        stream.write_all(b"llo").await.unwrap();
    };
    let caller = async { whole(client.request(&head, &large).await.unwrap()).await };
    let (answer, ()) = tokio::join!(caller, upstream);
    assert_eq!(answer.unwrap(), (200, b"hello".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed() {
    let (server, client) = Server::start().await;
    let upstream = async {
        let mut stream = server.accept().await;
        hear(&mut stream).await;
        stream.write_all(ANSWERS[0].as_bytes()).await.unwrap();
        // No other task is ready, so the clock advances to the moment of the close.
        stream.read(&mut [0]).await.unwrap()
    };
    let (answer, closed) = tokio::join!(ask(&client), upstream);
    assert_eq!((answer.unwrap().0, closed), (200, 0));
}
