//! Reads a request: its body with the headers that belong to it.

use amalgam_core::{Fault, FaultKind, Seal};
use amalgam_protocol::{Json, Raw, ResponseParameters, Shape, ShapeError};
use bytes::Bytes;

use crate::{convert, error::THREADS_UNSUPPORTED, settings, tools};

/// The longest list of beta flags.
const MAX_BETAS: usize = 64;
/// The longest beta flag.
const MAX_BETA_BYTES: usize = 128;

/// The headers that belong to a request.
#[derive(Debug, Default)]
pub struct MessagesHeaders {
    /// The flags of `anthropic-beta`.
    pub betas: Vec<String>,
    /// The conversation that the request continues.
    pub conversation: Option<String>,
    /// Whether the caller wants the response stored without a conversation.
    pub stored: bool,
}

impl MessagesHeaders {
    /// Adds the flags of one `anthropic-beta` header.
    pub fn add_betas(&mut self, value: &str) -> Result<(), Fault> {
        for flag in value.split(',').map(str::trim).filter(|flag| !flag.is_empty()) {
            let is_flag = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if flag.len() > MAX_BETA_BYTES || !flag.chars().all(is_flag) || self.betas.len() >= MAX_BETAS {
                return Err(Fault::invalid("anthropic-beta", "anthropic-beta: must be a list of at most 64 flags."));
            }
            if !self.betas.iter().any(|known| known == flag) {
                self.betas.push(flag.to_owned());
            }
        }
        Ok(())
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessagesPurpose {
    /// A message.
    Message,
    /// The number of its input tokens.
    Count,
}

/// How a response is rendered for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagesRendering {
    /// How reasoning is shown.
    pub thinking: ThinkingDisplay,
    /// Whether the caller receives a stream.
    pub streamed: bool,
}

/// How reasoning is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingDisplay {
    /// As thinking blocks with their text.
    Shown,
    /// As thinking blocks with only a signature.
    Omitted,
    /// Not at all: the caller has switched thinking off.
    Hidden,
}

/// A request as parameters of a response, and how the response is rendered.
#[derive(Debug)]
pub struct MessagesCall {
    /// The parameters.
    pub parameters: ResponseParameters,
    /// How the response is rendered.
    pub rendering: MessagesRendering,
}

impl MessagesCall {
    /// Reads a body of at most `depth` levels. `seal` recognises signatures of this server.
    pub fn parse(
        body: &Bytes,
        depth: usize,
        purpose: MessagesPurpose,
        headers: MessagesHeaders,
        seal: &dyn Seal,
    ) -> Result<Self, Fault> {
        let document = Json::parse_document(body, depth)
            .map_err(|error| Fault::new(FaultKind::Invalid, format!("The request body is not valid JSON: {error}")))?;
        if present(document.raw(), "thread").is_some() {
            let message = "thread: message threads are not supported: send the whole conversation in `messages`, or name a \
                           conversation in the header `amalgam-conversation`";
            return Err(Fault::invalid("thread", message).code(THREADS_UNSUPPORTED));
        }
        Self::read(&document, purpose, headers, seal).map_err(|error| fault(&error))
    }

    fn read(
        document: &Json,
        purpose: MessagesPurpose,
        headers: MessagesHeaders,
        seal: &dyn Seal,
    ) -> Result<Self, ShapeError> {
        let body = document.raw();
        if body.shape() != Shape::Object {
            return Err(ShapeError::expected("", "an object", body));
        }
        let mut parameters = ResponseParameters {
            model: Some(text(body, "model")?),
            input: Some(convert::input(required(body, "messages")?, seal).map_err(|error| error.under("messages"))?),
            instructions: match present(body, "system") {
                Some(system) => convert::instructions(document, system).map_err(|error| error.under("system"))?,
                None => None,
            },
            ..ResponseParameters::default()
        };
        tools::read(body, &mut parameters)?;
        let thinking = settings::read(body, purpose, &mut parameters)?;
        let streamed = flag(body, "stream")?.unwrap_or(false) && purpose == MessagesPurpose::Message;
        parameters.stream = Some(streamed);
        parameters.store = Some(headers.conversation.is_some() || headers.stored);
        parameters.conversation = headers.conversation.as_deref().map(Json::string);
        parameters.extra.push(settings::extension(body, &headers.betas));
        Ok(Self { parameters, rendering: MessagesRendering { thinking, streamed } })
    }
}

/// The fault for a field with the wrong form, in the words of the Messages API.
fn fault(error: &ShapeError) -> Fault {
    let path = error.path.replace('[', ".").replace(']', "");
    let path = if path.is_empty() { "body" } else { &path };
    let message = match &error.fault {
        amalgam_protocol::ShapeFault::Missing => format!("{path}: Field required"),
        fault => format!("{path}: {fault}"),
    };
    Fault::invalid(path.to_owned(), message)
}

/// A field that is neither missing nor null.
pub(crate) fn present<'a>(object: Raw<'a>, name: &str) -> Option<Raw<'a>> {
    object.get(name).filter(|value| !value.is_null())
}

/// A field that must be there.
pub(crate) fn required<'a>(object: Raw<'a>, name: &str) -> Result<Raw<'a>, ShapeError> {
    present(object, name).ok_or_else(|| ShapeError::missing(name))
}

/// A string that must be there and not empty.
pub(crate) fn text(object: Raw<'_>, name: &str) -> Result<String, ShapeError> {
    let value = required(object, name)?;
    let text = value.as_str().ok_or_else(|| ShapeError::expected(name, "a string", value))?;
    match text.is_empty() {
        true => Err(ShapeError::value(name, "must not be empty")),
        false => Ok(text.decode().into_owned()),
    }
}

/// A boolean, if there is one.
pub(crate) fn flag(object: Raw<'_>, name: &str) -> Result<Option<bool>, ShapeError> {
    let Some(value) = present(object, name) else { return Ok(None) };
    value.as_bool().map(Some).ok_or_else(|| ShapeError::expected(name, "a boolean", value))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
