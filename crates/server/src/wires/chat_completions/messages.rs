//! `GET /v1/chat/completions/{id}/messages`: the messages of a stored completion's request, in pages.

use amalgam_chat_completions::{CompletionSettings, StoredMessages, message_id};
use amalgam_core::store::Order;
use amalgam_protocol::Writer;
use axum::response::Response;

use super::retrieve::stored;
use crate::wires::{WireError, answer, call::Call, query::no_such_cursor};

/// One page of the messages, oldest first by default.
pub(super) async fn list(Call { app, scope, path, query, .. }: Call) -> Result<Response, WireError> {
    let page = query.page()?;
    let order = if query.get("order").is_none() { Order::Ascending } else { page.order };
    let response = stored(&app, &scope, &path).await?;
    let settings = CompletionSettings::read(&response.settings);
    let instructions = settings.instructions();
    let lists = instructions.iter().chain([&response.input]);
    let messages = StoredMessages::of(lists.flat_map(|list| list.raw().elements()));
    let mut indexes: Vec<usize> = (0..messages.len()).collect();
    if order == Order::Descending {
        indexes.reverse();
    }
    if let Some(after) = page.after.as_deref() {
        let behind = messages.position(&response.id, after).ok_or_else(|| no_such_cursor("after", after))?;
        let start = indexes.iter().position(|index| *index == behind).map_or(0, |place| place + 1);
        indexes.drain(..start);
    }
    let has_more = indexes.len() > page.limit;
    indexes.truncate(page.limit);
    let mut writer = Writer::with_capacity(response.input.bytes().len().min(64 * 1024) + 256);
    writer.object(|writer| {
        writer.key("object").string("list");
        writer.key("data").array(|writer| {
            indexes.iter().for_each(|index| messages.write(&response.id, *index, writer));
        });
        for (name, index) in [("first_id", indexes.first()), ("last_id", indexes.last())] {
            match index {
                Some(index) => writer.key(name).string(&message_id(&response.id, *index)),
                None => writer.key(name).null(),
            }
        }
        writer.key("has_more").bool(has_more);
    });
    Ok(answer::json(writer.into_bytes()))
}
