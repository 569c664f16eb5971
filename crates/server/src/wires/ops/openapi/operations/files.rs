//! `/v1/files`

use serde_json::{Value, json};

use super::{super::schemas::reference, header, parameter, success, with_failures};

/// `POST /v1/files`
pub(crate) fn upload_file() -> Value {
    json!({
        "operationId": "uploadFile",
        "tags": ["Files"],
        "summary": "Upload a file",
        "description": "Its id can stand in `input_file` and `input_image`, in every turn until it is deleted or expires.",
        "parameters": [parameter("IdempotencyKey"), parameter("RequestId")],
        "requestBody": {
            "required": true,
            "content": {"multipart/form-data": {"schema": reference("UploadFile")}},
        },
        "responses": with_failures(
            json!({"200": success("The file.", "File")}),
            &[
                ("400", "The form is wrong. `param` names the field."),
                ("408", "The body did not arrive in time."),
                ("413", "The file, or all files of the tenant together, are too large."),
                ("415", "The body is not declared as a form."),
                ("422", "The idempotency key was used with another file."),
            ],
        ),
    })
}

/// `GET /v1/files`
pub(crate) fn list_files() -> Value {
    json!({
        "operationId": "listFiles",
        "tags": ["Files"],
        "summary": "List the caller's files",
        "parameters": [
            {
                "name": "purpose",
                "in": "query",
                "description": "Only files for this.",
                "schema": {"type": "string"},
            },
            {
                "name": "limit",
                "in": "query",
                "description": "The most files of a page.",
                "schema": {"type": "integer", "minimum": 1, "maximum": 10000, "default": 10000},
            },
            parameter("Order"),
            parameter("After"),
            parameter("RequestId"),
        ],
        "responses": with_failures(
            json!({"200": success("One page.", "FileList")}),
            &[("400", "The query is wrong.")],
        ),
    })
}

/// `GET /v1/files/{id}`
pub(crate) fn get_file() -> Value {
    json!({
        "operationId": "getFile",
        "tags": ["Files"],
        "summary": "Get what is known about a file",
        "parameters": [parameter("FileId"), parameter("RequestId")],
        "responses": with_failures(json!({"200": success("The file.", "File")}), &[("404", NONE)]),
    })
}

/// `GET /v1/files/{id}/content`
pub(crate) fn get_file_content() -> Value {
    json!({
        "operationId": "getFileContent",
        "tags": ["Files"],
        "summary": "Get what is in a file",
        "parameters": [parameter("FileId"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": {
                "description": "Its bytes, with the media type that it was kept with.",
                "headers": {"x-request-id": header("RequestId")},
                "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
            }}),
            &[("404", NONE)],
        ),
    })
}

/// `DELETE /v1/files/{id}`
pub(crate) fn delete_file() -> Value {
    json!({
        "operationId": "deleteFile",
        "tags": ["Files"],
        "summary": "Forget a file",
        "description": "A conversation that names it goes on; its model is told that the file is gone.",
        "parameters": [parameter("FileId"), parameter("RequestId")],
        "responses": with_failures(json!({"200": success("It is gone.", "DeletedFile")}), &[("404", NONE)]),
    })
}

const NONE: &str = "No such file, or not one of the caller's.";
