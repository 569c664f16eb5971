//! The events of a stream: each name that the protocol knows, with the shape that goes with it.

use amalgam_protocol::EventKind;
use serde_json::{Map, Value, json};

use super::{Schemas, object, reference};

pub(super) fn schemas() -> Schemas {
    let mut schemas = vec![("StreamEvent", union())];
    schemas.extend(SHAPES.iter().map(|shape| (shape.name, schema(shape))));
    schemas
}

/// Events that have the same fields.
struct Shape {
    name: &'static str,
    about: &'static str,
    /// The fields besides `type` and `sequence_number`; all of them are always there.
    fields: &'static [(&'static str, Kind)],
}

#[derive(Clone, Copy)]
enum Kind {
    /// A position, from 0.
    Index,
    Text,
    TextOrNull,
    Objects,
    Object,
    /// What has the shape of this name.
    Named(&'static str),
}

const ITEM: (&str, Kind) = ("item_id", Kind::Text);
const OUTPUT: (&str, Kind) = ("output_index", Kind::Index);
const CONTENT: (&str, Kind) = ("content_index", Kind::Index);
const SUMMARY: (&str, Kind) = ("summary_index", Kind::Index);
const DELTA: (&str, Kind) = ("delta", Kind::Text);
const LOGPROBS: (&str, Kind) = ("logprobs", Kind::Objects);

const SHAPES: [Shape; 18] = [
    Shape {
        name: "ResponseEvent",
        about: "The response as it stands. A stream begins with `response.created` and `response.in_progress` and ends \
                with exactly one of `response.completed`, `response.incomplete` and `response.failed`.",
        fields: &[("response", Kind::Named("Response"))],
    },
    Shape {
        name: "OutputItemEvent",
        about: "An item begins or ends. Items come one after the other: the next begins when the one before has ended.",
        fields: &[OUTPUT, ("item", Kind::Named("OutputItem"))],
    },
    Shape {
        name: "ContentPartEvent",
        about: "A part of a message begins or ends.",
        fields: &[ITEM, OUTPUT, CONTENT, ("part", Kind::Object)],
    },
    Shape { name: "OutputTextDeltaEvent", about: "More text.", fields: &[ITEM, OUTPUT, CONTENT, DELTA, LOGPROBS] },
    Shape {
        name: "OutputTextDoneEvent",
        about: "The whole text of a part.",
        fields: &[ITEM, OUTPUT, CONTENT, ("text", Kind::Text), LOGPROBS],
    },
    Shape {
        name: "AnnotationEvent",
        about: "An annotation of the text so far.",
        fields: &[ITEM, OUTPUT, CONTENT, ("annotation_index", Kind::Index), ("annotation", Kind::Object)],
    },
    Shape { name: "RefusalDeltaEvent", about: "More of a refusal.", fields: &[ITEM, OUTPUT, CONTENT, DELTA] },
    Shape {
        name: "RefusalDoneEvent",
        about: "The whole refusal.",
        fields: &[ITEM, OUTPUT, CONTENT, ("refusal", Kind::Text)],
    },
    Shape { name: "ArgumentsDeltaEvent", about: "More arguments of a function call.", fields: &[ITEM, OUTPUT, DELTA] },
    Shape {
        name: "ArgumentsDoneEvent",
        about: "The whole arguments of a function call.",
        fields: &[ITEM, OUTPUT, ("name", Kind::Text), ("arguments", Kind::Text)],
    },
    Shape { name: "CustomInputDeltaEvent", about: "More input for a custom tool.", fields: &[ITEM, OUTPUT, DELTA] },
    Shape {
        name: "CustomInputDoneEvent",
        about: "The whole input for a custom tool.",
        fields: &[ITEM, OUTPUT, ("input", Kind::Text)],
    },
    Shape {
        name: "SummaryPartEvent",
        about: "A part of a reasoning summary begins or ends.",
        fields: &[ITEM, OUTPUT, SUMMARY, ("part", Kind::Named("SummaryText"))],
    },
    Shape { name: "SummaryDeltaEvent", about: "More of a reasoning summary.", fields: &[ITEM, OUTPUT, SUMMARY, DELTA] },
    Shape {
        name: "SummaryDoneEvent",
        about: "The whole part of a reasoning summary.",
        fields: &[ITEM, OUTPUT, SUMMARY, ("text", Kind::Text)],
    },
    Shape {
        name: "ErrorEvent",
        about: "The turn failed; `response.failed` follows. The error stands nested and flat, for clients of either \
                reading.",
        fields: &[
            ("error", Kind::Named("Error")),
            ("code", Kind::TextOrNull),
            ("param", Kind::TextOrNull),
            ("message", Kind::Text),
        ],
    },
    Shape { name: "KeepaliveEvent", about: "A sign of life after a silence.", fields: &[] },
    Shape {
        name: "PassedEvent",
        about: "Progress of a tool that an upstream runs, as the upstream wrote it; only number and index are made \
                anew.",
        fields: &[],
    },
];

/// Which shape an event has.
pub(in super::super) fn shape_of(kind: EventKind) -> &'static str {
    use EventKind as Kind;
    match kind {
        Kind::Created | Kind::Queued | Kind::InProgress => "ResponseEvent",
        Kind::Completed | Kind::Failed | Kind::Incomplete | Kind::Cancelled => "ResponseEvent",
        Kind::ItemAdded | Kind::ItemDone => "OutputItemEvent",
        Kind::PartAdded | Kind::PartDone => "ContentPartEvent",
        Kind::TextDelta => "OutputTextDeltaEvent",
        Kind::TextDone => "OutputTextDoneEvent",
        Kind::AnnotationAdded => "AnnotationEvent",
        Kind::RefusalDelta => "RefusalDeltaEvent",
        Kind::RefusalDone => "RefusalDoneEvent",
        Kind::ArgumentsDelta => "ArgumentsDeltaEvent",
        Kind::ArgumentsDone => "ArgumentsDoneEvent",
        Kind::CustomInputDelta => "CustomInputDeltaEvent",
        Kind::CustomInputDone => "CustomInputDoneEvent",
        Kind::SummaryPartAdded | Kind::SummaryPartDone => "SummaryPartEvent",
        Kind::SummaryTextDelta => "SummaryDeltaEvent",
        Kind::SummaryTextDone => "SummaryDoneEvent",
        Kind::Error => "ErrorEvent",
        Kind::Keepalive => "KeepaliveEvent",
        // What we do not make ourselves comes from an upstream and keeps its shape.
        _ => "PassedEvent",
    }
}

