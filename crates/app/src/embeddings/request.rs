//! `POST /v1/embeddings`: the request.

use amalgam_core::{EmbeddingRequest, Fault};
use amalgam_protocol::{Json, Raw, Shape, ShapeError};
use bytes::Bytes;

use crate::app::Limits;

/// The maximum number of inputs of a request.
const MAX_INPUTS: usize = 2048;
/// The maximum number of dimensions that can be asked for.
const MAX_DIMENSIONS: u64 = 16 * 1024;

/// A request for embeddings.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingsRequest {
    /// The model that was asked for.
    pub(super) model: String,
    /// How vectors are written.
    pub(super) format: VectorFormat,
    /// What its upstream is sent.
    pub(super) request: EmbeddingRequest,
}

/// How vectors are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VectorFormat {
    /// As arrays of numbers.
    #[default]
    Float,
    /// As little-endian `f32` values in base64.
    Base64,
}

impl EmbeddingsRequest {
    /// Reads a body.
    pub fn parse(body: &Bytes, limits: &Limits) -> Result<Self, Fault> {
        let document = Json::parse_document(body, limits.json_depth)?;
        Ok(Self::read(&document, limits)?)
    }

    fn read(document: &Json, limits: &Limits) -> Result<Self, ShapeError> {
        let raw = document.raw();
        if raw.shape() != Shape::Object {
            return Err(ShapeError::expected("", "an object", raw));
        }
        let present = |name: &str| raw.get(name).filter(|value| !value.is_null());
        let text = |name: &str| match present(name) {
            None => Ok(None),
            Some(value) => match value.as_str() {
                Some(text) => Ok(Some(text.decode().into_owned())),
                None => Err(ShapeError::expected(name, "a string", value)),
            },
        };
        let model = text("model")?.filter(|model| !model.is_empty()).ok_or_else(|| ShapeError::missing("model"))?;
        let input = present("input").ok_or_else(|| ShapeError::missing("input"))?;
        let format = match text("encoding_format")?.as_deref() {
            None | Some("float") => VectorFormat::Float,
            Some("base64") => VectorFormat::Base64,
            Some(_) => return Err(ShapeError::value("encoding_format", "must be `float` or `base64`")),
        };
        let dimensions = match present("dimensions") {
            None => None,
            Some(value) => match value.as_u64() {
                Some(count @ 1..=MAX_DIMENSIONS) => Some(count),
                _ => {
                    let message = format!("must be a whole number between 1 and {MAX_DIMENSIONS}");
                    return Err(ShapeError::value("dimensions", message));
                }
            },
        };
        let inputs = inputs(document, input, limits).map_err(|error| error.under("input"))?;
        Ok(Self { model, format, request: EmbeddingRequest { inputs, dimensions, user: text("user")? } })
    }
}

/// A text, an array of tokens, or an array of either.
fn inputs(document: &Json, input: Raw<'_>, limits: &Limits) -> Result<Vec<Json>, ShapeError> {
    let is_list = input.shape() == Shape::Array
        && input.elements().next().is_some_and(|first| matches!(first.shape(), Shape::String | Shape::Array));
    if !is_list {
        check(input, limits)?;
        return Ok(vec![document.part(input)]);
    }
    let mut inputs = Vec::new();
    for (index, one) in input.elements().enumerate() {
        if index == MAX_INPUTS {
            return Err(ShapeError::value("", format!("must have at most {MAX_INPUTS} elements")));
        }
        check(one, limits).map_err(|error| error.at(index))?;
        inputs.push(document.part(one));
    }
    Ok(inputs)
}

