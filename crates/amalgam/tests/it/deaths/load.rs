//! Callers of every kind, which record what the server acknowledged, and the checks that it is still there.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use amalgam_testkit::{Client, Upstream, check};
use http::Method;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet};

use crate::support::{Delivery, FINAL, Said, Script, Wire, asking, final_after_a_death, named};

/// Callers at once, of every kind.
const CALLERS: usize = 2;

/// A tool of the bank.
pub(crate) const TOOL: &str = "current_time";

/// Between two looks at what has not ended.
pub(crate) const LOOK: Duration = Duration::from_millis(150);

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Whole,
    Stream,
    Background,
    BackgroundStream,
    KeyedWhole,
    KeyedStream,
    /// Two model calls with a tool's call between them.
    ToolRound,
    Unstored,
}

const KINDS: [Kind; 8] = [
    Kind::Whole,
    Kind::Stream,
    Kind::Background,
    Kind::BackgroundStream,
    Kind::KeyedWhole,
    Kind::KeyedStream,
    Kind::ToolRound,
    Kind::Unstored,
];

/// What a caller has of one request.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    kind: Kind,
    /// A text that only this request contains.
    marker: String,
    /// The response's id, once it was seen.
    id: Option<String>,
    /// The response as it was acknowledged.
    told: Option<Value>,
}

impl Kind {
    fn delivery(self) -> Delivery {
        match self {
            Self::Whole | Self::Background | Self::KeyedWhole | Self::ToolRound | Self::Unstored => Delivery::Whole,
            Self::Stream | Self::BackgroundStream | Self::KeyedStream => Delivery::Stream,
        }
    }

    fn is_background(self) -> bool {
        matches!(self, Self::Background | Self::BackgroundStream)
    }

    fn is_keyed(self) -> bool {
        matches!(self, Self::KeyedWhole | Self::KeyedStream)
    }

    /// How often a model is called for its answer.
    fn calls(self) -> usize {
        if self == Self::ToolRound { 2 } else { 1 }
    }

    /// Whole answers come from one upstream and streams from the other, since each of them has one thing to say.
    fn wire(self) -> Wire {
        match self.delivery() {
            Delivery::Whole => Wire::Chat,
            Delivery::Stream => Wire::Responses,
        }
    }
}

/// Makes the upstreams answer every request, slowly. A request with a tool gets a call of it first.
pub(crate) fn prepare(whole: &Upstream, streamed: &Upstream) {
    let script = Script::text(&["All ", "is ", "well", "."]);
    let text = script.clone();
    whole.answer_for("/chat/completions", move |request| {
        let body = request.json();
        let has_output = |message: &Value| message["role"] == "tool";
        let is_answered = body["messages"].as_array().is_some_and(|messages| messages.iter().any(has_output));
        let script = match body["tools"].is_array() && !is_answered {
            true => Script::new([Said::call("call_1", TOOL, &["{}"])]),
            false => text.clone(),
        };
        script.reply(Wire::Chat, Delivery::Whole).after(Duration::from_millis(25))
    });
    let stream = script.reply(Wire::Responses, Delivery::Stream);
    let stream = [9, 7, 5, 3].into_iter().fold(stream, |reply, at| reply.stall_after(at, Duration::from_millis(12)));
    streamed.from_now_on(stream);
}

/// Callers that send requests until they are stopped or the server has ended. Returns everything that was acknowledged.
pub(crate) async fn load(client: &Client, cycle: usize, stop: watch::Receiver<bool>) -> Vec<Promise> {
    let mut callers = JoinSet::new();
    for (number, kind) in KINDS.into_iter().cycle().take(KINDS.len() * CALLERS).enumerate() {
        let (client, stop) = (client.clone(), stop.clone());
        callers.spawn(async move {
            let mut promises = Vec::new();
            let mut turn = 0;
            while !*stop.borrow() {
                let mut promise = Promise { kind, marker: format!("<{cycle}-{number}-{turn}>"), id: None, told: None };
                let answered = promise.ask(&client).await;
                promises.push(promise);
                if answered.is_err() {
                    break;
                }
                turn += 1;
            }
            promises
        });
    }
    callers.join_all().await.into_iter().flatten().collect()
}

