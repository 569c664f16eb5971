//! What an upstream says, written once and played on any wire.

use amalgam_testkit::Reply;
use serde_json::{Value, json};

use super::{Delivery, Wire};

/// One answer of an upstream.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) said: Vec<Said>,
    /// Whether the answer stops because no more tokens are allowed.
    pub(crate) cut_by_length: bool,
}

/// One thing that is said. Pieces are what a stream sends one by one.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Text(Vec<String>),
    Thoughts(Vec<String>),
    Refusal(Vec<String>),
    /// A call of a function.
    Call {
        id: String,
        name: String,
        namespace: Option<String>,
        arguments: Vec<String>,
    },
    /// A call of a custom tool.
    Custom {
        id: String,
        name: String,
        input: String,
    },
    /// A call of a local shell.
    LocalShell {
        id: String,
        command: Vec<String>,
    },
}

impl Said {
    pub(crate) fn text(pieces: &[&str]) -> Self {
        Self::Text(owned(pieces))
    }

    pub(crate) fn reasoning(pieces: &[&str]) -> Self {
        Self::Thoughts(owned(pieces))
    }

    pub(crate) fn refusal(pieces: &[&str]) -> Self {
        Self::Refusal(owned(pieces))
    }

    pub(crate) fn call(id: &str, name: &str, arguments: &[&str]) -> Self {
        Self::Call { id: id.to_owned(), name: name.to_owned(), namespace: None, arguments: owned(arguments) }
    }

    pub(crate) fn namespaced(id: &str, namespace: &str, name: &str, arguments: &[&str]) -> Self {
        let namespace = Some(namespace.to_owned());
        Self::Call { id: id.to_owned(), name: name.to_owned(), namespace, arguments: owned(arguments) }
    }

    pub(crate) fn custom(id: &str, name: &str, input: &str) -> Self {
        Self::Custom { id: id.to_owned(), name: name.to_owned(), input: input.to_owned() }
    }

    pub(crate) fn local_shell(id: &str, command: &[&str]) -> Self {
        Self::LocalShell { id: id.to_owned(), command: owned(command) }
    }

    /// The call as a wire with plain functions has it: id, name, pieces of its arguments.
    fn as_function(&self) -> Option<(&str, String, Vec<String>)> {
        match self {
            Self::Text(_) | Self::Thoughts(_) | Self::Refusal(_) => None,
            Self::Call { id, name, namespace, arguments } => {
                let name = namespace.iter().chain([name]).map(String::as_str).collect::<Vec<_>>().join("__");
                Some((id, name, arguments.clone()))
            }
            Self::Custom { id, name, input } => {
                let arguments = json!({"input": input}).to_string();
                let (head, tail) = arguments.split_at(arguments.floor_char_boundary(arguments.len() / 2));
                Some((id, name.clone(), owned(&[head, tail])))
            }
            Self::LocalShell { id, command } => {
                Some((id, "local_shell".to_owned(), vec![json!({"command": command}).to_string()]))
            }
        }
    }
}

impl Script {
    pub(crate) fn new(said: impl IntoIterator<Item = Said>) -> Self {
        Self { said: said.into_iter().collect(), cut_by_length: false }
    }

    /// One message in these pieces.
    pub(crate) fn text(pieces: &[&str]) -> Self {
        Self::new([Said::text(pieces)])
    }

    /// The same, ended by the limit on tokens.
    pub(crate) fn cut_by_length(mut self) -> Self {
        self.cut_by_length = true;
        self
    }

    /// The script on a wire. Every wire counts 11 tokens in, 3 of them cached, and 7 out.
    pub(crate) fn reply(&self, wire: Wire, delivery: Delivery) -> Reply {
        match (wire, delivery) {
            (Wire::Chat, Delivery::Whole) => Reply::json(self.chat_completion()),
            (Wire::Chat, Delivery::Stream) => Reply::sse_data(self.chat_chunks()),
            (Wire::Responses, Delivery::Whole) => Reply::json(self.response_object(true)),
            (Wire::Responses, Delivery::Stream) => Reply::sse_typed(self.response_events()),
            (Wire::Anthropic, Delivery::Whole) => Reply::json(self.message()),
            (Wire::Anthropic, Delivery::Stream) => Reply::sse_typed(self.message_events()),
        }
    }

