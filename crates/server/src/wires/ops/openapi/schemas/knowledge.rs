//! A tenant's knowledge, as administrators see it.

use serde_json::{Value, json};

use super::{Schemas, admin::list, kept::deleted, object, text, text_or_null};

pub(super) fn schemas() -> Schemas {
    vec![
        ("KnowledgeCollection", collection()),
        ("KnowledgeCollectionList", list("KnowledgeCollection", "string", "Collections by name.")),
        ("DeletedKnowledge", gone()),
        ("KnowledgeDocument", document()),
        ("KnowledgeDocumentList", list("KnowledgeDocument", "string", "Documents by source and path.")),
    ]
}

fn collection() -> Value {
    let count = |what: &str| json!({"type": "integer", "minimum": 0, "description": what});
    object(
        "Documents that belong together.",
        &["name", "object", "documents", "chunks", "embedding_model", "created_at", "updated_at"],
        json!({
            "name": text("What it is asked for by; unique in its tenant."),
            "object": {"const": "knowledge.collection"},
            "documents": count("How many documents it has."),
            "chunks": count("How many pieces they have."),
            "embedding_model": text_or_null("The model that its pieces were given a place by; null where they are found by words alone."),
            "created_at": {"type": "integer", "description": "Seconds since 1970."},
            "updated_at": {"type": "integer", "description": "Seconds since 1970."},
        }),
    )
}

/// What is gone is a collection, or one source of it.
fn gone() -> Value {
    json!({"anyOf": [deleted("knowledge.collection.deleted"), deleted("knowledge.source.deleted")]})
}

fn document() -> Value {
    object(
        "A file that was brought in.",
        &["id", "object", "source", "path", "language", "attributes", "chunks", "updated_at"],
        json!({
            "id": text("Source and path, with a colon between them."),
            "object": {"const": "knowledge.document"},
            "source": text("What it was brought in with, such as one folder."),
            "path": text("Where it is in its source."),
            "language": text("By the end of its name."),
            "attributes": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "What else is known about it, such as `repo`; conditions of a search ask for these.",
            },
            "chunks": {"type": "integer", "minimum": 0, "description": "How many pieces it has."},
            "updated_at": {"type": "integer", "description": "Seconds since 1970."},
        }),
    )
}
