//! `GET /api/v2/course-recommendations/`: the catalogue, searched and paged.

use amalgam_assistant::recommendation::CourseQuery;
use amalgam_protocol::Writer;
use axum::response::Response;

use super::error::AssistantError;
use crate::wires::answer;
use crate::wires::call::Call;

/// One page of the results. RNCC-38
pub(super) async fn recommend(Call { app, scope, query, .. }: Call) -> Result<Response, AssistantError> {
    let wanted =
        CourseQuery::new(query.get("q").unwrap_or_default(), query.number("page")?, query.number("page_size")?);
    let found = app.store.search_courses(&scope, &wanted.words(), wanted.offset(), wanted.limit()).await?;
    let mut writer = Writer::default();
    wanted.write(&mut writer, &app.assistant.public_url, &found);
    Ok(answer::json(writer.into_bytes()))
}
