//! `POST /v1/responses/compact`

use std::sync::Arc;

use amalgam_app::{
    compaction::{self, Compacted},
    idempotency::{self, ClaimOutcome},
    turns::ReplyHead,
};
use amalgam_core::{Fault, Scope};
use amalgam_protocol::ResponseParameters;
use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};

use crate::{
    app::App,
    body::read_json,
    wires::{
        WireError, answer,
        headers::{idempotency_key, is_strict},
        reply,
    },
};

/// Compacts a conversation.
pub(super) async fn compact(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let (head, body) = read_json(request, app.whole_body(), &app.memory).await?;
    let strict = is_strict(&head.headers);
    let compacted = async |identity| {
        let parameters = ResponseParameters::parse(&body, app.limits.json_depth)?;
        compaction::compact(&app, &scope, &parameters, strict, identity).await
    };
    let Compacted { id, object, losses } = match idempotency_key(&head.headers)? {
        None => compacted(app.engine.identity()).await?,
        Some(key) => {
            let route = "POST /v1/responses/compact";
            let first = match idempotency::claim(&app.app, &scope, route, key, &body).await? {
                ClaimOutcome::First(first) => first,
                ClaimOutcome::Replayed(replayed) => return Ok(reply::render(replayed)),
            };
            match compacted(first.identity.clone()).await {
                Ok(compacted) => {
                    first.store(compacted.object.clone());
                    compacted
                }
                Err(fault) => {
                    let fault: Fault = fault;
                    first.refuse(&fault).await;
                    return Err(fault.into());
                }
            }
        }
    };
    Ok(reply::with_head(&ReplyHead { losses, ..ReplyHead::named(&id) }, answer::json(object)))
}
