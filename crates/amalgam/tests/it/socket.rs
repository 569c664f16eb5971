//! `/v1/responses` as WebSocket, spoken by a client that is not ours.

mod lifetimes;
mod memory;

use std::time::Duration;

use amalgam_testkit::{Amalgam, Gate, RawConnection, Reply, Setup, check, spec};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest, http},
};

use crate::support::{
    Delivery, SOON, Said, Script, WIRES, Wire, World, assert_calm, error_of, items, last_response, stores, text_of,
    types,
};

/// A client of a socket.
pub(crate) struct Socket(WebSocketStream<RawConnection>);

/// How the server ended a connection, or refused to make it a socket.
type Closed = Option<u16>;

#[expect(clippy::panic, reason = "a client of a test reports by failing it")]
impl Socket {
    /// Opens a socket with the tenant's key, if there is one.
    async fn open(amalgam: &Amalgam) -> Self {
        Self::open_with(amalgam, &[]).await.expect("the server makes a socket of the connection")
    }

    /// The same with more headers; else the refusal.
    pub(crate) async fn open_with(
        amalgam: &Amalgam,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, http::Response<Vec<u8>>> {
        let url = format!("{}/v1/responses", amalgam.url().replace("http://", "ws://"));
        let mut request = url.into_client_request().expect("an address");
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().expect("a header"));
        }
        let stream = amalgam.client().connect().await;
        match client_async(request, stream).await {
            Ok((socket, answer)) => {
                assert!(answer.headers().contains_key("x-request-id"), "{answer:?}");
                Ok(Self(socket))
            }
            Err(Error::Http(answer)) => Err(answer.map(Option::unwrap_or_default)),
            Err(error) => panic!("no handshake: {error}"),
        }
    }

    pub(crate) async fn say(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).await.expect("the server takes a message");
    }

    /// The next event, or the code of a close.
    pub(crate) async fn next(&mut self) -> Result<Value, Closed> {
        loop {
            let heard = tokio::time::timeout(4 * SOON, self.0.next()).await.expect("the server says something");
            match heard {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).expect("an event is JSON")),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(said))) => return Err(said.map(|said| said.code.into())),
                None | Some(Err(_)) => return Err(None),
                Some(Ok(other)) => panic!("{other:?} is no text"),
            }
        }
    }

    pub(crate) async fn event(&mut self) -> Value {
        self.next().await.unwrap_or_else(|code| panic!("the connection ended ({code:?})"))
    }

    async fn event_of_type(&mut self, name: &str) -> Value {
        loop {
            let event = self.event().await;
            if event["type"] == name {
                return event;
            }
        }
    }

    /// The events up to the end of a response; they keep every rule.
    async fn events(&mut self) -> Vec<Value> {
        const LAST: [&str; 3] = ["response.completed", "response.incomplete", "response.failed"];
        let mut events = vec![self.event().await];
        while !events.last().is_some_and(|event| LAST.iter().any(|last| event["type"] == *last)) {
            assert!(events.last().is_some_and(|event| event.get("status").is_none()), "{events:?}");
            events.push(self.event().await);
        }
        let problems = [check::stream(&events), spec::stream_violations(&events)].concat();
        assert!(problems.is_empty(), "{problems:?} in {events:#?}");
        events
    }

    /// Asks for a response and waits for its end.
    async fn respond(&mut self, message: &Value) -> Value {
        self.say(message).await;
        last_response(&self.events().await)
    }

    /// Asks for what cannot be had: status, `param`, `code`.
    async fn refused(&mut self, message: &Value) -> (u64, Option<String>, String) {
        self.say(message).await;
        told(&self.event().await)
    }

    /// How the server ends the connection.
    async fn closed(&mut self) -> Closed {
        loop {
            if let Err(closed) = self.next().await {
                return closed;
            }
        }
    }
}

/// Status, `param` and `code` of an error event with all of its fields.
fn told(event: &Value) -> (u64, Option<String>, String) {
    assert_eq!(event["type"], "error", "{event}");
    assert_eq!(check::error(&json!({"error": event["error"]})), Vec::<String>::new(), "{event}");
    let text = |name: &str| event["error"][name].as_str().map(str::to_owned);
    (event["status"].as_u64().expect("a status"), text("param"), text("code").expect("a code"))
}

fn create(wire: Wire, fields: Value) -> Value {
    let mut message = json!({"type": "response.create", "model": wire.model()});
    for (name, value) in fields.as_object().expect("fields are an object") {
        message[name] = value.clone();
    }
    message
}

fn says(text: &str) -> Script {
    Script::text(&[text])
}

