//! The dialect `agn003` on every door: the whole conversation in the document's shapes, or the previous id; one system message
//! with the prompt of today; guidance on tools wherever they are offered.

use amalgam_testkit::{Amalgam, Client, Reply, Setup, Upstream};
use http::Method;
use serde_json::{Value, json};

use crate::support::{BINARY, Script, TestStore, WIRES, Wire, World, put_tool, stores, told};

const KEY: &str = "am_literal";
const TENANT: &str = "[tenants.literal]\nid = 1\nkeys = [\"am_literal\"]\n";
const EXECUTE: &str = "/api/agent/execute";
const RESPOND: &str = "/api/v2/ai-agent/respond/";

/// A server over one upstream with this dialect, and an agent whose prompt is `System.`
struct Literal {
    amalgam: Amalgam,
    upstream: Upstream,
}

impl Literal {
    async fn on(store: &TestStore, keeps_state: bool) -> Self {
        let upstream = Upstream::start();
        let setup = Setup::new()
            .upstream("literal", "responses", &upstream.base_url())
            .option("models", "[\"m\"]")
            .option("dialect", "\"agn003\"")
            .option("retries", "0")
            .option("keeps_state", if keeps_state { "true" } else { "false" });
        let amalgam = Amalgam::start(BINARY, store.setup(setup.extra(TENANT))).await;
        let literal = Self { amalgam, upstream };
        literal.agent("System.", &[]).await;
        literal
    }

    fn client(&self) -> Client {
        Client::new(self.amalgam.url()).with_key(KEY)
    }

    async fn agent(&self, prompt: &str, tools: &[&str]) {
        put(&self.client(), "/admin/profiles/coder", &json!({"prompt": prompt, "model": "m", "tools": tools})).await;
    }

    /// The upstream answers with this text under this id.
    fn says(&self, id: &str, text: &str) {
        self.upstream.enqueue(answer(id, text));
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.client().post_json(path, body).await;
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        answer.json()
    }

    /// The last request: its previous id, and the role and texts of each message.
    fn sent(&self) -> (Value, Vec<(String, Vec<String>)>) {
        let body = self.upstream.requests().last().expect("the upstream was asked").json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let messages = body["input"].as_array().expect("the input is a list").iter().map(|message| {
            let parts = message["content"].as_array().expect("the document has lists of parts").iter();
            let parts = parts.inspect(|part| assert_eq!(part["type"], "text", "{body}"));
            (text(&message["role"]), parts.map(|part| text(&part["text"])).collect())
        });
        (body["previous_response_id"].clone(), messages.collect())
    }

    async fn session(&self, mode: &str) -> String {
        let opened = self.post("/api/agent/sessions", &json!({"AgentContextId": "coder", "Mode": mode})).await;
        opened["SessionId"].as_str().expect("a session has an id").to_owned()
    }
}

async fn put(client: &Client, path: &str, body: &Value) {
    let headers = [("content-type", "application/json")];
    let answer = client.request(Method::PUT, path, &headers, body.to_string().into()).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.text());
}

