//! What messages and tool outputs hold.

use serde_json::{Value, json};

use super::{Schemas, any_of, list_of, object, text, text_or_null};

const KINDS: [&str; 10] = [
    "input_text",
    "output_text",
    "text",
    "summary_text",
    "reasoning_text",
    "refusal",
    "input_image",
    "image_url",
    "input_file",
    "computer_screenshot",
];

pub(super) fn schemas() -> Schemas {
    vec![
        (
            "Content",
            json!({"description": "A text, or parts in their order.", "anyOf": [{"type": "string"}, list_of("Part")]}),
        ),
        ("Part", json!({"anyOf": any_of(&["TextPart", "RefusalPart", "ImagePart", "FilePart", "OtherPart"])})),
        ("TextPart", text_part()),
        ("OutputText", output_text()),
        ("RefusalPart", refusal()),
        ("ImagePart", image()),
        ("FilePart", file()),
        ("OtherPart", other()),
        ("SummaryText", summary_text()),
    ]
}

fn text_part() -> Value {
    object(
        "A text. All five names are read everywhere.",
        &["type", "text"],
        json!({
            "type": {"enum": ["input_text", "output_text", "text", "summary_text", "reasoning_text"]},
            "text": text_or_null("Null counts as empty."),
        }),
    )
}

fn output_text() -> Value {
    object(
        "A text that the model wrote.",
        &["type", "text", "annotations", "logprobs"],
        json!({
            "type": {"const": "output_text"},
            "text": {"type": "string"},
            "annotations": {"type": "array", "items": {"type": "object"}, "description": "As the upstream wrote them; and a `file_citation` (`index`, `file_id`, `filename`) for each result of a search of this server's that the text cites."},
            "logprobs": {"type": "array", "items": {"type": "object"}, "description": "Empty unless asked for."},
        }),
    )
}

fn refusal() -> Value {
    object(
        "The model declines.",
        &["type", "refusal"],
        json!({"type": {"const": "refusal"}, "refusal": {"type": "string"}}),
    )
}

fn image() -> Value {
    object(
        "A picture, by address, as a data URI or by file id.",
        &["type"],
        json!({
            "type": {"enum": ["input_image", "image_url", "computer_screenshot"]},
            "image_url": {
                "description": "`https://…` or `data:image/…;base64,…`; an object with `url` is read too.",
                "anyOf": [{"type": ["string", "null"]}, {"type": "object", "required": ["url"]}],
            },
            "file_id": text_or_null("The id of an uploaded file, or of one at an upstream of kind `responses`."),
            "detail": text_or_null("`low`, `high`, `auto`, `original`."),
        }),
    )
}

fn file() -> Value {
    object(
        "A file, by address, as base64 or by file id.",
        &["type"],
        json!({
            "type": {"const": "input_file"},
            "file_data": text_or_null("Base64, with or without `data:…;base64,` before it."),
            "file_url": text_or_null("`https://…`"),
            "file_id": text_or_null("The id of an uploaded file, or of one at an upstream of kind `responses`."),
            "filename": text_or_null("The name that the user knows it by."),
        }),
    )
}

fn other() -> Value {
    object(
        "Audio, video, and kinds that are not listed here: kept, and passed along where the upstream takes them.",
        &["type"],
        json!({"type": {"type": "string", "not": {"enum": KINDS}}}),
    )
}

fn summary_text() -> Value {
    object(
        "What may be shown of a thought.",
        &["type", "text"],
        json!({"type": {"const": "summary_text"}, "text": text("The summary.")}),
    )
}
