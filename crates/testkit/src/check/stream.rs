//! Rules for the events of one streamed response: numbering, order, ids, indices, and text that adds up.
//!
//! The checker replays the stream. It records which items and parts are open and the text of their deltas, and compares
//! that with the closing events and the final response.

use serde_json::Value;

use super::item::{item as item_problems, part_problems};
use super::response::response as response_problems;
use super::text;

/// The fields of an item that later events fill.
const FILLED_LATER: [&str; 4] = ["content", "arguments", "input", "summary"];

/// Families of events that published clients accept besides those that are checked in detail.
const OTHER_FAMILIES: [&str; 7] = [
    "response.mcp_call",
    "response.mcp_list_tools",
    "response.web_search_call",
    "response.file_search_call",
    "response.code_interpreter_call",
    "response.image_generation_call",
    "response.shell_call",
];

/// The violations of the events of a stream, in order; `[DONE]` is not among them.
pub fn stream(events: &[Value]) -> Vec<String> {
    let mut replay = Replay::default();
    for (index, event) in events.iter().enumerate() {
        let kind = text(event, "type");
        replay.place = format!("event {index} ({kind})");
        if event["sequence_number"].as_u64() != Some(index as u64) {
            replay.complain(format!("sequence_number is {} and not {index}", event["sequence_number"]));
        }
        replay.on(kind, event);
    }
    replay.finish();
    replay.violations
}

#[derive(Default)]
struct Replay {
    violations: Vec<String>,
    place: String,
    stage: Stage,
    first: Option<Value>,
    items: Vec<Item>,
    errors: usize,
    error_was_last: bool,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Stage {
    #[default]
    Nothing,
    Created,
    Queued,
    Running,
    Ended,
}

/// An output item between `added` and the end of the stream.
#[derive(Default)]
struct Item {
    id: String,
    kind: String,
    call_id: Value,
    parts: Vec<Part>,
    summary: Vec<Part>,
    payload: Text,
    done: Option<Value>,
}

#[derive(Default)]
struct Part {
    kind: String,
    text: Text,
    annotations: Vec<Value>,
    done: bool,
}

/// Text that arrives in deltas and is repeated in full at its end.
#[derive(Default)]
struct Text {
    so_far: String,
    done: bool,
}

impl Text {
    fn delta(&mut self, event: &Value) -> Result<(), String> {
        let delta = event["delta"].as_str().ok_or("`delta` is not a text")?;
        self.so_far.push_str(delta);
        if self.done { Err("a delta after the text was done".to_owned()) } else { Ok(()) }
    }

    fn done(&mut self, event: &Value, key: &str) -> Result<(), String> {
        if std::mem::replace(&mut self.done, true) {
            return Err("the text is done twice".to_owned());
        }
        self.same(&event[key], key)
    }

    fn same(&self, value: &Value, key: &str) -> Result<(), String> {
        match value.as_str() {
            Some(text) if text == self.so_far => Ok(()),
            _ => Err(format!("`{key}` is {value} and the deltas add up to {:?}", self.so_far)),
        }
    }
}

impl Replay {
    fn complain(&mut self, what: impl Into<String>) {
        self.violations.push(format!("{}: {}", self.place, what.into()));
    }

    fn note(&mut self, result: Result<(), String>) {
        if let Err(what) = result {
            self.complain(what);
        }
    }

    fn on(&mut self, kind: &str, event: &Value) {
        if self.stage == Stage::Ended {
            self.complain("an event after the terminal one");
        }
        if self.error_was_last && kind != "response.failed" {
            self.complain("an error is not followed by response.failed");
        }
        let starts = ["response.created", "response.queued", "response.in_progress"].contains(&kind);
        if self.stage != Stage::Running && self.stage != Stage::Ended && !starts && kind != "keepalive" {
            self.complain("comes before response.in_progress");
        }
        match kind {
            "response.created" => self.start(event, Stage::Created, &["queued", "in_progress"]),
            "response.queued" => self.start(event, Stage::Queued, &["queued"]),
            "response.in_progress" => self.start(event, Stage::Running, &["in_progress"]),
            "response.completed" | "response.failed" | "response.incomplete" => self.end(kind, event),
            "response.output_item.added" => self.item_added(event),
            "response.output_item.done" => self.item_done(event),
            "error" => self.error(event),
            "keepalive" => {
                if self.stage == Stage::Nothing {
                    self.complain("comes before response.created");
                }
            }
            _ => match self.item_event(kind, event) {
                Ok(()) => {}
                Err(what) => self.complain(what),
            },
        }
        self.error_was_last = kind == "error";
    }

