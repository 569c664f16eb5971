//! Request bodies of this wire: read, parsed and limited like those of `POST /v1/responses`.

use amalgam_app::turns::{self, Tally};
use amalgam_core::Fault;
use amalgam_protocol::{Item, Json, Raw};
use axum::extract::Request;
use bytes::Bytes;

use crate::{app::App, body::read_json};

/// The maximum number of items per request.
pub(super) const MAX_ITEMS: usize = 20;

/// Reads the body.
pub(super) async fn read(app: &App, request: Request) -> Result<Bytes, Fault> {
    Ok(read_json(request, app.whole_body(), &app.memory).await?.1)
}

/// Checks that the body is JSON; an empty body means an empty object.
pub(super) fn parse(app: &App, body: &Bytes) -> Result<Json, Fault> {
    match body.is_empty() {
        true => Ok(Json::from(Raw::EMPTY_OBJECT)),
        false => Ok(Json::parse_document(body, app.limits.json_depth)?),
    }
}

/// Checks the number of items, the length of their texts and the total size.
pub(super) fn check_items(app: &App, items: &[Item<'_>], body: Raw<'_>, body_bytes: usize) -> Result<(), Fault> {
    let mut tally = Tally::default();
    turns::check_items(items, "items", MAX_ITEMS, body.get("items"), &mut tally, &app.limits)?;
    turns::check_size(&tally, body_bytes, &app.limits)
}
