use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use tokio::{
    io::{AsyncReadExt, DuplexStream, duplex},
    time::timeout,
};

use amalgam_core::FaultKind;

use super::*;

const LIMITS: BodyLimits = BodyLimits { bytes: 200_000, text_bytes: 200_000, pause: Duration::from_secs(10) };
const MEMORY: usize = 1 << 20;

/// A server's end with this much memory, and the bytes of the client's end.
async fn wired(limits: BodyLimits, memory: &RequestMemory) -> (MessageStream<DuplexStream>, DuplexStream) {
    let (ours, theirs) = duplex(4096);
    (MessageStream::new(ours, limits, memory).await, theirs)
}

/// A server's end, and a client.
async fn connected() -> (MessageStream<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (messages, theirs) = wired(LIMITS, &RequestMemory::new(MEMORY)).await;
    (messages, WebSocketStream::from_raw_socket(theirs, Role::Client, None).await)
}

/// The head of a client's frame that declares this number of bytes.
fn head(first: u8, length: usize, mask: [u8; 4]) -> Vec<u8> {
    let length_bytes = (length as u64).to_be_bytes();
    let mut bytes = vec![first];
    match length {
        0..=125 => bytes.push(0x80 | length as u8),
        126..=0xffff => bytes.extend([&[0xfe][..], &length_bytes[6..]].concat()),
        _ => bytes.extend([&[0xff][..], &length_bytes].concat()),
    }
    bytes.extend(mask);
    bytes
}