    fn start(&mut self, event: &Value, stage: Stage, statuses: &[&str]) {
        let expected = match stage {
            Stage::Created => self.stage == Stage::Nothing,
            Stage::Queued => self.stage == Stage::Created,
            _ => [Stage::Created, Stage::Queued].contains(&self.stage),
        };
        if !expected {
            self.complain("is out of order");
        }
        self.stage = stage;
        let response = &event["response"];
        self.response(response);
        if !statuses.contains(&text(response, "status")) {
            self.complain(format!("the response is {}", response["status"]));
        }
        if response["output"] != Value::Array(Vec::new()) {
            self.complain("the response has output before any item");
        }
    }

    fn response(&mut self, response: &Value) {
        for problem in response_problems(response) {
            self.complain(problem);
        }
        let Some(first) = &self.first else {
            self.first = Some(response.clone());
            return;
        };
        let changed: Vec<_> =
            ["id", "created_at", "model", "previous_response_id", "instructions", "tools", "metadata"]
                .into_iter()
                .filter(|key| first[*key] != response[*key])
                .collect();
        for key in changed {
            self.complain(format!("`{key}` is not what response.created said"));
        }
    }

    fn error(&mut self, event: &Value) {
        self.errors += 1;
        for (key, nullable) in [("type", false), ("code", true), ("message", false), ("param", true)] {
            let nested = &event["error"][key];
            if event["error"].get(key).is_none() || !(nested.is_string() || nullable && nested.is_null()) {
                self.complain(format!("`error.{key}` is missing"));
            }
            // The flat copy has its own `type`, which is the name of the event.
            if key != "type" && event.get(key) != Some(nested) {
                self.complain(format!("`{key}` is not beside `error` with the same value"));
            }
        }
    }

    fn end(&mut self, kind: &str, event: &Value) {
        self.stage = Stage::Ended;
        let response = &event["response"];
        self.response(response);
        if kind.strip_prefix("response.") != response["status"].as_str() {
            self.complain(format!("the response is {}", response["status"]));
        }
        let output = response["output"].as_array().cloned().unwrap_or_default();
        if kind == "response.failed" {
            // openai-node's helper treats a failure without a preceding `error` as an empty success.
            if !self.error_was_last {
                self.complain("no error event comes right before it");
            }
            // Items that were open when the response failed may be left out, or be incomplete.
            for value in &output {
                let known = self.items.iter().find(|item| item.id == text(value, "id"));
                match known {
                    Some(Item { done: Some(done), .. }) if done != value => {
                        self.complain(format!("the output item {} is not what was done", value["id"]));
                    }
                    Some(_) => {}
                    None => self.complain(format!("the output item {} was never added", value["id"])),
                }
            }
            return;
        }
        let open = self.items.iter().position(|item| item.done.is_none());
        if let Some(index) = open {
            self.complain(format!("output item {index} is not done"));
        }
        let done: Vec<Value> = self.items.iter().filter_map(|item| item.done.clone()).collect();
        if open.is_none() && output != done {
            self.complain("`output` is not the list of the items that were done");
        }
    }

    fn finish(&mut self) {
        self.place = "the stream".to_owned();
        if self.stage != Stage::Ended {
            self.complain("ends without a terminal event");
        }
        if self.errors > 1 {
            self.complain("has more than one error event");
        }
    }

