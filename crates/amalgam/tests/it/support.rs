//! The setup that the tests of the wires share: the real binary, and one scripted upstream for each wire.
//!
//! An upstream's answer is written once, as a [`Script`], and rendered for the wire that a test names. The checkers
//! check every answer before the test sees it, so that a test contains only what is special about it.

mod cli;
mod events;
mod guide;
mod mcp;
mod script;
mod stores;
mod tools;
mod waiting;

use std::time::Duration;

use amalgam_testkit::{Amalgam, HttpAnswer, Setup, Upstream, check, spec};
use serde_json::{Value, json};

pub(crate) use cli::Cli;
pub(crate) use events::{Event, Events};
pub(crate) use guide::document;
pub(crate) use mcp::{MCP_TOOLS, mcp_answer, mcp_requests, serve_mcp};
pub(crate) use script::{Said, Script};
pub(crate) use stores::{TestStore, embedded_store, shared_store, stores};
pub(crate) use tools::{Workshop, asks, calls, named, put_tool, response_of, says, setup, shown, told};
pub(crate) use waiting::{
    Beside, FINAL, beside, cancel, ended, eventually, final_after_a_death, id_of, retrieved, say, standing,
};

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_amalgam");

/// How soon a stall, a cut or a leaving client must have been noticed.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The API of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Chat,
    Responses,
    Anthropic,
}

pub(crate) const WIRES: [Wire; 3] = [Wire::Chat, Wire::Responses, Wire::Anthropic];

/// How an answer is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Whole,
    Stream,
}

pub(crate) const DELIVERIES: [Delivery; 2] = [Delivery::Whole, Delivery::Stream];

impl Wire {
    /// The kind in the configuration, which is also the name of the upstream.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
        }
    }

    /// The name of the one model behind it.
    pub(crate) fn model(self) -> &'static str {
        match self {
            Self::Chat => "m-chat",
            Self::Responses => "m-responses",
            Self::Anthropic => "m-anthropic",
        }
    }
}

/// A running server over three scripted upstreams.
pub(crate) struct World {
    pub(crate) amalgam: Amalgam,
    upstreams: [Upstream; 3],
    setup: Setup,
}

impl World {
    /// The server with nothing set that matters.
    pub(crate) async fn start() -> Self {
        Self::with(Setup::new(), &[]).await
    }

    /// The server with this set-up and these options on each upstream.
    pub(crate) async fn with(setup: Setup, options: &[(&str, &str)]) -> Self {
        Self::behind(setup, options, Upstream::base_url).await
    }

    /// The same, where each upstream is reached at the address that `reach` gives for it.
    pub(crate) async fn behind(
        setup: Setup,
        options: &[(&str, &str)],
        mut reach: impl FnMut(&Upstream) -> String,
    ) -> Self {
        let upstreams = [Upstream::start(), Upstream::start(), Upstream::start()];
        let setup = WIRES.iter().zip(&upstreams).fold(setup, |setup, (wire, upstream)| {
            let setup = setup.upstream(wire.kind(), wire.kind(), &reach(upstream));
            let setup = setup.option("models", &json!([wire.model()]).to_string());
            options.iter().fold(setup, |setup, (key, value)| setup.option(key, value))
        });
        let amalgam = Amalgam::start(BINARY, setup.clone()).await;
        let setup = setup.home(&amalgam.home());
        Self { amalgam, upstreams, setup }
    }

    /// One more process like the first: on the same database, with the same upstreams.
    pub(crate) async fn another(&self) -> Amalgam {
        Amalgam::start(BINARY, self.setup.clone()).await
    }

    /// Starts the process again after its end, on the same data.
    pub(crate) async fn start_again(&mut self) {
        self.amalgam = self.another().await;
    }

    /// The scripted server with this wire.
    pub(crate) fn upstream(&self, wire: Wire) -> &Upstream {
        &self.upstreams[WIRES.iter().position(|one| *one == wire).expect("the list holds every wire")]
    }

    /// The body of the last request that arrived over this wire.
    pub(crate) fn sent(&self, wire: Wire) -> Value {
        self.upstream(wire).requests().last().expect("the upstream was asked").json()
    }

    /// Asks for a whole answer while the upstream says `script`.
    pub(crate) async fn whole(&self, wire: Wire, script: &Script, request: &Value) -> Value {
        let answer = self.ask(wire, Delivery::Whole, script, request).await;
        let response = answer.json();
        assert_fine(check::response(&response), &answer);
        assert_fine(spec::response_violations(&response), &answer);
        response
    }

