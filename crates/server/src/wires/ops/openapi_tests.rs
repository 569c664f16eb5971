//! The document against the code that it describes: routes, fields, events, what is really written.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use amalgam_administration::{
    approvals::ApprovalView,
    tool_bank::{ToolBank, Trial, TrialError},
};
use amalgam_core::{
    Actor, CallHead, CallKind, Decider, Delivery, Finish, Ids, ModelEvent, Policy, number_item,
    store::{Approval, BankKind, BankTool, Decision},
    write_item,
};
use amalgam_emitter::{Emitter, ResponseStart};
use amalgam_protocol::{
    AddItems, ClientTool, CreateConversation, CreateResponse, Effective, ErrorObject, EventKind, HostedItem,
    HostedTool, Item, ItemKind, Json, Literal, PartKind, Raw, ResponseParameters, ResponseSettings, ToolKind,
    UpdateConversation, Usage, Writer,
};

use super::*;
use crate::{testing::Nothing, wires::ROUTES};

fn parsed() -> Value {
    serde_json::from_str(document()).unwrap()
}

/// The violations of a value against the schema with this name.
fn complaints(shape: &str, value: &Value) -> Vec<String> {
    let components = &parsed()["components"];
    assert!(components["schemas"].get(shape).is_some(), "{shape}");
    let schema = json!({"$ref": format!("#/components/schemas/{shape}"), "components": components});
    let validator = jsonschema::options().with_draft(jsonschema::Draft::Draft202012).offline().build(&schema).unwrap();
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[track_caller]
fn assert_valid(shape: &str, value: &Value) {
    assert_eq!(complaints(shape, value), Vec::<String>::new(), "{value:#}");
}

/// With `UPDATE_DOCS=1` the committed copy is replaced instead of compared.
#[test]
#[expect(clippy::disallowed_methods, reason = "the switch is for the one who runs the tests")]
fn the_committed_copy_is_the_document() {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var("UPDATE_DOCS").is_ok() {
        fs::write(&path, document()).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let first = committed.lines().zip(document().lines()).position(|(one, other)| one != other);
    assert!(
        committed == document(),
        "docs/openapi.json is behind the code (line {}); run the tests once with UPDATE_DOCS=1 and look at the diff",
        first.map_or(0, |line| line + 1)
    );
}

#[test]
fn the_document_introduces_itself() {
    let document = parsed();
    assert!(document["info"]["title"].as_str().unwrap().starts_with("Amalgam"));
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["openapi"], "3.1.0");
}

#[test]
fn the_operations_are_those_of_the_route_table_and_the_public_ones_are_marked() {
    let document = parsed();
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let public = match operation.get("security") {
                Some(security) => security == &json!([]),
                None => false,
            };
            described.insert((method.to_ascii_uppercase(), path.clone(), public));
            for name in path.split(['{', '}']).skip(1).step_by(2) {
                let mut parameters =
                    operation["parameters"].as_array().unwrap().iter().map(|one| found(&document, one));
                assert!(parameters.any(|one| one["in"] == "path" && one["name"] == name), "{path}");
            }
        }
    }
    let served: BTreeSet<_> =
        ROUTES.iter().map(|route| (route.method.to_string(), route.published_path(), route.public)).collect();
    assert_eq!(described, served);
    assert_eq!(described.len(), ROUTES.len());
}

/// The target of a reference, or the value itself.
fn found<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(reference) => document.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => value,
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_shape_is_used() {
    let document = parsed();
    let mut references = BTreeSet::new();
    collect_references(&document, &mut references);
    for reference in &references {
        let pointer = reference.strip_prefix('#').expect("nothing outside the document is referred to");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    for group in ["schemas", "parameters", "headers"] {
        for name in document["components"][group].as_object().unwrap().keys() {
            assert!(references.contains(&format!("#/components/{group}/{name}")), "{group}/{name} is not used");
        }
    }
}

fn collect_references(value: &Value, references: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            references.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| collect_references(value, references));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_references(value, references)),
        _ => {}
    }
}