impl Promise {
    pub(crate) fn is_background(&self) -> bool {
        self.kind.is_background()
    }

    pub(crate) fn is_unstored(&self) -> bool {
        self.kind == Kind::Unstored
    }

    /// Asks, and writes down what comes of it. An error means that the server is gone.
    async fn ask(&mut self, client: &Client) -> Result<(), String> {
        let mut request = asking(self.kind.wire(), self.kind.delivery(), &json!({"input": self.marker}));
        if self.kind.is_background() {
            request["background"] = json!(true);
        }
        match self.kind {
            Kind::ToolRound => request["tools"] = json!([named(TOOL)]),
            Kind::Unstored => request["store"] = json!(false),
            _ => {}
        }
        let mut headers = vec![("content-type", "application/json")];
        if self.kind.is_keyed() {
            headers.push(("idempotency-key", &self.marker));
        }
        let mut stream = client.try_stream(Method::POST, "/v1/responses", &headers, request.to_string().into()).await?;
        if stream.status != 200 {
            // A server that is full, or whose store is away, promises nothing.
            assert!(matches!(stream.status.as_u16(), 429 | 503), "{self:?}: {}", stream.status);
            tokio::time::sleep(Duration::from_millis(20)).await;
            return Ok(());
        }
        if self.kind.delivery() == Delivery::Whole {
            let answer = stream.try_into_answer().await?;
            let response = answer.json();
            if self.kind == Kind::Unstored {
                assert_eq!(response["status"], "completed", "{self:?}: {response}");
                return Ok(());
            }
            self.id = response["id"].as_str().map(ToOwned::to_owned);
            self.told = (!self.kind.is_background()).then_some(response);
            return Ok(());
        }
        let mut events: Vec<Value> = Vec::new();
        loop {
            let event = stream.try_next_event().await?.expect("a stream that ends in order ends with [DONE]");
            if event.is_done() {
                assert_eq!(check::stream(&events), Vec::<String>::new(), "{self:?}");
                return Ok(());
            }
            let event = event.json();
            if let Some(id) = event["response"]["id"].as_str() {
                self.id = Some(id.to_owned());
            }
            if matches!(event["type"].as_str(), Some("response.completed" | "response.failed")) {
                self.told = Some(event["response"].clone());
            }
            events.push(event);
        }
    }
}

/// How often each marker was asked of a model.
pub(crate) struct Calls {
    counts: HashMap<String, usize>,
    read: [usize; 2],
}

impl Calls {
    pub(crate) fn new() -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { counts: HashMap::new(), read: [0; 2] }))
    }

    /// Counts what has come since the last time.
    pub(crate) fn count(&mut self, upstreams: [&Upstream; 2]) {
        for (upstream, read) in upstreams.into_iter().zip(&mut self.read) {
            let requests = upstream.requests_from(*read);
            *read += requests.len();
            for request in requests {
                let body = String::from_utf8_lossy(&request.body).into_owned();
                // Descriptions of tools may have such characters too.
                let is_marker = |text: &&str| text.chars().all(|char| char.is_ascii_digit() || char == '-');
                let parts = body.split('<').filter_map(|part| part.split_once('>'));
                if let Some(marker) = parts.map(|(marker, _)| marker).find(is_marker) {
                    *self.counts.entry(format!("<{marker}>")).or_default() += 1;
                }
            }
        }
    }

    /// All calls that the upstreams have received.
    pub(crate) fn served(&self) -> usize {
        self.read.iter().sum()
    }

    fn of(&self, marker: &str) -> usize {
        self.counts.get(marker).copied().unwrap_or_default()
    }
}

