//! `GET /v1/chat/completions`: the caller's own stored completions, newest first, without their content.

use amalgam_app::chat_completions::{CompletionFilter, ListedCompletion, stored_completions};
use amalgam_chat_completions::{completion_id, write_usage};
use amalgam_core::{Fault, store::Order};
use amalgam_protocol::{Usage, Writer};
use axum::response::Response;

use crate::wires::{WireError, answer, call::Call};

/// Lists completions; `GET /v1/chat/completions/{id}` has their content.
pub(super) async fn list(Call { app, scope, query, .. }: Call) -> Result<Response, WireError> {
    let page = query.page()?;
    if page.order == Order::Ascending {
        return Err(Fault::invalid("order", "Completions are listed newest first: only `desc` is supported.").into());
    }
    let filter = CompletionFilter { model: query.get("model").map(str::to_owned), metadata: query.pairs("metadata") };
    let found = stored_completions(&app.app, &scope, &page, filter).await?;
    let mut writer = Writer::with_capacity(512 * (found.completions.len() + 1));
    writer.object(|writer| {
        writer.key("object").string("list");
        writer.key("data").array(|writer| found.completions.iter().for_each(|one| write(writer, one)));
        let first = found.completions.first().map(|one| one.turn.response_id.as_str());
        for (name, id) in [("first_id", first), ("last_id", found.last_id.as_deref())] {
            match id {
                Some(id) => writer.key(name).string(&completion_id(id)),
                None => writer.key(name).null(),
            }
        }
        writer.key("has_more").bool(found.has_more);
    });
    Ok(answer::json(writer.into_bytes()))
}

fn write(writer: &mut Writer, ListedCompletion { turn, settings }: &ListedCompletion) {
    let usage = Usage {
        input_tokens: turn.tokens.input,
        cached_tokens: turn.tokens.cached_input,
        cache_write_tokens: turn.tokens.cache_write,
        output_tokens: turn.tokens.output,
        reasoning_tokens: turn.tokens.reasoning,
        ..Usage::default()
    };
    writer.object(|writer| {
        writer.key("id").string(&completion_id(&turn.response_id));
        writer.key("object").string("chat.completion");
        writer.key("created").number(turn.created_at_ms / 1000);
        writer.key("model").string(&turn.requested_model);
        writer.key("choices").array(|_| {});
        write_usage(&usage, writer.key("usage"));
        writer.key("metadata").raw(settings.metadata());
        writer.key("status").string(&turn.status);
    });
}