    /// The data of the frames of a stream.
    pub(crate) fn frames(&self, wire: Wire) -> Vec<Value> {
        match wire {
            Wire::Chat => self.chat_chunks(),
            Wire::Responses => self.response_events(),
            Wire::Anthropic => self.message_events(),
        }
    }

    fn calls(&self) -> Vec<(&str, String, Vec<String>)> {
        self.said.iter().filter_map(Said::as_function).collect()
    }

    // Chat Completions.

    fn chat_finish(&self) -> &'static str {
        match (self.cut_by_length, self.calls().is_empty()) {
            (true, _) => "length",
            (false, true) => "stop",
            (false, false) => "tool_calls",
        }
    }

    fn chat_completion(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": null});
        for said in &self.said {
            match said {
                Said::Text(pieces) => message["content"] = json!(pieces.concat()),
                Said::Thoughts(pieces) => message["reasoning_content"] = json!(pieces.concat()),
                Said::Refusal(pieces) => message["refusal"] = json!(pieces.concat()),
                _ => {}
            }
        }
        let calls = self.calls();
        if !calls.is_empty() {
            let calls = calls.iter().map(|(id, name, arguments)| {
                json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.concat()}})
            });
            message["tool_calls"] = calls.collect();
        }
        json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "upstream-name",
            "choices": [{"index": 0, "message": message, "finish_reason": self.chat_finish(), "logprobs": null}],
            "usage": chat_usage(),
        })
    }

    fn chat_chunks(&self) -> Vec<Value> {
        let chunk = |delta: Value, finish: Option<&str>| {
            json!({
                "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "upstream-name",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null,
            })
        };
        let mut chunks = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
        for said in &self.said {
            let (field, pieces) = match said {
                Said::Text(pieces) => ("content", pieces),
                Said::Thoughts(pieces) => ("reasoning_content", pieces),
                Said::Refusal(pieces) => ("refusal", pieces),
                _ => continue,
            };
            chunks.extend(pieces.iter().map(|piece| chunk(json!({field: piece}), None)));
        }
        for (index, (id, name, arguments)) in self.calls().into_iter().enumerate() {
            let function = json!({"name": name, "arguments": ""});
            let head = json!({"index": index, "id": id, "type": "function", "function": function});
            chunks.push(chunk(json!({"tool_calls": [head]}), None));
            chunks.extend(
                arguments.iter().map(|piece| {
                    chunk(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}), None)
                }),
            );
        }
        chunks.push(chunk(json!({}), Some(self.chat_finish())));
        let mut counted = chunk(json!({}), None);
        counted["choices"] = json!([]);
        counted["usage"] = chat_usage();
        chunks.push(counted);
        chunks
    }

    // Responses.

    fn response_item(index: usize, said: &Said, status: &str) -> Value {
        match said {
            Said::Text(pieces) => json!({
                "type": "message", "id": format!("msg_up_{index}"), "role": "assistant", "status": status,
                "content": [{"type": "output_text", "text": pieces.concat(), "annotations": [], "logprobs": []}],
            }),
            Said::Refusal(pieces) => json!({
                "type": "message", "id": format!("msg_up_{index}"), "role": "assistant", "status": status,
                "content": [{"type": "refusal", "refusal": pieces.concat()}],
            }),
            Said::Thoughts(pieces) => json!({
                "type": "reasoning", "id": format!("rs_up_{index}"),
                "summary": [{"type": "summary_text", "text": pieces.concat()}],
            }),
            Said::Call { id, name, namespace, arguments } => {
                let mut item = json!({
                    "type": "function_call", "id": format!("fc_up_{index}"), "status": status, "call_id": id,
                    "name": name, "arguments": arguments.concat(),
                });
                if let Some(namespace) = namespace {
                    item["namespace"] = json!(namespace);
                }
                item
            }
            Said::Custom { id, name, input } => json!({
                "type": "custom_tool_call", "id": format!("ctc_up_{index}"), "status": status, "call_id": id,
                "name": name, "input": input,
            }),
            Said::LocalShell { id, command } => json!({
                "type": "local_shell_call", "id": format!("lsh_up_{index}"), "status": status, "call_id": id,
                "action": {"type": "exec", "command": command, "env": {}},
            }),
        }
    }

    fn response_output(&self) -> Vec<Value> {
        let last = self.said.len().saturating_sub(1);
        let items = self.said.iter().enumerate().map(|(index, said)| {
            let status = if self.cut_by_length && index == last { "incomplete" } else { "completed" };
            Self::response_item(index, said, status)
        });
        items.collect()
    }

    fn response_object(&self, ended: bool) -> Value {
        let (status, details) = match (ended, self.cut_by_length) {
            (false, _) => ("in_progress", Value::Null),
            (true, true) => ("incomplete", json!({"reason": "max_output_tokens"})),
            (true, false) => ("completed", Value::Null),
        };
        let output = if ended { self.response_output() } else { Vec::new() };
        json!({
            "id": "resp_up_1", "object": "response", "created_at": 1, "status": status, "error": null,
            "incomplete_details": details, "model": "upstream-name", "output": output,
            "usage": if ended { response_usage() } else { Value::Null },
        })
    }

    fn response_events(&self) -> Vec<Value> {
        let mut events = vec![
            json!({"type": "response.created", "response": self.response_object(false)}),
            json!({"type": "response.in_progress", "response": self.response_object(false)}),
        ];
        for (index, (said, item)) in self.said.iter().zip(self.response_output()).enumerate() {
            let mut announced = item.clone();
            for key in ["content", "summary"].into_iter().filter(|key| item.get(*key).is_some()) {
                announced[key] = json!([]);
            }
            for key in ["arguments", "input"].into_iter().filter(|key| item.get(*key).is_some()) {
                announced[key] = json!("");
            }
            if item.get("status").is_some() {
                announced["status"] = json!("in_progress");
            }
            events.push(json!({"type": "response.output_item.added", "output_index": index, "item": announced}));
            events.extend(progress(said, index, &item));
            events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        }
        let last = if self.cut_by_length { "response.incomplete" } else { "response.completed" };
        events.push(json!({"type": last, "response": self.response_object(true)}));
        for (number, event) in events.iter_mut().enumerate() {
            event["sequence_number"] = json!(number);
        }
        events
    }

    // Messages.

    fn message_stop(&self) -> Value {
        let refused = self.said.iter().any(|said| matches!(said, Said::Refusal(_)));
        json!(match (self.cut_by_length, refused, self.calls().is_empty()) {
            (true, ..) => "max_tokens",
            (false, true, _) => "refusal",
            (false, false, false) => "tool_use",
            (false, false, true) => "end_turn",
        })
    }

    /// The blocks, each with its text in pieces. A refusal has none: its stop reason says it.
    fn blocks(&self) -> Vec<(Value, &'static str, &'static str, Vec<String>)> {
        let blocks = self.said.iter().filter_map(|said| match said {
            Said::Text(pieces) => Some((json!({"type": "text", "text": ""}), "text_delta", "text", pieces.clone())),
            Said::Thoughts(pieces) => {
                let block = json!({"type": "thinking", "thinking": "", "signature": ""});
                Some((block, "thinking_delta", "thinking", pieces.clone()))
            }
            Said::Refusal(_) => None,
            _ => {
                let (id, name, arguments) = said.as_function()?;
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                Some((block, "input_json_delta", "partial_json", arguments))
            }
        });
        blocks.collect()
    }

    fn message(&self) -> Value {
        let content = self.blocks().into_iter().map(|(mut block, _, field, pieces)| {
            let text = pieces.concat();
            match field {
                "partial_json" => block["input"] = serde_json::from_str(&text).expect("scripted arguments are JSON"),
                "thinking" => {
                    block["thinking"] = json!(text);
                    block["signature"] = json!("c2ln");
                }
                _ => block[field] = json!(text),
            }
            block
        });
        json!({
            "id": "msg_up", "type": "message", "role": "assistant", "model": "upstream-name",
            "content": content.collect::<Vec<_>>(), "stop_reason": self.message_stop(), "stop_sequence": null,
            "usage": message_usage(7),
        })
    }

    fn message_events(&self) -> Vec<Value> {
        let message = json!({
            "id": "msg_up", "type": "message", "role": "assistant", "model": "upstream-name", "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": message_usage(1),
        });
        let mut events = vec![json!({"type": "message_start", "message": message})];
        for (index, (block, kind, field, pieces)) in self.blocks().into_iter().enumerate() {
            events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
            let delta = |delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
            events.extend(pieces.iter().map(|piece| delta(json!({"type": kind, field: piece}))));
            if field == "thinking" {
                events.push(delta(json!({"type": "signature_delta", "signature": "c2ln"})));
            }
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        let delta = json!({"stop_reason": self.message_stop(), "stop_sequence": null});
        events.push(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}));
        events.push(json!({"type": "message_stop"}));
        events
    }
}

