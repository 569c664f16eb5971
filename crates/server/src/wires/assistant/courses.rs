//! `GET /api/v2/course-recommendations/`: the catalogue, searched and paged.

use std::sync::Arc;

use amalgam_core::{Scope, assistant::recommendation::CourseQuery};
use amalgam_protocol::Writer;
use axum::{Extension, extract::State, response::Response};

use super::error::AssistantError;
use crate::{
    app::App,
    wires::{answer, query::Query},
};

/// One page of what was found. RNCC-38
pub(super) async fn recommend(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, AssistantError> {
    let wanted =
        CourseQuery::new(query.get("q").unwrap_or_default(), query.number("page")?, query.number("page_size")?);
    let found = app.store.search_courses(&scope, &wanted.words(), wanted.offset(), wanted.limit()).await?;
    let mut writer = Writer::default();
    wanted.write(&mut writer, &app.assistant.public_url, &found);
    Ok(answer::json(writer.into_bytes()))
}
