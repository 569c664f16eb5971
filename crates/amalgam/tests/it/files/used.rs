//! Uploaded files in what models are asked: on every wire, in every round, in every turn.

use amalgam_testkit::Setup;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{delete, id_of, upload, worlds};
use crate::support::{
    DELIVERIES, Delivery, Said, Script, WIRES, Wire, World, asking, assert_refused, put_tool, setup, stores,
};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nand so on";
const PDF: &[u8] = b"%PDF-1.7 and so on";

/// The content of the last message that an upstream was sent from the user.
fn last_of_user(wire: Wire, sent: &Value) -> Value {
    let list = if wire == Wire::Responses { &sent["input"] } else { &sent["messages"] };
    let messages = list.as_array().expect("a prompt has messages");
    let last = messages.iter().rev().find(|message| message["role"] == "user");
    last.expect("the user has said something")["content"].clone()
}

fn message(parts: Value) -> Value {
    json!({"input": [{"role": "user", "content": parts}]})
}

/// What a wire has of a text, a PDF and a picture.
fn expected(wire: Wire) -> Value {
    let (pdf, png) = (BASE64_STANDARD.encode(PDF), BASE64_STANDARD.encode(PNG));
    let (pdf_uri, png_uri) = (format!("data:application/pdf;base64,{pdf}"), format!("data:image/png;base64,{png}"));
    let text_uri = format!("data:text/markdown;base64,{}", BASE64_STANDARD.encode("# Hé"));
    match wire {
        Wire::Chat => json!([
            {"type": "text", "text": "Look."},
            {"type": "text", "text": "File: notes.md\n\n# Hé"},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": pdf_uri}},
            {"type": "image_url", "image_url": {"url": png_uri, "detail": "low"}},
        ]),
        Wire::Responses => json!([
            {"type": "input_text", "text": "Look."},
            {"type": "input_file", "filename": "notes.md", "file_data": text_uri},
            {"type": "input_file", "filename": "a.pdf", "file_data": pdf_uri},
            {"type": "input_image", "image_url": png_uri, "detail": "low"},
        ]),
        Wire::Anthropic => json!([
            {"type": "text", "text": "Look."},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "# Hé"}, "title": "notes.md"},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": pdf}, "title": "a.pdf"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}},
        ]),
    }
}

#[tokio::test]
async fn every_upstream_is_sent_what_is_in_a_file_and_what_is_kept_names_it() {
    // R034-10
    for (store, world) in worlds("").await {
        let client = world.amalgam.client();
        let text = upload(&client, "notes.md", None, "# Hé".as_bytes()).await;
        let pdf = upload(&client, "a.pdf", Some("application/octet-stream"), PDF).await;
        let picture = upload(&client, "a.png", None, PNG).await;
        let parts = json!([
            {"type": "input_text", "text": "Look."},
            {"type": "input_file", "file_id": id_of(&text)},
            {"type": "input_file", "file_id": id_of(&pdf)},
            {"type": "input_image", "file_id": id_of(&picture), "detail": "low"},
        ]);
        for wire in WIRES {
            for delivery in DELIVERIES {
                let about = format!("{} {wire:?} {delivery:?}", store.name);
                let script = Script::text(&["Seen."]);
                let first = world.response(wire, delivery, &script, &message(parts.clone())).await;
                let sent = world.sent(wire);
                assert_eq!(without_cache(last_of_user(wire, &sent)), expected(wire), "{about}");

                // The stored item is the one that was sent.
                let id = first["id"].as_str().unwrap();
                let kept = client.get(&format!("/v1/responses/{id}/input_items")).await.json();
                assert_eq!(kept["data"][0]["content"], parts, "{about}");

                // The next turn has the file too.
                let next = json!({"input": "And?", "previous_response_id": id});
                world.whole(wire, &script, &next).await;
                let again = world.sent(wire).to_string();
                let encoded = BASE64_STANDARD.encode(PDF);
                assert!(again.contains(&encoded) && !again.contains("file_AM-"), "{about}: {again}");
            }
        }
    }
}

