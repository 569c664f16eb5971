//! What a turn may bring along, and how the model gets to see it.

use serde_json::{Value, json};

use super::desk::{Desk, KEY, execute, open, opened, put, refusal, session, taken, turn, words};
use crate::support::{Script, Wire, stores};

const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// The parts of the last thing that the user said.
fn parts(request: &Value) -> Vec<Value> {
    let said =
        request["input"].as_array().expect("a request says something").iter().rfind(|item| item["role"] == "user");
    said.expect("the user said something")["content"].as_array().expect("a message has parts").clone()
}

fn texts(parts: &[Value]) -> Vec<&str> {
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}

#[tokio::test]
async fn files_images_and_hints_stand_behind_the_instruction_in_one_message() {
    // R003-24, R003-30, R034-10, R034-12, R034-21, R034-22
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        desk.says(Wire::Responses, [Script::text(&["Seen."])]);
        let mut body = turn(&id, "t1", "Explain");
        body["InputArtifacts"] = json!([
            {"RelativePath": "src/lib.rs", "FileName": "lib.rs", "Contents": "fn a() {}\n```\n", "Origin": "ide"},
            {"RelativePath": "logo.png", "FileName": "logo.png", "Contents": PIXEL, "Origin": "user", "Encoding": "base64", "MimeType": "image/png"},
        ]);
        body["ClipboardImages"] = json!([{"Id": "i1", "MimeType": "image/png", "DataBase64": PIXEL}]);
        body["Repo"] = json!("amalgam");
        body["Language"] = json!("rust");
        assert_eq!(taken(&ana, &body).await["Text"], "Seen.");
        let request = desk.asked(Wire::Responses).pop().expect("the model was asked");
        let users = request["input"].as_array().unwrap().iter().filter(|item| item["role"] == "user").count();
        assert_eq!(users, 1, "{request}");
        let parts = parts(&request);
        assert_eq!(parts[0], json!({"type": "input_text", "text": words("general", "Explain")}));
        let images = parts.iter().filter(|part| part["type"] == "input_image");
        let urls: Vec<&str> = images.filter_map(|part| part["image_url"].as_str()).collect();
        let picture = format!("data:image/png;base64,{PIXEL}");
        assert_eq!(urls, [&picture, &picture]);
        let texts = texts(&parts);
        let file = texts.iter().find(|text| text.starts_with("[FILE]")).expect("a text file is told as text");
        // The fence is longer than the one inside.
        assert!(file.contains("Path: src/lib.rs") && file.contains("````rust\nfn a() {}\n```\n````"), "{file}");
        assert!(
            texts.iter().any(|text| text.contains("Repository: amalgam") && text.contains("Language: rust")),
            "{texts:?}"
        );
        // Files alone are a turn, and hints are not what it is taken by.
        desk.says(Wire::Responses, [Script::text(&["Also seen."])]);
        let mut alone = json!({"SessionId": id, "TurnId": "t2"});
        alone["ClipboardImages"] = body["ClipboardImages"].clone();
        assert_eq!(taken(&ana, &alone).await["Text"], "Also seen.");
        assert_eq!(texts_of_last(&desk)[0], words("general", ""));
        desk.assert_asked(Wire::Responses, 2, store.name);
    }
}

fn texts_of_last(desk: &Desk) -> Vec<String> {
    let request = desk.asked(Wire::Responses).pop().expect("the model was asked");
    texts(&parts(&request)).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn what_is_said_about_the_solution_stays_until_it_is_replaced() {
    // R034-23
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        let mut last = None;
        for (number, (given, expected)) in [
            (None, None),
            (Some("Three crates."), Some("Three crates.")),
            (None, Some("Three crates.")),
            (Some("Four crates."), Some("Four crates.")),
            (None, Some("Four crates.")),
            (Some(""), None),
            (None, None),
        ]
        .into_iter()
        .enumerate()
        {
            desk.says(Wire::Responses, [Script::text(&["Ok."])]);
            let mut body = turn(&id, &format!("t{number}"), "Go on");
            if let Some(given) = given {
                body["SolutionContextText"] = json!(given);
            }
            taken(&ana, &body).await;
            let texts = texts_of_last(&desk);
            let told: Vec<&str> = texts.iter().filter_map(|text| text.strip_prefix("[SOLUTION_CONTEXT]\n")).collect();
            assert_eq!(told, expected.into_iter().collect::<Vec<_>>(), "{} {number}", store.name);
            last = session(&ana, &id).await["SolutionContextText"].as_str().map(str::to_owned);
            assert_eq!(last.as_deref().filter(|text| !text.is_empty()), expected, "{} {number}", store.name);
        }
        assert!(last.unwrap_or_default().is_empty());
    }
}

