//! Responses that several wires send: a JSON value, a list of items.

use amalgam_core::{
    file_search::{Results, shown},
    write_item,
};
use amalgam_protocol::{Json, Raw, Writer};
use axum::{body::Body, response::Response};
use http::{HeaderValue, header};

/// A JSON value with status 200.
pub(crate) fn json(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A page of items; `has_more` says that more items follow.
pub(crate) fn list(items: &[Raw<'_>], has_more: bool, results: Results) -> Response {
    let room: usize = items.iter().map(|item| item.text().len() + 64).sum();
    let mut writer = Writer::with_capacity(room + 160);
    writer.object(|writer| {
        writer.key("object").string("list");
        writer.key("data").array(|writer| {
            items.iter().for_each(|item| match results {
                Results::Hidden => write_item(writer, *item),
                Results::Shown => write_item(writer, shown(Json::from(*item), results).raw()),
            });
        });
        for (name, item) in [("first_id", items.first()), ("last_id", items.last())] {
            match item.and_then(|item| item.get("id")) {
                Some(id) => writer.key(name).raw(id),
                None => writer.key(name).null(),
            }
        }
        writer.key("has_more").bool(has_more);
    });
    json(writer.into_bytes())
}

/// The confirmation that an object was deleted.
pub(crate) fn deleted(id: &str, object: &'static str) -> Response {
    let mut writer = Writer::with_capacity(128);
    writer.object(|writer| {
        writer.key("id").string(id);
        writer.key("object").string(object);
        writer.key("deleted").bool(true);
    });
    json(writer.into_bytes())
}
