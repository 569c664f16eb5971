use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, header};
use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec};
use proptest::{collection::vec, prelude::*};
use tokio::io::{DuplexStream, duplex};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use super::{super::deflate::agree, *};

const LIMITS: BodyLimits = BodyLimits { bytes: 200_000, pause: Duration::from_secs(10) };

/// A line, and the other end of its wire.
fn wired() -> (Line<DuplexStream>, DuplexStream) {
    let (ours, theirs) = duplex(4096);
    (Line::new(ours, LIMITS, None), theirs)
}

/// The same of two that have agreed on compression.
fn wired_deflating() -> (Line<DuplexStream>, DuplexStream) {
    let (ours, theirs) = duplex(4096);
    (Line::new(ours, LIMITS, Some(agreed())), theirs)
}

fn agreed() -> Agreed {
    let offer = [(header::SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static("permessage-deflate"))];
    agree(&HeaderMap::from_iter(offer)).unwrap().0
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
    heard_on(wired(), pieces).await
}

async fn heard_on(
    (mut line, mut theirs): (Line<DuplexStream>, DuplexStream),
    pieces: Vec<Vec<u8>>,
) -> (Vec<Heard>, Deaf) {
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
    assert!(all.is_empty() && matches!(deaf, Deaf::TooLarge(200_000)), "{deaf}");
    // Also where only all of its parts together are.
    let part = frame(0x01, &[b'x'; 150_000]);
    let (_, deaf) = heard(vec![part, frame(0x80, &[b'x'; 50_001])]).await;
    assert!(matches!(deaf, Deaf::TooLarge(200_000)), "{deaf}");
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
        assert!(matches!(line.hear().await, Err(Deaf::TooSlow)), "{beginning:?}");
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
    assert!(matches!(deaf, Err(Deaf::TooSlow)));
    assert!(asked_at.elapsed() < Duration::from_secs(20), "{:?}", asked_at.elapsed());
}

#[tokio::test]
async fn a_close_waits_for_the_clients_answer() {
    let (line, mut client) = connected().await;
    let ((), heard) = tokio::join!(line.close(code::AWAY, "enough"), async { client.next().await.unwrap().unwrap() });
    let Message::Close(Some(said)) = heard else { panic!("{heard:?}") };
    assert_eq!((u16::from(said.code), said.reason.as_str()), (1001, "enough"));
}

/// A text as a client deflates it: a block that is the last one, and the empty one behind it.
fn deflated(text: &[u8]) -> Vec<u8> {
    [&*compress_to_vec(text, 6), &[0]].concat()
}

#[tokio::test]
async fn a_deflated_message_is_heard_as_it_was_and_control_frames_inside_it_are_plain() {
    let text = "Wer da? ".repeat(20_000);
    let bytes = deflated(text.as_bytes());
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let parts = [frame(0x41, first), frame(0x89, b"there?"), frame(0x00, second), frame(0x80, b"")];
    let plain = frame(0x81, b"plain");
    let (all, _) = heard_on(wired_deflating(), vec![[parts.concat(), plain].concat()]).await;
    let heard = [Heard::Ping("there?".into()), Heard::Text(text.into()), Heard::Text("plain".into())];
    assert_eq!(all, heard);
}

#[tokio::test]
async fn a_deflated_message_that_is_too_large_garbled_or_no_text_is_told_apart() {
    let bomb = deflated(&vec![b'x'; 8_000_000]);
    assert!(bomb.len() < 10_000);
    let (all, deaf) = heard_on(wired_deflating(), vec![frame(0xc1, &bomb)]).await;
    assert!(all.is_empty() && matches!(deaf, Deaf::TooLarge(200_000)), "{deaf}");
    let (_, deaf) =
        heard_on(wired_deflating(), vec![[&[0xc1, 0xff][..], &200_001_u64.to_be_bytes(), &[0; 4]].concat()]).await;
    assert!(matches!(deaf, Deaf::TooLarge(200_000)), "{deaf}");
    for bytes in [&b"not deflated at all"[..], b"", &deflated(b"a text that is cut off")[..9]] {
        let (all, deaf) = heard_on(wired_deflating(), vec![frame(0xc1, bytes)]).await;
        assert!(all.is_empty() && matches!(deaf, Deaf::Garbled), "{deaf}");
    }
    let (_, deaf) = heard_on(wired_deflating(), vec![frame(0xc1, &deflated(b"\xff\xfe"))]).await;
    assert!(matches!(deaf, Deaf::NotText), "{deaf}");
    for first in [0xc0, 0xc9, 0xd1, 0xe1] {
        let (_, deaf) = heard_on(wired_deflating(), vec![frame(first, &deflated(b"x"))]).await;
        assert!(matches!(deaf, Deaf::Wrong(_)), "{first:#x} {deaf}");
    }
}

#[tokio::test]
async fn long_messages_leave_deflated_and_short_ones_as_they_are() {
    let (mut line, mut theirs) = wired_deflating();
    let long = "{\"type\":\"response.completed\"}".repeat(100);
    line.say(&[b"short"]);
    line.say(&[&long.as_bytes()[..1000], &long.as_bytes()[1000..]]);
    line.flush().await.unwrap();
    line.ping().await.unwrap();
    drop(line);
    let mut told = Vec::new();
    theirs.read_to_end(&mut told).await.unwrap();
    let rest = told.strip_prefix(b"\x81\x05short").unwrap();
    assert_eq!((rest[0], rest[1] < 126), (0xc1, true));
    let (deflated, rest) = rest[2..].split_at(rest[1].into());
    assert_eq!(
        decompress_to_vec(&[deflated, &[0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff]].concat()).unwrap(),
        long.as_bytes()
    );
    assert_eq!(rest, [0x89, 0]);
}

proptest! {
    #[test]
    fn any_parts_of_deflated_messages_give_the_same_texts(
        texts in vec(("[a-zß☕]{0,400}", 0_usize..4, any::<bool>()), 1..6),
        cuts in vec(0_usize..1500, 0..8),
    ) {
        let mut bytes = Vec::new();
        for (text, parts, is_deflated) in &texts {
            let (payload, bit) = match is_deflated {
                true => (deflated(text.as_bytes()), 0x40),
                false => (text.clone().into_bytes(), 0),
            };
            let pieces: Vec<&[u8]> = payload.chunks(payload.len().div_ceil(parts + 1).max(1)).collect();
            for (index, piece) in pieces.iter().enumerate() {
                let last = if index + 1 == pieces.len() { 0x80 } else { 0 };
                bytes.extend(frame(if index == 0 { 0x01 | bit } else { 0 } | last, piece));
            }
            if pieces.is_empty() {
                bytes.extend(frame(0x81, b""));
            }
        }
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < bytes.len()).collect();
        cuts.sort_unstable();
        let mut pieces: Vec<Vec<u8>> = cuts.iter().rev().map(|cut| bytes.split_off(*cut)).collect();
        pieces.push(bytes);
        pieces.reverse();
        let (all, _) = block_on(heard_on(wired_deflating(), pieces));
        let expected: Vec<Heard> = texts.into_iter().map(|(text, ..)| Heard::Text(text.into())).collect();
        prop_assert_eq!(all, expected);
    }

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
        let pieces = frames.iter().map(|(first, payload)| frame(first & 0xcf, payload)).collect();
        let _ = block_on(heard_on(wired_deflating(), pieces));
    }
}
