//! A server for IDE clients: an agent for each wire, with tools that the client runs and one that the server runs, and the
//! scripted models behind them.

#![expect(clippy::panic, reason = "the helpers of a test fail by panicking, as the test does")]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use amalgam_testkit::{Client, Gate, HttpAnswer, Reply, Setup};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::{Delivery, Said, Script, TestStore, WIRES, Wire, World, put_tool, told};

pub(super) const EXECUTE: &str = "/api/agent/execute";
pub(super) const SESSIONS: &str = "/api/agent/sessions";

/// The keys of both tenants. Each may administer its own.
pub(super) const KEY: &str = "am_desk";
pub(super) const OTHER: &str = "am_other";

const TENANTS: &str =
    "[tenants.desk]\nid = 1\nkeys = [\"am_desk\"]\n\n[tenants.other]\nid = 2\nkeys = [\"am_other\"]\n";

/// The prompt of every agent.
pub(super) const PROMPT: &str = "Help the programmer.";

type Play = Box<dyn FnOnce(Delivery) -> Reply + Send>;

/// What a model says next, as a stream or whole.
#[derive(Clone, Default)]
struct Plays(Arc<Mutex<VecDeque<Play>>>);

/// A running server on a store, and what its models will say.
pub(super) struct Desk {
    pub(super) world: World,
    plays: [Plays; 3],
}

impl Desk {
    /// With nothing set that matters.
    pub(super) async fn on(store: &TestStore) -> Self {
        Self::with(store, Setup::new()).await
    }

    /// With this set-up.
    pub(super) async fn with(store: &TestStore, setup: Setup) -> Self {
        let options = [("retries", "0")];
        let desk =
            Self { world: World::with(store.setup(setup.extra(TENANTS)), &options).await, plays: Default::default() };
        for (wire, plays) in WIRES.into_iter().zip(&desk.plays) {
            let plays = plays.clone();
            desk.world.upstream(wire).answer_for(path(wire), move |request| plays.next(&request.json()));
        }
        for key in [KEY, OTHER] {
            desk.furnish(&desk.admin(key)).await;
        }
        desk
    }

    /// Two tools of the client, one of the server, and an agent for each wire that has all three.
    async fn furnish(&self, admin: &Client) {
        let one =
            |field: &str| json!({"type": "object", "properties": {field: {"type": "string"}}, "required": [field]});
        let tools = [
            ("read_file", json!({"kind": "client", "description": "Reads a file.", "parameters": one("path")})),
            ("run_tests", json!({"kind": "client", "description": "Runs tests.", "parameters": one("filter")})),
            (
                "clock",
                json!({"kind": "builtin", "description": "Tells the time.", "settings": {"function": "current_time"}}),
            ),
        ];
        for (name, tool) in tools {
            let answer = put_tool(admin, name, &tool).await;
            assert!(answer.status.is_success(), "{name}: {}", answer.text());
        }
        for wire in WIRES {
            let profile =
                json!({"prompt": PROMPT, "tools": ["read_file", "run_tests", "clock"], "model": wire.model()});
            put(admin, &format!("/admin/profiles/{}", wire.kind()), &profile).await;
        }
    }

    pub(super) fn admin(&self, key: &str) -> Client {
        Client::new(self.world.amalgam.url()).with_key(key)
    }

    /// A user of the first tenant.
    pub(super) fn user(&self, name: &str) -> Client {
        self.admin(KEY).with_header("x-amalgam-user", name)
    }

    /// The same user at another process of the installation.
    pub(super) fn user_at(amalgam: &amalgam_testkit::Amalgam, name: &str) -> Client {
        Client::new(amalgam.url()).with_key(KEY).with_header("x-amalgam-user", name)
    }

    /// The model says these, one after the other.
    pub(super) fn says(&self, wire: Wire, scripts: impl IntoIterator<Item = Script>) {
        for script in scripts {
            self.plays(wire).add(move |delivery| script.reply(wire, delivery));
        }
    }

    /// The model says this, and stops at the gate after its first word.
    pub(super) fn says_behind(&self, wire: Wire, script: Script, gate: &Gate) {
        let gate = gate.clone();
        self.plays(wire).add(move |delivery| {
            let reply = script.reply(wire, delivery);
            match delivery {
                Delivery::Whole => reply.behind(&gate),
                Delivery::Stream => reply.hold_after(frames_to_a_word(wire), &gate),
            }
        });
    }