fn names(shape: &Shape) -> Vec<&'static str> {
    EventKind::ALL.iter().filter(|kind| shape_of(**kind) == shape.name).map(|kind| kind.name()).collect()
}

fn schema(shape: &Shape) -> Value {
    let mut properties = Map::new();
    properties.insert("type".to_owned(), json!({"enum": names(shape)}));
    properties.insert("sequence_number".to_owned(), Kind::Index.schema());
    for (name, kind) in shape.fields {
        properties.insert((*name).to_owned(), kind.schema());
    }
    let required: Vec<&str> = properties.keys().map(String::as_str).collect();
    object(shape.about, &required, Value::Object(properties.clone()))
}

impl Kind {
    fn schema(self) -> Value {
        match self {
            Self::Index => json!({"type": "integer", "minimum": 0}),
            Self::Text => json!({"type": "string"}),
            Self::TextOrNull => json!({"type": ["string", "null"]}),
            Self::Objects => json!({"type": "array", "items": {"type": "object"}}),
            Self::Object => json!({"type": "object"}),
            Self::Named(name) => reference(name),
        }
    }
}

fn union() -> Value {
    let members: Vec<Value> = SHAPES.iter().map(|shape| reference(shape.name)).collect();
    let mapping: Map<String, Value> = EventKind::ALL
        .iter()
        .map(|kind| (kind.name().to_owned(), json!(format!("#/components/schemas/{}", shape_of(*kind)))))
        .collect();
    json!({
        "description": "One event of a stream. `sequence_number` counts from 0 without a gap, signs of life included. \
            Clients pass by names that they do not know.",
        "anyOf": members,
        "discriminator": {"propertyName": "type", "mapping": mapping},
    })
}
