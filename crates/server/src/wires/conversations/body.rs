//! Bodies of this wire: read, parsed and bounded as those of `POST /v1/responses`.

use amalgam_core::Fault;
use amalgam_protocol::{Ends, Item, Raw};
use axum::extract::Request;
use bytes::Bytes;

use crate::{
    app::App,
    body::read_json,
    wires::responses::{
        bounds::{self, Tally},
        error,
    },
};

/// The most items that one request adds.
pub(super) const MOST_ITEMS: usize = 20;

/// Reads the body whole.
pub(super) async fn read(app: &App, request: Request) -> Result<Bytes, Fault> {
    Ok(read_json(request, app.limits.whole_body(), &app.memory).await?.1)
}

/// Checks that the body is JSON; an empty one says nothing, like an empty object.
pub(super) fn parse<'a>(app: &App, body: &'a Bytes, ends: &'a mut Ends) -> Result<Raw<'a>, Fault> {
    match body.is_empty() {
        true => Ok(Raw::EMPTY_OBJECT),
        false => Raw::parse_large(body, app.limits.json_depth, ends).map_err(|fault| error::syntax(&fault)),
    }
}

/// Checks how many items there are, how long their texts are and how large everything is together.
pub(super) fn check_items(app: &App, items: &[Item<'_>], body: Raw<'_>, body_bytes: usize) -> Result<(), Fault> {
    let mut tally = Tally::default();
    bounds::check_items(items, "items", MOST_ITEMS, body, &mut tally, &app.limits)?;
    bounds::check_size(&tally, body_bytes, &app.limits)
}