/// Checks one text or one array of tokens.
fn check(input: Raw<'_>, limits: &Limits) -> Result<(), ShapeError> {
    match input.shape() {
        Shape::String => match input.as_str().map_or(0, |text| text.escaped().len()) {
            0 => Err(ShapeError::value("", "must not be empty")),
            length if length > limits.string_bytes => {
                Err(ShapeError::value("", format!("must have at most {} bytes", limits.string_bytes)))
            }
            _ => Ok(()),
        },
        Shape::Array => {
            let mut tokens = input.elements().enumerate();
            if input.elements().next().is_none() {
                return Err(ShapeError::value("", "must not be empty"));
            }
            match tokens.find(|(_, token)| token.as_u64().is_none()) {
                Some((index, token)) => Err(ShapeError::expected("", "a token", token).at(index)),
                None => Ok(()),
            }
        }
        _ => Err(ShapeError::expected("", "a string, an array of strings or an array of tokens", input)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use amalgam_engine::QueueLimits;

    use super::*;

    fn read(body: &str) -> Result<EmbeddingsRequest, Fault> {
        let limits = Limits {
            body_bytes: 1000,
            media_bytes: 0,
            body_pause: Duration::ZERO,
            websocket_idle: Duration::ZERO,
            json_depth: 8,
            input_items: 1,
            content_parts: 1,
            tools: 1,
            schema_nodes: 1,
            string_bytes: 10,
            file_bytes: 0,
            files_bytes_per_tenant: 0,
            request_bytes_total: 0,
            remembered_bytes: 0,
            queue: QueueLimits { of_tenant: 0, of_all: 0 },
        };
        EmbeddingsRequest::parse(&Bytes::from(body.to_owned()), &limits)
    }

    fn inputs_of(input: &str) -> Vec<String> {
        let read = read(&format!(r#"{{"model":"m","input":{input}}}"#)).unwrap();
        read.request.inputs.iter().map(|one| one.raw().text().to_owned()).collect()
    }

    #[test]
    fn an_input_is_a_text_tokens_or_a_list_of_either() {
        assert_eq!(inputs_of(r#""a""#), [r#""a""#]);
        assert_eq!(inputs_of("[1,2]"), ["[1,2]"]);
        assert_eq!(inputs_of(r#"["a","b"]"#), [r#""a""#, r#""b""#]);
        assert_eq!(inputs_of("[[1],[2,3]]"), ["[1]", "[2,3]"]);
    }

    #[test]
    fn settings_are_read_and_the_format_is_float_by_default() {
        let all = r#"{"model":"m","input":"a","dimensions":3,"encoding_format":"base64","user":"u"}"#;
        let all = read(all).unwrap();
        let request =
            EmbeddingRequest { inputs: vec![Json::string("a")], dimensions: Some(3), user: Some("u".to_owned()) };
        assert_eq!(all, EmbeddingsRequest { model: "m".to_owned(), format: VectorFormat::Base64, request });
        assert_eq!(read(r#"{"model":"m","input":"a","user":null}"#).unwrap().format, VectorFormat::Float);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let many = format!(r#"{{"model":"m","input":[{}"a"]}}"#, r#""a","#.repeat(MAX_INPUTS));
        for (body, param) in [
            ("[]", "body"),
            (r#"{"input":"a"}"#, "model"),
            (r#"{"model":"","input":"a"}"#, "model"),
            (r#"{"model":"m"}"#, "input"),
            (r#"{"model":"m","input":""}"#, "input"),
            (r#"{"model":"m","input":[]}"#, "input"),
            (r#"{"model":"m","input":{}}"#, "input"),
            (r#"{"model":"m","input":["a",""]}"#, "input[1]"),
            (r#"{"model":"m","input":["a",1]}"#, "input[1]"),
            (r#"{"model":"m","input":[1,"a"]}"#, "input[1]"),
            (r#"{"model":"m","input":[[1],[-1]]}"#, "input[1][0]"),
            (r#"{"model":"m","input":"0123456789x"}"#, "input"),
            (r#"{"model":"m","input":"a","dimensions":0}"#, "dimensions"),
            (r#"{"model":"m","input":"a","encoding_format":"int8"}"#, "encoding_format"),
            (r#"{"model":"m","input":"a","user":1}"#, "user"),
            (&many, "input"),
        ] {
            assert_eq!(read(body).unwrap_err().param.as_deref(), Some(param), "{body}");
        }
    }
}
