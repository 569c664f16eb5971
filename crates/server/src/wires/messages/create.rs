//! `POST /v1/messages` and `POST /v1/messages/count_tokens`

use std::sync::Arc;

use amalgam_app::{
    idempotency, token_count,
    turns::{self, TurnRequest},
};
use amalgam_core::{Fault, Scope, Wire};
use amalgam_messages::{MessagesCall, MessagesHeaders, MessagesPurpose};
use amalgam_protocol::{ResponseParameters, Writer};
use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use http::{HeaderMap, request::Parts};

use super::{
    error::{MessagesError, with_request_id},
    reply,
};
use crate::{
    app::App,
    body::read_json,
    wires::{
        answer,
        headers::{idempotency_key, is_strict},
        query::{is_id, missing},
    },
};

/// The header that names the conversation which a request continues.
const CONVERSATION: &str = "amalgam-conversation";
/// The header that has a response stored without a conversation.
const STORE: &str = "amalgam-store";
const BETA: &str = "anthropic-beta";

/// Creates a message.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, MessagesError> {
    let response = created(&app, &scope, request).await.map_err(|fault| MessagesError::of(fault, &scope))?;
    Ok(with_request_id(response, scope.request_id().map(|id| &**id)))
}

async fn created(app: &Arc<App>, scope: &Scope, request: Request) -> Result<Response, Fault> {
    let (head, body) = read_json(request, app.whole_body(), &app.memory).await?;
    let MessagesCall { mut parameters, rendering } = parse(app, &head, &body, MessagesPurpose::Message)?;
    parameters.max_output_tokens = output_limit(app, scope, &parameters).await?;
    let strict = is_strict(&head.headers);
    let turn = |identity, parameters| TurnRequest { strict, ..TurnRequest::new(Wire::Messages, identity, parameters) };
    let replied = match idempotency_key(&head.headers)? {
        None => turns::respond(&app.app, scope, turn(app.engine.identity(), parameters)).await?,
        // Boxed: few requests have a key, and the others need no space for it.
        Some(key) => {
            let turn = |identity| Ok(turn(identity, parameters));
            Box::pin(idempotency::respond(&app.app, scope, "POST /v1/messages", (key, &body), turn)).await?
        }
    };
    reply::render(replied, rendering, scope)
}

/// Counts the input tokens of a message in the form that its upstream would get.
pub(super) async fn count_tokens(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, MessagesError> {
    let response = counted(&app, &scope, request).await.map_err(|fault| MessagesError::of(fault, &scope))?;
    Ok(with_request_id(response, scope.request_id().map(|id| &**id)))
}

async fn counted(app: &App, scope: &Scope, request: Request) -> Result<Response, Fault> {
    let (head, body) = read_json(request, app.whole_body(), &app.memory).await?;
    let MessagesCall { parameters, .. } = parse(app, &head, &body, MessagesPurpose::Count)?;
    let tokens = token_count::input_tokens(app, scope, parameters).await?;
    let mut writer = Writer::with_capacity(32);
    writer.object(|writer| writer.key("input_tokens").number(tokens));
    Ok(answer::json(writer.into_bytes()))
}

/// The limit on output tokens. Every request of this API has to name one, and clients name the largest that any model of
/// Anthropic has; a model that is configured to have less gets its own limit.
async fn output_limit(app: &App, scope: &Scope, parameters: &ResponseParameters) -> Result<Option<u64>, Fault> {
    let Some(limit) = parameters.max_output_tokens else { return Ok(None) };
    let model = parameters.model.as_deref().unwrap_or_default();
    let Some(route) = app.catalog.resolve(scope, model).await? else { return Ok(Some(limit)) };
    // Of a window without a limit, half is left to the prompt.
    let own = route.card.max_output_tokens.or(route.card.context_window.map(|window| window / 2));
    Ok(Some(own.map_or(limit, |own| limit.min(own.max(1)))))
}

fn parse(app: &App, head: &Parts, body: &Bytes, purpose: MessagesPurpose) -> Result<MessagesCall, Fault> {
    MessagesCall::parse(body, app.limits.json_depth, purpose, read_headers(&head.headers)?, &*app.seal)
}

fn read_headers(headers: &HeaderMap) -> Result<MessagesHeaders, Fault> {
    let mut read = MessagesHeaders::default();
    for value in headers.get_all(BETA) {
        let value = value.to_str().map_err(|_| Fault::invalid(BETA, "anthropic-beta: must be ASCII."))?;
        read.add_betas(value)?;
    }
    if let Some(id) = headers.get(CONVERSATION) {
        let id = id.to_str().unwrap_or_default();
        if !is_id(id) {
            return Err(missing("Conversation", id));
        }
        read.conversation = Some(id.to_owned());
    }
    read.stored = headers.get(STORE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"));
    Ok(read)
}