fn answer(id: &str, text: &str) -> Reply {
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    Reply::json(json!({
        "id": id, "object": "response", "created_at": 1, "model": "m-real", "status": "completed",
        "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    }))
}

fn message(role: &str, texts: &[&str]) -> (String, Vec<String>) {
    (role.to_owned(), texts.iter().map(|text| (*text).to_owned()).collect())
}

fn user(mode: &str, instruction: &str) -> (String, Vec<String>) {
    message("user", &[&format!("[MODE: {mode}]\n\n[INSTRUCTION]\n{instruction}")])
}

fn turn(session: &str, turn_id: &str, instruction: &str) -> Value {
    json!({"SessionId": session, "TurnId": turn_id, "Instruction": instruction})
}

// right C1
#[tokio::test]
async fn without_kept_state_every_turn_of_every_door_sends_the_whole_conversation() {
    for store in stores() {
        let literal = Literal::on(&store, false).await;
        ["One.", "Two.", "Three.", "Four.", "Five.", "Six."].into_iter().enumerate().for_each(|(number, text)| {
            literal.says(&format!("up_{number}"), text);
        });
        // The strict contract.
        let session = literal.session("QA").await;
        literal.post(EXECUTE, &turn(&session, "t1", "First")).await;
        literal.post(EXECUTE, &turn(&session, "t2", "Second")).await;
        let (previous, said) = literal.sent();
        assert_eq!(previous, Value::Null, "{}", store.name);
        assert_eq!((said[0].0.as_str(), said[0].1[0].as_str()), ("system", "System."), "{}", store.name);
        let expected = [user("QA", "First"), message("assistant", &["One."]), user("QA", "Second")];
        assert_eq!(said[1..], expected, "{}", store.name);
        // Responses.
        let request = json!({"model": "m", "input": "First", "instructions": "Be brief."});
        let previous = literal.post("/v1/responses", &request).await["id"].clone();
        let request =
            json!({"model": "m", "input": "Second", "instructions": "Be long.", "previous_response_id": previous});
        literal.post("/v1/responses", &request).await;
        let expected = [
            message("system", &["Be long."]),
            user("general", "First"),
            message("assistant", &["Three."]),
            user("general", "Second"),
        ];
        assert_eq!(literal.sent(), (Value::Null, expected.to_vec()), "{}", store.name);
        // The assistant.
        for text in ["First", "Second"] {
            literal.post(RESPOND, &json!({"agent": "coder", "message": text})).await;
        }
        let expected = [
            message("system", &["System."]),
            user("general", "First"),
            message("assistant", &["Five."]),
            user("general", "Second"),
        ];
        assert_eq!(literal.sent(), (Value::Null, expected.to_vec()), "{}", store.name);
    }
}

// right C1
#[tokio::test]
async fn with_kept_state_the_assistant_names_the_previous_answer_too() {
    for store in stores() {
        let literal = Literal::on(&store, true).await;
        let say = async |text: &str| literal.post(RESPOND, &json!({"agent": "coder", "message": text})).await;
        literal.says("up_1", "One.");
        say("First").await;
        literal.says("up_2", "Two.");
        say("Second").await;
        assert_eq!(literal.sent(), (json!("up_1"), vec![user("general", "Second")]), "{}", store.name);
        // What the upstream has forgotten is sent once more in full.
        let gone = json!({"error": {"message": "Response with id 'up_2' not found.", "type": "invalid_request_error"}});
        literal.upstream.enqueue(Reply::json(gone).with_status(404));
        literal.says("up_3", "Three.");
        let asked = literal.upstream.requests().len();
        say("Third").await;
        assert_eq!(literal.upstream.requests().len(), asked + 2, "{}: once more, and no more", store.name);
        let expected = [
            message("system", &["System."]),
            user("general", "First"),
            message("assistant", &["One."]),
            user("general", "Second"),
            message("assistant", &["Two."]),
            user("general", "Third"),
        ];
        assert_eq!(literal.sent(), (Value::Null, expected.to_vec()), "{}", store.name);
        literal.says("up_4", "Four.");
        say("Fourth").await;
        assert_eq!(literal.sent(), (json!("up_3"), vec![user("general", "Fourth")]), "{}", store.name);
        // Another prompt is another system message, which only an initial request has.
        literal.agent("Another.", &[]).await;
        literal.says("up_5", "Five.");
        say("Fifth").await;
        let (previous, said) = literal.sent();
        assert_eq!((previous, said.len(), &said[0]), (Value::Null, 10, &message("system", &["Another."])));
    }
}

// right C1
#[tokio::test]
async fn an_assistants_turn_with_tools_is_continued_by_its_last_answer() {
    for store in stores() {
        let literal = Literal::on(&store, true).await;
        let clock =
            json!({"kind": "builtin", "description": "Tells the time.", "settings": {"function": "current_time"}});
        assert!(put_tool(&literal.client(), "clock", &clock).await.status.is_success());
        literal.agent("System.", &["clock"]).await;
        let call = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "clock", "arguments": "{}", "status": "completed"});
        literal.upstream.enqueue(Reply::json(json!({
            "id": "up_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [call],
        })));
        literal.says("up_2", "Noon.");
        let say = async |text: &str| literal.post(RESPOND, &json!({"agent": "coder", "message": text})).await;
        say("What time is it?").await;
        literal.says("up_3", "Sure.");
        say("Sure?").await;
        assert_eq!(literal.sent(), (json!("up_2"), vec![user("general", "Sure?")]), "{}", store.name);
    }
}

// right C1
#[tokio::test]
async fn a_turn_has_one_system_message_with_the_prompts_of_today() {
    for store in stores() {
        // The dialect: up to three items. R003-14, R003-15, R003-16
        let literal = Literal::on(&store, false).await;
        let client = literal.client();
        let tool = json!({"kind": "client", "description": "Reads.", "parameters": {"type": "object"}, "guidance": "Read first."});
        assert!(put_tool(&client, "read_file", &tool).await.status.is_success());
        let mode = |prompt: &str| json!({"display_name": "Poems", "system_prompt": prompt, "tools": ["read_file"]});
        put(&client, "/admin/modes/POETRY", &mode("Speak in verse.")).await;
        let session = literal.session("POETRY").await;
        literal.says("up_1", "One.");
        literal.post(EXECUTE, &turn(&session, "t1", "First")).await;
        literal.agent("System, again.", &[]).await;
        put(&client, "/admin/modes/POETRY", &mode("Speak in prose.")).await;
        literal.says("up_2", "Two.");
        literal.post(EXECUTE, &turn(&session, "t2", "Second")).await;
        let (_, said) = literal.sent();
        let block = "<<<APTIX_SERVER_TOOL_USAGE_METADATA_BEGIN>>>\n<<<APTIX_TOOL_USAGE_BEGIN name='read_file'>>>\nRead first.\n<<<APTIX_TOOL_USAGE_END name='read_file'>>>\n\n<<<APTIX_SERVER_TOOL_USAGE_METADATA_END>>>\n";
        let expected = [
            message("system", &["System, again.", "Speak in prose.", block]),
            user("POETRY", "First"),
            message("assistant", &["One."]),
            user("POETRY", "Second"),
        ];
        assert_eq!(said, expected, "{}", store.name);
        // Every other wire: the same in one message.
        let world = World::with(store.setup(Setup::new().extra(TENANT)), &[]).await;
        let client = Client::new(world.amalgam.url()).with_key(KEY);
        assert!(put_tool(&client, "read_file", &tool).await.status.is_success());
        for wire in WIRES {
            let agent = |prompt: &str| json!({"prompt": prompt, "model": wire.model()});
            put(&client, "/admin/profiles/coder", &agent("System.")).await;
            put(&client, "/admin/modes/POETRY", &mode("Speak in verse.")).await;
            let opened =
                client.post_json("/api/agent/sessions", &json!({"AgentContextId": "coder", "Mode": "POETRY"})).await;
            let session = opened.json()["SessionId"].as_str().expect("a session has an id").to_owned();
            for (turn_id, text) in [("t1", "First"), ("t2", "Second")] {
                world.upstream(wire).enqueue(Script::text(&["One."]).reply(wire, crate::support::Delivery::Whole));
                let answer = client.post_json(EXECUTE, &turn(&session, turn_id, text)).await;
                assert_eq!(answer.json()["Kind"], "ok", "{wire:?}: {}", answer.text());
                put(&client, "/admin/profiles/coder", &agent("System, again.")).await;
                put(&client, "/admin/modes/POETRY", &mode("Speak in prose.")).await;
            }
            let lines = told(&world.sent(wire));
            let systems: Vec<&str> =
                lines.iter().filter(|(who, _)| who == "system").map(|(_, text)| text.as_str()).collect();
            let [system] = systems.as_slice() else { unreachable!("{wire:?}: one system message in {lines:?}") };
            let places = ["System, again.", "Speak in prose.", "Read first."].map(|text| system.find(text));
            assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{wire:?}: {system}");
            assert!(!system.contains("verse") && !system.contains("System.\n"), "{wire:?}: {system}");
        }
    }
}

// right C8
#[tokio::test]
async fn guidance_on_a_tool_stands_in_the_system_prompt_of_every_door_that_offers_it() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new().extra(TENANT)), &[]).await;
        let client = Client::new(world.amalgam.url()).with_key(KEY);
        let clock = json!({"kind": "builtin", "description": "Tells the time.", "settings": {"function": "current_time"}, "guidance": "Mind the zone."});
        assert!(put_tool(&client, "clock", &clock).await.status.is_success());
        for wire in WIRES {
            let model = wire.model();
            put(&client, "/admin/profiles/guide", &json!({"prompt": "System.", "model": model, "tools": ["clock"]}))
                .await;
            let named = json!([{"type": "function", "name": "clock"}]);
            let opened = client.post_json("/api/agent/sessions", &json!({"AgentContextId": "guide"})).await.json();
            let doors = [
                ("/v1/responses", json!({"model": model, "instructions": "System.", "input": "Hi", "tools": named})),
                ("/v1/responses", json!({"model": "guide", "input": "Hi"})),
                (RESPOND, json!({"agent": "guide", "message": "Hi"})),
                (EXECUTE, turn(opened["SessionId"].as_str().expect("a session has an id"), "t1", "Hi")),
            ];
            for (path, body) in doors {
                world.upstream(wire).enqueue(Script::text(&["Hello."]).reply(wire, crate::support::Delivery::Whole));
                let answer = client.post_json(path, &body).await;
                assert_eq!(answer.status, 200, "{wire:?} {path}: {}", answer.text());
                let lines = told(&world.sent(wire));
                let system: Vec<&str> =
                    lines.iter().filter(|(who, _)| who == "system").map(|(_, text)| text.as_str()).collect();
                assert_eq!(system.len(), 1, "{wire:?} {path}: {lines:?}");
                let places = ["System.", "APTIX_TOOL_USAGE_BEGIN name='clock'", "Mind the zone."]
                    .map(|text| system[0].find(text));
                assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{wire:?} {path}: {}", system[0]);
            }
        }
        // Where it is not offered, nothing is said about it.
        world
            .upstream(Wire::Chat)
            .enqueue(Script::text(&["Hello."]).reply(Wire::Chat, crate::support::Delivery::Whole));
        client.post_json("/v1/responses", &json!({"model": Wire::Chat.model(), "input": "Hi"})).await;
        assert!(!world.sent(Wire::Chat).to_string().contains("Mind the zone."), "{}", store.name);
    }
}

