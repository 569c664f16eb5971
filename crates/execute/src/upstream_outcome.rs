//! The failure or finish reason that an upstream reported, read from the bytes that it sent.

use amalgam_core::RawAnswer;
use amalgam_protocol::{Raw, Shape};

use super::{
    envelope::{Failure, code},
    response_reader::{self, ApiError},
};

/// Documented codes, used when the upstream's error has a type but no code of its own.
const DOCUMENTED: [&str; 5] =
    ["rate_limit_exceeded", "context_length_exceeded", "upstream_timeout", "content_filter", "insufficient_quota"];

/// Codes of failures that do not come from the upstream.
const SERVER_CODES: [&str; 5] =
    ["request_timeout", "request_cancelled", "tool_failed", "tool_server_unavailable", "internal_error"];

/// A turn's failure as the upstream reported it: its code, a documented code, or its type; and its message. An answer
/// without an error object is described by its defect. R004-28, R004-29
pub(super) fn failure(failure_of_turn: Failure, raw_answer: &RawAnswer) -> Failure {
    if !raw_answer.failed || SERVER_CODES.contains(&failure_of_turn.code.as_str()) {
        return failure_of_turn;
    }
    let Some(body) = raw_answer.body.as_deref().or(raw_answer.status.map(|_| "")) else { return failure_of_turn };
    let parsed = Raw::parse(body.as_bytes()).ok();
    let reported = parsed.and_then(error_in).unwrap_or_default();
    let documented = || DOCUMENTED.contains(&failure_of_turn.code.as_str()).then(|| failure_of_turn.code.clone());
    let own = |code: &Option<String>| code.clone().filter(|code| !code.bytes().all(|byte| byte.is_ascii_digit()));
    let code = own(&reported.code).or_else(documented).or_else(|| reported.kind.clone());
    let found = match parsed {
        _ if body.trim().is_empty() => (code::EMPTY, "the answer of the model's server is empty"),
        None => (code::NO_JSON, "the answer of the model's server is not JSON"),
        Some(_) => (code::NO_OUTPUT, "the answer of the model's server has no output"),
    };
    let message = reported.message.unwrap_or_else(|| match (&code, raw_answer.status) {
        (Some(_), _) => failure_of_turn.message.clone(),
        (None, Some(status)) => format!("HTTP {status}: {}", found.1),
        (None, None) => found.1.to_owned(),
    });
    Failure { code: code.unwrap_or_else(|| found.0.to_owned()), message }
}

/// The explicit finish reason of a response object.
pub(super) fn finish_reason(raw_answer: &RawAnswer) -> Option<String> {
    let body = Raw::parse(raw_answer.body.as_deref()?.as_bytes()).ok()?;
    body.get("output").filter(|output| matches!(output.shape(), Shape::Array | Shape::Object))?;
    response_reader::explicit_finish(body)
}

/// The error in an answer: `{"error": {…}}`, `{"error": "…"}`, in a failed response, flat, or any of these in a list.
fn error_in(body: Raw<'_>) -> Option<ApiError> {
    let body = body.elements().next().unwrap_or(body);
    let nested = body.get("error").filter(|error| !error.is_null());
    let nested = nested.or_else(|| body.get("response")?.get("error").filter(|error| !error.is_null()));
    match nested {
        Some(error) => response_reader::api_error(error),
        None => {
            let flat = response_reader::api_error(body)?;
            let detail = body.get_str("detail").map(|detail| detail.into_owned());
            let message = flat.message.or(detail)?;
            // A flat `error` event has the event's name as its type.
            Some(ApiError { message: Some(message), kind: flat.kind.filter(|kind| kind != "error"), ..flat })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(failure_of_turn: &str, status: Option<u16>, body: Option<&str>) -> (String, String) {
        let failure_of_turn = Failure { code: failure_of_turn.to_owned(), message: "ours".to_owned() };
        let raw_answer = RawAnswer { model: None, status, body: body.map(str::to_owned), failed: true };
        let Failure { code, message } = failure(failure_of_turn, &raw_answer);
        (code, message)
    }

    // right C4
    #[test]
    fn a_failure_is_told_in_the_words_of_the_upstream() {
        let case = |failure_of_turn: &str, status, body, code: &str, message: &str| {
            assert_eq!(
                reported(failure_of_turn, status, body),
                (code.to_owned(), message.to_owned()),
                "{failure_of_turn} {body:?}"
            );
        };
        let full = r#"{"error":{"message":"Slow down","type":"requests","code":"slow"}}"#;
        case("rate_limit_exceeded", Some(429), Some(full), "slow", "Slow down");
        let typed = r#"{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}"#;
        case("server_error", Some(529), Some(typed), "overloaded_error", "Busy");
        // A documented code is more specific than a type.
        let long = r#"{"error":{"type":"invalid_request_error","message":"Too long"}}"#;
        case("context_length_exceeded", Some(400), Some(long), "context_length_exceeded", "Too long");
        case("rate_limit_exceeded", Some(429), Some("<html>"), "rate_limit_exceeded", "ours");
        let filtered = r#"{"error":{"code":"content_filter","message":"No"}}"#;
        case("invalid_prompt", Some(400), Some(filtered), "content_filter", "No");
        // A numeric code repeats the status.
        case(
            "server_error",
            Some(500),
            Some(r#"{"error":{"code":500,"type":"server","message":"No"}}"#),
            "server",
            "No",
        );
        // An answer without an error object is described by its defect.
        case(
            "server_error",
            Some(502),
            Some("<html>"),
            "json-parse-failure",
            "HTTP 502: the answer of the model's server is not JSON",
        );
        case("server_error", Some(503), None, "empty-json", "HTTP 503: the answer of the model's server is empty");
        case("server_error", None, Some(" \n"), "empty-json", "the answer of the model's server is empty");
        case(
            "server_error",
            None,
            Some("{\"id\": "),
            "json-parse-failure",
            "the answer of the model's server is not JSON",
        );
        case(
            "server_error",
            None,
            Some(r#"{"id":"r"}"#),
            "missing-output",
            "the answer of the model's server has no output",
        );
        // A failed response, and an event of a stream.
        let failed = r#"{"id":"r","status":"failed","error":{"code":"server_error","message":"Down"},"output":[]}"#;
        case("server_error", None, Some(failed), "server_error", "Down");
        let event = r#"{"type":"error","code":"rate_limit_exceeded","message":"Slow"}"#;
        case("rate_limit_exceeded", None, Some(event), "rate_limit_exceeded", "Slow");
        // Without an answer of the upstream, or after another failure, the server's own failure is reported.
        case("upstream_timeout", None, None, "upstream_timeout", "ours");
        case("request_timeout", None, Some("partly"), "request_timeout", "ours");
    }
}
