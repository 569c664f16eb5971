//! Errors in the format of the Messages API.

use amalgam_protocol::{ErrorObject, Writer};

/// The code of the error for a request with a `thread`, after which clients send the whole conversation instead.
pub const THREADS_UNSUPPORTED: &str = "thread_unsupported_request";

/// The body of an error response; `code` is the fault's.
pub fn error_body(kind: &str, message: &str, code: Option<&str>, request_id: Option<&str>) -> Vec<u8> {
    let mut writer = Writer::with_capacity(message.len() + 128);
    writer.object(|writer| {
        writer.key("type").string("error");
        writer.key("error").object(|writer| {
            writer.key("type").string(kind);
            writer.key("message").string(message);
            if code == Some(THREADS_UNSUPPORTED) {
                writer.key("details").object(|writer| {
                    writer.key("error_code").string(THREADS_UNSUPPORTED);
                    writer.key("unsupported").array(|writer| writer.string("thread"));
                });
            }
        });
        match request_id {
            Some(id) => writer.key("request_id").string(id),
            None => writer.key("request_id").null(),
        }
    });
    writer.into_bytes()
}

/// The type of an error that has this status.
pub fn error_type_of_status(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        408 | 504 => "timeout_error",
        503 | 529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// The type of a response's error.
pub fn error_type(error: &ErrorObject) -> &'static str {
    match (error.code.as_deref(), error.kind.as_str()) {
        (Some("rate_limit_exceeded" | "insufficient_quota"), _) => "rate_limit_error",
        (Some("server_is_overloaded" | "server_is_shutting_down"), _) => "overloaded_error",
        (Some("model_not_found"), _) => "not_found_error",
        (_, "timeout_error") => "timeout_error",
        (_, "invalid_request_error") => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_type_and_the_id_of_its_request() {
        let body = error_body("not_found_error", "no \"model\"", None, Some("req_1"));
        let expected =
            r#"{"type":"error","error":{"type":"not_found_error","message":"no \"model\""},"request_id":"req_1"}"#;
        assert_eq!(String::from_utf8(body).unwrap(), expected);
    }

    #[test]
    fn the_type_of_an_error_in_a_stream_follows_from_its_code() {
        let error = |kind: &str, code: Option<&str>| {
            error_type(&ErrorObject {
                message: String::new(),
                kind: kind.to_owned(),
                param: None,
                code: code.map(str::to_owned),
            })
        };
        assert_eq!(error("too_many_requests", Some("server_is_overloaded")), "overloaded_error");
        assert_eq!(error("insufficient_quota", Some("insufficient_quota")), "rate_limit_error");
        assert_eq!(error("invalid_request_error", Some("context_length_exceeded")), "invalid_request_error");
        assert_eq!(error("server_error", Some("server_error")), "api_error");
    }
}
