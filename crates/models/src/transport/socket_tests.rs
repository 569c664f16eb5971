use std::{future::poll_fn, task::Waker};

use amalgam_core::resting;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

/// A socket and its other end.
async fn pair() -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let far = far.unwrap().0;
    far.set_nodelay(true).unwrap();
    (Socket::new(near.unwrap()), far)
}

/// What somebody reads who rests, with room for so many bytes.
fn look(socket: &mut Socket, room: usize) -> Poll<io::Result<Vec<u8>>> {
    look_as(resting(), socket, room)
}

fn look_as(waker: &Waker, socket: &mut Socket, room: usize) -> Poll<io::Result<Vec<u8>>> {
    let mut bytes = vec![0; room];
    let mut buffer = ReadBuf::new(&mut bytes);
    let read = Pin::new(socket).poll_read(&mut Context::from_waker(waker), &mut buffer);
    let read = read.map_ok(|()| buffer.filled().to_vec());
    if read.is_pending() {
        assert!(buffer.filled().is_empty());
    }
    read
}

/// Looks until there is something: what is sent takes a moment to arrive.
async fn find(socket: &mut Socket, room: usize) -> io::Result<Vec<u8>> {
    loop {
        match look(socket, room) {
            Poll::Ready(found) => return found,
            Poll::Pending => tokio::task::yield_now().await,
        }
    }
}

fn is_left(socket: &Socket) -> bool {
    matches!(socket.io, Io::Left(_))
}

#[tokio::test]
async fn what_comes_while_nobody_waits_is_found_by_looking() {
    let (mut socket, mut far) = pair().await;
    assert!(look(&mut socket, 8).is_pending());
    assert!(is_left(&socket));

    far.write_all(b"one").await.unwrap();
    assert_eq!(find(&mut socket, 8).await.unwrap(), b"one");
    far.write_all(b"two").await.unwrap();
    assert_eq!(find(&mut socket, 8).await.unwrap(), b"two");
    far.shutdown().await.unwrap();
    assert_eq!(find(&mut socket, 8).await.unwrap(), b"");
    assert!(is_left(&socket));
}

#[tokio::test]
async fn somebody_who_waits_after_a_rest_is_woken() {
    let (mut socket, mut far) = pair().await;
    let mut room = [0; 3];
    for round in 0..100 {
        assert!(look(&mut socket, 8).is_pending());
        assert!(is_left(&socket));
        // Before, while or after the wait begins.
        let answer = async {
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
            far.write_all(b"new").await.unwrap();
        };
        let (read, ()) = tokio::join!(socket.read_exact(&mut room), answer);
        assert_eq!((read.unwrap(), &room), (3, b"new"));
    }
}

#[tokio::test]
async fn a_read_that_was_not_full_spares_the_next_look() {
    let (mut socket, mut far) = pair().await;
    far.write_all(b"one").await.unwrap();
    assert_eq!(find(&mut socket, 8).await.unwrap(), b"one");
    far.write_all(b"two").await.unwrap();
    // Until it is there for certain.
    let Io::Left(stream) = &socket.io else { panic!("it is watched") };
    while stream.peek(&mut [0; 8]).is_err() {
        tokio::task::yield_now().await;
    }

    assert!(look(&mut socket, 8).is_pending());
    assert!(matches!(look(&mut socket, 8), Poll::Ready(Ok(found)) if found == b"two"));
}

#[tokio::test]
async fn somebody_who_does_not_rest_finds_what_is_there_at_once() {
    let (mut socket, mut far) = pair().await;
    far.write_all(b"one").await.unwrap();
    assert_eq!(find(&mut socket, 8).await.unwrap(), b"one");
    far.shutdown().await.unwrap();
    let Io::Left(stream) = &socket.io else { panic!("it is watched") };
    while stream.peek(&mut [0; 8]).is_err() {
        tokio::task::yield_now().await;
    }

    // As the pool asks whether a connection can be used again.
    assert!(matches!(look_as(Waker::noop(), &mut socket, 8), Poll::Ready(Ok(found)) if found.is_empty()));
}

#[tokio::test]
async fn an_upstream_that_is_never_silent_does_not_keep_the_thread() {
    let (mut socket, mut far) = pair().await;
    far.write_all(&[7; 1000]).await.unwrap();
    assert_eq!(find(&mut socket, 1).await.unwrap(), [7]);
    let Io::Left(stream) = &socket.io else { panic!("it is watched") };
    while stream.peek(&mut [0; 999]).unwrap() < 999 {
        tokio::task::yield_now().await;
    }

    let found = (0..).take_while(|_| look(&mut socket, 1).is_ready()).count();

    assert_eq!(found, usize::from(READS) - 1);
    assert!(look(&mut socket, 1).is_ready());
}

#[tokio::test]
async fn a_socket_that_was_left_can_be_written_to() {
    let (mut socket, mut far) = pair().await;
    assert!(look(&mut socket, 8).is_pending());
    let mut heard = [0; 3];

    socket.write_all(b"ask").await.unwrap();
    poll_fn(|context| Pin::new(&mut socket).poll_flush(context)).await.unwrap();
    far.read_exact(&mut heard).await.unwrap();

    assert_eq!((&heard, is_left(&socket)), (b"ask", false));
}