#[test]
fn the_examples_are_read_by_the_server_and_fit_their_shapes() {
    let document = parsed();
    let create = &document["paths"]["/v1/responses"]["post"];
    let requests = &create["requestBody"]["content"]["application/json"]["examples"];
    for (name, example) in requests.as_object().unwrap() {
        let value = &example["value"];
        assert_valid("CreateResponse", value);
        let text = value.to_string();
        let parameters: ResponseParameters = text.parse().unwrap();
        let request = parameters.view().unwrap();
        assert!(request.model.is_some() && request.input.is_some() && request.extra.is_empty(), "{name}");
        for tool in &request.tools {
            assert!(matches!(tool.kind, ToolKind::Function(_)), "{name}");
        }
    }
    let answers = &create["responses"]["200"]["content"];
    for example in answers["application/json"]["examples"].as_object().unwrap().values() {
        assert_valid("Response", &example["value"]);
    }
    for example in answers["text/event-stream"]["examples"].as_object().unwrap().values() {
        assert_valid("StreamEvent", &example["value"]);
    }
}

#[test]
fn the_requests_of_the_readme_are_read_by_the_server() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    // A variable of the shell is written between two quotes of its own.
    let readme = readme.replace("'$first'", "resp_1").replace("'$session'", "sess_1");
    let bodies: Vec<&str> = readme.split("-d '").skip(1).map(|rest| rest.split('\'').next().unwrap()).collect();
    assert!(bodies.len() >= 4);
    for body in bodies {
        let value: Value = serde_json::from_str(body).unwrap();
        // What is said to an assistant or in a session is a body of another door.
        let other = [
            ("message", "Respond"),
            ("Instruction", "AgentUserTurn"),
            ("Mode", "NewAgentSession"),
            // A message has to bound its answer.
            ("max_tokens", "CreateMessage"),
            ("messages", "CreateChatCompletion"),
        ];
        if let Some((_, schema)) = other.iter().find(|(field, _)| value.get(field).is_some()) {
            assert_valid(schema, &value);
            continue;
        }
        assert_valid("CreateResponse", &value);
        let parameters: ResponseParameters = body.parse().unwrap();
        let request = parameters.view().unwrap();
        assert_eq!((request.model.as_deref(), request.extra.len()), (Some("demo"), 0), "{body}");
    }
}

#[test]
fn the_request_has_exactly_the_fields_that_are_read() {
    let properties = &parsed()["components"]["schemas"]["CreateResponse"]["properties"];
    let described: BTreeSet<&str> = properties.as_object().unwrap().keys().map(String::as_str).collect();
    // A null counts as absent; `extra` then has the fields that the reader does not know.
    let nulls: Map<String, Value> = described.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
    let text = Value::Object(nulls).to_string();
    let parameters: ResponseParameters = text.parse().unwrap();
    let request = parameters.view().unwrap();
    assert_eq!(request.extra, Vec::new());
    let printed = format!("{:#?}", CreateResponse::default());
    let own = |line: &str| line.starts_with("    ") && !line.starts_with("     ");
    let read: BTreeSet<&str> =
        printed.lines().filter(|line| own(line)).filter_map(|line| line.split(':').next()).collect();
    let read: BTreeSet<&str> = read
        .into_iter()
        .map(str::trim)
        .filter(|name| !matches!(*name, "chat_fields" | "extra" | "nulls" | "}," | "],"))
        .collect();
    assert_eq!(described, read);
}