    fn item_added(&mut self, event: &Value) {
        let item = &event["item"];
        if event["output_index"].as_u64() != Some(self.items.len() as u64) {
            self.complain(format!("output_index is {} and not {}", event["output_index"], self.items.len()));
        }
        let added = Item {
            id: text(item, "id").to_owned(),
            kind: text(item, "type").to_owned(),
            call_id: item["call_id"].clone(),
            ..Item::default()
        };
        for problem in item_problems("item", item) {
            self.complain(problem);
        }
        if item.get("status").is_some_and(|status| status != "in_progress") {
            self.complain(format!("the item starts as {}", item["status"]));
        }
        let empty = |key: &str| item.get(key).is_none_or(|value| value == "" || value == &Value::Array(Vec::new()));
        // An approval request has no events of its own that could fill it.
        let filled_later = if text(item, "type") == "mcp_approval_request" { [].as_slice() } else { &FILLED_LATER };
        let not_empty = filled_later.iter().copied().filter(|key| !empty(key));
        for key in not_empty.collect::<Vec<_>>() {
            self.complain(format!("`item.{key}` is not empty yet"));
        }
        if self.items.iter().any(|other| other.id == added.id) {
            self.complain(format!("the item id {} was used before", item["id"]));
        }
        self.items.push(added);
    }

    fn item_done(&mut self, event: &Value) {
        let value = &event["item"];
        for problem in item_problems("item", value) {
            self.complain(problem);
        }
        if value["status"] == "in_progress" {
            self.complain("the item is done and in progress");
        }
        let index = event["output_index"].as_u64().map_or(usize::MAX, |index| index as usize);
        let Some(mut item) = self.items.get_mut(index).map(std::mem::take) else {
            self.complain(format!("output item {} was never added", event["output_index"]));
            return;
        };
        if item.done.is_some() {
            self.complain("the item is done twice");
        }
        if (item.id.as_str(), item.kind.as_str(), &item.call_id)
            != (text(value, "id"), text(value, "type"), &value["call_id"])
        {
            self.complain("id, type or call_id are not those of the item that was added");
        }
        for result in item.closing(value) {
            self.note(result);
        }
        item.done = Some(value.clone());
        self.items[index] = item;
    }

    /// Checks an event inside an item.
    fn item_event(&mut self, kind: &str, event: &Value) -> Result<(), String> {
        let known = OTHER_FAMILIES.iter().any(|family| kind.starts_with(family));
        let index = event["output_index"].as_u64().ok_or(match known || kind.starts_with("response.") {
            true => "`output_index` is missing",
            false => "is not an event that clients know",
        })?;
        let item = self.items.get_mut(index as usize).ok_or(format!("output item {index} was never added"))?;
        if item.id != text(event, "item_id") {
            return Err(format!("item_id is {} and the item is {:?}", event["item_id"], item.id));
        }
        if item.done.is_some() {
            return Err("comes after the item was done".to_owned());
        }
        match kind {
            "response.content_part.added" => add_part(&mut item.parts, event, "content_index"),
            "response.content_part.done" => close_part(&mut item.parts, event, "content_index"),
            "response.reasoning_summary_part.added" => add_part(&mut item.summary, event, "summary_index"),
            "response.reasoning_summary_part.done" => close_part(&mut item.summary, event, "summary_index"),
            "response.output_text.delta" | "response.output_text.done" => {
                if !event["logprobs"].is_array() {
                    return Err("`logprobs` is not a list".to_owned());
                }
                part_text(&mut item.parts, event, "content_index", "output_text", "text")
            }
            "response.refusal.delta" | "response.refusal.done" => {
                part_text(&mut item.parts, event, "content_index", "refusal", "refusal")
            }
            "response.reasoning_text.delta" | "response.reasoning_text.done" => {
                part_text(&mut item.parts, event, "content_index", "reasoning_text", "text")
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_summary_text.done" => {
                part_text(&mut item.summary, event, "summary_index", "summary_text", "text")
            }
            "response.output_text.annotation.added" => {
                let part = open_part(&mut item.parts, event, "content_index")?;
                let index = part.annotations.len();
                part.annotations.push(event["annotation"].clone());
                match event["annotation_index"].as_u64() == Some(index as u64) {
                    true => Ok(()),
                    false => Err(format!("annotation_index is {} and not {index}", event["annotation_index"])),
                }
            }
            "response.function_call_arguments.delta" => item.payload("function_call")?.delta(event),
            "response.function_call_arguments.done" => {
                if text(event, "name").is_empty() {
                    return Err("`name` is missing".to_owned());
                }
                item.payload("function_call")?.done(event, "arguments")
            }
            "response.custom_tool_call_input.delta" => item.payload("custom_tool_call")?.delta(event),
            "response.custom_tool_call_input.done" => item.payload("custom_tool_call")?.done(event, "input"),
            _ if known => Ok(()),
            _ => Err("is not an event that clients know".to_owned()),
        }
    }
}

impl Item {
    fn payload(&mut self, kind: &str) -> Result<&mut Text, String> {
        match self.kind == kind {
            true => Ok(&mut self.payload),
            false => Err(format!("the item is a {} and not a {kind}", self.kind)),
        }
    }

