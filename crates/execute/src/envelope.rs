//! The answer of the strict contract: a response as `AgentExecuteResponse` (AGN-004).
//!
//! Pure mapping. The response may be malformed in any way that real servers produce. [`ExecuteIdentity`] has the ids of
//! the turn, which are in every answer, including failures.

use amalgam_core::RawAnswer;
use amalgam_protocol::{Json, Literal, Raw, Shape, Writer};

use super::{context::SourceRef, fields::camel, response_reader, upstream_outcome};

/// The fields of an answer that do not depend on the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecuteIdentity {
    /// The conversation id, which is the session's id.
    pub conversation_id: String,
    /// The client's id of the turn; without one the response's id is used.
    pub turn_id: Option<String>,
    /// The agent.
    pub agent_context_id: Option<String>,
    /// Its conversation context.
    pub conversation_context_id: Option<String>,
    /// The mode of the session.
    pub mode: String,
}

/// The kind of an answer; exactly one applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Text, with or without calls; or an answer that a limit ended before its first token.
    Ok,
    /// Calls without text.
    ToolOnly,
    /// The turn failed.
    Error,
    /// Neither text nor calls.
    Empty,
}

impl Kind {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolOnly => "tool-only",
            Self::Error => "error",
            Self::Empty => "empty",
        }
    }
}

/// A tool call for the client to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentToolCall {
    /// The id that its result has to name.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Exactly what the model sent; none if it sent nothing.
    pub arguments_json: Option<Literal>,
}

/// Token usage, in this contract's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LlmUsage {
    /// Input tokens.
    pub prompt_tokens: u64,
    /// Output tokens.
    pub completion_tokens: u64,
    /// The total that the model reports, or the sum.
    pub total_tokens: u64,
}

/// The failure of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The error's type or the status.
    pub code: String,
    /// The message for users.
    pub message: String,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentExecuteResponse {
    /// The ids of the turn.
    pub identity: ExecuteIdentity,
    /// The id of the response, which the next turn continues.
    pub response_continuation_id: Option<String>,
    /// The model that answered.
    pub model_id: Option<String>,
    /// The text of the answer; never blank.
    pub text: Option<String>,
    /// Why the model stopped.
    pub finish_reason: Option<String>,
    /// Token usage.
    pub usage: LlmUsage,
    /// The chunks in the prompt.
    pub sources: Vec<SourceRef>,
    /// Files that the turn produced.
    pub file_bundle: Option<Json>,
    /// Warnings about the answer.
    pub warnings: Vec<String>,
    /// Set exactly when the turn failed.
    pub failure: Option<Failure>,
    /// The upstream's answer as received.
    pub raw_response_json: Option<String>,
    /// Tool calls for the client to run, in order.
    pub tool_calls: Vec<AgentToolCall>,
}

/// The casing of field names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Casing {
    /// `TurnId`
    #[default]
    Pascal,
    /// `turnId`
    Camel,
}

impl Casing {
    /// Writes the name of a field, given in Pascal case.
    pub fn key<'w>(self, writer: &'w mut Writer, name: &'static str) -> &'w mut Writer {
        match self {
            Self::Pascal => writer.key(name),
            Self::Camel => writer.key_text(&camel(name)),
        }
    }
}

/// Whether answers include the raw response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RawResponses {
    /// As `RawResponseJson`.
    #[default]
    Exposed,
    /// `RawResponseJson` is null.
    Hidden,
}

/// How usage is reported for model calls without usage from the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UncountedUsage {
    /// Nothing is added for them. R004-12
    #[default]
    Zero,
    /// The server's own count, with a warning.
    Estimated,
}

/// Codes of failures that this module detects.
pub mod code {
    /// The body is empty.
    pub const EMPTY: &str = "empty-json";
    /// The body is not a JSON object.
    pub const NO_JSON: &str = "json-parse-failure";
    /// The response has no output.
    pub const NO_OUTPUT: &str = "missing-output";
    /// The response has no id, so it cannot be continued.
    pub const NO_ID: &str = "missing-id";
}

impl AgentExecuteResponse {
    /// The kind of the answer.
    pub fn kind(&self) -> Kind {
        match (&self.failure, &self.text, self.tool_calls.as_slice()) {
            (Some(_), _, _) => Kind::Error,
            // A limit that was reached before the first token ended the turn; the model did not leave its answer empty.
            (None, None, []) if self.finish_reason.as_deref() == Some("length") => Kind::Ok,
            (None, None, []) => Kind::Empty,
            (None, None, _) => Kind::ToolOnly,
            (None, Some(_), _) => Kind::Ok,
        }
    }

    /// Maps a turn: its response, and the last answer of the upstream.
    ///
    /// Text, calls and usage are those of the whole turn, without calls of tools that this server ran. The model, the raw
    /// response, an explicit finish reason and the failure are those that the upstream reported.
    pub fn from_turn(
        identity: ExecuteIdentity,
        response: Raw<'_>,
        raw_answer: Option<&RawAnswer>,
        uncounted: UncountedUsage,
    ) -> Self {
        let mut envelope = Self { raw_response_json: None, ..Self::from_response(identity, response) };
        let usage = response.get("usage");
        if usage.and_then(|usage| usage.get("estimated")).and_then(Raw::as_bool) == Some(true) {
            let reported = usage.and_then(|usage| usage.get("reported"));
            match (uncounted, reported) {
                (UncountedUsage::Zero, reported) => envelope.usage = response_reader::usage_of(reported),
                (UncountedUsage::Estimated, None) => {
                    envelope.warnings.push("Usage is estimated: the model's server reported none".to_owned());
                }
                (UncountedUsage::Estimated, Some(_)) => envelope
                    .warnings
                    .push("Usage is estimated in part: the model's server did not report it for every call".to_owned()),
            }
        }
        let Some(raw_answer) = raw_answer else { return envelope };
        envelope.raw_response_json.clone_from(&raw_answer.body);
        match envelope.failure.take() {
            Some(failure) => envelope.failure = Some(upstream_outcome::failure(failure, raw_answer)),
            None => {
                envelope.model_id = raw_answer.model.clone().or(envelope.model_id);
                if response.get_str("status").as_deref() == Some("completed") {
                    envelope.finish_reason = upstream_outcome::finish_reason(raw_answer).or(envelope.finish_reason);
                }
            }
        }
        envelope
    }

