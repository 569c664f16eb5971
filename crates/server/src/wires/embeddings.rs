//! `POST /v1/embeddings`: vectors of texts, from any upstream that has them.

use std::sync::Arc;

use amalgam_app::{
    embeddings::{EmbeddingsRequest, embed},
    idempotency::{self, ClaimOutcome},
};
use amalgam_core::Fault;
use axum::{Router, extract::Request, response::Response, routing::post};

use super::{WireError, answer, call::Call, headers::idempotency_key, reply};
use crate::{app::CurrentApp, body::read_json};

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new().route("/v1/embeddings", post(create))
}

/// Embeds texts; idempotent with an `Idempotency-Key`.
async fn create(Call { app, scope, .. }: Call, request: Request) -> Result<Response, WireError> {
    let (head, body) = read_json(request, app.text_body(), &app.memory).await?;
    let request = EmbeddingsRequest::parse(&body, &app.limits)?;
    let Some(key) = idempotency_key(&head.headers)? else {
        let (head, body) = embed(&app, &scope, app.engine.identity(), request).await?;
        return Ok(reply::with_head(&head, answer::json(body)));
    };
    match idempotency::claim(&app.app, &scope, "POST /v1/embeddings", key, &body).await? {
        ClaimOutcome::Replayed(replayed) => Ok(reply::render(replayed)),
        ClaimOutcome::First(first) => {
            let (app, identity) = (Arc::clone(&app), first.identity.clone());
            let work = async move { embed(&app, &scope, identity, request).await.map(|(_, body)| body) };
            Ok(answer::json(first.run::<Fault>(work).await?))
        }
    }
}
