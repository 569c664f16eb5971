//! Items as stored and as returned.
//!
//! A stored item is what the caller sent, byte for byte, with an id if it had none. A returned item has in addition the
//! fields that callers may omit: a message's type and status, the parts of its content. Items of unknown kinds are
//! returned unchanged.

use std::borrow::Cow;

use amalgam_protocol::{
    ClientTool, Content, HostedItem, Input, Item, ItemKind, Json, JsonStr, Message, PartKind, Raw, Role, TextKind,
    Writer,
};

use crate::{
    fault::Fault,
    file_search::{self, Results},
    ids::{IdKind, Ids},
    store::NewItem,
};

/// The input of a request to store: a JSON array in which every item has an id.
///
/// An item is the text that was sent; one without an id gets one as its first key. A plain text becomes a user message.
/// References are written unchanged: the caller of this function resolves them before.
pub fn number_items(input: Option<&Input<'_>>, ids: &mut Ids) -> Json {
    let room = match input {
        None => 0,
        Some(Input::Text(text)) => text.escaped().len() + 80,
        Some(Input::Items(items)) => items.iter().map(|item| item.raw.text().len() + 44).sum(),
    };
    let mut writer = Writer::with_capacity(room + 2);
    writer.array(|writer| match input {
        None => {}
        Some(Input::Text(text)) => write_text(writer, *text, ids),
        Some(Input::Items(items)) => {
            for item in items {
                write_numbered(writer, item, ids);
            }
        }
    });
    Json::from_writer(writer)
}

/// Parses stored items.
pub fn read_items<'a>(items: impl Iterator<Item = Raw<'a>>) -> Result<Vec<Item<'a>>, Fault> {
    items.map(|item| Item::read(item).map_err(|_| Fault::internal("a kept item cannot be read"))).collect()
}

/// The whole input in order: arrays of earlier items, then `own` if there is one, otherwise `sent`, the request's own
/// input. `None` if `sent` is the whole input.
pub fn joined<'a>(
    before: &'a [Json],
    own: Option<&'a Json>,
    sent: Option<&Input<'a>>,
) -> Result<Option<Input<'a>>, Fault> {
    if before.is_empty() && own.is_none() {
        return Ok(None);
    }
    let mut items = read_items(before.iter().chain(own).flat_map(|array| array.raw().elements()))?;
    if let (None, Some(Input::Items(sent))) = (own, sent) {
        items.extend(sent.iter().cloned());
    }
    Ok(Some(Input::Items(items)))
}

/// One item to store, and its id.
pub fn number_item(item: &Item<'_>, ids: &mut Ids) -> NewItem {
    let mut writer = Writer::with_capacity(item.raw.text().len() + 44);
    let id = write_numbered(&mut writer, item, ids).into_owned();
    NewItem { id, item: Json::from_writer(writer) }
}

/// Writes a stored item as the API returns it.
pub fn write_item(writer: &mut Writer, stored: Raw<'_>) {
    // Stored items were parsed once; a later version may have stored one that this version cannot parse.
    let Ok(item) = Item::read(stored) else { return writer.raw(stored) };
    let missing = |name: &str| stored.get(name).is_none_or(Raw::is_null);
    match &item.kind {
        ItemKind::Message(message) => write_message(writer, stored, message),
        ItemKind::FunctionCall(_)
        | ItemKind::FunctionCallOutput(_)
        | ItemKind::CustomToolCall(_)
        | ItemKind::CustomToolCallOutput(_)
            if missing("status") =>
        {
            write_with_status(writer, stored);
        }
        ItemKind::Hosted(HostedItem::FileSearchCall | HostedItem::McpCall | HostedItem::McpApprovalRequest) => {
            file_search::write_shown(writer, stored, Results::Hidden);
        }
        _ => writer.raw(stored),
    }
}

/// The kind of id for an item.
fn id_kind(kind: &ItemKind<'_>) -> IdKind {
    match kind {
        ItemKind::Message(_) | ItemKind::AgentMessage(_) => IdKind::Message,
        ItemKind::FunctionCall(_) => IdKind::FunctionCall,
        ItemKind::FunctionCallOutput(_) => IdKind::FunctionCallOutput,
        ItemKind::CustomToolCall(_) => IdKind::CustomToolCall,
        ItemKind::CustomToolCallOutput(_) => IdKind::CustomToolCallOutput,
        ItemKind::Reasoning(_) => IdKind::Reasoning,
        ItemKind::ClientCall(ClientTool::Shell, _) => IdKind::ShellCall,
        ItemKind::ClientCall(ClientTool::LocalShell, _) => IdKind::LocalShellCall,
        ItemKind::ClientCall(ClientTool::ApplyPatch, _) => IdKind::ApplyPatchCall,
        ItemKind::ClientCall(ClientTool::ToolSearch, _) => IdKind::ToolSearchCall,
        ItemKind::ClientCall(ClientTool::Computer, _) => IdKind::ComputerCall,
        ItemKind::Compaction(_) => IdKind::Compaction,
        ItemKind::ClientCallOutput(..)
        | ItemKind::AdditionalTools(_)
        | ItemKind::Reference(_)
        | ItemKind::Hosted(_)
        | ItemKind::Other(_) => IdKind::Item,
    }
}

