//! Compressed messages, by a client that writes its own frames: whatever the server agrees to it has to do.

use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// A connection after its handshake, and what the server answered to the offer.
struct Wired {
    stream: TcpStream,
    answer: Option<String>,
}

/// A frame of the server's: its first byte, and its payload.
type Frame = (u8, Vec<u8>);

#[expect(clippy::panic, reason = "a client of a test reports by failing it")]
impl Wired {
    async fn open(amalgam: &Amalgam, offer: &str) -> Self {
        let host = amalgam.url().trim_start_matches("http://").to_owned();
        let mut stream = TcpStream::connect(&host).await.expect("it listens");
        let head = format!(
            "GET /v1/responses HTTP/1.1\r\nhost: {host}\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             sec-websocket-extensions: {offer}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("the server reads");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.expect("the server answers"));
        }
        let answer = String::from_utf8(answer).expect("a head is text");
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        let answer = answer.lines().find_map(|line| line.strip_prefix("sec-websocket-extensions: ")).map(str::to_owned);
        Self { stream, answer }
    }

    /// Sends a frame.
    async fn send(&mut self, first: u8, payload: &[u8]) {
        let mask = [7, 1, 8, 2];
        let masked = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
        let mut frame = vec![first];
        match u8::try_from(payload.len()) {
            Ok(short @ 0..126) => frame.push(0x80 | short),
            _ => {
                frame.push(0xff);
                frame.extend((payload.len() as u64).to_be_bytes());
            }
        }
        frame.extend(mask);
        frame.extend(masked);
        // One that has heard enough does not read to the end.
        let _ = self.stream.write_all(&frame).await;
    }

    /// Sends a text deflated, in so many frames.
    async fn say(&mut self, text: &str, frames: usize) {
        let payload = [&*compress_to_vec(text.as_bytes(), 6), &[0]].concat();
        let pieces: Vec<&[u8]> = payload.chunks(payload.len().div_ceil(frames)).collect();
        for (index, piece) in pieces.iter().enumerate() {
            let first = if index == 0 { 0x41 } else { 0x00 };
            let last = if index + 1 == pieces.len() { 0x80 } else { 0x00 };
            self.send(first | last, piece).await;
        }
    }

    async fn frame(&mut self) -> Frame {
        let reading = async {
            let first = self.stream.read_u8().await?;
            let length = match self.stream.read_u8().await? {
                126 => self.stream.read_u16().await?.into(),
                127 => self.stream.read_u64().await?,
                short => short.into(),
            };
            let mut payload = vec![0; usize::try_from(length).expect("a frame fits into memory")];
            self.stream.read_exact(&mut payload).await?;
            Ok::<_, std::io::Error>((first, payload))
        };
        match tokio::time::timeout(4 * SOON, reading).await {
            Ok(Ok(frame)) => frame,
            other => panic!("no frame: {other:?}"),
        }
    }

    /// The events up to the end of a response, each with whether it came deflated.
    async fn events(&mut self) -> Vec<(Value, bool)> {
        let mut events = vec![event_of(self.frame().await)];
        while !events.last().is_some_and(is_last) {
            events.push(event_of(self.frame().await));
        }
        events
    }

    /// The code of the server's farewell.
    async fn closed(&mut self) -> u16 {
        let (first, payload) = self.frame().await;
        assert_eq!(first, 0x88, "{payload:?}");
        u16::from_be_bytes([payload[0], payload[1]])
    }
}

/// The event of a frame, and whether it came deflated.
fn event_of((first, payload): Frame) -> (Value, bool) {
    assert!(matches!(first, 0x81 | 0xc1), "{first:#x} {payload:?}");
    let text = match first == 0xc1 {
        // What every message ends with is not sent.
        true => decompress_to_vec(&[&*payload, &[0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff]].concat())
            .expect("a deflated message"),
        false => payload,
    };
    (serde_json::from_slice(&text).expect("an event is JSON"), first == 0xc1)
}