/// Some wires mark where a prompt may be cached, which is not what this is about.
fn without_cache(mut content: Value) -> Value {
    for part in content.as_array_mut().into_iter().flatten() {
        part.as_object_mut().expect("a part is an object").remove("cache_control");
    }
    content
}

#[tokio::test]
async fn a_conversation_and_a_tools_output_may_name_files() {
    let world = World::start().await;
    let client = world.amalgam.client();
    let file = upload(&client, "a.txt", None, b"In the file.").await;
    let part = json!({"type": "input_file", "file_id": id_of(&file)});
    let items = json!({"items": [{"role": "user", "content": [part]}]});
    let conversation = client.post_json("/v1/conversations", &items).await.json();
    let request = json!({"input": "And?", "conversation": conversation["id"]});
    world.whole(Wire::Chat, &Script::text(&["Yes."]), &request).await;
    assert!(world.sent(Wire::Chat).to_string().contains("In the file."));

    let called = json!({"input": [
        {"role": "user", "content": "Read it."},
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [part]},
    ]});
    for wire in WIRES {
        world.whole(wire, &Script::text(&["Yes."]), &called).await;
        let sent = world.sent(wire).to_string();
        let told = sent.contains("In the file.") || sent.contains(&BASE64_STANDARD.encode("In the file."));
        assert!(told && !sent.contains("file_AM-"), "{wire:?}: {sent}");
    }
}

#[tokio::test]
async fn every_round_of_a_turn_with_tools_has_the_file() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        let client = world.amalgam.client();
        let tool = json!({"kind": "builtin", "settings": {"function": "current_time"}});
        assert_eq!(put_tool(&client, "clock", &tool).await.status, 201);
        let file = upload(&client, "a.txt", None, b"In the file.").await;
        let call = Script::new([Said::call("call_1", "clock", &["{}"])]);
        world.upstream(Wire::Chat).enqueue(call.reply(Wire::Chat, Delivery::Whole));
        let request = json!({
            "input": [{"role": "user", "content": [{"type": "input_file", "file_id": id_of(&file)}]}],
            "tools": [{"type": "function", "name": "clock"}],
        });
        world.whole(Wire::Chat, &Script::text(&["Late."]), &request).await;
        let asked = world.upstream(Wire::Chat).requests();
        assert_eq!(asked.len(), 2, "{}", store.name);
        for round in asked {
            let sent = round.json().to_string();
            assert!(sent.contains("In the file.") && !sent.contains("file_AM-"), "{}: {sent}", store.name);
        }
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_is_named_before_anybody_is_asked() {
    let tenants = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";
    for (store, world) in worlds(tenants).await {
        let of = |key: &str| amalgam_testkit::Client::new(world.amalgam.url()).with_key(key);
        let foreign = upload(&of("am_b"), "a.txt", None, b"x").await;
        let own = upload(&of("am_a"), "a.txt", None, b"x").await;
        let text = json!({"type": "input_text", "text": "Look."});
        for id in ["file_AM-aaaaaaaaaaaaaaaaaaaaaaaa", "file_AM-", "file_AM-\u{0}", id_of(&foreign)] {
            let part = json!({"type": "input_file", "file_id": id});
            for (path, mut request) in [
                ("/v1/responses", message(json!([text, part]))),
                ("/v1/responses/input_tokens", message(json!([text, part]))),
                ("/v1/responses/compact", message(json!([text, part]))),
            ] {
                request["model"] = json!(Wire::Chat.model());
                let answer = of("am_a").post_json(path, &request).await;
                assert_refused(&answer, 400, Some("input[0].content[1].file_id"), "file_not_found");
            }
            let mut background = message(json!([part]));
            background["background"] = json!(true);
            background["model"] = json!(Wire::Chat.model());
            let answer = of("am_a").post_json("/v1/responses", &background).await;
            assert_refused(&answer, 400, Some("input[0].content[0].file_id"), "file_not_found");
        }
        let picture = message(json!([{"type": "input_image", "file_id": id_of(&own)}]));
        let answer = of("am_a").post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &picture)).await;
        assert_refused(&answer, 400, Some("input[0].content[0].file_id"), "invalid_value");
        assert_eq!(world.upstream(Wire::Chat).requests().len(), 0, "{}: no model was asked", store.name);
    }
}

