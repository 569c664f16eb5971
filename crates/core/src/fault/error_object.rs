//! A fault as the error object of the Responses API, and its status code.

use amalgam_protocol::ErrorObject;

use super::{Fault, FaultKind};

impl FaultKind {
    /// The status code in the Responses API.
    pub fn status(self) -> u16 {
        match self {
            Self::Invalid | Self::UpstreamRejected | Self::ContextLength | Self::ContentPolicy => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound | Self::UpstreamUnknownModel => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::UnsupportedMedia => 415,
            Self::Mismatch => 422,
            Self::ToolServer => 424,
            Self::Overloaded | Self::RateLimited | Self::QuotaExceeded | Self::UpstreamBusy | Self::UpstreamQuota => {
                429
            }
            Self::Cancelled => 499,
            Self::UpstreamCredential | Self::UpstreamDown | Self::UpstreamBroken | Self::ToolFailed => 502,
            Self::OutOfMemory | Self::ShuttingDown | Self::StoreDown => 503,
            Self::UpstreamTimeout | Self::Deadline => 504,
            Self::Internal => 500,
        }
    }

    /// `type`, and the default `code`.
    fn type_and_code(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Invalid => ("invalid_request_error", Some("invalid_value")),
            Self::Unauthenticated => ("invalid_request_error", Some("invalid_api_key")),
            Self::Forbidden => ("invalid_request_error", Some("insufficient_permissions")),
            Self::NotFound => ("invalid_request_error", Some("not_found")),
            Self::MethodNotAllowed => ("invalid_request_error", Some("method_not_allowed")),
            Self::RequestTimeout => ("invalid_request_error", Some("request_timeout")),
            Self::UpstreamUnknownModel => ("invalid_request_error", Some("model_not_found")),
            Self::Conflict => ("invalid_request_error", Some("conflict")),
            Self::TooLarge => ("invalid_request_error", Some("request_too_large")),
            Self::UnsupportedMedia => ("invalid_request_error", Some("unsupported_media_type")),
            Self::Mismatch => ("invalid_request_error", Some("idempotency_mismatch")),
            Self::UpstreamRejected => ("invalid_request_error", Some("invalid_request")),
            Self::ContextLength => ("invalid_request_error", Some("context_length_exceeded")),
            Self::ContentPolicy => ("invalid_request_error", Some("invalid_prompt")),
            Self::ToolServer => ("external_connector_error", Some("tool_server_unavailable")),
            Self::Overloaded => ("too_many_requests", Some("server_is_overloaded")),
            Self::RateLimited => ("too_many_requests", Some("rate_limit_exceeded")),
            Self::QuotaExceeded => ("insufficient_quota", Some("insufficient_quota")),
            Self::UpstreamBusy => ("too_many_requests", Some("rate_limit_exceeded")),
            Self::UpstreamQuota => ("insufficient_quota", Some("insufficient_quota")),
            Self::Cancelled => ("invalid_request_error", Some("request_cancelled")),
            Self::UpstreamCredential => ("server_error", Some("upstream_credential")),
            Self::UpstreamDown => ("server_error", Some("upstream_unavailable")),
            Self::UpstreamBroken => ("server_error", Some("upstream_error")),
            Self::ToolFailed => ("server_error", Some("tool_failed")),
            Self::OutOfMemory => ("server_error", Some("server_is_overloaded")),
            Self::ShuttingDown => ("server_error", Some("server_is_shutting_down")),
            Self::StoreDown => ("server_error", Some("store_unavailable")),
            Self::UpstreamTimeout => ("timeout_error", Some("upstream_timeout")),
            Self::Deadline => ("timeout_error", Some("request_timeout")),
            Self::Internal => ("internal_error", None),
        }
    }
}

impl Fault {
    /// The error object in the body of an HTTP response.
    pub fn error_object(&self) -> ErrorObject {
        let (kind, code) = self.kind.type_and_code();
        ErrorObject {
            message: self.message.clone().into_owned(),
            kind: kind.to_owned(),
            param: self.param.as_deref().map(str::to_owned),
            code: self.code.as_deref().or(code).map(str::to_owned),
        }
    }

    /// The error object of a failed response, as stored and streamed. Only the code distinguishes faults there, so
    /// there is always one, and all server failures share `server_error`.
    pub fn response_error(&self) -> ErrorObject {
        let mut object = self.error_object();
        let of_a_server = matches!(
            self.kind,
            FaultKind::UpstreamDown | FaultKind::UpstreamBroken | FaultKind::UpstreamCredential | FaultKind::Internal
        );
        if of_a_server && self.code.is_none() {
            object.code = Some("server_error".to_owned());
        }
        object
    }
}