    /// Asks for a streamed answer while the upstream says `script`.
    pub(crate) async fn streamed(&self, wire: Wire, script: &Script, request: &Value) -> Vec<Value> {
        let answer = self.ask(wire, Delivery::Stream, script, request).await;
        checked_events(&answer)
    }

    /// The final response, delivered either way.
    pub(crate) async fn response(&self, wire: Wire, delivery: Delivery, script: &Script, request: &Value) -> Value {
        match delivery {
            Delivery::Whole => self.whole(wire, script, request).await,
            Delivery::Stream => last_response(&self.streamed(wire, script, request).await),
        }
    }

    /// Asks while the upstream says `script`, and wants status 200.
    pub(crate) async fn ask(&self, wire: Wire, delivery: Delivery, script: &Script, request: &Value) -> HttpAnswer {
        self.upstream(wire).enqueue(script.reply(wire, delivery));
        let answer = self.amalgam.client().post_json("/v1/responses", &asking(wire, delivery, request)).await;
        assert_eq!(answer.status, 200, "{wire:?} {delivery:?}: {}", answer.text());
        answer
    }

    /// Sends a request that must not reach an upstream, and returns the refusal.
    pub(crate) async fn refused(&self, request: &Value) -> HttpAnswer {
        let answer = self.amalgam.client().post_json("/v1/responses", request).await;
        assert_refusal(&answer);
        for wire in WIRES {
            assert_eq!(self.upstream(wire).requests().len(), 0, "{wire:?} was asked: {request}");
        }
        answer
    }
}

/// The request with its model, and `stream` if it is to be streamed.
pub(crate) fn asking(wire: Wire, delivery: Delivery, request: &Value) -> Value {
    let mut request = request.clone();
    request["model"] = json!(wire.model());
    if delivery == Delivery::Stream {
        request["stream"] = json!(true);
    }
    request
}

/// The events of a streamed answer that keeps every rule.
pub(crate) fn checked_events(answer: &HttpAnswer) -> Vec<Value> {
    let content_type = answer.header("content-type").unwrap_or_default();
    assert!(content_type.starts_with("text/event-stream"), "{content_type}: {}", answer.text());
    assert_fine(check::body(&answer.body), answer);
    let events = answer.json_events();
    assert_fine(spec::stream_violations(&events), answer);
    events
}

/// The response inside the terminal event.
pub(crate) fn last_response(events: &[Value]) -> Value {
    events.last().expect("a stream has events")["response"].clone()
}

/// The types of the events, in order.
pub(crate) fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().expect("an event has a type")).collect()
}

/// The output items without the ids that the server made.
pub(crate) fn items(response: &Value) -> Vec<Value> {
    let mut items = response["output"].as_array().expect("a response has output").clone();
    for item in &mut items {
        item.as_object_mut().expect("an item is an object").remove("id");
    }
    items
}

/// The text of all messages of a response.
pub(crate) fn text_of(response: &Value) -> String {
    let items = response["output"].as_array().into_iter().flatten();
    let parts = items.flat_map(|item| item["content"].as_array().into_iter().flatten());
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// Wants a 4xx with an error object that every client can read; returns the object.
pub(crate) fn assert_refusal(answer: &HttpAnswer) -> Value {
    assert!(answer.status.is_client_error(), "{}: {}", answer.status, answer.text());
    error_of(answer)
}

/// The error object of an answer that is not 2xx.
pub(crate) fn error_of(answer: &HttpAnswer) -> Value {
    assert_eq!(answer.header("content-type"), Some("application/json"), "{}", answer.text());
    let envelope = answer.json();
    assert_fine(check::error(&envelope), answer);
    envelope["error"].clone()
}

/// Compares status, `param` and `code` of a refusal.
pub(crate) fn assert_refused(answer: &HttpAnswer, status: u16, param: Option<&str>, code: &str) {
    let error = error_of(answer);
    let found = (answer.status.as_u16(), error["param"].as_str(), error["code"].as_str());
    assert_eq!(found, (status, param, Some(code)), "{error}");
    assert_eq!(error["type"], "invalid_request_error", "{error}");
}

/// Fails with everything that is wrong.
pub(crate) fn assert_fine(problems: Vec<String>, answer: &HttpAnswer) {
    assert!(problems.is_empty(), "{}\nin\n{}", problems.join("\n"), answer.text());
}

/// Fails if the server's log contains a panic.
pub(crate) fn assert_calm(amalgam: &Amalgam) {
    let stderr = amalgam.stderr();
    assert!(!stderr.contains("panic"), "{stderr}");
}
