//! What belongs to one caller looks to every other one exactly as if it did not exist.
//!
//! The routes come from the server's own table: a route with an id that this test does not know makes it fail.

use amalgam_server::{ROUTES, RouteInfo};
use amalgam_testkit::{Client, HttpAnswer, Setup};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::{
    socket::Socket,
    support::{Cli, Delivery, Said, Script, TestStore, Wire, World, asking, stores},
};

const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n\n[egress]\nallow_private = [\"127.0.0.1:1\"]\n";

/// What the first user of the first tenant has.
struct Owned {
    response: String,
    item: String,
    conversation: String,
    conversation_item: String,
    file: String,
    tenant: String,
    key: String,
    tool: String,
    approval: String,
    profile: String,
    mode: String,
    session: String,
    /// The response of a turn of the assistant.
    answer: String,
    collection: String,
    /// A session of the strict contract, and a turn in it.
    agent_session: String,
    turn: String,
    /// A webhook endpoint, and a delivery to it.
    endpoint: String,
    delivery: String,
    /// A browser session of the console.
    console_session: String,
}

/// A course of the owner, and a learner with values of it.
const COURSE: &str = "77";
const LEARNER: &str = "secret-learner";

/// Ids of the same form that nothing has.
fn missing() -> Owned {
    Owned {
        response: "resp_AM-1760000000000-aaaaaaaaaaaaaaaaaaaaaaaa".to_owned(),
        item: "msg_AM-aaaaaaaaaaaaaaaaaaaaaaaa".to_owned(),
        conversation: "conv_AM-aaaaaaaaaaaaaaaaaaaaaaaa".to_owned(),
        conversation_item: "msg_AM-bbbbbbbbbbbbbbbbbbbbbbbb".to_owned(),
        file: "file_AM-aaaaaaaaaaaaaaaaaaaaaaaa".to_owned(),
        tenant: "77".to_owned(),
        key: "key_AM-aaaaaaaaaaaaaaaaaaaaaaaa".to_owned(),
        tool: "absent_tool".to_owned(),
        approval: "mcpr_AM-aaaaaaaaaaaaaaaaaaaaaaaa".to_owned(),
        profile: "absent-profile".to_owned(),
        mode: "absent-mode".to_owned(),
        session: "7".to_owned(),
        answer: "resp_AM-1760000000000-bbbbbbbbbbbbbbbbbbbbbbbb".to_owned(),
        collection: "absent-collection".to_owned(),
        agent_session: "sess_AM-aaaaaaaaaaaaaaaaaaaaaaaa".to_owned(),
        turn: "absent-turn".to_owned(),
        endpoint: "we_AM-aaaaaaaaaaaaaaaaaaaaaaaa".to_owned(),
        delivery: "whd_999999".to_owned(),
        console_session: "csn_AM-aaaaaaaaaaaaaaaaaaaaaaaa".to_owned(),
    }
}

fn caller(world: &World, key: &str, user: &str) -> Client {
    Client::new(world.amalgam.url()).with_key(key).with_header("x-amalgam-user", user)
}

async fn create(world: &World, store: &TestStore, client: &Client) -> Owned {
    world.upstream(Wire::Chat).enqueue(Script::text(&["secret"]).reply(Wire::Chat, Delivery::Stream));
    let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
    let answer = client.post_json("/v1/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let response = answer.json_events().last().expect("a stream has events")["response"].clone();
    let items = json!({"items": [{"role": "user", "content": "secret"}]});
    let conversation = client.post_json("/v1/conversations", &items).await.json();
    let text = |value: &Value| value.as_str().expect("an id is a text").to_owned();
    let conversation = text(&conversation["id"]);
    let list = client.get(&format!("/v1/conversations/{conversation}/items")).await.json();
    let key = client.post_json("/admin/keys", &json!({"label": "secret"})).await.json();
    let (tool, approval) = create_tool(world, client).await;
    let (profile, session, answer) = create_thread(world, client).await;
    let (agent_session, turn) = create_agent_session(world, client).await;
    let (endpoint, delivery) = create_endpoint(client).await;
    for subject in [format!("keys/{}", text(&key["id"])), "users/a-limited-user".to_owned()] {
        let limit = Question::new(&Method::PUT, format!("/admin/limits/{subject}"), Some(json!({"in_flight": 100})));
        assert_eq!(limit.ask(client).await.status, 201);
    }
    for (path, body) in [
        (format!("/admin/courses/{COURSE}"), json!({"title": "secret"})),
        (format!("/admin/courses/users/{LEARNER}/{COURSE}"), json!({"status": "secret"})),
    ] {
        assert_eq!(Question::new(&Method::PUT, path, Some(body)).ask(client).await.status, 201);
    }
    let console_session = client.post_json("/admin/console/sessions", &Value::Null).await.json();
    Owned {
        agent_session,
        turn,
        endpoint,
        delivery,
        console_session: text(&console_session["id"]),
        collection: create_collection(world, store),
        tool,
        approval,
        profile,
        mode: create_mode(client).await,
        session,
        answer,
        response: text(&response["id"]),
        item: text(&response["output"][0]["id"]),
        conversation,
        conversation_item: text(&list["data"][0]["id"]),
        file: create_file(client).await,
        tenant: "1".to_owned(),
        key: text(&key["id"]),
    }
}

async fn create_file(client: &Client) -> String {
    let form = "--b\r\nContent-Disposition: form-data; name=purpose\r\n\r\nuser_data\r\n\
                --b\r\nContent-Disposition: form-data; name=file; filename=secret.txt\r\n\r\nsecret\r\n--b--\r\n";
    let answer = client.post_raw("/v1/files", "multipart/form-data; boundary=b", form).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["id"].as_str().expect("a file has an id").to_owned()
}

/// A tool of the bank that asks before it runs, and a call of it that waits.
async fn create_tool(world: &World, client: &Client) -> (String, String) {
    let tool = put_tool(
        "secret_tool",
        json!({"kind": "builtin", "settings": {"function": "current_time"}, "requires_approval": true}),
    );
    assert_eq!(tool.ask(client).await.status, 201);
    let script = Script::new([Said::call("call_1", "secret_tool", &["{}"])]);
    world.upstream(Wire::Chat).enqueue(script.reply(Wire::Chat, Delivery::Whole));
    let request = json!({"input": "Hi", "tools": [{"type": "function", "name": "secret_tool"}]});
    let response = client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &request)).await.json();
    let asks = response["output"].as_array().into_iter().flatten().find(|item| item["type"] == "mcp_approval_request");
    let approval = asks.and_then(|item| item["id"].as_str()).expect("the call waits for an approval");
    ("secret_tool".to_owned(), approval.to_owned())
}

