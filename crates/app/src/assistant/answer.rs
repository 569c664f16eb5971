//! The response body of an assistant turn, built from what is stored.

use amalgam_core::{
    Fault, Scope,
    store::{MetadataRecord, SessionEnd},
};
use amalgam_protocol::{Raw, Shape, Writer};

use crate::app::Application;

/// The ids of the messages of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageIds {
    /// The session.
    pub session_id: i64,
    /// The user's message.
    pub user_message_id: i64,
    /// The answer.
    pub assistant_message_id: i64,
}

impl MessageIds {
    /// Reads the ids from a response's metadata, for a caller that resumes its stream.
    pub fn read(metadata: Raw<'_>) -> Option<Self> {
        let number = |name: &str| metadata.get_str(name)?.parse().ok();
        Some(Self {
            session_id: number("session_id")?,
            user_message_id: number("user_message_id")?,
            assistant_message_id: number("assistant_message_id")?,
        })
    }
}

/// The body for an answer that is in the store. RNCC-13
pub async fn body(app: &Application, scope: &Scope, ids: MessageIds) -> Result<Vec<u8>, Fault> {
    let message = app.store.message(scope, ids.assistant_message_id).await?.ok_or_else(no_answer)?;
    Ok(write(&message.content, &message.metadata, ids))
}

/// The body for an answer that a turn has just added to its session.
pub(super) fn written_body(end: &SessionEnd, ids: MessageIds) -> Result<Vec<u8>, Fault> {
    let (_, content) = end.answer.as_ref().ok_or_else(no_answer)?;
    let metadata = end.metadata.iter().filter(|(id, _)| *id == ids.assistant_message_id);
    Ok(write(content, metadata.map(|(_, record)| record), ids))
}

fn no_answer() -> Fault {
    Fault::internal("an answer is not in its session")
}

fn write<'a>(
    content: &str,
    metadata: impl IntoIterator<Item = &'a MetadataRecord, IntoIter: Clone>,
    ids: MessageIds,
) -> Vec<u8> {
    let metadata = metadata.into_iter();
    let of_kind = |kind: &'static str| metadata.clone().filter(move |record| record.kind == kind);
    let mut writer = Writer::with_capacity(content.len() + 512);
    let usage = of_kind("model_usage").next();
    let prompt = of_kind("system_prompt").next();
    let text = |record: Option<&MetadataRecord>, name: &str| {
        record.and_then(|record| record.value.raw().get_str(name).map(|text| text.into_owned())).unwrap_or_default()
    };
    writer.object(|writer| {
        writer.key("session_id").number(ids.session_id.unsigned_abs());
        writer.key("user_message_id").number(ids.user_message_id.unsigned_abs());
        writer.key("assistant_message_id").number(ids.assistant_message_id.unsigned_abs());
        writer.key("message").string(content);
        writer.key("model").string(&text(usage, "model"));
        writer.key("response_id").string(&text(usage, "response_id"));
        writer.key("prompt").object(|writer| {
            writer.key("version").string(&text(prompt, "version"));
            writer.key("hash").string(&text(prompt, "hash"));
            if let Some(version) = prompt.and_then(|record| record.value.raw().get("profile_version")) {
                writer.key("profile_version").raw(version);
            }
        });
        let incomplete = text(usage, "incomplete_reason");
        if !incomplete.is_empty() {
            writer.key("incomplete_details").object(|writer| writer.key("reason").string(&incomplete));
        }
        write_tool_results(writer, of_kind("tool_call"));
    });
    writer.into_bytes()
}

/// The results of the tools whose calls these records describe; nothing without one. RNCC-16
pub fn write_tool_results<'a>(writer: &mut Writer, calls: impl Iterator<Item = &'a MetadataRecord>) {
    let mut calls = calls.peekable();
    if calls.peek().is_none() {
        return;
    }
    writer.key("tool_results").array(|writer| {
        for call in calls {
            let call = call.value.raw();
            writer.object(|writer| {
                write_result(
                    writer,
                    &call.get_str("id").unwrap_or_default(),
                    &call.get_str("name").unwrap_or_default(),
                    call.get("output").unwrap_or(Raw::NULL),
                );
            });
        }
    });
}

/// The fields of one tool result. `output` is always an object, whatever the tool returned. RNCC-16
pub fn write_result(writer: &mut Writer, id: &str, name: &str, output: Raw<'_>) {
    writer.key("id").string(id);
    writer.key("name").string(name);
    match output.shape() {
        Shape::Object => writer.key("output").raw(output),
        _ => writer.key("output").object(|writer| writer.key("result").raw(output)),
    }
}
