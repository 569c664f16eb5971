//! `GET /v1/responses` without an upgrade: the caller's own stored responses, newest first.

use amalgam_app::turns::stored_responses;
use amalgam_protocol::Writer;
use axum::response::Response;

use crate::wires::{WireError, answer, call::Call};

/// Lists the caller's responses without their content, which `GET /v1/responses/{id}` has.
pub(super) async fn list(call: Call) -> Result<Response, WireError> {
    let page = call.query.page()?;
    let responses = stored_responses(&call.app.app, &call.scope, &page).await?;
    let mut writer = Writer::with_capacity(256 * (responses.turns.len() + 1));
    writer.object(|writer| {
        writer.key("object").string("list");
        writer.key("data").array(|writer| {
            for response in &responses.turns {
                writer.object(|writer| {
                    writer.key("id").string(&response.response_id);
                    writer.key("object").string("response");
                    writer.key("created_at").number(response.created_at_ms / 1000);
                    writer.key("status").string(&response.status);
                    writer.key("model").string(&response.requested_model);
                    writer.key("usage").object(|writer| {
                        writer.key("input_tokens").number(response.tokens.input);
                        writer.key("output_tokens").number(response.tokens.output);
                        writer.key("total_tokens").number(response.tokens.total());
                    });
                });
            }
        });
        let last = responses.next.as_ref().map(|next| &next.response_id);
        let last = last.or(responses.turns.last().map(|response| &response.response_id));
        for (name, id) in
            [("first_id", responses.turns.first().map(|response| &response.response_id)), ("last_id", last)]
        {
            match id {
                Some(id) => writer.key(name).string(id),
                None => writer.key(name).null(),
            }
        }
        writer.key("has_more").bool(responses.next.is_some());
    });
    Ok(answer::json(writer.into_bytes()))
}