#[tokio::test]
async fn a_response_lives_while_the_upstream_is_silent() {
    // right A2
    let world = World::with(Setup::new().extra("[limits]\nkeepalive = \"150ms\""), &[]).await;
    let mut socket = Socket::open(&world.amalgam).await;
    for wire in WIRES {
        for store in [true, false] {
            let gate = Gate::new();
            world.upstream(wire).enqueue(says("I am.").reply(wire, Delivery::Stream).behind(&gate));
            socket.say(&create(wire, json!({"input": "Are you there?", "store": store}))).await;
            let created = socket.event().await;
            assert_eq!(created["type"], "response.created");
            assert_eq!(socket.event().await["type"], "response.in_progress");
            assert_eq!(socket.event().await["type"], "keepalive");
            gate.open();
            let completed = socket.event_of_type("response.completed").await["response"].clone();
            assert_eq!(text_of(&completed), "I am.");
            // The connection remembers responses that are not stored, also one that continues a stored response.
            world.upstream(wire).enqueue(says("Yes.").reply(wire, Delivery::Stream));
            let more = json!({"input": "Still?", "previous_response_id": completed["id"], "store": store});
            assert_eq!(text_of(&socket.respond(&create(wire, more)).await), "Yes.");
            assert!(world.sent(wire).to_string().contains("I am."), "{wire:?} {store}");
        }
        let gate = Gate::new();
        world.upstream(wire).enqueue(Reply::status(400).behind(&gate));
        socket.say(&create(wire, json!({"input": "Are you there?"}))).await;
        assert_eq!(socket.event().await["type"], "response.created");
        gate.open();
        socket.event_of_type("error").await;
        assert_eq!(socket.event().await["type"], "response.failed");
    }
}