    /// Compares the closing item with the events before it.
    fn closing(&self, value: &Value) -> Vec<Result<(), String>> {
        let mut results = Vec::new();
        for (key, parts) in [("content", &self.parts), ("summary", &self.summary)] {
            let shown = value[key].as_array().map(Vec::as_slice).unwrap_or_default();
            if shown.len() != parts.len() {
                results.push(Err(format!("`{key}` has {} parts and {} were added", shown.len(), parts.len())));
            }
            for (index, (part, shown)) in parts.iter().zip(shown).enumerate() {
                if !part.done {
                    results.push(Err(format!("{key} part {index} is not done")));
                }
                results.push(part.same(shown));
            }
        }
        let payload = match self.kind.as_str() {
            "function_call" => "arguments",
            "custom_tool_call" => "input",
            _ => return results,
        };
        if !self.payload.done {
            results.push(Err(format!("`{payload}` were never done")));
        }
        results.push(self.payload.same(&value[payload], payload));
        results
    }
}

impl Part {
    fn same(&self, value: &Value) -> Result<(), String> {
        if text(value, "type") != self.kind {
            return Err(format!("a part that was added as {} is {}", self.kind, value["type"]));
        }
        let key = if self.kind == "refusal" { "refusal" } else { "text" };
        self.text.same(&value[key], key)?;
        match self.kind == "output_text" && value["annotations"] != Value::Array(self.annotations.clone()) {
            true => Err("`annotations` are not those that were added".to_owned()),
            false => Ok(()),
        }
    }
}

fn add_part(parts: &mut Vec<Part>, event: &Value, index_key: &str) -> Result<(), String> {
    let index = parts.len();
    let part = &event["part"];
    let previous_open = parts.last().is_some_and(|part| !part.done);
    parts.push(Part { kind: text(part, "type").to_owned(), ..Part::default() });
    if event[index_key].as_u64() != Some(index as u64) {
        return Err(format!("{index_key} is {} and not {index}", event[index_key]));
    }
    if previous_open {
        return Err("the part before it is not done".to_owned());
    }
    if index_key == "content_index"
        && let Some(problem) = part_problems(part).into_iter().next()
    {
        return Err(problem);
    }
    match ["text", "refusal"].iter().any(|key| !text(part, key).is_empty()) {
        true => Err("the part is not empty yet".to_owned()),
        false => Ok(()),
    }
}

fn close_part(parts: &mut [Part], event: &Value, index_key: &str) -> Result<(), String> {
    let part = open_part(parts, event, index_key)?;
    part.done = true;
    if !part.text.done {
        return Err("the text of the part is not done".to_owned());
    }
    part.same(&event["part"])
}

fn open_part<'a>(parts: &'a mut [Part], event: &Value, index_key: &str) -> Result<&'a mut Part, String> {
    let index = event[index_key].as_u64().ok_or(format!("`{index_key}` is missing"))?;
    let part = parts.get_mut(index as usize).ok_or(format!("part {index} was never added"))?;
    if part.done { Err(format!("part {index} is done")) } else { Ok(part) }
}

fn part_text(parts: &mut [Part], event: &Value, index_key: &str, kind: &str, key: &str) -> Result<(), String> {
    let part = open_part(parts, event, index_key)?;
    if part.kind != kind {
        return Err(format!("the part is a {} and not a {kind}", part.kind));
    }
    match text(event, "type").ends_with(".done") {
        true => part.text.done(event, key),
        false => part.text.delta(event),
    }
}
