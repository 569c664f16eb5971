//! `POST /api/v2/ai-agent/client-secrets/`: a token for a browser, issued to the server that knows its user.

use amalgam_administration::keys::{KEY_OWNER, is_user};
use amalgam_app::assistant::{is_enabled, seal_client_secret};
use amalgam_assistant::{
    client_secret::{ClientSecret, ClientSecretRequest},
    request::FieldFaults,
};
use amalgam_core::{Fault, FaultKind};
use amalgam_protocol::Writer;
use axum::{extract::Request, response::Response};

use super::{error::AssistantError, respond::parse};
use crate::{
    body::read_json,
    wires::{answer, call::Call},
};

/// Issues a token. A key of one user issues tokens for that user only.
pub(super) async fn issue(Call { app, scope, .. }: Call, request: Request) -> Result<Response, AssistantError> {
    if !is_enabled(&app, &scope).await? {
        return Err(AssistantError::Disabled);
    }
    let key_hash = app.auth.issuing_key(request.headers())?;
    let (_, body) = read_json(request, app.text_body(), &app.memory).await?;
    let document = parse(&body)?;
    let wanted = ClientSecretRequest::read(document.raw())?;
    if !is_user(&wanted.user) {
        let fault = "Enter 1 to 256 visible characters that do not begin with \"key:\".";
        return Err(FieldFaults::of("user", fault).into());
    }
    if !scope.user().starts_with(KEY_OWNER) && scope.user() != wanted.user {
        return Err(Fault::new(FaultKind::Forbidden, "This key belongs to one user.").into());
    }
    let expires_at = app.clock.now_ms() / 1000 + wanted.expires_in;
    let secret = ClientSecret {
        key_hash,
        user: wanted.user,
        origin: wanted.origin,
        expires_at_ms: expires_at * 1000,
        terms: wanted.terms,
    };
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("client_secret").string(&seal_client_secret(&*app.seal, &secret));
        writer.key("expires_at").number(expires_at);
    });
    Ok(answer::json(writer.into_bytes()))
}