    /// The model's server answers with this.
    pub(super) fn replies(&self, wire: Wire, reply: Reply) {
        self.plays(wire).add(move |_| reply);
    }

    fn plays(&self, wire: Wire) -> &Plays {
        &self.plays[WIRES.iter().position(|one| *one == wire).expect("the list holds every wire")]
    }

    /// The bodies of all requests to the model so far.
    pub(super) fn asked(&self, wire: Wire) -> Vec<Value> {
        let requests = self.world.upstream(wire).requests();
        requests.iter().filter(|request| request.method == "POST").map(amalgam_testkit::Request::json).collect()
    }

    /// Fails unless the model was asked so often, and said all that it had to say.
    pub(super) fn assert_asked(&self, wire: Wire, times: usize, what: &str) {
        let left = self.plays(wire).0.lock().expect("no task panicked").len();
        assert_eq!((self.asked(wire).len(), left), (times, 0), "{what}: model calls, and answers left over");
    }

    /// Fails if a model was called.
    pub(super) fn assert_silent(&self, what: &str) {
        WIRES.into_iter().for_each(|wire| self.assert_asked(wire, 0, what));
    }
}

impl Plays {
    fn add(&self, play: impl FnOnce(Delivery) -> Reply + Send + 'static) {
        self.0.lock().expect("no task panicked").push_back(Box::new(play));
    }

    fn next(&self, body: &Value) -> Reply {
        let delivery = if body["stream"] == true { Delivery::Stream } else { Delivery::Whole };
        match self.0.lock().expect("no task panicked").pop_front() {
            Some(play) => play(delivery),
            None => Reply::status(400).with_json(json!({"error": {"message": "nothing is left to say"}})),
        }
    }
}

/// Frames of a scripted text up to and with its first word.
fn frames_to_a_word(wire: Wire) -> usize {
    match wire {
        Wire::Chat => 2,
        Wire::Responses => 5,
        Wire::Anthropic => 3,
    }
}

fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::Chat => "/chat/completions",
        Wire::Responses => "/responses",
        Wire::Anthropic => "/messages",
    }
}

/// `PUT`, which has to go well.
pub(super) async fn put(client: &Client, path: &str, body: &Value) {
    let headers = [("content-type", "application/json")];
    let answer = client.request(Method::PUT, path, &headers, body.to_string().into()).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.text());
}

/// Opens a session with the agent of a wire.
pub(super) async fn open(client: &Client, wire: Wire) -> String {
    opened(client, &json!({"AgentContextId": wire.kind()})).await
}

/// Opens a session like this.
pub(super) async fn opened(client: &Client, body: &Value) -> String {
    let answer = client.post_json(SESSIONS, body).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    answer.json()["SessionId"].as_str().expect("a session has an id").to_owned()
}

/// Sends something to be executed.
pub(super) async fn execute(client: &Client, body: &Value) -> HttpAnswer {
    client.post_json(EXECUTE, body).await
}

/// The same with one more header.
pub(super) async fn execute_with(client: &Client, header: (&str, &str), body: &Value) -> HttpAnswer {
    let headers = [("content-type", "application/json"), header];
    client.request(Method::POST, EXECUTE, &headers, Bytes::from(body.to_string())).await
}

/// The envelope of something that is taken.
pub(super) async fn taken(client: &Client, body: &Value) -> Value {
    let answer = execute(client, body).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    let envelope = answer.json();
    assert_envelope(&envelope);
    envelope
}

/// The envelope of something that is refused, with its status, its code and the field and code of each fault.
pub(super) fn refusal(answer: &HttpAnswer) -> (u16, String, Vec<(String, String)>) {
    let envelope = answer.json();
    assert_envelope(&envelope);
    assert_eq!(envelope["Kind"], "error", "{envelope}");
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("a text is missing in {envelope}")).to_owned();
    let errors = envelope["Errors"].as_array().into_iter().flatten();
    let faults = errors.map(|fault| {
        text(&fault["Message"]);
        (text(&fault["Field"]), text(&fault["Code"]))
    });
    (answer.status.as_u16(), text(&envelope["ErrorCode"]), faults.collect())
}

