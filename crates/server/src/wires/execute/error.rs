//! Refusals in the format of this wire: the envelope of a failed turn, and every fault with its field.

use amalgam_app::execute::SubmissionError;
use amalgam_core::{Fault, StoreError};
use amalgam_execute::{
    envelope::{AgentExecuteResponse, Casing, ExecuteIdentity, RawResponses},
    request::{FieldFault, RequestFaults},
    results::Difference,
};
use amalgam_protocol::Writer;
use axum::response::{IntoResponse, Response};

use crate::{request_log::Failure, wires::error as common};

/// Why a request is not accepted. The failure of an accepted turn is not a refusal, but its answer.
#[derive(Debug)]
pub(in crate::wires) struct ExecuteError {
    status: u16,
    code: String,
    message: String,
    errors: Vec<FieldError>,
    retry_after: Option<u64>,
    closes: bool,
    identity: Box<ExecuteIdentity>,
    casing: Casing,
    /// Why, for the log.
    failure: Option<Box<Failure>>,
}

/// A fault with its field.
#[derive(Debug)]
struct FieldError {
    field: String,
    code: String,
    message: String,
}

impl ExecuteError {
    fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
            errors: Vec::new(),
            retry_after: None,
            closes: false,
            identity: Box::default(),
            casing: Casing::default(),
            failure: None,
        }
    }

    fn conflict(code: &str, message: String) -> Self {
        Self::new(409, code, message)
    }

    /// An error about one field that only the store can detect.
    pub(super) fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        let (field, message) = (field.into(), message.into());
        let mut error = Self::new(400, "invalid_request", format!("{field} {message}"));
        error.errors.push(FieldError { field, code: "invalid_value".to_owned(), message });
        error
    }

    /// Sets the ids of the request, as far as they are known.
    pub(super) fn with_identity(mut self, identity: ExecuteIdentity) -> Self {
        *self.identity = identity;
        self
    }

    /// Sets the casing of field names.
    pub(in crate::wires) fn with_casing(mut self, casing: Casing) -> Self {
        self.casing = casing;
        self
    }
}

impl From<SubmissionError> for ExecuteError {
    fn from(error: SubmissionError) -> Self {
        match error {
            SubmissionError::Request(faults) => faults.into(),
            SubmissionError::Field { field, message } => Self::field(field, message),
            SubmissionError::TurnIdReused(turn_id) => {
                Self::conflict("turn_id_reused", format!("Turn '{}' was begun with another request.", shown(&turn_id)))
            }
            SubmissionError::NotPending(turn_id) => Self::conflict(
                "turn_not_pending",
                format!("Turn '{}' does not wait for tool results.", shown(&turn_id)),
            ),
            SubmissionError::SessionBusy(turn_id) => {
                let turn = shown(&turn_id);
                let message = format!("Turn '{turn}' of this session is being worked on; try again when it is done.");
                Self { retry_after: Some(1), ..Self::conflict("session_busy", message) }
            }
            SubmissionError::ResultsMismatch(differences) => differences.into(),
            SubmissionError::Fault(fault) => fault.into(),
        }
    }
}

impl From<RequestFaults> for ExecuteError {
    fn from(faults: RequestFaults) -> Self {
        let mut error = Self::new(400, "invalid_request", faults.to_string());
        error.errors = faults.list().iter().map(FieldError::of).collect();
        error
    }
}

impl FieldError {
    fn of(fault: &FieldFault) -> Self {
        Self { field: fault.field.clone(), code: fault.kind.code().to_owned(), message: fault.message.clone() }
    }
}

impl From<Vec<Difference>> for ExecuteError {
    /// The turn keeps waiting: the client can correct the results and submit them again. C-13
    fn from(differences: Vec<Difference>) -> Self {
        let messages: Vec<String> = differences.iter().map(ToString::to_string).collect();
        let message = format!("The results are not those that the turn waits for: {}.", messages.join("; "));
        let errors = differences.iter().zip(messages).map(|(difference, message)| FieldError {
            field: difference.field(),
            code: difference.code().to_owned(),
            message,
        });
        Self { errors: errors.collect(), ..Self::conflict("results_mismatch", message) }
    }
}

impl From<Fault> for ExecuteError {
    fn from(fault: Fault) -> Self {
        let object = fault.error_object();
        let code = object.code.unwrap_or(object.kind);
        let mut error = Self::new(common::status(&fault), &code, object.message);
        error.retry_after = common::retry_after(&fault);
        error.closes = common::closes(fault.kind);
        error.failure = Some(Box::new(Failure::of(&fault)));
        if let Some(field) = fault.into_parts().param {
            error.errors.push(FieldError { field: field.into_owned(), code, message: error.message.clone() });
        }
        error
    }
}

impl From<StoreError> for ExecuteError {
    fn from(error: StoreError) -> Self {
        Fault::from(error).into()
    }
}

impl IntoResponse for ExecuteError {
    fn into_response(self) -> Response {
        let Self { status, code, message, errors, retry_after, closes, identity, casing, failure } = self;
        let failure = failure
            .map(|failure| *failure)
            .unwrap_or_else(|| Failure { code: Some(code.clone().into()), ..Failure::of_status(status) });
        let envelope = AgentExecuteResponse::failed(*identity, code, message, None);
        let mut writer = Writer::with_capacity(1024);
        writer.object(|writer| {
            envelope.write_fields(writer, casing, RawResponses::Hidden);
            casing.key(writer, "Errors").array(|writer| {
                for error in &errors {
                    writer.object(|writer| {
                        casing.key(writer, "Field").string(&error.field);
                        casing.key(writer, "Code").string(&error.code);
                        casing.key(writer, "Message").string(&error.message);
                    });
                }
            });
        });
        failure.attach(common::refused(status, writer.into_bytes(), retry_after, closes))
    }
}

/// A name, shortened for an error message.
fn shown(name: &str) -> String {
    name.chars().take(200).collect()
}
