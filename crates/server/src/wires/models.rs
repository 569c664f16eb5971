//! `GET /v1/models` and `GET /v1/models/{id}`: for clients of OpenAI, and for clients of Anthropic, which send the header
//! `anthropic-version`.

use amalgam_app::model_cards::{usable_model, usable_models};
use amalgam_core::{Fault, ModelCard};
use amalgam_messages::{ModelPage, write_model, write_models};
use amalgam_protocol::Writer;
use axum::{
    Router,
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::HeaderMap;

use super::{WireError, answer, call::Call, messages::MessagesError};
use crate::app::CurrentApp;

/// The paths of this wire.
const MODELS: &str = "/v1/models";

/// Whether errors on a path have the format of Anthropic's API.
pub(crate) fn speaks_messages(path: &str, headers: &HeaderMap) -> bool {
    path.strip_prefix(MODELS).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) && is_anthropic(headers)
}

fn is_anthropic(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new().route(MODELS, get(list)).route("/v1/models/{*id}", get(one))
}

/// All models that the caller may use.
async fn list(call: Call, headers: HeaderMap) -> Response {
    let result = usable_models(&call.app, &call.scope).await;
    if !is_anthropic(&headers) {
        return result.map(|cards| answer::json(openai_list(&cards))).map_err(WireError).into_response();
    }
    let page = |limit| ModelPage {
        limit,
        after_id: call.query.get("after_id").map(ToOwned::to_owned),
        before_id: call.query.get("before_id").map(ToOwned::to_owned),
    };
    let written = result.and_then(|cards| Ok(write_models(&cards, &page(call.query.number("limit")?))));
    rendered(&call, written)
}

/// One model with its capabilities.
async fn one(call: Call, headers: HeaderMap) -> Response {
    let result = usable_model(&call.app, &call.scope, call.path.text(0)).await;
    let written = |write: fn(&mut Writer, &ModelCard)| {
        result.map(|card| {
            let mut writer = Writer::with_capacity(512);
            write(&mut writer, &card);
            writer.into_bytes()
        })
    };
    match is_anthropic(&headers) {
        true => rendered(&call, written(write_model)),
        false => written(write_openai).map(answer::json).map_err(WireError).into_response(),
    }
}

/// A body or an error for a client of Anthropic.
fn rendered(call: &Call, written: Result<Vec<u8>, Fault>) -> Response {
    written.map(answer::json).map_err(|fault| MessagesError::of(fault, &call.scope)).into_response()
}

fn openai_list(cards: &[ModelCard]) -> Vec<u8> {
    let mut writer = Writer::with_capacity(256 * cards.len() + 64);
    writer.object(|writer| {
        writer.key("object").string("list");
        writer.key("data").array(|writer| cards.iter().for_each(|card| write_openai(writer, card)));
    });
    writer.into_bytes()
}

fn write_openai(writer: &mut Writer, card: &ModelCard) {
    writer.object(|writer| {
        writer.key("id").string(&card.id);
        writer.key("object").string("model");
        writer.key("created").number(card.created);
        writer.key("owned_by").string(&card.owned_by);
        writer.key("capabilities").object(|writer| {
            writer.key("wire").string(&card.wire);
            for (name, number) in
                [("context_window", card.context_window), ("max_output_tokens", card.max_output_tokens)]
            {
                match number {
                    Some(number) => writer.key(name).number(number),
                    None => writer.key(name).null(),
                }
            }
            writer.key("modalities").array(|writer| card.modalities.iter().for_each(|one| writer.string(one)));
            writer.key("streaming").bool(true);
            writer.key("tools").bool(card.tools);
            writer.key("structured_output").bool(card.structured_output);
            writer.key("fallback").array(|writer| card.fallback.iter().for_each(|one| writer.string(one)));
        });
    });
}
