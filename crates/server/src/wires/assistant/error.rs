//! Faults in the format of this wire: a map of fields, or `{"detail": text}`.

use amalgam_app::assistant::{DISABLED, RespondError};
use amalgam_assistant::request::FieldFaults;
use amalgam_core::{Fault, FaultKind, StoreError};
use amalgam_protocol::Writer;
use axum::response::{IntoResponse, Response};

use crate::{
    request_log::Failure,
    wires::error::{closes, refused, retry_after},
};

/// The message for every failure of the server or an upstream. RNCC-18
pub(super) const UNAVAILABLE: &str = "AI service is temporarily unavailable.";

/// The codes of faults that concern browser tokens: a page decides by them, so they are shown with their message.
const CLIENT_CODES: [&str; 5] =
    ["token_expired", "origin_not_allowed", "route_not_allowed", "agent_not_allowed", "message_budget_spent"];

/// An error of this wire.
#[derive(Debug)]
pub(in crate::wires) enum AssistantError {
    /// Errors by field: a JSON object.
    Fields(Vec<u8>),
    /// Any other fault.
    Fault(Fault),
    /// The upstream's key is not configured; the name of its variable.
    NoKey(String),
    /// The tenant has no assistant.
    Disabled,
}

impl From<Fault> for AssistantError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<RespondError> for AssistantError {
    fn from(error: RespondError) -> Self {
        match error {
            RespondError::Fields(faults) => faults.into(),
            RespondError::MissingKey(variable) => Self::NoKey(variable),
            RespondError::Fault(fault) => Self::Fault(fault),
        }
    }
}

impl From<FieldFaults> for AssistantError {
    fn from(faults: FieldFaults) -> Self {
        let mut writer = Writer::default();
        faults.write(&mut writer);
        Self::Fields(writer.into_bytes())
    }
}

impl From<StoreError> for AssistantError {
    fn from(error: StoreError) -> Self {
        Self::Fault(error.into())
    }
}

impl AssistantError {
    fn status_and_body(&self) -> (u16, Vec<u8>) {
        match self {
            Self::Fields(fields) => (400, fields.clone()),
            Self::NoKey(variable) => (503, detail(&format!("{variable} is not configured."))),
            Self::Disabled => (403, detail(DISABLED)),
            Self::Fault(fault) => match fault.code.as_deref().filter(|code| CLIENT_CODES.contains(code)) {
                Some(code) => (fault.kind.status(), detail_and_code(&fault.message, code)),
                None => {
                    let (status, text) = status_and_text(fault);
                    (status, detail(text))
                }
            },
        }
    }
}

/// The status and the message for a fault. The message contains nothing that an upstream sent.
fn status_and_text(fault: &Fault) -> (u16, &str) {
    match fault.kind {
        FaultKind::Invalid => (400, &fault.message),
        FaultKind::Unauthenticated => (401, "Authentication credentials were not provided or are not valid."),
        FaultKind::Forbidden => (403, "You do not have permission to perform this action."),
        FaultKind::NotFound => (404, "Not found."),
        FaultKind::MethodNotAllowed => (405, &fault.message),
        FaultKind::RequestTimeout => (408, &fault.message),
        FaultKind::Conflict => (409, &fault.message),
        FaultKind::TooLarge => (413, &fault.message),
        FaultKind::UnsupportedMedia => (415, &fault.message),
        FaultKind::Mismatch => (422, &fault.message),
        FaultKind::RateLimited | FaultKind::QuotaExceeded => (429, &fault.message),
        FaultKind::Cancelled => (499, &fault.message),
        FaultKind::Overloaded
        | FaultKind::OutOfMemory
        | FaultKind::ShuttingDown
        | FaultKind::UpstreamBusy
        | FaultKind::UpstreamQuota
        | FaultKind::UpstreamCredential
        | FaultKind::UpstreamRejected
        | FaultKind::UpstreamUnknownModel
        | FaultKind::ContextLength
        | FaultKind::ContentPolicy
        | FaultKind::UpstreamDown
        | FaultKind::UpstreamBroken
        | FaultKind::UpstreamTimeout
        | FaultKind::ToolServer
        | FaultKind::ToolFailed
        | FaultKind::Deadline
        | FaultKind::StoreDown => (503, UNAVAILABLE),
        FaultKind::Internal => (500, "Internal server error."),
    }
}

fn detail(text: &str) -> Vec<u8> {
    let mut writer = Writer::with_capacity(text.len() + 16);
    writer.object(|writer| writer.key("detail").string(text));
    writer.into_bytes()
}

fn detail_and_code(text: &str, code: &str) -> Vec<u8> {
    let mut writer = Writer::with_capacity(text.len() + 64);
    writer.object(|writer| {
        writer.key("detail").string(text);
        writer.key("code").string(code);
    });
    writer.into_bytes()
}

impl IntoResponse for AssistantError {
    fn into_response(self) -> Response {
        let (status, body) = self.status_and_body();
        let Self::Fault(fault) = &self else { return refused(status, body, None, false) };
        Failure::of(fault).attach(refused(status, body, retry_after(fault), closes(fault.kind)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_upstream_said_does_not_come_out() {
        // RNCC-18
        let fault = Fault::new(FaultKind::UpstreamRejected, "your prompt is silly").detail("key sk-1");
        let (status, body) = AssistantError::from(fault).status_and_body();
        assert_eq!(
            (status, body.as_slice()),
            (503, br#"{"detail":"AI service is temporarily unavailable."}"#.as_slice())
        );
    }

    #[test]
    fn a_missing_key_is_named_by_its_variable() {
        let (status, body) = AssistantError::NoKey("OPENAI_API_KEY".to_owned()).status_and_body();
        assert_eq!((status, body.as_slice()), (503, br#"{"detail":"OPENAI_API_KEY is not configured."}"#.as_slice()));
    }
}