#[test]
fn kinds_with_a_shape_are_known_to_the_reader_and_others_are_not() {
    let document = parsed();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let listed = |shape: &str| -> Vec<String> {
        let kinds = schemas[shape]["properties"]["type"]["not"]["enum"].as_array().unwrap();
        kinds.iter().map(|kind| kind.as_str().unwrap().to_owned()).collect()
    };
    let text = |kind: &str| {
        let fields = json!({"id": "x", "call_id": "x", "name": "x", "role": "user", "content": "x", "text": "x"});
        let mut fields = fields.as_object().unwrap().clone();
        fields.extend([("type".to_owned(), json!(kind)), ("refusal".to_owned(), json!("x"))]);
        Value::Object(fields).to_string()
    };
    for kind in listed("OtherItem") {
        let text = text(&kind);
        let item = Item::read(Raw::parse(text.as_bytes()).unwrap().to_owned()).map(|item| item.kind);
        // A content of the wrong shape is the reader's business; the kind is known all the same.
        assert!(!matches!(item, Ok(ItemKind::Other(_))), "{kind}");
    }
    for kind in listed("OtherTool") {
        let text = text(&kind);
        let tools = format!("{{\"tools\":[{text}]}}");
        let parameters: ResponseParameters = tools.parse().unwrap();
        let request = parameters.view().unwrap();
        let known = match &request.tools[0].kind {
            ToolKind::Hosted(hosted, _) => *hosted == HostedTool::FileSearch,
            other => !matches!(other, ToolKind::Other(_)),
        };
        assert!(known, "{kind}");
    }
    for kind in listed("OtherPart") {
        let body = format!("{{\"input\":[{{\"role\":\"user\",\"content\":[{}]}}]}}", text(&kind));
        let parameters: ResponseParameters = body.parse().unwrap();
        let request = parameters.view().unwrap();
        let Some(amalgam_protocol::Input::Items(items)) = request.input else { panic!("{kind}") };
        let ItemKind::Message(message) = &items[0].kind else { panic!("{kind}") };
        let amalgam_protocol::Content::Parts(parts) = &message.content else { panic!("{kind}") };
        assert!(!matches!(parts[0].kind, PartKind::Other(_) | PartKind::Audio | PartKind::Video), "{kind}");
    }
}

/// The name of the shape that the union of all events gives for an event's `type`.
fn shape_of_event<'a>(document: &'a Value, name: &str) -> &'a str {
    let mapping = &document["components"]["schemas"]["StreamEvent"]["discriminator"]["mapping"];
    mapping[name].as_str().unwrap().rsplit('/').next().unwrap()
}

