//! A server with tools of its own, the HTTP service that they reach, and what the models receive about them.

#![expect(clippy::expect_used, clippy::panic, reason = "the helpers of a test fail by panicking, as the test does")]

use amalgam_testkit::{Client, HttpAnswer, Reply, Setup, Upstream};
use http::Method;
use serde_json::{Value, json};

use super::{Delivery, Said, Script, TestStore, Wire, World, asking, checked_events, last_response};

/// The world, and a service beside it that tools may reach although it is on this machine.
pub(crate) struct Workshop {
    pub(crate) world: World,
    pub(crate) service: Upstream,
}

impl Workshop {
    /// The server on this store, with nothing set that matters.
    pub(crate) async fn on(store: &TestStore) -> Self {
        Self::with(store, setup()).await
    }

    /// The server with this set-up.
    pub(crate) async fn with(store: &TestStore, setup: Setup) -> Self {
        let service = Upstream::start();
        let setup = setup.extra(&format!("[egress]\nallow_private = [\"{}\"]", service.address()));
        Self { world: World::with(store.setup(setup), &[]).await, service }
    }

    pub(crate) fn client(&self) -> Client {
        self.world.amalgam.client()
    }

    /// Puts a tool into the bank that asks the service for `/NAME`; `extra` is said about it besides.
    pub(crate) async fn put(&self, name: &str, extra: Value) {
        let answer = put_tool(&self.client(), name, &self.tool(name, extra)).await;
        assert!(answer.status.is_success(), "{name}: {}", answer.text());
    }

    /// The same, as it is written.
    pub(crate) fn tool(&self, name: &str, extra: Value) -> Value {
        let mut tool = json!({
            "description": format!("Asks for {name}."), "kind": "http",
            "parameters": {
                "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
                "additionalProperties": false,
            },
            "settings": {"method": "POST", "url": format!("{}/{name}", self.service.url()), "body": "arguments"},
        });
        for (key, value) in extra.as_object().expect("fields are an object") {
            tool[key] = value.clone();
        }
        tool
    }

    /// Lets the upstream say these one after the other.
    pub(crate) fn script(&self, wire: Wire, delivery: Delivery, scripts: &[Script]) {
        scripts.iter().for_each(|script| self.world.upstream(wire).enqueue(script.reply(wire, delivery)));
    }

    /// The end of a turn in which the upstream says these one after the other.
    pub(crate) async fn turn(&self, wire: Wire, delivery: Delivery, scripts: &[Script], request: &Value) -> Value {
        self.script(wire, delivery, scripts);
        let answer = self.client().post_json("/v1/responses", &asking(wire, delivery, request)).await;
        let response = response_of(delivery, &answer);
        assert_eq!(self.world.upstream(wire).replies_left(), 0, "{wire:?} {delivery:?}: {response}");
        response
    }

