use amalgam_protocol::{Input, ResponseParameters};
use serde_json::{Value, json};

use super::*;
use crate::history::normalise;

const TEXT: &str = "file_AM-text";
const PICTURE: &str = "file_AM-picture";

fn uploads() -> HashMap<String, Upload> {
    let upload = |filename: &str, media_type: &str| Upload {
        filename: filename.to_owned(),
        media_type: media_type.to_owned(),
        data_uri: format!("data:{media_type};base64,AAAA"),
    };
    HashMap::from([
        (TEXT.to_owned(), upload("notes \"1\".txt", "text/plain")),
        (PICTURE.to_owned(), upload("cat.png", "image/png")),
    ])
}

/// The items of `input` after expansion, and what was lost.
fn expanded(input: Value) -> (Vec<Value>, Vec<Loss>) {
    let body = json!({"input": input}).to_string();
    let parameters = body.parse::<ResponseParameters>().unwrap();
    let request = parameters.view().unwrap();
    assert!(matches!(request.input, Some(Input::Items(_))));
    let history = normalise(None, request.input.as_ref());
    let expanded = ExpandedItems::new(&history, &uploads());
    let history = expanded.history(&history).unwrap();
    let item = |entry: &Entry<'_>| match entry {
        Entry::Message { item: Some(item), content: Content::Parts(parts), .. } => {
            let said: Vec<Value> = parts.iter().map(|part| serde_json::from_str(part.raw.text()).unwrap()).collect();
            let item: Value = serde_json::from_str(item.text()).unwrap();
            assert_eq!(item["content"], json!(said), "the item and its parts say the same");
            item
        }
        Entry::Call(call) => serde_json::from_str(call.item.text()).unwrap(),
        Entry::Output(output) => serde_json::from_str(output.item.text()).unwrap(),
        other => panic!("{other:?}"),
    };
    (history.entries.iter().map(item).collect(), history.losses.clone())
}

#[test]
fn a_file_that_is_named_stands_there_with_its_content_and_all_else_as_it_was() {
    let (items, losses) = expanded(json!([
        {"id": "msg_1", "role": "user", "status": "completed", "content": [
            {"type": "input_text", "text": "Look."},
            {"type": "input_file", "file_id": TEXT, "extra": 1},
            {"type": "input_file", "file_id": TEXT, "filename": "mine.txt"},
            {"type": "input_image", "file_id": PICTURE, "detail": "low"},
            {"type": "input_file", "file_id": PICTURE},
            {"type": "input_image", "file_id": "file_of_an_upstream"},
        ]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Thanks."}]},
    ]));
    let data = "data:text/plain;base64,AAAA";
    let picture = "data:image/png;base64,AAAA";
    assert_eq!(
        items,
        [
            json!({"id": "msg_1", "role": "user", "status": "completed", "content": [
                {"type": "input_text", "text": "Look."},
                {"type": "input_file", "filename": "notes \"1\".txt", "file_data": data, "extra": 1},
                {"type": "input_file", "filename": "mine.txt", "file_data": data},
                {"type": "input_image", "image_url": picture, "detail": "low"},
                {"type": "input_image", "image_url": picture},
                {"type": "input_image", "file_id": "file_of_an_upstream"},
            ]}),
            json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Thanks."}]}),
        ]
    );
    assert_eq!(losses, []);
}

#[test]
fn files_in_the_output_of_a_tool_are_put_in_too() {
    let (items, _) = expanded(json!([
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "file_id": PICTURE}]},
    ]));
    let output = json!([{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]);
    assert_eq!(items[1], json!({"type": "function_call_output", "call_id": "c", "output": output}));
}

#[test]
fn a_file_that_is_gone_is_told_to_the_model_and_is_a_loss() {
    let part = json!({"type": "input_file", "file_id": "file_AM-gone"});
    let (items, losses) = expanded(json!([{"role": "user", "content": [part, part]}]));
    let told = json!({"type": "input_text", "text": "[The file file_AM-gone is no longer available.]"});
    assert_eq!(items[0]["content"], json!([told, told]));
    let told: Vec<&str> = losses.iter().map(|loss| &*loss.field).collect();
    assert_eq!(told, ["input.input_file"]);
}

#[test]
fn files_are_named_as_often_as_they_stand_there() {
    let body = json!({"input": [{"role": "user", "content": [
        {"type": "input_file", "file_id": TEXT},
        {"type": "input_image", "file_id": TEXT},
        {"type": "input_file", "file_id": "other"},
    ]}]})
    .to_string();
    let parameters = body.parse::<ResponseParameters>().unwrap();
    let request = parameters.view().unwrap();
    let history = normalise(None, request.input.as_ref());
    assert_eq!(named(&history).collect::<Vec<_>>(), [TEXT, TEXT]);
}
