//! Uploaded files.

use serde_json::{Value, json};

use super::{Schemas, kept::deleted, list_of, object, text, text_or_null};

pub(super) fn schemas() -> Schemas {
    vec![
        ("UploadFile", upload_file()),
        ("File", file()),
        (
            "FileList",
            object(
                "A page of files.",
                &["object", "data", "first_id", "last_id", "has_more"],
                json!({
                    "object": {"const": "list"},
                    "data": list_of("File"),
                    "first_id": text_or_null("The id of the first file; null for an empty page."),
                    "last_id": text_or_null("The id of the last file: `after` of the next page."),
                    "has_more": {"type": "boolean", "description": "Whether the list goes on behind the page."},
                }),
            ),
        ),
        ("DeletedFile", deleted("file")),
    ]
}

fn upload_file() -> Value {
    let mut form = object(
        "A file to keep.",
        &["file", "purpose"],
        json!({
            "file": {"type": "string", "format": "binary", "description": "The file with its name."},
            "purpose": {
                "type": "string",
                "maxLength": 64,
                "pattern": "^[A-Za-z0-9._-]+$",
                "description": "What it is for, in the caller's own word, such as `user_data`.",
            },
            "expires_after[anchor]": {"const": "created_at", "description": "From when its life is counted."},
            "expires_after[seconds]": {
                "type": "integer",
                "minimum": 3600,
                "maximum": 2_592_000,
                "description": "After so many seconds the file goes by itself.",
            },
        }),
    );
    form["additionalProperties"] = json!(false);
    form
}

fn file() -> Value {
    object(
        "An uploaded file.",
        &["id", "object", "bytes", "created_at", "filename", "purpose", "status"],
        json!({
            "id": {"type": "string", "pattern": "^file_AM-[a-z0-9]{24}$"},
            "object": {"const": "file"},
            "bytes": {"type": "integer", "minimum": 0, "description": "How long it is."},
            "created_at": {"type": "integer", "description": "Seconds since 1970."},
            "expires_at": {"type": "integer", "description": "When it goes by itself, if it does."},
            "filename": text("What its owner calls it."),
            "purpose": text("What it is for."),
            "status": {"const": "processed", "description": "It can be used at once."},
        }),
    )
}