/// A frame as a client sends it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [9, 8, 7, 6];
    let mut bytes = head(first, payload.len(), mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Everything that is received of these bytes, which arrive in these pieces, and the answer to them.
async fn exchanged(limits: BodyLimits, pieces: Vec<Vec<u8>>) -> (Vec<Received>, ReceiveError, Vec<u8>) {
    let (mut messages, theirs) = wired(limits, &RequestMemory::new(MEMORY)).await;
    let (mut answers, mut sending) = tokio::io::split(theirs);
    let sends = async move {
        for piece in pieces {
            // The server closes the connection when it has received enough.
            if sending.write_all(&piece).await.is_err() {
                break;
            }
        }
        let _ = sending.shutdown().await;
    };
    let receives = async move {
        let mut all = Vec::new();
        loop {
            match messages.receive().await {
                Ok(Received::Close) => {
                    messages.answer_close().await;
                    return (all, ReceiveError::Disconnected);
                }
                Ok(received) => all.push(received),
                Err(error) => return (all, error),
            }
        }
    };
    let mut answer = Vec::new();
    let ((), (all, error), _) = tokio::join!(sends, receives, answers.read_to_end(&mut answer));
    (all, error, answer)
}

async fn received(pieces: Vec<Vec<u8>>) -> (Vec<Received>, ReceiveError) {
    let (all, error, _) = exchanged(LIMITS, pieces).await;
    (all, error)
}

fn text(text: &str) -> Received {
    Received::Text(Bytes::copy_from_slice(text.as_bytes()))
}

fn is_refused(error: &ReceiveError, kind: FaultKind) -> bool {
    matches!(error, ReceiveError::Refused(fault) if fault.kind == kind)
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

#[tokio::test]
async fn texts_of_all_sizes_pass_both_ways() {
    let (mut messages, mut client) = connected().await;
    for length in [0, 1, 125, 126, 4096, 65_535, 65_536, 65_537, 131_074, 200_000] {
        let sent = "é".repeat(length / 2) + &"x".repeat(length % 2);
        let (sending, receiving) = tokio::join!(client.send(Message::text(sent.clone())), messages.receive());
        sending.unwrap();
        assert_eq!(receiving.unwrap(), text(&sent), "{length}");
        let answering = async {
            messages.queue(Bytes::from(sent.clone())).await.unwrap();
            messages.flush().await.unwrap();
        };
        let ((), answer) = tokio::join!(answering, client.next());
        assert_eq!(answer.unwrap().unwrap(), Message::text(sent));
    }
}

#[tokio::test]
async fn a_long_message_is_sent_in_fragments_so_that_the_write_buffer_stays_small() {
    let (mut messages, mut theirs) = wired(LIMITS, &RequestMemory::new(MEMORY)).await;
    let mut sent = Vec::new();
    let sending = async move {
        messages.queue(Bytes::from(vec![b'x'; 2 * MAX_FRAME_BYTES + 1])).await.unwrap();
        messages.queue(Bytes::from_static(b"short")).await.unwrap();
        messages.flush().await.unwrap();
    };
    let ((), read) = tokio::join!(sending, theirs.read_to_end(&mut sent));
    read.unwrap();
    let part = vec![b'x'; MAX_FRAME_BYTES];
    let head = |first: u8| vec![first, 126, 0x80, 0];
    let expected = [head(0x01), part.clone(), head(0x00), part, b"\x80\x01x\x81\x05short".to_vec()].concat();
    assert!(sent == expected, "{} bytes", sent.len());
}

#[tokio::test]
async fn pings_are_answered_inside_a_message() {
    let parts = [frame(0x01, b"one "), frame(0x89, b"there?"), frame(0x00, b"two "), frame(0x80, b"three")];
    let (all, error, answer) = exchanged(LIMITS, vec![parts.concat()]).await;
    assert_eq!(all, [Received::Ping, text("one two three")]);
    assert!(matches!(error, ReceiveError::Disconnected), "{error}");
    assert_eq!(answer, b"\x8a\x06there?");

    let (mut messages, mut client) = connected().await;
    messages.ping().await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Ping("".into()));
}

#[tokio::test]
async fn a_message_that_is_too_large_is_known_by_its_head() {
    let (all, error) = received(vec![head(0x81, 200_001, [0; 4])]).await;
    assert!(all.is_empty() && is_refused(&error, FaultKind::TooLarge), "{error}");
    // Also where only its fragments together are.
    let part = frame(0x01, &[b'x'; 150_000]);
    let (_, error) = received(vec![part, head(0x80, 50_001, [0; 4])]).await;
    assert!(is_refused(&error, FaultKind::TooLarge), "{error}");
}

#[tokio::test]
async fn text_has_a_limit_of_its_own_and_images_do_not_count_for_it() {
    let limits = BodyLimits { text_bytes: 10_000, ..LIMITS };
    let image = format!(r#"{{"url":"data:image/png;base64,{}"}}"#, "A".repeat(150_000));
    let (all, _, _) = exchanged(limits, vec![frame(0x81, image.as_bytes())]).await;
    assert_eq!(all, [text(&image)]);
    // In frames whose lengths do not divide by the length of the mask, which is the same in all of them.
    let fragments = image.as_bytes().chunks(1001).map(|piece| frame(0x00, piece));
    let mut pieces: Vec<_> = [frame(0x01, b"")].into_iter().chain(fragments).collect();
    pieces.push(frame(0x80, b""));
    let (all, _, _) = exchanged(limits, pieces).await;
    assert_eq!(all, [text(&image)]);
    for first in [0x01, 0x81] {
        let words = frame(first, "many words ".repeat(1000).as_bytes());
        let (all, error, _) = exchanged(limits, vec![words]).await;
        assert!(all.is_empty() && is_refused(&error, FaultKind::TooLarge), "{error}");
    }
}

// right E2
#[tokio::test]
async fn memory_is_reserved_as_a_message_arrives_and_not_by_its_declared_length() {
    let memory = RequestMemory::new(MEMORY);
    let (mut messages, mut theirs) = wired(LIMITS, &memory).await;
    let taken = || MEMORY - memory.free();
    // Far less arrives than was declared.
    theirs.write_all(&head(0x81, 190_000, [0; 4])).await.unwrap();
    theirs.write_all(b"x").await.unwrap();
    assert!(timeout(Duration::from_millis(20), messages.receive()).await.is_err());
    assert!((1..=2 * FRAGMENT_BYTES).contains(&taken()), "{}", taken());
    let rest = vec![b'x'; 189_999];
    let (received, sent) = tokio::join!(messages.receive(), theirs.write_all(&rest));
    sent.unwrap();
    let Ok(Received::Text(message)) = received else { panic!("{received:?}") };
    assert!((190_000..=400_000).contains(&taken()), "{}", taken());
    drop(message);
    assert_eq!(taken(), 0);

    // Fragments that never end exceed the memory at some point, whatever their type.
    let memory = RequestMemory::new(100_000);
    let (mut messages, mut theirs) = wired(LIMITS, &memory).await;
    let endless = async {
        let fragment = frame(0x00, &[b'x'; 100]);
        let _ = theirs.write_all(&frame(0x01, b"x")).await;
        while theirs.write_all(&fragment).await.is_ok() {}
    };
    let receives = async move { messages.receive().await.unwrap_err() };
    let ((), error) = tokio::join!(endless, receives);
    assert!(is_refused(&error, FaultKind::OutOfMemory), "{error}");
    assert_eq!(memory.free(), 100_000);
}

#[tokio::test]
async fn each_way_to_break_the_protocol_has_its_own_error() {
    for (bytes, is_protocol) in [
        (frame(0x80, b"nothing to go on from"), true),
        ([frame(0x01, b"a"), frame(0x81, b"b")].concat(), true),
        (frame(0x88, b"\x03"), true),
        (frame(0xc1, b"compressed"), true),
        (frame(0xd2, b"binary with reserved bits"), true),
        (frame(0x83, b"reserved opcode"), true),
        (frame(0x09, b"a ping in fragments"), true),
        (frame(0x89, &[0; 126]), true),
        (head(0x89, 1 << 30, [0; 4]), true),
        (vec![0x81, 1, b'x'], true),
        ([&[0x81, 0xff][..], &u64::to_be_bytes(1 << 63), &[0; 4]].concat(), true),
        (frame(0x81, b"\xff\xfe"), false),
        ([frame(0x01, b"\xe2\x98"), frame(0x80, b"x")].concat(), false),
        ([frame(0x01, b"\xe2\x98"), frame(0x80, b"")].concat(), false),
        (frame(0x88, b"\x03\xe8\xff"), false),
    ] {
        let (all, error) = received(vec![bytes.clone()]).await;
        assert!(all.is_empty(), "{all:?} of {bytes:?}");
        assert_eq!(matches!(error, ReceiveError::Protocol(_)), is_protocol, "{error} of {bytes:?}");
        assert!(is_protocol || matches!(error, ReceiveError::NotText), "{error} of {bytes:?}");
    }
    let (_, error) = received(vec![head(0x82, 1 << 20, [0; 4])]).await;
    assert!(is_refused(&error, FaultKind::UnsupportedMedia), "{error}");
}

#[tokio::test]
async fn a_close_is_answered_with_its_code() {
    for (payload, answer) in [
        (&b"\x03\xe9bye"[..], &b"\x88\x05\x03\xe9bye"[..]),
        (b"\x0f\xa0", b"\x88\x02\x0f\xa0"),
        // Without a code it is a normal one.
        (b"", b"\x88\x02\x03\xe8"),
        // Codes that are never sent.
        (b"\x03\xe7", b"\x88\x14\x03\xeaProtocol violation"),
        (b"\x03\xed", b"\x88\x14\x03\xeaProtocol violation"),
        (b"\x03\xf8", b"\x88\x14\x03\xeaProtocol violation"),
    ] {
        let (_, _, told) = exchanged(LIMITS, vec![frame(0x88, payload)]).await;
        assert_eq!(told, answer, "{}", String::from_utf8_lossy(&told));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_stops_arriving_is_given_up() {
    // P8
    for beginning in [&[0x81][..], &[0x81, 0xfe, 1], &frame(0x81, b"a whole one")[..9], &frame(0x01, b"a part")] {
        let (mut messages, mut theirs) = wired(LIMITS, &RequestMemory::new(MEMORY)).await;
        theirs.write_all(beginning).await.unwrap();
        let asked_at = Instant::now();
        let error = messages.receive().await.unwrap_err();
        assert!(is_refused(&error, FaultKind::RequestTimeout), "{beginning:?} {error}");
        assert_eq!(asked_at.elapsed().as_secs(), 10, "{beginning:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_arrives_too_slowly_is_given_up_and_silence_between_messages_is_not() {
    let (mut messages, mut theirs) = wired(LIMITS, &RequestMemory::new(MEMORY)).await;
    theirs.write_all(&frame(0x81, b"first")).await.unwrap();
    assert_eq!(messages.receive().await.unwrap(), text("first"));
    let (quiet, _) = tokio::join!(timeout(Duration::from_secs(3600), messages.receive()), async {
        tokio::time::sleep(Duration::from_secs(1800)).await;
        theirs.write_all(&frame(0x81, b"second")).await.unwrap();
    });
    assert_eq!(quiet.unwrap().unwrap(), text("second"));

    // A byte every two seconds; and fragments without a byte, which are no progress.
    for (bytes, step) in
        [(frame(0x81, &[b'x'; 1000]), 1), ([frame(0x01, b"x"), frame(0x00, b"").repeat(500)].concat(), 6)]
    {
        let (mut messages, mut theirs) = wired(LIMITS, &RequestMemory::new(MEMORY)).await;
        let asked_at = Instant::now();
        let trickle = async {
            for piece in bytes.chunks(step) {
                tokio::time::sleep(Duration::from_secs(2)).await;
                if theirs.write_all(piece).await.is_err() {
                    break;
                }
            }
        };
        let receives = async move { messages.receive().await };
        let ((), error) = tokio::join!(trickle, receives);
        assert!(error.is_err_and(|error| is_refused(&error, FaultKind::RequestTimeout)));
        assert!(asked_at.elapsed() < Duration::from_secs(20), "{:?}", asked_at.elapsed());
    }
}

#[tokio::test]
async fn a_close_waits_for_the_clients_answer() {
    let (messages, mut client) = connected().await;
    let closing = messages.close(CloseCode::Away, Utf8Bytes::from_static("enough"));
    let ((), received) = tokio::join!(closing, async { client.next().await.unwrap().unwrap() });
    let Message::Close(Some(close)) = received else { panic!("{received:?}") };
    assert_eq!((u16::from(close.code), close.reason.as_str()), (1001, "enough"));
}

proptest! {
    #[test]
    fn any_cut_of_the_bytes_gives_the_same_messages(texts in vec("[a-zß☕]{0,200}", 1..6), cuts in vec(0_usize..1500, 0..8)) {
        let mut bytes: Vec<u8> = texts.iter().flat_map(|text| frame(0x81, text.as_bytes())).collect();
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < bytes.len()).collect();
        cuts.sort_unstable();
        let mut pieces: Vec<Vec<u8>> = cuts.iter().rev().map(|cut| bytes.split_off(*cut)).collect();
        pieces.push(bytes);
        pieces.reverse();
        let (all, _) = block_on(received(pieces));
        let expected: Vec<Received> = texts.iter().map(|sent| text(sent)).collect();
        prop_assert_eq!(all, expected);
    }

    // P9
    #[test]
    fn no_bytes_make_a_connection_panic(pieces in vec(vec(any::<u8>(), 0..64), 0..16)) {
        let _ = block_on(received(pieces));
    }

    // P9: nearly right is where mistakes hide.
    #[test]
    fn no_frames_make_a_connection_panic(frames in vec((any::<u8>(), vec(any::<u8>(), 0..200)), 0..12)) {
        let pieces = frames.iter().map(|(first, payload)| frame(first & 0x8f, payload)).collect();
        let _ = block_on(received(pieces));
    }
}