/// Checks that everything that was acknowledged is stored, and that everything that began has ended. `in_hand` is the
/// time for which the current processes have owned their turns, if there are several: a waiting turn is taken by
/// another process, which may die as well.
pub(crate) async fn settle(
    client: &Client,
    promises: &[Promise],
    killed: Instant,
    in_hand: impl Fn() -> Option<HashMap<String, Duration>>,
) -> Vec<(Promise, Value)> {
    let mut open: Vec<&Promise> = promises.iter().filter(|promise| promise.id.is_some()).collect();
    let mut settled = Vec::new();
    while !open.is_empty() {
        let mut left = Vec::new();
        for promise in open {
            let id = promise.id.as_deref().expect("these have one");
            let answer = client.get(&format!("/v1/responses/{id}")).await;
            assert_eq!(answer.status, 200, "{promise:?} is lost: {}", answer.text());
            let response = answer.json();
            match response["status"].as_str() {
                Some("queued" | "in_progress") => left.push(promise),
                _ => settled.push((promise.clone(), response)),
            }
        }
        open = left;
        if !open.is_empty() {
            // P3
            let passed = killed.elapsed();
            if passed >= final_after_a_death() {
                let in_hand = in_hand();
                let late = open.iter().filter(|promise| match (&in_hand, &promise.id) {
                    (Some(in_hand), Some(id)) => in_hand.get(id).is_some_and(|since| *since >= final_after_a_death()),
                    _ => true,
                });
                let late: Vec<_> = late.collect();
                assert!(late.is_empty(), "{passed:?} after the death these have not ended: {late:#?} {in_hand:#?}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    settled
}

/// What has to be true of responses that have ended.
pub(crate) fn assert_kept(settled: &[(Promise, Value)], calls: &Calls) {
    for (promise, response) in settled {
        let status = response["status"].as_str().unwrap_or_default();
        // P1, P5: what was sent is what is stored.
        if let Some(told) = &promise.told {
            assert_eq!(response, told, "{promise:?}");
        }
        assert!(matches!(status, "completed" | "failed"), "{promise:?}: {response}");
        if status == "failed" {
            let message = response["error"]["message"].as_str().unwrap_or_default();
            assert!(!message.is_empty() && response["error"]["code"].is_string(), "{promise:?}: {response}");
            assert_eq!(response["output"], json!([]), "{promise:?}");
        }
        // P4: nothing runs twice, also if a process died in between.
        let asked = calls.of(&promise.marker);
        let calls = promise.kind.calls();
        assert!(asked <= calls, "{promise:?} was asked {asked} times");
        assert!(status == "failed" || asked == calls, "{promise:?} was answered, and asked {asked} times");
    }
}

/// Sends everything under a key again: what was answered is answered the same without another call, what was not is done now.
pub(crate) async fn repeat(client: &Client, promises: &[Promise]) -> Vec<Promise> {
    let mut again = Vec::new();
    for promise in promises.iter().filter(|promise| promise.kind.is_keyed()) {
        let mut repeated = Promise { id: None, told: None, ..promise.clone() };
        let started = Instant::now();
        loop {
            repeated.ask(client).await.expect("this server stays");
            let completed = repeated.told.as_ref().is_some_and(|told| told["status"] == "completed");
            if completed {
                break;
            }
            // A stream under the key of a dead process is replayed to its failure first.
            assert!(started.elapsed() < FINAL * 2, "{repeated:?} does not get through");
        }
        if promise.told.as_ref().is_some_and(|told| told["status"] == "completed") {
            assert_eq!(repeated.told, promise.told, "another answer under the same key");
        }
        again.push(repeated);
    }
    again
}

/// What has to be true of the calls for requests under a key.
pub(crate) fn assert_once(promises: &[Promise], calls: &Calls) {
    for promise in promises.iter().filter(|promise| promise.kind.is_keyed()) {
        let asked = calls.of(&promise.marker);
        // A request that died with its process is sent upstream once more, because its answer is lost.
        let most = if promise.told.as_ref().is_some_and(|told| told["status"] == "completed") { 1 } else { 2 };
        assert!((1..=most).contains(&asked), "{promise:?} was asked {asked} times");
    }
}