#[tokio::test]
async fn the_id_of_a_file_at_an_upstream_reaches_it_as_it_is() {
    let world = World::start().await;
    let parts =
        json!([{"type": "input_file", "file_id": "file-abc123"}, {"type": "input_image", "file_id": "file-def"}]);
    world.whole(Wire::Responses, &Script::text(&["Seen."]), &message(parts.clone())).await;
    assert_eq!(last_of_user(Wire::Responses, &world.sent(Wire::Responses)), parts);
}

#[tokio::test]
async fn the_model_is_told_of_a_deleted_file_and_so_is_the_caller() {
    let world = World::start().await;
    let client = world.amalgam.client();
    for wire in WIRES {
        let file = upload(&client, "a.txt", None, b"In the file.").await;
        let request = message(json!([{"type": "input_file", "file_id": id_of(&file)}]));
        let first = world.whole(wire, &Script::text(&["Seen."]), &request).await;
        assert_eq!(delete(&client, &format!("/v1/files/{}", id_of(&file))).await.status, 200);
        let next = json!({"input": "And?", "previous_response_id": first["id"]});
        let answer = world.ask(wire, Delivery::Whole, &Script::text(&["Yes."]), &next).await;
        let told = format!("[The file {} is no longer available.]", id_of(&file));
        assert!(world.sent(wire).to_string().contains(&told), "{wire:?}");
        let losses = answer.header("amalgam-losses").unwrap_or_default();
        assert!(losses.starts_with("input.input_file: "), "{wire:?}: {losses}");

        // Where a loss is a fault, this one is too.
        let asked = world.upstream(wire).requests().len();
        let strict = client.clone().with_header("amalgam-strict", "true");
        let answer = strict.post_json("/v1/responses", &asking(wire, Delivery::Whole, &next)).await;
        assert_refused(&answer, 400, Some("input.input_file"), "unsupported_parameter");
        assert_eq!(world.upstream(wire).requests().len(), asked, "{wire:?}");
    }
}

#[tokio::test]
async fn the_files_of_one_turn_have_a_bound_however_often_they_are_named() {
    // S16
    let world = World::with(Setup::new().extra("[limits]\nmedia_bytes = \"10KiB\""), &[]).await;
    let client = world.amalgam.client();
    let file = upload(&client, "a.txt", None, &[b'x'; 4096]).await;
    let part = json!({"type": "input_file", "file_id": id_of(&file)});
    let answer = client
        .post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &message(json!([part, part, part]))))
        .await;
    assert_refused(&answer, 413, Some("input"), "request_too_large");
    assert_eq!(world.upstream(Wire::Chat).requests().len(), 0);
    world.whole(Wire::Chat, &Script::text(&["Fine."]), &message(json!([part, part]))).await;
}

#[tokio::test]
async fn what_is_in_a_file_is_counted() {
    let world = World::start().await;
    let client = world.amalgam.client();
    let file = upload(&client, "a.txt", None, "word ".repeat(1000).as_bytes()).await;
    let mut request = message(json!([{"type": "input_file", "file_id": id_of(&file)}]));
    request["model"] = json!(Wire::Chat.model());
    let counted = client.post_json("/v1/responses/input_tokens", &request).await.json();
    assert!(counted["input_tokens"].as_u64().unwrap() > 900, "{counted}");
}
