//! Errors that arrive inside an answer of status 200.

use amalgam_core::ModelError;
use amalgam_protocol::{Raw, Shape};

/// The maximum size of an error object in the log.
const LOGGED_BYTES: usize = 2 * 1024;

/// Reads an error in place of an answer: an object or a bare text.
pub(super) fn read(error: Raw<'_>) -> ModelError {
    let text = |name: &str| error.get_str(name).map(|text| text.into_owned()).filter(|text| !text.is_empty());
    let message = match error.as_str() {
        Some(text) => Some(text.decode().into_owned()),
        None => text("message").or_else(|| text("detail")),
    };
    let word = text("code").or_else(|| text("type"));
    // Several servers send the HTTP status as the code.
    let status = error.get("code").filter(|code| code.shape() == Shape::Number).and_then(Raw::as_u64);
    let status = status.or_else(|| text("code")?.parse().ok()).or_else(|| error.get("status")?.as_u64());
    let status = match status.and_then(|status| u16::try_from(status).ok()) {
        Some(status) if (400..600).contains(&status) => status,
        _ => by_name(&text("code").unwrap_or_default())
            .or_else(|| by_name(&text("type").unwrap_or_default()))
            .unwrap_or(500),
    };
    let code = match word.as_deref() {
        Some("exceed_context_size_error") => Some("context_length_exceeded".to_owned()),
        _ => word.filter(|word| !word.bytes().all(|byte| byte.is_ascii_digit())),
    };
    let mut body = error.text().to_owned();
    body.truncate(body.floor_char_boundary(LOGGED_BYTES));
    ModelError::Refused { status, retry_after: None, message, code, param: text("param"), body }
}

/// The HTTP status that corresponds to an error's name.
fn by_name(name: &str) -> Option<u16> {
    let name = name.to_ascii_lowercase();
    let has = |word: &str| name.contains(word);
    Some(match () {
        () if name.is_empty() => return None,
        () if has("quota") || has("rate_limit") || has("ratelimit") || has("too_many") => 429,
        () if has("overload") || has("unavailable") || has("capacity") => 503,
        () if has("authentication") || has("unauthorized") || has("api_key") => 401,
        () if has("permission") || has("forbidden") => 403,
        () if has("not_found") || has("notfound") => 404,
        () if has("timeout") => 504,
        () if has("context") || has("invalid") || has("badrequest") || has("bad_request") || has("content_") => 400,
        () => return None,
    })
}

#[cfg(test)]
mod tests {
    use amalgam_core::FaultKind;

    use super::*;

    #[test]
    fn errors_of_every_server_become_the_fault_that_their_status_would_have_been() {
        let kind = |text: &str| read(Raw::parse(text.as_bytes()).unwrap()).into_fault().kind;
        for (text, expected) in [
            (r#"{"message":"slow down","type":"rate_limit_error","code":null}"#, FaultKind::UpstreamBusy),
            (r#"{"message":"pay","type":"insufficient_quota","code":"insufficient_quota"}"#, FaultKind::UpstreamQuota),
            (r#"{"message":"Provider returned error","code":502}"#, FaultKind::UpstreamDown),
            (r#"{"message":"too big","type":"exceed_context_size_error","code":400}"#, FaultKind::ContextLength),
            (
                r#"{"message":"maximum context length is 8192","type":"BadRequestError","code":"400"}"#,
                FaultKind::ContextLength,
            ),
            (r#"{"message":"bad image","type":"invalid_request_error"}"#, FaultKind::UpstreamRejected),
            (r#"{"message":"who?","type":"authentication_error"}"#, FaultKind::UpstreamCredential),
            (r#"{"message":"busy","type":"overloaded_error"}"#, FaultKind::UpstreamDown),
            (r#"{"message":"","type":"api_error"}"#, FaultKind::UpstreamDown),
            (r#""llama runner process has terminated""#, FaultKind::UpstreamDown),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }
}
