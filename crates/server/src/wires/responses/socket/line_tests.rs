use futures_util::{SinkExt, StreamExt};
use proptest::{collection::vec, prelude::*};
use tokio::io::{DuplexStream, duplex};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use amalgam_core::FaultKind;

use super::*;

const LIMITS: BodyLimits = BodyLimits { bytes: 200_000, text_bytes: 200_000, pause: Duration::from_secs(10) };

/// A line, and the other end of its wire.
fn wired() -> (Line<DuplexStream>, DuplexStream) {
    let (ours, theirs) = duplex(4096);
    (Line::new(ours, LIMITS, &RequestMemory::new(1 << 20)), theirs)
}

/// A line, and a client that is not ours.
async fn connected() -> (Line<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (line, theirs) = wired();
    (line, WebSocketStream::from_raw_socket(theirs, Role::Client, None).await)
}

/// A frame as a client sends it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [9, 8, 7, 6];
    let mut bytes = Vec::new();
    write_head(&mut bytes, Opcode::Text, payload.len());
    bytes[0] = first;
    bytes[1] |= 0x80;
    bytes.extend_from_slice(&mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Everything that is heard of these bytes, which come in these pieces.
async fn heard(pieces: Vec<Vec<u8>>) -> (Vec<Heard>, Deaf) {
    let (mut line, mut theirs) = wired();
    let speaking = async move {
        for piece in pieces {
            // A line that has heard enough is gone.
            if theirs.write_all(&piece).await.is_err() {
                break;
            }
        }
    };
    let listening = async move {
        let mut all = Vec::new();
        loop {
            match line.hear().await {
                Ok(heard) => all.push(heard),
                Err(deaf) => return (all, deaf),
            }
        }
    };
    tokio::join!(speaking, listening).1
}

fn is_refused(deaf: &Deaf, kind: FaultKind) -> bool {
    matches!(deaf, Deaf::Refused(fault) if fault.kind == kind)
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

#[tokio::test]
async fn texts_of_all_sizes_pass_both_ways() {
    let (mut line, mut client) = connected().await;
    for length in [0, 1, 125, 126, 4096, 65_535, 65_536, 200_000] {
        let text = "é".repeat(length / 2) + &"x".repeat(length % 2);
        let (sent, heard) = tokio::join!(client.send(Message::text(text.clone())), line.hear());
        sent.unwrap();
        assert_eq!(heard.unwrap(), Heard::Text(Bytes::from(text.clone())));
        let (middle, _) = text.as_bytes().split_at(text.len() / 2);
        line.say(&[middle, &text.as_bytes()[middle.len()..]]);
        let (told, read) = tokio::join!(line.flush(), client.next());
        told.unwrap();
        assert_eq!(read.unwrap().unwrap(), Message::text(text));
    }
    assert!(line.write.capacity() <= KEPT_BYTES);
}

#[tokio::test]
async fn pings_are_heard_inside_a_message_and_answers_reach_the_client() {
    let parts = [frame(0x01, b"one "), frame(0x89, b"there?"), frame(0x00, b"two "), frame(0x80, b"three")];
    let (all, deaf) = heard(vec![parts.concat()]).await;
    assert_eq!(all, [Heard::Ping(Bytes::from_static(b"there?")), Heard::Text(Bytes::from_static(b"one two three"))]);
    assert!(matches!(deaf, Deaf::Gone));

    let (mut line, mut client) = connected().await;
    line.pong(b"there!").await.unwrap();
    line.ping().await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong("there!".into()));
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Ping("".into()));
}

#[tokio::test]
async fn a_message_that_is_too_large_is_known_by_its_head() {
    let head = |length: u64| [&[0x81, 0xff][..], &length.to_be_bytes(), &[0; 4]].concat();
    let (all, deaf) = heard(vec![head(200_001)]).await;
    assert!(all.is_empty() && is_refused(&deaf, FaultKind::TooLarge), "{deaf}");
    // Also where only all of its parts together are.
    let part = frame(0x01, &[b'x'; 150_000]);
    let (_, deaf) = heard(vec![part, frame(0x80, &[b'x'; 50_001])]).await;
    assert!(is_refused(&deaf, FaultKind::TooLarge), "{deaf}");
}