    /// Maps a response object.
    pub fn from_response(identity: ExecuteIdentity, response: Raw<'_>) -> Self {
        if response.shape() != Shape::Object {
            let message = format!("the response must be an object, not {}", response.shape().name());
            return Self::failed(identity, code::NO_JSON, message, Some(response.text()));
        }
        let read = response_reader::read(response);
        Self {
            identity,
            response_continuation_id: read.id,
            model_id: read.model,
            text: read.text,
            finish_reason: read.finish_reason,
            usage: read.usage,
            sources: Vec::new(),
            file_bundle: None,
            warnings: read.warnings,
            failure: read.failure,
            raw_response_json: Some(response.text().to_owned()),
            tool_calls: read.tool_calls,
        }
    }

    /// An answer for a failure.
    pub fn failed(
        identity: ExecuteIdentity,
        code: impl Into<String>,
        message: impl Into<String>,
        raw: Option<&str>,
    ) -> Self {
        Self {
            identity,
            response_continuation_id: None,
            model_id: None,
            text: None,
            finish_reason: Some("error".to_owned()),
            usage: LlmUsage::default(),
            sources: Vec::new(),
            file_bundle: None,
            warnings: Vec::new(),
            failure: Some(Failure { code: code.into(), message: message.into() }),
            raw_response_json: raw.map(str::to_owned),
            tool_calls: Vec::new(),
        }
    }

    /// Writes all fields, null if there is no value; lists are never null.
    pub fn write(&self, writer: &mut Writer, casing: Casing, raw: RawResponses) {
        writer.object(|writer| self.write_fields(writer, casing, raw));
    }

    /// Writes the fields, for an object that has more.
    pub fn write_fields(&self, writer: &mut Writer, casing: Casing, raw: RawResponses) {
        let key = |writer: &mut Writer, name: &'static str| _ = casing.key(writer, name);
        let text = |writer: &mut Writer, name, value: Option<&str>| {
            key(writer, name);
            match value {
                Some(value) => writer.string(value),
                None => writer.null(),
            }
        };
        let number = |writer: &mut Writer, name, value| {
            key(writer, name);
            writer.number(value);
        };
        let identity = &self.identity;
        let continuation = self.response_continuation_id.as_deref();
        text(writer, "Kind", Some(self.kind().name()));
        text(writer, "ConversationId", Some(&identity.conversation_id));
        text(writer, "TurnId", identity.turn_id.as_deref().or(continuation));
        text(writer, "AgentContextId", identity.agent_context_id.as_deref());
        text(writer, "ConversationContextId", identity.conversation_context_id.as_deref());
        text(writer, "ResponseContinuationId", continuation);
        text(writer, "Mode", Some(&identity.mode));
        text(writer, "ModelId", self.model_id.as_deref());
        text(writer, "Text", self.text.as_deref());
        text(writer, "FinishReason", self.finish_reason.as_deref());
        key(writer, "Usage");
        writer.object(|writer| {
            number(writer, "PromptTokens", self.usage.prompt_tokens);
            number(writer, "CompletionTokens", self.usage.completion_tokens);
            number(writer, "TotalTokens", self.usage.total_tokens);
        });
        key(writer, "Sources");
        writer.array(|writer| {
            for source in &self.sources {
                writer.object(|writer| {
                    text(writer, "Id", Some(&source.id));
                    text(writer, "Path", Some(&source.path));
                    number(writer, "StartLine", source.start_line);
                    number(writer, "EndLine", source.end_line);
                    text(writer, "Language", Some(&source.language));
                });
            }
        });
        key(writer, "FileBundle");
        match &self.file_bundle {
            Some(bundle) => writer.raw(bundle.raw()),
            None => writer.null(),
        }
        key(writer, "Warnings");
        writer.array(|writer| self.warnings.iter().for_each(|warning| writer.string(warning)));
        text(writer, "ErrorCode", self.failure.as_ref().map(|failure| &*failure.code));
        text(writer, "ErrorMessage", self.failure.as_ref().map(|failure| &*failure.message));
        let exposed = self.raw_response_json.as_deref().filter(|_| raw == RawResponses::Exposed);
        text(writer, "RawResponseJson", exposed);
        key(writer, "ToolCalls");
        writer.array(|writer| {
            for call in &self.tool_calls {
                writer.object(|writer| {
                    text(writer, "CallId", Some(&call.call_id));
                    text(writer, "Name", Some(&call.name));
                    key(writer, "ArgumentsJson");
                    match &call.arguments_json {
                        Some(arguments) => writer.literal(arguments),
                        None => writer.null(),
                    }
                });
            }
        });
    }
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;