fn write_text(writer: &mut Writer, text: JsonStr<'_>, ids: &mut Ids) {
    writer.object(|writer| {
        writer.key("id").string(&ids.make(IdKind::Message));
        writer.key("type").string("message");
        writer.key("role").string(Role::User.name());
        writer.key("content").json_str(text);
    });
}

fn write_numbered<'a>(writer: &mut Writer, item: &Item<'a>, ids: &mut Ids) -> Cow<'a, str> {
    if let Some(id) = item.id().filter(|id| !id.is_empty()) {
        writer.raw(item.raw);
        return id;
    }
    let id = ids.make(id_kind(&item.kind));
    writer.object(|writer| {
        writer.key("id").string(&id);
        match inside(item.raw) {
            // An invalid id, such as null, is replaced: two keys with the same name would be ambiguous.
            Some(_) if item.raw.get("id").is_some() => write_fields(writer, item.raw, &["id"]),
            Some(inside) => writer.valid(inside.as_bytes()),
            None => {}
        }
    });
    Cow::Owned(id)
}

/// The text between the braces of an object; none if it is empty.
fn inside(object: Raw<'_>) -> Option<&str> {
    let inside = object.text().strip_prefix('{')?.strip_suffix('}')?;
    (!inside.trim_ascii().is_empty()).then_some(inside)
}

/// Writes the fields of an object unchanged, except some.
fn write_fields(writer: &mut Writer, object: Raw<'_>, but: &[&str]) {
    for (key, value) in object.fields() {
        if !but.iter().any(|name| key.is(name)) {
            write_field(writer, key, value);
        }
    }
}

fn write_field(writer: &mut Writer, key: JsonStr<'_>, value: Raw<'_>) {
    writer.json_str(key);
    writer.outside(b":");
    writer.raw(value);
}

fn write_with_status(writer: &mut Writer, stored: Raw<'_>) {
    writer.object(|writer| {
        write_fields(writer, stored, &["status"]);
        writer.key("status").string("completed");
    });
}

fn write_message(writer: &mut Writer, stored: Raw<'_>, message: &Message<'_>) {
    writer.object(|writer| {
        write_identity(writer, stored);
        writer.key("type").string("message");
        writer.key("status").string(message.status.as_deref().unwrap_or("completed"));
        for (key, value) in stored.fields() {
            match &*key.decode() {
                "id" | "type" | "status" => {}
                "content" => write_content(writer.key("content"), message, value),
                _ => write_field(writer, key, value),
            }
        }
    });
}

fn write_identity(writer: &mut Writer, stored: Raw<'_>) {
    if let Some(id) = stored.get("id") {
        writer.key("id").raw(id);
    }
}

fn write_content(writer: &mut Writer, message: &Message<'_>, stored: Raw<'_>) {
    match &message.content {
        Content::Text(text) => writer.array(|writer| write_text_part(writer, message.role, *text)),
        Content::Parts(parts) => writer.array(|writer| {
            for part in parts {
                match &part.kind {
                    PartKind::Text { kind: TextKind::Output, .. } if part.raw.get("annotations").is_none() => {
                        writer.object(|writer| {
                            write_fields(writer, part.raw, &[]);
                            writer.key("annotations").array(|_| {});
                        });
                    }
                    _ => writer.raw(part.raw),
                }
            }
        }),
        Content::Value(_) => writer.raw(stored),
    }
}

fn write_text_part(writer: &mut Writer, role: Role, text: JsonStr<'_>) {
    writer.object(|writer| match role {
        Role::Assistant => {
            writer.key("type").string("output_text");
            writer.key("text").json_str(text);
            writer.key("annotations").array(|_| {});
            writer.key("logprobs").array(|_| {});
        }
        Role::User | Role::System | Role::Developer => {
            writer.key("type").string("input_text");
            writer.key("text").json_str(text);
        }
    });
}

#[cfg(test)]
#[path = "items_tests.rs"]
mod tests;