#[tokio::test]
async fn an_uploaded_file_is_named_by_its_id() {
    // R034-10
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let form = "--b\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n--b\r\ncontent-disposition: \
                    form-data; name=\"file\"; filename=\"notes.md\"\r\ncontent-type: text/markdown\r\n\r\nRemember the milk.\r\n--b--\r\n";
        let uploaded = ana.post_raw("/v1/files", "multipart/form-data; boundary=b", form).await;
        assert_eq!(uploaded.status, 200, "{}", uploaded.text());
        let file = uploaded.json()["id"].as_str().expect("a file has an id").to_owned();
        let id = open(&ana, Wire::Responses).await;
        desk.says(Wire::Responses, [Script::text(&["Seen."])]);
        let body = json!({"SessionId": id, "TurnId": "t1", "FileIds": [file]});
        assert_eq!(taken(&ana, &body).await["Text"], "Seen.");
        let request = desk.asked(Wire::Responses).pop().unwrap();
        let sent = parts(&request).into_iter().find(|part| part["type"] == "input_file").expect("the file is sent");
        let data = sent["file_data"].as_str().expect("with what is in it");
        assert!(data.ends_with("UmVtZW1iZXIgdGhlIG1pbGsu"), "{sent}");
        // A file that is not there, or another's, is a fault of the request.
        let ben = desk.user("ben");
        for (client, file) in [
            (&ana, "file_AM-aaaaaaaaaaaaaaaaaaaaaaaa"),
            (&ana, "file-of-another-server"),
            (&ana, "file_AM-\u{0}aaaaaaaaaaaaaaaaaaaaaaa"),
            (&ben, &*file),
        ] {
            let id = open(client, Wire::Responses).await;
            let answer = execute(client, &json!({"SessionId": id, "TurnId": "t1", "FileIds": [file]})).await;
            let (status, _, faults) = refusal(&answer);
            assert_eq!((status, faults[0].0.as_str()), (400, "FileIds[0]"), "{}", answer.text());
        }
        desk.assert_asked(Wire::Responses, 1, store.name);
    }
}

#[tokio::test]
async fn a_turn_may_ask_another_agent_than_its_sessions() {
    // R034-24
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let profile = json!({"prompt": "You are the reviewer.", "tools": [], "model": Wire::Responses.model()});
        put(&desk.admin(KEY), "/admin/profiles/reviewer", &profile).await;
        let id = opened(&ana, &json!({"AgentContextId": "responses"})).await;
        desk.says(Wire::Responses, [Script::text(&["Reviewed."]), Script::text(&["Back."])]);
        let mut body = turn(&id, "t1", "Review it");
        body["AgentContextId"] = json!("reviewer");
        body["ConversationContextId"] = json!("ctx-7");
        let envelope = taken(&ana, &body).await;
        let named = ["AgentContextId", "ConversationContextId"].map(|name| envelope[name].clone());
        assert_eq!(named, [json!("reviewer"), json!("ctx-7")], "{envelope}");
        let request = desk.asked(Wire::Responses).pop().unwrap();
        assert!(request["instructions"].to_string().contains("You are the reviewer."), "{request}");
        let back = taken(&ana, &turn(&id, "t2", "Thanks")).await;
        assert_eq!(back["AgentContextId"], "responses", "{back}");
        body["TurnId"] = json!("t3");
        body["AgentContextId"] = json!("unknown");
        let answer = execute(&ana, &body).await;
        let (status, _, faults) = refusal(&answer);
        assert_eq!((status, faults[0].0.as_str()), (400, "AgentContextId"), "{}", answer.text());
    }
}