// right C8
#[tokio::test]
async fn a_profile_or_a_mode_names_the_tool_that_is_called_first() {
    // R003-40, C-30
    for store in stores() {
        let literal = Literal::on(&store, false).await;
        let client = literal.client();
        for name in ["read_file", "run_tests"] {
            let tool = json!({"kind": "client", "description": "Works.", "parameters": {"type": "object"}});
            assert!(put_tool(&client, name, &tool).await.status.is_success());
        }
        let profile =
            json!({"prompt": "System.", "model": "m", "tools": ["read_file", "run_tests"], "tool_choice": "read_file"});
        put(&client, "/admin/profiles/coder", &profile).await;
        let mode = json!({"system_prompt": "Test.", "tools": [], "tool_choice": "run_tests"});
        put(&client, "/admin/modes/TESTING", &mode).await;
        for (mode, tool) in [("general", "read_file"), ("TESTING", "run_tests")] {
            let session = literal.session(mode).await;
            let call = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool, "arguments": "{}", "status": "completed"});
            literal.upstream.enqueue(Reply::json(json!({
                "id": "up_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [call],
            })));
            let envelope = literal.post(EXECUTE, &turn(&session, "t1", "Go")).await;
            assert_eq!(envelope["ToolCalls"][0]["Name"], tool, "{envelope}");
            // The document's own shape.
            let sent = literal.upstream.requests().last().expect("it was asked").json();
            assert_eq!(sent["tool_choice"], json!({"type": "tool", "name": tool}), "{} {mode}", store.name);
            // What had to be called was called: the model is free from then on.
            literal.says("up_2", "Done.");
            let result = json!([{"ToolCallId": "call_1", "ExecutionMs": 1, "ResultJson": "{}"}]);
            literal.post(EXECUTE, &json!({"SessionId": session, "TurnId": "t1", "ToolResults": result})).await;
            let sent = literal.upstream.requests().last().expect("it was asked").json();
            assert_eq!(sent.get("tool_choice"), None, "{} {mode}", store.name);
        }
        // A profile as a model: the caller's own choice takes precedence.
        for (choice, expected) in
            [(Value::Null, "read_file"), (json!({"type": "function", "name": "run_tests"}), "run_tests")]
        {
            literal.says("up_3", "Fine.");
            let mut request = json!({"model": "coder", "input": "Go"});
            if !choice.is_null() {
                request["tool_choice"] = choice;
            }
            literal.post("/v1/responses", &request).await;
            let sent = literal.upstream.requests().last().expect("it was asked").json();
            assert_eq!(sent["tool_choice"]["name"], expected, "{}", store.name);
        }
    }
}
