//! Reads the fields of the envelope from a response object, which may be malformed.
//!
//! Explicit values of the upstream win; missing ones, such as the finish reason, are derived.

use std::{borrow::Cow, fmt};

use amalgam_protocol::{Literal, Raw, Shape, Writer};

use super::envelope::{AgentToolCall, Failure, LlmUsage, code};

/// The fields that were read from a response.
pub(super) struct ResponseFields {
    pub(super) id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) text: Option<String>,
    pub(super) finish_reason: Option<String>,
    pub(super) usage: LlmUsage,
    pub(super) warnings: Vec<String>,
    pub(super) failure: Option<Failure>,
    pub(super) tool_calls: Vec<AgentToolCall>,
}

pub(super) fn read(response: Raw<'_>) -> ResponseFields {
    let output = response.get("output").filter(|output| matches!(output.shape(), Shape::Array | Shape::Object));
    let mut found = ResponseContent::default();
    if let Some(output) = output {
        match output.shape() {
            Shape::Object => found.item(output),
            _ => output.elements().for_each(|item| found.item(item)),
        }
    }
    found.finish(response);
    let id = text_of(response, "id");
    let failure = failure_of(response, output.is_some(), id.is_some());
    let mut tool_calls = found.unanswered();
    if failure.is_some() {
        // The client must not run the calls of a failed turn.
        tool_calls.clear();
    }
    let finish_reason = found.finish_reason.or_else(|| derived_finish(response, &tool_calls, failure.is_some()));
    let mut warnings = Vec::new();
    if found.refused {
        warnings.push("the model refused: the text holds its refusal".to_owned());
    }
    if tool_calls.iter().any(|call| call.call_id.is_empty()) {
        warnings.push("a tool call has no id, so that no result can name it".to_owned());
    }
    if found.cut_short && !tool_calls.is_empty() {
        warnings.push("a tool call was cut short: its arguments are not whole".to_owned());
    }
    ResponseFields {
        id,
        model: text_of(response, "model"),
        text: (!found.segments.is_empty()).then(|| found.segments.join("\n\n")),
        finish_reason,
        usage: usage_of(response.get("usage")),
        warnings,
        failure,
        tool_calls,
    }
}

/// The finish reason that a response object states: the last one in it. R004-14
pub(super) fn explicit_finish(response: Raw<'_>) -> Option<String> {
    let mut found = ResponseContent::default();
    match response.get("output") {
        Some(output) if output.shape() == Shape::Object => found.item(output),
        output => output.into_iter().flat_map(Raw::elements).for_each(|item| found.item(item)),
    }
    found.finish(response);
    found.finish_reason
}

/// A string that is not blank.
fn text_of(object: Raw<'_>, name: &str) -> Option<String> {
    object.get_str(name).filter(|text| !text.trim().is_empty()).map(Cow::into_owned)
}

#[derive(Default)]
struct ResponseContent {
    segments: Vec<String>,
    calls: Vec<AgentToolCall>,
    /// Calls that the server itself has run: their outputs are in the response.
    answered: Vec<String>,
    finish_reason: Option<String>,
    refused: bool,
    cut_short: bool,
}

impl ResponseContent {
    fn item(&mut self, item: Raw<'_>) {
        let kind = item.get_str("type").unwrap_or_default().to_ascii_lowercase();
        match kind.as_str() {
            "output_text" | "text" | "refusal" => self.part(item),
            "message" => self.message(item),
            "tool_call" => return self.nested_call(item),
            "function_call" => {
                self.cut_short |= item.get_str("status").is_some_and(|status| status == "incomplete");
                // `id` names the item; `call_id` is the id that a result has to name.
                self.call(item.get_str("call_id"), item);
            }
            "function_call_output" => self.answered.extend(text_of(item, "call_id")),
            _ => {}
        }
        self.finish(item);
    }

    /// Only messages of the assistant count as text.
    fn message(&mut self, message: Raw<'_>) {
        if message.get_str("role").is_some_and(|role| role != "assistant") {
            return;
        }
        let Some(content) = message.get("content") else { return };
        match content.as_str() {
            Some(text) => self.push_text(&text.decode()),
            None if content.shape() == Shape::Object => self.part(content),
            None => content.elements().for_each(|part| self.part(part)),
        }
    }

    fn part(&mut self, part: Raw<'_>) {
        let kind = part.get_str("type").unwrap_or_default().to_ascii_lowercase();
        match kind.as_str() {
            "output_text" | "text" => self.push_text(&part.get_str("text").unwrap_or_default()),
            "refusal" => {
                let text = part.get_str("refusal").or_else(|| part.get_str("text")).unwrap_or_default();
                self.refused |= !text.trim().is_empty();
                self.push_text(&text);
            }
            "tool_call" => return self.nested_call(part),
            _ => {}
        }
        self.finish(part);
    }

