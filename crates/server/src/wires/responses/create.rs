//! `POST /v1/responses`

use std::sync::Arc;

use amalgam_app::{
    idempotency,
    turns::{self, TurnRequest},
};
use amalgam_core::{Scope, Wire};
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
        WireError,
        headers::{idempotency_key, is_strict},
        reply,
    },
};

/// Creates a response.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let (head, body) = read_json(request, app.whole_body(), &app.memory).await?;
    let strict = is_strict(&head.headers);
    let depth = app.limits.json_depth;
    let turn = |identity, parameters| TurnRequest { strict, ..TurnRequest::new(Wire::Responses, identity, parameters) };
    let replied = match idempotency_key(&head.headers)? {
        None => {
            let parameters = ResponseParameters::parse(&body, depth).map_err(amalgam_core::Fault::from)?;
            turns::respond(&app.app, &scope, turn(app.engine.identity(), parameters)).await?
        }
        // Boxed: few requests have a key, and the others need no space for it.
        Some(key) => {
            let turn = |identity| Ok(turn(identity, ResponseParameters::parse(&body, depth)?));
            let request = (key, &body);
            Box::pin(idempotency::respond(&app.app, &scope, "POST /v1/responses", request, turn)).await?
        }
    };
    Ok(reply::render(replied))
}
