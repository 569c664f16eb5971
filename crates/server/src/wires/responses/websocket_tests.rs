//! A WebSocket without a model: what it refuses, and when it ends. Time is paused.

use amalgam_core::TenantState;
use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    task::JoinSet,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use super::*;
use crate::testing::{self, KEY};

/// A client, and the connection that it talks to.
struct Talk {
    client: WebSocketStream<DuplexStream>,
    drain: watch::Sender<bool>,
    served: JoinSet<()>,
}

impl Talk {
    async fn begin() -> Self {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (drain, draining) = watch::channel(false);
        let (asked, ()) =
            http::Request::builder().header("authorization", format!("Bearer {KEY}")).body(()).unwrap().into_parts();
        let served = serve(testing::app(TenantState::Stored), asked, ours, draining);
        let client = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
        Self { client, drain, served: JoinSet::from_iter([served]) }
    }

    async fn say(&mut self, message: Value) {
        self.client.send(Message::text(message.to_string())).await.unwrap();
    }

    /// Sends a frame with exactly this payload; its mask changes nothing.
    async fn say_in_frame(&mut self, first: u8, payload: &[u8]) {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        let frame = [&[first, 0xfe], &length[..], &[0; 4], payload].concat();
        self.client.get_mut().write_all(&frame).await.unwrap();
    }

    /// The next event.
    async fn event(&mut self) -> Value {
        loop {
            match self.client.next().await.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) => {}
                other => panic!("{other:?} instead of an event"),
            }
        }
    }

    /// Status and code of the next event, which is an error.
    async fn refusal(&mut self) -> (u64, String) {
        let event = self.event().await;
        assert_eq!(event["type"], "error", "{event}");
        (event["status"].as_u64().unwrap(), event["error"]["code"].as_str().unwrap().to_owned())
    }

    /// The code that the server closes with; all its tasks have ended then.
    async fn closed(mut self) -> u16 {
        let code = loop {
            match self.client.next().await {
                Some(Ok(Message::Close(said))) => break said.unwrap().code.into(),
                Some(Ok(Message::Ping(_))) => {}
                other => panic!("{other:?} instead of a close"),
            }
        };
        // Reading on sends the answer.
        while let Some(Ok(_)) = self.client.next().await {}
        self.served.join_next().await.unwrap().unwrap();
        code
    }
}

fn create() -> Value {
    json!({"type": "response.create", "model": "none", "input": "hi"})
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_leaves_the_connection_open() {
    let mut talk = Talk::begin().await;
    talk.client.send(Message::text("{")).await.unwrap();
    assert_eq!(talk.refusal().await, (400, "invalid_json".into()));
    talk.say(json!({"type": "session.update"})).await;
    assert_eq!(talk.refusal().await, (400, "invalid_value".into()));
    talk.say(create()).await;
    assert_eq!(talk.refusal().await, (404, "model_not_found".into()));
    talk.say(json!({"type": "response.create", "model": "none", "stream_id": "left"})).await;
    let event = talk.event().await;
    assert_eq!((&event["stream_id"], &event["error"]["code"]), (&json!("left"), &json!("missing_required_parameter")));
    talk.client.close(None).await.unwrap();
    assert!(talk.client.next().await.is_some_and(|last| last.is_ok()));
    talk.served.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_binary_message_is_an_error_and_the_end() {
    let mut talk = Talk::begin().await;
    talk.client.send(Message::binary(vec![0, 1, 2])).await.unwrap();
    assert_eq!(talk.refusal().await, (415, "unsupported_media_type".into()));
    assert_eq!(talk.closed().await, 1003);
}

#[tokio::test(start_paused = true)]
async fn a_message_beyond_the_limit_is_an_error_and_the_end() {
    let mut talk = Talk::begin().await;
    talk.client.send(Message::text("x".repeat(6000))).await.unwrap();
    assert_eq!(talk.refusal().await, (413, "request_too_large".into()));
    assert_eq!(talk.closed().await, 1009);
}

#[tokio::test(start_paused = true)]
async fn a_compressed_message_is_the_end_since_nothing_was_agreed_on() {
    let mut talk = Talk::begin().await;
    talk.say_in_frame(0xc1, &[0xff; 200]).await;
    assert_eq!(talk.closed().await, 1002);
}

#[tokio::test(start_paused = true)]
async fn after_sixty_minutes_a_connection_ends() {
    let mut talk = Talk::begin().await;
    let begun_at = Instant::now();
    assert_eq!(talk.refusal().await, (400, "websocket_connection_limit_reached".into()));
    assert_eq!(begun_at.elapsed().as_secs(), 60 * 60);
    assert_eq!(talk.closed().await, 1001);
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_sign_of_life_is_given_up() {
    // P8
    let mut talk = Talk::begin().await;
    let begun_at = Instant::now();
    talk.served.join_next().await.unwrap().unwrap();
    // right E3: pinged after 15 seconds, given up after 15 more; the close waits a moment for its answer.
    assert!((30..=32).contains(&begun_at.elapsed().as_secs()), "{:?}", begun_at.elapsed());
    let mut told = Vec::new();
    talk.client.get_mut().read_to_end(&mut told).await.unwrap();
    assert!(told.starts_with(&[0x89, 0, 0x88]) && told.ends_with(b"a ping was not answered in time"), "{told:?}");
}

// right E3
#[tokio::test(start_paused = true)]
async fn a_client_that_answers_pings_stays() {
    let mut talk = Talk::begin().await;
    // A client that reads answers pings by itself.
    let mut pings = 0;
    while pings < 20 {
        let heard = tokio::time::timeout(Duration::from_secs(600), talk.client.next()).await.unwrap();
        assert_eq!(heard.unwrap().unwrap(), Message::Ping("".into()));
        pings += 1;
    }
    assert_eq!(pings, 20);
    // The connection still reads. By now the server asks the store for the caller, and the store has no tenant.
    talk.say(create()).await;
    assert_eq!(talk.refusal().await, (401, "invalid_api_key".into()));
}

#[tokio::test(start_paused = true)]
async fn a_drain_closes_a_connection_that_waits() {
    let talk = Talk::begin().await;
    talk.drain.send_replace(true);
    assert_eq!(talk.closed().await, 1001);
}

#[tokio::test(start_paused = true)]
async fn who_asks_is_found_out_again_for_every_response() {
    let mut talk = Talk::begin().await;
    talk.say(create()).await;
    assert_eq!(talk.refusal().await, (404, "model_not_found".into()));
    // By then the server asks the store for the caller, and the store has no tenant.
    tokio::time::sleep(Duration::from_secs(10)).await;
    talk.say(create()).await;
    assert_eq!(talk.refusal().await, (401, "invalid_api_key".into()));
    assert_eq!(talk.closed().await, 1008);
}