    /// What was written down about a turn.
    pub(crate) async fn turn_record(&self, id: &str) -> Value {
        let answer = self.client().get(&format!("/admin/turns/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// What the upstream received last.
    pub(crate) fn told(&self, wire: Wire) -> Vec<(String, String)> {
        told(&self.world.sent(wire))
    }
}

/// A set-up with one tenant, whose key may administer.
pub(crate) fn setup() -> Setup {
    Setup::new().tenant_key("am_workshop")
}

/// The checked response of a successful answer.
pub(crate) fn response_of(delivery: Delivery, answer: &HttpAnswer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    match delivery {
        Delivery::Whole => {
            let response = answer.json();
            super::assert_fine(amalgam_testkit::check::response(&response), answer);
            response
        }
        Delivery::Stream => last_response(&checked_events(answer)),
    }
}

/// `PUT /admin/tools/{name}`.
pub(crate) async fn put_tool(client: &Client, name: &str, tool: &Value) -> HttpAnswer {
    let headers = [("content-type", "application/json")];
    client.request(Method::PUT, &format!("/admin/tools/{name}"), &headers, tool.to_string().into()).await
}

/// A tool of the bank as a request names it.
pub(crate) fn named(name: &str) -> Value {
    json!({"type": "function", "name": name})
}

/// A model that calls a tool of this name for a city.
pub(crate) fn calls(id: &str, name: &str, city: &str) -> Script {
    Script::new([asks(id, name, city)])
}

/// One call of a tool for a city, in two pieces.
pub(crate) fn asks(id: &str, name: &str, city: &str) -> Said {
    Said::call(id, name, &["{\"city\":", &format!("\"{city}\"}}")])
}

/// What a service answers to everything.
pub(crate) fn says(value: Value) -> Reply {
    Reply::json(value)
}

/// Types, labels, names and outputs of the calls that a response shows, in order; other items by their type alone.
pub(crate) fn shown(response: &Value) -> Vec<String> {
    let items = response["output"].as_array().expect("a response has output").iter();
    items
        .map(|item| match item["type"].as_str().expect("an item has a type") {
            "mcp_call" => {
                let part = |key: &str| item[key].as_str().unwrap_or("-").to_owned();
                format!("{}/{}({}) {}", part("server_label"), part("name"), part("arguments"), part("status"))
            }
            other => other.to_owned(),
        })
        .collect()
}

/// What a model received, on any wire: who says it (`call` and `output` for tools), and what. Every call is followed by
/// its own output, in the order of the calls.
pub(crate) fn told(body: &Value) -> Vec<(String, String)> {
    let mut told = Told::default();
    if let Some(system) = body.get("system").or_else(|| body.get("instructions")).filter(|text| !text.is_null()) {
        told.say("system", system);
    }
    let said = body.get("input").or_else(|| body.get("messages")).expect("a request says something");
    match said.as_array() {
        Some(items) => items.iter().for_each(|item| told.take(item)),
        None => told.say("user", said),
    }
    assert_eq!(told.open, Vec::<String>::new(), "calls without outputs in {body}");
    told.lines
}

#[derive(Default)]
struct Told {
    lines: Vec<(String, String)>,
    /// Ids of calls that wait for their outputs.
    open: Vec<String>,
}

impl Told {
    fn say(&mut self, who: &str, content: &Value) {
        self.lines.push((who.to_owned(), text(content)));
    }

    fn call(&mut self, id: &Value, name: &Value, arguments: &Value) {
        let arguments: Value = match arguments.as_str() {
            Some(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
            None => arguments.clone(),
        };
        self.lines.push(("call".to_owned(), format!("{}{arguments}", name.as_str().expect("a name"))));
        self.open.push(id.as_str().expect("an id").to_owned());
    }

    fn output(&mut self, id: &Value, content: &Value) {
        assert!(!self.open.is_empty(), "{id} has no call");
        assert_eq!(id.as_str(), Some(&*self.open.remove(0)), "outputs are in the order of the calls");
        self.say("output", content);
    }

    fn take(&mut self, item: &Value) {
        match (item["type"].as_str(), item["role"].as_str()) {
            (Some("function_call"), _) => self.call(&item["call_id"], &item["name"], &item["arguments"]),
            (Some("function_call_output"), _) => self.output(&item["call_id"], &item["output"]),
            (_, Some("tool")) => self.output(&item["tool_call_id"], &item["content"]),
            (_, Some(role)) => self.take_message(role, item),
            (kind, _) => self.lines.push((kind.unwrap_or("?").to_owned(), String::new())),
        }
    }

    fn take_message(&mut self, role: &str, message: &Value) {
        match message["content"].as_array() {
            Some(blocks) => {
                for block in blocks {
                    match block["type"].as_str() {
                        Some("tool_use") => self.call(&block["id"], &block["name"], &block["input"]),
                        Some("tool_result") => self.output(&block["tool_use_id"], &block["content"]),
                        Some("thinking") => self.lines.push(("reasoning".to_owned(), String::new())),
                        _ => self.say(role, block),
                    }
                }
            }
            None if message["content"].is_null() => {}
            None => self.say(role, &message["content"]),
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            self.call(&call["id"], &call["function"]["name"], &call["function"]["arguments"]);
        }
    }
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text).collect(),
        Value::Object(part) => text(part.get("text").unwrap_or_else(|| panic!("{content} has no text"))),
        other => other.to_string(),
    }
}