/// A profile, and a thread with it.
async fn create_thread(world: &World, client: &Client) -> (String, String, String) {
    let profile = put_profile("secret-profile", "secret");
    assert_eq!(profile.ask(client).await.status, 201);
    let model = json!({"model": Wire::Chat.model()});
    let config = Question::new(&Method::PATCH, "/admin/configs/1".to_owned(), Some(model));
    assert_eq!(config.ask(client).await.status, 200);
    world.upstream(Wire::Chat).enqueue(Script::text(&["secret"]).reply(Wire::Chat, Delivery::Stream));
    let body = json!({"agent": "secret-profile", "message": "secret"});
    let streaming = client.clone().with_header("accept", "text/event-stream");
    let answer = streaming.post_json("/api/v2/ai-agent/respond/", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let response = answer.header("amalgam-response-id").expect("a stream says where it can be picked up").to_owned();
    let text = answer.text();
    let done = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().expect("a stream has events");
    let done: Value = serde_json::from_str(done).expect("an event is JSON");
    ("secret-profile".to_owned(), done["session_id"].to_string(), response)
}

/// A session of the strict contract with one turn.
async fn create_agent_session(world: &World, client: &Client) -> (String, String) {
    let session = client.post_json("/api/agent/sessions", &json!({})).await;
    assert_eq!(session.status, 200, "{}", session.text());
    let session = session.json()["SessionId"].as_str().expect("a session has an id").to_owned();
    world.upstream(Wire::Chat).enqueue(Script::text(&["secret"]).reply(Wire::Chat, Delivery::Whole));
    let turn = json!({"SessionId": session, "TurnId": "secret-turn", "Instruction": "secret"});
    let answer = client.post_json("/api/agent/execute", &turn).await;
    assert_eq!(answer.json()["Kind"], "ok", "{}", answer.text());
    (session, "secret-turn".to_owned())
}

/// A webhook endpoint that nothing listens at, and a delivery to it.
async fn create_endpoint(client: &Client) -> (String, String) {
    let body = json!({"url": "http://127.0.0.1:1/secret", "event_types": ["response.failed"]});
    let endpoint = client.post_json("/v1/webhook_endpoints", &body).await;
    assert_eq!(endpoint.status, 200, "{}", endpoint.text());
    let endpoint = endpoint.json()["id"].as_str().expect("an endpoint has an id").to_owned();
    let delivery = client.post_json(&format!("/v1/webhook_endpoints/{endpoint}/test"), &json!({})).await.json();
    (endpoint, delivery["id"].as_str().expect("a delivery has an id").to_owned())
}

/// Something to look up, brought in on the command line.
fn create_collection(world: &World, store: &TestStore) -> String {
    let file = world.amalgam.folder().join("secret.md");
    std::fs::write(&file, "secret\n").expect("a file can be written");
    let file = file.to_str().expect("the folder's name is text");
    let import = ["knowledge", "import", file, "--company-id", "1", "--collection", "secret-collection"];
    Cli::beside(&world.amalgam, store).text(&import);
    "secret-collection".to_owned()
}

async fn create_mode(client: &Client) -> String {
    assert_eq!(put_mode("secret-mode", "secret").ask(client).await.status, 201);
    "secret-mode".to_owned()
}

fn put_mode(name: &str, prompt: &str) -> Question {
    Question::new(&Method::PUT, format!("/admin/modes/{name}"), Some(json!({"system_prompt": prompt})))
}

fn put_profile(slug: &str, prompt: &str) -> Question {
    Question::new(&Method::PUT, format!("/admin/profiles/{slug}"), Some(json!({"prompt": prompt})))
}

fn put_tool(name: &str, body: Value) -> Question {
    Question::new(&Method::PUT, format!("/admin/tools/{name}"), Some(body))
}

/// A question about a thing.
struct Question {
    method: Method,
    path: String,
    body: Option<Value>,
}

impl Question {
    fn new(method: &Method, path: String, body: Option<Value>) -> Self {
        Self { method: method.clone(), path, body }
    }

    async fn ask(&self, client: &Client) -> HttpAnswer {
        let body = self.body.as_ref().map_or_else(Bytes::new, |body| body.to_string().into());
        client.request(self.method.clone(), &self.path, &[("content-type", "application/json")], body).await
    }
}

/// The path of a route with these ids; nothing if this test does not know the objects behind it.
fn path_to(route: &str, owned: &Owned) -> Option<String> {
    let path = match route {
        path if path.starts_with("/v1/responses/{id}") => path.replace("{id}", &owned.response),
        path if path.starts_with("/v1/chat/completions/{id}") => {
            path.replace("{id}", &owned.response.replace("resp_", "chatcmpl-"))
        }
        path if path.starts_with("/v1/conversations/{id}") => {
            path.replace("{id}", &owned.conversation).replace("{item_id}", &owned.conversation_item)
        }
        path if path.starts_with("/v1/files/{id}") => path.replace("{id}", &owned.file),
        path if path.starts_with("/v1/webhook_endpoints/{id}") => {
            path.replace("{id}", &owned.endpoint).replace("{delivery_id}", &owned.delivery)
        }
        path @ "/admin/tenants/{tenant_id}" => path.replace("{tenant_id}", &owned.tenant),
        path @ "/admin/keys/{key_id}" => path.replace("{key_id}", &owned.key),
        path @ "/admin/console/sessions/{session_id}" => path.replace("{session_id}", &owned.console_session),
        path @ "/admin/limits/tenants/{id}" => path.replace("{id}", &owned.tenant),
        path @ "/admin/limits/keys/{id}" => path.replace("{id}", &owned.key),
        path @ "/admin/limits/users/{id}" => path.replace("{id}", "a-limited-user"),
        path @ "/admin/limits/models/{*id}" => path.replace("{*id}", "a-model"),
        path if path.starts_with("/admin/tools/{name}") => path.replace("{name}", &owned.tool),
        path @ "/admin/modes/{name}" => path.replace("{name}", &owned.mode),
        path @ "/admin/approvals/{id}" => path.replace("{id}", &owned.approval),
        path @ "/admin/configs/{tenant_id}" => path.replace("{tenant_id}", &owned.tenant),
        path if path.starts_with("/admin/profiles/{slug}") => {
            path.replace("{slug}", &owned.profile).replace("{version}", "1")
        }
        path if path.starts_with("/admin/courses/") => path.replace("{id}", COURSE).replace("{user}", LEARNER),
        path @ "/admin/agent-sessions/{session_id}" => path.replace("{session_id}", &owned.agent_session),
        path @ "/admin/conversations/{conversation_id}" => path.replace("{conversation_id}", &owned.conversation),
        path @ "/admin/upstreams/{name}/check" => path.replace("{name}", "an-upstream"),
        path @ ("/admin/sessions/{session_id}"
        | "/admin/sessions/{session_id}/close"
        | "/api/v2/ai-agent/sessions/{session_id}/messages/") => path.replace("{session_id}", &owned.session),
        path if path.starts_with("/api/agent/sessions/{session_id}") => {
            path.replace("{session_id}", &owned.agent_session).replace("{turn_id}", &owned.turn)
        }
        path if path.starts_with("/api/v2/ai-agent/respond/{response_id}/") => {
            path.replace("{response_id}", &owned.answer)
        }
        path if path.starts_with("/admin/knowledge/{collection}") => {
            path.replace("{collection}", &owned.collection).replace("{*document_id}", "upload:secret.md")
        }
        path if path.starts_with("/admin/turns/{response_id}") => {
            path.replace("{response_id}", &owned.response).replace("{number}", "0")
        }
        _ => return None,
    };
    (!path.contains('{')).then_some(path)
}

/// A body that would change something; nothing if this test does not know what the route takes.
fn body_for(method: &Method, route: &str) -> Option<Option<Value>> {
    match (method, route) {
        (&Method::GET | &Method::DELETE, _)
        | (&Method::POST, "/v1/responses/{id}/cancel")
        | (&Method::POST, "/api/v2/ai-agent/respond/{response_id}/cancel/") => Some(None),
        (&Method::POST, "/v1/webhook_endpoints/{id}") => Some(Some(json!({"event_types": ["response.completed"]}))),
        (&Method::POST, path) if path.starts_with("/v1/webhook_endpoints/{id}/") => Some(None),
        (&Method::POST, "/admin/sessions/{session_id}/close" | "/admin/upstreams/{name}/check") => Some(None),
        (&Method::POST, "/v1/conversations/{id}" | "/v1/chat/completions/{id}") => {
            Some(Some(json!({"metadata": {"stolen": "yes"}})))
        }
        (&Method::POST, "/v1/conversations/{id}/items") => {
            Some(Some(json!({"items": [{"role": "user", "content": "stolen"}]})))
        }
        (&Method::POST, "/admin/tools/{name}/try") => Some(Some(json!({"arguments": {}}))),
        (&Method::POST, "/admin/approvals/{id}") => Some(Some(json!({"decision": "approve"}))),
        (&Method::PATCH, "/admin/configs/{tenant_id}") => Some(Some(json!({"model": "stolen"}))),
        (&Method::PUT, path) if path.starts_with("/admin/limits/") => Some(Some(json!({"in_flight": 1}))),
        (&Method::PATCH, "/admin/tenants/{tenant_id}") => Some(Some(json!({"name": "stolen"}))),
        _ => None,
    }
}

/// Requests for a response that name objects of a user.
fn requests(owned: &Owned) -> Vec<Value> {
    let reference = |id: &str| json!([{"type": "item_reference", "id": id}]);
    let fields = [
        json!({"input": "x", "previous_response_id": owned.response}),
        json!({"input": "x", "conversation": owned.conversation}),
        json!({"input": "x", "conversation": {"id": owned.conversation}}),
        json!({"input": reference(&owned.item)}),
        json!({"input": reference(&owned.conversation_item)}),
        json!({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": owned.file}]}]}),
    ];
    fields.iter().map(|fields| asking(Wire::Chat, Delivery::Whole, fields)).collect()
}

/// What a socket of this caller says to each of these requests.
async fn told_on_a_socket(world: &World, key: &str, user: &str, owned: &Owned) -> Vec<String> {
    let headers = [("authorization", format!("Bearer {key}")), ("x-amalgam-user", user.to_owned())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut socket = Socket::open_with(&world.amalgam, &headers).await.expect("a key opens a socket");
    let mut all = Vec::new();
    for mut request in requests(owned) {
        request["type"] = json!("response.create");
        for store in [true, false] {
            request["store"] = json!(store);
            socket.say(&request).await;
            let event = socket.event().await;
            assert_eq!(event["type"], "error", "{key} {user}: {event}");
            all.push(without_ids(event.to_string(), owned));
        }
    }
    all
}

/// Every request for objects of a user: each route with an id, each field that names one.
fn questions(owned: &Owned) -> Vec<Question> {
    let mut questions = Vec::new();
    // Models and documents are the server's, not a caller's; and in a place of one's own every name is free, which is
    // asked below.
    let about_things = |route: &&RouteInfo| {
        let (path, method) = (route.path, &route.method);
        let named =
            ["/admin/tools/{name}", "/admin/profiles/{slug}", "/admin/modes/{name}", "/admin/limits/users/{id}"];
        // Any user may be asked for, and any document be put into a collection of one's own.
        let of_any_name =
            [(Method::GET, "/admin/courses/users/{user}"), (Method::POST, "/admin/knowledge/{collection}/documents")];
        path.contains('{')
            && !route.public
            && !of_any_name.contains(&(method.clone(), path))
            && path != "/v1/models/{*id}"
            && !(method == Method::PUT && (named.contains(&path) || path.starts_with("/admin/courses/")))
    };
    for route in ROUTES.iter().filter(about_things) {
        let (path, body) = (path_to(route.path, owned), body_for(&route.method, route.path));
        assert!(path.is_some() && body.is_some(), "{} {} is not known to this test", route.method, route.path);
        questions.push(Question::new(&route.method, path.unwrap_or_default(), body.unwrap_or_default()));
    }
    let response = &owned.response;
    questions.push(Question::new(&Method::GET, format!("/v1/responses/{response}?stream=true"), None));
    questions.push(Question::new(&Method::GET, format!("/v1/responses/{response}?stream=true&starting_after=1"), None));
    for path in ["/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"] {
        let bodies = requests(owned).into_iter();
        questions.extend(bodies.map(|body| Question::new(&Method::POST, path.to_owned(), Some(body))));
    }
    let file = json!([{"type": "image", "source": {"type": "file", "file_id": owned.file}}]);
    let messages = json!({"max_tokens": 9, "messages": [{"role": "user", "content": file}]});
    let messages = asking(Wire::Chat, Delivery::Whole, &messages);
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        questions.push(Question::new(&Method::POST, path.to_owned(), Some(messages.clone())));
    }
    let (session, turn) = (&owned.agent_session, &owned.turn);
    let result = json!([{"ToolCallId": "call_1", "ExecutionMs": 1, "ResultJson": "{}"}]);
    for body in [
        json!({"SessionId": session, "TurnId": turn, "Instruction": "secret"}),
        json!({"SessionId": session, "TurnId": "another", "Instruction": "x"}),
        json!({"SessionId": session, "TurnId": turn, "ToolResults": result}),
    ] {
        questions.push(Question::new(&Method::POST, "/api/agent/execute".to_owned(), Some(body)));
    }
    for item in [&owned.item, &owned.conversation_item] {
        let body = json!({"items": [{"type": "item_reference", "id": item}]});
        questions.push(Question::new(&Method::POST, "/v1/conversations".to_owned(), Some(body)));
    }
    questions
}

/// An answer without the parts that differ from request to request, and without the requested ids.
fn told(answer: &HttpAnswer, owned: &Owned) -> String {
    let mut headers: Vec<String> = answer
        .headers
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "x-request-id" | "request-id" | "date"))
        .map(|(name, value)| format!("{name}: {value:?}"))
        .collect();
    headers.sort();
    let request_id = answer.header("x-request-id").expect("an answer names its request");
    let text = without_ids(answer.text().replace(request_id, "REQUEST"), owned);
    format!("{}\n{}\n{text}", answer.status, headers.join("\n"))
}

fn without_ids(text: String, owned: &Owned) -> String {
    let completion = owned.response.replace("resp_", "chatcmpl-");
    let ids = [
        &owned.response,
        &completion,
        &owned.item,
        &owned.conversation,
        &owned.conversation_item,
        &owned.file,
        &owned.key,
        &owned.tool,
        &owned.approval,
        &owned.profile,
        &owned.mode,
        &owned.answer,
        &owned.endpoint,
        &owned.delivery,
        &owned.collection,
        &owned.agent_session,
        &owned.turn,
        &owned.console_session,
    ];
    let text = ids.iter().fold(text, |text, id| text.replace(id.as_str(), "ID"));
    // The number of a thread may occur anywhere: errors have it between quotes.
    text.replace(&format!("'{}'", owned.session), "'ID'")
}

/// Everything that the owner sees.
async fn seen(client: &Client, owned: &Owned) -> Vec<String> {
    let mut seen = Vec::new();
    for path in [
        format!("/v1/responses/{}", owned.response),
        format!("/v1/responses/{}?stream=true", owned.response),
        format!("/v1/responses/{}/input_items", owned.response),
        format!("/v1/conversations/{}", owned.conversation),
        format!("/v1/conversations/{}/items", owned.conversation),
        format!("/v1/conversations/{}/items/{}", owned.conversation, owned.conversation_item),
        "/v1/files".to_owned(),
        format!("/v1/files/{}", owned.file),
        format!("/v1/files/{}/content", owned.file),
        format!("/admin/turns/{}", owned.response),
        format!("/admin/turns/{}/calls/0", owned.response),
        format!("/admin/turns/{}/context", owned.response),
        format!("/admin/turns/{}/events", owned.response),
        format!("/admin/turns/{}", owned.item),
        "/admin/keys".to_owned(),
        "/admin/knowledge".to_owned(),
        format!("/admin/knowledge/{}", owned.collection),
        format!("/admin/knowledge/{}/documents", owned.collection),
        "/admin/tools".to_owned(),
        format!("/admin/tools/{}", owned.tool),
        format!("/admin/tools/{}/statistics", owned.tool),
        "/admin/approvals".to_owned(),
        format!("/v1/chat/completions/{}", owned.response.replace("resp_", "chatcmpl-")),
        format!("/admin/approvals/{}", owned.approval),
        "/admin/configs/1".to_owned(),
        "/admin/modes".to_owned(),
        format!("/admin/modes/{}", owned.mode),
        "/admin/profiles".to_owned(),
        format!("/admin/profiles/{}/versions", owned.profile),
        "/admin/sessions".to_owned(),
        format!("/admin/sessions/{}", owned.session),
        "/admin/courses".to_owned(),
        "/admin/courses/users".to_owned(),
        format!("/admin/courses/users/{LEARNER}/{COURSE}"),
        "/admin/agent-sessions".to_owned(),
        format!("/admin/agent-sessions/{}", owned.agent_session),
        "/admin/conversations".to_owned(),
        format!("/admin/conversations/{}", owned.conversation),
        "/api/v2/ai-agent/sessions/".to_owned(),
        format!("/api/v2/ai-agent/sessions/{}/messages/", owned.session),
        format!("/api/v2/ai-agent/respond/{}/", owned.answer),
        "/api/agent/sessions".to_owned(),
        format!("/api/agent/sessions/{}", owned.agent_session),
        format!("/api/agent/sessions/{}/turns", owned.agent_session),
        format!("/api/agent/sessions/{}/turns/{}", owned.agent_session, owned.turn),
    ] {
        let answer = client.get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        seen.push(answer.text());
    }
    seen
}

#[tokio::test]
async fn objects_of_other_callers_look_like_missing_ones() {
    // S10, P10
    for store in stores() {
        let world = World::with(store.setup(Setup::new().extra(TENANTS)), &[]).await;
        let owner = caller(&world, "am_a", "one");
        let (owned, nothing) = (create(&world, &store, &owner).await, missing());
        let before = seen(&owner, &owned).await;
        let asked = world.upstream(Wire::Chat).requests().len();
        for (key, user) in [("am_a", "two"), ("am_b", "one"), ("am_b", "two")] {
            let stranger = caller(&world, key, user);
            for (foreign, absent) in questions(&owned).iter().zip(&questions(&nothing)) {
                // The keys of a tenant administer it: what its users have is no secret to them.
                let of_tenant = ["/admin/", "/v1/webhook_endpoints/"].iter().any(|path| foreign.path.starts_with(path));
                if of_tenant && key == "am_a" {
                    continue;
                }
                let (found, expected) = (foreign.ask(&stranger).await, absent.ask(&stranger).await);
                let about = format!("{} {key} {user}: {} {}", store.name, foreign.method, foreign.path);
                assert!(expected.status.is_client_error(), "{about}: {}", expected.text());
                assert_eq!(told(&found, &owned), told(&expected, &nothing), "{about}");
            }
            let found = told_on_a_socket(&world, key, user, &owned).await;
            let expected = told_on_a_socket(&world, key, user, &nothing).await;
            assert_eq!(found, expected, "{} {key} {user} on a socket", store.name);
        }
        // What has the same name in the stranger's own tenant is new there, and has nothing to do with the owner's.
        let stranger = caller(&world, "am_b", "one");
        let tool = put_tool(&owned.tool, json!({"kind": "client", "description": "stolen"}));
        for same in [tool, put_profile(&owned.profile, "stolen"), put_mode(&owned.mode, "stolen")] {
            assert_eq!(same.ask(&stranger).await.status, 201, "{}", store.name);
            assert_eq!(seen(&owner, &owned).await, before, "{}: nothing was changed", store.name);
            let delete = Question::new(&Method::DELETE, same.path.clone(), None);
            assert_eq!(delete.ask(&stranger).await.status, 200, "{}", store.name);
        }
        assert_eq!(world.upstream(Wire::Chat).requests().len(), asked, "{}: no model was asked", store.name);
        assert_eq!(seen(&owner, &owned).await, before, "{}: nothing was changed", store.name);
        // The questions are real ones: their owner gets answers.
        for body in requests(&owned) {
            let counted = owner.post_json("/v1/responses/input_tokens", &body).await;
            assert_eq!(counted.status, 200, "{} {body}: {}", store.name, counted.text());
        }
        // Tenants, their limits and those of models are the operator's.
        let of_operator = ["/admin/tenants/", "/admin/limits/tenants/", "/admin/limits/models/"];
        let readable = |question: &&Question| {
            question.method == Method::GET && !of_operator.iter().any(|path| question.path.starts_with(path))
        };
        for question in questions(&owned).iter().filter(readable) {
            let answer = question.ask(&owner).await;
            assert_eq!(answer.status, 200, "{} {}: {}", store.name, question.path, answer.text());
        }
    }
}