#[tokio::test]
async fn what_breaks_the_protocol_is_told_apart() {
    for (bytes, is_wrong) in [
        (frame(0x80, b"nothing to go on from"), true),
        ([frame(0x01, b"a"), frame(0x81, b"b")].concat(), true),
        (frame(0x88, b"\x03"), true),
        (frame(0xc1, b"compressed"), true),
        (frame(0x81, b"\xff\xfe"), false),
        ([frame(0x01, b"\xe2\x98"), frame(0x80, b"x")].concat(), false),
    ] {
        let (all, deaf) = heard(vec![bytes]).await;
        assert!(all.is_empty() && matches!(deaf, Deaf::Wrong(_)) == is_wrong, "{all:?} {deaf}");
        assert!(is_wrong || matches!(deaf, Deaf::NotText), "{deaf}");
    }
    let (all, _) = heard(vec![frame(0x82, b"\0\0"), frame(0x88, b"\x03\xe9bye")]).await;
    assert_eq!(all.first(), Some(&Heard::Binary));
    let (all, _) = heard(vec![frame(0x88, b"\x03\xe9bye")]).await;
    assert_eq!(all, [Heard::Close(Some(1001))]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_get_on_is_given_up() {
    // P8
    for beginning in [&[0x81][..], &[0x81, 0xfe, 1], &frame(0x81, b"a whole one")[..9], &frame(0x01, b"a part")] {
        let (mut line, mut theirs) = wired();
        theirs.write_all(beginning).await.unwrap();
        let asked_at = Instant::now();
        let deaf = line.hear().await.unwrap_err();
        assert!(is_refused(&deaf, FaultKind::RequestTimeout), "{beginning:?} {deaf}");
        assert_eq!(asked_at.elapsed().as_secs(), 10, "{beginning:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_trickles_in_is_given_up_and_silence_between_messages_is_not() {
    let (mut line, mut theirs) = wired();
    theirs.write_all(&frame(0x81, b"first")).await.unwrap();
    assert_eq!(line.hear().await.unwrap(), Heard::Text(Bytes::from_static(b"first")));
    let (quiet, _) = tokio::join!(timeout(Duration::from_secs(3600), line.hear()), async {
        tokio::time::sleep(Duration::from_secs(1800)).await;
        theirs.write_all(&frame(0x81, b"second")).await.unwrap();
    });
    assert_eq!(quiet.unwrap().unwrap(), Heard::Text(Bytes::from_static(b"second")));

    let asked_at = Instant::now();
    let trickle = async {
        for byte in frame(0x81, &[b'x'; 1000]) {
            tokio::time::sleep(Duration::from_secs(2)).await;
            if theirs.write_all(&[byte]).await.is_err() {
                break;
            }
        }
    };
    let listening = async {
        let deaf = line.hear().await;
        drop(line);
        deaf
    };
    let ((), deaf) = tokio::join!(trickle, listening);
    assert!(deaf.is_err_and(|deaf| is_refused(&deaf, FaultKind::RequestTimeout)));
    assert!(asked_at.elapsed() < Duration::from_secs(20), "{:?}", asked_at.elapsed());
}

#[tokio::test]
async fn a_close_waits_for_the_clients_answer() {
    let (line, mut client) = connected().await;
    let ((), heard) = tokio::join!(line.close(code::AWAY, "enough"), async { client.next().await.unwrap().unwrap() });
    let Message::Close(Some(said)) = heard else { panic!("{heard:?}") };
    assert_eq!((u16::from(said.code), said.reason.as_str()), (1001, "enough"));
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
        let (all, _) = block_on(heard(pieces));
        let expected: Vec<Heard> = texts.into_iter().map(|text| Heard::Text(text.into())).collect();
        prop_assert_eq!(all, expected);
    }

    // P9
    #[test]
    fn no_bytes_make_a_line_fall_over(pieces in vec(vec(any::<u8>(), 0..64), 0..16)) {
        let _ = block_on(heard(pieces));
    }

    // P9: nearly right is where mistakes hide.
    #[test]
    fn no_frames_make_a_line_fall_over(frames in vec((any::<u8>(), vec(any::<u8>(), 0..200)), 0..12)) {
        let pieces = frames.iter().map(|(first, payload)| frame(first & 0x8f, payload)).collect();
        let _ = block_on(heard(pieces));
    }
}