#[tokio::test]
async fn responses_follow_one_another_as_the_events_that_a_stream_has() {
    let world = World::start().await;
    let mut socket = Socket::open(&world.amalgam).await;
    for wire in WIRES {
        let script = Script::text(&["Ready ", "when ", "you ", "are ☕."]);
        let streamed = world.streamed(wire, &script, &json!({"input": "Hi"})).await;
        for store in [true, false] {
            world.upstream(wire).enqueue(script.reply(wire, Delivery::Stream));
            // What only makes sense over HTTP is passed by.
            let fields = json!({"input": "Hi", "store": store, "stream": false, "stream_options": {"x": 1}, "background": false});
            socket.say(&create(wire, fields)).await;
            let events = socket.events().await;
            assert_eq!(types(&events), types(&streamed), "{wire:?}");
            let response = last_response(&events);
            assert_eq!(items(&response), items(&last_response(&streamed)));
            assert_eq!((response["store"].as_bool(), &response["status"]), (Some(store), &json!("completed")));
            let id = response["id"].as_str().unwrap();
            let kept = world.amalgam.client().get(&format!("/v1/responses/{id}")).await;
            assert_eq!(kept.status, if store { 200 } else { 404 });
        }
        for name in ["type", "background", "generate"] {
            assert!(world.sent(wire).get(name).is_none(), "{wire:?} was told `{name}`");
        }
    }
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn a_tool_loop_needs_only_what_is_new() {
    let world = World::start().await;
    let tools = json!([{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": false}]);
    for wire in WIRES {
        let mut socket = Socket::open(&world.amalgam).await;
        let call = Script::new([Said::call("call_1", "look", &["{}"])]);
        world.upstream(wire).enqueue(call.reply(wire, Delivery::Stream));
        let first = socket.respond(&create(wire, json!({"input": "Look!", "store": false, "tools": tools}))).await;
        world.upstream(wire).enqueue(says("A cat.").reply(wire, Delivery::Stream));
        let output = json!([{"type": "function_call_output", "call_id": "call_1", "output": "a cat"}]);
        let fields = json!({"input": output, "store": false, "tools": tools, "previous_response_id": first["id"]});
        let second = socket.respond(&create(wire, fields)).await;
        assert_eq!(text_of(&second), "A cat.", "{wire:?}");
        let sent = world.sent(wire).to_string();
        assert!(sent.contains("Look!") && sent.contains("call_1") && sent.contains("a cat"), "{sent}");
        // An output without its call is refused, as it is where the chain is stored.
        let stray = json!([{"type": "function_call_output", "call_id": "call_9", "output": "?"}]);
        let fields = json!({"input": stray, "store": false, "previous_response_id": second["id"]});
        let expected = (400, Some("input[0]".to_owned()), "tool_call_not_found".to_owned());
        assert_eq!(socket.refused(&create(wire, fields)).await, expected);
    }
}

#[tokio::test]
async fn what_is_wrong_is_told_and_the_connection_goes_on() {
    // P9
    let world = World::start().await;
    let mut socket = Socket::open(&world.amalgam).await;
    let wire = Wire::Chat;
    let cases = [
        (json!("text"), 400, None, "invalid_type"),
        (json!({}), 400, Some("type"), "missing_required_parameter"),
        (json!({"type": "conversation.item.create"}), 400, Some("type"), "invalid_value"),
        (json!({"type": "response.create", "input": "Hi"}), 400, Some("model"), "missing_required_parameter"),
        (json!({"type": "response.create", "model": "unknown", "input": "Hi"}), 404, Some("model"), "model_not_found"),
        (create(wire, json!({})), 400, Some("input"), "missing_required_parameter"),
        (create(wire, json!({"input": "Hi", "background": true})), 400, Some("background"), "unsupported_parameter"),
        (
            create(wire, json!({"input": [{"type": "message"}]})),
            400,
            Some("input[0].role"),
            "missing_required_parameter",
        ),
        (create(wire, json!({"input": "Hi", "temperature": 7})), 400, Some("temperature"), "invalid_value"),
        (
            create(wire, json!({"input": "Hi", "previous_response_id": "resp_none"})),
            400,
            Some("previous_response_id"),
            "previous_response_not_found",
        ),
    ];
    for (message, status, param, code) in cases {
        assert_eq!(socket.refused(&message).await, (status, param.map(str::to_owned), code.to_owned()), "{message}");
    }
    socket.0.send(Message::text("{\"type\":")).await.unwrap();
    assert_eq!(told(&socket.event().await), (400, None, "invalid_json".to_owned()));
    assert!(world.upstream(wire).requests().is_empty());
    world.upstream(wire).enqueue(says("Fine.").reply(wire, Delivery::Stream));
    assert_eq!(text_of(&socket.respond(&create(wire, json!({"input": "Hi"}))).await), "Fine.");
    // A refusal of an upstream has the same shape.
    let too_long = json!({"error": {"message": "too long", "code": "context_length_exceeded"}});
    world.upstream(wire).enqueue(Reply::status(400).with_json(too_long));
    let (status, _, code) = socket.refused(&create(wire, json!({"input": "Hi"}))).await;
    assert_eq!((status, code.as_str()), (400, "context_length_exceeded"));
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn strict_mode_is_asked_for_once_and_holds_for_every_response() {
    let world = World::start().await;
    let mut socket = Socket::open_with(&world.amalgam, &[("amalgam-strict", "true")]).await.expect("a socket");
    let fields = json!({"input": "Hi", "tools": [{"type": "web_search"}]});
    let (status, param, _) = socket.refused(&create(Wire::Chat, fields.clone())).await;
    assert_eq!((status, param.as_deref()), (400, Some("tools[0]")));
    // Without it the loss is in the log: a WebSocket has no headers for it.
    let mut socket = Socket::open(&world.amalgam).await;
    world.upstream(Wire::Chat).enqueue(says("Fine.").reply(Wire::Chat, Delivery::Stream));
    socket.respond(&create(Wire::Chat, fields)).await;
    world.amalgam.wait_for_stderr("not everything was carried over").await;
}

#[tokio::test]
async fn a_lane_is_repeated_in_every_event_about_it() {
    let world = World::start().await;
    let mut socket = Socket::open(&world.amalgam).await;
    world.upstream(Wire::Chat).enqueue(says("Fine.").reply(Wire::Chat, Delivery::Stream));
    socket.say(&create(Wire::Chat, json!({"input": "Hi", "stream_id": "left \"lane\""}))).await;
    loop {
        let event = socket.event().await;
        assert_eq!(event["stream_id"], "left \"lane\"", "{event}");
        if event["type"] == "response.completed" {
            break;
        }
    }
    assert!(world.sent(Wire::Chat).get("stream_id").is_none());
    world.upstream(Wire::Chat).enqueue(says("Fine.").reply(Wire::Chat, Delivery::Stream));
    socket.say(&create(Wire::Chat, json!({"input": "Hi"}))).await;
    assert!(socket.events().await.iter().all(|event| event.get("stream_id").is_none()));
}

#[tokio::test]
async fn no_caller_gets_a_socket_without_a_key() {
    // S19
    let world = World::with(Setup::new().tenant_key("am_a_key"), &[]).await;
    for headers in [&[][..], &[("authorization", "Bearer am_wrong")]] {
        let answer = Socket::open_with(&world.amalgam, headers).await.err().expect("a refusal");
        assert_eq!(answer.status(), 401);
        let body: Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!(body["error"]["code"], "invalid_api_key");
    }
    let mut socket =
        Socket::open_with(&world.amalgam, &[("authorization", "Bearer am_a_key")]).await.expect("a socket");
    world.upstream(Wire::Chat).enqueue(says("Fine.").reply(Wire::Chat, Delivery::Stream));
    socket.respond(&create(Wire::Chat, json!({"input": "Hi"}))).await;
    // Compression is offered by many clients and declined, which is no error.
    let headers = [("authorization", "Bearer am_a_key"), ("sec-websocket-extensions", "permessage-deflate")];
    Socket::open_with(&world.amalgam, &headers).await.expect("a socket");
}

#[tokio::test]
async fn a_get_with_another_upgrade_is_told_how_to_get_a_socket() {
    let world = World::start().await;
    let answer = world.amalgam.client().with_header("upgrade", "h2c").get("/v1/responses").await;
    assert_eq!(answer.status, 426);
    assert_eq!(error_of(&answer)["code"], "upgrade_required");
    assert_eq!((answer.header("upgrade"), answer.header("sec-websocket-version")), (Some("websocket"), Some("13")));
    // S20: a page of another origin cannot use the open server of this machine.
    let answer = Socket::open_with(&world.amalgam, &[("origin", "https://evil.example")]).await.err().unwrap();
    assert_eq!(answer.status(), 403);
}
