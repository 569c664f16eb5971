//! `POST /v1/chat/completions`

use std::sync::Arc;

use amalgam_app::{
    idempotency,
    turns::{self, TurnRequest},
};
use amalgam_chat_completions::ChatRequest;
use amalgam_core::{Fault, Scope, Wire};
use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};

use super::render;
use crate::{
    app::App,
    body::read_json,
    wires::{
        WireError,
        headers::{conversation, idempotency_key, is_strict},
    },
};

const ROUTE: &str = "POST /v1/chat/completions";

/// Creates a completion.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let (head, body) = read_json(request, app.whole_body(), &app.memory).await?;
    let strict = is_strict(&head.headers);
    let conversation = conversation(&head.headers)?;
    let request = ChatRequest::parse(&body, app.limits.json_depth, conversation).map_err(Fault::from)?;
    let ChatRequest { parameters, losses, options, names } = request;
    let turn =
        |identity| TurnRequest { strict, losses, ..TurnRequest::new(Wire::ChatCompletions, identity, parameters) };
    let replied = match idempotency_key(&head.headers)? {
        None => turns::respond(&app.app, &scope, turn(app.engine.identity())).await,
        // Boxed: few requests have a key, and the others need no space for it.
        Some(key) => {
            // The conversation is not in the body: the same key for another one is another request.
            let route = [ROUTE, conversation.unwrap_or_default()].join(" ");
            let turn = |identity| Ok(turn(identity));
            Box::pin(idempotency::respond(&app.app, &scope, route.trim_end(), (key, &body), turn)).await
        }
    };
    Ok(render::reply(replied.map_err(|fault| names.restate(fault))?, options)?)
}
