//! Items that only the final object contains, and items that it repeats.

use super::*;

fn message(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]})
}

fn call(id: &str, call_id: &str) -> Value {
    json!({"type": "function_call", "id": id, "status": "completed", "call_id": call_id, "name": "f", "arguments": "{}"})
}

fn delta(at: Value) -> Value {
    let mut event = json!({"type": "response.output_text.delta", "delta": "Hi"});
    event.as_object_mut().unwrap().extend(at.as_object().unwrap().clone());
    event
}

fn done(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

/// Texts and call ids of what a client gets, in order.
fn told(stream: &[Value], output: Value) -> Vec<String> {
    let last = json!({"type": "response.completed", "response": {"status": "completed", "output": output}});
    let (events, ended) = streamed(&stream.iter().cloned().chain([last]).collect::<Vec<_>>());
    ended.unwrap();
    let response = response(events).unwrap();
    assert_eq!(response["status"], "completed");
    let items = response["output"].as_array().unwrap().iter();
    items.map(|item| item["call_id"].as_str().or(item["content"][0]["text"].as_str()).unwrap().to_owned()).collect()
}

#[test]
fn items_that_only_the_final_object_has_are_not_lost() {
    for at in
        [json!({}), json!({"item_id": "m"}), json!({"output_index": 0}), json!({"item_id": "m", "output_index": 0})]
    {
        let output = json!([message("m", "Hi"), call("a", "c1"), call("b", "c2"), message("n", "Bye")]);
        assert_eq!(told(&[delta(at.clone())], output), ["Hi", "c1", "c2", "Bye"], "{at}");
    }
    let stream = [done(0, message("m", "Hi")), done(1, call("a", "c1"))];
    let output = json!([call("b", "c2"), message("m", "Hi"), call("a", "c1")]);
    assert_eq!(told(&stream, output), ["Hi", "c1", "c2"]);
}

#[test]
fn items_that_the_final_object_repeats_are_told_once() {
    let stream = [done(0, message("m", "Hi")), done(1, call("a", "c1")), done(2, call("b", "c2"))];
    for output in [
        json!([message("m", "Hi"), call("a", "c1"), call("b", "c2")]),
        // Ids that have changed, positions that have moved, and both.
        json!([message("m9", "Hi"), call("a9", "c1"), call("b9", "c2")]),
        json!([call("a", "c1"), call("b", "c2"), message("m", "Hi")]),
        json!([call("a9", "c1"), call("b9", "c2"), message("m9", "Hi")]),
        json!([]),
    ] {
        assert_eq!(told(&stream, output.clone()), ["Hi", "c1", "c2"], "{output}");
    }
}