    fn push_text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.segments.push(text.to_owned());
        }
    }

    /// The call is a nested object; without it there is no call.
    fn nested_call(&mut self, outer: Raw<'_>) {
        if let Some(call) = outer.get("tool_call").filter(|call| call.shape() == Shape::Object) {
            self.call(call.get_str("id"), call);
            self.finish(call);
        }
        self.finish(outer);
    }

    fn call(&mut self, call_id: Option<Cow<'_, str>>, call: Raw<'_>) {
        let arguments = call.get("arguments").filter(|arguments| !arguments.is_null());
        self.calls.push(AgentToolCall {
            call_id: call_id.unwrap_or_default().into_owned(),
            name: call.get_str("name").unwrap_or_default().into_owned(),
            arguments_json: arguments.map(|arguments| match arguments.as_str() {
                Some(text) => Literal::from(text),
                None => Literal::from_text(&compact(arguments)),
            }),
        });
    }

    /// The last finish reason wins.
    fn finish(&mut self, value: Raw<'_>) {
        if let Some(reason) = text_of(value, "finish_reason") {
            self.finish_reason = Some(reason);
        }
    }

    fn unanswered(&mut self) -> Vec<AgentToolCall> {
        let mut calls = std::mem::take(&mut self.calls);
        calls.retain(|call| !self.answered.contains(&call.call_id));
        calls
    }
}

/// The JSON of a value without white space.
fn compact(value: Raw<'_>) -> String {
    fn write(writer: &mut Writer, value: Raw<'_>) {
        match value.shape() {
            Shape::Object => writer.object(|writer| {
                for (key, value) in value.fields() {
                    writer.json_str(key);
                    writer.outside(b":");
                    write(writer, value);
                }
            }),
            Shape::Array => writer.array(|writer| value.elements().for_each(|element| write(writer, element))),
            _ => writer.raw(value),
        }
    }
    let mut writer = Writer::with_capacity(value.text().len());
    write(&mut writer, value);
    String::from_utf8(writer.into_bytes()).expect("a writer writes text")
}

/// Derives the finish reason from the response's status if the upstream does not state it.
fn derived_finish(response: Raw<'_>, calls: &[AgentToolCall], failed: bool) -> Option<String> {
    let status = response.get_str("status").unwrap_or_default();
    let details = response.get("incomplete_details").and_then(|details| details.get_str("reason"));
    let reason = match (&*status, details.as_deref()) {
        _ if failed => "error",
        _ if !calls.is_empty() => "tool_use",
        ("incomplete", Some("content_filter")) => "content_filter",
        ("incomplete", Some(reason)) if reason.starts_with("max_tool_") => "tool_iterations",
        // By default an answer is incomplete because of a limit.
        ("incomplete", _) => "length",
        _ => "stop",
    };
    Some(reason.to_owned())
}

pub(super) fn usage_of(usage: Option<Raw<'_>>) -> LlmUsage {
    let count = |names: [&str; 2]| {
        let count = names.into_iter().find_map(|name| usage?.get(name)?.as_u64());
        count.unwrap_or_default()
    };
    let prompt_tokens = count(["prompt_tokens", "input_tokens"]);
    let completion_tokens = count(["completion_tokens", "output_tokens"]);
    let total = usage.and_then(|usage| usage.get("total_tokens")?.as_u64());
    let total_tokens = total.unwrap_or_else(|| prompt_tokens.saturating_add(completion_tokens));
    LlmUsage { prompt_tokens, completion_tokens, total_tokens }
}

/// A completed response may still contain an error object, which is not a failure of the turn.
fn failure_of(response: Raw<'_>, has_output: bool, has_id: bool) -> Option<Failure> {
    let status = response.get_str("status").unwrap_or_default();
    let error = response.get("error").and_then(api_error);
    let failed = matches!(&*status, "failed" | "cancelled");
    if failed || (error.is_some() && !matches!(&*status, "completed" | "incomplete")) {
        let error = error.unwrap_or_default();
        let code = error.code.clone().or_else(|| error.kind.clone());
        let message = error.message.clone().unwrap_or_else(|| match &*status {
            "cancelled" => "the response was cancelled".to_owned(),
            _ => "the response failed".to_owned(),
        });
        let status = if failed { status.into_owned() } else { "error".to_owned() };
        return Some(Failure { code: code.unwrap_or(status), message });
    }
    let missing = |code: &str, message: &str| Some(Failure { code: code.to_owned(), message: message.to_owned() });
    match (has_output, has_id) {
        (false, _) => missing(code::NO_OUTPUT, "the response has no output"),
        (true, false) => missing(code::NO_ID, "the response has no id"),
        (true, true) => None,
    }
}

/// An error object of an upstream, or a plain text.
#[derive(Default)]
pub(super) struct ApiError {
    pub(super) message: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) param: Option<String>,
    pub(super) code: Option<String>,
}

pub(super) fn api_error(error: Raw<'_>) -> Option<ApiError> {
    match error.shape() {
        Shape::Object => Some(ApiError {
            message: text_of(error, "message"),
            kind: text_of(error, "type"),
            param: text_of(error, "param"),
            // Some upstreams write the code as a number.
            code: text_of(error, "code").or_else(|| Some(error.get("code")?.as_u64()?.to_string())),
        }),
        Shape::String => {
            let message = error.as_str()?.decode().into_owned();
            Some(ApiError { message: Some(message), ..ApiError::default() })
        }
        _ => None,
    }
}

/// The message with its details: `Slow down (type: rate_limit_error, code: slow)`.
impl fmt::Display for ApiError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.message.as_deref().unwrap_or("no message"))?;
        let parts = [("type", &self.kind), ("param", &self.param), ("code", &self.code)];
        let parts: Vec<String> =
            parts.into_iter().filter_map(|(name, value)| Some(format!("{name}: {}", value.as_ref()?))).collect();
        match parts.is_empty() {
            true => Ok(()),
            false => write!(formatter, " ({})", parts.join(", ")),
        }
    }
}