/// Fails unless every field of the envelope is present, has its type, and is consistent with the others. R004-01,
/// R004-02, R004-32
pub(super) fn assert_envelope(envelope: &Value) {
    const FIELDS: [&str; 18] = [
        "Kind",
        "ConversationId",
        "TurnId",
        "AgentContextId",
        "ConversationContextId",
        "ResponseContinuationId",
        "Mode",
        "ModelId",
        "Text",
        "FinishReason",
        "Usage",
        "Sources",
        "FileBundle",
        "Warnings",
        "ErrorCode",
        "ErrorMessage",
        "RawResponseJson",
        "ToolCalls",
    ];
    let object = envelope.as_object().unwrap_or_else(|| panic!("an envelope is an object: {envelope}"));
    let names: Vec<&str> = object.keys().map(String::as_str).filter(|name| *name != "Errors").collect();
    assert_eq!(sorted(names), sorted(FIELDS.to_vec()), "{envelope}");
    let list = |name: &str| envelope[name].as_array().unwrap_or_else(|| panic!("{name} is a list: {envelope}")).len();
    let (calls, _, _) = (list("ToolCalls"), list("Sources"), list("Warnings"));
    let usage = ["PromptTokens", "CompletionTokens", "TotalTokens"];
    assert!(usage.iter().all(|name| envelope["Usage"][name].is_u64()), "{envelope}");
    let expected = match (envelope["ErrorCode"].is_string(), envelope["Text"].is_string(), calls) {
        (true, _, _) => "error",
        (false, false, 0) if envelope["FinishReason"] == "length" => "ok",
        (false, false, 0) => "empty",
        (false, false, _) => "tool-only",
        (false, true, _) => "ok",
    };
    assert_eq!(envelope["Kind"], expected, "{envelope}");
    assert_eq!(envelope["ErrorCode"].is_string(), envelope["ErrorMessage"].is_string(), "{envelope}");
}

fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}

/// A user turn.
pub(super) fn turn(session: &str, turn_id: &str, instruction: &str) -> Value {
    json!({"SessionId": session, "TurnId": turn_id, "Instruction": instruction})
}

/// Results for these calls.
pub(super) fn results(session: &str, turn_id: &str, results: &[(&str, &str)]) -> Value {
    let results: Vec<Value> = results.iter().map(|(id, text)| result(id, text)).collect();
    json!({"SessionId": session, "TurnId": turn_id, "ToolResults": results})
}

/// One result.
pub(super) fn result(call_id: &str, text: &str) -> Value {
    json!({"ToolCallId": call_id, "ExecutionMs": 3, "ResultJson": text})
}

/// A model that wants both tools of the client.
pub(super) fn both() -> Script {
    Script::new([
        Said::call("call_a", "read_file", &["{ \"path\" :", " \"src/é.rs\"}"]),
        Said::call("call_b", "run_tests", &["{\"filter\":\"all\"}"]),
    ])
}

/// A session as its owner sees it.
pub(super) async fn session(client: &Client, id: &str) -> Value {
    let answer = client.get(&format!("{SESSIONS}/{id}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// A turn as its owner sees it.
pub(super) async fn standing(client: &Client, session: &str, turn_id: &str) -> Value {
    let answer = client.get(&format!("{SESSIONS}/{session}/turns/{turn_id}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// The state of a turn, and how many steps it has.
pub(super) async fn status(client: &Client, session: &str, turn_id: &str) -> (String, u64) {
    let turn = standing(client, session, turn_id).await;
    (turn["Status"].as_str().unwrap_or_default().to_owned(), turn["Steps"].as_u64().unwrap_or_default())
}

/// What a model received, with all system messages as one line at the beginning.
pub(super) fn heard(body: &Value) -> Vec<(String, String)> {
    let lines = told(body);
    let systems = lines.iter().take_while(|(who, _)| who == "system").count();
    let system: String = lines[..systems].iter().map(|(_, text)| text.as_str()).collect();
    [("system".to_owned(), system)].into_iter().chain(lines[systems..].iter().cloned()).collect()
}

/// The user's words as the model gets them. R003-25
pub(super) fn words(mode: &str, instruction: &str) -> String {
    format!("[MODE: {mode}]\n\n[INSTRUCTION]\n{instruction}")
}
