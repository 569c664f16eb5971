//! Reads failures that an upstream reports inside an answer.

use std::{borrow::Cow, time::Duration};

use amalgam_core::{Fault, FaultKind};
use amalgam_protocol::Raw;

/// Reads an error object: of a failed response or of an `error` event, nested or flat.
pub(super) fn fault(error: Raw<'_>) -> Fault {
    let text = |name: &str| error.get_str(name).filter(|text| !text.is_empty()).map(Cow::into_owned);
    let message = text("message").or_else(|| error.as_str().map(|text| text.decode().into_owned()));
    // The `type` of a flat `error` event is the event's name.
    let code = text("code").or_else(|| text("type").filter(|kind| kind != "error"));
    let kind = kind(code.as_deref().unwrap_or_default(), message.as_deref().unwrap_or_default());
    let quote = error.text();
    if kind == FaultKind::UpstreamCredential {
        return Fault::new(kind, "The upstream refused our credential.").quote(quote);
    }
    let wait = message.as_deref().filter(|_| kind == FaultKind::UpstreamBusy).and_then(announced_wait);
    let mut fault = Fault::new(kind, message.unwrap_or_else(|| "The upstream failed.".to_owned())).retry_after(wait);
    fault.code = code.map(Cow::Owned);
    fault.param = text("param").map(Cow::Owned);
    fault.quote(quote)
}

fn kind(code: &str, message: &str) -> FaultKind {
    match code {
        "rate_limit_exceeded" | "rate_limit_error" | "too_many_requests" => FaultKind::UpstreamBusy,
        "insufficient_quota" | "billing_hard_limit_reached" | "usage_limit_reached" => FaultKind::UpstreamQuota,
        "context_length_exceeded" => FaultKind::ContextLength,
        "invalid_prompt"
        | "content_filter"
        | "content_policy_violation"
        | "cyber_policy"
        | "image_content_policy_violation" => FaultKind::ContentPolicy,
        "invalid_api_key" | "authentication_error" | "permission_error" | "invalid_authentication" => {
            FaultKind::UpstreamCredential
        }
        "model_not_found" => FaultKind::UpstreamUnknownModel,
        "invalid_request_error"
        | "invalid_request"
        | "unsupported_parameter"
        | "invalid_value"
        | "not_found"
        | "invalid_image"
        | "invalid_base64_image"
        | "invalid_image_url"
        | "image_too_large"
        | "image_too_small"
        | "image_parse_error"
        | "invalid_image_mode"
        | "image_file_too_large"
        | "unsupported_image_media_type"
        | "empty_image_file"
        | "failed_to_download_image"
        | "image_file_not_found"
        | "vector_store_timeout" => match is_about_length(message) {
            true => FaultKind::ContextLength,
            false => FaultKind::UpstreamRejected,
        },
        _ if is_about_length(message) => FaultKind::ContextLength,
        _ => FaultKind::UpstreamDown,
    }
}

fn is_about_length(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("context length") || message.contains("context window")
}

/// Reads `… try again in 1.5s …`, `… in 20ms …`: a stream has no other place for it.
fn announced_wait(message: &str) -> Option<Duration> {
    let (_, after) = message.split_once("try again in ")?;
    let digits = after.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = after.split_at_checked(digits)?;
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim_start();
    let seconds = if unit.starts_with("ms") { number / 1000.0 } else { number };
    (unit.starts_with("ms") || unit.starts_with('s')).then(|| Duration::try_from_secs_f64(seconds).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_decisions_and_stay_readable() {
        for (error, kind, code) in [
            (r#"{"code":"rate_limit_exceeded","message":"m"}"#, FaultKind::UpstreamBusy, Some("rate_limit_exceeded")),
            (
                r#"{"code":"context_length_exceeded","message":"m"}"#,
                FaultKind::ContextLength,
                Some("context_length_exceeded"),
            ),
            (r#"{"code":"insufficient_quota","message":"m"}"#, FaultKind::UpstreamQuota, Some("insufficient_quota")),
            (r#"{"code":"server_error","message":"m"}"#, FaultKind::UpstreamDown, Some("server_error")),
            (r#"{"code":"invalid_prompt","message":"m"}"#, FaultKind::ContentPolicy, Some("invalid_prompt")),
            (
                r#"{"type":"invalid_request_error","code":null,"message":"m"}"#,
                FaultKind::UpstreamRejected,
                Some("invalid_request_error"),
            ),
            (r#"{"type":"error","code":null,"message":"m","param":null}"#, FaultKind::UpstreamDown, None),
        ] {
            let fault = fault(Raw::parse(error.as_bytes()).unwrap());
            assert_eq!((fault.kind, fault.code.as_deref(), &*fault.message), (kind, code, "m"), "{error}");
        }
    }

    #[test]
    fn a_refused_credential_is_told_in_our_words() {
        // P12
        let fault = fault(Raw::parse(br#"{"code":"invalid_api_key","message":"Incorrect key sk-1"}"#).unwrap());
        assert_eq!((fault.kind, fault.message.contains("sk-1")), (FaultKind::UpstreamCredential, false));
    }

    #[test]
    fn an_announced_wait_is_read() {
        let wait = |message: &str| announced_wait(message);
        assert_eq!(wait("Limit reached. Please try again in 1.5s."), Some(Duration::from_millis(1500)));
        assert_eq!(wait("Please try again in 20ms."), Some(Duration::from_millis(20)));
        assert_eq!(wait("Please try again in a while."), None);
    }
}