#[test]
fn every_event_is_listed_once_with_its_shape() {
    let document = parsed();
    let schemas = &document["components"]["schemas"];
    let listed = |shape: &Value| -> Vec<String> {
        let names = shape["properties"]["type"]["enum"].as_array().unwrap();
        names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let mut all = BTreeSet::new();
    for member in schemas["StreamEvent"]["anyOf"].as_array().unwrap() {
        for name in listed(found(&document, member)) {
            assert_eq!(found(&document, member), &schemas[shape_of_event(&document, &name)], "{name}");
            assert!(all.insert(name.clone()), "{name} is listed twice");
        }
    }
    let known: BTreeSet<String> = EventKind::ALL.iter().map(|kind| kind.name().to_owned()).collect();
    assert_eq!(all, known);
    let mapped = schemas["StreamEvent"]["discriminator"]["mapping"].as_object().unwrap();
    assert_eq!(mapped.keys().cloned().collect::<BTreeSet<_>>(), known);
}

#[test]
fn closed_lists_of_the_document_are_those_of_the_code() {
    let document = parsed();
    let schemas = &document["components"]["schemas"];
    let hosted = HostedItem::ALL.map(|(name, _)| name);
    assert_eq!(schemas["HostedItem"]["properties"]["type"]["enum"], json!(hosted));
    let tools = [
        ClientTool::Shell,
        ClientTool::LocalShell,
        ClientTool::ApplyPatch,
        ClientTool::ToolSearch,
        ClientTool::Computer,
    ];
    assert_eq!(schemas["ClientToolCall"]["properties"]["type"]["enum"], json!(tools.map(ClientTool::call_type)));
    let known = schemas["OtherItem"]["properties"]["type"]["not"]["enum"].as_array().unwrap();
    for name in hosted.into_iter().chain(tools.map(ClientTool::call_type)) {
        assert!(known.contains(&json!(name)), "{name}");
    }
}

/// Everything that the emitter makes by itself: messages, refusals, thoughts, calls of all three kinds.
fn emitted(end: fn(&mut Emitter)) -> (Vec<Value>, Value) {
    let request = CreateResponse::default();
    let mut emitter = Emitter::new(ResponseStart {
        response_id: Ids::seeded(1).response(1_760_000_000_000),
        created_at: 1_760_000_000,
        settings: ResponseSettings::new(&request, Effective { model: "demo", stored: false, background: false }),
        delivery: Delivery::Stream,
        ids: Ids::seeded(2),
        call_ids: false,
    });
    let text = Literal::from_text;
    let call = |kind, name: &str| CallHead { kind, call_id: None, name: name.to_owned(), namespace: None };
    let annotation = Json::from(Raw::parse(br#"{"type":"url_citation"}"#).unwrap());
    emitter.begin();
    for event in [
        ModelEvent::ReasoningSummary(text("Hm.")),
        ModelEvent::ReasoningEnd { encrypted_content: Some("ams1.x".to_owned()) },
        ModelEvent::Text { delta: text("Hello"), logprobs: None },
        ModelEvent::Annotation(annotation),
        ModelEvent::Refusal(text("No.")),
        ModelEvent::MessageEnd,
        ModelEvent::CallStart { key: 1, call: call(CallKind::Function, "f") },
        ModelEvent::CallDelta { key: 1, delta: text("{}") },
        ModelEvent::CallEnd { key: 1 },
        ModelEvent::CallStart { key: 2, call: call(CallKind::Custom, "c") },
        ModelEvent::CallDelta { key: 2, delta: text("free") },
        ModelEvent::CallEnd { key: 2 },
        ModelEvent::CallStart { key: 3, call: call(CallKind::Client(ClientTool::LocalShell), "local_shell") },
        ModelEvent::CallDelta { key: 3, delta: text(r#"{"command":["ls"]}"#) },
        ModelEvent::CallEnd { key: 3 },
        ModelEvent::Usage(Usage { input_tokens: 1, output_tokens: 2, estimated: true, ..Usage::default() }),
    ] {
        emitter.on(event).unwrap();
    }
    emitter.keepalive();
    end(&mut emitter);
    let frames = String::from_utf8(emitter.take_frames()).unwrap();
    let data = frames.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let response = serde_json::from_slice(&emitter.response()).unwrap();
    (data.map(|data| serde_json::from_str(data).unwrap()).collect(), response)
}

fn complete(emitter: &mut Emitter) {
    emitter.on(ModelEvent::Finish(Finish::Stop)).unwrap();
    emitter.conclude(1_760_000_001);
}

fn cut_short(emitter: &mut Emitter) {
    emitter.on(ModelEvent::Finish(Finish::Length)).unwrap();
    emitter.conclude(1_760_000_001);
}

fn break_off(emitter: &mut Emitter) {
    let [message, kind] = ["The upstream failed.", "server_error"].map(str::to_owned);
    emitter.fail(ErrorObject { message, code: Some(kind.clone()), kind, param: None });
}

#[test]
fn what_the_server_sends_fits_the_shapes_that_are_published_for_it() {
    let document = parsed();
    let mut seen = BTreeSet::new();
    for end in [complete, cut_short, break_off] {
        let (events, response) = emitted(end);
        assert_valid("Response", &response);
        for event in events {
            let shape = shape_of_event(&document, event["type"].as_str().unwrap());
            assert_valid(shape, &event);
            assert_valid("StreamEvent", &event);
            seen.insert(shape);
        }
    }
    // This test covers every schema that is published as this server's own.
    let published = document["components"]["schemas"].as_object().unwrap().keys().map(String::as_str);
    let expected: BTreeSet<&str> =
        published.filter(|name| name.ends_with("Event") && !matches!(*name, "StreamEvent" | "PassedEvent")).collect();
    assert_eq!(seen, expected);
}

#[test]
fn what_is_read_back_fits_the_shapes_that_are_published_for_it() {
    let mut ids = Ids::seeded(3);
    for item in [
        json!({"role": "user", "content": "x"}),
        json!({"role": "assistant", "content": [{"type": "output_text", "text": "x"}]}),
        json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}),
        json!({"type": "function_call_output", "call_id": "c", "output": [1]}),
        json!({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}),
        json!({"type": "reasoning", "summary": []}),
        json!({"type": "shell_call", "call_id": "c", "action": {}}),
        json!({"type": "web_search_call"}),
        json!({"type": "acme:thing"}),
    ] {
        let text = item.to_string();
        let kept = number_item(&Item::read(Raw::parse(text.as_bytes()).unwrap()).unwrap(), &mut ids);
        let mut writer = Writer::default();
        write_item(&mut writer, kept.item.raw());
        assert_valid("KeptItem", &serde_json::from_slice(writer.bytes()).unwrap());
    }
    let bare = json!({"id": "msg_1", "type": "message", "role": "user", "content": "x"});
    assert_ne!(complaints("KeptItem", &bare), [""; 0], "a status is missing, and parts");
    assert_ne!(complaints("KeptItem", &json!({"type": "acme:thing"})), [""; 0]);
}

#[test]
fn the_examples_of_conversations_are_read_by_the_server_and_fit_their_shapes() {
    let document = parsed();
    let mut seen = 0;
    for methods in document["paths"].as_object().unwrap().values() {
        for operation in methods.as_object().unwrap().values().filter(|one| one["tags"] == json!(["Conversations"])) {
            let content = &operation["requestBody"]["content"]["application/json"];
            let Some(example) = content.get("example") else { continue };
            let shape = content["schema"]["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
            assert_valid(shape, example);
            let text = example.to_string();
            let raw = Raw::parse(text.as_bytes()).unwrap();
            match shape {
                "CreateConversation" => assert!(CreateConversation::read(raw).unwrap().metadata.is_some()),
                "UpdateConversation" => assert!(!UpdateConversation::read(raw).unwrap().metadata.is_null()),
                "AddItems" => assert_eq!(AddItems::read(raw).unwrap().items.len(), 1),
                shape => panic!("{shape} is not a body of this wire"),
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 3);
}

#[test]
fn the_response_has_exactly_the_published_keys() {
    let (_, response) = emitted(complete);
    let sent: BTreeSet<&String> = response.as_object().unwrap().keys().collect();
    let document = parsed();
    let shape = &document["components"]["schemas"]["Response"];
    let mut published: BTreeSet<&String> = shape["properties"].as_object().unwrap().keys().collect();
    // The one key that is left out if there is no conversation.
    assert!(published.remove(&"conversation".to_owned()));
    assert_eq!(sent, published);
    assert_eq!(shape["required"].as_array().unwrap().len(), 32);
}

#[test]
fn what_does_not_fit_a_shape_is_found() {
    // The checks above could not fail if every shape let everything through.
    assert_ne!(complaints("CreateResponse", &json!({"model": "x", "input": 7})), [""; 0]);
    assert_ne!(complaints("CreateResponse", &json!({"model": "x", "input": [{"type": "function_call"}]})), [""; 0]);
    assert_ne!(complaints("CreateResponse", &json!({"model": "x", "temperature": 3})), [""; 0]);
    assert_ne!(complaints("Response", &json!({"id": "resp_1"})), [""; 0]);
    assert_ne!(complaints("StreamEvent", &json!({"type": "response.output_text.delta"})), [""; 0]);
}

#[test]
fn tools_trials_and_approvals_fit_the_shapes_that_are_published_for_them() {
    let text = str::to_owned;
    let json = |text: &str| Json::parse(&text.to_owned().into()).unwrap();
    let bank = ToolBank { store: &Nothing, toolbox: &Nothing, now_ms: 0, actor: Actor::server(None) };
    for requires_approval in [None, Some(Decider::Caller), Some(Decider::Admin)] {
        let tool = BankTool {
            name: text("lookup"),
            common: true,
            description: text("Looks it up."),
            parameters: json(r#"{"type":"object"}"#),
            kind: BankKind::Http,
            settings: json("{}"),
            guidance: None,
            policy: Policy { timeout: Duration::from_millis(1500), requires_approval, ..Policy::default() },
            active: true,
            created_at_ms: 0,
            updated_at_ms: 0,
        };
        let shown = serde_json::to_value(bank.show(tool)).unwrap();
        assert_valid("BankTool", &shown);
        assert_valid("PutTool", &shown);
    }
    let mishap = TrialError { code: "broken", message: text("x"), detail: None };
    for result in [Ok(json("[1]")), Err(mishap)] {
        assert_valid("Trial", &serde_json::to_value(Trial::new(result, 1)).unwrap());
    }
    for approve in [None, Some(true), Some(false)] {
        let approval = Approval {
            id: text("mcpr_1"),
            response_id: text("resp_1"),
            user: text("ada"),
            call_id: text("call_1"),
            label: text("bank"),
            name: text("lookup"),
            arguments: text("{}"),
            decider: Decider::Admin,
            asked_at_ms: 0,
            expires_at_ms: 10,
            decision: approve.map(|approve| Decision { approve, reason: None, by: text("bob"), at_ms: 5 }),
            used_by: None,
        };
        assert_valid("Approval", &serde_json::to_value(ApprovalView::at(approval, 1)).unwrap());
    }
    assert_ne!(complaints("PutTool", &json!({"kind": "http", "tenant_id": 1})), [""; 0]);
    assert_ne!(complaints("BankTool", &json!({"name": "x"})), [""; 0]);
}

#[tokio::test]
async fn settings_diffs_and_diagnoses_fit_the_shapes_that_are_published_for_them() {
    let asked = async |method: http::Method, path: &str, body: &str| {
        let server = crate::testing::served(amalgam_core::TenantState::Stored);
        crate::testing::ask(server, &method, path, Some(crate::testing::KEY), body).await
    };
    let config = asked(http::Method::GET, "/admin/configs/1", "").await;
    assert_eq!(config.status.as_u16(), 200, "{}", config.body);
    assert_valid("AgentConfig", &config.body);
    let diagnosis = asked(http::Method::GET, "/admin/diagnose?agent=home&tool=find", "").await;
    assert_valid("Diagnosis", &diagnosis.body);
    assert_valid("Diagnosis", &asked(http::Method::GET, "/admin/diagnose", "").await.body);
    for (path, shape) in [("/admin/profiles", "ProfileList"), ("/admin/sessions", "SessionList")] {
        assert_valid(shape, &asked(http::Method::GET, path, "").await.body);
    }
    let document = parsed();
    for (path, method, shape) in
        [("/admin/configs/{tenant_id}", "patch", "ChangeConfig"), ("/admin/profiles/{slug}", "put", "PutProfile")]
    {
        let body = &document["paths"][path][method]["requestBody"]["content"]["application/json"];
        assert_valid(shape, &body["example"]);
    }
    // Every setting has a description of its own.
    let shown = document["components"]["schemas"]["ChangeConfig"]["properties"].as_object().unwrap();
    for (name, setting) in shown {
        assert_ne!(setting["description"].as_str(), Some(name.as_str()), "{name}");
    }
    assert_ne!(complaints("ChangeConfig", &json!({"modle": "x"})), [""; 0]);
    assert_ne!(complaints("AgentConfig", &json!({"tenant_id": 1})), [""; 0]);
}

#[tokio::test]
async fn the_example_of_a_tool_is_kept_by_the_server() {
    let document = parsed();
    let body = &document["paths"]["/admin/tools/{name}"]["put"]["requestBody"]["content"]["application/json"];
    assert_valid("PutTool", &body["example"]);
    let told = crate::testing::ask(
        crate::testing::served(amalgam_core::TenantState::Stored),
        &http::Method::PUT,
        "/admin/tools/lookup_order",
        Some(crate::testing::KEY),
        &body["example"].to_string(),
    )
    .await;
    assert_eq!((told.status.as_u16(), &told.body["timeout"]), (201, &json!(10)), "{}", told.body);
}
