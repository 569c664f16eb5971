//! Errors, the same everywhere.

use serde_json::json;

use super::{Schemas, object, reference, text, text_or_null};

pub(super) fn schemas() -> Schemas {
    vec![
        (
            "ErrorEnvelope",
            object("Every answer that is not a success.", &["error"], json!({"error": reference("Error")})),
        ),
        (
            "Error",
            object(
                "What went wrong.",
                &["message", "type", "param", "code"],
                json!({
                    "message": text("For a person."),
                    "type": text("The family, such as `invalid_request_error`, `too_many_requests`, `server_error`."),
                    "param": text_or_null("The field at fault, as a path: `input[2].content[0].text`."),
                    "code": text_or_null("The exact case, such as `missing_required_parameter`; made for programs."),
                }),
            ),
        ),
    ]
}