fn is_last((event, _): &(Value, bool)) -> bool {
    event["type"] == "response.completed"
}

const AGREED: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

#[tokio::test]
async fn a_client_that_compresses_is_understood_and_gets_long_messages_compressed() {
    let world = World::start().await;
    let mut wired = Wired::open(&world.amalgam, "permessage-deflate; client_max_window_bits").await;
    assert_eq!(wired.answer.as_deref(), Some(AGREED));
    let instructions = "Be kind to whoever asks. ".repeat(200);
    for wire in WIRES {
        for (frames, store) in [(1, true), (3, false)] {
            let script = Script::text(&["Ready ", "when ", "you ", "are ☕."]);
            world.upstream(wire).enqueue(script.reply(wire, Delivery::Stream));
            let fields =
                json!({"input": format!("{} end", "Hi ".repeat(5000)), "instructions": instructions, "store": store});
            wired.say(&create(wire, fields).to_string(), frames).await;
            // A sign of life is never compressed.
            wired.send(0x89, b"there?").await;
            let (mut events, mut pongs) = (Vec::new(), Vec::new());
            while pongs.is_empty() || !events.last().is_some_and(is_last) {
                match wired.frame().await {
                    (0x8a, payload) => pongs.push(payload),
                    frame => events.push(event_of(frame)),
                }
            }
            assert_eq!(pongs, [b"there?"]);
            let (events, deflated): (Vec<Value>, Vec<bool>) = events.into_iter().unzip();
            assert_eq!(check::stream(&events), Vec::<String>::new(), "{wire:?}");
            assert_eq!(text_of(&last_response(&events)), "Ready when you are ☕.", "{wire:?}");
            assert_eq!(last_response(&events)["instructions"], json!(instructions));
            // Those that repeat the instructions are long, deltas are not.
            for (event, deflated) in events.iter().zip(deflated) {
                let long = event.get("response").is_some();
                assert_eq!(deflated, long, "{wire:?} {event}");
            }
            assert!(world.sent(wire).to_string().contains("Hi Hi  end"), "{wire:?}");
        }
    }
    // Nothing has to be compressed.
    world.upstream(Wire::Chat).enqueue(says("Plain.").reply(Wire::Chat, Delivery::Stream));
    wired.send(0x81, create(Wire::Chat, json!({"input": "Hi"})).to_string().as_bytes()).await;
    let events: Vec<Value> = wired.events().await.into_iter().map(|(event, _)| event).collect();
    assert_eq!(text_of(&last_response(&events)), "Plain.");
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn what_inflates_without_end_or_not_at_all_ends_the_connection() {
    // P9
    let limits = "[limits]\nbody_bytes = \"64KiB\"\nmedia_bytes = \"0B\"";
    let world = World::with(Setup::new().extra(limits), &[]).await;
    let mut wired = Wired::open(&world.amalgam, "permessage-deflate").await;
    let bomb = [&*compress_to_vec(&vec![b' '; 8 << 20], 6), &[0]].concat();
    assert!(bomb.len() < 10_000, "{}", bomb.len());
    wired.send(0xc1, &bomb).await;
    let (event, _) = event_of(wired.frame().await);
    assert_eq!(told(&event), (413, None, "request_too_large".to_owned()));
    assert_eq!(wired.closed().await, 1009);

    let mut wired = Wired::open(&world.amalgam, "permessage-deflate").await;
    wired.send(0xc1, b"never deflated").await;
    assert_eq!(wired.closed().await, 1007);

    for (offer, first) in [("permessage-deflate", 0xc0), ("permessage-deflate", 0xc9), ("x-other", 0xc1)] {
        let mut wired = Wired::open(&world.amalgam, offer).await;
        assert_eq!(wired.answer.is_some(), offer != "x-other");
        wired.send(first, b"").await;
        assert_eq!(wired.closed().await, 1002, "{offer} {first:#x}");
    }
    assert_calm(&world.amalgam);
}