/// What a Responses stream says between the beginning and the end of an item.
fn progress(said: &Said, index: usize, item: &Value) -> Vec<Value> {
    let at = |kind: &str, extra: Value| {
        let mut event = json!({"type": kind, "item_id": item["id"], "output_index": index});
        event.as_object_mut().into_iter().zip(extra.as_object()).for_each(|(event, extra)| {
            event.extend(extra.iter().map(|(key, value)| (key.clone(), value.clone())));
        });
        event
    };
    let mut events = Vec::new();
    match said {
        Said::Text(pieces) | Said::Refusal(pieces) => {
            let (name, field, part) = match said {
                Said::Refusal(_) => ("response.refusal", "refusal", json!({"type": "refusal", "refusal": ""})),
                _ => ("response.output_text", "text", json!({"type": "output_text", "text": "", "annotations": []})),
            };
            events.push(at("response.content_part.added", json!({"content_index": 0, "part": part})));
            events.extend(pieces.iter().map(|piece| {
                at(&format!("{name}.delta"), json!({"content_index": 0, "delta": piece, "logprobs": []}))
            }));
            events.push(at(&format!("{name}.done"), json!({"content_index": 0, field: pieces.concat()})));
            let part = item["content"][0].clone();
            events.push(at("response.content_part.done", json!({"content_index": 0, "part": part})));
        }
        Said::Thoughts(pieces) => {
            let empty = json!({"type": "summary_text", "text": ""});
            events.push(at("response.reasoning_summary_part.added", json!({"summary_index": 0, "part": empty})));
            events.extend(
                pieces.iter().map(|piece| {
                    at("response.reasoning_summary_text.delta", json!({"summary_index": 0, "delta": piece}))
                }),
            );
            let text = json!({"summary_index": 0, "text": pieces.concat()});
            events.push(at("response.reasoning_summary_text.done", text));
            let part = item["summary"][0].clone();
            events.push(at("response.reasoning_summary_part.done", json!({"summary_index": 0, "part": part})));
        }
        Said::Call { arguments, .. } => {
            let name = "response.function_call_arguments";
            events.extend(arguments.iter().map(|piece| at(&format!("{name}.delta"), json!({"delta": piece}))));
            events.push(at(&format!("{name}.done"), json!({"arguments": arguments.concat()})));
        }
        Said::Custom { input, .. } => {
            let name = "response.custom_tool_call_input";
            events.push(at(&format!("{name}.delta"), json!({"delta": input})));
            events.push(at(&format!("{name}.done"), json!({"input": input})));
        }
        Said::LocalShell { .. } => {}
    }
    events
}

fn chat_usage() -> Value {
    json!({
        "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 2},
    })
}

fn response_usage() -> Value {
    json!({
        "input_tokens": 11, "input_tokens_details": {"cached_tokens": 3},
        "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 18,
    })
}

fn message_usage(output_tokens: u64) -> Value {
    json!({
        "input_tokens": 8, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 0,
        "output_tokens": output_tokens,
    })
}

fn owned(pieces: &[&str]) -> Vec<String> {
    pieces.iter().map(|piece| (*piece).to_owned()).collect()
}
